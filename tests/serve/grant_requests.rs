//! Requests for grants over HTTP and in the console: what calls were denied, and no way to accept it.

use serde_json::{Value, json};

use super::console::Browser;
use super::fixture::{PROBE, Stage, probe};
use super::openapi::Described;

const SLACK: &str = "github://cofferdam/slack@0.1.0";

/// The requests, after checking that the description fits them.
fn requests(stage: &Stage) -> Vec<Value> {
    let answer = stage.get("/v1/grant-requests");
    Described::of(&stage.get("/openapi.json")).fits("/v1/grant-requests", "get", &answer);
    assert!(!answer.body.contains(stage.home.path().to_str().unwrap()), "{answer:?}");
    answer.json()["requests"].as_array().unwrap().clone()
}

#[test]
fn requests_for_grants_are_shown_and_not_accepted() {
    let stage = Stage::with(&["--token-file", "token", "--console"]);
    let browser = Browser::open(&stage);
    assert!(requests(&stage).is_empty());
    assert!(browser.page("/console/approvals").contains("No request for a grant is open."));
    let denied = probe("fetch", &json!({"url": "https://example.com/a-hidden-path"}));
    let unbound =
        json!({"connector": SLACK, "op": "post_message", "args": {"channel": "C1", "text": "a-hidden-text"}});
    let mut ids = Vec::new();
    for (call, class) in
        [(&denied, "capability_denied"), (&denied, "capability_denied"), (&unbound, "binding_required")]
    {
        let answer = stage.post(call);
        assert_eq!(answer.word(), class, "{answer:?}");
        ids.push(answer.json()["error"]["audit_id"].clone());
    }
    let found = requests(&stage);
    assert_eq!(found.len(), 2, "{found:?}");
    let (binding, host) = (&found[0], &found[1]);
    assert_eq!(
        json!([
            binding["connector"],
            binding["subject"],
            binding["binding"],
            binding["calls"],
            binding["code"]
        ]),
        json!([SLACK, "bearer/slack", "bearer/slack/default", 1, "unbound"])
    );
    assert_eq!(binding["suggestion"], "cofferdam binding set bearer/slack/default");
    assert_eq!(
        json!([host["connector"], host["kind"], host["subject"], host["calls"], host["last_call"]]),
        json!([PROBE, "host", "example.com:443", 2, ids[1]])
    );
    assert_eq!(host["allow"]["table"], "[capabilities.network]", "{host}");
    assert_eq!(stage.ask("POST", "/v1/grant-requests", &[], b"{}").status, 405);

    let page = browser.page("/console/approvals");
    let link = format!("href=\"/console/calls/{}\"", ids[1].as_str().unwrap());
    for shown in [
        "No call waits for a person.",
        "Requests for grants",
        "Nothing can be accepted on this page",
        "cofferdam why github://cofferdam/probe@0.1.0 example.com:443",
        "cofferdam why github://cofferdam/slack@0.1.0 bearer/slack",
        "cofferdam binding set bearer/slack/default",
        "[capabilities.network]",
        &link,
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(!page.contains("a-hidden") && !page.contains("name=\"decision\""), "{page}");
}
