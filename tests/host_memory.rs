//! Memory that a guest makes the host hold counts towards its limit: every host function is tried, and a mix of
//! them.

use std::collections::BTreeSet;
use std::process::Command;

use cofferdam::{Call, Error, FailureClass, Host};
use cofferdam_core::limits::LimitRequest;
use cofferdam_runtime::call::CallResult;
use cofferdam_test_support::package::{guest_package, repository};
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, Upstream, log_capture, process};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::COFFERDAM;
use crate::shared_host::{example, failed, run};

/// The host's permitted growth beyond the memory limit of the calls that it runs.
const SLACK: u64 = 4 << 20;

/// The memory limit of each hoarder, with the guest's own.
const LIMIT: u64 = 16 << 20;

/// A way to exercise a host function, or the reason why it cannot hold memory.
#[derive(Clone, Copy)]
enum Try {
    /// By these ways of the example `probe`.
    By(&'static [&'static str]),
    /// It takes no data from the guest, and creates nothing that persists.
    TakesNothing,
    /// It needs a handle that guests cannot get here: there are no files, and no incoming requests.
    Unreachable,
    /// It ends the guest.
    Ends,
}

use Try::{By, Ends, TakesNothing, Unreachable};

/// Every function of `tests/surface.txt`, by the longest of these that it begins with.
const ROWS: &[(&str, Try)] = &[
    ("cofferdam:connector/call ", By(&["call"])),
    ("cofferdam:connector/credential handle", By(&["credential"])),
    ("cofferdam:connector/log log", By(&["log"])),
    ("cofferdam:connector/log suppressed", By(&["suppressed"])),
    ("wasi:cli/environment ", TakesNothing),
    ("wasi:cli/exit ", Ends),
    ("wasi:cli/stderr ", By(&["stderr"])),
    ("wasi:cli/stdin ", TakesNothing),
    ("wasi:cli/stdout ", By(&["stdout"])),
    ("wasi:cli/terminal-", TakesNothing),
    ("wasi:clocks/monotonic-clock now", TakesNothing),
    ("wasi:clocks/monotonic-clock resolution", TakesNothing),
    ("wasi:clocks/monotonic-clock subscribe-", By(&["subscribe"])),
    ("wasi:clocks/wall-clock ", TakesNothing),
    ("wasi:filesystem/preopens get-directories", TakesNothing),
    ("wasi:filesystem/types ", Unreachable),
    ("wasi:http/outgoing-handler handle", By(&["send", "send-bodies", "unbuildable", "without-path"])),
    ("wasi:http/types [constructor]fields", By(&["fields.append"])),
    ("wasi:http/types [constructor]outgoing-request", By(&["set-method-short"])),
    ("wasi:http/types [constructor]outgoing-response", By(&["outgoing-response"])),
    ("wasi:http/types [constructor]request-options", By(&["request-options"])),
    ("wasi:http/types [method]fields.append", By(&["fields.append", "fields.append-small"])),
    ("wasi:http/types [method]fields.clone", By(&["fields.clone"])),
    ("wasi:http/types [method]fields.delete", By(&["fields.delete"])),
    ("wasi:http/types [method]fields.entries", TakesNothing),
    ("wasi:http/types [method]fields.get", By(&["fields.get"])),
    ("wasi:http/types [method]fields.has", By(&["fields.has"])),
    ("wasi:http/types [method]fields.set", By(&["fields.set"])),
    ("wasi:http/types [method]future-incoming-response.", By(&["responses"])),
    ("wasi:http/types [method]future-trailers.", By(&["response-trailers"])),
    ("wasi:http/types [method]incoming-body.stream", By(&["response-bodies"])),
    ("wasi:http/types [method]incoming-request.", Unreachable),
    ("wasi:http/types [method]incoming-response.", By(&["responses", "response-bodies"])),
    ("wasi:http/types [method]outgoing-body.write", By(&["request-body"])),
    ("wasi:http/types [method]outgoing-request.authority", TakesNothing),
    ("wasi:http/types [method]outgoing-request.body", By(&["request-body"])),
    ("wasi:http/types [method]outgoing-request.headers", By(&["fields.of-request"])),
    ("wasi:http/types [method]outgoing-request.method", TakesNothing),
    ("wasi:http/types [method]outgoing-request.path-with-query", TakesNothing),
    ("wasi:http/types [method]outgoing-request.scheme", TakesNothing),
    ("wasi:http/types [method]outgoing-request.set-authority", By(&["set-authority", "set-authority-short"])),
    ("wasi:http/types [method]outgoing-request.set-method", By(&["set-method", "set-method-short"])),
    ("wasi:http/types [method]outgoing-request.set-path-with-query", By(&["set-path-with-query"])),
    ("wasi:http/types [method]outgoing-request.set-scheme", By(&["set-scheme"])),
    ("wasi:http/types [method]outgoing-response.", By(&["outgoing-response"])),
    ("wasi:http/types [method]request-options.", By(&["request-options"])),
    ("wasi:http/types [static]fields.from-list", By(&["fields.from-list"])),
    ("wasi:http/types [static]incoming-body.finish", By(&["response-trailers"])),
    ("wasi:http/types [static]outgoing-body.finish", By(&["trailers"])),
    ("wasi:http/types [static]response-outparam.set", Unreachable),
    ("wasi:http/types http-error-code", TakesNothing),
    ("wasi:io/error ", By(&["errors"])),
    ("wasi:io/poll ", By(&["poll"])),
    ("wasi:io/streams [method]input-stream.", By(&["response-bodies"])),
    ("wasi:io/streams [method]output-stream.", By(&["request-body"])),
    ("wasi:io/streams [method]output-stream.blocking-write-and-flush", By(&["blocking-write", "stdout"])),
    // Splicing counts as writing: the same stream holds the bytes.
    ("wasi:io/streams [method]output-stream.splice", By(&["request-body"])),
    ("wasi:io/streams [method]output-stream.blocking-splice", By(&["request-body"])),
    ("wasi:io/streams [method]output-stream.write", By(&["request-body", "write-too-much"])),
    ("wasi:io/streams [method]output-stream.write-zeroes", By(&["write-zeroes"])),
    ("wasi:random/", By(&["random"])),
];

/// The functions that a guest can reach.
fn surface() -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("tests/surface.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split("  ").next().unwrap().to_owned()).collect()
}

fn row_of(function: &str) -> Option<&'static (&'static str, Try)> {
    ROWS.iter().filter(|(begins, _)| function.starts_with(begins)).max_by_key(|(begins, _)| begins.len())
}

#[test]
fn every_host_function_has_a_row() {
    let surface = surface();
    assert!(surface.len() > 100, "{} functions", surface.len());
    let without: Vec<_> = surface.iter().filter(|function| row_of(function).is_none()).collect();
    assert!(without.is_empty(), "how can a guest hoard through {without:?}?");
    let used: BTreeSet<_> = surface.iter().filter_map(|function| row_of(function)).map(|row| row.0).collect();
    let unused: Vec<_> = ROWS.iter().filter(|row| !used.contains(row.0)).map(|row| row.0).collect();
    assert!(unused.is_empty(), "no function has the row {unused:?}");
}

/// Every way in which the table tries a function.
fn ways() -> BTreeSet<&'static str> {
    let tries = ROWS.iter().filter_map(|row| if let By(ways) = row.1 { Some(ways) } else { None });
    tries.flatten().copied().collect()
}

/// A home with the probe, and a server that it may reach.
fn stage(concurrency: u32) -> (Home, Host, Upstream) {
    let (home, signer, upstream) = (Home::new(COFFERDAM), Signer::new(), Upstream::start());
    home.trust(&signer.public(), "github://cofferdam/*");
    let package = guest_package("probe", &[upstream.grant()]);
    let host = home.builder().concurrency(concurrency).allow_private(upstream.host_port()).build().unwrap();
    run(host.install_accepted(package.clone(), Some(signer.sign(&package)), Default::default())).unwrap();
    (home, host, upstream)
}

fn call(op: &str, args: Value, memory: u64) -> Call {
    limited(op, args, memory, "20s")
}

fn limited(op: &str, args: Value, memory: u64, wall_time: &str) -> Call {
    let memory = format!("{}KiB", memory >> 10);
    let limits = LimitRequest::parse(Some(20_000_000_000), Some(wall_time), Some(&memory)).unwrap();
    Call::new(example("probe"), op, args).limits(limits)
}

/// The target of a way's requests.
fn url_of(way: &str, upstream: &Upstream) -> String {
    match way {
        "responses" => upstream.url("/fields/90?bytes=600"),
        "response-bodies" => upstream.url("/bytes/1000000"),
        "send" | "send-bodies" => upstream.url("/hang"),
        _ => upstream.url("/text/x"),
    }
}

/// Runs the test of this name alone in a process: in this one its memory could not be separated from that of
/// other tests.
fn alone(name: &str) {
    let this = std::env::current_exe().unwrap();
    let test = format!("host_memory::{name}");
    let output = Command::new(this).args(["--exact", &test, "--ignored", "--nocapture"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

/// The memory that this process has now; its peak is taken from here on.
fn memory_from_here() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    process::resident_bytes()
}

#[test]
fn no_host_function_keeps_more_than_the_memory_limit() {
    alone("alone_every_host_function_is_bounded");
}

#[test]
#[ignore = "run by the test above, alone in a process"]
fn alone_every_host_function_is_bounded() {
    let (_home, host, upstream) = stage(2);
    run(host.run(call("hoard", json!({"way": "nothing", "url": ""}), LIMIT))).outcome.unwrap();
    let mut wrong = Vec::new();
    for way in ways() {
        let before = memory_from_here();
        let args = json!({"way": way, "url": url_of(way, &upstream)});
        // At most eight unread bodies may be open: the guest waits for the next until its time is over.
        let wall_time = if way == "response-bodies" { "2s" } else { "20s" };
        let CallResult { outcome, report } = run(host.run(limited("hoard", args, LIMIT, wall_time)));
        let grown = process::peak_resident_bytes().saturating_sub(before);
        let (usage, details) = (report.last_usage().unwrap(), outcome.as_ref().err().map(details));
        eprintln!(
            "{way}: {} KiB more, {} KiB charged, {} KiB of it held by the host; {details:?}",
            grown >> 10,
            usage.memory >> 10,
            usage.host_memory >> 10
        );
        let by_the_guest = outcome.as_ref().err().is_some_and(|error| match error {
            Error::Failure(failure) => failure.class() == FailureClass::ConnectorRuntimeError,
            Error::Host(_) => true,
        });
        if grown > LIMIT + SLACK || usage.memory > LIMIT || by_the_guest {
            wrong.push(way);
        }
    }
    assert!(wrong.is_empty(), "the host kept too much, or the way is broken: {wrong:?}");
}

fn details(error: &Error) -> String {
    match error {
        Error::Failure(failure) => {
            format!("{} {}", failure.code(), failure.details().get("limit").unwrap_or(&Value::Null))
        }
        Error::Host(error) => error.to_string(),
    }
}

#[test]
fn host_memory_counts_towards_the_memory_limit() {
    let (_home, host, upstream) = stage(2);
    for way in ["set-path-with-query", "fields.append", "fields.clone", "trailers"] {
        let args = json!({"way": way, "url": upstream.url("/hang")});
        let CallResult { outcome, report } = run(host.run(call("hoard", args, LIMIT)));
        let failure = failed(outcome);
        assert_eq!(failure.details()["limit"], "memory", "{way}");
        assert_eq!(failure.details()["configured"], LIMIT, "{way}");
        let usage = report.last_usage().unwrap();
        assert!(usage.host_memory > LIMIT / 2 && usage.memory <= LIMIT, "{way}: {usage}");
    }
}

#[test]
fn long_methods_and_authorities_are_refused() {
    let (_home, host, _) = stage(2);
    for way in ["set-method", "set-authority"] {
        let CallResult { outcome, report } =
            run(host.run(call("hoard", json!({"way": way, "url": ""}), LIMIT)));
        assert_eq!(failed(outcome).details()["limit"], "handles", "nothing of it is kept: {way}");
        assert!(report.last_usage().unwrap().host_memory < 4 << 20, "{way}");
    }
}

/// A value of a few bytes for each item in the guest takes many in the host.
#[test]
fn a_result_is_decoded_within_the_memory_limit() {
    let (_home, host, _) = stage(2);
    let returned = |items: u64| run(host.run(call("hoard_result", json!({"items": items}), LIMIT))).outcome;
    assert_eq!(returned(10_000).unwrap().as_array().unwrap().len(), 10_000);
    assert_eq!(failed(returned(200_000)).details()["limit"], "memory");
}

#[test]
fn a_request_line_counts_as_headers_and_bytes_out() {
    let (_home, host, upstream) = stage(2);
    let fetch = |path: &str| call("fetch", json!({"url": upstream.url(path)}), 32 << 20);
    let CallResult { outcome, report } = run(host.run(fetch("/text/x")));
    outcome.unwrap();
    assert_eq!(report.last_usage().unwrap().bytes_out, "GET /text/x HTTP/1.1\r\n".len() as u64);
    // A path that fits alone: with its method, its version and the host's name it is too long.
    let long = format!("/text/{}", "x".repeat(65_510));
    let failure = failed(run(host.run(fetch(&long))).outcome);
    assert_eq!(failure.details()["limit"], "request_headers");
    assert!(upstream.seen(&long).is_empty(), "nothing of it is sent");
}

/// A request that is never sent is an attempt to send, and writes no line to the operator's log.
#[test]
fn an_unbuildable_request_counts_and_logs_nothing() {
    log_capture::catch();
    let (_home, host, upstream) = stage(2);
    for way in ["unbuildable", "without-path"] {
        let args = json!({"way": way, "url": upstream.url("/")});
        let CallResult { outcome, report } = run(host.run(call("hoard", args, LIMIT)));
        assert_eq!(failed(outcome).details()["limit"], "requests", "{way}");
        assert_eq!(report.last_usage().unwrap().requests, 65, "{way}");
    }
    let lines = log_capture::records(|record| record.target.starts_with("wasmtime"));
    assert!(lines.is_empty(), "{lines:?}");
}

/// Many hostile calls at once, of all kinds.
#[test]
fn hostile_calls_together_stay_within_their_limits() {
    alone("alone_mixed_hostile_calls_are_bounded");
}

#[test]
#[ignore = "run by the test above, alone in a process"]
fn alone_mixed_hostile_calls_are_bounded() {
    const RUNNING: u64 = 4;
    const CALLS: usize = 200;
    let (_home, host, upstream) = stage(4);
    let warm = || call("hoard", json!({"way": "nothing", "url": ""}), LIMIT);
    run(host.run(warm())).outcome.unwrap();
    let before = memory_from_here();
    let mix: Vec<_> = ways().into_iter().filter(|way| !way.starts_with("response")).collect();
    run(async {
        let (mut calls, mut next) = (JoinSet::new(), 0);
        loop {
            // The line of a host is bounded: as many wait as it takes.
            while next < CALLS && calls.len() < 32 {
                let way = mix[next % mix.len()];
                let args = json!({"way": way, "url": upstream.url("/text/x")});
                let call = match next % 5 {
                    0 => call("eat_memory", json!({}), LIMIT),
                    1 => call("stdout_flood", json!({"bytes": 10 << 20}), LIMIT),
                    _ => call("hoard", args, LIMIT),
                };
                let host = host.clone();
                calls.spawn(async move { host.run(call).await.outcome });
                next += 1;
            }
            match calls.join_next().await {
                Some(ended) => drop(ended.unwrap()),
                None => break,
            }
        }
    });
    let grown = process::peak_resident_bytes().saturating_sub(before);
    eprintln!("{CALLS} hostile calls, {RUNNING} at once: {} KiB more", grown >> 10);
    assert!(grown < (64 << 20) + RUNNING * (LIMIT + SLACK), "{} KiB", grown >> 10);
    run(host.run(warm())).outcome.unwrap();
}
