//! The vault under processes: many at once, killed ones, full and read-only disks, wrong keys.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use cofferdam::HostErrorKind;
use cofferdam_core::secret::Secret;
use cofferdam_egress::vault::SecretMaterial;
use cofferdam_runtime::host::NewBinding;
use cofferdam_test_support::{Cli, Home};
use serde_json::Value;

use crate::COFFERDAM;
use crate::bindings::fed;
use crate::envelope;

const TO: [&str; 4] = ["--connector", "github://acme/x", "--host", "x.example:443"];

fn set(cli: &Cli, name: &str) {
    let args = [&["binding", "set", name, "--stdin"], &TO[..]].concat();
    let _ = fed(cli, &args, "a-secret-to-be-kept").ok();
}

fn names(cli: &Cli) -> Vec<String> {
    let listed = cli.run(&["binding", "list", "--format", "json"]).json();
    listed.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

/// A file for its owner alone.
fn private(home: &Home, name: &str, text: &str) -> String {
    let path = home.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn concurrent_binds_are_not_lost() {
    let home = Home::new(COFFERDAM);
    let cli = Cli::new(COFFERDAM, home.path());
    std::thread::scope(|scope| {
        for process in 0..8 {
            let cli = &cli;
            scope.spawn(move || (0..10).for_each(|round| set(cli, &format!("bearer/s{process}/n{round}"))));
        }
    });
    assert_eq!(names(&cli).len(), 80);
}

#[test]
fn a_change_that_is_killed_leaves_the_old_or_the_new() {
    let home = Home::new(COFFERDAM);
    let cli = Cli::new(COFFERDAM, home.path());
    let started = Instant::now();
    set(&cli, "bearer/first/x");
    let whole = started.elapsed();
    let mut both = (0, 0);
    for round in 0..30 {
        let before = names(&cli);
        let name = format!("bearer/s{round}/x");
        let file = private(&home, "secret", "a-secret-to-be-kept");
        let args = [&["binding", "set", &name, "--file", &file], &TO[..]].concat();
        let mut child =
            cli.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap();
        std::thread::sleep(whole.mul_f64(f64::from(round) / 24.0).min(Duration::from_secs(2)));
        child.kill().unwrap();
        child.wait().unwrap();
        let after = names(&cli);
        if after.contains(&name) {
            both.1 += 1;
            assert_eq!(after.len(), before.len() + 1);
        } else {
            both.0 += 1;
            assert_eq!(after, before);
        }
    }
    assert!(both.0 > 0, "no round was killed before its change: {both:?}");
    set(&cli, "bearer/last/x");
    assert!(!home.path().join("vault.tmp").exists(), "the next writer sweeps up");
}

#[test]
fn a_vault_killed_before_its_state_is_used() {
    let home = Home::new(COFFERDAM);
    let cli = Cli::new(COFFERDAM, home.path());
    let file = private(&home, "secret", "a-secret-to-be-kept");
    let is_killed = |args: &[&str]| {
        let output = cli.command(args).env("COFFERDAM_FAILPOINTS", "vault.written=kill").output().unwrap();
        assert_eq!(output.status.signal(), Some(9), "{args:?}: {output:?}");
    };
    // One after the other: each finds a vault that is one change ahead of home.state. The first creates the vault.
    for name in ["bearer/a/x", "bearer/b/x", "bearer/c/x"] {
        is_killed(&[&["binding", "set", name, "--file", &file], &TO[..]].concat());
    }
    assert_eq!(names(&cli), ["bearer/a/x", "bearer/b/x", "bearer/c/x"]);
    is_killed(&["binding", "revoke", "bearer/a/x", "--yes"]);
    assert_eq!(names(&cli), ["bearer/b/x", "bearer/c/x"]);
    cli.run(&["audit", "verify"]).ok();
    // The next change catches up: an older vault is missed again.
    let older = fs::read(home.path().join("vault")).unwrap();
    set(&cli, "bearer/d/x");
    assert_eq!(names(&cli), ["bearer/b/x", "bearer/c/x", "bearer/d/x"]);
    fs::write(home.path().join("vault"), older).unwrap();
    let refused = cli.run(&["binding", "list", "--format", "json"]).fails(83).envelope();
    assert!(
        refused["error"]["message"].as_str().unwrap().contains("older than home.state says"),
        "{refused}"
    );
}

#[test]
fn a_wrong_passphrase_is_reported_and_harmless() {
    let home = Home::new(COFFERDAM);
    let cli = Cli::new(COFFERDAM, home.path());
    let right = private(&home, "right", "correct horse battery\n");
    let wrong = private(&home, "wrong", "incorrect horse\n");
    let with = |file: &str, args: &[&str]| {
        fed(&cli, &[args, &["--passphrase-file", file]].concat(), "a-secret-to-be-kept")
    };
    let args = [&["binding", "set", "bearer/slack/x", "--stdin"], &TO[..]].concat();
    let _ = with(&right, &args).ok();
    assert!(!home.path().join("vault.key").exists());
    let vault = fs::read(home.path().join("vault")).unwrap();
    for command in [
        &["binding", "list"][..],
        &["binding", "rebind", "bearer/slack/x", "--stdin"],
        &["binding", "revoke", "bearer/slack/x", "--yes"],
        &["binding", "lock", "--key-file"],
    ] {
        let ran = with(&wrong, &[command, &["--format", "json"]].concat()).fails(82);
        let error = ran.envelope();
        envelope::check_host_json(&error);
        assert_eq!(error["error"]["code"], "vault_locked");
        assert!(!ran.stderr.contains("horse"), "{}", ran.stderr);
        let unlocked = cli.run(&[command, &["--quiet"]].concat()).fails(82);
        assert!(unlocked.stderr.contains("COFFERDAM_VAULT_PASSPHRASE_FILE"), "{}", unlocked.stderr);
    }
    assert_eq!(fs::read(home.path().join("vault")).unwrap(), vault);
    let by_variable = |name: &str, value: &str| {
        cli.command(&["binding", "list", "--format", "json"]).env(name, value).output().unwrap()
    };
    for (name, value) in [
        ("COFFERDAM_VAULT_PASSPHRASE", "correct horse battery"),
        ("COFFERDAM_VAULT_PASSPHRASE_FILE", right.as_str()),
    ] {
        let output = by_variable(name, value);
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(listed[0]["name"], "bearer/slack/x");
    }
    // A missing file, or one that others can read, is not a passphrase; and only the vault asks for it.
    fs::set_permissions(&right, fs::Permissions::from_mode(0o644)).unwrap();
    let open = with(&right, &["binding", "list"]).fails(82);
    assert!(open.stderr.contains("chmod 600"), "{}", open.stderr);
    let _ = with("no-such-file", &["list"]).ok();
    fs::set_permissions(&right, fs::Permissions::from_mode(0o600)).unwrap();

    // Locked again, in both directions, with all its contents.
    let _ = with(&right, &["binding", "lock", "--key-file"]).ok();
    assert_eq!(names(&cli), ["bearer/slack/x"]);
    let trap = with(&right, &["binding", "list"]).fails(82);
    assert!(trap.stderr.contains("binding lock --passphrase"), "{}", trap.stderr);
    let _ = with(&right, &["binding", "lock", "--passphrase"]).ok();
    let _ = with(&right, &["binding", "lock", "--passphrase", "--new-passphrase-file", &wrong]).ok();
    assert!(with(&wrong, &["binding", "list"]).ok().contains("bearer/slack/x"));
}

#[test]
fn an_existing_vault_never_gets_a_new_key() {
    let home = Home::new(COFFERDAM);
    let cli = Cli::new(COFFERDAM, home.path());
    fs::create_dir(home.path().join("keys")).unwrap();
    fs::write(home.path().join("config.toml"), "[vault]\nkey_file = \"keys/vault.key\"\n").unwrap();
    set(&cli, "bearer/slack/x");
    assert!(home.path().join("keys/vault.key").exists() && !home.path().join("vault.key").exists());
    fs::remove_file(home.path().join("config.toml")).unwrap();
    let gone = cli.run(&["binding", "list", "--format", "json"]).fails(82);
    assert!(gone.stderr.contains("[vault] key_file"), "{}", gone.stderr);
    assert!(!home.path().join("vault.key").exists());
    fs::write(home.path().join("vault"), "what is this").unwrap();
    let foreign = cli.run(&["binding", "list", "--format", "json"]).fails(83);
    assert_eq!(foreign.envelope()["error"]["code"], "vault_unusable");
    assert_eq!(fs::read(home.path().join("vault")).unwrap(), b"what is this");
}

#[test]
fn a_full_or_read_only_disk_loses_no_secret() {
    let home = Home::new(COFFERDAM);
    let cli = Cli::new(COFFERDAM, home.path());
    set(&cli, "bearer/first/x");
    let args = TO.join(" ");
    let script = format!(
        r#"bind() {{ echo a-secret-to-be-kept | "$C" binding set "$1" --stdin {args} --format json 2>&1 >/dev/null; }}
           head -c 1m /dev/zero > "$H/ballast" 2>/dev/null
           bind bearer/full/x; "$C" binding list --format json
           rm "$H/ballast"; bind bearer/then/x
           mount -o remount,ro "$H"; bind bearer/ro/x; "$C" binding list --format json"#
    );
    let Some(output) = crate::disk::with_mount(home.path(), "768k", &script) else { return };
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<Value> = stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let [full, first, read_only, second] = lines.as_slice() else { panic!("{stdout}") };
    for error in [full, read_only] {
        envelope::check_host_json(error);
        assert_eq!(error["error"]["code"], "vault_unusable", "{error}");
        assert!(error["error"]["message"].as_str().unwrap().contains("as it was"), "{error}");
    }
    assert_eq!(first.as_array().unwrap().len(), 1);
    assert_eq!(second.as_array().unwrap().len(), 2);
}

#[test]
fn an_embedder_binds_without_a_command_line() {
    let home = Home::new(COFFERDAM);
    let new = |secret: &str| NewBinding {
        name: "bearer/slack/work".parse().unwrap(),
        material: SecretMaterial::Bearer { token: Secret::new(secret.into()).into() },
        hosts: vec!["slack.com:443".parse().unwrap()],
        connectors: vec!["github://acme/slack".parse().unwrap()],
    };
    let host = home.builder().vault_passphrase(Secret::new("correct horse battery".into())).build().unwrap();
    host.bind(new("a-token-of-slack")).unwrap();
    assert_eq!(host.bind(new("a-token-of-slack")).unwrap_err().kind(), HostErrorKind::Conflict);
    assert_eq!(host.bindings().unwrap()[0].name, "bearer/slack/work");
    let name = "bearer/slack/work".parse().unwrap();
    let bad = SecretMaterial::Bearer { token: Secret::new("two\nlines".into()).into() };
    assert_eq!(host.rebind(&name, bad).unwrap_err().kind(), HostErrorKind::Validation);
    let other = SecretMaterial::ApiKey { key: Secret::new("a-key-of-slack".into()).into() };
    assert_eq!(host.rebind(&name, other).unwrap_err().kind(), HostErrorKind::Validation);
    let nowhere = NewBinding {
        hosts: Vec::new(),
        name: "bearer/slack/else".parse().unwrap(),
        ..new("a-token-of-slack")
    };
    assert_eq!(host.bind(nowhere).unwrap_err().kind(), HostErrorKind::Validation);

    let locked = home.host().bindings().unwrap_err();
    envelope::check_host_error(&locked);
    assert_eq!(locked.kind(), HostErrorKind::VaultLocked);
    assert!(!locked.message().contains(home.path().to_str().unwrap()));
    let wrong = home.builder().vault_passphrase(Secret::new("wrong".into())).build().unwrap();
    assert_eq!(wrong.bindings().unwrap_err().kind(), HostErrorKind::VaultLocked);
    let both = home
        .builder()
        .vault_key_file("k")
        .vault(std::sync::Arc::new(cofferdam_egress::vault::VaultFile::new("v")))
        .build();
    assert_eq!(both.err().unwrap().kind(), HostErrorKind::Configuration);
    host.revoke_binding(&name).unwrap();
    assert!(host.bindings().unwrap().is_empty());
}
