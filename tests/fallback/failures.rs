//! Chains without a value: every candidate failed, the time is over, the caller cancels.

use std::sync::Arc;

use cofferdam::{Cancellation, FailureClass, HostErrorKind};
use cofferdam_core::limits::LimitRequest;
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_runtime::call::CallResult;
use serde_json::{Value, json};

use super::fixture::{Stage, ask, fallback};
use crate::envelope::{check, limit, upstream};
use crate::shared_host::{failed, refused, run};

/// The last failure, and all of them.
#[test]
fn the_last_failure_lists_all_earlier_ones() {
    let stage = Stage::new();
    let call = ask("a", stage.a("/status/503/all-fail"))
        .or_else(fallback("b", stage.nowhere()))
        .or_else(fallback("b", stage.b("/status/500/all-fail")));
    let CallResult { outcome, report } = run(stage.host.run(call));
    let failure = failed(outcome);
    check(&failure, upstream("unavailable", true));
    // The failure that the last candidate has alone, except for the list of the others.
    let alone = failed(run(stage.host.run(ask("b", stage.b("/status/500/all-fail")))).outcome);
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
fn the_end_of_a_chain_has_no_failure_twice() {
    let stage = Stage::new();
    let call =
        ask("a", stage.a("/status/503/repeated")).or_else(fallback("b", stage.b("/status/404/repeated")));
    let CallResult { outcome, report } = run(stage.host.run(call));
    failed(outcome);
    let mut reader = stage.host.audit().reader().unwrap();
    let row = reader.call(&report.audit_id).unwrap().unwrap();
    let (entries, events) = reader.events_of(&report.audit_id).unwrap();
    let end = entries.last().unwrap().events().unwrap().last().unwrap().facts();
    assert_eq!(end["failed_attempt"], report.attempts.len());
    let failure = end["failure"].as_object().unwrap();
    assert_eq!(failure.keys().collect::<Vec<_>>(), ["boundary", "details"]);
    let details = failure["details"].as_object().unwrap();
    assert_eq!(details.keys().collect::<Vec<_>>(), ["chain", "request_sent"]);

    // A reader gets all of it.
    let mut read = events.last().unwrap().failure(&row).unwrap();
    let mut view = report.operator_view().unwrap().clone();
    // The operator's view is made just before the event.
    assert!(read.remove("at").is_some() && view.remove("at").is_some());
    assert_eq!(read, view);
}

#[test]
fn a_permanent_failure_ends_the_chain() {
    let stage = Stage::new();
    let call = ask("a", stage.a("/status/503/middle"))
        .or_else(fallback("b", stage.b("/status/403/middle")))
        .or_else(fallback("b", stage.b("/text/middle")));
    let failure = failed(run(stage.host.run(stage.at_once(call))).outcome);
    check(&failure, upstream("auth", false));
    assert_eq!(failure.details()["chain"].as_array().unwrap().len(), 2);
    assert_eq!(stage.asked_b("/text/middle"), 0);
    // A guest that traps, and one that the gate ends, are not outages either.
    for (url, class) in [
        ("https://elsewhere.example/".to_owned(), FailureClass::CapabilityDenied),
        (stage.a("/bytes/10485761"), FailureClass::ResourceLimitExceeded),
        ("no url".to_owned(), FailureClass::ConnectorRuntimeError),
    ] {
        let call = ask("a", url).or_else(fallback("b", stage.b("/text/middle")));
        let failure = failed(run(stage.host.run(call)).outcome);
        assert_eq!(failure.class(), class);
        assert!(!failure.details().contains_key("chain"));
    }
    assert_eq!(stage.asked_b("/text/middle"), 0);
}

#[test]
fn one_deadline_covers_all_candidates() {
    let stage = Stage::new();
    let ten_seconds = LimitRequest::parse(None, Some("10s"), None).unwrap();
    let call = ask("a", stage.a("/status/503/late"))
        .or_else(fallback("b", stage.b("/status/503/late")))
        .limits(ten_seconds);
    let failure = failed(run(stage.host.run(call)).outcome);
    // 1, 2 and 4 seconds and up to a fifth more for the first; for the second there is time for one of them.
    let details = failure.details();
    assert_eq!(details["retry_stopped"], "wall_time");
    assert_eq!(details["chain"][0]["attempts"], 4);
    assert!(stage.clock.waits_ms().iter().sum::<u64>() < 10_000, "{:?}", stage.clock.waits_ms());
    assert!((1..=2).contains(&details["chain"][1]["attempts"].as_u64().unwrap()), "{details:?}");
    assert!(stage.asked_b("/status/503/late") <= 2);
}

#[test]
fn a_long_retry_after_moves_to_the_fallback() {
    let stage = Stage::new();
    let call =
        ask("a", stage.a("/status/429/busy?retry_after=3600")).or_else(fallback("b", stage.b("/text/free")));
    assert_eq!(run(stage.host.run(call)).outcome.unwrap()["body"], "free");
    assert_eq!((stage.asked_a("/status/429/busy"), stage.clock.waits_ms().len()), (1, 0));
}

#[test]
fn an_expired_call_tries_no_fallback() {
    let stage = Stage::new();
    let soon = LimitRequest::parse(None, Some("700ms"), None).unwrap();
    let call = ask("a", stage.a("/hang/chain")).or_else(fallback("b", stage.b("/text/over"))).limits(soon);
    check(&failed(run(stage.host.run(call)).outcome), limit("wall_time"));
    assert_eq!(stage.asked_b("/text/over"), 0);
}

#[test]
fn a_cancelled_call_tries_no_fallback() {
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
        .or_else(fallback("b", stage.b("/text/stop")))
        .cancelled_by(&cancellation);
    let CallResult { outcome, report } = run(stage.host.run(stage.at_once(call)));
    let error = refused(outcome);
    assert_eq!((error.kind(), &error.details()["attempts"]), (HostErrorKind::Cancelled, &json!(1)));
    assert_eq!((stage.asked_b("/text/stop"), report.attempts.len()), (0, 1));
}

#[test]
fn an_unbound_fallback_keeps_the_first_failure() {
    let stage = Stage::new();
    let credential = "kind = \"bearer\"\nservice = \"acme\"\nhosts = [\"api.acme.example:443\"]";
    stage.ground.install_with("unbound", &format!("\n[[capabilities.credential]]\n{credential}\n"));
    let call = ask("a", stage.a("/status/503/bound")).or_else(fallback("unbound", stage.b("/text/bound")));
    let failure = failed(run(stage.host.run(stage.at_once(call))).outcome);
    check(&failure, upstream("unavailable", true));
    let last = &failure.details()["chain"][1];
    assert_eq!(json!([last["class"], last["attempts"]]), json!(["binding_required", 0]), "{last}");
    assert_eq!(stage.asked_b("/text/bound"), 0);
}

/// An open circuit moves a chain on, and counts like its cause.
#[test]
fn an_open_circuit_is_skipped_unless_it_is_a_refusal() {
    let stage = Stage::new();
    let failover = |call: cofferdam::Call| call.retry(RetryProfile::named("failover").unwrap());
    let call =
        || failover(ask("a", stage.a("/status/503/open")).or_else(fallback("b", stage.b("/text/open"))));
    for answered in 1..=2 {
        assert_eq!(run(stage.host.run(call())).outcome.unwrap()["body"], "open");
        assert_eq!((stage.asked_a("/status/503/open"), stage.asked_b("/text/open")), (3, answered));
    }
    let steps = stage.clock.steps();
    let hops: Vec<_> = steps.iter().filter(|step| step.name == "fallback_triggered").collect();
    assert_eq!(
        hops.iter().map(|hop| &hop.facts["code"]).collect::<Vec<_>>(),
        ["unavailable", "circuit_open"]
    );
    // A refusal is reported each time: no fallback replaces it.
    let call =
        || failover(ask("b", stage.b("/status/401/open")).or_else(fallback("a", stage.a("/text/open"))));
    for _ in 0..2 {
        assert_eq!(failed(run(stage.host.run(call())).outcome).code(), "auth");
    }
    assert_eq!((stage.asked_b("/status/401/open"), stage.asked_a("/text/open")), (2, 0));
    let rotating = call().rotate_on_permanent().or_else(fallback("b", stage.nowhere()));
    let failure = failed(run(stage.host.run(rotating)).outcome);
    let codes: Vec<_> =
        failure.details()["chain"].as_array().unwrap().iter().map(|entry| entry["code"].clone()).collect();
    assert_eq!(codes, ["auth", "circuit_open", "refused"], "the second had its circuit opened");
}
