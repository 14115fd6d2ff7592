//! An action under a key: completed steps are not repeated, for any caller and after any end.

use cofferdam::{Error, HostErrorKind};
use cofferdam_runtime::flow::{ActionReport, ActionResult, RepeatAdvice, RunRequest};
use serde_json::{Value, json};

use super::fixture::{Stage, input, statuses, write};
use crate::shared_host::{failed, refused};

#[test]
fn the_same_key_runs_nothing_twice() {
    let stage = Stage::new();
    let rest = [
        input("body"),
        super::fixture::step(
            "one",
            "post",
            &format!("url = \"{}\", body = \"${{args.body}}\"", stage.url("/text/twice-1")),
            "",
        ),
        stage.fetch("two", "/text/twice-2", ""),
    ];
    stage.ground.action("twice", &rest.concat());
    let asked = |body: &str| RunRequest::new(json!({"body": body})).idempotency_key("twice-17");
    let (first, report) = stage.asks("twice", asked("a"));
    let first = first.unwrap();
    assert!(report.replayed.is_none() && report.steps.iter().all(|step| step.report.is_some()));
    // In another process as well.
    for stage in [Stage::new(), Stage::new()] {
        let (again, of) = stage.asks("twice", asked("a"));
        assert_eq!(serde_json::to_string(&again.unwrap()).unwrap(), serde_json::to_string(&first).unwrap());
        assert_eq!((of.replayed.as_ref(), statuses(&of)), (Some(&report.audit_id), vec!["not_run"; 2]));
        assert_ne!(of.audit_id, report.audit_id);
        let steps: Vec<_> = stage.clock.steps().into_iter().map(|step| step.name).collect();
        assert_eq!(steps, ["received", "replayed", "final"]);
    }
    let (outcome, of) = stage.asks("twice", asked("b"));
    assert_eq!(refused(outcome.map(|_| Value::Null)).kind(), HostErrorKind::IdempotencyConflict);
    assert!(!of.has_begun());
    let (outcome, _) = stage.asks("twice", asked("a").actor("somebody else"));
    assert_eq!(refused(outcome.map(|_| Value::Null)).kind(), HostErrorKind::IdempotencyConflict);
    // An edited file is another action, whatever its name.
    let path = stage.ground.home.path().join("actions/twice.md");
    let text = std::fs::read_to_string(&path).unwrap();
    write(stage.ground.home.path(), "twice", &text.replace("id = \"one\"", "id = \"uno\""));
    let (outcome, _) = stage.asks("twice", asked("a"));
    assert_eq!(refused(outcome.map(|_| Value::Null)).kind(), HostErrorKind::IdempotencyConflict);
    assert_eq!((stage.asked("/text/twice-1"), stage.asked("/text/twice-2")), (1, 1));
}

#[test]
fn the_same_key_resumes_after_a_failure() {
    let stage = Stage::new();
    let none = "retry = \"none\"";
    let steps = [
        stage.post("one", "/text/goes-on-1", "x"),
        stage.fetch("two", "/flaky/1/goes-on", none),
        stage.fetch("three", "/text/goes-on-3", ""),
    ];
    stage.ground.action("goes-on", &steps.concat());
    let asked = || RunRequest::new(json!({})).idempotency_key("goes-on-1");
    let (outcome, report) = stage.asks("goes-on", asked());
    assert!(failed(outcome.map(|_| Value::Null)).retriable());
    assert_eq!(statuses(&report), ["value", "failure", "not_run"]);
    let (value, report) = stage.asks("goes-on", asked());
    assert!(value.is_ok());
    assert!(report.steps[0].report.as_ref().unwrap().replayed.is_some());
    let paths = ["/text/goes-on-1", "/flaky/1/goes-on", "/text/goes-on-3"];
    assert_eq!(paths.map(|path| stage.asked(path)), [1, 2, 1]);
}

#[test]
fn a_step_under_a_minted_key_is_not_repeated() {
    let stage = Stage::new();
    let order = |path: &str| {
        let inputs = format!("url = \"{}\", body = \"b\", labels = [\"a\"]", stage.url(path));
        super::fixture::step("pay", "order", &inputs, "retry = \"none\"")
    };
    let look = stage.fetch("look", "/status/503?minted-look", "retry = \"none\"");
    stage.ground.action("minted-done", &(order("/text/minted-pay") + &look));
    stage.ground.action("minted-sent", &order("/status/503?minted-pay"));
    let once = |report: &ActionReport| {
        report.unrepeatable_steps().map(|step| step.id.to_string()).collect::<Vec<_>>()
    };
    for name in ["minted-done", "minted-sent"] {
        let (outcome, report) = stage.asks(name, RunRequest::new(json!({})));
        let failure = failed(outcome.map(|_| Value::Null));
        assert_eq!((report.repeat_advice(), once(&report)), (RepeatAdvice::AskFirst, vec!["pay".into()]));
        // The failing step is not a call of its own: its key is of no use to the caller.
        assert_eq!(failure.retriable(), name == "minted-done", "{failure}");
        assert!(!failure.details().contains_key("repeat_with_key"), "{failure}");
        let (outcome, report) = stage.asks(name, RunRequest::new(json!({})).idempotency_key(name));
        assert!(failed(outcome.map(|_| Value::Null)).retriable());
        assert_eq!((report.repeat_advice(), once(&report)), (RepeatAdvice::Freely, Vec::new()));
    }
}

#[test]
fn a_final_failure_is_replayed_with_its_steps() {
    let stage = Stage::new();
    let steps = [stage.post("one", "/text/stands-1", "x"), stage.fetch("two", "/status/404?stands", "")];
    stage.ground.action("stands", &steps.concat());
    let told = || {
        let (outcome, _) = stage.asks("stands", RunRequest::new(json!({})).idempotency_key("stands-1"));
        serde_json::to_string(&outcome.unwrap_err()).unwrap()
    };
    assert_eq!(told(), told());
    assert_eq!((stage.asked("/text/stands-1"), stage.asked("/status/404?stands")), (1, 1));
}

#[test]
fn the_key_of_a_running_action_waits_or_is_refused() {
    let stage = Stage::new();
    let path = "/slow/1500/both";
    stage.ground.action("both", &stage.post("one", path, "x"));
    let asked = || RunRequest::new(json!({})).idempotency_key("both-1");
    let host = stage.host.clone();
    let running = crate::shared_host::begin(async move { host.run_action("both", asked()).await });
    while stage.asked(path) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let (outcome, _) = stage.asks("both", asked().if_running(cofferdam_runtime::call::OnKeyConflict::Refuse));
    assert_eq!(refused(outcome.map(|_| Value::Null)).kind(), HostErrorKind::InProgress);
    let (value, report) = stage.asks("both", asked());
    let ActionResult { outcome: first, report: of } = crate::shared_host::run(running).unwrap();
    assert_eq!((value.unwrap(), report.replayed), (first.unwrap(), Some(of.audit_id)));
    assert_eq!(stage.asked(path), 1);
}

#[test]
fn a_key_too_long_for_its_steps_is_refused() {
    let stage = Stage::new();
    stage.ground.action("long", &stage.post("one", "/text/long-key", "x"));
    let key = |n: usize| stage.asks("long", RunRequest::new(json!({})).idempotency_key("k".repeat(n))).0;
    let error = match key(197).unwrap_err() {
        Error::Host(error) => error,
        Error::Failure(failure) => panic!("{failure}"),
    };
    assert!(error.hint().unwrap().contains("196 bytes"), "{error:?}");
    for bad in ["audit-x", "a:b", "a~b", "a b", ""] {
        let (outcome, report) = stage.asks("long", RunRequest::new(json!({})).idempotency_key(bad));
        assert_eq!(refused(outcome.map(|_| Value::Null)).kind(), HostErrorKind::Validation, "{bad}");
        assert!(!report.has_begun());
    }
    assert_eq!(stage.asked("/text/long-key"), 0);
    assert!(key(196).is_ok());
}
