//! Tests of the test double.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::{Call, json};
use crate::http::{self, Error, Response};
use crate::{NetworkPhase, call, credential, log};

const ITEMS: &str = "https://api.example.com/v1/items";

/// Runs `test`, which has to panic, and returns its message.
fn panic_of(test: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(test)).unwrap_err();
    *payload.downcast::<String>().unwrap()
}

#[test]
fn a_request_is_seen_as_the_host_would_see_it() {
    let call = Call::new().with_idempotency_key("k-1");
    call.expect(http::post(ITEMS)).respond(Response::new(201, [("location", "/v1/items/7")], "made"));
    let request = http::post(format!("{ITEMS}?dry=0#x")).query("tag", "a b").header("x-trace", "t");
    let response = request.json(&json!({"name": "tea"})).idempotency_key("create").send().unwrap();
    assert_eq!((response.status(), response.header("Location")), (201, Some("/v1/items/7")));
    assert_eq!(response.text().unwrap(), "made");

    let sent = &call.requests()[0];
    assert_eq!(
        sent.to_string(),
        "POST https://api.example.com/v1/items?dry=0&tag=a%20b\n\
         x-trace: t\n\
         content-type: application/json\n\
         idempotency-key: k-1:create\n\
         content-length: 14\n\n\
         {\"name\":\"tea\"}"
    );
    assert_eq!(sent.method(), http::Method::Post);
    assert_eq!(sent.url(), "https://api.example.com/v1/items?dry=0&tag=a%20b");
    assert_eq!((sent.query("tag").as_deref(), sent.query("x")), (Some("a b"), None));
    assert_eq!((sent.header("Content-Length"), sent.headers().count()), (Some("14"), 4));
    assert_eq!(sent.idempotency_key(), Some("k-1:create"));
    assert_eq!(sent.json::<serde_json::Value>().unwrap(), json!({"name": "tea"}));
    assert_eq!(
        (sent.bytes(), sent.text().as_str()),
        (b"{\"name\":\"tea\"}".as_slice(), "{\"name\":\"tea\"}")
    );
}

#[test]
fn a_link_is_resolved_against_the_request() {
    let call = Call::new();
    call.allow(http::get(ITEMS)).respond(Response::new(200, [("link", "<?page=2>; rel=next")], ""));
    assert_eq!(http::get(ITEMS).send().unwrap().next_page().unwrap(), format!("{ITEMS}?page=2"));
}

#[test]
fn answers_come_in_the_order_written() {
    let call = Call::new();
    call.allow(http::get(ITEMS))
        .respond_with(|sent| Response::new(200, [], sent.query("n").unwrap_or_default()));
    call.expect(http::get(ITEMS)).fail(NetworkPhase::Connect);
    call.expect(http::get(ITEMS).query("n", 2)).respond(Response::new(503, [], ""));
    call.expect(http::get(ITEMS)).fail(None);

    let send = |n: u32| http::get(ITEMS).query("n", n).send();
    let phase = |result| match result {
        Err(Error::Network { phase, .. }) => phase,
        other => panic!("{other:?}"),
    };
    assert_eq!(phase(send(1)), Some(NetworkPhase::Connect));
    assert_eq!(send(2).unwrap().status(), 503);
    assert_eq!(phase(send(3)), None);
    assert_eq!(send(4).unwrap().text().unwrap(), "4");
    assert_eq!(send(5).unwrap().text().unwrap(), "5");
    assert_eq!(call.requests().len(), 5);
}

#[test]
fn the_body_is_compared_by_its_content_type() {
    let json = |text: &str| http::post(ITEMS).bytes("application/json", text);
    let message = panic_of(|| {
        let call = Call::new();
        call.expect(json(r#"{"a": 1, "b": 2}"#)).respond(Response::new(200, [], ""));
        drop(json(r#"{"a":1}"#).send());
    });
    assert!(message.ends_with("the body is not {\"a\": 1, \"b\": 2}"), "{message}");

    let call = Call::new();
    call.expect(json(r#"{"a": 1, "b": 2}"#)).respond(Response::new(200, [], ""));
    call.expect(http::put(ITEMS).form([("a", "1"), ("b", "2")])).respond(Response::new(200, [], ""));
    call.expect(http::patch(ITEMS).bytes("text/plain", "x")).respond(Response::new(200, [], ""));
    let _ = json(r#"{"b":2,"a":1}"#).send().unwrap();
    let _ = http::put(ITEMS).form([("b", "2"), ("a", "1")]).send().unwrap();
    let _ = http::patch(ITEMS).bytes("text/plain", "x").send().unwrap();
    assert_eq!(
        call.requests()[1].form(),
        [("b".to_owned(), "2".to_owned()), ("a".to_owned(), "1".to_owned())]
    );
}

#[test]
fn an_unexpected_request_is_reported_with_its_differences() {
    let message = panic_of(|| {
        let call = Call::new();
        call.expect(http::get(ITEMS)).respond(Response::new(200, [], ""));
        call.expect(http::post(format!("{ITEMS}/7"))).respond(Response::new(200, [], ""));
        call.expect(http::post(ITEMS).query("a", 1)).respond(Response::new(200, [], ""));
        call.expect(http::post(ITEMS).header("x-v", "2")).respond(Response::new(200, [], ""));
        call.allow(http::post(ITEMS).idempotency_key("create")).respond(Response::new(200, [], ""));
        let _ = http::get(ITEMS).send();
        let _ = http::post(ITEMS).header("x-v", "1").query("a", 2).send();
    });
    assert!(
        message.contains("does not expect:\n\nPOST https://api.example.com/v1/items?a=2\nx-v: 1\n"),
        "{message}"
    );
    for difference in [
        "/v1/items (guest-sdk/src/testing/tests.rs:",
        "): was sent already\n",
        "): the URL is another\n",
        "): the query has no a=1\n",
        "): the header x-v is `1`, not `2`\n",
        "): it has no header idempotency-key: test-call:create",
    ] {
        assert!(message.contains(difference), "{difference}\n{message}");
    }
    let message = panic_of(|| {
        let _call = Call::new();
        let _ = http::get(ITEMS).send();
    });
    assert!(message.contains("The test expects no request"), "{message}");
}

#[test]
fn a_connector_cannot_hide_an_unexpected_request() {
    let message = panic_of(|| {
        let _call = Call::new();
        let _ = catch_unwind(|| http::get(ITEMS).send());
    });
    assert!(message.contains("does not expect:\n\nGET https://api.example.com/v1/items\n"), "{message}");
}

#[test]
fn a_request_that_is_not_sent_is_reported() {
    let message = panic_of(|| {
        let call = Call::new();
        call.expect(http::get(ITEMS)).respond(Response::new(200, [], ""));
        call.expect(http::delete(ITEMS)).respond(Response::new(200, [], ""));
        let _ = http::get(ITEMS).send();
    });
    let expected = "did not send these requests:\n  DELETE https://api.example.com/v1/items (";
    assert!(message.contains(expected), "{message}");
    assert!(message.ends_with("It sent:\n  GET https://api.example.com/v1/items"), "{message}");
}

#[test]
fn an_order_can_be_required() {
    let message = panic_of(|| {
        let call = Call::new().in_order();
        call.expect(http::get(ITEMS)).respond(Response::new(200, [], ""));
        call.expect(http::post(ITEMS)).respond(Response::new(200, [], ""));
        let _ = http::post(ITEMS).send();
    });
    assert!(message.contains("): the method is POST\n"), "{message}");
    assert!(message.ends_with("): comes later"), "{message}");
}

#[test]
fn a_label_belongs_to_one_request_of_an_attempt() {
    let call = Call::new();
    call.allow(http::post(ITEMS)).respond(Response::new(200, [], ""));
    let send = |body: &str| http::post(ITEMS).idempotency_key("create").bytes("text/plain", body).send();
    let _ = send("a").unwrap();
    let _ = send("a").unwrap();
    assert!(matches!(send("b"), Err(Error::Invalid(why)) if why.contains("`create`")));
    call.next_attempt();
    assert_eq!(call::attempt(), 2);
    let _ = send("b").unwrap();
    assert_eq!(call.requests().len(), 3, "a request that the SDK refuses is not sent");
}

#[test]
fn the_facts_of_the_call_are_the_test_s() {
    let call = Call::new().with_attempt(3).with_deadline(Duration::from_millis(5)).without_credential("wiki");
    assert_eq!((call::idempotency_key().as_str(), call::attempt(), call::deadline()), ("test-call", 3, 5));
    assert_eq!(credential::handle("wiki"), None);
    assert_eq!(credential::handle("tracker").as_deref(), Some("handle-of-tracker"));

    log::warn("page is late", &[("page", &3), ("after", &"9 s")]);
    log::suppressed("a greeting is an ornament", Error::Denied);
    let line = &call.log_lines()[0];
    assert_eq!(line.to_string(), "warn page is late page=3 after=9 s");
    assert_eq!(
        (line.level(), line.message(), line.field("page")),
        (log::Level::Warn, "page is late", Some("3"))
    );
    let suppressed = &call.suppressed()[0];
    assert_eq!(suppressed.reason(), "a greeting is an ornament");
    assert_eq!(suppressed.cause(), "the host refused the request");
}

#[test]
fn a_call_is_of_one_thread_until_it_is_dropped() {
    let outer = Call::new().with_idempotency_key("outer");
    outer.allow(http::get(ITEMS)).respond(Response::new(200, [], ""));
    let inner = Call::new().with_idempotency_key("inner");
    assert_eq!(call::idempotency_key(), "inner");
    let elsewhere = std::thread::spawn(|| (call::idempotency_key(), http::get(ITEMS).send())).join().unwrap();
    assert_eq!(elsewhere, ("outside-a-call".to_owned(), Err(Error::OutsideSandbox)));
    drop(inner);
    assert_eq!(call::idempotency_key(), "outer");
    assert_eq!(http::get(ITEMS).send().unwrap().status(), 200);
    drop(outer);
    assert_eq!(call::idempotency_key(), "outside-a-call");
    assert_eq!(http::get(ITEMS).send(), Err(Error::OutsideSandbox));
}

#[test]
fn an_answer_may_use_the_call() {
    let call = Call::new();
    call.allow(http::get(ITEMS)).respond_with(|_| {
        log::info("asked", &[("attempt", &call::attempt())]);
        Response::new(200, [], "")
    });
    assert_eq!(http::get(ITEMS).send().unwrap().status(), 200);
    assert_eq!(call.log_lines()[0].to_string(), "info asked attempt=1");
}
