//! Files that decide what runs are refused if another user could have written them, or a directory on the way.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use cofferdam_test_support::{Cli, CommandResult, Home, Signer, package};

use crate::bindings::fed;
use crate::{COFFERDAM, skipped};

/// Another user, in tests that run as root.
const OTHER: u32 = 12_345;

fn cli(home: &Home) -> Cli {
    Cli::new(COFFERDAM, home.path())
}

fn file(home: &Home, name: &str, text: &str) -> PathBuf {
    let path = home.path().join(name);
    fs::write(&path, text).unwrap();
    set_mode(&path, 0o600);
    path
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn refused(ran: CommandResult, words: &str) {
    assert!(!matches!(ran.code, Some(0) | None), "`{}` was accepted: {}", ran.line, ran.stderr);
    ran.said(words);
}

/// Every way in which another user could change what `run` reads from `path`.
#[track_caller]
fn is_private(home: &Home, path: &Path, run: &dyn Fn() -> CommandResult) {
    drop(run().ok());
    for open in [0o620, 0o602, 0o666] {
        set_mode(path, open);
        refused(run(), "can be written by others");
    }
    set_mode(path, 0o600);
    let second = home.path().join("second-name");
    fs::hard_link(path, &second).unwrap();
    refused(run(), "hard link");
    fs::remove_file(&second).unwrap();
    let (home_mode, dir) = (0o700, home.path());
    set_mode(dir, 0o777);
    refused(run(), "another user can change");
    set_mode(dir, 0o1777);
    drop(run().ok());
    set_mode(dir, home_mode);
    if rustix::process::geteuid().is_root() {
        chown(path, Some(OTHER), None).unwrap();
        refused(run(), "belongs to another user");
        chown(path, Some(0), None).unwrap();
        chown(dir, Some(OTHER), None).unwrap();
        refused(run(), "another user can change");
        chown(dir, Some(0), None).unwrap();
    } else {
        skipped("only root can give a file to another user");
    }
    drop(run().ok());
}

/// In addition, for a file that the operator did not name: it is not a link.
#[track_caller]
fn is_no_link(home: &Home, path: &Path, run: &dyn Fn() -> CommandResult) {
    let elsewhere = home.path().join("elsewhere");
    fs::rename(path, &elsewhere).unwrap();
    symlink("elsewhere", path).unwrap();
    refused(run(), "is a symbolic link");
    fs::rename(&elsewhere, path).unwrap();
    drop(run().ok());
}

#[test]
fn a_configuration_that_others_can_write_is_refused() {
    let home = Home::new(COFFERDAM);
    let path = file(&home, "config.toml", "[audit]\nresults = false\n");
    let run = || cli(&home).run(&["list"]);
    is_private(&home, &path, &run);
    is_no_link(&home, &path, &run);
}

#[test]
fn pins_that_others_can_write_are_refused() {
    let home = Home::new(COFFERDAM);
    let path = file(&home, "mcp-pins.json", "{\"version\": 1, \"tools\": {}}\n");
    let run = || cli(&home).run(&["mcp"]);
    is_private(&home, &path, &run);
    is_no_link(&home, &path, &run);
}

#[test]
fn a_keyring_that_others_can_write_is_refused() {
    let home = Home::new(COFFERDAM);
    home.trust(&Signer::new().public(), "github://acme/*");
    let path = home.path().join("keyring.toml");
    let run = || cli(&home).run(&["trust", "list"]);
    is_private(&home, &path, &run);
    is_no_link(&home, &path, &run);
}

#[test]
fn extra_roots_that_others_can_write_are_refused() {
    let home = Home::new(COFFERDAM);
    let certificate = rcgen::generate_simple_self_signed(vec!["root.example".into()]).unwrap();
    file(&home, "config.toml", "[network]\nextra_roots = [\"ca.pem\"]\n");
    let path = file(&home, "ca.pem", &certificate.cert.pem());
    is_private(&home, &path, &|| cli(&home).run(&["list"]));
}

#[test]
fn writable_passphrase_and_key_files_are_refused() {
    let home = Home::new(COFFERDAM);
    let path = file(&home, "passphrase", "a passphrase that is long enough\n");
    let named = path.to_str().unwrap();
    let secret = [
        "binding",
        "set",
        "bearer/slack",
        "--stdin",
        "--passphrase-file",
        named,
        "--host",
        "slack.com:443",
        "--connector",
        "github://acme/slack",
    ];
    drop(fed(&cli(&home), &secret, "a-secret-to-be-kept").ok());
    is_private(&home, &path, &|| cli(&home).run(&["binding", "list", "--passphrase-file", named]));

    let key = home.path().join("acme.key");
    let named = key.to_str().unwrap();
    drop(cli(&home).run(&["key", "generate", "--out", named]).ok());
    is_private(&home, &key, &|| cli(&home).run(&["key", "public", named]));
}

#[test]
fn an_audit_log_of_another_name_or_user_is_refused() {
    let home = Home::new(COFFERDAM);
    let bytes = package::pack(&package::quiet(), &package::manifest("github://acme/quiet", "1.0.0"));
    let packed = home.path().join("quiet.wasm");
    fs::write(&packed, bytes).unwrap();
    drop(cli(&home).install(&[packed.to_str().unwrap(), "--allow-unsigned"]).ok());
    drop(cli(&home).run(&["call", "github://acme/quiet", "run", "--allow-unsigned"]).ok());
    drop(cli(&home).run(&["audit", "verify"]).ok());
    let mut files = home.segments();
    files.extend(["audit/checkpoint", "host.key"].map(|name| home.path().join(name)));
    for path in files {
        assert!(path.exists(), "{path:?}");
        is_private(&home, &path, &|| cli(&home).run(&["audit", "verify"]));
    }
}

#[test]
fn the_keyrings_lock_truncates_nothing() {
    let home = Home::new(COFFERDAM);
    let target = file(&home, "notes.txt", "not to be lost");
    symlink("notes.txt", home.path().join(".keyring.lock")).unwrap();
    let key = Signer::new().public().to_string();
    let trust = || cli(&home).run(&["trust", "add", &key, "--for", "github://acme/*"]);
    refused(trust(), "is a symbolic link");
    assert_eq!(fs::read_to_string(&target).unwrap(), "not to be lost");
    fs::remove_file(home.path().join(".keyring.lock")).unwrap();
    drop(trust().ok());
}

#[test]
fn a_clients_configuration_keeps_its_mode_and_owner() {
    let home = Home::new(COFFERDAM);
    let other = "{\"mcpServers\": {\"other\": {\"headers\": {\"Authorization\": \"Bearer of-another\"}}}}";
    let path = file(&home, ".mcp.json", other);
    let owner = if rustix::process::geteuid().is_root() { OTHER } else { path.metadata().unwrap().uid() };
    chown(&path, Some(owner), None).unwrap();
    drop(cli(&home).run(&["mcp", "config", "--client", "claude-code", "--write"]).ok());
    let there = path.metadata().unwrap();
    assert_eq!((there.mode() & 0o777, there.uid()), (0o600, owner));
    let written = fs::read_to_string(&path).unwrap();
    assert!(written.contains("of-another") && written.contains("cofferdam"), "{written}");
}

#[test]
fn a_revoked_key_is_not_trusted_later() {
    let home = Home::new(COFFERDAM);
    let key = Signer::new().public();
    let (id, key) = (key.id().to_string(), key.to_string());
    let run = |args: &[&str]| cli(&home).run(&[&["trust"], args].concat());
    refused(run(&["revoke", &id]), "no key with the id");
    let shown = run(&["revoke", &key, "--reason", "advisory 7"]).ok();
    assert!(shown.contains("revoked") && shown.contains("advisory 7"), "{shown}");
    refused(run(&["add", &key, "--for", "github://acme/*"]), "was revoked (advisory 7) and stays so");
    let listed = run(&["list", "--format", "json"]).json();
    assert_eq!((&listed[0]["status"], &listed[0]["reason"]), (&"revoked".into(), &"advisory 7".into()));
    assert!(run(&["list"]).ok().contains("revoked (advisory 7)"));
    drop(run(&["remove", &id]).ok());
    drop(run(&["add", &key, "--for", "github://acme/*"]).ok());
}
