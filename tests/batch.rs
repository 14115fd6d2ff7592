//! `call --each`: many calls from a file, each outcome on a line of its own, and an end that is honest.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};

use cofferdam_test_support::{Cli, Home, Signer, Upstream, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::envelope;
use crate::shared_host::run;

const PROBE: &str = "github://cofferdam/probe";

struct Stage {
    home: Home,
    upstream: Upstream,
}

fn stage() -> Stage {
    let (home, upstream, signer) = (Home::new(COFFERDAM), Upstream::start(), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    run(home.install(&package::guest_package("probe", &[upstream.grant()]), &signer)).unwrap();
    let config =
        format!("[network]\nallow_private = [\"{}\"]\n[retry]\nprofile = \"none\"\n", upstream.host_port());
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    Stage { home, upstream }
}

impl Stage {
    fn cli(&self) -> Cli {
        Cli::new(COFFERDAM, self.home.path())
    }

    fn file(&self, lines: &[Value]) -> PathBuf {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.text(&text)
    }

    fn text(&self, text: &str) -> PathBuf {
        let path = self.home.path().join("calls.jsonl");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn fetch(&self, path: &str) -> Value {
        json!({"url": self.upstream.url(path)})
    }

    /// Starts `call --each -` of `op`.
    fn start(&self, op: &str, options: &[&str]) -> (Child, BufReader<ChildStdout>) {
        let args: Vec<_> = ["call", PROBE, op, "--each", "-"].iter().chain(options).copied().collect();
        let mut command = self.cli().command(&args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        (child, out)
    }
}

fn outcomes(text: &str) -> Vec<Value> {
    let mut outcomes: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    outcomes.sort_by_key(|outcome| outcome["line"].as_u64());
    outcomes
}

#[test]
fn each_line_is_a_call_and_each_outcome_a_line() {
    let stage = stage();
    let lines = [
        json!({"args": stage.fetch("/text/one")}),
        stage.fetch("/text/two"),
        stage.fetch("/status/404"),
        json!({"args": 7}),
        json!({"url": 7}),
        stage.fetch("/status/503"),
    ];
    let file = stage.file(&lines);
    let ran = stage.cli().run(&["call", PROBE, "fetch", "--each", file.to_str().unwrap()]);
    let found = outcomes(&ran.stdout);
    assert_eq!(found.len(), 6, "{ran:?}");
    for (at, body) in [(0, "one"), (1, "two")] {
        assert_eq!(found[at]["value"]["body"], body, "{}", found[at]);
        assert!(found[at]["audit_id"].as_str().unwrap().starts_with("audit-"));
    }
    let code = |at: usize| found[at]["error"]["details"]["code"].clone();
    assert_eq!((code(2), code(5)), (json!("not_found"), json!("unavailable")), "{ran:?}");
    for at in [3, 4] {
        assert_eq!(found[at]["error"]["code"], "validation", "{}", found[at]);
        envelope::check_host_json(&json!({"error": found[at]["error"]}));
    }
    // A line that is not a call is not in the audit log and has no id; invalid arguments belong to a call.
    assert!(found[3].get("audit_id").is_none(), "{}", found[3]);
    assert_eq!(found[4]["audit_id"], found[4]["error"]["request_id"]);
    assert!(found[3]["error"]["message"].as_str().unwrap().starts_with("Line 4 of "), "{}", found[3]);
    // The exit code is that of the first line that failed, whichever was done first.
    let alone = stage.cli().run(&["call", PROBE, "fetch", &stage.fetch("/status/404").to_string()]);
    assert_eq!(ran.code, alone.code);
    assert!(ran.stderr.contains("6 lines done, 4 of them failed, the first in line 3"), "{}", ran.stderr);
}

#[test]
fn batch_lines_are_called_as_they_arrive() {
    let stage = stage();
    let (mut child, mut out) = stage.start("fetch", &["--concurrency", "2"]);
    let mut input = child.stdin.take().unwrap();
    // An outcome arrives while the input is still open.
    writeln!(input, "{}", stage.fetch("/text/early")).unwrap();
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(outcomes(&line)[0]["value"]["body"], "early");
    for n in 0..6 {
        writeln!(input, "{}", stage.fetch(&format!("/hang/{n}"))).unwrap();
    }
    while stage.upstream.seen("/hang").len() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // Ctrl-C: running calls are ended and reported, calls that did not begin are not reported, and nothing
    // hangs.
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let rest = outcomes(&rest);
    let codes: Vec<_> = rest.iter().map(|outcome| outcome["error"]["code"].clone()).collect();
    assert_eq!(codes, ["cancelled", "cancelled"], "{rest:?}");
    assert_eq!(stage.upstream.seen("/hang").len(), 2);
    drop(input);
}

#[test]
fn a_closed_output_stops_the_batch() {
    let stage = stage();
    let (mut child, out) = stage.start("fetch", &["--concurrency", "1"]);
    drop(out);
    let mut input = child.stdin.take().unwrap();
    // This ends on its own: as long as the command reads, there are lines.
    let line = format!("{}\n", stage.fetch("/text/unread"));
    while input.write_all(line.as_bytes()).is_ok() {}
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let called = stage.upstream.seen("/text/unread").len();
    assert!(called < 10, "{called} calls were made for nobody");
}

#[test]
fn a_missing_batch_file_is_an_error() {
    let stage = stage();
    let ran = stage.cli().run(&["call", PROBE, "fetch", "--each", "missing.jsonl", "--format", "json"]);
    assert_eq!(ran.envelope()["error"]["code"], "input_unreadable", "{ran:?}");
    let nothing = stage.text("\n \n");
    assert_eq!(stage.cli().run(&["call", PROBE, "fetch", "--each", nothing.to_str().unwrap()]).ok(), "");
    let _ = stage.cli().run(&["call", PROBE, "fetch", "{}", "--each", "x"]).fails(2);
}
