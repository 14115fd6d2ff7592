//! The values of all steps together: returned completely within the bound, and not at all beyond it.

use cofferdam_runtime::flow::RunRequest;
use serde_json::{Value, json};

use super::fixture::{Stage, statuses, step};
use crate::shared_host::failed;

/// As long a text as a value may be, in bytes.
const MOST: usize = (4 << 20) - 100;

/// Four values that fill all but 400 bytes, less the surrounding JSON.
fn four() -> String {
    ["a", "b", "c", "d"].map(|id| step(id, "big_result", &format!("bytes = {MOST}"), "")).concat()
}

#[test]
fn all_step_values_share_sixteen_mebibytes() {
    let stage = Stage::new();
    let small = step("e", "big_result", "bytes = 100", "");
    stage.ground.action("within", &(four() + &small));
    let (value, report) = stage.run("within", json!({}));
    let value = value.unwrap();
    assert!(value.steps["d"].as_str().unwrap().len() == MOST && value.output.as_str().unwrap().len() == 100);
    // The logged value equals the returned one.
    let again = stage.host.replay(&report.audit_id).unwrap().outcome.unwrap();
    assert!(again == serde_json::to_string(&value).unwrap());

    let steps = [
        stage.post("first", "/text/large-first", "x"),
        four(),
        step("e", "big_result", "bytes = 500", ""),
        stage.fetch("last", "/text/large-last", ""),
    ];
    stage.ground.action("beyond", &steps.concat());
    let asked = || RunRequest::new(json!({})).idempotency_key("beyond-1");
    let (outcome, report) = stage.asks("beyond", asked());
    let failure = failed(outcome.map(|_| Value::Null));
    assert_eq!((failure.class().name(), failure.code()), ("resource_limit_exceeded", "payload"));
    let details = failure.details();
    assert_eq!(details["configured"], 16 << 20);
    assert!(details["used"].as_u64().unwrap() > 16 << 20, "{details:?}");
    assert!(!failure.retriable(), "the same steps return as much again");
    assert_eq!(statuses(&report), ["value", "value", "value", "value", "value", "value", "not_run"]);
    assert_eq!(["first", "last"].map(|it| stage.asked(&format!("/text/large-{it}"))), [1, 0]);
    let text = serde_json::to_string(&failure).unwrap();
    assert!(text.len() < 2_000, "nothing of the values: {} bytes", text.len());
    let told = cofferdam_runtime::agent::action_error("beyond", &failure.clone().into(), &report);
    let line = "Done before, and not undone: 'first', 'a', 'b', 'c', 'd', 'e'. 'first' must not be repeated";
    assert!(told.text().contains(line), "{}", told.text());
    // Completed steps are not repeated, and the same failure ends it again.
    let (outcome, _) = stage.asks("beyond", asked());
    assert_eq!(failed(outcome.map(|_| Value::Null)).code(), "payload");
    assert_eq!(stage.asked("/text/large-first"), 1);
}
