//! `cofferdam binding` from outside: secrets in, grants shown, and no secret ever out again.

mod binding_test;
mod external;
pub(crate) mod terminal;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use cofferdam_test_support::{Cli, CommandResult, Home, Signer, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::envelope;

const TOKEN: &str = "xoxb-canary-4f1e-of-the-bindings";

/// A connector that requires a bearer token for `slack`.
pub(crate) fn slack(name: &str, version: &str, host: &str) -> Vec<u8> {
    let manifest = format!(
        "{}\n[capabilities.network]\nhosts = [\"{host}\"]\n\n[[capabilities.credential]]\nkind = \"bearer\"\nservice = \"slack\"\nhosts = [\"{host}\"]\n",
        package::manifest(name, version)
    );
    package::pack(&package::quiet(), &manifest)
}

/// A home, and the command line over it; with these packages installed.
pub(crate) fn home(packages: &[Vec<u8>]) -> (Home, Cli) {
    let home = Home::new(COFFERDAM);
    let cli = Cli::new(COFFERDAM, home.path());
    let signer = Signer::new();
    home.trust(&signer.public(), "github://acme/*");
    for (number, bytes) in packages.iter().enumerate() {
        let file = home.path().join(format!("{number}.wasm"));
        signer.write(&file, bytes);
        cli.install(&[file.as_os_str(), "--allow-downgrade".as_ref()]).ok();
    }
    (home, cli)
}

/// Runs a command with `input` on its standard input.
pub(crate) fn fed(cli: &Cli, args: &[&str], input: &str) -> CommandResult {
    let mut command = cli.command(args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that refuses at once does not read it.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    CommandResult {
        line: args.join(" "),
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The same, after checking that the output contains nothing of the secret.
#[track_caller]
fn silent(ran: CommandResult, secret: &str) -> CommandResult {
    for text in [&ran.stdout, &ran.stderr] {
        assert!(
            !text.contains(secret) && !text.contains(&secret[secret.len() - 8..]),
            "`{}` showed it: {text}",
            ran.line
        );
    }
    ran
}

/// No file below `dir` has the secret in it.
fn nowhere_on_disk(dir: &Path, secret: &str) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            nowhere_on_disk(&path, secret);
        } else if path.is_file() {
            let bytes = fs::read(&path).unwrap();
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{} has it", path.display());
        }
    }
}

#[test]
fn a_binding_is_set_shown_used_and_removed() {
    let (home, cli) = home(&[slack("github://acme/slack", "1.0.0", "slack.com:443")]);
    let set = silent(fed(&cli, &["binding", "set", "bearer/slack", "--stdin"], &format!("{TOKEN}\n")), TOKEN);
    // The connectors and hosts were derived and are printed, and so are the users that can read the secret.
    assert!(
        set.stderr.contains("github://acme/slack") && set.stderr.contains("slack.com:443"),
        "{}",
        set.stderr
    );
    assert!(set.stderr.contains("vault.key") && set.stderr.contains("has every secret"), "{}", set.stderr);
    assert!(set.ok().contains("bearer/slack/default"));
    for file in ["vault", "vault.key"] {
        let mode = fs::metadata(home.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    nowhere_on_disk(home.path(), TOKEN);

    let listed = silent(cli.run(&["binding", "list", "--format", "json"]), TOKEN).json();
    let first = &listed[0];
    assert_eq!(first["name"], "bearer/slack/default");
    assert_eq!(
        (&first["hosts"], &first["connectors"]),
        (&json!(["slack.com:443"]), &json!(["github://acme/slack"]))
    );
    assert_eq!((&first["status"], &first["stale"]), (&json!("active"), &json!(false)));
    assert!(silent(cli.run(&["binding", "list"]), TOKEN).ok().contains("slack.com:443"));

    let shown = silent(cli.run(&["binding", "inspect", "bearer/slack", "--format", "json"]), TOKEN).json();
    assert_eq!(shown["connectors"][0]["connector"], "github://acme/slack@1.0.0");
    assert_eq!(shown["connectors"][0]["sent_to"], json!(["slack.com:443"]));
    let tested = silent(cli.run(&["binding", "test", "bearer/slack", "--format", "json"]), TOKEN).json();
    assert_eq!(tested["usable"], true);

    let again = fed(&cli, &["binding", "set", "bearer/slack", "--stdin"], TOKEN).fails(67);
    assert!(again.stderr.contains("binding rebind bearer/slack/default"), "{}", again.stderr);
    let vault = fs::read(home.path().join("vault")).unwrap();
    let rebound =
        fed(&cli, &["binding", "rebind", "bearer/slack", "--stdin", "--format", "json"], "another-token-1")
            .json();
    assert_eq!(
        (&rebound["change"], &rebound["binding"]["hosts"]),
        (&json!("rebound"), &json!(["slack.com:443"]))
    );
    assert_ne!(fs::read(home.path().join("vault")).unwrap(), vault);

    cli.run(&["binding", "revoke", "bearer/slack"]).fails(65).said("Add --yes");
    cli.run(&["binding", "revoke", "bearer/slack", "--yes"]).ok();
    assert_eq!(cli.run(&["binding", "list", "--format", "json"]).json(), json!([]));
    for command in [
        &["binding", "revoke", "bearer/slack", "--yes"][..],
        &["binding", "inspect", "bearer/slack"],
        &["binding", "test", "bearer/slack"],
        &["binding", "rebind", "bearer/slack", "--stdin"],
        &["binding", "allow", "bearer/slack", "--connector", "github://acme/slack"],
    ] {
        let ran = cli.run(&[command, &["--format", "json"]].concat()).fails(66);
        let envelope = ran.envelope();
        envelope::check_host_json(&envelope);
        assert_eq!(envelope["error"]["code"], "binding_not_found");
    }
}

#[test]
fn a_secret_on_the_command_line_is_refused() {
    let (home, cli) = home(&[slack("github://acme/slack", "1.0.0", "slack.com:443")]);
    let before = home.snapshot();
    for extra in [
        &[TOKEN][..],
        &["--", TOKEN],
        &["--secret", TOKEN],
        &["--token", TOKEN],
        &["--stdin", TOKEN],
        &[&format!("--password={TOKEN}")],
        &[TOKEN, "two"],
    ] {
        let args = [&["binding", "set", "bearer/slack"], extra].concat();
        let ran = silent(fed(&cli, &args, TOKEN), TOKEN).fails(65);
        assert!(ran.stderr.contains("does not belong on the command line"), "{}", ran.stderr);
    }
    // Nor where the name should stand.
    let ran = silent(fed(&cli, &["binding", "set", &format!("bearer/slack={TOKEN}"), "--stdin"], ""), TOKEN);
    assert!(ran.fails(2).stderr.contains("<kind>/<service>/<identity>"));
    assert_eq!(home.snapshot(), before);
}

#[test]
fn unsendable_secrets_are_refused_before_binding() {
    let (home, cli) = home(&[slack("github://acme/slack", "1.0.0", "slack.com:443")]);
    let before = home.snapshot();
    for (input, words) in [
        ("", "it is empty"),
        ("\n", "it is empty"),
        ("xoxb-4f1e\r\nX-Evil: 1", "more than one line"),
        ("xoxb-\u{0}4f1e", "control character"),
        ("xoxb-\u{e9}4f1e", "not ASCII"),
        (" xoxb-4f1e", "begins or ends with a blank"),
        (&"x".repeat(20_000), "more than 16 KiB"),
        (&"x".repeat(70_000), "more than 64 KiB"),
    ] {
        let ran = fed(&cli, &["binding", "set", "bearer/slack", "--stdin"], input).fails(65);
        assert!(ran.stderr.contains(words) && !ran.stderr.contains("4f1e"), "{words}: {}", ran.stderr);
    }
    fed(&cli, &["binding", "set", "bearer/slack"], TOKEN).fails(65).said("--stdin");
    assert_eq!(home.snapshot(), before, "not even a key was made");
    let short = fed(&cli, &["binding", "set", "bearer/slack", "--stdin"], "short");
    assert!(short.stderr.contains("fewer than 8 characters"), "{}", short.stderr);
    let _ = short.ok();
}

#[test]
fn secrets_are_read_from_files_and_variables() {
    let (home, cli) = home(&[slack("github://acme/slack", "1.0.0", "slack.com:443")]);
    let file = home.path().join("token.txt");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let path = file.to_str().unwrap();
    for open in [0o644, 0o640, 0o602] {
        fs::set_permissions(&file, fs::Permissions::from_mode(open)).unwrap();
        let ran = silent(cli.run(&["binding", "set", "bearer/slack/file", "--file", path]), TOKEN).fails(65);
        assert!(ran.stderr.contains("chmod 600"), "{}", ran.stderr);
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let _ = silent(cli.run(&["binding", "set", "bearer/slack/file", "--file", path]), TOKEN).ok();
    cli.run(&["binding", "set", "bearer/slack/none", "--file", "no-such-file"])
        .fails(66)
        .said("does not exist");
    let mut command = cli.command(&["binding", "set", "bearer/slack/env", "--from-env", "SLACK_TOKEN"]);
    assert!(command.env("SLACK_TOKEN", TOKEN).output().unwrap().status.success());
    cli.run(&["binding", "set", "bearer/slack/env2", "--from-env", "SLACK_TOKEN"])
        .fails(65)
        .said("SLACK_TOKEN is not set");
    assert_eq!(cli.run(&["binding", "list", "--format", "json"]).json().as_array().unwrap().len(), 2);
}

#[test]
fn grants_are_derived_from_a_single_connector() {
    let packages = [
        slack("github://acme/slack", "1.0.0", "slack.com:443"),
        slack("github://acme/chat", "1.0.0", "chat.example:443"),
    ];
    let (_home, cli) = home(&packages);
    let several = fed(&cli, &["binding", "set", "bearer/slack", "--stdin"], TOKEN).fails(65);
    assert!(several.stderr.contains("github://acme/chat, github://acme/slack"), "{}", several.stderr);
    let none = fed(&cli, &["binding", "set", "api_key/jira", "--stdin"], TOKEN).fails(65);
    assert!(
        none.stderr.contains(
            "cofferdam binding set api_key/jira/default --connector github://OWNER/REPO --host HOST:PORT"
        ),
        "{}",
        none.stderr
    );

    let args = [
        "binding",
        "set",
        "bearer/slack",
        "--stdin",
        "--connector",
        "github://acme/slack",
        "--format",
        "json",
    ];
    let bound = fed(&cli, &args, TOKEN).json();
    assert_eq!(bound["binding"]["hosts"], json!(["slack.com:443"]));
    // The other one requires it and does not get it; the message names the command that would allow it.
    let tested = cli.run(&["binding", "test", "bearer/slack", "--format", "json"]).fails(78);
    let tested: Value = serde_json::from_str(&tested.stdout).unwrap();
    assert_eq!(tested["usable"], false);
    let other = tested["connectors"].as_array().unwrap().iter().find(|it| it["missing"].is_string()).unwrap();
    assert_eq!(
        other["command"],
        "cofferdam binding allow bearer/slack/default --connector github://acme/chat --host chat.example:443"
    );
    // A connector alone adds no host, and the command names the missing one.
    let allow = ["binding", "allow", "bearer/slack", "--connector", "github://acme/chat"];
    cli.run(&allow[..3]).fails(2).said("<--connector <CONNECTOR>|--host <HOST:PORT>>");
    let allowed = cli.run(&allow);
    assert!(allowed.stderr.contains("--host chat.example:443"), "{}", allowed.stderr);
    let allowed = cli.run(&[&allow[..], &["--format", "json"]].concat()).json();
    assert_eq!(allowed["binding"]["hosts"], json!(["slack.com:443"]));
    let host = ["binding", "allow", "bearer/slack", "--host", "chat.example:443", "--format", "json"];
    cli.run(&host).fails(65).said("--yes");
    let allowed = cli.run(&[&host[..], &["--yes"]].concat()).json();
    assert_eq!(allowed["binding"]["hosts"], json!(["chat.example:443", "slack.com:443"]));
    cli.run(&["binding", "test", "bearer/slack"]).ok();

    // A connector that uses another identity lacks nothing of this one.
    let chat = ["--connector", "github://acme/chat"];
    cli.run(&[&["binding", "disallow", "bearer/slack"], &chat[..]].concat()).ok();
    fed(&cli, &[&["binding", "set", "bearer/slack/chat", "--stdin"], &chat[..]].concat(), TOKEN).ok();
    cli.run(&["binding", "test", "bearer/slack"]).ok();

    // Nothing is installed, and both are given.
    let args = [
        "binding",
        "set",
        "api_key/jira",
        "--stdin",
        "--connector",
        "github://acme/jira",
        "--host",
        "jira.example:443",
    ];
    let _ = fed(&cli, &args, TOKEN).ok();
    assert!(
        cli.run(&["binding", "test", "api_key/jira"])
            .fails(78)
            .stdout
            .contains("No installed connector asks")
    );
    let wrong = [
        "binding",
        "set",
        "api_key/x",
        "--stdin",
        "--connector",
        "github://acme/jira",
        "--host",
        "*.example",
    ];
    let _ = fed(&cli, &wrong, TOKEN).fails(2);
}

#[test]
fn a_suggestion_names_every_host_that_it_adds() {
    let of = |version, host| slack("github://acme/slack", version, host);
    let (_home, cli) = home(&[of("1.0.0", "slack.com:443"), of("1.1.0", "evil.example:443")]);
    let to = ["--connector", "github://acme/slack", "--host", "slack.com:443"];
    let _ = fed(&cli, &[&["binding", "set", "bearer/slack", "--stdin"], &to[..]].concat(), TOKEN).ok();
    let allow = "cofferdam binding allow bearer/slack/default --host evil.example:443";
    for command in ["inspect", "test"] {
        let shown = cli.run(&["binding", command, "bearer/slack"]);
        let suggested: Vec<_> = shown.stdout.lines().filter(|line| line.contains("binding allow")).collect();
        assert!(!suggested.is_empty() && suggested.iter().all(|line| line.contains(allow)), "{shown:?}");
    }
    // The command of before the upgrade, run as it was printed then, sends the secret nowhere else.
    cli.run(&["binding", "allow", "bearer/slack", "--connector", "github://acme/slack"]).ok();
    let bound = cli.run(&["binding", "inspect", "bearer/slack", "--format", "json"]).json();
    assert_eq!(bound["binding"]["hosts"], json!(["slack.com:443"]));
}

#[test]
fn disallow_never_removes_the_last_grant() {
    let (_home, cli) = home(&[]);
    let to = ["--connector", "github://acme/a", "--host", "a.example:443", "--host", "b.example:443"];
    let _ = fed(&cli, &[&["binding", "set", "bearer/x", "--stdin"], &to[..]].concat(), TOKEN).ok();
    let disallow = |option: &str, value: &str| {
        cli.run(&["binding", "disallow", "bearer/x", option, value, "--format", "json"])
    };
    assert_eq!(disallow("--host", "a.example:443").json()["binding"]["hosts"], json!(["b.example:443"]));
    disallow("--host", "a.example:443").fails(65).said("does not list a.example:443");
    disallow("--host", "b.example:443").fails(65).said("binding revoke bearer/x/default");
    disallow("--connector", "github://acme/a").fails(65).said("binding revoke bearer/x/default");
}

#[test]
fn kinds_with_several_parts_read_each_part() {
    let (_home, cli) = home(&[]);
    let to = ["--connector", "github://acme/x", "--host", "x.example:443", "--format", "json"];
    let set = |args: &[&str], input: &str| {
        silent(fed(&cli, &[&["binding", "set"], args, &to].concat(), input), "4f1e-canary-secret")
    };

    let basic = set(&["basic/x", "--username", "ada", "--stdin"], "4f1e-canary-secret").json();
    assert_eq!(basic["binding"]["details"], json!({"username": "ada"}));
    assert_eq!(
        set(&["basic/y", "--stdin"], "4f1e-canary-secret").fails(65).envelope()["error"]["code"],
        "validation"
    );
    let _ = set(&["basic/y", "--username", "ada:4f1e-canary-secret", "--stdin"], "x").fails(65);
    let misplaced = set(&["bearer/x", "--username", "ada", "--stdin"], "4f1e-canary-secret").fails(65);
    assert!(misplaced.stderr.contains("--username is a part of basic"), "{}", misplaced.stderr);

    let oauth = [
        "--token-url",
        "https://id.example/token",
        "--client-id",
        "me",
        "--scope",
        "a",
        "--scope",
        "b",
        "--stdin",
    ];
    let both = r#"{"client_secret": "4f1e-canary-secret", "refresh_token": "4f1e-canary-secret"}"#;
    let bound = set(&[&["oauth2/x"], &oauth[..]].concat(), both).json();
    assert_eq!(
        bound["binding"]["details"],
        json!({"client_id": "me", "grant": "refresh_token", "scopes": "a b", "token_url": "https://id.example/token"})
    );
    let client = [&["oauth2/y", "--grant", "client_credentials"], &oauth[..]].concat();
    let _ = set(&client, both).fails(65);
    assert_eq!(
        set(&client, "4f1e-canary-secret").json()["binding"]["details"]["grant"],
        "client_credentials"
    );
    for (document, words) in [
        (r#"{"refresh_token": 4}"#, "line 1 column"),
        (r#"{"refresh_token": "4f1e-canary-secret""#, "line 1 column"),
        (r#"{"refresh_tokne": "4f1e-canary-secret"}"#, "line 1 column"),
        (r#"{"secret_access_key": "4f1e-canary-secret"}"#, "which this kind has not"),
        (r#"{"client_secret": "4f1e-canary-secret"}"#, "refresh token is missing"),
        (r#"{"refresh_token": "4f1e\ncanary-secret"}"#, "more than one line"),
        (r#"{"refresh_token": "4f1e-canary-secret\n"} "#, ""),
    ] {
        let ran = set(&[&["oauth2/z"], &oauth[..]].concat(), document);
        if words.is_empty() {
            let _ = ran.ok();
        } else {
            assert!(ran.fails(65).stderr.contains(words), "{document}");
        }
    }
    for url in [
        "id.example/token",
        "ftp://id.example/token",
        "https://me:pw@id.example/token",
        "https://id.example/#x",
    ] {
        let _ = set(&["oauth2/u", "--token-url", url, "--client-id", "me", "--stdin"], "4f1e-canary-secret")
            .fails(65);
    }

    let aws = ["aws_sigv4/s3", "--access-key-id", "AKIDEXAMPLE", "--region", "eu-west-1", "--stdin"];
    let bound = set(&aws, "4f1e-canary-secret").json();
    assert_eq!(bound["binding"]["details"], json!({"access_key_id": "AKIDEXAMPLE", "region": "eu-west-1"}));
    // Kept unless given again.
    let temporary = r#"{"secret_access_key": "4f1e-canary-secret", "session_token": "4f1e-canary-secret"}"#;
    let args = [
        "binding",
        "rebind",
        "aws_sigv4/s3",
        "--access-key-id",
        "ASIDEXAMPLE",
        "--temporary",
        "--stdin",
        "--format",
        "json",
    ];
    let bound = silent(fed(&cli, &args, temporary), "4f1e-canary-secret").json();
    assert_eq!(bound["binding"]["details"], json!({"access_key_id": "ASIDEXAMPLE", "region": "eu-west-1"}));
}
