//! A real registry: publishing, installing and reviewing by reference, with and without a login and TLS.

use std::fs;

use cofferdam_test_support::process::write_program;
use cofferdam_test_support::services::Authority;
use serde_json::json;

use super::server::{ACCOUNT, Access, Registry, TokenService, tools};
use super::{Desk, NAME, digest};

#[test]
fn a_package_is_published_and_installed_by_reference() {
    let Some(tools) = tools() else { return };
    let registry = Registry::start(&tools, Access::Open, None);
    let author = Desk::new();
    let package = author.package("1.0.0");
    let reference = registry.reference(":1.0.0");
    let publish = format!("publish quiet-1.0.0.wasm {reference} --format json");
    let published = author.run(&publish).json();
    assert_eq!(
        (&published["hash"], &published["already_published"]),
        (&json!(digest(&package)), &json!(false))
    );
    let pinned = published["reference"].as_str().unwrap();
    assert!(pinned.starts_with(&format!("{reference}@sha256:")), "{pinned}");

    // Another machine, which trusts the author.
    let mut desk = Desk::new();
    desk.signer = author.signer;
    desk.home.trust(&desk.signer.public(), "github://acme/*");
    let listed = desk.run(&format!("tags {} --format json", registry.reference(""))).json();
    assert_eq!(listed["tags"], json!(["1.0.0"]), "the tag of the signatures is not one of a version");
    let inspected = desk.run(&format!("inspect {reference} --format json")).json();
    assert_eq!(
        (&inspected["hash"], &inspected["signature"]["status"]),
        (&json!(digest(&package)), &json!("trusted"))
    );
    let installed = desk.installs(&format!("{pinned} --format json")).json();
    assert_eq!((&installed["name"], &installed["hash"]), (&json!(NAME), &json!(digest(&package))));
    assert!(installed["signer"].is_string());
    desk.run(&format!("call {NAME} run")).ok();

    // The next version.
    desk.package("1.1.0");
    desk.run(&format!("publish quiet-1.1.0.wasm {}", registry.reference(":1.1.0"))).ok();
    let difference = desk.run(&format!("diff {NAME} {} --format json", registry.reference(":1.1.0"))).json();
    assert_eq!(
        (&difference["before"]["version"], &difference["after"]["version"]),
        (&json!("1.0.0"), &json!("1.1.0"))
    );
    assert_eq!(desk.run(&format!("tags {}", registry.reference(""))).ok(), "1.0.0\n1.1.0\n");
    desk.dir("out");
    desk.run(&format!("pull {} -o out", registry.reference(":1.1.0"))).ok();
    assert_eq!(
        fs::read(desk.path("out/quiet-1.1.0.wasm")).unwrap(),
        fs::read(desk.path("quiet-1.1.0.wasm")).unwrap()
    );
    desk.run("install out/quiet-1.1.0.wasm").ok();
    desk.run(&format!("install {}", registry.reference(""))).fails(65).said("cofferdam tags");
    desk.run(&format!("install {}", registry.reference(":9.9.9"))).fails(90).said("cofferdam tags");
    desk.run(&format!("tags oci://{}/acme/none", registry.name())).fails(90).said("no repository");
}

#[test]
fn publishing_is_safe_to_repeat() {
    let Some(tools) = tools() else { return };
    let registry = Registry::start(&tools, Access::Open, None);
    let desk = Desk::new();
    let package = desk.package("1.0.0");
    let other = desk.package("1.1.0");
    let line = |version: &str, rest: &str| {
        format!("publish quiet-{version}.wasm {}{rest} --format json", registry.reference(":stable"))
    };
    let first = desk.run(&line("1.0.0", "")).json();
    let again = desk.run(&line("1.0.0", "")).json();
    assert_eq!(again["reference"], first["reference"]);
    assert_eq!((&again["already_published"], &again["already_signed"]), (&json!(true), &json!(true)));
    let refused = desk.run(&line("1.1.0", "")).fails(67);
    assert_eq!(refused.envelope()["error"]["code"], "conflict");
    refused.said("--move-tag");
    let inspect = format!("inspect {} --format json", registry.reference(":stable"));
    assert_eq!(desk.run(&inspect).json()["hash"], digest(&package));
    let moved = desk.run(&line("1.1.0", " --move-tag")).json();
    assert_eq!(moved["already_published"], false);
    assert!(first["reference"].as_str().unwrap().ends_with(moved["moved_from"].as_str().unwrap()));
    assert_eq!(desk.run(&inspect).json()["hash"], digest(&other));
    // The old one is still there, by its digest.
    let pinned = first["reference"].as_str().unwrap();
    assert_eq!(desk.run(&format!("inspect {pinned} --format json")).json()["hash"], digest(&package));
    // A second signature is attached to the same package.
    let second = cofferdam_test_support::Signer::new();
    fs::write(desk.path("second.json"), second.sign(&other)).unwrap();
    let signed = desk.run(&line("1.1.0", " --signature second.json")).json();
    assert_eq!((&signed["already_published"], &signed["already_signed"]), (&json!(true), &json!(false)));
    assert_eq!(desk.run(&inspect).json()["signature"]["status"], "trusted");
}

#[test]
fn a_package_without_its_own_signature_is_not_published() {
    let Some(tools) = tools() else { return };
    let registry = Registry::start(&tools, Access::Open, None);
    let desk = Desk::new();
    desk.package("1.0.0");
    desk.package("1.1.0");
    let reference = registry.reference(":1.0.0");
    desk.run(&format!("publish quiet-1.0.0.wasm {reference} --signature quiet-1.1.0.wasm.dsse.json"))
        .fails(65)
        .said("it is about github://acme/quiet@1.1.0");
    fs::remove_file(desk.path("quiet-1.0.0.wasm.dsse.json")).unwrap();
    desk.run(&format!("publish quiet-1.0.0.wasm {reference}")).fails(65).said("cofferdam sign");
    desk.run(&format!("publish quiet-1.0.0.wasm {} --allow-unsigned", registry.reference("")))
        .fails(65)
        .said("a tag");
    fs::write(desk.path("none.wasm"), "no component").unwrap();
    desk.run(&format!("publish none.wasm {reference} --allow-unsigned"))
        .fails(65)
        .said("not a WebAssembly component");
    desk.run(&format!("tags {}", registry.reference(""))).fails(90).said("no repository");
    desk.run(&format!("publish quiet-1.0.0.wasm {reference} --allow-unsigned")).ok();
    desk.run(&format!("install {reference}")).fails(81).said("no signature");
    desk.installs(&format!("{reference} --allow-unsigned")).ok();
}

#[test]
fn credentials_come_from_the_docker_config() {
    let Some(tools) = tools() else { return };
    let registry = Registry::start(&tools, Access::Password, None);
    let desk = Desk::new();
    desk.package("1.0.0");
    let reference = registry.reference(":1.0.0");
    let publish = format!("publish quiet-1.0.0.wasm {reference}");
    desk.run(&publish).fails(90).said("wants a login");
    desk.log_in(&registry.name(), "ada:wrong");
    desk.run(&publish).fails(90).said("wants a login");
    desk.log_in(&registry.name(), ACCOUNT);
    desk.run(&publish).ok();
    desk.installs(&reference).ok();
    // The file in another place, and a helper.
    let helper = desk.path("docker-credential-tests");
    let script = "#!/bin/sh\nread -r server\necho \"$server\" >>\"$HOME/asked\"\n\
        echo '{\"Username\": \"ada\", \"Secret\": \"s3cret-of-tests\"}'\n";
    write_program(&helper, script);
    fs::remove_dir_all(desk.path(".docker")).unwrap();
    desk.dir("elsewhere");
    let config = json!({"credHelpers": {registry.name(): "tests"}});
    fs::write(desk.path("elsewhere/config.json"), config.to_string()).unwrap();
    let path = format!("{}:{}", desk.home.path().display(), std::env::var("PATH").unwrap());
    let pull = |path: &str| {
        let mut command = desk.cli.command(&["tags", &registry.reference("")]);
        command.env("DOCKER_CONFIG", desk.path("elsewhere")).env("PATH", path).output().unwrap()
    };
    let output = pull(&path);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(desk.path("asked")).unwrap().trim(), registry.name());
    write_program(&helper, "#!/bin/sh\nread -r server\necho s3cret-of-tests\necho broken >&2\nexit 1\n");
    let output = pull(&path);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("broken") && !said.contains("s3cret"), "{said}");
}

#[test]
fn tokens_are_fetched_for_pulling_and_pushing() {
    let Some(tools) = tools() else { return };
    let service = TokenService::start();
    let registry = Registry::start(&tools, Access::Token(&service), None);
    let desk = Desk::new();
    desk.package("1.0.0");
    let reference = registry.reference(":1.0.0");
    let options = service.options();
    let publish = format!("publish quiet-1.0.0.wasm {reference} {options}");
    desk.run(&publish).fails(90).said("wants a login");
    desk.log_in(&registry.name(), ACCOUNT);
    desk.run(&format!("publish quiet-1.0.0.wasm {reference}")).fails(91).said("loopback address");
    desk.run(&publish).ok();
    // Everyone may pull.
    fs::remove_dir_all(desk.path(".docker")).unwrap();
    desk.installs(&format!("{reference} {options}")).ok();
    let asked = service.asked();
    let last = asked.last().unwrap().to_lowercase();
    assert!(
        !last.contains("authorization:") && last.contains("scope=repository%3aacme%2fquiet%3apull"),
        "{last}"
    );
    assert!(asked.iter().all(|request| !request.contains("Bearer")));
}

#[test]
fn a_registry_with_tls_needs_its_authority() {
    let Some(tools) = tools() else { return };
    let authority = Authority::new();
    let registry = Registry::start(&tools, Access::Password, Some(&authority));
    let desk = Desk::new();
    desk.package("1.0.0");
    desk.log_in(&registry.name(), ACCOUNT);
    fs::write(desk.path("ca.pem"), authority.pem()).unwrap();
    fs::write(desk.path("other.pem"), Authority::new().pem()).unwrap();
    let reference = registry.reference(":1.0.0");
    let publish = format!("publish quiet-1.0.0.wasm {reference}");
    desk.run(&format!("{publish} --ca-file other.pem")).fails(90).said("--ca-file");
    desk.run(&publish).fails(90).said("status 400");
    desk.run(&format!("{publish} --ca-file ca.pem")).ok();
    desk.installs(&format!("{reference} --ca-file ca.pem")).ok();
    assert!(!registry.log().contains("s3cret"));
    desk.run(&format!("tags {} --ca-file none.pem", registry.reference(""))).fails(66).said("none.pem");
    fs::write(desk.path("none.pem"), "none").unwrap();
    desk.run(&format!("tags {} --ca-file none.pem", registry.reference(""))).fails(65).said("none.pem");
}
