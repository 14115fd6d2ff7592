//! The audit log of an action: its own entry, its steps with their calls, and one end.

use cofferdam::{AuditId, Host, HostErrorKind};
use cofferdam_core::failure::RecoveryPrompt;
use cofferdam_runtime::flow::RunRequest;
use serde_json::{Value, json};

use super::fixture::{ActionHome, Stage, input, step};
use crate::shared_host::{failed, host_kind, run};

const TOKEN: &str = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";

fn events(host: &Host, audit_id: &AuditId) -> Vec<Value> {
    let entries = host.audit().reader().unwrap().entries_of(audit_id).unwrap();
    let bodies = entries.iter().map(|entry| serde_json::from_str::<Value>(&entry.text).unwrap());
    let events: Vec<Value> = bodies.flat_map(|body| body["events"].as_array().unwrap().clone()).collect();
    let seqs: Vec<_> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=events.len() as u64).collect::<Vec<_>>(), "contiguous, from 1");
    events
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[test]
fn an_action_and_its_calls_link_to_each_other() {
    let stage = Stage::new();
    let url = stage.url("/text/on-record-1");
    let rest = [
        input("body"),
        step("one", "post", &format!("url = \"{url}\", body = \"${{args.body}}\""), ""),
        stage.fetch("two", "/status/404?on-record", ""),
        stage.fetch("three", "/text/on-record-3", ""),
    ];
    stage.ground.action("on-record", &rest.concat());
    let args = json!({"body": format!("key {TOKEN}")});
    let (outcome, report) = stage.asks("on-record", RunRequest::new(args.clone()).actor("svc:ship"));
    let failure = failed(outcome.map(|_| Value::Null));
    let all = events(&stage.host, &report.audit_id);
    let expected =
        ["received", "admitted", "step_started", "step_ended", "step_started", "step_ended", "final"];
    assert_eq!(types(&all), expected);
    let payload = |n: usize| &all[n]["payload"];
    assert_eq!(
        (&payload(0)["connector"], &payload(0)["op"], &payload(0)["action"], &payload(0)["actor"]),
        (&json!("action://on-record@1.0.0"), &json!("run"), &json!("on-record@1.0.0"), &json!("svc:ship"))
    );
    let text = args.to_string();
    assert_eq!(
        payload(1)["arguments"]["sha256"],
        cofferdam_core::digest::Digest::sha256(text.as_bytes()).to_string()
    );
    assert!(payload(1)["hash"].as_str().unwrap().starts_with("sha256:"));
    let (_, read) = stage.host.audit().reader().unwrap().events_of(&report.audit_id).unwrap();
    assert_eq!((&read[1].facts()["idempotent"], &payload(1)["steps"]), (&json!(false), &json!(3)));
    let end = payload(6);
    assert_eq!(
        (&end["status"], &end["class"], &end["attempts"]),
        (&json!("failure"), &json!("external_api_error"), &json!(2))
    );
    assert_eq!(end["arguments"]["text"], text.replace(TOKEN, "[REDACTED]"));
    assert_eq!(end["failure"]["audit_id"], failure.audit_id().as_str(), "the same id everywhere");
    assert!(!all.iter().any(|event| event.to_string().contains(TOKEN)));
    // Each of its calls.
    for (n, id, status) in [(2, "one", "value"), (4, "two", "failure")] {
        let (begun, over) = (payload(n), payload(n + 1));
        assert_eq!(
            (&begun["step"], &over["step"], &over["status"]),
            (&json!(id), &json!(id), &json!(status))
        );
        let call = AuditId::parse(begun["call"].as_str().unwrap()).unwrap();
        let received = &events(&stage.host, &call)[0]["payload"];
        assert_eq!(
            (&received["parent"], &received["step"], &received["action"]),
            (&json!(report.audit_id.as_str()), &json!(id), &json!("on-record@1.0.0"))
        );
    }
    // The reported result is the logged one, and there is one end.
    let told: Vec<_> =
        stage.clock.steps().into_iter().filter(|step| step.audit_id == report.audit_id.as_str()).collect();
    let told: Vec<_> = told.iter().map(|step| step.name).collect();
    assert_eq!(told, ["received", "step_started", "step_ended", "step_started", "step_ended", "final"]);
    let row = stage.host.audit().reader().unwrap().call(&report.audit_id).unwrap().unwrap();
    assert_eq!((row.op.as_str(), row.status.name(), row.attempts), ("run", "failure", Some(2)));
}

/// The recovery prompt is logged with the end of the step's call and of the action, and passed to listeners; a
/// denial has no prompt.
#[test]
fn recovery_prompts_are_logged() {
    let stage = Stage::new();
    let closed = format!("http://{}/", stage.ground.closed);
    let denied = step("one", "fetch", "url = \"http://localhost:9/\"", "");
    for (name, step, prompt) in [
        ("prompts-again", stage.fetch("one", "/status/503?again", "retry = \"none\""), json!("approve")),
        ("prompts-unasked", stage.post("one", "/status/503?unasked", "x"), json!("approve")),
        (
            "prompts-nobody",
            step("one", "fetch", &format!("url = \"{closed}\""), "retry = \"none\""),
            json!("approve"),
        ),
        ("prompts-input", stage.fetch("one", "/status/422?input", ""), json!("ask")),
        ("prompts-login", stage.fetch("one", "/status/401?login", ""), json!("authenticate")),
        ("prompts-denied", denied, Value::Null),
    ] {
        stage.ground.action(name, &step);
        let (outcome, report) = stage.run(name, json!({}));
        let error = outcome.unwrap_err();
        assert_eq!(json!(error.prompt().map(RecoveryPrompt::name)), prompt, "{name}: {error}");
        let call = &report.steps[0].report.as_ref().unwrap().audit_id;
        for id in [&report.audit_id, call] {
            let all = events(&stage.host, id);
            assert_eq!(all.last().unwrap()["payload"]["prompt"], prompt, "{name}");
            let mut told = stage.clock.steps().into_iter().filter(|step| step.audit_id == id.as_str());
            assert_eq!(told.next_back().unwrap().facts["prompt"], prompt, "{name}");
        }
    }
}

#[test]
fn an_action_is_listed_shown_replayed_and_proved() {
    let ground = ActionHome::own();
    let url = |path: &str| ground.upstream.url(path);
    let rest = |two: &str| {
        [
            step("one", "post", &format!("url = \"{}\", body = \"x\"", url("/text/listed")), ""),
            step("two", "fetch", &format!("url = \"{}\"", url(two)), ""),
        ]
        .concat()
    };
    ground.action("listed", &rest("/text/listed-2"));
    ground.action("failing", &rest("/status/404?listed"));
    let cli = ground.cli();
    let value = cli.run(&["run", "listed", "--key", "listed-1", "--format", "json"]);
    let failure = cli.run(&["run", "failing", "--format", "json"]).fails(76);
    cli.run(&["run", "listed", "--key", "listed-1"]).ok();
    for (name, rows, told) in [("listed", 4, &value), ("failing", 3, &failure)] {
        let listed = cli.run(&["audit", "list", "--action", name, "--format", "json"]).json();
        let listed = listed.as_array().unwrap();
        assert_eq!(listed.len(), rows, "{listed:#?}");
        let whole = listed.iter().rfind(|row| row["op"] == "run").unwrap();
        let id = whole["audit_id"].as_str().unwrap();
        let shown = cli.run(&["audit", "show", id, "--format", "json"]).json();
        let calls: Vec<_> = shown["events"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["type"] == "step_started")
            .map(|event| event["payload"]["call"].as_str().unwrap())
            .collect();
        let steps: Vec<_> = listed
            .iter()
            .filter(|row| row["op"] != "run")
            .map(|row| row["audit_id"].as_str().unwrap())
            .collect();
        assert_eq!(calls.len(), 2);
        assert!(calls.iter().all(|call| steps.contains(call)), "{calls:?} {steps:?}");
        // Byte for byte, and with the same exit code. Whoever ran it was told about the whole action besides.
        let again = cli.run(&["replay", id, "--format", "json"]);
        let mut whole: Value = serde_json::from_str(&told.stdout).unwrap();
        let own = whole["error"]["details"]["failure"].take();
        let recorded =
            if own.is_null() { told.stdout.clone() } else { format!("{}\n", json!({"error": own})) };
        assert_eq!((again.stdout, again.code), (recorded, told.code));
    }
    cli.run(&["audit", "verify"]).ok();
    let export = ground.home.path().join("export.jsonl");
    cli.run(&["audit", "export", export.to_str().unwrap()]).ok();
    cli.run(&["audit", "verify", "--export", export.to_str().unwrap()]).ok();
    assert_eq!(ground.asked("/text/listed"), 3, "each run's first step, and the second step of one");
}

#[test]
fn an_unrecorded_result_is_not_run_again() {
    let stage = Stage::with(|builder| builder.keep_results(false));
    stage.ground.action("unkept", &stage.post("one", "/text/unkept", "x"));
    let asked = || RunRequest::new(json!({})).idempotency_key("unkept-1");
    let (value, report) = stage.asks("unkept", asked());
    assert!(value.is_ok());
    // Without a stored result the key still holds: nothing is done again.
    let (outcome, _) = stage.asks("unkept", asked());
    let error = outcome.unwrap_err();
    assert_eq!(host_kind(&error), Some(HostErrorKind::OutcomeUnknown), "{error}");
    assert_eq!(stage.asked("/text/unkept"), 1);
    let replayed = stage.host.replay(&report.audit_id).unwrap_err();
    assert_eq!(replayed.details()["reason"], "not_kept");
    run(stage.host.flush());
}
