//! Requests in flight when a connector returns: aborted, logged, and never taken for a complete value.

use cofferdam::{Call, Error, HostErrorKind, Report};
use cofferdam_runtime::call::CallResult;
use cofferdam_runtime::flow::SkipRequest;
use cofferdam_test_support::{Cli, Home, Signer};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::shared_host::{example, refused, run, shared_host};

/// Leaves requests of these methods behind, and waits meanwhile for another answer.
fn leave(path: &str, methods: &[&str], give_up: bool) -> Call {
    let upstream = &shared_host().upstream;
    let args = json!({
        "methods": methods,
        "url": upstream.url(&format!("/hang?{path}")),
        "awaited": upstream.url("/slow/500"),
        "give_up": give_up,
    });
    Call::new(example("probe"), "leave_behind", args).idempotency_key(format!("aborted-{path}"))
}

fn reported(call: Call) -> (Result<Value, Error>, Report) {
    let CallResult { outcome, report } = run(shared_host().host.run(call));
    (outcome, report)
}

fn arrived(path: &str) -> usize {
    shared_host().upstream.seen(&format!("/hang?{path}")).len()
}

/// The end of the attempt, as the audit log has it.
fn attempt_on_record(report: &Report) -> Value {
    let entries = shared_host().host.audit().reader().unwrap().entries_of(&report.audit_id).unwrap();
    let bodies = entries.iter().map(|entry| serde_json::from_str::<Value>(&entry.text).unwrap());
    let events: Vec<Value> = bodies.flat_map(|body| body["events"].as_array().unwrap().clone()).collect();
    events.iter().find(|event| event["type"] == "attempt_ended").unwrap()["payload"].clone()
}

#[test]
fn aborted_unsafe_requests_leave_effects_unknown() {
    for (path, give_up) in [("posts", false), ("posts-given-up", true)] {
        let (outcome, report) = reported(leave(path, &["POST", "POST"], give_up));
        assert_eq!(outcome.unwrap(), json!(2), "{path}");
        assert_eq!((arrived(path), report.partial), (2, Some(2)), "{path}");
        let host = shared_host().upstream.host_port();
        for request in report.aborted_on_return() {
            assert_eq!((&*request.method, &request.host), ("POST", &host), "{path}");
            assert!(request.request_sent && request.unsafe_sent, "{path}");
        }
        let on_record = attempt_on_record(&report);
        let expected = json!({"host": host, "method": "POST", "request_sent": true, "unsafe_sent": true});
        assert_eq!(on_record["aborted_on_return"], json!([expected, expected]), "{path}");
        let again = refused(reported(leave(path, &["POST", "POST"], give_up)).0);
        assert_eq!(again.kind(), HostErrorKind::OutcomeUnknown, "{path}");
        assert_eq!(arrived(path), 2, "nothing is done twice under one key: {path}");
    }
}

#[test]
fn an_unknown_effect_of_a_value_is_decided_about() {
    let (path, host) = ("decided", &shared_host().host);
    let (outcome, report) = reported(leave(path, &["POST"], false));
    assert_eq!(outcome.unwrap(), json!(1));
    let call = host.incomplete_call(&report.audit_id).unwrap();
    assert_eq!((call.resumable, call.replayable, call.reason), (false, true, "effect_unknown"), "{call:?}");
    assert!(host.incomplete().unwrap().contains(&call));
    // The operator has looked, and it is there: the key stays taken.
    let skip = SkipRequest { actor: "ada".into(), reason: "it is there".into(), frees_key: false };
    run(host.skip(&report.audit_id, skip)).unwrap();
    assert!(!host.incomplete().unwrap().contains(&call));
    let again = refused(reported(leave(path, &["POST"], false)).0);
    assert_eq!((again.kind(), arrived(path)), (HostErrorKind::OutcomeUnknown, 1));
}

#[test]
fn aborted_safe_requests_make_the_value_partial() {
    let path = "gets";
    let (outcome, report) = reported(leave(path, &["GET", "OPTIONS"], false));
    assert_eq!((outcome.unwrap(), report.partial), (json!(2), Some(2)));
    assert!(report.aborted_on_return().iter().all(|request| request.request_sent && !request.unsafe_sent));
    let (outcome, again) = reported(leave(path, &["GET", "OPTIONS"], false));
    assert_eq!((outcome.unwrap(), again.partial), (json!(2), Some(2)), "the recorded outcome");
    // They are no failed items, though their number is all that is recorded with the outcome.
    let told = cofferdam_runtime::agent::value("leave_behind", "probe", "2", &again, 1_000);
    assert!(told.text().contains("answered while requests of it were under way"), "{}", told.text());
    assert!(!told.text().contains("items failed"), "{}", told.text());
    assert_eq!((again.replayed, arrived(path)), (Some(report.audit_id), 2));
}

#[test]
fn answered_requests_are_not_aborted() {
    let (outcome, report) = reported(leave("none", &[], false));
    assert_eq!((outcome.unwrap(), report.partial), (json!(0), None));
    assert!(report.aborted_on_return().is_empty());
    assert!(attempt_on_record(&report).get("aborted_on_return").is_none());
}

#[test]
fn the_command_line_reports_aborted_requests() {
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let probe = &shared_host().packages.iter().find(|(name, _)| *name == "probe").unwrap().1;
    run(home.install(probe, &signer)).unwrap();
    let upstream = &shared_host().upstream;
    let cli = Cli::new(COFFERDAM, home.path());
    let (hang, slow) = (upstream.url("/hang?cli"), upstream.url("/slow/500"));
    let allow = upstream.host_port();
    let left = |method: &str| {
        let args = json!({"methods": [method], "url": hang, "awaited": slow, "give_up": false}).to_string();
        let call = ["call", "github://cofferdam/probe", "leave_behind", &args, "--allow-private", &allow];
        let ran = cli.run(&[&call[..], &["--idempotency-key", method]].concat());
        assert_eq!(ran.stdout.trim(), "1", "{}", ran.stderr);
        ran.stderr
    };
    let said = left("POST");
    assert!(said.contains("the value is partial: the POST to"), "{said}");
    assert!(said.contains("may have had its effect"), "{said}");
    assert!(left("GET").contains("the value is partial: the GET to"));
    let again = left("GET");
    assert!(again.contains("the value is partial: requests of it were aborted"), "{again}");
    assert!(!again.contains("items failed"), "{again}");
}
