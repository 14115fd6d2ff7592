//! Requests over HTTP and in the console: by connector, operation and host, with what became of them.

use cofferdam_test_support::upstream::ScriptedReply;
use serde_json::{Value, json};

use super::console::Browser;
use super::fixture::{PROBE, Stage, probe};
use super::openapi::Described;

/// The hosts that `probe` may reach and did not.
fn unused(network: &Value) -> Vec<String> {
    let all = network["unused"].as_array().unwrap().iter();
    all.filter(|it| it["connector"] == PROBE).map(|it| it["host"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn requests_are_counted_by_operation_and_host() {
    let stage = Stage::with(&["--token-file", "token", "--console"]);
    let described = Described::of(&stage.get("/openapi.json"));
    let network = |query: &str| {
        let answer = stage.get(&format!("/v1/network{query}"));
        described.fits("/v1/network", "get", &answer);
        (answer.status, answer.json())
    };
    let empty = network("").1;
    let closed = format!("http://localhost:{}", stage.closed);
    let mut granted = [stage.upstream.grant(), closed.clone()];
    granted.sort();
    let mut never = unused(&empty);
    never.sort();
    assert_eq!((&empty["routes"], never.as_slice()), (&json!([]), granted.as_slice()), "{empty}");

    let url = |path: &str| json!({"url": stage.upstream.url(path)});
    for path in ["/text/a", "/status/404/a", "/status/503/a", "/drop/a"] {
        stage.post(&probe("fetch", &url(path)));
    }
    stage.post(&probe("fetch", &json!({"url": "https://example.com/"})));
    let order = stage.upstream.script("/orders", [503, 200].map(ScriptedReply::status));
    let mut order = probe("order", &json!({"url": order, "body": "tea", "labels": ["a"]}));
    order["retry"] = "standard".into();
    let ordered = stage.post_with(&["idempotency-key: order-1"], &order);
    assert_eq!((ordered.status, &ordered.json()["attempts"]), (200, &json!(2)), "{ordered:?}");

    let told = network("").1;
    let routes = told["routes"].as_array().unwrap();
    let own = stage.upstream.host_port();
    let route = |op: &str, host: &str| {
        let found = routes.iter().find(|route| route["op"] == op && route["host"] == host);
        found.unwrap_or_else(|| panic!("{op} {host}: {told}"))
    };
    let numbers = |route: &Value, names: &[&str]| -> Vec<u64> {
        names.iter().map(|name| route[*name].as_u64().unwrap()).collect()
    };
    let results = ["requests", "answered", "client_errors", "server_errors", "unanswered", "refused"];
    assert_eq!(numbers(route("fetch", &own), &results), [4, 1, 1, 1, 1, 0], "{told}");
    assert_eq!(numbers(route("fetch", "example.com:443"), &results), [1, 0, 0, 0, 0, 1], "{told}");
    assert_eq!(numbers(route("order", &own), &results), [2, 1, 0, 1, 0, 0], "{told}");
    let writes = ["writes", "repeated_writes", "keyed_repeated_writes"];
    assert_eq!(numbers(route("order", &own), &writes), [2, 1, 1], "{told}");
    assert_eq!(numbers(route("fetch", &own), &writes), [0, 0, 0], "{told}");
    assert_eq!(unused(&told).as_slice(), std::slice::from_ref(&closed), "{told}");
    assert_eq!((routes.len(), &told["unreadable"]), (3, &json!([])), "{told}");
    let none = network("?connector=github://cofferdam/hello").1;
    assert_eq!((&none["routes"], &none["unused"]), (&json!([]), &json!([])), "{none}");
    let before = network("?until=2000-01-01T00:00:00Z").1;
    assert_eq!(unused(&before).len(), 2, "{before}");
    for query in ["?op=fetch", "?since=yesterday", "?connector=probe"] {
        assert_eq!(network(query).0, 400, "{query}");
    }

    let browser = Browser::open(&stage);
    let page = browser.page("/console/network");
    for shown in [
        "class=\"map\" role=\"img\"",
        "class=\"unused\" d=\"M",
        "With the call's key",
        "example.com:443",
        &format!("<code>{closed}</code>"),
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    let none = browser.page("/console/network?connector=github://cofferdam/hello&since=");
    assert!(none.contains("No request is on record that fits."), "{none}");
    assert_eq!(browser.get("/console/network?connector=%3Cscript%3E").status, 400);
}
