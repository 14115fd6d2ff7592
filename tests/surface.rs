//! The host functions as a guest sees them: nothing of the machine, a moving clock, real randomness.
//!
//! The set of functions is compared with `surface.txt` by a test next to the linker.

use std::collections::HashSet;

use serde_json::json;

use crate::shared_host::shared_host;

#[test]
fn a_guest_sees_no_arguments_environment_or_files() {
    let found = shared_host().value("probe", "env", json!({}));
    assert_eq!(found["environment"], json!([]), "{found}");
    assert!(found["arguments"].as_array().unwrap().iter().all(|argument| argument == ""), "{found}");
    assert_eq!(found["standard_input"], "", "{found}");
    let root = found["root"].as_array().unwrap();
    assert!(root.iter().all(|entry| entry.as_str().unwrap().starts_with("error: ")), "{found}");
}

#[test]
fn clocks_advance() {
    let now = || u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let before = now();
    let first = shared_host().value("probe", "clock", json!({}));
    let second = shared_host().value("probe", "clock", json!({}));
    let walls = [&first, &second].map(|clock| clock["wall_ms"].as_u64().unwrap());
    assert!(before <= walls[0] && walls[0] <= walls[1] && walls[1] <= now(), "{before}: {first} {second}");
    assert!(first["monotonic_ns"].as_u64().unwrap() > 0, "the monotonic clock moves within a call: {first}");
}

#[test]
fn randomness_differs_between_calls_and_within_one() {
    let drawn: Vec<_> =
        (0..4).map(|_| shared_host().value("probe", "random", json!({"bytes": 32})).to_string()).collect();
    assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), 4, "{drawn:?}");
    assert_eq!(shared_host().value("probe", "random", json!({"bytes": 0})), "");
}
