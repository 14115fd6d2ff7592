//! Thousands of calls at once: each has one answer, memory is bounded, and exactly the calls reported as run
//! have run.

use std::net::SocketAddr;

use bytes::Bytes;
use cofferdam_test_support::Home;
use cofferdam_test_support::process::raise_open_files;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::client::{Client, cli, home, record};
use super::http_client::{Server, request};
use crate::shared_host::run;

const CALLS: usize = 10_000;

/// Connections over HTTP, of which 256 are served at once.
const CONNECTIONS: usize = 500;

/// Calls of each, one after the other.
const CALLS_EACH: usize = 4;

/// The server's permitted memory for the flood, in bytes. A waiting call is some kilobytes, and so is a refused
/// one.
const COST: u64 = 192 << 20;

fn greet() -> Value {
    json!({"name": "hello__greet", "arguments": {"name": "Ada"}})
}

/// The audit id of the call, if it ran; otherwise the answer says that the server was busy.
#[track_caller]
fn ran(answer: &Value) -> Option<String> {
    let result = &answer["result"];
    let busy = result["structuredContent"]["error"]["code"] == "busy";
    assert!(result["isError"] == busy && result["content"][0]["text"].is_string(), "{answer}");
    if busy {
        return None;
    }
    assert_eq!(result["structuredContent"]["value"]["text"], "Good day, Ada.");
    Some(result["_meta"]["cofferdam/audit_id"].as_str().unwrap().to_owned())
}

/// Of the logged calls exactly those ran whose answers say so, each once, and no other was started.
#[track_caller]
fn recorded(home: &Home, ran: &[String]) {
    let calls = record(home);
    let of = |value: bool| {
        let calls = calls.iter().filter(move |call| (call["status"] == "value") == value);
        calls.map(|call| call["audit_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (mut values, others) = (of(true), of(false));
    let mut ran = ran.to_vec();
    values.sort_unstable();
    ran.sort_unstable();
    assert!(values == ran && values.is_sorted_by(|one, other| one < other), "{} {}", values.len(), ran.len());
    if let Some(other) = others.first() {
        let told = cli(home).run(&["audit", "show", other, "--format", "json"]).json();
        assert!(!told.to_string().contains("attempt_started"), "{told}");
    }
}

#[test]
fn ten_thousand_pipelined_calls_are_all_answered() {
    let home = home(&["hello"]);
    let mut client = Client::greeted(&home, &["--operations", "hello.greet", "--concurrency", "4"]);
    let first = ran(&client.ask("tools/call", &greet())).unwrap();
    let before = client.peak_bytes();
    let reading = client.reading();
    let unread = reading.lock().unwrap();
    let ids: Vec<i64> = (0..CALLS).map(|_| client.begin("tools/call", &greet())).collect();
    drop(unread);
    let answers: Vec<Value> = ids.iter().map(|_| client.read()).collect();
    let mut seen: Vec<i64> = answers.iter().map(|answer| answer["id"].as_i64().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, ids, "each has an answer, and one");
    let mut served: Vec<_> = answers.iter().filter_map(ran).collect();
    assert!(!served.is_empty() && served.len() < CALLS, "{}", served.len());
    eprintln!("stdio: {} of {CALLS} served", served.len());
    served.push(first);
    assert_eq!(client.tools(), ["hello__greet"], "the server goes on");
    let cost = client.peak_bytes().saturating_sub(before);
    assert!(cost < COST, "{cost}");
    client.end();
    recorded(&home, &served);
    eprintln!("stdio: {} KiB more", cost >> 10);
}

/// One connection's share of the calls, one after the other; returns the number that ran.
async fn connection(address: SocketAddr) -> Vec<String> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut served = Vec::new();
    for _ in 0..CALLS_EACH {
        let (headers, body) = request("tools/call", &greet());
        let mut post = Request::post("/mcp").header("host", "localhost");
        post = post.header("content-type", "application/json");
        post = post.header("accept", "application/json, text/event-stream");
        for (name, value) in headers {
            post = post.header(name, value);
        }
        let answer = sender.send_request(post.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        served.extend(ran(&serde_json::from_slice(&body).unwrap()));
    }
    drop(sender);
    drop(connection.await);
    served
}

#[test]
fn excess_connections_are_answered_or_refused() {
    raise_open_files();
    let home = home(&["hello"]);
    let server = Server::start(&home, &["--operations", "hello.greet", "--concurrency", "2"]);
    let first = ran(&server.ask("tools/call", &greet())).unwrap();
    let before = server.peak_bytes();
    let address = server.address;
    let mut served: Vec<String> = run(async {
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..CONNECTIONS {
            all.spawn(connection(address));
        }
        all.join_all().await.concat()
    });
    let calls = CONNECTIONS * CALLS_EACH;
    assert!(!served.is_empty() && served.len() < calls, "{}", served.len());
    eprintln!("HTTP: {} of {calls} served", served.len());
    served.push(first);
    server.lives();
    let cost = server.peak_bytes().saturating_sub(before);
    assert!(cost < COST, "{cost}");
    server.end();
    recorded(&home, &served);
    eprintln!("HTTP: {} KiB more", cost >> 10);
}

#[test]
fn requests_beyond_the_queue_are_busy() {
    let home = home(&["probe"]);
    let mut client =
        Client::greeted(&home, &["--operations", "probe.sleep", "--concurrency", "16", "--grace", "1s"]);
    let sleep = json!({"name": "probe__sleep", "arguments": {"ms": 25_000}});
    // As many as are taken, and the host has a line for.
    let ids: Vec<i64> = (0..1_024).map(|_| client.begin("tools/call", &sleep)).collect();
    let more = client.begin("tools/call", &sleep);
    assert_eq!(ran(&client.answer(more)), None);
    for method in ["tools/list", "ping"] {
        let refused = client.ask(method, &json!({}));
        assert_eq!(
            (&refused["error"]["code"], &refused["error"]["data"]["code"]),
            (&json!(-32000), &json!("busy"))
        );
    }
    // A list counts as sixteen.
    for id in &ids[..32] {
        client.send(
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
                .to_string(),
        );
    }
    let from = std::time::Instant::now();
    while client.ask("tools/list", &json!({}))["result"]["tools"][0]["name"] != "probe__sleep" {
        assert!(from.elapsed().as_secs() < 20, "what was cancelled still has its room");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // The id of a cancelled request is not accepted again: its late answer would be taken for the next one's.
    client.send(&json!({"jsonrpc": "2.0", "id": ids[0], "method": "ping"}).to_string());
    assert_eq!(client.read()["error"]["code"], -32600);
    // All other clients are told of the cancellation when the server ends.
    client.hang_up();
    for _ in &ids[32..] {
        let answer = client.read();
        assert_eq!(answer["result"]["structuredContent"]["error"]["code"], "cancelled", "{answer}");
    }
    client.end();
    assert!(record(&home).iter().all(|call| call["status"] == "cancelled"));
}
