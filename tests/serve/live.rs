//! Events that tell of new entries in the audit log: by the HTTP API, and for pages of the console.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::console::Browser;
use super::fixture::{Stage, probe};

/// Reads until an event, or the end; returns what was read.
fn until_event(stream: &mut TcpStream) -> String {
    let (mut read, mut bytes) = (Vec::new(), [0; 256]);
    loop {
        let text = String::from_utf8_lossy(&read);
        let event = text.split_once("event: changed\n").map(|(_, after)| after);
        if event.is_some_and(|event| event.contains("\n\n")) {
            return text.into_owned();
        }
        match stream.read(&mut bytes).unwrap() {
            0 => return text.into_owned(),
            length => read.extend(&bytes[..length]),
        }
    }
}

fn id_of(event: &str) -> String {
    let id = event.split_once("id: ").unwrap_or_else(|| panic!("{event}")).1;
    id.lines().next().unwrap().to_owned()
}

fn call(stage: &Stage) {
    assert_eq!(stage.post(&probe("fetch", &json!({"url": stage.upstream.url("/text/live")}))).status, 200);
}

#[test]
fn an_event_tells_of_each_new_end() {
    let stage = Stage::new();
    let follow = |headers: &[&str]| stage.begin("GET", "/v1/live", headers, b"");
    let mut stream = follow(&[]);
    let first = until_event(&mut stream);
    assert!(
        first.starts_with("HTTP/1.1 200") && first.contains("content-type: text/event-stream"),
        "{first}"
    );
    call(&stage);
    let second = until_event(&mut stream);
    assert!(!second.starts_with("HTTP/1.1"), "{second}");
    assert_ne!(id_of(&first), id_of(&second));
    // A client that connects again gets no event for the end that it knows, and one for the next call.
    let mut again = follow(&[&format!("last-event-id: {}", id_of(&second))]);
    let mut unknown = follow(&["last-event-id: other"]);
    assert_eq!(id_of(&until_event(&mut unknown)), id_of(&second));
    call(&stage);
    let third = until_event(&mut again);
    assert_ne!(id_of(&third), id_of(&second), "{third}");
}

#[test]
fn the_number_of_streams_is_bounded() {
    let stage = Stage::new();
    let open = || {
        let mut stream = stage.begin("GET", "/v1/live", &[], b"");
        let answer = until_event(&mut stream);
        (stream, answer)
    };
    let streams: Vec<_> = (0..16).map(|_| open()).collect();
    assert!(streams.iter().all(|(_, answer)| answer.starts_with("HTTP/1.1 200")));
    let refused = stage.get("/v1/live");
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("busy")));
    drop(streams);
    // The host notices closed connections when it writes to them.
    let begun = Instant::now();
    while !open().1.starts_with("HTTP/1.1 200") {
        assert!(begun.elapsed() < Duration::from_secs(60), "no place becomes free");
        call(&stage);
    }
}

#[test]
fn events_end_with_their_session() {
    let stage = Stage::with(&["--console"]);
    let browser = Browser::open(&stage);
    call(&stage);
    let page = browser.page("/console/calls");
    let events = page.split("data-events=\"").nth(1).unwrap().split('"').next().unwrap();
    let mut stream = browser.begin(events);
    call(&stage);
    let event = until_event(&mut stream);
    assert!(event.starts_with("HTTP/1.1 200") && event.matches("event: changed").count() == 1, "{event}");
    assert_eq!(browser.send("/console/close", "").status, 303);
    call(&stage);
    assert!(!until_event(&mut stream).contains("event:"));
}

#[test]
fn a_stream_does_not_hold_up_the_end_of_the_server() {
    let mut stage = Stage::new();
    let mut stream = stage.begin("GET", "/v1/live", &[], b"");
    until_event(&mut stream);
    let begun = Instant::now();
    stage.signal("-TERM");
    assert_eq!(stage.ended().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(8), "it waited for the grace of 10 seconds");
}
