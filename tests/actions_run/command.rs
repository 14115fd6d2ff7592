//! `cofferdam run`: arguments by their types, what is printed and with which exit code, and what is told beforehand.

use std::fs;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Value, json};

use super::fixture::{ActionHome, input, step};

static GROUND: LazyLock<ActionHome> = LazyLock::new(|| ActionHome::shared("run"));

fn url(path: &str) -> String {
    GROUND.upstream.url(path)
}

fn typed(name: &str, kind: &str, more: &str) -> String {
    format!("[[inputs]]\nname = \"{name}\"\ntype = \"{kind}\"\ndescription = \"One.\"\n{more}\n")
}

#[test]
fn arguments_are_parsed_by_input_type() {
    let ground = &*GROUND;
    let rest = [
        typed("text", "string", ""),
        typed("labels", "array", "items_type = \"string\""),
        typed("ms", "integer", "required = false\ndefault = 1"),
        step(
            "one",
            "order",
            &format!("url = \"{}\", body = \"${{args.text}}\", labels = \"${{args.labels}}\"", url("/echo")),
            "",
        ),
        step("two", "sleep", "ms = \"${args.ms}\"", ""),
        step(
            "three",
            "post",
            &format!("url = \"{}\", body = \"${{args.text}} ${{args.ms}}\"", url("/echo/typed")),
            "",
        ),
    ];
    ground.action("typed", &rest.concat());
    let cli = ground.cli();
    let value = cli.run(&["run", "typed", "text=42", "labels=[\"a\"]", "ms=7", "--format", "json"]).json();
    let keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["action", "output", "steps"], "exactly these");
    let posted = |path: &str| ground.upstream.seen(path).last().unwrap().body.clone();
    assert_eq!(posted("/echo/typed"), "42 7", "a text that looks like a number is one");
    let whole = json!({"text": "x", "labels": ["b", "c"]}).to_string();
    cli.run(&["run", "typed", "--args", &whole]).ok();
    assert_eq!(posted("/echo/typed"), "x 1");
    std::fs::write(ground.home.path().join("args.json"), json!({"text": "y"}).to_string()).unwrap();
    cli.run(&["run", "typed", "--args", "@args.json", "labels=[\"z\"]"]).ok();
    for (args, words) in [
        (&["labels=[]"][..], "text"),
        (&["text=x", "labels=[]", "lables=[]"], "lables"),
        (&["text=x", "labels=a"], "labels"),
        (&["text=x", "labels=[]", "ms=soon"], "ms"),
        (&["text=x", "text=y", "labels=[]"], "given twice"),
        (&["--args", "{\"text\": 1, \"labels\": []}"], "text"),
        (&["--args", "{\"text\": \"x\"", "labels=[]"], "not JSON"),
    ] {
        let all: Vec<_> = ["run", "typed"].iter().chain(args).copied().collect();
        cli.run(&all).fails(65).said(words);
    }
    cli.run(&["run", "typed", "text"]).fails(2).said("ARG=VALUE");
    cli.run(&["run", "typd", "text=x"]).fails(66).said("typd");
}

#[test]
fn a_failure_envelope_lists_completed_steps() {
    let ground = &*GROUND;
    let rest = [
        step("one", "post", &format!("url = \"{}\", body = \"x\"", url("/text/told")), ""),
        step("two", "fetch", &format!("url = \"{}\"", url("/status/404?told")), ""),
        step("three", "fetch", &format!("url = \"{}\"", url("/text/untold")), ""),
    ];
    ground.action("told", &rest.concat());
    let cli = ground.cli();
    let json = cli.run(&["run", "told", "--format", "json"]).fails(76);
    let envelope: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(envelope.as_object().unwrap().keys().collect::<Vec<_>>(), ["error"], "no output");
    assert!(json.stderr.is_empty(), "{}", json.stderr);
    let details = &envelope["error"]["details"];
    assert_eq!(
        (&details["not_again"], &details["again"]),
        (&json!(["one"]), &json!("ask_first")),
        "{envelope}"
    );
    let text = cli.run(&["run", "told"]).fails(76);
    assert!(text.stdout.is_empty(), "{}", text.stdout);
    for words in [
        "step one: done, in the audit log as audit-",
        "step two: failure",
        "step three: not run",
        "external_api_error",
    ] {
        assert!(text.stderr.contains(words), "{words}: {}", text.stderr);
    }
    let tool = cli.run(&["run", "told", "--as-tool-result=call-1"]).fails(76);
    let tool: Value = serde_json::from_str(&tool.stdout).unwrap();
    let content = tool["content"].as_str().unwrap();
    assert_eq!((&tool["tool_call_id"], &tool["role"]), (&json!("call-1"), &json!("tool")));
    assert!(content.starts_with("Action 'told' failed: external_api_error ("), "{content}");
    assert!(content.lines().last().unwrap().starts_with("audit_id: audit-"), "{content}");
    let report = cli.run(&["run", "told", "--report", "--format", "json"]).fails(76);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let statuses: Vec<_> = report["report"]["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["value", "failure", "not_run"]);
    assert_eq!(ground.asked("/text/untold"), 0);
}

/// The warning is also given if every step has a value and the action has none.
#[test]
fn a_run_without_a_value_warns_of_a_repetition() {
    let ground = &*GROUND;
    let post = |id: &str| step(id, "post", &format!("url = \"{}\", body = \"x\"", url("/text/warned")), "");
    let lost = step("lost", "fetch", &format!("url = \"{}\"", url("/status/404?warned")), "");
    let output = "[output]\ntype = \"object\"\nrequired = [\"none\"]\n";
    ground.action("warned-step", &(post("one") + &post("two") + &lost));
    ground.action("warned-output", &(post("one") + &post("two") + output));
    ground.action("not-warned", &(post("one") + &post("two")));
    let cli = ground.cli();
    let warning = "warning: must not be repeated, and another run of the action would repeat them, with a key or \
                   without: one, two\n";
    for (name, code) in [("warned-step", 76), ("warned-output", 65)] {
        let ran = cli.run(&["run", name]).fails(code);
        assert!(ran.stderr.contains(warning), "{name}: {}", ran.stderr);
        let ran = cli.run(&["run", name, "--key", name]).fails(code);
        assert!(!ran.stderr.contains("must not be repeated"), "{name}: {}", ran.stderr);
    }
    let ran = cli.run(&["run", "not-warned", "--report"]);
    assert!(!ran.stderr.contains("must not be repeated"), "{}", ran.stderr);
    ran.ok();
}

#[test]
fn aborted_requests_of_a_step_are_no_failed_items() {
    let ground = &*GROUND;
    let cli = ground.cli();
    for (method, effect) in [("POST", "may have had its effect"), ("GET", "only reads")] {
        let name = format!("left-{}", method.to_lowercase());
        let (left, awaited) = (url(&format!("/hang/{name}")), url(&format!("/slow/500/{name}")));
        let inputs =
            format!("methods = [\"{method}\"], url = \"{left}\", awaited = \"{awaited}\", give_up = false");
        ground.action(&name, &step("leave", "leave_behind", &inputs, ""));
        let ran = cli.run(&["run", &name, "--key", &name]);
        let warning = format!("warning: the value of step leave is partial: the {method} to ");
        assert!(ran.stderr.contains(&warning) && ran.stderr.contains(effect), "{}", ran.stderr);
        assert!(!ran.stderr.contains("of its items failed"), "{}", ran.stderr);
        ran.ok();
        let told = cli.run(&["run", &name, "--as-tool-result"]).ok();
        assert!(told.contains("answered while requests of its step leave were under way"), "{told}");
        assert!(
            told.contains(&format!("- the {method} to ")) && !told.contains("items of its step"),
            "{told}"
        );
    }
    let replayed = cli.run(&["run", "left-get", "--key", "left-get"]);
    for words in
        ["replayed: the outcome of", "the value of step leave is partial: requests of it were aborted"]
    {
        assert!(replayed.stderr.contains(words), "{words}: {}", replayed.stderr);
    }
    replayed.ok();
}

#[test]
fn a_dry_run_previews_calls_without_effects() {
    let ground = ActionHome::own();
    let url = |path: &str| ground.upstream.url(path);
    let rest = [
        input("body"),
        step("one", "fetch", &format!("url = \"{}\"", url("/text/dry-1")), "timeout = \"5s\""),
        step(
            "two",
            "post",
            &format!("url = \"{}\", body = \"${{args.body}}: ${{steps.one.body}}\"", url("/text/dry-2")),
            "",
        ),
        step(
            "three",
            "sleep",
            "ms = 1",
            "retry = { max = 4, initial = \"1s\", max_delay = \"8s\", jitter = 0.2 }",
        ),
    ];
    // A separate home, so that other tests leave no traces in it.
    ground.action("dry", &rest.concat());
    let cli = ground.cli();
    cli.run(&["run", "dry", "body=x"]).ok();
    let (before, home) = (ground.asked("/text/dry"), ground.home.snapshot());
    let listed = || cli.run(&["audit", "list", "--action", "dry", "--format", "json"]).json();
    let rows = listed();
    let dry = cli
        .run(&["run", "dry", "body=${steps.one.body}", "--key", "k", "--dry-run", "--format", "json"])
        .json();
    assert_eq!((&dry["action"], &dry["wall_ms"]), (&json!("dry@1.0.0"), &json!(120_000)));
    let steps = dry["steps"].as_array().unwrap();
    assert_eq!(steps[0]["call"]["wall_ms"], 5_000);
    assert_eq!(steps[1]["call"]["inputs"]["body"], "${steps.one.body}: ${steps.one.body}");
    assert_eq!(steps[1]["call"]["unknown"], json!(["body"]));
    assert_eq!((&steps[1]["idempotent"], &steps[1]["idempotency_key"]), (&json!(false), &json!("k/two")));
    assert_eq!(steps[2]["call"]["attempts"], 5);
    let attempts =
        |n: usize| (&steps[n]["call"]["profile"], &steps[n]["call"]["attempts"], steps[n].get("once"));
    assert_eq!(attempts(0), (&json!("standard"), &json!(4), None));
    assert_eq!(
        attempts(1),
        (&json!("standard"), &json!(1), Some(&json!("manifest"))),
        "whatever its profile says"
    );
    assert!(steps.iter().all(|step| step["call"]["hash"].as_str().unwrap().starts_with("sha256:")));
    assert!(steps.iter().all(|step| step.get("problem").is_none()), "{dry:#}");
    let page = cli.run(&["run", "dry", "body=x", "--dry-run"]);
    assert!(page.stderr.contains("Nothing was run"), "{}", page.stderr);
    let page = page.ok();
    for words in [
        "2. two",
        "body = \"x: ${steps.one.body}\"  (known then)",
        "must not be repeated, says its connector's manifest",
        "standard, 1 attempt and no more",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    cli.run(&["run", "dry", "--dry-run"]).fails(65).said("body");
    assert_eq!((ground.asked("/text/dry"), listed()), (before, rows));
    assert_eq!(home, ground.home.snapshot());
    // A host that no step could reach is reported before a step is denied it.
    fs::write(ground.home.path().join("config.toml"), "").unwrap();
    let dry = cli.run(&["run", "dry", "body=x", "--dry-run", "--format", "json"]).json();
    assert_eq!(dry["beyond_reach"][0]["code"], "private_address", "{dry:#}");
    assert!(cli.run(&["run", "dry", "body=x", "--dry-run"]).ok().contains("allow_private"));
    let shown = cli.run(&["action", "show", "dry", "--format", "json"]).json();
    assert_eq!((&shown["steps"][0]["not_idempotent"], shown["steps"][0].get("once")), (&json!(false), None));
    assert_eq!(
        (&shown["steps"][1]["not_idempotent"], &shown["steps"][1]["once"]),
        (&json!(true), &json!("manifest")),
        "though the file says nothing of it"
    );
    let page = cli.run(&["action", "show", "dry"]).ok();
    assert!(page.contains("must not be repeated, says its connector's manifest"), "{page}");
}

/// A step is not refused for its arguments half way where that can be known before.
#[test]
fn a_dry_run_type_checks_known_arguments() {
    let ground = ActionHome::own();
    let url = |path: &str| ground.upstream.url(path);
    let inputs = format!(
        "url = \"{}\", labels = [\"a\"], body = \"${{steps.one.body}}\", patience_ms = \"${{args.ms}}\"",
        url("/text/fits-2")
    );
    let rest = [
        typed("ms", "integer", ""),
        step("one", "fetch", &format!("url = \"{}\"", url("/text/fits-1")), ""),
        step("two", "order", &inputs, ""),
    ];
    ground.action("fits", &rest.concat());
    let cli = ground.cli();
    cli.run(&["run", "fits", "ms=5000", "--dry-run"]).ok();
    let dry = cli.run(&["run", "fits", "ms=-1", "--dry-run", "--format", "json"]).fails(65);
    let told: Value = serde_json::from_str(&dry.stdout).unwrap();
    assert!(told["steps"][0].get("problem").is_none(), "{told:#}");
    let message = told["steps"][1]["problem"]["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("The arguments do not fit: patience_ms"), "{message}");
    // The run agrees, once the first step is done.
    cli.run(&["run", "fits", "ms=-1"]).fails(65).said("patience_ms");
}

#[test]
fn a_key_conflict_names_the_other_action() {
    let ground = &*GROUND;
    let rest = [
        super::fixture::input("body"),
        step("one", "post", &format!("url = \"{}\", body = \"${{args.body}}\"", url("/text/whose")), ""),
    ];
    ground.action("whose", &rest.concat());
    let cli = ground.cli();
    let first =
        cli.run(&["run", "whose", "body=a", "--key", "whose-1", "--report", "--format", "json"]).json();
    let id = first["report"]["audit_id"].as_str().unwrap();
    let refused = cli.run(&["run", "whose", "body=b", "--idempotency-key", "whose-1"]).fails(67);
    assert!(refused.stderr.contains(&format!("with another call or action: {id}.")), "{}", refused.stderr);
    refused.said(&format!("fix: `cofferdam audit show {id}` shows what it was given with."));
    let refused = cli.run(&["run", "whose", "body=b", "--key", "whose-1", "--format", "json"]).fails(67);
    assert_eq!(refused.envelope()["error"]["details"]["call"], id);
    assert!(cli.run(&["audit", "show", id]).ok().contains("whose@1.0.0"));
    assert_eq!(ground.asked("/text/whose"), 1);
}

#[test]
fn ctrl_c_ends_the_action_and_is_logged() {
    let ground = &*GROUND;
    let rest = [
        step("one", "fetch", &format!("url = \"{}\"", url("/text/ctrl-c")), ""),
        step("two", "fetch", &format!("url = \"{}\"", url("/hang/ctrl-c")), ""),
    ];
    ground.action("ctrl-c", &rest.concat());
    let mut command = ground.cli().command(&["run", "ctrl-c", "--format", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    while ground.asked("/hang/ctrl-c") == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    let error: Value = serde_json::from_slice(&ended.stdout).unwrap();
    let details = &error["error"]["details"];
    assert_eq!((&details["step"], &details["done"]), (&json!("two"), &json!(["one"])));
    let cli = ground.cli();
    let listed = cli.run(&["audit", "list", "--action", "ctrl-c", "--format", "json"]).json();
    let ends: Vec<_> = listed.as_array().unwrap().iter().map(|row| row["status"].as_str().unwrap()).collect();
    assert_eq!(ends, ["cancelled", "value", "cancelled"], "the second step, the first, the action");
}
