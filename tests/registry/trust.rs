//! The trust that a cluster shares: published to a real registry, and taken over by running hosts.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use cofferdam_test_support::{Cli, Home, Serving, Signer};
use serde_json::json;

use super::server::{Access, Registry, tools};
use super::{Desk, NAME};
use crate::COFFERDAM;

/// The key that publishes, in a file of the desk.
fn key_file(desk: &Desk, signer: &Signer, name: &str) {
    fs::write(desk.path(name), signer.secret_text()).unwrap();
    fs::set_permissions(desk.path(name), fs::Permissions::from_mode(0o600)).unwrap();
}

/// A host of the cluster, which has the package and pins this key.
fn host(desk: &Desk, reference: &str, pinned: &Signer) -> (Home, Cli) {
    let home = Home::new(COFFERDAM);
    let cli = Cli::new(COFFERDAM, home.path());
    home.trust(&desk.signer.public(), "github://acme/*");
    cli.install(&[desk.path("quiet-1.0.0.wasm")]).ok();
    let config = format!("[cluster]\ntrust = \"{reference}\"\ntrust_keys = [\"{}\"]\n", pinned.public());
    fs::write(home.path().join("config.toml"), config).unwrap();
    (home, cli)
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Sends a request to the registry, as somebody who may write there; returns the body of the answer.
fn ask(registry: &Registry, method: &str, body: &str) -> String {
    let name = registry.name();
    let mut stream = TcpStream::connect(&name).unwrap();
    let head = format!(
        "{method} /v2/acme/trust/manifests/stable HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\naccept: {MANIFEST}\r\n\
         content-type: {MANIFEST}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn manifest(registry: &Registry) -> String {
    ask(registry, "GET", "")
}

fn put_manifest(registry: &Registry, manifest: &str) {
    ask(registry, "PUT", manifest);
}

fn until(what: &str, serving: &Serving, is_called: bool) {
    let begun = Instant::now();
    loop {
        let (status, answer) = serving.call(NAME, "run");
        if (status == 200) == is_called {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}: {status} {answer}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_revocation_reaches_running_hosts() {
    let Some(tools) = tools() else { return };
    let registry = Registry::start(&tools, Access::Open, None);
    let reference = registry.reference(":stable").replace("/acme/quiet:", "/acme/trust:");
    let (desk, publisher) = (Desk::new(), Signer::new());
    key_file(&desk, &publisher, "trust.key");
    desk.package("1.0.0");
    let key = desk.path("trust.key");
    let publish = format!("trust publish {reference} --key {} --format json", key.display());
    let first = desk.run(&publish).json();
    assert_eq!((&first["version"], &first["keys"]), (&json!(1), &json!(1)));
    let first_manifest = manifest(&registry);

    let hosts: Vec<_> = (0..2).map(|_| host(&desk, &reference, &publisher)).collect();
    let serving: Vec<_> = hosts.iter().map(|(_, cli)| Serving::start(cli, &[])).collect();
    serving.iter().for_each(|serving| until("it runs", serving, true));

    desk.run(&format!("trust revoke {}", desk.signer.public())).ok();
    fs::write(desk.path("set.lock"), "format = 1\n").unwrap();
    let lock = desk.path("set.lock");
    let second = desk.run(&format!("{publish} --lock {}", lock.display())).json();
    assert_eq!(second["version"], 2);
    let begun = Instant::now();
    serving.iter().for_each(|serving| until("it still runs", serving, false));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    for (home, cli) in &hosts {
        let kept = fs::read_to_string(home.path().join("trust/connectors.lock")).unwrap();
        assert_eq!(kept, "format = 1\n");
        // The change is in the audit log, as one of the host's own.
        let log = cli.run(&["trust", "list", "--format", "json"]).json();
        assert_eq!(log[0]["status"], "revoked", "{log}");
    }

    // An older state that somebody puts back is refused.
    desk.run(&format!("{publish} --version 2")).fails(67).said("version 2 already");
    put_manifest(&registry, &first_manifest);
    std::thread::sleep(Duration::from_secs(5));
    serving.iter().for_each(|serving| assert_ne!(serving.call(NAME, "run").0, 200));
    // A host that starts again takes it no more than one that runs.
    drop(serving);
    let again = Serving::start(&hosts[0].1, &[]);
    assert_ne!(again.call(NAME, "run").0, 200);
}

#[test]
fn trust_that_no_pinned_key_signed_is_refused() {
    let Some(tools) = tools() else { return };
    let registry = Registry::start(&tools, Access::Open, None);
    let reference = registry.reference(":stable").replace("/acme/quiet:", "/acme/trust:");
    let (desk, publisher, thief) = (Desk::new(), Signer::new(), Signer::new());
    key_file(&desk, &thief, "thief.key");
    desk.package("1.0.0");
    let (_home, cli) = host(&desk, &reference, &publisher);
    let serving = Serving::start(&cli, &[]);
    assert_eq!(serving.call(NAME, "run").0, 200, "a registry without it stops nothing");
    desk.run(&format!("trust revoke {}", desk.signer.public())).ok();
    let key = desk.path("thief.key");
    desk.run(&format!("trust publish {reference} --key {}", key.display())).ok();
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(serving.call(NAME, "run").0, 200, "the thief's keyring is not taken");
    // Nor does the publisher build on it by mistake.
    key_file(&desk, &publisher, "trust.key");
    let key = desk.path("trust.key");
    desk.run(&format!("trust publish {reference} --key {}", key.display())).fails(65).said("No pinned key");
    desk.run(&format!("trust publish {reference} --key {} --version 9", key.display())).ok();
    until("the publisher's is", &serving, false);
}
