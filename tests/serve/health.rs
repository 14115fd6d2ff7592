//! Health over HTTP and in the console: the calls of a time, and the state of what they depend on.

use std::time::Duration;

use serde_json::{Value, json};

use super::console::Browser;
use super::fixture::{Stage, probe};
use super::openapi::Described;

/// The health of a server, after checking that the description fits it.
fn health(stage: &Stage) -> Value {
    let answer = stage.get("/v1/health");
    Described::of(&stage.get("/openapi.json")).fits("/v1/health", "get", &answer);
    assert!(!answer.body.contains(stage.home.path().to_str().unwrap()), "{answer:?}");
    answer.json()
}

#[test]
fn a_history_counts_calls_by_class_and_boundary() {
    let stage = Stage::with(&["--token-file", "token", "--console"]);
    let described = Described::of(&stage.get("/openapi.json"));
    let history = |query: &str| {
        let answer = stage.get(&format!("/v1/history{query}"));
        described.fits("/v1/history", "get", &answer);
        (answer.status, answer.json())
    };
    let empty = history("?steps=3").1;
    assert_eq!(empty["steps"].as_array().unwrap().len(), 3, "{empty}");
    let url = |path: &str| json!({"url": stage.upstream.url(path)});
    stage.post(&probe("fetch", &url("/text/a")));
    stage.post(&probe("fetch", &url("/status/503/a")));
    stage.post(&probe("fetch", &json!({"url": "https://example.com/"})));
    stage.post(&probe("none", &json!({})));
    for (query, of) in [("", 48), ("?steps=2", 2), ("?step=day&steps=2", 2)] {
        let told = history(query).1;
        let steps = told["steps"].as_array().unwrap();
        assert_eq!(steps.len(), of, "{told}");
        let sum = |field: &str| steps.iter().map(|step| step[field].as_u64().unwrap()).sum::<u64>();
        assert_eq!((sum("calls"), sum("failed")), (4, 3), "{told}");
        let mut failures: Vec<_> =
            steps.iter().flat_map(|step| step["failures"].as_array().unwrap()).collect();
        failures.sort_by_key(|failure| failure["class"].to_string());
        let expected = [
            json!({"status": "failure", "class": "capability_denied", "boundary": "sandbox", "calls": 1}),
            json!({"status": "failure", "class": "external_api_error", "boundary": "external", "calls": 1}),
            json!({"status": "refused", "class": null, "boundary": null, "calls": 1}),
        ];
        assert_eq!(failures, expected.iter().collect::<Vec<_>>());
        let last = steps.iter().rfind(|step| step["calls"] != json!(0)).unwrap();
        assert!(last["max_us"].as_u64() >= last["p50_us"].as_u64() && last["p50_us"].is_u64(), "{last}");
    }
    let none = history("?steps=2&connector=github://cofferdam/hello").1;
    assert_eq!((&none["steps"][1]["calls"], &none["steps"][1]["p50_us"]), (&json!(0), &Value::Null));
    for query in ["?steps=0", "?step=week", "?since=2026-11-22T12:00:00Z", "?limit=1"] {
        assert_eq!(history(query).0, 400, "{query}");
    }
    let browser = Browser::open(&stage);
    for (path, title) in [("", "24 hours"), ("?range=week", "7 days"), ("?range=month", "30 days")] {
        let page = browser.page(&format!("/console/health{path}"));
        assert!(page.contains(&format!("aria-current=\"true\">{title}<")), "{page}");
        for shown in ["Calls a second", "external_api_error", "sandbox", "class=\"chart\" role=\"img\""] {
            assert!(page.contains(shown), "{shown}: {page}");
        }
        assert!(page.contains("<td class=\"number\">4</td>"), "the table has the numbers: {page}");
    }
}

#[test]
fn health_shows_circuits_limits_and_retention() {
    let config = "[breaker]\npolicy = \"at-once\"\nthreshold = 1\n[rate_limit]\nrequests = 30\nper = \"600s\"\nburst = 5\n\
                  [audit]\nretention = \"90d\"\n";
    let stage = Stage::configured(&["--token-file", "token", "--console"], config);
    let empty = health(&stage);
    assert_eq!((&empty["circuits"], &empty["interrupted"]["count"]), (&json!([]), &json!(0)));
    assert_eq!((&empty["log"], &empty["verification"]), (&Value::Null, &Value::Null), "{empty}");
    stage.post(&probe("fetch", &json!({"url": stage.upstream.url("/status/503/a")})));
    let told = health(&stage);
    let circuit = &told["circuits"][0];
    assert_eq!(circuit["connector"], "github://cofferdam/probe", "{told}");
    assert_eq!((&circuit["state"], &circuit["cause"]), (&json!("open"), &json!("unavailable")), "{told}");
    assert!(circuit["retry_after_ms"].as_u64() > Some(0), "{told}");
    let used = json!([{"host": stage.upstream.host_port(), "requests": 1, "wait_ms": 0}]);
    let limit = json!({
        "connector": "github://cofferdam/probe", "requests": 30, "seconds": 600, "burst": 5, "used": used
    });
    assert!(told["rate_limits"].as_array().unwrap().contains(&limit), "{told}");
    let log = &told["log"];
    assert_eq!(log["retention_seconds"], json!(90 * 86_400), "{told}");
    assert!(log["bytes"].as_u64() > log["entries_bytes"].as_u64(), "{told}");
    assert!(log["oldest"].as_str() < log["oldest_expires"].as_str(), "{told}");
    let top = stage.cli().run(&["top", "--once"]).ok();
    for shown in ["RATE LIMITS AT EACH HOST", "10 minutes", "90 days, ", "the oldest may be removed from "] {
        assert!(top.contains(shown), "{shown}: {top}");
    }
    let page = Browser::open(&stage).page("/console/health");
    for shown in [
        "Circuits that are not closed: 1.",
        "at most",
        "10 minutes",
        "1 of 5",
        "90 days",
        "It was not verified from this home.",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
}

#[test]
fn health_has_the_result_of_the_last_verification() {
    let stage = Stage::with(&["--token-file", "token", "--console"]);
    stage.post(&json!({"connector": "github://cofferdam/hello", "op": "greet", "args": {"name": "a"}}));
    stage.cli().run(&["audit", "verify"]).ok();
    let told = health(&stage);
    let last = &told["verification"];
    assert_eq!((&last["holds"], &last["findings"]), (&json!(true), &json!(0)), "{told}");
    assert!(last["entries"].as_u64() >= Some(2), "{told}");
    let audit = stage.home.path().join("audit");
    let writer =
        std::fs::read_dir(&audit).unwrap().map(|it| it.unwrap().path()).find(|it| it.is_dir()).unwrap();
    let segment = std::fs::read_dir(writer).unwrap().map(|it| it.unwrap().path());
    let segment = segment.into_iter().find(|it| it.extension().is_some_and(|kind| kind == "jsonl")).unwrap();
    let changed = std::fs::read_to_string(&segment).unwrap().replacen("hello", "other", 1);
    std::fs::write(&segment, changed).unwrap();
    let _ = stage.cli().run(&["audit", "verify"]).fails(86);
    let told = health(&stage);
    assert_eq!(told["verification"]["holds"], json!(false), "{told}");
    assert!(told["verification"]["findings"].as_u64() > Some(0), "{told}");
    let page = Browser::open(&stage).page("/console/health");
    assert!(page.contains("it does NOT hold together"), "{page}");
}

#[test]
fn health_lists_calls_that_wait_for_a_decision() {
    let stage = Stage::with(&["--token-file", "token", "--console"]);
    // Its limit cuts it off: it is unknown whether the service has it.
    let mut lost = probe("fetch", &json!({"url": stage.upstream.url("/hang/a")}));
    lost["not_idempotent"] = true.into();
    lost["limits"] = json!({"wall_time": "1s"});
    let lost = stage.post_with(&["idempotency-key: order-1"], &lost).json();
    let url = format!("url={}", stage.upstream.url("/hang/b"));
    let args = ["call", "github://cofferdam/probe", "fetch", "--arg", url.as_str()];
    let mut killed = stage.cli().command(&args).spawn().unwrap();
    while stage.upstream.seen("/hang/b").is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let told = health(&stage);
    assert_eq!(told["interrupted"]["count"], json!(1), "{told}");
    let interrupted = &told["interrupted"]["calls"][0];
    assert_eq!((&interrupted["op"], &interrupted["status"]), (&json!("fetch"), &json!("incomplete")));
    assert_eq!(told["undecided_keys"]["count"], json!(1), "{told}");
    assert_eq!(told["undecided_keys"]["calls"][0]["audit_id"], lost["error"]["audit_id"], "{told}");
    let browser = Browser::open(&stage);
    let page = browser.page("/console/health");
    for call in ["interrupted", "undecided_keys"].map(|of| told[of]["calls"][0]["audit_id"].as_str().unwrap())
    {
        assert!(page.contains(&format!("/console/calls/{call}")), "{page}");
    }
    assert!(
        page.contains("Interrupted calls that wait for a decision: 1.") && !page.contains("order-1"),
        "{page}"
    );
    let id = lost["error"]["audit_id"].as_str().unwrap();
    assert_eq!(stage.get(&format!("/v1/audit/{id}")).json()["key_undecided"], json!(true));
    let call = browser.page(&format!("/console/calls/{id}"));
    assert!(call.contains(&format!("cofferdam recover skip {id} --reason TEXT")), "{call}");
    stage.cli().run(&["recover", "skip", id, "--reason", "it is there"]).ok();
    assert_eq!(stage.get(&format!("/v1/audit/{id}")).json()["key_undecided"], json!(false));
}
