//! The server over HTTP, by a client that writes bytes: both lifecycles, authentication, and the end of calls.

use std::io::Read as _;
use std::time::{Duration, Instant};

use cofferdam_test_support::Home;
use serde_json::{Value, json};

use super::client::{cli, home, record};
use super::http_client::{Server, TOKEN, request};

#[test]
fn both_lifecycles_list_and_call() {
    let home = home(&["hello"]);
    let server = Server::start(&home, &["--operations", "hello.greet"]);
    let greet = json!({"name": "hello__greet", "arguments": {"name": "Ada"}});
    let modern = server.ask("tools/call", &greet);
    assert_eq!(modern["result"]["structuredContent"]["value"]["text"], "Good day, Ada.", "{modern}");
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).to_string();
    let greeting = server.post(&[], &hello);
    assert_eq!(greeting.message()["result"]["serverInfo"]["name"], "cofferdam");
    let session = greeting.header("mcp-session-id").unwrap();
    let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": greet}).to_string();
    let legacy = server.post(&headers, &call).message();
    assert_eq!(legacy["result"]["structuredContent"], modern["result"]["structuredContent"]);
    assert_eq!(server.post(&[("mcp-session-id", "no-such")], &call).status, 404);
    server.end();
}

#[test]
fn bad_http_requests_are_refused_one_by_one() {
    let home = home(&["hello"]);
    std::fs::write(home.path().join("token"), TOKEN).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(home.path().join("token"), private).unwrap();
    let server = Server::start(&home, &["--operations", "hello.greet"]);
    let (headers, good) = request("tools/list", &json!({}));
    let with = |more: &[(&'static str, &str)], body: &str| {
        let mut all: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        all.extend(more);
        server.post(&all, body).status
    };
    for (more, status) in [
        (&[("host", "evil.com")][..], 403),
        (&[("origin", "https://evil.com")], 403),
        (&[("origin", "null")], 403),
        (&[("origin", "http://localhost:6274")], 200),
        (&[("content-type", "text/plain")], 415),
        (&[("accept", "text/html")], 406),
    ] {
        assert_eq!(with(more, &good), status, "{more:?}");
        server.lives();
    }
    for body in [
        "",
        "{",
        "[]",
        "null",
        "hello",
        &good.replace("\"id\":1", "\"id\":null"),
        &good.replace("\"id\":1", "\"id\":1.5"),
        &good.replace("2.0", "1.0"),
        &format!("[{good}]"),
        &good.replace("\"tools/list\"", "5"),
    ] {
        assert_eq!(with(&[], body), 400, "{body}");
        server.lives();
    }
    assert_eq!(with(&[], &" ".repeat(5 << 20)), 413);
    server.lives();
    server.end();
    let server = Server::start(&home, &["--operations", "hello.greet", "--token-file", "token"]);
    let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(server.post(&all, &good).status, 401);
    let bearer = format!("Bearer {TOKEN}");
    all.push(("authorization", &bearer));
    assert_eq!(server.post(&all, &good).status, 200);
    let stderr = server.end();
    assert!(!stderr.contains(TOKEN));
    for bad in [&["--http", "0.0.0.0:0"][..], &["--http", "0.0.0.0:0", "--token-file", "token"]] {
        let args: Vec<_> = ["mcp"].iter().chain(bad).copied().collect();
        cli(&home).run(&args).fails(64).said("cannot listen at 0.0.0.0:0");
    }
}

#[test]
fn mismatched_protocol_headers_are_refused() {
    let home = home(&["hello"]);
    let server = Server::start(&home, &["--operations", "hello.greet"]);
    let [(session, first), (version, legacy)] = session(&server);
    let (_, second) = &super::http::session(&server)[0];
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let own = [(session, first.as_str()), (version, legacy.as_str())];
    for (more, status) in [
        ((session, first.as_str()), 200),
        ((session, second.as_str()), 400),
        ((version, legacy.as_str()), 200),
        ((version, "2026-07-28"), 400),
        ((version, "2025-06-18"), 400),
    ] {
        let both = [own[0], own[1], more];
        let answer = server.post(&both, &ping);
        assert_eq!(answer.status, status, "{more:?}: {}", answer.body);
        if status == 400 {
            assert!(
                answer.body.contains("-32600") && answer.body.contains("is there twice"),
                "{}",
                answer.body
            );
            assert_eq!(server.bare("DELETE", &both).status, 400, "{more:?}");
        }
    }
    assert_eq!(server.bare("DELETE", &own).status, 204);
    server.end();
}

/// Waits until the log satisfies the condition, for at most this many seconds.
#[track_caller]
fn until(home: &Home, seconds: u64, is_so: impl Fn(&[Value]) -> bool) {
    let patience = Instant::now() + Duration::from_secs(seconds);
    while !is_so(&record(home)) {
        assert!(Instant::now() < patience, "{:?}", record(home));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_dropped_request_cancels_its_call() {
    let home = home(&["probe"]);
    let server = Server::start(&home, &["--operations", "probe.sleep"]);
    let (headers, body) =
        request("tools/call", &json!({"name": "probe__sleep", "arguments": {"ms": 25_000}}));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let stream = server.open(&headers, &body);
    std::thread::sleep(Duration::from_millis(1_500));
    drop(stream);
    until(&home, 20, |record| record.first().is_some_and(|call| call["status"] == "cancelled"));
    server.lives();
    server.end();
}

/// A session: the headers of its requests.
pub(super) fn session(server: &Server) -> [(&'static str, String); 2] {
    session_with(server, &json!({}))
}

/// A session of a client with these capabilities.
pub(super) fn session_with(server: &Server, capabilities: &Value) -> [(&'static str, String); 2] {
    let name = json!({"name": "t", "version": "1"});
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": name});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).to_string();
    let name = server.post(&[], &hello).header("mcp-session-id").unwrap();
    [("mcp-session-id", name), ("mcp-protocol-version", "2025-11-25".to_owned())]
}

/// A call that takes so long.
pub(super) fn sleep(id: i64, ms: u64) -> String {
    let params = json!({"name": "probe__sleep", "arguments": {"ms": ms}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

#[test]
fn a_request_id_in_use_is_refused() {
    let home = home(&["probe"]);
    let server = Server::start(&home, &["--operations", "probe.sleep"]);
    let (one, other) = (session(&server), session(&server));
    let of = |session: &[(&'static str, String); 2]| session.clone();
    let post = |session: [(&'static str, String); 2], body: &str| {
        let headers = session.each_ref().map(|(name, value)| (*name, value.as_str()));
        server.post(&headers, body)
    };
    let headers = one.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut first = server.open(&headers, &sleep(7, 3_000));
    std::thread::sleep(Duration::from_millis(700));
    let twice = post(of(&one), &sleep(7, 1));
    assert_eq!((twice.status, twice.body.contains("-32600")), (400, true), "{}", twice.body);
    assert_eq!(
        post(of(&other), &sleep(7, 1)).message()["result"]["isError"],
        false,
        "another's ids are its own"
    );
    let mut answer = String::new();
    first.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"isError\":false"), "the first keeps its answer: {answer}");
    assert_eq!(post(of(&one), &sleep(7, 1)).message()["result"]["isError"], false, "it is free again");
    server.end();
    assert_eq!(record(&home).len(), 3);
}

#[test]
fn a_disconnect_in_a_session_does_not_cancel() {
    let home = home(&["probe"]);
    let server = Server::start(&home, &["--operations", "probe.sleep"]);
    let session = session(&server);
    let headers = session.each_ref().map(|(name, value)| (*name, value.as_str()));
    let stream = server.open(&headers, &sleep(7, 2_000));
    std::thread::sleep(Duration::from_millis(700));
    drop(stream);
    until(&home, 20, |record| record.first().is_some_and(|call| call["status"] == "value"));
    server.lives();
    server.end();
    assert_eq!(record(&home).len(), 1);
}

/// In a session without a connection: shutdown waits for the grace period, and then logs the call's end.
#[test]
fn shutdown_waits_for_disconnected_calls() {
    for (grace, status) in [("60s", "value"), ("200ms", "cancelled")] {
        let home = home(&["probe"]);
        let server = Server::start(&home, &["--operations", "probe.sleep", "--grace", grace]);
        let session = session(&server);
        let headers = session.each_ref().map(|(name, value)| (*name, value.as_str()));
        let stream = server.open(&headers, &sleep(7, 3_000));
        until(&home, 60, |record| !record.is_empty());
        drop(stream);
        server.end();
        let record = record(&home);
        assert_eq!((record.len(), &record[0]["status"]), (1, &json!(status)), "{record:?}");
    }
}

#[test]
fn an_unread_response_does_not_block_shutdown() {
    let home = home(&["hello"]);
    let server = Server::start(&home, &["--operations", "hello.greet", "--grace", "300ms"]);
    // More than the system buffers of an unread answer.
    let name = "x".repeat(3 << 20);
    let (headers, body) =
        request("tools/call", &json!({"name": "hello__greet", "arguments": {"name": name}}));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut slow = Vec::new();
    // One after the other: how many of them fit at once depends on the speed of the machine.
    for _ in 0..8 {
        slow.push(server.open(&headers, &body));
        until(&home, 300, |record| {
            record.iter().filter(|call| call["status"] == "value").count() == slow.len()
        });
    }
    server.lives();
    server.end();
    drop(slow);
}

#[test]
fn shutdown_cancels_running_calls_and_reports_it() {
    let home = home(&["probe"]);
    let server = Server::start(&home, &["--operations", "probe.sleep", "--grace", "500ms"]);
    let (headers, body) =
        request("tools/call", &json!({"name": "probe__sleep", "arguments": {"ms": 25_000}}));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut stream = server.open(&headers, &body);
    std::thread::sleep(Duration::from_millis(1_500));
    server.end();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"cancelled\"") && answer.contains("\"isError\":true"), "{answer}");
    assert_eq!(record(&home)[0]["status"], "cancelled");
}
