//! Ends of actions: values, retries, fallbacks, timeouts, cancellations, and steps that could not continue.

use std::sync::Arc;
use std::time::Duration;

use cofferdam::{Cancellation, Error, HostErrorKind};
use cofferdam_core::event::{Event, EventKind, Listener};
use cofferdam_runtime::flow::RunRequest;
use serde_json::{Value, json};

use super::fixture::{Stage, input, statuses, step};
use crate::shared_host::{begin, failed, refused, run};

fn quick(stage: &Stage, id: &str, path: &str) -> String {
    let retry = "retry = { max = 2, initial = \"10ms\", max_delay = \"1s\", jitter = 0.0 }";
    stage.fetch(id, path, retry)
}

#[test]
fn only_the_failing_step_is_retried() {
    let stage = Stage::new();
    let steps = [
        stage.fetch("one", "/text/middle-1", ""),
        quick(&stage, "two", "/flaky/2/middle-2"),
        stage.fetch("three", "/text/middle-3", ""),
    ];
    stage.ground.action("middle", &steps.concat());
    let (value, report) = stage.run("middle", json!({}));
    assert_eq!(value.unwrap().output["status"], 200);
    assert_eq!(
        ["/text/middle-1", "/flaky/2/middle-2", "/text/middle-3"].map(|path| stage.asked(path)),
        [1, 3, 1]
    );
    assert_eq!(report.steps[1].report.as_ref().unwrap().attempts.len(), 3);
    assert_eq!(stage.clock.waits_ms(), [10, 20]);
}

#[test]
fn a_step_declared_not_idempotent_is_not_retried() {
    let stage = Stage::new();
    let steps = [
        step("one", "fetch", &format!("url = \"{}\"", stage.url("/flaky/1/once")), "idempotent = false"),
        stage.fetch("two", "/text/after-once", ""),
    ];
    stage.ground.action("once", &steps.concat());
    let (outcome, report) = stage.run("once", json!({}));
    let failure = failed(outcome.map(|_| Value::Null));
    assert!(!failure.retriable());
    assert_eq!((stage.asked("/flaky/1/once"), stage.asked("/text/after-once")), (1, 0));
    assert_eq!(statuses(&report), ["failure", "not_run"]);
}

#[test]
fn a_fallback_replaces_its_step_and_is_reported() {
    let stage = Stage::new();
    let nowhere = format!("http://{}/", stage.ground.closed);
    let fallback = format!(
        "retry = \"none\"\nfallback = [{{ connector = \"github://cofferdam/probe\", op = \"fetch\", inputs = {{ url = \
         \"{}\" }} }}]",
        stage.url("/text/instead")
    );
    let steps = [
        step("ask", "fetch", &format!("url = \"{nowhere}\""), &fallback),
        stage.fetch("then", "/text/then", ""),
    ];
    stage.ground.action("instead", &steps.concat());
    let (value, report) = stage.run("instead", json!({}));
    let value = value.unwrap();
    assert_eq!((&value.steps["ask"]["body"], &value.output["body"]), (&json!("instead"), &json!("then")));
    let of_step = report.steps[0].report.as_ref().unwrap();
    assert_eq!(of_step.answered_instead().unwrap().candidate, 1);
    let told = cofferdam_runtime::agent::action_value("instead", &value, &report, usize::MAX);
    assert!(told.text().contains("answered_by: in step ask fallback 1, fetch of"), "{}", told.text());
}

#[test]
fn one_deadline_covers_all_steps() {
    let stage = Stage::new();
    let steps = [
        stage.fetch("one", "/slow/700/deadline-1", ""),
        stage.fetch("two", "/hang/deadline-2", "timeout = \"3s\""),
        stage.fetch("three", "/text/deadline-3", ""),
    ];
    stage.ground.action_with("late", "timeout = \"2s\"", &steps.concat());
    let (outcome, report) = stage.run("late", json!({}));
    let failure = failed(outcome.map(|_| Value::Null));
    assert_eq!((failure.code(), &failure.details()["of"]), ("wall_time", &json!("action")));
    assert_eq!(failure.details()["configured"], 2_000);
    assert_eq!(statuses(&report), ["value", "failure", "not_run"]);
    assert_eq!(stage.asked("/text/deadline-3"), 0);
    // The step's own time is less.
    let (outcome, _) = stage.asks("late", RunRequest::new(json!({})).wall_time(Duration::from_secs(700)));
    assert_eq!(failed(outcome.map(|_| Value::Null)).details()["of"], "step");
}

#[test]
fn step_timeouts_bound_the_action() {
    let stage = Stage::new();
    stage.ground.action("short", &stage.fetch("one", "/hang/short", "timeout = \"300ms\""));
    let (outcome, _) = stage.run("short", json!({}));
    let failure = failed(outcome.map(|_| Value::Null));
    assert_eq!((&failure.details()["of"], &failure.details()["configured"]), (&json!("step"), &json!(300)));
    assert_eq!(failure.details()["raised_by"], json!(["action"]), "{failure}");
    assert!(failure.message().contains("`timeout` of the step in the action's file"), "{failure}");
    let (outcome, report) =
        stage.asks("short", RunRequest::new(json!({})).wall_time(Duration::from_secs(301)));
    let error = refused(outcome.map(|_| Value::Null));
    assert_eq!(error.kind(), HostErrorKind::Validation);
    assert!(error.message().contains("its 1 steps together may take 300000 ms"), "{error}");
    assert!(!report.has_begun());
}

/// Cancels when a step is begun, or is over.
struct Cancels {
    cancellation: Cancellation,
    when: fn(&EventKind<'_>) -> bool,
}

impl Listener for Cancels {
    fn event(&self, event: &Event<'_>) {
        if (self.when)(&event.kind) {
            self.cancellation.cancel();
        }
    }
}

#[test]
fn a_cancelled_action_lists_completed_steps() {
    type Moment = (&'static str, fn(&EventKind<'_>) -> bool, [usize; 2], &'static [&'static str]);
    let moments: [Moment; 4] = [
        (
            "received",
            |step| matches!(step, EventKind::Received { op: "run", .. }),
            [0, 0],
            &["not_run", "not_run"],
        ),
        ("begun", |step| matches!(step, EventKind::StepStarted { .. }), [0, 0], &["cancelled", "not_run"]),
        ("between", |step| matches!(step, EventKind::StepEnded { .. }), [1, 0], &["value", "not_run"]),
        (
            "second",
            |step| matches!(step, EventKind::StepStarted { number: 2, .. }),
            [1, 0],
            &["value", "cancelled"],
        ),
    ];
    for (name, when, asked, expected) in moments {
        let cancellation = Cancellation::new();
        let listener = Arc::new(Cancels { cancellation: cancellation.clone(), when });
        let stage = Stage::with(|builder| builder.listener(listener));
        let (one, two) = (format!("/text/cancel-{name}-1"), format!("/text/cancel-{name}-2"));
        stage.ground.action(
            &format!("cancel-{name}"),
            &[stage.fetch("one", &one, ""), stage.fetch("two", &two, "")].concat(),
        );
        let run = RunRequest::new(json!({})).cancelled_by(&cancellation);
        let (outcome, report) = stage.asks(&format!("cancel-{name}"), run);
        let error = refused(outcome.map(|_| Value::Null));
        assert_eq!(error.kind(), HostErrorKind::Cancelled, "{name}: {error}");
        assert_eq!(
            ([stage.asked(&one), stage.asked(&two)], &*statuses(&report)),
            (asked, expected),
            "{name}"
        );
        if asked[0] == 1 {
            assert_eq!(error.details()["done"], json!(["one"]), "{name}");
            assert!(error.message().contains("Done before it, and not undone: one."), "{name}: {error}");
        }
        let ends: Vec<_> = stage
            .clock
            .steps()
            .into_iter()
            .filter(|step| step.name == "final" && step.audit_id == report.audit_id.as_str())
            .collect();
        assert_eq!(ends.len(), 1, "{name} has one end");
        assert_eq!(ends[0].facts["status"], "cancelled");
    }
}

/// The advice is in the details of the error, and in the text for agents.
#[test]
fn a_cancelled_action_advises_about_another_run() {
    for (name, key, again, words) in [
        ("keyless", None, "ask_first", "'one' must not be repeated, and running the action again may do so"),
        (
            "keyed",
            Some("cut-1"),
            "under_key",
            "if the action is run again, then under the key 'cut-1' alone.",
        ),
    ] {
        let cancellation = Cancellation::new();
        let when: fn(&EventKind<'_>) -> bool = |step| matches!(step, EventKind::StepEnded { .. });
        let listener = Arc::new(Cancels { cancellation: cancellation.clone(), when });
        let stage = Stage::with(|builder| builder.listener(listener));
        let (name, path) = (format!("cut-{name}"), format!("/text/cut-{name}"));
        stage.ground.action(&name, &[stage.post("one", &path, "x"), stage.fetch("two", &path, "")].concat());
        let request = RunRequest::new(json!({})).cancelled_by(&cancellation);
        let request = key.map(|key| request.clone().idempotency_key(key)).unwrap_or(request);
        let (outcome, report) = stage.asks(&name, request);
        let error = Error::from(refused(outcome.map(|_| Value::Null)));
        let details = serde_json::to_value(&error).unwrap()["error"]["details"].clone();
        assert_eq!((&details["not_again"], &details["again"]), (&json!(["one"]), &json!(again)), "{details}");
        assert!(details["suggestion"].as_str().unwrap().contains(words), "{details}");
        let told = cofferdam_runtime::agent::action_error(&name, &error, &report);
        assert_eq!(told.text().matches(words).count(), 1, "{}", told.text());
        assert_eq!(told.structured()["error"]["details"], details);
    }
}

#[test]
fn a_dropped_future_cancels_action_and_step() {
    let stage = Stage::new();
    let path = "/hang/dropped";
    stage
        .ground
        .action("dropped", &[stage.fetch("one", "/text/dropped", ""), stage.fetch("two", path, "")].concat());
    let (host, asked) = (stage.host.clone(), RunRequest::new(json!({})));
    let running = begin(async move { host.run_action("dropped", asked).await });
    while stage.asked(path) == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    running.abort();
    assert!(run(running).is_err());
    run(stage.host.flush());
    let ended: Vec<_> = stage.clock.steps().into_iter().filter(|step| step.name == "final").collect();
    let outcomes: Vec<_> = ended.iter().map(|step| step.facts["status"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["value", "cancelled", "cancelled"], "the first step, the second, the action");
    let mut reader = stage.host.audit().reader().unwrap();
    for step in &ended[1..] {
        let id = cofferdam::AuditId::parse(&step.audit_id).unwrap();
        assert_eq!(reader.call(&id).unwrap().unwrap().status.name(), "cancelled");
    }
}

#[test]
fn a_late_argument_error_lists_completed_steps() {
    let stage = Stage::new();
    // The second step gets an invalid URL, which only the call itself can detect.
    let steps = [
        stage.post("one", "/text/half-1", "x"),
        step("two", "sleep", "ms = \"${args.ms}\"", ""),
        stage.fetch("three", "/text/half-3", ""),
    ];
    let inputs = "[[inputs]]\nname = \"ms\"\ntype = \"integer\"\ndescription = \"How long.\"\n";
    stage.ground.action("half", &(inputs.to_owned() + &steps.concat()));
    let (outcome, report) = stage.run("half", json!({"ms": -1}));
    let error = refused(outcome.map(|_| Value::Null));
    assert_eq!(error.kind(), HostErrorKind::Validation);
    assert!(error.message().starts_with("Step two: The arguments do not fit: "), "{error}");
    assert_eq!((&error.details()["step"], &error.details()["done"]), (&json!("two"), &json!(["one"])));
    assert_eq!(error.details()["action_audit_id"], report.audit_id.as_str());
    assert_eq!((statuses(&report), stage.asked("/text/half-3")), (vec!["value", "refused", "not_run"], 0));
    let told = cofferdam_runtime::agent::action_error("half", &Error::Host(error), &report);
    assert!(told.text().starts_with("Action 'half' failed: validation (Step two: "), "{}", told.text());
    assert!(
        told.text().contains("It ended in step 'two'. Done before, and not undone: 'one'."),
        "{}",
        told.text()
    );
}

#[test]
fn an_output_mismatch_fails_without_a_rerun() {
    let stage = Stage::new();
    let schema =
        "[output]\ntype = \"object\"\nrequired = [\"status\"]\nproperties.status = { const = 201 }\n";
    stage.ground.action("schema", &(stage.post("one", "/text/schema", "x") + schema));
    let (outcome, report) = stage.run("schema", json!({}));
    let error = refused(outcome.map(|_| Value::Null));
    assert_eq!(error.kind(), HostErrorKind::Validation);
    assert!(error.message().contains("Every step of it is done"), "{error}");
    assert_eq!((error.details()["done"].clone(), stage.asked("/text/schema")), (json!(["one"]), 1));
    assert_eq!(statuses(&report), ["value"]);
    let told = cofferdam_runtime::agent::action_error("schema", &Error::Host(error), &report);
    assert!(
        told.is_error() && told.text().starts_with("Action 'schema' failed: validation ("),
        "{}",
        told.text()
    );
}

#[test]
fn invalid_arguments_are_named_and_nothing_runs() {
    let stage = Stage::new();
    let rest = input("branch") + &stage.fetch("one", "/text/unfit", "");
    stage.ground.action("unfit", &rest);
    for (args, words) in [
        (json!({}), "branch"),
        (json!({"branch": 7}), "branch"),
        (json!({"branch": "x", "brunch": "y"}), "brunch"),
        (json!([]), "object"),
    ] {
        let (outcome, report) = stage.run("unfit", args.clone());
        let error = refused(outcome.map(|_| Value::Null));
        assert_eq!(error.kind(), HostErrorKind::Validation, "{args}");
        assert!(error.message().contains(words), "{args}: {error}");
        assert!(!report.has_begun());
    }
    assert_eq!(stage.asked("/text/unfit"), 0);
}
