//! Provenance: what a build records, what is signed, shown and compared of it; and the same bytes from the same sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cofferdam_core::digest::Digest;
use cofferdam_test_support::{guests, package};
use serde_json::{Value, json};

use crate::cli::{Desk, desk, with_toolchain};

const REMOTE: &str = "https://ada:token@github.com/acme/connectors.git";

/// A desk with a key that it trusts, and the package quiet.wasm.
fn signing_desk() -> Desk {
    let desk = desk();
    desk.quiet();
    desk.run("key generate --out my.key").ok();
    let public = desk.run("key public my.key").ok();
    desk.run(&format!("trust add {} --for github://acme/*", public.trim())).ok();
    desk
}

fn provenance(repository: &str, dependencies: Value) -> Value {
    json!({
        "source": {
            "repository": repository,
            "commit": "0123456789abcdef0123456789abcdef01234567",
            "directory": "quiet",
            "clean": false,
        },
        "tools": [{"name": "cofferdam", "version": "0.1.0"}, {"name": "rustc", "version": "1.95.0 (59807616e)"}],
        "target": "wasm32-wasip2",
        "dependencies": dependencies,
    })
}

fn dependency(name: &str, version: &str, checksum: &str) -> Value {
    json!({"name": name, "version": version, "source": "crates.io", "checksum": checksum})
}

/// Writes the provenance of a package, as `build` would.
fn write(desk: &Desk, file: &str, provenance: &Value) {
    let digest = Digest::sha256(&fs::read(desk.path(file)).unwrap());
    let text = json!({"package": format!("sha256:{digest}"), "provenance": provenance}).to_string();
    fs::write(desk.path(&format!("{file}.provenance.json")), text).unwrap();
}

#[test]
fn a_signed_provenance_is_shown_as_a_claim() {
    let desk = signing_desk();
    let stated = provenance("https://github.com/acme/x", json!([dependency("serde", "1.0.0", "sha256:00")]));
    write(&desk, "quiet.wasm", &stated);
    let signed = desk.run("sign quiet.wasm --key my.key --format json").json();
    assert_eq!(signed["provenance"], stated);
    assert_eq!(desk.run("inspect quiet.wasm --format json").json()["provenance"], stated);
    let text = desk.run("inspect quiet.wasm").ok();
    for line in [
        "PROVENANCE, as the signer claims",
        "source       https://github.com/acme/x, directory quiet",
        "commit       0123456789abcdef0123456789abcdef01234567, and changes that are not in it",
        "made with    cofferdam 0.1.0, rustc 1.95.0 (59807616e), for wasm32-wasip2",
        "dependencies 1, 0 of which only run during the build",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    desk.install("quiet.wasm").ok();
    assert_eq!(desk.run("inspect github://acme/quiet --format json").json()["provenance"], stated);
    desk.run("sign quiet.wasm --key my.key --replace --no-provenance").ok();
    assert_eq!(desk.run("inspect quiet.wasm --format json").json()["provenance"], json!(null));
    // A key without trust can claim anything.
    desk.run("key generate --out other.key").ok();
    desk.run("sign quiet.wasm --key other.key --replace").ok();
    let text = desk.run("inspect quiet.wasm").ok();
    assert!(text.contains("PROVENANCE, as a signature claims that is not trusted here"), "{text}");
    desk.run("rebuild --package quiet.wasm").fails(65).said("in the provenance of a trusted signature");
}

#[test]
fn a_wrong_provenance_is_not_signed() {
    let desk = signing_desk();
    write(&desk, "quiet.wasm", &provenance("https://github.com/acme/x", json!([])));
    fs::rename(desk.path("quiet.wasm.provenance.json"), desk.path("right.json")).unwrap();
    let right = fs::read_to_string(desk.path("right.json")).unwrap();
    let digest = Digest::sha256(&fs::read(desk.path("quiet.wasm")).unwrap()).to_string();
    let other = right.replace(&digest, &Digest::sha256(b"other").to_string());
    for (text, code, said) in [
        (other, 67, "is the provenance of another package"),
        (right.replace("https://", "https://ada:token@"), 65, "without credentials"),
        (right.replace("0123456789abcdef0123", "main"), 65, "its provenance is invalid: commit"),
        (right.replace("wasm32-wasip2", &"x".repeat(600)), 65, "its provenance is invalid: target"),
        ("{".to_owned(), 65, "is not a provenance of `cofferdam build`"),
    ] {
        fs::write(desk.path("quiet.wasm.provenance.json"), &text).unwrap();
        desk.run("sign quiet.wasm --key my.key").fails(code).said(said);
        fs::rename(desk.path("quiet.wasm.provenance.json"), desk.path("wrong.json")).unwrap();
        desk.run("sign quiet.wasm --key my.key --provenance wrong.json").fails(code).said(said);
        assert!(!desk.path("quiet.wasm.dsse.json").exists());
    }
    desk.run("sign quiet.wasm --key my.key").ok();
    // A second signature is over the statement that is there.
    desk.run("sign quiet.wasm --key my.key --provenance right.json")
        .fails(67)
        .said("another provenance, or none");
    desk.run("sign quiet.wasm --key my.key --provenance right.json --replace").ok();
    desk.run("sign quiet.wasm --key my.key").ok();
}

#[test]
fn changed_dependencies_and_repositories_are_listed() {
    let desk = signing_desk();
    let state = |repository: &str, dependencies: Value| {
        write(&desk, "quiet.wasm", &provenance(repository, dependencies));
        desk.run("sign quiet.wasm --key my.key --replace").ok();
    };
    state(
        "https://github.com/acme/x",
        json!([
            dependency("gone", "1.0.0", "sha256:00"),
            dependency("newer", "1.0.0", "sha256:00"),
            dependency("replaced", "1.0.0", "sha256:00"),
            dependency("same", "1.0.0", "sha256:00"),
        ]),
    );
    desk.install("quiet.wasm").ok();
    state(
        "https://github.com/eve/x",
        json!([
            dependency("added", "1.0.0", "sha256:00"),
            dependency("newer", "1.1.0", "sha256:01"),
            dependency("replaced", "1.0.0", "sha256:01"),
            dependency("same", "1.0.0", "sha256:00"),
        ]),
    );
    let difference = desk.run("diff github://acme/quiet quiet.wasm --format json").json();
    let line = |change: &Value| {
        let [severity, part, subject, what] =
            ["severity", "part", "subject", "what"].map(|field| change[field].as_str().unwrap().to_owned());
        format!("{severity} {part} {subject}: {what}")
    };
    let changes: Vec<_> = difference["changes"].as_array().unwrap().iter().map(line).collect();
    assert_eq!(
        changes,
        [
            "wider provenance repository: it was made from another repository",
            "changed dependencies added: it is new",
            "changed dependencies replaced: the same version has another source or checksum",
            "note dependencies newer: it has another version",
            "note dependencies gone: it is gone",
        ]
    );
    desk.run("sign quiet.wasm --key my.key --replace --no-provenance").ok();
    let difference = desk.run("diff github://acme/quiet quiet.wasm --format json").json();
    assert_eq!(
        line(&difference["changes"][0]),
        "changed provenance statement: its signature no longer says what it was made from"
    );
}

/// Copies what an example connector is made of: the SDK, the contract and the examples, without build results.
fn copy_sources(to: &Path) {
    let repository = package::repository();
    for part in ["Cargo.toml", "LICENSE", "guest-sdk", "wit", "examples"] {
        copy(&repository.join(part), &to.join(part));
    }
}

fn copy(from: &Path, to: &Path) {
    if from.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from).unwrap(), to).unwrap();
        return;
    }
    if from.is_file() {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
        return;
    }
    for entry in fs::read_dir(from).unwrap() {
        let name = entry.unwrap().file_name();
        if name != "target" {
            copy(&from.join(&name), &to.join(&name));
        }
    }
}

fn git(dir: &Path, args: &[&str]) -> String {
    let identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"];
    let output = Command::new("git").arg("-C").arg(dir).args(identity).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs a command that builds; without a target directory of the outer build, if it is to use `target` of its project.
fn run(desk: &Desk, args: &[&str], own_target: bool) -> Value {
    let mut command = desk.cli().command(args);
    with_toolchain(&mut command);
    if own_target {
        command.env_remove("CARGO_TARGET_DIR");
    }
    let output = command.args(["--format", "json"]).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn examples_are_the_same_from_two_directories() {
    let desk = signing_desk();
    let copy = tempfile::Builder::new().prefix("another place ").tempdir().unwrap();
    copy_sources(copy.path());
    git(copy.path(), &["init", "--quiet"]);
    fs::write(copy.path().join(".gitignore"), "target\n").unwrap();
    git(copy.path(), &["remote", "add", "origin", REMOTE]);
    git(copy.path(), &["add", "."]);
    git(copy.path(), &["commit", "--quiet", "--message", "all"]);
    let build = |root: &Path, name: &str, output: &Path, own_target: bool| {
        let (dir, output) = (root.join("examples").join(name), output.to_str().unwrap());
        run(&desk, &["build", dir.to_str().unwrap(), "-o", output], own_target)["hash"].clone()
    };
    let file = |name: &str| -> PathBuf { desk.path(&format!("{name}.wasm")) };
    let mut differing = Vec::new();
    for name in guests::names().unwrap() {
        let here = build(&package::repository(), &name, &file("here"), false);
        let there = build(copy.path(), &name, &file(&name), true);
        if here != there {
            differing.push(name);
        }
    }
    assert!(differing.is_empty(), "{differing:?}");
    records_its_sources(&desk, copy.path());
    is_rebuilt_from_its_commit(&desk, copy.path());
}

/// The provenance of the example hello, which was built in the repository.
#[track_caller]
fn records_its_sources(desk: &Desk, repository: &Path) {
    let text = fs::read_to_string(desk.path("hello.wasm.provenance.json")).unwrap();
    let stated = &serde_json::from_str::<Value>(&text).unwrap()["provenance"];
    let commit = git(repository, &["rev-parse", "HEAD"]);
    let source = json!({
        "repository": "https://github.com/acme/connectors.git",
        "commit": commit,
        "directory": "examples/hello",
        "clean": true,
    });
    assert_eq!(stated["source"], source);
    assert_eq!(stated["target"], "wasm32-wasip2");
    let tools: Vec<_> = stated["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(tools, ["cofferdam", "rustc", "cargo"]);
    let dependencies = stated["dependencies"].as_array().unwrap();
    let named =
        |name: &str| dependencies.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(named("cofferdam-guest")["source"], json!(null), "a part of the sources");
    assert_eq!(named("cofferdam-guest-macro")["build"], true);
    assert_eq!(named("serde_json")["source"], "crates.io");
    assert_eq!(named("serde_json")["checksum"].as_str().unwrap().len(), "sha256:".len() + 64);
    assert!(dependencies.iter().all(|it| it["name"] != "hello"), "it is not its own dependency");
    let home = std::env::var("HOME").unwrap_or("/home".into());
    for secret in
        [repository.to_str().unwrap(), "ada:", "ada@", "token", &format!("\"{home}"), "/tmp/", "file:"]
    {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

/// The example hello is signed, changed in its directory, and built again from the commit.
#[track_caller]
fn is_rebuilt_from_its_commit(desk: &Desk, repository: &Path) {
    let source = repository.join("examples/hello/src/lib.rs");
    fs::write(&source, fs::read_to_string(&source).unwrap() + "\n// later\n").unwrap();
    desk.run("sign hello.wasm --key my.key").ok();
    let hash = format!("sha256:{}", Digest::sha256(&fs::read(desk.path("hello.wasm")).unwrap()));
    let repository = repository.to_str().unwrap();
    let rebuilt = run(desk, &["rebuild", repository, "--package", "hello.wasm", "-o", "again.wasm"], true);
    assert_eq!(rebuilt["identical"], true, "{rebuilt}");
    assert_eq!((&rebuilt["built"], &rebuilt["sections"]), (&json!(hash), &json!([])));
    assert_eq!(fs::read(desk.path("again.wasm")).unwrap(), fs::read(desk.path("hello.wasm")).unwrap());
}

#[test]
fn a_rebuild_says_what_differs() {
    let desk = signing_desk();
    let copy = tempfile::tempdir().unwrap();
    copy_sources(copy.path());
    git(copy.path(), &["init", "--quiet"]);
    let hello = copy.path().join("examples/hello");
    let manifest = fs::read_to_string(hello.join("connector.toml")).unwrap();
    fs::write(desk.path("other.toml"), manifest + "# other\n").unwrap();
    let component = guests::component("hello").unwrap();
    desk.run(&format!("pack {} --manifest other.toml -o other.wasm", component.display())).ok();
    let mut command = desk.cli().command(&["rebuild"]);
    command.arg(&hello).args(["--package", "other.wasm", "--format", "json"]);
    let output = with_toolchain(&mut command).output().unwrap();
    assert_eq!(output.status.code(), Some(92), "{}", String::from_utf8_lossy(&output.stderr));
    let rebuilt: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&rebuilt["identical"], &rebuilt["commit"]), (&json!(false), &json!(null)));
    let sections: Vec<_> = rebuilt["sections"].as_array().unwrap().iter().map(|it| &it["section"]).collect();
    assert!(sections.contains(&&json!("custom section `cofferdam:manifest`")), "{sections:?}");
}
