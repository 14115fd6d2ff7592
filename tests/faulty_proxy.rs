//! A real proxy that does one thing wrong between the host and a real server: the reported error, the number of
//! attempts, and the server's effects, for repeatable operations and for others.

use std::time::Duration;

use cofferdam::{Call, Failure, Host, Report};
use cofferdam_test_support::golden::assert_committed_part;
use cofferdam_test_support::{
    Fault, FaultyProxy, Home, InstallAccepted as _, ManualClock, ReceivedRequest, ScriptedReply, Signer,
    Upstream, package,
};
use serde_json::{Value, json};

use crate::documents::fixture::{CallRecord, probe, script, told};
use crate::envelope::{check, network};
use crate::shared_host::run;

/// A row's expectation for a fault.
struct Row {
    fault: Fault,
    code: &'static str,
    /// One of these.
    phases: &'static [&'static str],
    /// Not where a connection ends at once: of what was being written something may have left or not.
    request_sent: Option<bool>,
    /// The server's effects after each attempt.
    effect: bool,
    /// The guest's timeout for an answer, if the fault is silence.
    patience_ms: Option<u64>,
}

const fn row(fault: Fault, code: &'static str, request_sent: bool, effect: bool) -> Row {
    let phases: &[_] = match fault {
        Fault::None => &["connect"],
        Fault::DropAtOnce => &["send", "response"],
        _ => &["response"],
    };
    let request_sent = if matches!(fault, Fault::DropAtOnce) { None } else { Some(request_sent) };
    Row { fault, code, phases, request_sent, effect, patience_ms: None }
}

/// Every fault. `Fault::None` means a proxy that does not listen.
const ROWS: [Row; 15] = [
    row(Fault::None, "refused", false, false),
    row(Fault::DropAtOnce, "closed", true, false),
    row(Fault::DropAfterRequest(1), "closed", true, false),
    row(Fault::DropAfterRequest(40), "closed", true, false),
    row(Fault::DropAfterRequest(usize::MAX), "closed", true, true),
    row(Fault::ResetInResponse(0), "reset", true, true),
    row(Fault::ResetInResponse(1), "reset", true, true),
    row(Fault::ResetInResponse(20), "reset", true, true),
    row(Fault::ResetInResponse(BODY), "reset", true, true),
    row(Fault::TruncateResponse(0), "closed", true, true),
    row(Fault::TruncateResponse(20), "closed", true, true),
    row(Fault::TruncateResponse(BODY), "closed", true, true),
    row(Fault::Garbage, "malformed_response", true, true),
    Row { patience_ms: Some(250), ..row(Fault::HalfOpen, "timeout", true, true) },
    Row { patience_ms: Some(250), ..row(Fault::BlackHole, "timeout", true, false) },
];

/// So many bytes of an answer are its head and a part of its body, which is 5,000 bytes.
const BODY: usize = 2_000;

/// A host with the probe, which reaches servers through proxies.
struct Stage {
    upstream: Upstream,
    proxies: Vec<FaultyProxy>,
    host: Host,
    clock: std::sync::Arc<ManualClock>,
    _home: Home,
}

impl Stage {
    /// One proxy for each list of faults; an empty one does not listen.
    fn new(faults: Vec<Vec<Fault>>) -> Self {
        let (home, signer, upstream, clock) =
            (Home::new(crate::COFFERDAM), Signer::new(), Upstream::start(), ManualClock::new());
        home.trust(&signer.public(), "github://cofferdam/*");
        let start = |faults: Vec<Fault>| match faults.is_empty() {
            true => FaultyProxy::refusing(upstream.port(), []),
            false => FaultyProxy::start(upstream.port(), faults),
        };
        let proxies: Vec<_> = run(async { faults.into_iter().map(start).collect() });
        let builder = proxies
            .iter()
            .fold(home.builder_at(&clock), |builder, proxy| builder.allow_private(proxy.host_port()));
        let host = builder.build().unwrap();
        let grants: Vec<_> = proxies.iter().map(|proxy| format!("http://{}", proxy.host_port())).collect();
        let bytes = package::guest_package("probe", &grants);
        let signature = signer.sign(&bytes);
        run(host.install_accepted(bytes, Some(signature), Default::default())).unwrap();
        Self { upstream, proxies, host, clock, _home: home }
    }

    fn call(&self, call: Call) -> CallRecord {
        told(&self.host, &self.clock, call)
    }

    /// The server's effects: the complete requests for this path.
    fn effects(&self, path: &str) -> Vec<ReceivedRequest> {
        self.upstream.seen(path)
    }
}

fn ordered(op: &str, url: &str, labels: &[&str], patience_ms: Option<u64>) -> Call {
    probe(op, json!({"url": url, "body": "x".repeat(100), "labels": labels, "patience_ms": patience_ms}))
}

fn keys(seen: &[ReceivedRequest]) -> Vec<String> {
    seen.iter().map(|seen| seen.header("idempotency-key").unwrap().to_owned()).collect()
}

/// The reported failure, and the report of each attempt.
#[track_caller]
fn check_row(row: &Row, failure: &Failure, report: &Report, retriable: bool) {
    let shown = format!("{:?}", row.fault);
    check(failure, network(row.code, retriable));
    let details = failure.details();
    assert!(row.phases.contains(&details["phase"].as_str().unwrap()), "{shown}: {details:?}");
    let sent = |said: &Value| row.request_sent.is_none_or(|sent| *said == sent);
    assert!(sent(&details["request_sent"]), "{shown}: {details:?}");
    for attempt in &report.attempts {
        let outcome = serde_json::to_value(&attempt.outcome).unwrap();
        assert_eq!(outcome["code"], row.code, "{shown}");
        assert!(sent(&outcome["request_sent"]), "{shown}: {outcome}");
    }
}

#[test]
fn each_fault_is_reported_and_retried_only_if_safe() {
    let faults = ROWS.iter().map(|row| match row.fault {
        Fault::None => vec![],
        fault => vec![fault],
    });
    let stage = Stage::new(faults.collect());
    for (row, proxy) in ROWS.iter().zip(&stage.proxies) {
        for (op, attempts) in [("order_once", 1_usize), ("order", 4)] {
            let shown = format!("{:?}, {op}", row.fault);
            let path = format!("/bytes/5000/{op}/{}", proxy.host_port());
            let before = proxy.accepts();
            let told = stage.call(ordered(op, &proxy.url(&path), &["only"], row.patience_ms));
            let failure = told.failure();
            // Without a key of its caller, what may have arrived is not ordered again by another call.
            let sent = failure.details()["request_sent"] == true;
            check_row(row, failure, &told.report, attempts > 1 && !sent);
            assert_eq!(failure.details().contains_key("repeat_with_key"), attempts > 1 && sent, "{shown}");
            assert_eq!(told.attempts(), attempts, "{shown}");
            assert_eq!(told.waits().len(), attempts - 1, "{shown}");
            let connections = if row.fault == Fault::None { 0 } else { attempts };
            assert_eq!(proxy.accepts() - before, connections, "{shown}");
            let effects = stage.effects(&path);
            assert_eq!(effects.len(), if row.effect { attempts } else { 0 }, "{shown}");
            if op == "order_once" {
                assert!(effects.len() <= 1 && failure.message().contains("not idempotent"), "{shown}");
            }
            // However often it had an effect, the server could tell that it was the same request.
            let mut keys = keys(&effects);
            keys.dedup();
            assert!(keys.len() <= 1, "{shown}: {keys:?}");
            let id = told.report.idempotency_key.as_deref().unwrap();
            assert!(keys.iter().all(|key| *key == format!("{id}:only")), "{shown}: {keys:?}");
        }
    }
}

/// The table is generated from the rows, which the test above checks.
#[test]
fn the_network_faults_table_is_up_to_date() {
    let mut table = String::from(
        "| fault | code | phase | request sent | repeatable: attempts, received by the server | otherwise |\n\
         |---|---|---|---|---|---|\n",
    );
    for row in &ROWS {
        let sent = row.request_sent.map_or("not certain", |sent| if sent { "yes" } else { "no" });
        let had = |attempts: u32| if row.effect { attempts } else { 0 };
        let (what, code, phases) = (in_words(row.fault), row.code, row.phases.join(" or "));
        table.push_str(&format!(
            "| {what} | `{code}` | {phases} | {sent} | 4, {} | 1, {} |\n",
            had(4),
            had(1)
        ));
    }
    assert_committed_part("docs/contributing/testing.md", "network faults", &table);
}

fn in_words(fault: Fault) -> String {
    let all = |bytes: usize| if bytes == usize::MAX { "all".to_owned() } else { bytes.to_string() };
    match fault {
        Fault::None => "nothing listens".to_owned(),
        Fault::DropAtOnce => "the connection is closed at once".to_owned(),
        Fault::DropAfterRequest(bytes) => format!("it is closed after {} bytes of the request", all(bytes)),
        Fault::ResetInResponse(bytes) => format!("it is reset after {bytes} bytes of the response"),
        Fault::TruncateResponse(bytes) => format!("it is closed after {bytes} bytes of the response"),
        Fault::Garbage => "the response is not HTTP".to_owned(),
        Fault::HalfOpen => {
            "the request arrives, and no response comes within the connector's timeout".to_owned()
        }
        Fault::BlackHole => "it is accepted, and nothing is read or written within that timeout".to_owned(),
        Fault::EndWhenIdle | Fault::Delay(_) => panic!("no row"),
    }
}

/// A late response is not a fault.
#[test]
fn a_late_response_is_a_response() {
    let stage = Stage::new(vec![vec![Fault::Delay(Duration::from_millis(200))]]);
    for op in ["order_once", "order"] {
        let path = format!("/text/late/{op}/");
        let url = stage.proxies[0].url(&path);
        let told = stage.call(ordered(op, &url, &["only"], Some(20_000)));
        assert_eq!(told.outcome.as_ref().unwrap()["body"], "late");
        assert_eq!((told.attempts(), stage.effects(&path).len()), (1, 1));
    }
}

/// A fault that passes: the call succeeds, and the server has had one request twice, under one key.
#[test]
fn a_transient_fault_is_retried_under_the_same_key() {
    let passing = [
        (Fault::DropAtOnce, 1),
        (Fault::DropAfterRequest(usize::MAX), 2),
        (Fault::ResetInResponse(20), 2),
        (Fault::TruncateResponse(BODY), 2),
        (Fault::Garbage, 2),
    ];
    let stage = Stage::new(passing.iter().map(|(fault, _)| vec![*fault, Fault::None]).collect());
    for ((fault, effects), proxy) in passing.iter().zip(&stage.proxies) {
        let path = format!("/bytes/5000/passing/{}", proxy.host_port());
        let told = stage.call(ordered("order", &proxy.url(&path), &["only"], None));
        assert_eq!(told.outcome.as_ref().unwrap()["status"], 200, "{fault:?}");
        assert_eq!((told.attempts(), told.waits().len()), (2, 1), "{fault:?}");
        let keys = keys(&stage.effects(&path));
        assert_eq!(keys.len(), *effects, "{fault:?}");
        assert!(keys.iter().all(|key| *key == keys[0]), "{fault:?}: {keys:?}");
    }
}

/// Two requests of one call, and a fault in each: each keeps its own key, and the first is repeated as well.
#[test]
fn requests_keep_their_own_keys_over_retries() {
    let stage = Stage::new(vec![vec![Fault::None]]);
    let proxy = &stage.proxies[0];
    let (_, path) = script(&stage.upstream, [200, 503, 200, 200].map(ScriptedReply::status));
    let told = stage.call(ordered("order", &proxy.url(&path), &["debit", "credit"], None));
    assert_eq!(told.outcome.as_ref().unwrap()["status"], 200);
    let seen = keys(&stage.effects(&path));
    let id = told.report.idempotency_key.as_deref().unwrap().to_owned();
    let [debit, credit] = ["debit", "credit"].map(|label| format!("{id}:{label}"));
    assert_eq!(seen, [&debit, &credit, &debit, &credit].map(String::as_str));
    // The same for an operation that must not be repeated: its effect happens once.
    let (_, path) = script(&stage.upstream, [ScriptedReply::status(200), ScriptedReply::hang_up()]);
    let told = stage.call(ordered("order_once", &proxy.url(&path), &["debit", "credit"], None));
    check(told.failure(), network("closed", false));
    assert_eq!((told.attempts(), stage.effects(&path).len()), (1, 2));
}

/// A connection that served before and ends under a request: that may have had its effect, and is not sent again.
#[test]
fn a_connection_closed_mid_request_is_not_resent() {
    let stage = Stage::new(vec![vec![Fault::None]]);
    let proxy = &stage.proxies[0];
    for round in 0..10 {
        let (_, path) = script(&stage.upstream, [ScriptedReply::status(200), ScriptedReply::hang_up()]);
        let first = stage.call(ordered("order_once", &proxy.url(&path), &["only"], None));
        assert_eq!(first.outcome.as_ref().unwrap()["status"], 200, "{round}");
        let second = stage.call(ordered("order_once", &proxy.url(&path), &["only"], None));
        check(second.failure(), network("closed", false));
        assert_eq!((second.attempts(), second.failure().details()["request_sent"].clone()), (1, json!(true)));
        assert_eq!(stage.effects(&path).len(), 2, "{round}: each call was one request");
    }
}

/// An idle connection that closes: the host resends only a request that certainly was not sent. A request that
/// arrives in just that moment is answered once or fails; the server never receives it twice.
#[test]
fn an_idle_connection_that_closes_is_not_sent_twice() {
    let stage = Stage::new(vec![vec![Fault::EndWhenIdle]]);
    let proxy = &stage.proxies[0];
    let mut well = 0;
    for round in 0..24_u64 {
        let path = format!("/text/idle/{round}/");
        let told = stage.call(ordered("order_once", &proxy.url(&path), &["only"], None));
        let effects = stage.effects(&path).len();
        assert_eq!(told.attempts(), 1, "{round}");
        match &told.outcome {
            Ok(_) => assert_eq!(effects, 1, "{round}"),
            Err(_) => assert!(effects <= 1 && !told.failure().retriable(), "{round}: {:?}", told.outcome),
        }
        well += usize::from(told.outcome.is_ok());
        // Around the moment in which the proxy ends it.
        std::thread::sleep(Duration::from_millis(110 + round));
    }
    assert!(well >= 12, "{well} of 24");
}
