//! Where a chain ends without a value: everybody failed, the time is over, somebody cancels.

use std::sync::Arc;

use cofferdam::{Cancellation, FailureClass, HostErrorKind};
use cofferdam_core::limits::LimitRequest;
use cofferdam_egress::resilience::RetryProfile;
use serde_json::{Value, json};

use super::stage::{Stage, alternate, ask};
use crate::envelope::{check, limit, upstream};
use crate::world::{failed, refused, run};

/// I5 and P15: the last failure, and all of them.
#[test]
fn i5_where_all_fail_the_last_failure_is_the_outcome_and_names_all_others() {
    let stage = Stage::new();
    let call = ask("a", stage.a("/status/503/i5"))
        .or_else(alternate("b", stage.nowhere()))
        .or_else(alternate("b", stage.b("/status/500/i5")));
    let (outcome, report) = run(stage.host.run_reported(call));
    let failure = failed(outcome);
    check(&failure, upstream("unavailable", true));
    // What the last would have failed with by itself, but for what is said of the others.
    let alone = failed(run(stage.host.run(ask("b", stage.b("/status/500/i5")))));
    assert_eq!(failure.message(), alone.message());
    let mut details = failure.details().clone();
    let chain = details.remove("chain").unwrap();
    assert_eq!(&details, alone.details());
    let told = |entry: &Value| {
        json!([
            entry["connector"],
            entry["op"],
            entry["class"],
            entry["code"],
            entry["attempts"],
            entry["request_sent"]
        ])
    };
    let told: Vec<_> = chain.as_array().unwrap().iter().map(told).collect();
    assert_eq!(
        json!(told),
        json!([
            ["github://acme/a@0.1.0", "fetch", "external_api_error", "unavailable", 4, true],
            ["github://acme/b@0.1.0", "fetch", "network_error", "refused", 4, false],
            ["github://acme/b@0.1.0", "fetch", "external_api_error", "unavailable", 4, true],
        ])
    );
    let a = format!("{} answered with status 503.", stage.ground.a.host_port());
    assert_eq!(chain[0]["message"], a, "every message can be read");
    assert_eq!(report.attempts.len(), 12);
    assert!(report.attempts.iter().all(|attempt| attempt.usage.is_some()), "every attempt has its usage");
    let hops = stage.clock.steps().iter().filter(|step| step.name == "fallback_triggered").count();
    assert_eq!(hops, 2);
}

#[test]
fn whoever_fails_for_good_is_the_end_of_the_chain_wherever_it_stands() {
    let stage = Stage::new();
    let call = ask("a", stage.a("/status/503/middle"))
        .or_else(alternate("b", stage.b("/status/403/middle")))
        .or_else(alternate("b", stage.b("/text/middle")));
    let failure = failed(run(stage.host.run(stage.at_once(call))));
    check(&failure, upstream("auth", false));
    assert_eq!(failure.details()["chain"].as_array().unwrap().len(), 2);
    assert_eq!(stage.asked_b("/text/middle"), 0);
    // A guest that breaks, and one that the gate ends, are no outage either.
    for (url, class) in [
        ("https://elsewhere.example/".to_owned(), FailureClass::CapabilityDenied),
        (stage.a("/bytes/10485761"), FailureClass::ResourceLimitExceeded),
        ("no url".to_owned(), FailureClass::ConnectorRuntimeError),
    ] {
        let call = ask("a", url).or_else(alternate("b", stage.b("/text/middle")));
        let failure = failed(run(stage.host.run(call)));
        assert_eq!(failure.class(), class);
        assert!(!failure.details().contains_key("chain"));
    }
    assert_eq!(stage.asked_b("/text/middle"), 0);
}

#[test]
fn one_deadline_stands_over_all_candidates_and_their_waits() {
    let stage = Stage::new();
    let ten_seconds = LimitRequest::parse(None, Some("10s"), None).unwrap();
    let call = ask("a", stage.a("/status/503/late"))
        .or_else(alternate("b", stage.b("/status/503/late")))
        .limits(ten_seconds);
    let failure = failed(run(stage.host.run(call)));
    // 1, 2 and 4 seconds and up to a fifth more for the first; for the second there is time for one of them.
    let details = failure.details();
    assert_eq!(details["retry_stopped"], "wall_time");
    assert_eq!(details["chain"][0]["attempts"], 4);
    assert!(stage.clock.waits_ms().iter().sum::<u64>() < 10_000, "{:?}", stage.clock.waits_ms());
    assert!((1..=2).contains(&details["chain"][1]["attempts"].as_u64().unwrap()), "{details:?}");
    assert!(stage.asked_b("/status/503/late") <= 2);
}

#[test]
fn who_asks_for_more_patience_than_there_is_makes_room_for_the_next() {
    let stage = Stage::new();
    let call =
        ask("a", stage.a("/status/429/busy?retry_after=3600")).or_else(alternate("b", stage.b("/text/free")));
    assert_eq!(run(stage.host.run(call)).unwrap()["body"], "free");
    assert_eq!((stage.asked_a("/status/429/busy"), stage.clock.waits_ms().len()), (1, 0));
}

#[test]
fn a_call_whose_time_is_over_asks_nobody_else() {
    let stage = Stage::new();
    let soon = LimitRequest::parse(None, Some("700ms"), None).unwrap();
    let call = ask("a", stage.a("/hang/chain")).or_else(alternate("b", stage.b("/text/over"))).limits(soon);
    check(&failed(run(stage.host.run(call))), limit("wall_time"));
    assert_eq!(stage.asked_b("/text/over"), 0);
}

#[test]
fn a_call_that_is_cancelled_between_two_candidates_asks_nobody_else() {
    let cancellation = Arc::new(Cancellation::new());
    let stage = Stage::with_listener({
        let cancellation = Arc::clone(&cancellation);
        move |step, _| {
            if step.name() == "fallback_triggered" {
                cancellation.cancel();
            }
        }
    });
    let call = ask("a", stage.a("/status/503/stop"))
        .or_else(alternate("b", stage.b("/text/stop")))
        .cancelled_by(&cancellation);
    let (outcome, report) = run(stage.host.run_reported(stage.at_once(call)));
    let error = refused(outcome);
    assert_eq!((error.kind(), &error.details()["attempts"]), (HostErrorKind::Cancelled, &json!(1)));
    assert_eq!((stage.asked_b("/text/stop"), report.attempts.len()), (0, 1));
}

#[test]
fn an_alternate_without_its_binding_does_not_hide_what_came_before() {
    let stage = Stage::new();
    let credential = "kind = \"bearer\"\nservice = \"acme\"\nhosts = [\"api.acme.example:443\"]";
    stage.ground.install_with("unbound", &format!("\n[[capabilities.credential]]\n{credential}\n"));
    let call = ask("a", stage.a("/status/503/bound")).or_else(alternate("unbound", stage.b("/text/bound")));
    let failure = failed(run(stage.host.run(stage.at_once(call))));
    check(&failure, upstream("unavailable", true));
    let last = &failure.details()["chain"][1];
    assert_eq!(json!([last["class"], last["attempts"]]), json!(["binding_required", 0]), "{last}");
    assert_eq!(stage.asked_b("/text/bound"), 0);
}

/// C18: an open circuit moves a chain on, and counts as what opened it.
#[test]
fn c18_an_open_circuit_is_passed_over_unless_it_hides_a_refusal() {
    let stage = Stage::new();
    let failover = |call: cofferdam::Call| call.retry(RetryProfile::named("failover").unwrap());
    let call =
        || failover(ask("a", stage.a("/status/503/c18")).or_else(alternate("b", stage.b("/text/c18"))));
    for answered in 1..=2 {
        assert_eq!(run(stage.host.run(call())).unwrap()["body"], "c18");
        assert_eq!((stage.asked_a("/status/503/c18"), stage.asked_b("/text/c18")), (3, answered));
    }
    let steps = stage.clock.steps();
    let hops: Vec<_> = steps.iter().filter(|step| step.name == "fallback_triggered").collect();
    assert_eq!(
        hops.iter().map(|hop| &hop.facts["code"]).collect::<Vec<_>>(),
        ["unavailable", "circuit_open"]
    );
    // A refusal is seen each time: nobody answers in its place.
    let call =
        || failover(ask("b", stage.b("/status/401/c18")).or_else(alternate("a", stage.a("/text/c18"))));
    for _ in 0..2 {
        assert_eq!(failed(run(stage.host.run(call()))).code(), "auth");
    }
    assert_eq!((stage.asked_b("/status/401/c18"), stage.asked_a("/text/c18")), (2, 0));
    let rotating = call().rotate_on_permanent().or_else(alternate("b", stage.nowhere()));
    let failure = failed(run(stage.host.run(rotating)));
    let codes: Vec<_> =
        failure.details()["chain"].as_array().unwrap().iter().map(|entry| entry["code"].clone()).collect();
    assert_eq!(codes, ["auth", "circuit_open", "refused"], "the second had its circuit opened");
}
