//! One logical call and its candidates: their order, time and arguments, and the result if all fail.

#[path = "fallback/command.rs"]
mod command;
#[path = "fallback/failures.rs"]
mod failures;
#[path = "fallback/fixture.rs"]
mod fixture;
#[path = "fallback/rejected.rs"]
mod rejected;

use cofferdam::{Call, FailureClass};
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_runtime::call::CallResult;
use cofferdam_test_support::connector;
use serde_json::{Value, json};

use crate::envelope::check_host_error;
use crate::shared_host::{failed, refused as not_taken_up, run};
use fixture::{Stage, ask, fallback, other};

/// Start of a, failed end of a, fallback from a to b, start of b, successful end of b.
#[test]
fn fallback_events_and_attempts_are_reported() {
    let stage = Stage::new();
    let path = "/text/events";
    let call = ask("a", stage.a("/status/503/events")).or_else(fallback("b", stage.b(path)));
    let CallResult { outcome, report } = run(stage.host.run(stage.at_once(call)));
    assert_eq!(outcome.unwrap()["body"], "events");
    let steps = stage.clock.steps();
    let told: Vec<_> = steps.iter().map(|step| (step.seq, step.name)).collect();
    let expected = [
        "received",
        "admitted",
        "attempt_started",
        "attempt_ended",
        "fallback_triggered",
        "admitted",
        "attempt_started",
        "attempt_ended",
        "final",
    ];
    assert_eq!(told, (1..).zip(expected).collect::<Vec<_>>());
    let (a, b) = ("github://acme/a@0.1.0", "github://acme/b@0.1.0");
    let fact = |step: usize, key: &str| steps[step].facts[key].clone();
    assert_eq!([fact(2, "connector"), fact(3, "connector"), fact(3, "status")], [a, a, "failure"]);
    assert_eq!([fact(4, "from"), fact(4, "to"), fact(4, "code")], [a, b, "unavailable"]);
    assert_eq!([fact(6, "connector"), fact(7, "connector"), fact(7, "status")], [b, b, "value"]);
    assert_eq!((fact(6, "candidate"), fact(6, "attempt")), (json!(1), json!(2)));
    assert_eq!(fact(8, "status"), "value");
    let used: Vec<_> = report.attempts.iter().map(|attempt| attempt.usage.unwrap().requests).collect();
    assert_eq!(used, [1, 1]);
    let by = report.answered_instead().unwrap();
    assert_eq!((&*by.connector, by.candidate), (b, 1));
}

#[test]
fn a_fallback_runs_after_the_last_retry() {
    let stage = Stage::new();
    let call = ask("a", stage.a("/status/503/exhausted")).or_else(fallback("b", stage.b("/text/exhausted")));
    let CallResult { outcome, report } = run(stage.host.run(call));
    assert_eq!(outcome.unwrap()["body"], "exhausted");
    assert_eq!((stage.asked_a("/status/503/exhausted"), stage.asked_b("/text/exhausted")), (4, 1));
    assert_eq!((stage.clock.waits_ms().len(), report.retried()), (3, 3), "between the two there is no wait");
    // An immediate answer is not reported as a fallback.
    let call = ask("a", stage.a("/text/exhausted")).or_else(fallback("b", stage.b("/text/exhausted")));
    let CallResult { outcome, report } = run(stage.host.run(call));
    outcome.unwrap();
    assert!(report.answered_instead().is_none());
    assert_eq!(stage.asked_b("/text/exhausted"), 1);
}

#[test]
fn client_errors_stop_the_chain_unless_rotated() {
    let stage = Stage::new();
    for (status, code) in [(401, "auth"), (402, "payment_required"), (403, "auth"), (400, "bad_request")] {
        let (asked, instead) =
            (format!("/status/{status}/client-error"), format!("/text/client-error-{status}"));
        let call = ask("a", stage.a(&asked)).or_else(fallback("b", stage.b(&instead)));
        let failure = failed(run(stage.host.run(call.clone())).outcome);
        assert_eq!((failure.class(), failure.code()), (FailureClass::ExternalApiError, code));
        assert_eq!((stage.asked_a(&asked), stage.asked_b(&instead)), (1, 0), "{status}");
        assert!(!failure.details().contains_key("chain"), "nobody else was asked");
        let outcome = run(stage.host.run(call.rotate_on_permanent())).outcome;
        assert_eq!(outcome.is_ok(), matches!(status, 401 | 402), "{status}");
        assert_eq!(stage.asked_b(&instead), usize::from(outcome.is_ok()), "{status}");
    }
}

#[test]
fn a_missing_model_falls_back_to_another() {
    let stage = Stage::new();
    let args = json!({"url": stage.a("/status/404/m1")});
    let cheaper = || fallback("a", stage.a("/text/m2"));
    let call = Call::new(other("a"), "fetch", args.clone()).or_else(cheaper());
    assert_eq!(run(stage.host.run(call)).outcome.unwrap()["body"], "m2");
    let call = Call::from_text(other("a"), "fetch", args.to_string()).or_else(cheaper());
    let text: Value = serde_json::from_str(&run(stage.host.run_text(call)).outcome.unwrap()).unwrap();
    assert_eq!(text["body"], "m2");
    assert_eq!((stage.asked_a("/status/404/m1"), stage.asked_a("/text/m2")), (2, 2));
    // Until there is none left: then it is not found.
    let call = ask("a", stage.a("/status/404/m1")).or_else(fallback("a", stage.a("/status/404/m2")));
    let failure = failed(run(stage.host.run(call)).outcome);
    assert_eq!((failure.code(), &failure.details()["status"]), ("not_found", &json!(404)));
    assert_eq!(failure.details()["chain"].as_array().unwrap().len(), 2);
}

/// A call's own first candidate opens the circuit that its fallbacks share.
#[test]
fn an_own_open_circuit_does_not_stop_fallbacks() {
    let stage = Stage::new();
    stage.install("models");
    let model = |model: &str| fallback("models", stage.a(model));
    let call = ask("models", stage.a("/status/503/own-large"))
        .or_else(model("/status/503/own-mid"))
        .or_else(model("/text/own-small"))
        .retry(RetryProfile::named("failover").unwrap());
    assert_eq!(run(stage.host.run(call)).outcome.unwrap()["body"], "own-small");
    let asked =
        ["/status/503/own-large", "/status/503/own-mid", "/text/own-small"].map(|path| stage.asked_a(path));
    assert_eq!(asked, [3, 3, 1], "mid is retried like any other");
    let changes = stage.clock.steps().into_iter().filter(|step| step.name == "circuit_changed").count();
    assert_eq!(changes, 1, "one outage opens a circuit once");

    // For all other calls it is open, also for their fallbacks.
    let call = ask("models", stage.a("/text/own-later")).or_else(model("/text/own-small"));
    let failure = failed(run(stage.host.run(call.retry(RetryProfile::named("failover").unwrap()))).outcome);
    assert_eq!(failure.code(), "circuit_open");
    assert_eq!((stage.asked_a("/text/own-later"), stage.asked_a("/text/own-small")), (0, 1));
}

#[test]
fn a_service_never_sees_one_key_with_two_requests() {
    let stage = Stage::new();
    let post = |url: String| json!({"url": url, "body": "text"});
    let mut instead = serde_json::Map::new();
    instead.insert("url".into(), stage.b("/text/keys").into());
    let call = Call::new(other("a"), "post", post(stage.a("/status/503/keys")))
        .or_else(cofferdam::Fallback::new(other("b"), "post").with_args(instead))
        .idempotency_key("order-17");
    let CallResult { outcome, report } = run(stage.host.run(call));
    outcome.unwrap();
    let keys = |seen: Vec<cofferdam_test_support::ReceivedRequest>| {
        seen.iter().map(|seen| seen.header("idempotency-key").unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys(stage.seen_a("/status/503/keys")), ["order-17:post"; 4]);
    assert_eq!(keys(stage.seen_b("/text/keys")), ["order-17~1:post"]);
    assert_eq!(report.idempotency_key.as_deref(), Some("order-17"));
}

#[test]
fn a_fallback_with_another_operation_is_logged_with_it() {
    let stage = Stage::new();
    let args = json!({"url": stage.b("/text/other-op"), "body": "text"}).as_object().unwrap().clone();
    let call = ask("a", stage.a("/status/503/other-op"))
        .or_else(cofferdam::Fallback::new(other("b"), "post").with_args(args));
    let CallResult { outcome, report } = run(stage.host.run(stage.at_once(call)));
    outcome.unwrap();
    let entries = stage.host.audit().reader().unwrap().entries_of(&report.audit_id).unwrap();
    let events = entries.iter().flat_map(|entry| entry.events().unwrap());
    let (admitted, ended): (Vec<_>, Vec<_>) = events
        .filter(|event| ["admitted", "attempt_ended"].contains(&event.name.as_str()))
        .map(|event| event.facts())
        .partition(|facts| facts.contains_key("hash"));
    let connectors: Vec<_> = ended.iter().map(|facts| facts.get("connector")).collect();
    assert_eq!(connectors, [None, Some(&json!("github://acme/b@0.1.0"))]);
    let fact = |name: &str| admitted.iter().map(|facts| facts.get(name).cloned()).collect::<Vec<_>>();
    assert_eq!(fact("op"), [None, Some(json!("post"))]);
    assert_eq!(fact("connector"), [None, Some(json!("github://acme/b@0.1.0"))]);
    let key = format!("{}~1", report.audit_id.as_str());
    assert_eq!(fact("idempotency_key"), [None, Some(json!(key))], "the first key is the audit id");
}

#[test]
fn a_removed_fallback_keeps_the_first_failure() {
    let stage = Stage::with_listener(|step, stage| {
        if step.name() == "fallback_triggered" {
            stage.remove("gone");
        }
    });
    stage.install("gone");
    let call = ask("a", stage.a("/status/503/gone")).or_else(fallback("gone", stage.b("/text/gone")));
    let failure = failed(run(stage.host.run(stage.at_once(call.clone()))).outcome);
    assert_eq!((failure.code(), failure.retriable()), ("unavailable", true));
    let chain = failure.details()["chain"].as_array().unwrap();
    assert_eq!((&chain[0]["code"], &chain[0]["attempts"]), (&json!("unavailable"), &json!(1)));
    let gone = json!(["connector_not_found", 0, false, null]);
    let of = |key: &str| chain[1].get(key).cloned().unwrap_or_default();
    assert_eq!(json!([of("code"), of("attempts"), of("request_sent"), of("class")]), gone);
    assert!(failure.operator_notes().iter().any(|note| note.contains("not taken up")));
    // And the next call is refused before it begins.
    let before = stage.asked_a("/status/503/gone");
    let error = not_taken_up(run(stage.host.run(call)).outcome);
    check_host_error(&error);
    assert!(error.message().contains("Fallback 1") && error.message().contains("not installed"), "{error}");
    assert_eq!(stage.asked_a("/status/503/gone"), before);
    assert_eq!(connector("github://acme/gone@0.1.0"), other("gone"));
}

#[test]
fn a_connector_removed_between_attempts_is_reported() {
    let stage = Stage::with_listener(|step, stage| {
        if matches!(step, cofferdam_core::event::EventKind::RetryScheduled { failure, .. } if failure.details()["connector"] == "github://acme/leaving@0.1.0")
        {
            stage.remove("leaving");
        }
    });
    stage.install("leaving");
    let CallResult { outcome, report } = run(stage.host.run(ask("leaving", stage.a("/status/503/leaving"))));
    let failure = failed(outcome);
    let details = failure.details();
    assert_eq!((failure.code(), &details["retry_stopped"]), ("unavailable", &json!("not_admitted")));
    let message = "github://acme/leaving@0.1.0 is not installed.";
    assert_eq!(details["not_admitted"], json!({"code": "connector_not_found", "message": message}));
    assert_eq!(stage.asked_a("/status/503/leaving"), 1);
    // The attempt is in an earlier entry: the end has all of its failure.
    let entries = stage.host.audit().reader().unwrap().entries_of(&report.audit_id).unwrap();
    let end = entries.last().unwrap().events().unwrap().last().unwrap().facts();
    assert_eq!((end.get("failed_attempt"), &end["failure"]["cause"]), (None, &json!("unavailable")));
}
