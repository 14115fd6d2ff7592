//! Sessions over HTTP: disconnects during a call, stored answers, and eviction.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use cofferdam_test_support::Home;
use serde_json::{Value, json};

use super::client::{home, record};
use super::http::{session, sleep};
use super::http_client::{Answer, Server};

/// A session, as its client has it.
struct Of<'s>(&'s Server, [(&'static str, String); 2]);

impl<'s> Of<'s> {
    fn new(server: &'s Server) -> Self {
        Self(server, session(server))
    }

    fn headers(&self) -> [(&str, &str); 2] {
        self.1.each_ref().map(|(name, value)| (*name, value.as_str()))
    }

    fn post(&self, body: &str) -> Answer {
        self.0.post(&self.headers(), body)
    }

    fn note(&self, method: &str, params: &Value) -> u16 {
        self.post(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).status
    }

    fn ping(&self) -> u16 {
        self.post(&json!({"jsonrpc": "2.0", "id": "ping", "method": "ping"}).to_string()).status
    }

    /// Sends a request and reads the id of its stream.
    fn begin(&self, body: &str) -> (TcpStream, String) {
        let mut stream = self.0.open(&self.headers(), body);
        let (mut heard, mut more) = (String::new(), [0; 4096]);
        let place = loop {
            if let Some((_, after)) = heard.split_once("id: ")
                && let Some((place, _)) = after.split_once('\n')
            {
                break place.to_owned();
            }
            let length = stream.read(&mut more).unwrap();
            assert_ne!(length, 0, "{heard}");
            heard.push_str(std::str::from_utf8(&more[..length]).unwrap());
        };
        (stream, place)
    }

    /// Reconnects for the events after an id.
    fn resume(&self, place: &str) -> Answer {
        let [session, version] = self.headers();
        self.0.bare("GET", &[session, version, ("accept", "text/event-stream"), ("last-event-id", place)])
    }

    fn delete(&self) -> u16 {
        self.0.bare("DELETE", &self.headers()).status
    }
}

#[track_caller]
fn until(home: &Home, status: &str) {
    let from = Instant::now();
    while record(home).iter().all(|call| call["status"] != status) {
        assert!(from.elapsed() < Duration::from_secs(60), "{:?}", record(home));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[track_caller]
fn is_refused(answer: &Answer) {
    assert_eq!((answer.status, answer.body.contains("-32600")), (400, true), "{}", answer.body);
}

#[test]
fn a_disconnected_requests_id_stays_in_use() {
    let home = home(&["probe"]);
    let server = Server::start(&home, &["--operations", "probe.sleep,probe.forge_network"]);
    let client = Of::new(&server);
    drop(client.begin(&sleep(7, 5_000)));
    std::thread::sleep(Duration::from_millis(500));
    let other = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "probe__forge_network"}});
    is_refused(&client.post(&other.to_string()));
    is_refused(&client.post(&sleep(7, 5_000)));
    let greeting = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let greeting = json!({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": greeting}).to_string();
    is_refused(&client.post(&greeting));
    assert_eq!(record(&home).iter().filter(|call| call["status"] == "value").count(), 0, "it still runs");
    until(&home, "value");
    // It is free once the answer was sent to a connected client, which is a moment after the log entry.
    let from = Instant::now();
    let mine = loop {
        let mine = client.post(&other.to_string());
        if mine.status == 200 {
            break mine.message();
        }
        assert!(from.elapsed() < Duration::from_secs(20), "{}", mine.body);
    };
    assert_eq!((&mine["id"], &mine["result"]["isError"]), (&json!(7), &json!(true)), "{mine}");
    server.end();
    assert_eq!(record(&home).len(), 2, "nothing ran twice");
}

#[test]
fn a_response_is_kept_for_a_disconnected_client() {
    let home = home(&["probe"]);
    let server = Server::start(&home, &["--operations", "probe.sleep"]);
    let (client, other) = (Of::new(&server), Of::new(&server));
    let (stream, place) = client.begin(&sleep(7, 2_500));
    let (again, second) = client.begin(&sleep(8, 1));
    drop(stream);
    let answered = |answer: Answer, id: i64| {
        let message = answer.message();
        assert_eq!((&message["id"], &message["result"]["isError"]), (&json!(id), &json!(false)), "{message}");
    };
    // While it runs, after it ended, and again: the server does not know which events arrived.
    answered(client.resume(&place), 7);
    answered(client.resume(&place), 7);
    assert!(answer_of(again).contains("\"id\":8"));
    answered(client.resume(&second), 8);
    let theirs = other.resume(&place);
    assert_eq!((theirs.status, theirs.body.as_str()), (200, ""), "another session has no part in it");
    assert_eq!(client.resume("0/999").body, "");
    server.end();
    assert_eq!(record(&home).len(), 2);
}

fn answer_of(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_session_lives_for_its_call_and_idle_time() {
    let home = home(&["probe"]);
    let server = Server::start(&home, &["--operations", "probe.sleep", "--session-idle", "2s"]);
    let client = Of::new(&server);
    let call = client.post(&sleep(7, 6_000)).message();
    assert_eq!(call["result"]["isError"], false, "{call}");
    // An abandoned call keeps it, too.
    drop(client.begin(&sleep(8, 5_000)));
    let from = Instant::now();
    while record(&home).iter().filter(|call| call["status"] == "value").count() < 2 {
        assert!(from.elapsed() < Duration::from_secs(60), "{:?}", record(&home));
        std::thread::sleep(Duration::from_millis(100));
    }
    let from = Instant::now();
    let silent = Duration::from_millis(3_500);
    std::thread::sleep(silent);
    while client.ping() != 404 {
        assert!(from.elapsed() < Duration::from_secs(60), "it does not end");
        std::thread::sleep(silent);
    }
    server.lives();
    let said = server.end();
    assert!(!said.contains("ERROR"), "{said}");
}

#[test]
fn ending_a_session_ends_its_call_with_an_error() {
    let home = home(&["probe"]);
    let server = Server::start(&home, &["--operations", "probe.sleep"]);
    let client = Of::new(&server);
    let (cancelled, _) = client.begin(&sleep(6, 25_000));
    assert_eq!(client.note("notifications/cancelled", &json!({"requestId": 6})), 202);
    assert!(!answer_of(cancelled).contains("\"id\":6"), "who cancels has no answer");
    is_refused(&client.post(&sleep(6, 1)));
    let (lost, _) = client.begin(&sleep(7, 25_000));
    assert_eq!(client.delete(), 204);
    let said = answer_of(lost);
    assert!(said.contains("-32000") && said.contains("\"id\":7"), "{said}");
    assert_eq!(client.ping(), 404);
    until(&home, "cancelled");
    let said = server.end();
    assert!(!said.contains("ERROR"), "{said}");
    assert!(record(&home).iter().all(|call| call["status"] == "cancelled"), "{:?}", record(&home));
}

#[test]
fn only_an_idle_session_is_evicted() {
    let home = home(&["probe"]);
    let server = Server::start(&home, &["--operations", "probe.sleep", "--sessions", "2"]);
    let (one, two) = (Of::new(&server), Of::new(&server));
    let (running, _) = one.begin(&sleep(7, 12_000));
    let three = Of::new(&server);
    assert_eq!((two.ping(), three.ping()), (404, 200), "the one without a call ended");
    let (also, _) = three.begin(&sleep(7, 12_000));
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).to_string();
    let refused = server.post(&[], &hello);
    assert_eq!((refused.status, refused.header("retry-after").as_deref()), (503, Some("1")));
    assert_eq!(refused.header("content-type").as_deref(), Some("application/json"));
    assert_eq!(refused.message()["error"]["data"]["code"], "busy", "{}", refused.body);
    server.lives();
    for stream in [running, also] {
        assert_eq!(answer_of_call(stream)["result"]["isError"], false);
    }
    assert_eq!(server.post(&[], &hello).status, 200);
    let said = server.end();
    assert!(!said.contains("ERROR"), "{said}");
}

/// The rest of an answer whose beginning was read.
fn answer_of_call(stream: TcpStream) -> Value {
    let text = answer_of(stream);
    let data = text.lines().find_map(|line| line.strip_prefix("data: {")).unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str(&format!("{{{data}")).unwrap()
}

#[test]
fn client_info_is_bounded_and_not_kept() {
    let home = home(&["hello"]);
    let server = Server::start(&home, &["--operations", "hello.greet"]);
    let hello = |lists: usize| {
        let lists = format!("[{}[]]", "[],".repeat(lists));
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{"experimental":{{"x":{{"y":{lists}}}}}}},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
        )
    };
    is_refused(&server.post(&[], &hello(1_300_000)));
    assert_eq!(server.post(&[], &hello(20_000)).status, 200);
    let before = server.peak_bytes();
    for _ in 0..150 {
        assert_eq!(server.post(&[], &hello(20_000)).status, 200);
    }
    let more = server.peak_bytes() - before;
    assert!(more < 64 << 20, "{more} bytes");
    server.end();
}

#[test]
fn repeated_initialized_notes_notify_once() {
    let home = home(&["hello"]);
    let server = Server::start(&home, &["--all-operations"]);
    let client = Of::new(&server);
    for _ in 0..20 {
        assert_eq!(client.note("notifications/initialized", &json!({})), 202);
    }
    let [session, version] = client.headers();
    let headers = [session, version, ("accept", "text/event-stream")];
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.bare("GET", &headers).body);
        std::thread::sleep(Duration::from_millis(500));
        super::client::cli(&home).run(&["remove", "github://cofferdam/hello@0.1.0"]).ok();
        let from = Instant::now();
        while !server.ask("tools/list", &json!({}))["result"]["tools"].as_array().unwrap().is_empty() {
            assert!(from.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(100));
        }
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(client.delete(), 204);
        waiting.join().unwrap()
    });
    assert_eq!(waiting.matches("list_changed").count(), 1, "{waiting}");
    server.end();
}

#[test]
fn requests_the_sdk_cannot_parse_get_json_errors() {
    let home = home(&["hello"]);
    let server = Server::start(&home, &["--operations", "hello.greet"]);
    let client = Of::new(&server);
    for (body, code) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hello__greet","arguments":{"name":1e400}}}"#,
            "-32600",
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\ud800"}}"#, "-32"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"x":1e400}}"#, "-32600"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":"x"}}"#, "-32600"),
        (
            &format!(r#"{{"jsonrpc":"2.0","id":1,"result":{}1{}}}"#, "[".repeat(5_000), "]".repeat(5_000)),
            "-32600",
        ),
    ] {
        for answer in [client.post(body), server.post(&[], body)] {
            assert_eq!(
                (answer.status, answer.body.contains(code)),
                (400, true),
                "{body:.100} {}",
                answer.body
            );
            assert_eq!(answer.header("content-type").as_deref(), Some("application/json"), "{body:.100}");
        }
    }
    server.end();
}
