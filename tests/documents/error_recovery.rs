//! The error recovery record (000): bounded retries of safe operations. Its three examples have a file of their
//! own.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cofferdam::{Call, Error};
use cofferdam_core::event::{Event, EventKind, Listener};
use cofferdam_core::limits::LimitRequest;
use cofferdam_core::rng::SeededRng;
use cofferdam_test_support::{ManualClock, ScriptedReply, log_capture};
use serde_json::{Value, json};

use super::fixture::{
    SeparateHome, Stage, fetch, once, order, probe, profile, repeated, script, told, walk, within,
};
use crate::envelope::{Expected, check, fault, network, upstream};
use crate::shared_host::shared_host;

/// One, two and four seconds, and up to a fifth more.
const WAITS: [std::ops::RangeInclusive<u64>; 3] = [1_000..=1_200, 2_000..=2_400, 4_000..=4_800];

#[test]
fn standard_profile_status_table() {
    let rows = [
        repeated(500, "unavailable", &WAITS),
        repeated(502, "unavailable", &WAITS),
        repeated(503, "unavailable", &WAITS),
        repeated(504, "unavailable", &WAITS),
        repeated(529, "unavailable", &WAITS),
        repeated(429, "rate_limited", &WAITS),
        // Retriable, and not on the list of causes that this policy repeats.
        once(408, "timeout", true),
        once(425, "timeout", true),
        once(400, "bad_request", false),
        once(401, "auth", false),
        once(402, "payment_required", false),
        once(403, "auth", false),
        once(404, "not_found", false),
        once(409, "bad_request", false),
        once(413, "bad_request", false),
        once(422, "bad_request", false),
    ];
    walk(&Stage::new(), &shared_host().upstream, "standard", &rows);
}

/// A request that never reaches a server.
#[test]
fn a_closed_port_is_tried_four_times() {
    let told = Stage::new().call(fetch(&format!("http://localhost:{}/", shared_host().closed_port)));
    check(told.failure(), network("refused", true));
    within(&told.waits(), &WAITS, "refused");
    assert_eq!(told.failure().details()["retried"], 3);
}

/// Probes under other names, whose manifests declare other idempotency.
fn declared() -> SeparateHome {
    let own = SeparateHome::new(|builder, _| builder);
    let manifest = own.manifest();
    let (head, rest) = manifest.split_once("[connector.idempotency.operations]").unwrap();
    let (_, tail) = rest.split_once("[capabilities.network]").unwrap();
    for (name, table) in [
        ("silent", ""),
        ("once", "[connector.idempotency]\ndefault = \"not_idempotent\"\n"),
        (
            "mixed",
            "[connector.idempotency]\ndefault = \"not_idempotent\"\n\
             [connector.idempotency.operations]\nfetch = \"idempotent\"\n",
        ),
    ] {
        let text = format!("{head}{table}[capabilities.network]{tail}");
        own.install(&text.replace("github://cofferdam/probe", &format!("github://cofferdam/{name}")));
    }
    own
}

/// Operations are idempotent unless the manifest says otherwise. Those that opt out are not repeated, and fail
/// at once. Only the manifest's declaration counts.
#[test]
fn the_manifest_decides_idempotency() {
    let own = declared();
    let call = |name: &str, op: &str, url: &str| {
        let args = match op {
            "fetch" => json!({"url": url}),
            _ => json!({"url": url, "body": "one", "labels": ["only"]}),
        };
        let connector = cofferdam_test_support::connector(&format!("github://cofferdam/{name}@0.1.0"));
        own.call(Call::new(connector, op, args))
    };
    for (name, op, repeated) in [
        ("silent", "fetch", true),
        ("silent", "order_once", true),
        ("once", "fetch", false),
        ("once", "order", false),
        ("mixed", "fetch", true),
        ("mixed", "order", false),
    ] {
        let (url, path) = script(&own.upstream, [ScriptedReply::status(503), ScriptedReply::status(200)]);
        let told = call(name, op, &url);
        assert_eq!(own.upstream.seen(&path).len(), if repeated { 2 } else { 1 }, "{name} {op}");
        if repeated {
            assert_eq!(told.outcome.unwrap()["status"], 200, "{name} {op}");
            continue;
        }
        assert_eq!(told.waits(), [0; 0], "{name} {op}");
        let failure = told.failure();
        check(failure, crate::envelope::upstream("unavailable", false));
        assert!(failure.message().contains("not idempotent"), "{}", failure.message());
        assert_eq!(failure.details()["idempotent"], false);
    }
}

/// One key for each request, the same in every attempt, new for a new call; or the caller's own.
#[test]
fn a_request_keeps_one_key_for_all_attempts() {
    let (stage, upstream) = (Stage::new(), &shared_host().upstream);
    let turns = || [200, 503, 200, 503, 200, 200].map(ScriptedReply::status);
    let keys = |call: Call, path: &str| {
        assert!(stage.call(call).outcome.is_ok());
        let seen = upstream.seen(path);
        seen.iter().map(|seen| seen.header("idempotency-key").unwrap().to_owned()).collect::<Vec<_>>()
    };
    let two = |url: &str| probe("order", json!({"url": url, "body": "x", "labels": ["first", "second"]}));
    let (url, path) = script(upstream, turns());
    let ours = keys(two(&url), &path);
    let [a, b] = [&ours[0], &ours[1]].map(String::as_str);
    // Three attempts, each with both requests: the second of the first two is answered by 503.
    assert_eq!(ours, [a, b, a, b, a, b]);
    assert_ne!(a, b, "two requests of one call never share a key");
    let (url, path) = script(upstream, turns());
    let others = keys(two(&url), &path);
    assert!(others.iter().all(|key| key != a && key != b), "another call has other keys");
    let (url, path) = script(upstream, turns());
    let given = keys(two(&url).idempotency_key("the-caller-s"), &path);
    let [a, b] = ["the-caller-s:first", "the-caller-s:second"];
    assert_eq!(given, [a, b, a, b, a, b]);
}

/// The jitter comes only from the given random source.
#[test]
fn jitter_comes_from_the_given_random_source() {
    let waits = |seed: u64| {
        let stage = Stage::with(|builder| builder.rng(Arc::new(SeededRng::new(seed))));
        let (url, _) = script(&shared_host().upstream, [ScriptedReply::status(503)]);
        let waits = stage.call(fetch(&url)).waits();
        within(&waits, &WAITS, "a seed");
        waits
    };
    assert_eq!(waits(1), waits(1), "a replay waits as long");
    assert_ne!(waits(1), waits(2));
}

/// The wall time bounds all attempts and waits.
#[test]
fn no_wait_exceeds_the_wall_time() {
    let stage = Stage::new();
    let (url, path) = script(&shared_host().upstream, [ScriptedReply::status(503)]);
    let limits = LimitRequest::parse(None, Some("2s"), None).unwrap();
    let told = stage.call(fetch(&url).limits(limits));
    let failure = told.failure();
    check(failure, upstream("unavailable", true));
    within(&told.waits(), &WAITS[..1], "2 s");
    let details = failure.details();
    assert_eq!((&details["retried"], &details["retry_stopped"]), (&json!(1), &json!("wall_time")));
    let next = details["retry_after_ms"].as_u64().unwrap();
    assert!((2_000..=2_400).contains(&next), "how long it would have waited: {next}");
    assert_eq!(shared_host().upstream.seen(&path).len(), 2);
}

/// For any other class, `retriable` is advice to the caller.
#[test]
fn other_retriable_classes_are_not_retried() {
    let stage = Stage::new();
    let told = stage.call(probe("fail", json!({"kind": "failed_transiently", "message": "Busy."})));
    check(told.failure(), Expected { retriable: true, ..fault("op_failed") });
    assert_eq!((told.attempts(), told.waits()), (1, vec![]));
    assert!(!told.failure().details().contains_key("retried"));
}

/// The number of retries is reported to the caller and in the log, also if the last failure is another.
#[test]
fn retries_are_counted_for_caller_and_log() {
    let stage = Stage::new();
    for (turns, retried, code) in [
        (vec![ScriptedReply::status(503)], 3, "unavailable"),
        (vec![ScriptedReply::status(503), ScriptedReply::status(400)], 1, "bad_request"),
        (
            vec![ScriptedReply::status(503), ScriptedReply::hang_up(), ScriptedReply::status(404)],
            2,
            "not_found",
        ),
    ] {
        let (url, _) = script(&shared_host().upstream, turns);
        let told = stage.call(fetch(&url));
        let failure = told.failure();
        assert_eq!((failure.code(), &failure.details()["retried"]), (code, &json!(retried)));
        let record = log_capture::record_of(failure.audit_id().as_str());
        assert_eq!(record.get("retried"), Some(&*retried.to_string()));
        assert_eq!(record.get("attempts"), Some(&*(retried + 1).to_string()));
        assert_eq!(record.get("code"), Some(code));
        assert_eq!(record.get("profile"), Some("standard"));
        let stopped = failure.details().get("retry_stopped").and_then(Value::as_str);
        assert_eq!(record.get("retry_stopped"), stopped);
        assert_eq!(stopped, (code == "unavailable").then_some("max_attempts"));
    }
}

/// The waits of seven seconds and more take no real time.
#[test]
fn three_retries_take_no_real_time() {
    let stage = Stage::new();
    let (url, _) = script(&shared_host().upstream, [ScriptedReply::status(503)]);
    let before = Instant::now();
    let told = stage.call(fetch(&url));
    let waited = Duration::from_millis(told.waits().iter().sum());
    assert!(waited >= Duration::from_secs(7) && before.elapsed() < waited, "{:?}", before.elapsed());
}

/// A failure that the host did not observe is not repeated, regardless of the connector's claim.
#[test]
fn unobserved_failures_are_never_retried() {
    let stage = Stage::new();
    for status in [429, 500, 503] {
        let told = stage.call(probe("forge_upstream", json!({"status": status})));
        check(told.failure(), upstream("unobserved", false));
        assert_eq!((told.attempts(), told.waits()), (1, vec![]), "{status}");
    }
    let told = stage.call(probe("forge_network", json!({})));
    check(told.failure(), network("unobserved", false));
    assert_eq!(told.attempts(), 1);
}

/// Keeps the envelope of every attempt as it was made.
struct Inner(Mutex<Vec<Value>>);

impl Listener for Inner {
    fn event(&self, event: &Event<'_>) {
        if let EventKind::AttemptEnded { failure: Some(failure), .. } = event.kind {
            self.0.lock().unwrap().push(serde_json::to_value(failure).unwrap());
        }
    }
}

/// The last attempt's envelope is the call's, except for the fields about retries.
#[test]
fn the_last_envelope_is_passed_on_unchanged() {
    let clock = ManualClock::new();
    let inner = Arc::new(Inner(Mutex::default()));
    let listener = Arc::clone(&inner);
    let world = shared_host();
    let builder = world.home.builder_at(&clock).listener(listener);
    let host = builder.allow_private(world.upstream.host_port()).build().unwrap();
    for turns in [
        vec![ScriptedReply::status(503)],
        vec![ScriptedReply::after(429, "3600")],
        vec![ScriptedReply::hang_up()],
        vec![ScriptedReply::status(503), ScriptedReply::status(401)],
        vec![ScriptedReply::status(404)],
    ] {
        inner.0.lock().unwrap().clear();
        let (url, _) = script(&world.upstream, turns);
        let told = told(&host, &clock, fetch(&url));
        let mut outer = serde_json::to_value(told.failure()).unwrap();
        let attempts = inner.0.lock().unwrap().clone();
        assert_eq!(attempts.len(), told.attempts());
        let mut last = attempts.last().unwrap().clone();
        let details = outer["error"]["details"].as_object_mut().unwrap();
        for added in ["retried", "retry_stopped", "retry_after_ms"] {
            match last["error"]["details"].get(added) {
                Some(was) => assert_eq!(details.get(added), Some(was), "{added} is not changed"),
                None => drop(details.remove(added)),
            }
        }
        // For the call, it tells whether any of its attempts sent something.
        let sent = details.remove("request_sent").unwrap();
        let sent_last = last["error"]["details"].as_object_mut().unwrap().remove("request_sent");
        assert!(sent == true || sent_last.is_none_or(|sent| sent == false));
        assert_eq!(serde_json::to_string(&outer).unwrap(), serde_json::to_string(&last).unwrap());
    }
}

/// A refusal by the host before an attempt is not a failure of the call, and is not repeated either.
#[test]
fn host_refusals_are_not_retried() {
    let stage = Stage::new();
    let told = stage.call(probe("fetch", json!({"url": 1})).retry(profile("deterministic")));
    assert!(matches!(&told.outcome, Err(Error::Host(error)) if error.kind().code() == "validation"));
    assert_eq!((told.attempts(), told.waits()), (0, vec![]));
    assert_eq!(told.names(), ["received", "final"]);
    let order = stage.call(order("order", "http://localhost:1/"));
    check(order.failure(), crate::envelope::denied("host_not_granted"));
    assert_eq!(order.attempts(), 1);
}
