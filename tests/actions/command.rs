//! `cofferdam action`: what it prints, what it refuses, and with which exit code.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use cofferdam_test_support::Cli;
use cofferdam_test_support::process::write_program;
use serde_json::json;

use super::store::{Stage, stage};
use crate::COFFERDAM;

impl Stage {
    fn cli(&self) -> Cli {
        Cli::new(COFFERDAM, self.home.path())
    }

    /// Writes a file next to the home and returns its path.
    fn written(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    }

    /// An editor that does this to the file.
    fn editor(&self, script: &str) -> String {
        let path = self.home.path().join("editor.sh");
        write_program(&path, &format!("#!/bin/sh\n{script}\n"));
        path.to_string_lossy().into_owned()
    }
}

/// Puts a file where actions are, as a hand would.
fn write(path: &std::path::Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn an_action_is_added_listed_shown_and_removed() {
    let stage = stage();
    let cli = stage.cli();
    assert_eq!(cli.run(&["action", "list", "--format", "json"]).json(), json!([]));
    let file = stage.written("mine.md", &stage.greet("greet"));
    let added = cli.run(&["action", "add", &file, "--format", "json"]).json();
    assert_eq!((&added["action"], &added["version"]), (&json!("greet"), &json!("1.0.0")));
    cli.run(&["action", "add", &file]).fails(67).said("There is an action greet already");
    cli.run(&["action", "add", &file, "--replace"]).ok();

    let listed = cli.run(&["action", "list", "--format", "json"]).json();
    assert_eq!(
        listed,
        json!([{
            "name": "greet", "version": "1.0.0", "description": "Greets somebody.", "steps": 1,
            "hash": added["hash"], "readiness": "ready",
        }])
    );
    assert!(cli.run(&["action", "list"]).ok().contains("Greets somebody."));
    let shown = cli.run(&["action", "show", "greet", "--format", "json"]).json();
    assert_eq!(shown["steps"][0]["inputs"], json!({"name": "${args.who}"}));
    assert_eq!(shown["requires"][0]["operations"], json!(["greet"]));
    assert_eq!(shown["input_schema"]["required"], json!(["who"]));
    let shown = cli.run(&["action", "show", "greet"]).ok();
    assert!(
        shown.contains("`greet` of github://cofferdam/hello") && shown.contains("name = \"${args.who}\""),
        "{shown}"
    );

    assert!(cli.run(&["action", "check"]).ok().contains("greet"));
    let checked = cli.run(&["action", "check", "greet", &file, "--format", "json"]).json();
    assert_eq!(checked, json!([{"action": "greet", "ok": true}, {"action": file, "ok": true}]));
    cli.run(&["action", "show", "gret"]).fails(66).said("Did you mean greet?");
    assert_eq!(
        cli.run(&["action", "remove", "greet", "--format", "json"]).json(),
        json!({"removed": "greet"})
    );
    cli.run(&["action", "remove", "greet"]).fails(66).said("There is no action greet");
}

#[test]
fn an_invalid_action_is_reported_and_not_added() {
    let stage = stage();
    let cli = stage.cli();
    let text = stage.greet("greet").replace("inputs = { name", "inputs = { nmae").replace("1.0.0", "1");
    let file = stage.written("mine.md", &text);
    cli.run(&["action", "check", &file]).fails(65).said("write it like \"1.0.0\"");
    let file = stage.written("mine.md", &text.replace("version = \"1\"", "version = \"1.0.0\""));
    let ran = cli.run(&["action", "check", &file]).fails(65);
    assert!(ran.stdout.contains("NOT OK"), "{}", ran.stdout);
    for words in [
        "execute[0].inputs.nmae: `greet` has no parameter `nmae`",
        "mine.md:20:19",
        "inputs = { nmae = \"${args.who}\" }",
        "did you mean `name`?",
        "`greet` needs `name`: `string`",
    ] {
        ran.clone().said(words);
    }
    cli.run(&["action", "add", &file]).fails(65).said("did you mean `name`?");
    let ran = cli.run(&["action", "check", &file, "--format", "json"]).fails(65);
    let checked: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let problems = checked[0]["error"]["details"]["problems"].as_array().unwrap();
    assert_eq!((problems.len(), &problems[1]["line"], &problems[1]["column"]), (2, &json!(20), &json!(19)));
    assert_eq!(ran.stderr, "");
    assert_eq!(cli.run(&["action", "list", "--format", "json"]).json(), json!([]));

    let absent = stage.greet("greet").replace("version = \"0.1.0\"", "version = \"0.2.0\"");
    let file = stage.written("mine.md", &absent);
    cli.run(&["action", "add", &file]).fails(65).said("github://cofferdam/hello@0.2.0 is not installed");
    cli.run(&["action", "add", "no-such.md"]).fails(66).said("it does not exist");
    cli.run(&["action", "check", "no-such"]).fails(66).said("There is no action no-such");
}

#[test]
fn the_list_shows_readiness_and_errors() {
    let stage = stage();
    let cli = stage.cli();
    let file = stage.written("mine.md", &stage.greet("ready"));
    cli.run(&["action", "add", &file]).ok();
    let hash = cofferdam_core::digest::Digest::sha256(&stage.package).to_string();
    let put = |name: &str, from: &str, to: &str| {
        let text = stage.greet(name);
        assert!(text.contains(from), "{from}");
        write(&stage.file(name), &text.replacen(from, to, 1));
    };
    put("old-version", "version = \"0.1.0\"", "version = \"0.0.9\"");
    put("wrong-hash", &hash, &"0".repeat(64));
    put("wrong-type", "inputs = { name", "inputs = { nmae");
    put("wrong-retry", "op = \"greet\"", "op = \"greet\"\nidempotent = false\nretry = \"patient\"");
    put("broken", "+++", "---");
    let list = || cli.run(&["action", "list", "--format", "json"]).json();
    let listed = list();
    let words = |listed: &serde_json::Value| {
        let all = listed.as_array().unwrap().iter();
        all.map(|it| [&it["name"], &it["readiness"]].map(|it| it.as_str().unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    let expected = [
        ("broken", "unreadable"),
        ("old-version", "not_installed"),
        ("ready", "ready"),
        ("wrong-hash", "other_package"),
        ("wrong-retry", "does_not_fit"),
        ("wrong-type", "does_not_fit"),
    ];
    assert_eq!(words(&listed), expected.map(|(name, word)| [name, word].map(str::to_owned)));
    // It agrees with the check.
    for line in listed.as_array().unwrap() {
        let name = line["name"].as_str().unwrap();
        let checked = cli.run(&["action", "check", name, "--format", "json"]);
        let checked: serde_json::Value = serde_json::from_str(&checked.stdout).unwrap();
        for part in ["code", "message", "details"] {
            assert_eq!(line["error"][part], checked[0]["error"][part], "{name}");
        }
        assert_eq!(line["readiness"] == "ready", checked[0]["ok"] == true, "{name}");
    }
    let page = cli.run(&["action", "list"]);
    assert!(page.stderr.contains("cofferdam action check"), "{}", page.stderr);
    let page = page.ok();
    for (name, word) in expected {
        let word = if word == "ready" { "yes".to_owned() } else { word.replace('_', " ") };
        let line = page.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        assert!(line.contains(&word), "{line}");
    }
    // An untrusted package may not run, whatever its pin.
    fs::remove_file(stage.home.path().join("keyring.toml")).unwrap();
    let listed = list();
    assert_eq!(words(&listed)[2], ["ready", "refused"], "{listed:#}");
    cli.run(&["run", "ready", "who=Ada"]).fails(65).said("may not run here");
}

#[test]
fn an_action_is_read_from_standard_input() {
    let stage = stage();
    let mut child = stage
        .cli()
        .command(&["action", "add", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), stage.greet("greet").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(stage.file("greet").exists());
}

#[test]
fn a_broken_file_hides_no_other_action() {
    let stage = stage();
    let cli = stage.cli();
    let file = stage.written("mine.md", &stage.greet("greet"));
    cli.run(&["action", "add", &file]).ok();
    fs::write(stage.file("broken"), "no front matter").unwrap();
    let listed = cli.run(&["action", "list", "--format", "json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!(listed[0]["error"]["code"], json!("validation"));
    assert_eq!((&listed[0]["readiness"], &listed[1]["readiness"]), (&json!("unreadable"), &json!("ready")));
    cli.run(&["action", "check"]).fails(65).said("broken.md:1");
}

#[test]
fn an_edit_is_stored_only_when_valid() {
    let stage = stage();
    let cli = stage.cli();
    let file = stage.written("mine.md", &stage.greet("greet"));
    cli.run(&["action", "add", &file]).ok();
    let edit = |script: &str| {
        let editor = stage.editor(script);
        let output = cli.command(&["action", "edit", "greet"]).env("EDITOR", editor).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = edit("true");
    assert!(code == Some(0) && said.contains("Nothing was changed"), "{said}");
    let (code, said) = edit("sed -i 's/1[.]0[.]0/1.1.0/' \"$1\"");
    assert_eq!(code, Some(0), "{said}");
    assert!(fs::read_to_string(stage.file("greet")).unwrap().contains("1.1.0"));

    let before = fs::read(stage.file("greet")).unwrap();
    let (code, said) = edit("sed -i 's/inputs = { name/inputs = { nmae/' \"$1\"");
    assert!(code == Some(65) && said.contains("did you mean `name`?"), "{said}");
    let copy = said.lines().find_map(|line| line.split_once("what you wrote is in ")).unwrap().1.to_owned();
    assert!(fs::read_to_string(&copy).unwrap().contains("nmae"), "{copy}");
    fs::remove_dir_all(std::path::Path::new(&copy).parent().unwrap()).unwrap();
    let (code, said) = edit("sed -i 's/name = \"greet\"/name = \"other\"/' \"$1\"");
    assert!(code == Some(65) && said.contains("an action keeps its name"), "{said}");
    let copy = said.lines().find_map(|line| line.split_once("what you wrote is in ")).unwrap().1.to_owned();
    fs::remove_dir_all(std::path::Path::new(&copy).parent().unwrap()).unwrap();
    let (code, said) = edit("exit 3");
    assert!(code == Some(71) && said.contains("the action is as it was"), "{said}");
    assert_eq!(fs::read(stage.file("greet")).unwrap(), before);

    // The file was edited by another user meanwhile.
    let theirs = format!(
        "sed -i 's/Greets/Hails/' '{}'; sed -i 's/1[.]1[.]0/1.2.0/' \"$1\"",
        stage.file("greet").display()
    );
    let (code, said) = edit(&theirs);
    assert!(code == Some(67) && said.contains("changed by another user"), "{said}");
    assert!(!said.contains("--replace"), "that would throw away what they wrote: {said}");
    let gone = cli.command(&["action", "edit", "greet"]).env("EDITOR", "/nonexistent").output().unwrap();
    let gone = String::from_utf8_lossy(&gone.stderr);
    assert!(gone.contains("There is no editor `/nonexistent`") && gone.contains("is installed"), "{gone}");
    let copy = said.lines().find_map(|line| line.split_once("what you wrote is in ")).unwrap().1.to_owned();
    fs::remove_dir_all(std::path::Path::new(&copy).parent().unwrap()).unwrap();
    assert!(fs::read_to_string(stage.file("greet")).unwrap().contains("Hails"));
}
