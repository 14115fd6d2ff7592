//! One logical call and its candidates: who is asked, when, with what, and what is said where nobody could help.

#[path = "chain/command.rs"]
mod command;
#[path = "chain/ends.rs"]
mod ends;
#[path = "chain/refused.rs"]
mod refused;
#[path = "chain/stage.rs"]
mod stage;

use cofferdam::{Call, FailureClass};
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_test_support::connector;
use serde_json::{Value, json};

use crate::envelope::check_host_error;
use crate::world::{failed, refused as not_taken_up, run};
use stage::{Stage, alternate, ask, other};

/// I4: START a, END a error, FALLBACK_TRIGGERED a to b, START b, END b success.
#[test]
fn i4_every_hop_is_an_event_and_every_attempt_is_in_the_report() {
    let stage = Stage::new();
    let path = "/text/i4";
    let call = ask("a", stage.a("/status/503/i4")).or_else(alternate("b", stage.b(path)));
    let (outcome, report) = run(stage.host.run_reported(stage.at_once(call)));
    assert_eq!(outcome.unwrap()["body"], "i4");
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
    assert_eq!(fact(8, "outcome"), "value");
    let used: Vec<_> = report.attempts.iter().map(|attempt| attempt.usage.unwrap().requests).collect();
    assert_eq!(used, [1, 1]);
    let by = report.answered_instead().unwrap();
    assert_eq!((&*by.connector, by.candidate), (b, 1));
}

#[test]
fn p11_the_next_is_asked_once_the_first_is_given_up() {
    let stage = Stage::new();
    let call = ask("a", stage.a("/status/503/p11")).or_else(alternate("b", stage.b("/text/p11")));
    let (outcome, report) = run(stage.host.run_reported(call));
    assert_eq!(outcome.unwrap()["body"], "p11");
    assert_eq!((stage.asked_a("/status/503/p11"), stage.asked_b("/text/p11")), (4, 1));
    assert_eq!((stage.clock.waits_ms().len(), report.retried()), (3, 3), "between the two there is no wait");
    // Who answers at once is not instead of anybody.
    let call = ask("a", stage.a("/text/p11")).or_else(alternate("b", stage.b("/text/p11")));
    let (outcome, report) = run(stage.host.run_reported(call));
    outcome.unwrap();
    assert!(report.answered_instead().is_none());
    assert_eq!(stage.asked_b("/text/p11"), 1);
}

#[test]
fn r7_who_is_refused_stops_the_chain_unless_the_caller_wants_it_otherwise() {
    let stage = Stage::new();
    for (status, code) in [(401, "auth"), (402, "payment_required"), (403, "auth"), (400, "bad_request")] {
        let (asked, instead) = (format!("/status/{status}/r7"), format!("/text/r7-{status}"));
        let call = ask("a", stage.a(&asked)).or_else(alternate("b", stage.b(&instead)));
        let failure = failed(run(stage.host.run(call.clone())));
        assert_eq!((failure.class(), failure.code()), (FailureClass::ExternalApiError, code));
        assert_eq!((stage.asked_a(&asked), stage.asked_b(&instead)), (1, 0), "{status}");
        assert!(!failure.details().contains_key("chain"), "nobody else was asked");
        let outcome = run(stage.host.run(call.rotate_on_permanent()));
        assert_eq!(outcome.is_ok(), matches!(status, 401 | 402), "{status}");
        assert_eq!(stage.asked_b(&instead), usize::from(outcome.is_ok()), "{status}");
    }
}

#[test]
fn p12_another_model_of_the_same_connector_is_asked_where_one_is_not_found() {
    let stage = Stage::new();
    let args = json!({"url": stage.a("/status/404/m1")});
    let cheaper = || alternate("a", stage.a("/text/m2"));
    let call = Call::new(other("a"), "fetch", args.clone()).or_else(cheaper());
    assert_eq!(run(stage.host.run(call)).unwrap()["body"], "m2");
    let call = Call::from_text(other("a"), "fetch", args.to_string()).or_else(cheaper());
    let text: Value = serde_json::from_str(&run(stage.host.run_text(call)).unwrap()).unwrap();
    assert_eq!(text["body"], "m2");
    assert_eq!((stage.asked_a("/status/404/m1"), stage.asked_a("/text/m2")), (2, 2));
    // Until there is none left: then it is not found.
    let call = ask("a", stage.a("/status/404/m1")).or_else(alternate("a", stage.a("/status/404/m2")));
    let failure = failed(run(stage.host.run(call)));
    assert_eq!((failure.code(), &failure.details()["status"]), ("not_found", &json!(404)));
    assert_eq!(failure.details()["chain"].as_array().unwrap().len(), 2);
}

/// P12 with a breaker: a call's own first candidate opens the circuit that its alternates stand behind.
#[test]
fn p12_a_circuit_that_the_call_itself_opened_does_not_stop_its_other_candidates() {
    let stage = Stage::new();
    stage.install("models");
    let model = |model: &str| alternate("models", stage.a(model));
    let call = ask("models", stage.a("/status/503/own-large"))
        .or_else(model("/status/503/own-mid"))
        .or_else(model("/text/own-small"))
        .retry(RetryProfile::named("failover").unwrap());
    assert_eq!(run(stage.host.run(call)).unwrap()["body"], "own-small");
    let asked =
        ["/status/503/own-large", "/status/503/own-mid", "/text/own-small"].map(|path| stage.asked_a(path));
    assert_eq!(asked, [3, 3, 1], "mid is retried like any other");
    let changes = stage.clock.steps().into_iter().filter(|step| step.name == "circuit_changed").count();
    assert_eq!(changes, 1, "one outage opens a circuit once");

    // For all other calls it is open, also for their alternates.
    let call = ask("models", stage.a("/text/own-later")).or_else(model("/text/own-small"));
    let failure = failed(run(stage.host.run(call.retry(RetryProfile::named("failover").unwrap()))));
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
    let (outcome, report) = run(stage.host.run_reported(call));
    outcome.unwrap();
    let keys = |seen: Vec<cofferdam_test_support::Seen>| {
        seen.iter().map(|seen| seen.header("idempotency-key").unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys(stage.seen_a("/status/503/keys")), ["order-17:post"; 4]);
    assert_eq!(keys(stage.seen_b("/text/keys")), ["order-17~1:post"]);
    assert_eq!(report.idempotency_key.as_deref(), Some("order-17"));
}

#[test]
fn an_alternate_that_is_gone_when_it_is_needed_does_not_hide_what_came_before() {
    let stage = Stage::with_listener(|step, stage| {
        if step.name() == "fallback_triggered" {
            stage.remove("gone");
        }
    });
    stage.install("gone");
    let call = ask("a", stage.a("/status/503/gone")).or_else(alternate("gone", stage.b("/text/gone")));
    let failure = failed(run(stage.host.run(stage.at_once(call.clone()))));
    assert_eq!((failure.code(), failure.retriable()), ("unavailable", true));
    let chain = failure.details()["chain"].as_array().unwrap();
    assert_eq!((&chain[0]["code"], &chain[0]["attempts"]), (&json!("unavailable"), &json!(1)));
    let gone = json!(["connector_not_found", 0, false, null]);
    let of = |key: &str| chain[1].get(key).cloned().unwrap_or_default();
    assert_eq!(json!([of("code"), of("attempts"), of("request_sent"), of("class")]), gone);
    assert!(failure.operator_notes().iter().any(|note| note.contains("not taken up")));
    // And the next call is refused before it begins.
    let before = stage.asked_a("/status/503/gone");
    let error = not_taken_up(run(stage.host.run(call)));
    check_host_error(&error);
    assert!(error.message().contains("Alternate 1") && error.message().contains("not installed"), "{error}");
    assert_eq!(stage.asked_a("/status/503/gone"), before);
    assert_eq!(connector("github://acme/gone@0.1.0"), other("gone"));
}

#[test]
fn a_connector_that_is_gone_when_its_call_is_attempted_again_says_so() {
    let stage = Stage::with_listener(|step, stage| {
        if matches!(step, cofferdam_core::event::EventKind::RetryScheduled { failure, .. } if failure.details()["connector"] == "github://acme/leaving@0.1.0")
        {
            stage.remove("leaving");
        }
    });
    stage.install("leaving");
    let failure = failed(run(stage.host.run(ask("leaving", stage.a("/status/503/leaving")))));
    let details = failure.details();
    assert_eq!((failure.code(), &details["retry_stopped"]), ("unavailable", &json!("not_admitted")));
    let message = "github://acme/leaving@0.1.0 is not installed.";
    assert_eq!(details["not_admitted"], json!({"code": "connector_not_found", "message": message}));
    assert_eq!(stage.asked_a("/status/503/leaving"), 1);
}
