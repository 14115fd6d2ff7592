//! Every failure class from a real cause: the guest's behaviour, and the resulting envelope.
//!
//! `binding_required` and `binding_failed` have no cause yet: there are no credentials to bind.

use cofferdam::{Failure, FailureClass};
use cofferdam_test_support::log_capture;
use serde_json::{Value, json};

use crate::envelope::{check, denied, fault, limit, network, upstream};
use crate::shared_host::{example, failed, run, shared_host};

fn probe(op: &str, args: Value) -> Failure {
    shared_host().failure("probe", op, args)
}

fn probe_within(op: &str, args: Value, limits: (Option<u64>, Option<&str>, Option<&str>)) -> Failure {
    shared_host().failure_within("probe", op, args, limits)
}

/// The text that callers and agents see, and the operator's own.
fn seen_by(failure: &Failure) -> (String, String) {
    (serde_json::to_string(failure).unwrap(), failure.operator_notes().join("\n"))
}

#[test]
fn an_endless_guest_runs_out_of_fuel() {
    let failure = probe_within("spin", json!({}), (Some(20_000_000), None, None));
    check(&failure, limit("fuel"));
    assert_eq!(failure.details()["configured"], 20_000_000);
    assert_eq!(failure.details()["unit"], "fuel");
}

#[test]
fn a_guest_with_fuel_to_spare_runs_out_of_time() {
    let failure = probe_within("spin", json!({}), (Some(200_000_000_000), Some("200ms"), None));
    check(&failure, limit("wall_time"));
    assert_eq!((&failure.details()["configured"], &failure.details()["unit"]), (&json!(200), &json!("ms")));
    assert!(failure.details()["used"].as_u64().unwrap() >= 200);
}

#[test]
fn a_waiting_guest_runs_out_of_time_not_fuel() {
    check(&probe_within("sleep", json!({"ms": 60_000}), (None, Some("150ms"), None)), limit("wall_time"));
    assert_eq!(shared_host().value("probe", "sleep", json!({"ms": 5})), Value::Null);
}

#[test]
fn memory_exhaustion_differs_from_a_crash() {
    let failure = probe("eat_memory", json!({}));
    check(&failure, limit("memory"));
    assert_eq!(failure.details()["configured"], 64 * 1024 * 1024);
    let failure = probe_within("eat_memory", json!({}), (None, None, Some("8MiB")));
    check(&failure, limit("memory"));
    assert_eq!(failure.details()["configured"], 8 * 1024 * 1024);
    assert!(failure.details()["used"].as_u64().unwrap() > 8 * 1024 * 1024);
}

/// The guest's toolchain decides whether its own stack or WebAssembly's is exhausted first. Both are the
/// connector's fault, and only the second is certainly the stack limit.
#[test]
fn endless_recursion_is_stopped() {
    let failure = probe("recurse", json!({}));
    match failure.class() {
        FailureClass::ResourceLimitExceeded => check(&failure, limit("stack")),
        _ => {
            check(&failure, fault("trap"));
            assert_eq!(failure.details()["trap"], "memory_out_of_bounds");
        }
    }
}

#[test]
fn panic_text_goes_only_to_the_operator() {
    let failure = probe("panic", json!({"message": "the blue parrot"}));
    check(&failure, fault("trap"));
    assert_eq!(failure.details()["trap"], "unreachable");
    let (caller, operator) = seen_by(&failure);
    assert!(!caller.contains("parrot"), "{caller}");
    assert!(operator.contains("the blue parrot"), "{operator}");
    let record = log_capture::record_of(failure.audit_id().as_str());
    assert!(record.get("notes").unwrap().contains("the blue parrot"), "{record:?}");
    assert_eq!(
        (record.get("outcome"), record.get("class")),
        (Some("failure"), Some("connector_runtime_error"))
    );
}

/// The end of a guest's output is kept, so that a flood cannot displace the reason.
#[test]
fn the_end_of_a_long_panic_is_kept() {
    let failure = probe("panic", json!({"message": format!("{} the blue parrot", "x".repeat(100_000))}));
    check(&failure, fault("trap"));
    let (caller, operator) = seen_by(&failure);
    assert!(operator.contains("the blue parrot") && operator.len() < 5_000, "{operator}");
    assert!(operator.contains("bytes before that were dropped"), "{operator}");
    assert!(!caller.contains("parrot"), "{caller}");
}

#[test]
fn panic_control_characters_do_not_reach_the_log() {
    let failure = probe("panic", json!({"message": "\u{1b}[2J\u{7}\nINFO all is well\u{202e}"}));
    let record = log_capture::record_of(failure.audit_id().as_str());
    record.fields.values().for_each(|text| crate::envelope::printable(&json!(text)));
}

#[test]
fn a_guest_that_exits_is_a_failure() {
    for code in [0, 1, 255] {
        check(&probe("exit", json!({"code": code})), fault("exit"));
    }
}

#[test]
fn guest_error_detail_goes_only_to_the_operator() {
    let claim = |kind: &str| probe("fail", json!({"kind": kind, "message": "Too late.", "detail": "row 7"}));
    for (kind, expected) in [("invalid_input", fault("input_invalid")), ("failed", fault("op_failed"))] {
        let failure = claim(kind);
        check(&failure, expected);
        assert_eq!(failure.details()["connector_message"], "Too late.");
        let (caller, operator) = seen_by(&failure);
        assert!(!caller.contains("row 7") && operator.contains("row 7"), "{caller}\n{operator}");
    }
    let transient = claim("failed_transiently");
    check(&transient, crate::envelope::Expected { retriable: true, ..fault("op_failed") });
    let failure = shared_host().failure("hello", "fail", json!({"kind": "failed"}));
    check(&failure, fault("op_failed"));
    assert_eq!(failure.details()["connector_code"], "as_asked");
}

#[test]
fn a_guest_cannot_write_to_the_callers_terminal() {
    let failure =
        probe("fail", json!({"kind": "failed", "message": "a\u{1b}[31m\nb\u{202e}", "detail": "\u{7}"}));
    check(&failure, fault("op_failed"));
    let long = probe("fail", json!({"kind": "failed", "message": "x".repeat(100_000)}));
    assert!(long.details()["connector_message"].as_str().unwrap().chars().count() <= 301);
}

#[test]
fn a_guest_cannot_forge_an_upstream_error() {
    for status in [503, 429, 500] {
        let failure = probe("forge_upstream", json!({"status": status}));
        check(&failure, upstream("unobserved", false));
        assert_eq!(failure.details()["status"], status);
    }
    // The service was asked, and answered otherwise.
    let url = shared_host().upstream.url("/text/hello");
    for status in [503, 204, 404] {
        let failure = probe("forge_upstream", json!({"status": status, "url": url}));
        check(&failure, upstream("unobserved", false));
    }
    check(&probe("forge_network", json!({})), network("unobserved", false));
    check(
        &shared_host().failure("hello", "fail", json!({"kind": "upstream"})),
        upstream("unobserved", false),
    );
    check(&shared_host().failure("hello", "fail", json!({"kind": "network"})), network("unobserved", false));
}

#[test]
fn an_error_in_a_good_answer_is_observed_and_final() {
    let world = shared_host();
    for (path, status, code) in
        [("/text/good", 200, "error_in_answer"), ("/status/304", 304, "unexpected_status")]
    {
        let failure = probe("forge_upstream", json!({"status": status, "url": world.upstream.url(path)}));
        check(&failure, upstream(code, false));
        let details = failure.details();
        assert_eq!((&details["status"], &details["upstream_code"]), (&json!(status), &json!("forged")));
        assert_eq!(details["host"], world.upstream.host_port());
        assert_eq!(
            world.upstream.seen(path).len(),
            1,
            "a claim about {status} is no reason to send it again"
        );
    }
}

#[test]
fn an_ungranted_host_is_denied_before_connecting() {
    let world = shared_host();
    let before = world.elsewhere.connections();
    let failure = probe("fetch", json!({"url": world.elsewhere.url("/text/hello")}));
    check(&failure, denied("host_not_granted"));
    let details = failure.details();
    assert_eq!(details["requested"], format!("network:{}", world.elsewhere.grant()), "{details:?}");
    assert!(details["granted"].to_string().contains(&world.upstream.host_port()), "{details:?}");
    let suggestion = details["suggestion"].as_str().unwrap();
    assert!(suggestion.contains(&world.elsewhere.host_port()), "{suggestion}");
    assert!(
        suggestion.contains("connector.toml") || suggestion.contains("[capabilities.network]"),
        "{suggestion}"
    );
    assert_eq!(world.elsewhere.connections(), before, "no connection was made");
}

#[test]
fn a_swallowed_denial_is_still_a_denial() {
    let world = shared_host();
    let before = world.elsewhere.connections();
    let failure = probe("swallow_denial", json!({"url": world.elsewhere.url("/text/hello")}));
    check(&failure, denied("host_not_granted"));
    assert_eq!(world.elsewhere.connections(), before);
    let granted = world.value("probe", "swallow_denial", json!({"url": world.upstream.url("/text/hello")}));
    assert!(granted.as_str().unwrap().contains("hello"), "{granted}");
}

#[test]
fn every_spelling_of_a_host_is_checked() {
    let (world, port) = (shared_host(), shared_host().upstream.port());
    let before = world.elsewhere.connections();
    let urls = [
        format!("http://127.0.0.1:{port}/text/written-so"),
        format!("http://[::1]:{port}/text/written-so"),
        format!("http://2130706433:{port}/text/written-so"),
        format!("http://0x7f.1:{port}/text/written-so"),
        format!("http://localhost.evil.example:{port}/text/written-so"),
        format!("http://user@localhost:{port}/text/written-so"),
        format!("http://localhost:{port}@evil.example/text/written-so"),
        "http://localhost/text/written-so".to_owned(),
        format!("https://localhost:{}/text/written-so", world.elsewhere.port()),
        "http://169.254.169.254/latest/meta-data".to_owned(),
    ];
    for url in urls {
        let outcome = world.call("probe", "fetch", json!({"url": url}));
        let failure = failed(outcome);
        // Requests that the guest's own library cannot represent never reach the gate.
        if failure.class() != FailureClass::ConnectorRuntimeError {
            assert_eq!(failure.class(), FailureClass::CapabilityDenied, "{url}: {failure}");
        }
    }
    // Of others' connections there are many on the one upstream of all tests; of this path there are none.
    assert!(world.upstream.seen("/text/written-so").is_empty());
    assert_eq!(world.elsewhere.connections(), before);
}

#[test]
fn a_private_address_needs_the_operators_permission() {
    let world = shared_host();
    let strict = world.home.host();
    let path = "/text/private-address";
    let url = json!({"url": world.upstream.url(path)});
    let failure = failed(run(strict.call(&example("probe"), "fetch", url.clone())));
    check(&failure, denied("private_address"));
    assert!(failure.details()["suggestion"].as_str().unwrap().contains("allow"), "{:?}", failure.details());
    assert!(world.upstream.seen(path).is_empty(), "no request was made");
    assert_eq!(world.value("probe", "fetch", url)["status"], 200);
}

#[test]
fn a_closed_port_is_a_network_error_in_its_phase() {
    let failure = probe("fetch", json!({"url": format!("http://localhost:{}/", shared_host().closed_port)}));
    check(&failure, network("refused", true));
    let details = failure.details();
    assert_eq!(
        (&details["phase"], &details["request_sent"]),
        (&json!("connect"), &json!(false)),
        "{details:?}"
    );
}

#[test]
fn a_broken_connection_may_have_had_effects() {
    let world = shared_host();
    for path in ["/drop/1", "/early-close/1"] {
        let failure = probe("fetch", json!({"url": world.upstream.url(path)}));
        assert_eq!(failure.class(), FailureClass::NetworkError, "{path}: {failure}");
        assert_eq!(failure.details()["request_sent"], true, "{path}: {:?}", failure.details());
        assert_eq!(failure.details()["phase"], "response", "{path}: {:?}", failure.details());
        assert!(failure.retriable(), "{path}");
    }
    let failure = probe("post", json!({"url": world.upstream.url("/drop/2"), "body": "x"}));
    assert_eq!(failure.class(), FailureClass::NetworkError);
    assert!(!failure.retriable(), "what is not idempotent is not repeated");
    assert!(failure.message().contains("not idempotent"), "{}", failure.message());
    assert_eq!(failure.details()["idempotent"], false);
}

#[test]
fn the_error_status_decides_retriability() {
    let cases = [
        (400, "bad_request", false),
        (401, "auth", false),
        (403, "auth", false),
        (404, "not_found", false),
        (422, "bad_request", false),
        (429, "rate_limited", true),
        (500, "unavailable", true),
        (503, "unavailable", true),
        (529, "unavailable", true),
    ];
    for (status, code, retriable) in cases {
        let failure =
            probe("fetch", json!({"url": shared_host().upstream.url(&format!("/status/{status}"))}));
        check(&failure, upstream(code, retriable));
        assert_eq!(failure.details()["status"], status);
        assert_eq!(failure.details()["host"], shared_host().upstream.host_port());
    }
}

#[test]
fn retry_after_reaches_the_caller_in_milliseconds() {
    let failure = probe("fetch", json!({"url": shared_host().upstream.url("/status/503?retry_after=7")}));
    check(&failure, upstream("unavailable", true));
    assert_eq!(failure.details()["retry_after_ms"], 7_000);
    // A failure that is not retried has no host wait in that place.
    let url = shared_host().upstream.url("/status/503?retry_after=soon");
    let failure = probe("post", json!({"url": url, "body": "once"}));
    assert!(!failure.details().contains_key("retry_after_ms"));
}

#[test]
fn api_errors_are_reported_by_a_real_connector() {
    let get = |name: &str| {
        let repository = json!({"owner": "acme", "name": name, "base_url": shared_host().upstream.url("")});
        shared_host().failure("github-issues", "get_issue", json!({"repository": repository, "number": 1}))
    };
    check(&get("status-401"), upstream("auth", false));
    check(&get("issues-0"), upstream("not_found", false));
    let failure = get("status-503-after-12");
    check(&failure, upstream("unavailable", true));
    assert_eq!(failure.details()["retry_after_ms"], 12_000);
    let create = |name: &str, title: &str| {
        let repository = json!({"owner": "acme", "name": name, "base_url": shared_host().upstream.url("")});
        let args = json!({"repository": repository, "title": title, "labels": []});
        shared_host().failure("github-issues", "create_issue", args)
    };
    let failure = create("issues-1", " ");
    check(&failure, fault("input_invalid"));
    assert_eq!(failure.details()["field"], "title");
    check(&create("status-503-once", "Twice would be two issues"), upstream("unavailable", false));
    assert_eq!(shared_host().upstream.seen("/repos/acme/status-503-once/issues").len(), 1);
}

#[test]
fn requests_are_counted() {
    let url = shared_host().upstream.url("/text/counted");
    let statuses = shared_host().value("probe", "fetch_many", json!({"url": url, "times": 64}));
    assert_eq!(statuses, json!(vec![200; 64]));
    let failure = probe("fetch_many", json!({"url": url, "times": 65}));
    check(&failure, limit("requests"));
    assert_eq!(failure.details()["configured"], 64);
}

#[test]
fn a_response_that_is_too_large_ends_the_call() {
    let failure = probe("fetch", json!({"url": shared_host().upstream.url("/bytes/11000000")}));
    check(&failure, limit("response_body"));
}

#[test]
fn a_result_that_is_too_large_is_not_returned() {
    let failure = probe("big_result", json!({"bytes": 5_000_000}));
    check(&failure, limit("payload"));
}

#[test]
fn a_late_response_ends_the_call_and_the_request() {
    let world = shared_host();
    let failure =
        probe_within("fetch", json!({"url": world.upstream.url("/hang/late")}), (None, Some("300ms"), None));
    check(&failure, limit("wall_time"));
    crate::cancellation::abandoned(&world.upstream, "/hang/late");
}

#[test]
fn limits_above_the_ceiling_are_refused_not_clamped() {
    let limits = cofferdam_core::limits::LimitRequest::parse(None, Some("6m"), None).unwrap();
    let call = cofferdam::Call::new(example("hello"), "nothing", json!({})).limits(limits);
    let error = crate::shared_host::refused(run(shared_host().host.run(call)).outcome);
    assert!(error.message().contains("wall_time"), "{}", error.message());
}

#[test]
fn spinning_guests_do_not_starve_another() {
    let world = shared_host();
    run(async {
        let limits =
            cofferdam_core::limits::LimitRequest::parse(Some(200_000_000_000), Some("1s"), None).unwrap();
        let spins: Vec<_> = (0..8)
            .map(|_| {
                let (host, limits) = (world.host.clone(), limits);
                let call = cofferdam::Call::new(example("probe"), "spin", json!({})).limits(limits);
                tokio::spawn(async move { host.run(call).await.outcome })
            })
            .collect();
        world.host.call(&example("hello"), "greet", json!({"name": "Ada"})).await.unwrap();
        for spin in spins {
            check(&failed(spin.await.unwrap()), limit("wall_time"));
        }
    });
}

#[test]
fn the_record_and_the_envelope_agree() {
    let failure = probe("fetch", json!({"url": shared_host().upstream.url("/status/503")}));
    let record = log_capture::record_of(failure.audit_id().as_str());
    assert_eq!(record.get("class"), Some("external_api_error"));
    assert_eq!(record.get("code"), Some("unavailable"));
    assert_eq!(record.get("connector"), Some("github://cofferdam/probe@0.1.0"));
    assert_eq!(record.get("op"), Some("fetch"));
    assert_eq!((record.get("attempts"), record.get("requests")), (Some("4"), Some("1")));
    assert_eq!((record.get("retried"), &failure.details()["retried"]), (Some("3"), &json!(3)));
    assert_eq!(record.get("retry_stopped"), failure.details()["retry_stopped"].as_str());
    assert_eq!(record.get("hash"), failure.details()["connector_hash"].as_str());
    for used in ["fuel", "memory_bytes", "wall_us", "bytes_in", "signer"] {
        assert!(record.get(used).is_some(), "{used} is missing: {record:?}");
    }
}
