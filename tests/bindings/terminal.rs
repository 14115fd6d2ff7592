//! Secrets and passphrases that are typed at a terminal.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use cofferdam_test_support::Cli;

use super::{TOKEN, fed, home, slack};
use crate::COFFERDAM;

/// Runs a command on a separate terminal and answers its prompts; returns everything on the screen.
pub(crate) fn typed(cli: &Cli, args: &[&str], answers: &[(&str, &str)]) -> Option<(bool, String)> {
    typed_after(cli, args, answers, || {})
}

/// As [`typed`], with something that happens before each answer.
pub(crate) fn typed_after(
    cli: &Cli,
    args: &[&str],
    answers: &[(&str, &str)],
    before: impl Fn(),
) -> Option<(bool, String)> {
    let probe = Command::new("script").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        crate::skipped("there is no `script` here; prompts at a terminal are not tried");
        return None;
    }
    let line = [&[COFFERDAM], args].concat().join(" ");
    let template = cli.command(args);
    // Tests that run in the background ignore SIGINT, and programs inherit that: restore the default.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", "script", "-qefc", &line, "/dev/null"]);
    command.env_clear().current_dir(template.get_current_dir().unwrap());
    for (name, value) in template.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let mut child = command
        .env("SHELL", "/bin/sh")
        .env("TERM", "dumb")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut screen = Vec::new();
    let mut byte = [0];
    for (question, answer) in answers {
        // The terminal shows the question once echoing is off.
        let mut since = Vec::new();
        while !String::from_utf8_lossy(&since).contains(question) {
            assert_eq!(output.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&screen));
            screen.push(byte[0]);
            since.push(byte[0]);
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        before();
        input.write_all(answer.as_bytes()).and_then(|()| input.write_all(b"\n")).unwrap();
    }
    output.read_to_end(&mut screen).unwrap();
    drop(input);
    let status = child.wait().unwrap();
    Some((status.success(), String::from_utf8_lossy(&screen).into_owned()))
}

#[test]
fn typed_secrets_are_not_echoed() {
    let (_home, cli) = home(&[slack("github://acme/slack", "1.0.0", "slack.com:443")]);
    let Some((done, screen)) = typed(&cli, &["binding", "set", "bearer/slack"], &[("Token for", TOKEN)])
    else {
        return;
    };
    assert!(done, "{screen}");
    assert!(!screen.contains(TOKEN) && screen.contains("slack.com:443"), "{screen}");
    let (done, screen) = typed(
        &cli,
        &["binding", "lock", "--passphrase"],
        &[("New passphrase", "correct horse battery"), ("same again", "correct horse battery")],
    )
    .unwrap();
    assert!(done && !screen.contains("correct horse"), "{screen}");
    // Wrong once, then right.
    let (done, screen) = typed(
        &cli,
        &["binding", "list"],
        &[("Passphrase of the vault", "wrong"), ("does not open it", "correct horse battery")],
    )
    .unwrap();
    assert!(done && screen.contains("bearer/slack/default") && !screen.contains("horse"), "{screen}");
    let (done, screen) = typed(
        &cli,
        &["binding", "revoke", "bearer/slack"],
        &[("Passphrase", "correct horse battery"), ("[y/N]", "n")],
    )
    .unwrap();
    assert!(done && screen.contains("Nothing was changed"), "{screen}");
    // Without a terminal the command explains the alternatives.
    let ran = cli.run(&["binding", "list", "--format", "json"]).fails(82);
    assert_eq!(ran.envelope()["error"]["code"], "vault_locked");
    assert!(ran.stderr.contains("--passphrase-file"), "{}", ran.stderr);
}

#[test]
fn ctrl_c_at_a_secret_prompt_restores_the_terminal() {
    let (_home, cli) = home(&[slack("github://acme/slack", "1.0.0", "slack.com:443")]);
    let then = [";", "echo", "code=$?;", "stty", "-a"];
    let set = [&["binding", "set", "bearer/slack"], &then[..]].concat();
    let lock = [&["binding", "lock", "--passphrase"], &then[..]].concat();
    for (args, question) in [(set, "Token for"), (lock, "New passphrase")] {
        let Some((_, screen)) = typed(&cli, &args, &[(question, "half a sec\u{3}")]) else { return };
        assert!(screen.contains("code=130") && !screen.contains("half a sec"), "{screen}");
        for mode in ["echo", "icanon", "isig"] {
            assert!(screen.split_whitespace().any(|word| word == mode), "{mode}: {screen}");
        }
    }
    assert!(cli.run(&["binding", "list", "--format", "json"]).json().as_array().unwrap().is_empty());
}

#[test]
fn allow_confirms_at_a_terminal() {
    let (_home, cli) = home(&[slack("github://acme/slack", "1.0.0", "slack.com:443")]);
    let _ = fed(&cli, &["binding", "set", "bearer/slack", "--stdin"], TOKEN).ok();
    let allow = ["binding", "allow", "bearer/slack", "--host", "files.slack.com:443"];
    let hosts = || cli.run(&["binding", "list", "--format", "json"]).json()[0]["hosts"].clone();
    let question = "Let bearer/slack/default go to files.slack.com:443? [y/N]";
    for no in ["", "n"] {
        let Some((done, screen)) = typed(&cli, &allow, &[(question, no)]) else { return };
        assert!(done && screen.contains("Nothing was changed"), "{screen}");
        assert_eq!(hosts(), serde_json::json!(["slack.com:443"]));
    }
    assert!(typed(&cli, &allow, &[(question, "y")]).unwrap().0);
    assert_eq!(hosts(), serde_json::json!(["files.slack.com:443", "slack.com:443"]));
    // A connector alone is confirmed as well, and adds no host.
    let connector = ["binding", "allow", "bearer/slack", "--connector", "github://acme/other"];
    let question = "Let github://acme/other use bearer/slack/default? [y/N]";
    assert!(typed(&cli, &connector, &[(question, "y")]).unwrap().0);
    assert_eq!(hosts(), serde_json::json!(["files.slack.com:443", "slack.com:443"]));
}
