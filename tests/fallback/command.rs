//! `cofferdam call --fallback`.

use cofferdam_test_support::Cli;
use serde_json::json;

use super::fixture::Stage;
use crate::COFFERDAM;

#[test]
fn a_fallback_file_is_tried_in_order() {
    let stage = Stage::new();
    let dir = tempfile::tempdir().unwrap();
    let cli = Cli::new(COFFERDAM, stage.ground.home.path()).in_dir(dir.path());
    let write = |text: String| std::fs::write(dir.path().join("chain.toml"), text).unwrap();
    let url = format!("url={}", stage.a("/status/404/cli"));
    let allowed = format!("{},{}", stage.ground.a.host_port(), stage.ground.b.host_port());
    let call = |more: &[&str]| {
        let line = ["call", "github://acme/a", "fetch", "--arg", &url, "--allow-private", &allowed];
        cli.run(&[&line[..], &["--fallback", "chain.toml"], more].concat())
    };
    write(format!(
        "[[candidate]]\nargs = {{ url = \"{}\" }}\n[[candidate]]\nconnector = \"github://acme/b\"\nargs = {{ url = \"{}\" }}\n",
        stage.a("/status/404/cli-small"),
        stage.b("/text/cli"),
    ));
    let ran = call(&[]);
    let note = "answered by fallback 2: `fetch` of github://acme/b@0.1.0";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert_eq!(ran.json()["body"], "cli");
    let ran = call(&["--format", "json", "--usage"]);
    assert_eq!(ran.stderr, "");
    let by = json!({"candidate": 2, "connector": "github://acme/b@0.1.0", "op": "fetch"});
    assert_eq!(ran.json()["answered_by"], by);
    assert_eq!(stage.asked_a("/status/404/cli-small"), 2);

    write(format!("[[candidate]]\nargs = {{ url = \"{}\" }}\n", stage.a("/status/404/cli-small")));
    let said = call(&[]).stderr;
    let lines: Vec<_> = said.lines().filter(|line| line.starts_with("    ")).collect();
    assert_eq!(lines.len(), 2, "{said}");
    for (number, line) in (1..).zip(lines) {
        let start = format!("    {number}. `fetch` of github://acme/a@0.1.0: not_found (1 attempt): ");
        assert!(line.starts_with(&start), "{line}");
    }

    write("[[candidate]]\nconector = \"github://acme/b\"\n".into());
    call(&[]).fails(65).said("chain.toml:2:1");
    call(&[]).fails(65).said("did you mean `connector`");
    write("[[candidate]]\nconnector = \"github://acme/none\"\n".into());
    call(&[]).fails(65).said("candidate[0].connector: github://acme/none is not installed");
    write("[[candidate]]\nop = \"fetch\"\n[[candidate]]\nconnector = \"github://acme/b@9.0.0\"\n".into());
    call(&[]).fails(65).said("candidate[1].connector: github://acme/b@9.0.0 is not installed");
    call(&[]).fails(65).said("Did you mean github://acme/b@0.1.0?");
    write("[[candidate]]\nconnector = \"b\"\n".into());
    call(&[]).fails(65).said("candidate[0].connector: `b` is not a connector's whole name");
    call(&[]).fails(65).said("Did you mean github://acme/b?");
    std::fs::remove_file(dir.path().join("chain.toml")).unwrap();
    call(&[]).fails(66).said("chain.toml");
}
