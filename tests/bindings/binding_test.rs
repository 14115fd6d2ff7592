//! `binding test`: a secret tried against a real server, through the gate.

use std::fs;
use std::io::{Read as _, Write as _};

use serde_json::{Value, json};

use super::{TOKEN, fed, home, silent, slack};

/// A server that answers `/accepted` with 200, `/refused` with 401 and the rest with 404; and the requests that
/// it received.
pub(super) fn service() -> (u16, std::sync::mpsc::Receiver<String>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (seen, heads) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            let status = match head.split(' ').nth(1) {
                Some("/accepted") => "200 OK",
                Some("/refused") => "401 Unauthorized",
                _ => "404 Not Found",
            };
            // The body repeats the secret: nothing of it may be shown.
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{TOKEN}",
                TOKEN.len()
            );
            stream.write_all(answer.as_bytes()).unwrap();
            if seen.send(head).is_err() {
                return;
            }
        }
    });
    (port, heads)
}

#[test]
fn a_binding_test_goes_through_the_gate() {
    let (port, heads) = service();
    let at = format!("http://localhost:{port}");
    let (home, cli) = home(&[slack("github://acme/slack", "1.0.0", &at)]);
    let set = fed(&cli, &["binding", "set", "bearer/slack", "--stdin"], TOKEN);
    assert!(set.stderr.contains("in the clear"), "{}", set.stderr);
    let test = |path: &str| {
        let ran = cli.run(&["binding", "test", "bearer/slack", "--url", path, "--format", "json"]);
        silent(ran, TOKEN)
    };
    // The address is private: the gate's rule holds here, too.
    let private = test(&format!("{at}/accepted")).fails(77);
    assert_eq!(private.envelope()["error"]["class"], "capability_denied");
    // The option of every command that sends something opens it, and so does the configuration.
    let option = ["binding", "test", "bearer/slack", "--url", &format!("{at}/else"), "--allow-private"];
    let opened = cli.run(&[&option[..], &[&format!("localhost:{port}"), "--format", "json"]].concat());
    assert_eq!(silent(opened, TOKEN).json()["answer"]["status"], 404);
    assert_eq!(heads.iter().take(1).count(), 1);
    fs::write(
        home.path().join("config.toml"),
        format!("[network]\nallow_private = [\"localhost:{port}\"]\n"),
    )
    .unwrap();

    let accepted = test(&format!("{at}/accepted")).json();
    assert_eq!((&accepted["usable"], &accepted["answer"]["status"]), (&json!(true), &json!(200)));
    let head = heads.recv().unwrap().to_lowercase();
    assert!(
        head.starts_with("get /accepted ") && head.contains(&format!("authorization: bearer {TOKEN}")),
        "{head}"
    );
    let refused = test(&format!("{at}/refused")).fails(76).envelope();
    assert_eq!(
        (&refused["error"]["class"], &refused["error"]["details"]["status"]),
        (&json!("external_api_error"), &json!(401))
    );
    // A missing path says nothing against the secret.
    assert_eq!(test(&format!("{at}/else")).json()["answer"]["status"], 404);
    assert_eq!(heads.try_iter().count(), 2);

    for (url, code) in [
        (format!("http://localhost:{}/", port ^ 1), 65),
        (format!("https://localhost:{port}/"), 65),
        ("not a url".to_owned(), 65),
        ("/accepted".to_owned(), 65),
    ] {
        let _ = test(&url).fails(code);
    }
    assert_eq!(heads.try_iter().count(), 0);
    cli.run(&["binding", "test", "bearer/slack/none", "--url", &at]).fails(66).said("Nothing is bound");
}

#[test]
fn why_reports_binding_required_if_unbound() {
    let (home_dir, cli) = home(&[slack("github://acme/slack", "1.0.0", "slack.com:443")]);
    for access in ["bearer/slack", "slack.com:443"] {
        let ran = cli.run(&["why", "github://acme/slack", access, "--format", "json"]).fails(78);
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((&answer["allowed"], &answer["class"]), (&json!(true), &json!("binding_required")));
        assert_eq!(answer["suggestion"], "cofferdam binding set bearer/slack/default");
        let human = cli.run(&["why", "github://acme/slack", access]).fails(78);
        assert!(human.stdout.contains("NOT BOUND"), "{}", human.stdout);
    }
    let _ = fed(&cli, &["binding", "set", "bearer/slack", "--stdin"], TOKEN).ok();
    assert_eq!(
        cli.run(&["why", "github://acme/slack", "bearer/slack", "--format", "json"]).json().get("class"),
        None
    );
    for access in ["bearer/slack", "slack.com:443"] {
        cli.run(&["why", "github://acme/slack", access]).ok();
    }
    // An unusable vault is not a positive result.
    std::fs::remove_file(home_dir.path().join("vault.key")).unwrap();
    let _ = cli.run(&["why", "github://acme/slack", "bearer/slack"]).fails(82);
}

#[test]
fn why_names_the_host_that_an_upgrade_asks_for() {
    let of = |version, host| slack("github://acme/slack", version, host);
    let (_home, cli) = home(&[of("1.0.0", "slack.com:443"), of("1.1.0", "evil.example:443")]);
    let to = ["--connector", "github://acme/slack", "--host", "slack.com:443"];
    let _ = fed(&cli, &[&["binding", "set", "bearer/slack", "--stdin"], &to[..]].concat(), TOKEN).ok();
    for access in ["bearer/slack", "evil.example:443"] {
        let why = ["why", "github://acme/slack@1.1.0", access, "--format", "json"];
        let answer: Value = serde_json::from_str(&cli.run(&why).fails(78).stdout).unwrap();
        let allow = "cofferdam binding allow bearer/slack/default --host evil.example:443";
        assert_eq!((&answer["code"], &answer["suggestion"]), (&json!("not_allowed"), &json!(allow)));
    }
}
