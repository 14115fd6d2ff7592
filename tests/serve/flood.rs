//! Floods of large bodies: the memory of the server stays within its budget.

use serde_json::json;

use super::fixture::{PROBE, Stage, probe, read};

/// The budget that the server is given.
const BUDGET: u64 = 32 << 20;

/// The memory that a server may use in addition to its budget: one request being read, code, and allocator
/// overhead.
const BESIDE: u64 = 48 << 20;

#[test]
fn large_bodies_stay_within_the_budget() {
    let args = ["--token-file", "token", "--concurrency", "1", "--request-memory", "32MiB"];
    let stage = Stage::with(&args);
    assert_eq!(stage.post(&probe("sleep", &json!({"ms": 1}))).status, 200);
    let running = stage.begin_post(&[], &probe("sleep", &json!({"ms": 25_000})));
    let peak = stage.peak_bytes();
    for (count, said) in [(2_000_000, "more than 500000 values"), (490_000, "url")] {
        let body = json!({"connector": PROBE, "op": "fetch", "args": {"url": vec![0; count]}});
        let all: Vec<_> = (0..10).map(|_| stage.begin_post(&[], &body)).collect();
        let answers: Vec<_> = all.into_iter().map(read).collect();
        for answer in &answers {
            let word = answer.word();
            assert!(word == "busy" || (word == "validation" && answer.body.contains(said)), "{answer:?}");
        }
        assert!(answers.iter().any(|answer| answer.status == 400), "what fits the budget is looked at");
    }
    let long = probe("post", &json!({"url": stage.upstream.url("/"), "body": "x".repeat(1 << 20)}));
    let mut busy = 0;
    let waiting: Vec<_> = (0..24)
        .filter_map(|_| {
            let stream = stage.begin_post(&[], &long);
            stream.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
            let mut first = [0; 12];
            let answered = stream.peek(&mut first).is_ok_and(|length| length > 0);
            busy += u32::from(answered && first.ends_with(b" 503"));
            (!answered).then_some(stream)
        })
        .collect();
    assert!((9..24).contains(&busy) && !waiting.is_empty(), "{busy} busy, {} waiting", waiting.len());
    let cost = stage.peak_bytes().saturating_sub(peak);
    eprintln!("serve: {} KiB more", cost >> 10);
    assert!(cost < BUDGET + BESIDE, "{cost}");
    drop((running, waiting));
    // The memory of abandoned requests is free again.
    let from = std::time::Instant::now();
    while stage.post(&probe("post", &json!({"url": 1}))).word() == "busy" {
        assert!(from.elapsed().as_secs() < 30);
    }
}
