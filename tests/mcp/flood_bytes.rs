//! Floods of large arguments: the memory of the server stays within its budget, which is free again afterwards.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Client, home};
use super::http_client::{Server, request};

/// The budget that the servers here are given.
const BUDGET: u64 = 32 << 20;

/// The memory that a server may use in addition to its budget: one request being read, code, and allocator
/// overhead.
const BESIDE: u64 = 48 << 20;

/// The most that it may keep of a flood that is over.
const KEPT: u64 = 24 << 20;

const ARGS: [&str; 6] =
    ["--operations", "hello.greet,probe.sleep", "--concurrency", "1", "--request-memory", "32MiB"];

/// A body of 4 MiB whose values would take fifty times that.
fn zeros(count: usize) -> Value {
    json!({"name": "hello__greet", "arguments": {"name": vec![0; count]}})
}

/// Arguments that fit, of a mebibyte.
fn long_name() -> Value {
    json!({"name": "hello__greet", "arguments": {"name": "x".repeat(1 << 20)}})
}

fn sleep() -> Value {
    json!({"name": "probe__sleep", "arguments": {"ms": 25_000}})
}

fn code(answer: &Value) -> &str {
    answer["result"]["structuredContent"]["error"]["code"].as_str().unwrap_or_default()
}

/// Waits until the system has the memory of the flood again.
#[track_caller]
fn is_given_back(what: &str, before: u64, now: impl Fn() -> u64) {
    let from = Instant::now();
    let kept = || now().saturating_sub(before);
    while kept() > KEPT && from.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
    }
    eprintln!("{what}: {} KiB kept", kept() >> 10);
    assert!(kept() <= KEPT, "{}", kept());
}

#[test]
fn large_arguments_over_stdio_stay_within_the_budget() {
    let home = home(&["hello", "probe"]);
    let mut client = Client::greeted(&home, &ARGS);
    assert_eq!(client.call("hello__greet", &json!({"name": "Ada"}))["isError"], false);
    let running = client.begin("tools/call", &sleep());
    let (peak, before) = (client.peak_bytes(), client.resident_bytes());
    for _ in 0..10 {
        let refused = client.ask("tools/call", &zeros(2_000_000));
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
    }
    for _ in 0..10 {
        // Arguments that do not fit the operation's types are not kept in the queue.
        let refused = client.ask("tools/call", &zeros(490_000));
        assert_eq!(code(&refused), "validation", "{refused}");
    }
    let ids: Vec<i64> = (0..48).map(|_| client.begin("tools/call", &long_name())).collect();
    let busy = ids[31..].iter().filter(|id| code(&client.answer(**id)) == "busy").count();
    assert_eq!(busy, 17, "32 MiB are 31 names of a mebibyte and what is around them");
    let cost = client.peak_bytes().saturating_sub(peak);
    eprintln!("stdio: {} KiB more", cost >> 10);
    assert!(cost < BUDGET + BESIDE, "{cost}");
    for id in [running].iter().chain(&ids[..31]) {
        let cancelled =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        client.send(&cancelled.to_string());
    }
    assert_eq!(
        client.call("hello__greet", &json!({"name": "Ada"}))["isError"],
        false,
        "the budget is free again"
    );
    is_given_back("stdio", before, || client.resident_bytes());
}

#[test]
fn large_arguments_over_http_stay_within_the_budget() {
    let home = home(&["hello", "probe"]);
    let server = Server::start(&home, &ARGS);
    assert_eq!(
        server.ask("tools/call", &json!({"name": "hello__greet", "arguments": {"name": "Ada"}}))["result"]["isError"],
        false
    );
    let open = |params: &Value| {
        let (headers, body) = request("tools/call", params);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        server.open(&headers, &body)
    };
    let running = open(&sleep());
    let (peak, before) = (server.peak_bytes(), server.resident_bytes());
    for count in [2_000_000, 490_000] {
        // All of them at once, each on a separate connection.
        let all: Vec<_> = (0..10).map(|_| open(&zeros(count))).collect();
        for stream in all {
            let answer = super::http_client::answer(stream);
            match answer.status {
                200 => assert_eq!(code(&answer.message()), "validation", "{}", answer.body),
                503 => assert!(answer.body.contains("busy"), "{}", answer.body),
                400 => assert!(answer.body.contains("-32600"), "{}", answer.body),
                _ => panic!("{} {}", answer.status, answer.body),
            }
        }
    }
    // One client of several has half of the budget.
    let waiting: Vec<_> = (0..24).map(|_| open(&long_name())).collect();
    let mut refused = 0;
    for mut stream in waiting {
        stream.set_read_timeout(Some(Duration::from_millis(1_500))).unwrap();
        let mut first = [0; 12];
        let read = std::io::Read::read(&mut stream, &mut first);
        refused += usize::from(read.is_ok_and(|length| first[..length].ends_with(b" 503")));
    }
    assert!((9..24).contains(&refused), "{refused}");
    let cost = server.peak_bytes().saturating_sub(peak);
    eprintln!("HTTP: {} KiB more", cost >> 10);
    assert!(cost < BUDGET + BESIDE, "{cost}");
    drop(running);
    server.lives();
    is_given_back("HTTP", before, || server.resident_bytes());
}
