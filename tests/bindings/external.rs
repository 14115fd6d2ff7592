//! Secrets in a directory, behind a command and in variables: listed, tried, and used by a confined server.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_test_support::process::write_program;
use cofferdam_test_support::{CommandResult, Home, Serving};
use serde_json::json;

use super::binding_test::service;
use super::{TOKEN, fed, home, nowhere_on_disk, silent, slack};

const SLACK: &str = "github://acme/slack";

fn write(path: &Path, text: &str, mode: u32) {
    // As orchestrators do it: a file is replaced and not rewritten.
    let staged = path.with_extension("staged");
    fs::write(&staged, text).unwrap();
    fs::set_permissions(&staged, fs::Permissions::from_mode(mode)).unwrap();
    fs::rename(&staged, path).unwrap();
}

/// Configures `[vault]`, and one binding of `bearer/slack` to `at`.
fn configure(home: &Home, vault: &str, secret: &str, at: &str, port: u16) {
    let config = format!("[network]\nallow_private = [\"localhost:{port}\"]\n[vault]\n{vault}\n");
    fs::write(home.path().join("config.toml"), config).unwrap();
    let bindings = format!(
        "[[binding]]\nname = \"bearer/slack\"\nsecret = \"{secret}\"\nhosts = [\"{at}\"]\nconnectors = [\"{SLACK}\"]\n"
    );
    fs::write(home.path().join("bindings.toml"), bindings).unwrap();
}

/// The vault of each kind, with its secret: `[vault]`, and the name of the secret.
fn kinds(dir: &Path) -> [(&'static str, String, &'static str); 3] {
    write(&dir.join("slack-token"), &format!("{TOKEN}\n"), 0o400);
    let script = format!("#!/bin/sh\nread -r line\ncat '{}/answer'\n", dir.to_str().unwrap());
    write_program(&dir.join("get-secret"), &script);
    let answer = format!("{{\"version\":1,\"secrets\":{{\"slack\":\"{TOKEN}\"}}}}\n");
    write(&dir.join("answer"), &answer, 0o600);
    let shown = dir.to_str().unwrap();
    [
        ("directory", format!("kind = \"directory\"\ndirectory = \"{shown}\""), "slack-token"),
        (
            "command",
            format!(
                "kind = \"command\"\ncommand = [\"{shown}/get-secret\"]\nenvironment = [\"PATH\"]\n\
                 cache = \"1s\"\nreach = [\"{shown}\", \"/bin\", \"/usr/bin\"]"
            ),
            "slack",
        ),
        ("environment", "kind = \"environment\"".to_owned(), "SLACK_TOKEN_OF_TESTS"),
    ]
}

#[test]
fn each_kind_of_vault_is_listed_and_tried() {
    let (port, heads) = service();
    let at = format!("http://localhost:{port}");
    for number in 0..3 {
        let (home, cli) = home(&[slack(SLACK, "1.0.0", &at)]);
        let dir = tempfile::tempdir().unwrap();
        let (kind, vault, secret) = kinds(dir.path()).into_iter().nth(number).unwrap();
        configure(&home, &vault, secret, &at, port);
        let run = |args: &[&str]| {
            let mut command = cli.command(args);
            let output = command.env("SLACK_TOKEN_OF_TESTS", TOKEN).output().unwrap();
            let ran = CommandResult {
                line: args.join(" "),
                code: output.status.code(),
                stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            };
            silent(ran, TOKEN)
        };
        let listed = run(&["binding", "list", "--format", "json"]).json();
        assert_eq!(
            (&listed[0]["name"], &listed[0]["status"]),
            (&json!("bearer/slack/default"), &json!("active")),
            "{kind}"
        );
        let accepted = format!("{at}/accepted");
        let tried = run(&["binding", "test", "bearer/slack", "--url", &accepted, "--format", "json"]).json();
        assert_eq!((&tried["usable"], &tried["answer"]["status"]), (&json!(true), &json!(200)), "{kind}");
        let head = heads.recv().unwrap().to_lowercase();
        assert!(head.contains(&format!("authorization: bearer {TOKEN}")), "{head}");
        for command in [
            &["binding", "set", "bearer/other", "--stdin", "--connector", SLACK, "--host", "a.example:443"][..],
            &["binding", "rebind", "bearer/slack", "--stdin"],
            &["binding", "allow", "bearer/slack", "--host", "a.example:443", "--yes"],
            &["binding", "disallow", "bearer/slack", "--connector", SLACK],
            &["binding", "revoke", "bearer/slack", "--yes"],
            &["binding", "lock", "--key-file"],
        ] {
            fed(&cli, command, "never-read").fails(65).said("edit bindings.toml");
        }
        nowhere_on_disk(home.path(), TOKEN);
        assert!(!home.path().join("vault").exists());
        // A host that the binding does not list gets nothing, whatever the store has.
        configure(&home, &vault, secret, "elsewhere.example:443", port);
        let _ = run(&["binding", "test", "bearer/slack", "--url", &accepted]).fails(78);
        assert_eq!(heads.try_iter().count(), 0, "{kind}");
    }
}

#[test]
fn a_missing_secret_is_named_with_its_fix() {
    let (home, cli) = home(&[slack(SLACK, "1.0.0", "slack.com:443")]);
    let dir = tempfile::tempdir().unwrap();
    for (vault, secret, words) in [
        (
            kinds(dir.path())[0].1.clone(),
            "other-token",
            "other-token in the vault's directory does not exist",
        ),
        (kinds(dir.path())[1].1.clone(), "other", "secret other of the vault's command (get-secret)"),
        ("kind = \"environment\"".to_owned(), "MISSING_TOKEN", "variable MISSING_TOKEN is not set"),
    ] {
        configure(&home, &vault, secret, "slack.com:443", 1);
        let listed = cli.run(&["binding", "list", "--format", "json"]).json();
        assert_eq!(listed[0]["status"], "unavailable", "{listed}");
        for command in [
            &["binding", "test", "bearer/slack"][..],
            &["binding", "inspect", "bearer/slack"],
            &["call", SLACK, "run"],
        ] {
            let failed = cli.run(&[command, &["--format", "json"]].concat()).fails(83).envelope();
            assert_eq!(failed["error"]["code"], "vault_unusable", "{failed}");
            assert!(failed["error"]["message"].as_str().unwrap().contains(words), "{failed}");
            assert!(!failed.to_string().contains(dir.path().to_str().unwrap()), "{failed}");
        }
        assert!(cli.run(&["doctor", "--format", "json"]).stdout.contains(words));
    }
    fs::remove_file(home.path().join("bindings.toml")).unwrap();
    cli.run(&["binding", "list"]).fails(83).said("bindings.toml) does not exist");
}

/// Calls until the status is this one: a change of a secret is seen within seconds.
fn until(serving: &Serving, status: u16) -> serde_json::Value {
    let begun = Instant::now();
    loop {
        let (now, answer) = serving.call(SLACK, "run");
        if now == status {
            return answer;
        }
        assert!(begun.elapsed() < Duration::from_secs(15), "{now}: {answer}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_confined_server_sees_rotated_secrets() {
    for number in 0..2 {
        let (home, cli) = home(&[slack(SLACK, "1.0.0", "slack.com:443")]);
        let dir = tempfile::tempdir().unwrap();
        let (kind, vault, secret) = kinds(dir.path()).into_iter().nth(number).unwrap();
        configure(&home, &vault, secret, "slack.com:443", 1);
        let serving = Serving::start(&cli, &[]);
        let (status, answer) = serving.call(SLACK, "run");
        assert_eq!(status, 200, "{kind}: {answer}");
        let file = dir.path().join(if number == 0 { "slack-token" } else { "answer" });
        let before = fs::read_to_string(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let failed = until(&serving, 503);
        // The operator's log has the name of the file or of the command; a program that calls has not.
        assert_eq!(failed["error"]["code"], "vault_unusable", "{failed}");
        assert!(!failed.to_string().contains(TOKEN), "{failed}");
        write(&file, &before, 0o400);
        until(&serving, 200);
    }
}

#[test]
fn a_server_takes_credentials_of_systemd() {
    let (home, cli) = home(&[slack(SLACK, "1.0.0", "slack.com:443")]);
    let dir = tempfile::tempdir().unwrap();
    drop(kinds(dir.path()));
    configure(&home, "kind = \"directory\"", "slack-token", "slack.com:443", 1);
    cli.run(&["binding", "list"]).fails(64).said("LoadCredential");
    let serving = Serving::start(&cli, &[("CREDENTIALS_DIRECTORY", dir.path().to_str().unwrap())]);
    assert_eq!(serving.call(SLACK, "run").0, 200);
}

#[test]
fn a_readable_secret_is_refused() {
    let (home, cli) = home(&[slack(SLACK, "1.0.0", "slack.com:443")]);
    let dir = tempfile::tempdir().unwrap();
    let (_, vault, secret) = kinds(dir.path()).into_iter().next().unwrap();
    configure(&home, &vault, secret, "slack.com:443", 1);
    write(&dir.path().join("slack-token"), TOKEN, 0o444);
    let failed = silent(cli.run(&["binding", "test", "bearer/slack"]), TOKEN);
    failed.fails(83).said("can be read by others");
}
