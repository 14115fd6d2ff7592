//! Readiness, metrics and traces of servers and workers.

use std::time::{Duration, Instant};

use cofferdam_test_support::services::{Answer, ask};
use cofferdam_test_support::upstream::ScriptedReply;
use serde_json::{Value, json};

use super::fixture::{Process, Stage, tools};
use crate::telemetry::decode::spans;

fn ready(process: &Process) -> (u16, Value) {
    let Answer { status, body } = ask(process.address(), "GET", "/readyz", &[], "");
    (status, serde_json::from_str(&body).unwrap_or_else(|_| panic!("{body}")))
}

/// Waits until the process says this about its readiness.
#[track_caller]
fn becomes(process: &Process, status: u16, missing: &Value) {
    let begun = Instant::now();
    loop {
        let answer = ready(process);
        if (answer.0, &answer.1["missing"]) == (status, missing) {
            assert_eq!(answer.1["ready"], status == 200);
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{answer:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn readiness_says_what_is_missing() {
    let Some(tools) = tools() else { return };
    let mut stage = Stage::new(&tools);
    stage.submit("sleep", &json!({"ms": 1}), "sleep-1");
    let (server, worker) = (stage.serve(), stage.worker_with(&["--listen", "127.0.0.1:0"], &[]));
    becomes(&server, 200, &json!([]));
    becomes(&worker, 200, &json!([]));
    stage.nats.kill();
    becomes(&server, 503, &json!(["queue of jobs"]));
    becomes(&worker, 503, &json!(["queue of jobs"]));
    assert_eq!(ask(server.address(), "GET", "/healthz", &[], "").status, 200, "the process lives");
    let keyring = stage.home.path().join("keyring.toml");
    let kept = std::fs::read(&keyring).unwrap();
    std::fs::write(&keyring, "no keyring").unwrap();
    becomes(&server, 503, &json!(["keyring", "queue of jobs"]));
    let (_, answer) = ready(&server);
    assert!(!answer.to_string().contains(stage.home.path().to_str().unwrap()));
    std::fs::write(&keyring, kept).unwrap();
    stage.nats.restart();
    becomes(&server, 200, &json!([]));
    becomes(&worker, 200, &json!([]));
    assert_eq!(ask(server.address(), "POST", "/readyz", &[], "").status, 405);
}

#[test]
fn a_server_begins_without_its_queue() {
    let Some(tools) = tools() else { return };
    let mut stage = Stage::new(&tools);
    stage.nats.kill();
    let (server, worker) = (stage.serve(), stage.worker_with(&["--listen", "127.0.0.1:0"], &[]));
    becomes(&server, 503, &json!(["queue of jobs"]));
    stage.nats.restart();
    becomes(&server, 200, &json!([]));
    becomes(&worker, 200, &json!([]));
    let id = stage.submit_post("/text/late", "late-1");
    stage.becomes(&id, "done");
}

#[test]
fn metrics_count_the_jobs_of_a_host() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let worker = stage.worker_with(&["--listen", "127.0.0.1:0"], &[]);
    let id = stage.submit_post("/text/counted", "counted-1");
    stage.becomes(&id, "done");
    let answer = ask(worker.address(), "GET", "/metrics", &[], "");
    for line in [
        "cofferdam_jobs_total{host=\"stage\",state=\"done\"} 1",
        "cofferdam_jobs_in_flight{host=\"stage\"} 0",
        "cofferdam_job_wait_seconds_count{host=\"stage\"} 1",
        "cofferdam_calls_total{connector=\"github://cofferdam/probe\",op=\"post\",outcome=\"value\",class=\"none\"} 1",
    ] {
        assert!(answer.body.contains(line), "{line} is not in\n{}", answer.body);
    }
    assert_eq!(answer.body.matches("# EOF").count(), 1);
    assert!(answer.body.ends_with("# EOF\n"));
}

#[test]
fn a_trace_goes_through_the_queue() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let collector = cofferdam_test_support::Upstream::start();
    collector.script("/v1/traces", [ScriptedReply::status(200)]);
    let endpoint = format!("http://{}", collector.host_port());
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "100")];
    let server = {
        let args = ["serve", "--listen", "127.0.0.1:0", "--format", "json"];
        Process::start(stage.cli().command(&args).envs(env))
    };
    let mut worker = stage.worker_with(&[], &env);
    let args = json!({"url": stage.upstream.url("/text/traced"), "body": "x"});
    let request =
        json!({"call": {"connector": super::fixture::PROBE, "op": "post", "args": args}}).to_string();
    let traceparent = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = ["content-type: application/json", traceparent];
    let answer = ask(server.address(), "POST", "/v1/jobs", &headers, &request);
    let job: Value = serde_json::from_str(&answer.body).unwrap();
    stage.becomes(job["id"].as_str().unwrap(), "done");
    server.terminate();
    worker.terminate();
    worker.ended();
    let begun = Instant::now();
    loop {
        let spans = spans(&collector);
        let named = |name: &str| spans.iter().find(|span| span.name == name);
        if let (Some(submit), Some(job), Some(call)) = (named("submit"), named("job"), named("call")) {
            let trace = hex("4bf92f3577b34da6a3ce929d0e0e4736");
            assert!([submit, job, call].iter().all(|span| span.trace == trace), "{spans:#?}");
            assert_eq!(submit.parent, hex("00f067aa0ba902b7"));
            assert_eq!((&job.parent, &call.parent), (&submit.id, &job.id));
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{spans:#?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
