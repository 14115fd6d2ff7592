//! What a guest finds when it uses the surface: nothing of the machine, clocks that move, chance that is chance.
//!
//! Which functions there are at all is held against `surface.txt` by a test next to the linker.

use std::collections::HashSet;

use serde_json::json;

use crate::world::world;

#[test]
fn no_arguments_no_environment_no_files_and_nothing_to_read() {
    let found = world().value("probe", "env", json!({}));
    assert_eq!(found["environment"], json!([]), "{found}");
    assert!(found["arguments"].as_array().unwrap().iter().all(|argument| argument == ""), "{found}");
    assert_eq!(found["standard_input"], "", "{found}");
    let root = found["root"].as_array().unwrap();
    assert!(root.iter().all(|entry| entry.as_str().unwrap().starts_with("error: ")), "{found}");
}

#[test]
fn clocks_are_real() {
    let now = || u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let before = now();
    let first = world().value("probe", "clock", json!({}));
    let second = world().value("probe", "clock", json!({}));
    let walls = [&first, &second].map(|clock| clock["wall_ms"].as_u64().unwrap());
    assert!(before <= walls[0] && walls[0] <= walls[1] && walls[1] <= now(), "{before}: {first} {second}");
    assert!(first["monotonic_ns"].as_u64().unwrap() > 0, "the monotonic clock moves within a call: {first}");
}

#[test]
fn randomness_differs_between_calls_and_within_one() {
    let drawn: Vec<_> =
        (0..4).map(|_| world().value("probe", "random", json!({"bytes": 32})).to_string()).collect();
    assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), 4, "{drawn:?}");
    assert_eq!(world().value("probe", "random", json!({"bytes": 0})), "");
}
