//! Arguments and responses are in no span and no metric.

use std::sync::Arc;

use cofferdam::{Call, ConnectorRef};
use cofferdam_runtime::metrics::Metrics;
use serde_json::json;

use super::fixture::{TRACES, collector, ran};
use crate::shared_host::{run, shared_host};

/// Given to connectors, or answered by them.
const CANARIES: [&str; 3] = ["canary-argument-4nxw", "canary-answer-8ktz", "canary-of-the-guest-2mqr"];

/// Calls with them in arguments, answers, guests' failures, and where names of operations and connectors belong.
fn calls() -> Vec<(&'static str, &'static str, serde_json::Value)> {
    let [argument, answer, guest] = CANARIES;
    let echo = shared_host().upstream.url(&format!("/text/{answer}"));
    vec![
        ("probe", "fetch", json!({"url": echo})),
        ("probe", "fail", json!({"kind": "failed", "message": guest, "detail": guest})),
        ("probe", "panic", json!({"message": guest})),
        ("probe", "fetch", json!({"url": format!("http://{argument}.example/")})),
        ("hello", "greet", json!({"name": argument})),
        ("hello", "greet", json!({argument: argument})),
        ("probe", "suppress", json!({"reason": guest, "cause": guest, "times": 1})),
    ]
}

#[track_caller]
fn silent(place: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for canary in CANARIES {
        assert!(!text.contains(canary), "{canary} is in {place}: {text}");
    }
}

#[test]
fn no_argument_and_no_answer_is_in_a_span() {
    let collector = collector();
    let endpoint = format!("http://{}", collector.host_port());
    let mut heard = 0;
    for (connector, op, args) in calls() {
        let (connector, args) = (format!("github://cofferdam/{connector}"), args.to_string());
        let ran =
            ran(&["call", &connector, op, &args, "--retry", "none"], &endpoint, &[("RUST_LOG", "trace")]);
        heard +=
            CANARIES.iter().filter(|canary| (ran.stdout.clone() + &ran.stderr).contains(**canary)).count();
    }
    assert!(heard >= 3, "the canaries were there to be told");
    let sent = collector.seen(TRACES);
    assert_eq!(sent.len(), calls().len());
    for request in sent {
        silent("a request to the collector", format!("{:?}", request.headers).as_bytes());
        silent("spans", &request.body);
    }
}

#[test]
fn metrics_contain_no_arguments_or_responses() {
    let metrics = Arc::new(Metrics::new());
    let world = shared_host();
    let host = world.home.builder().allow_private(world.upstream.host_port()).listener(metrics.clone());
    let host = host.build().unwrap();
    let mut all = calls();
    all.push(("probe", CANARIES[0], json!({})));
    all.push((CANARIES[0], "fetch", json!({})));
    let count = all.len();
    for (connector, op, args) in all {
        let connector = ConnectorRef::parse(&format!("github://cofferdam/{connector}@0.1.0")).unwrap();
        drop(run(host.run(Call::new(connector, op, args))).outcome);
    }
    let text = metrics.encode();
    silent("the metrics", text.as_bytes());
    let calls = text.lines().filter(|line| line.starts_with("cofferdam_calls_total{"));
    let counted: usize = calls.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum();
    assert_eq!(counted, count, "{text}");
}
