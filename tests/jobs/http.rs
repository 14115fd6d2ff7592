//! Jobs over HTTP.

use cofferdam_test_support::services::{Answer, ask};
use serde_json::{Value, json};

use super::fixture::{PROBE, Process, Stage, tools};

const JSON: &str = "content-type: application/json";

fn body(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{answer:?}"))
}

fn post(server: &Process, key: &str, request: &Value) -> Answer {
    let key = format!("idempotency-key: {key}");
    ask(server.address(), "POST", "/v1/jobs", &[JSON, &key], &request.to_string())
}

fn call(stage: &Stage, path: &str) -> Value {
    let args = json!({"url": stage.upstream.url(path), "body": "x"});
    json!({"call": {"connector": PROBE, "op": "post", "args": args}})
}

#[test]
fn a_job_is_submitted_and_seen_over_http() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    let (server, other) = (stage.serve(), stage.serve());
    let submitted = post(&server, "order-1", &call(&stage, "/text/web"));
    assert_eq!(submitted.status, 202, "{submitted:?}");
    let job = body(&submitted);
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    assert_eq!((&job["state"], &job["idempotency_key"]), (&"queued".into(), &"order-1".into()));
    assert_eq!(
        post(&other, "order-1", &call(&stage, "/text/web")).status,
        200,
        "the same job on another host"
    );
    let conflict = post(&other, "order-1", &call(&stage, "/text/else"));
    assert_eq!((conflict.status, &body(&conflict)["error"]["code"]), (409, &"idempotency_conflict".into()));
    let _worker = stage.worker();
    // The time of the last change is that of the record, which may be a moment behind the audit log.
    let timeless = |mut job: Value| {
        job.as_object_mut().unwrap().remove("updated_at").unwrap();
        job
    };
    let seen = loop {
        let seen = timeless(body(&ask(other.address(), "GET", &path, &[], "")));
        if seen["state"] == "done" {
            break seen;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    assert_eq!(seen["value"]["body"], "web", "{seen}");
    let again = timeless(body(&ask(server.address(), "GET", &path, &[], "")));
    assert_eq!(again, seen, "every host gives the same answer");
    // The outcome is for the actor that submitted it.
    let by_command = stage.job(job["id"].as_str().unwrap());
    assert_eq!((&by_command["state"], &by_command["value"]), (&"done".into(), &Value::Null), "{by_command}");
    // Without a key one is made, and returned.
    let made = ask(server.address(), "POST", "/v1/jobs", &[JSON], &call(&stage, "/text/made").to_string());
    assert!(body(&made)["idempotency_key"].as_str().unwrap().starts_with("job-key-"), "{made:?}");
    let missing = ask(server.address(), "GET", "/v1/jobs/job-00112233445566778899aabbccddeeff", &[], "");
    assert_eq!((missing.status, &body(&missing)["error"]["code"]), (404, &"job_not_found".into()));
    let wrong = post(&server, "wrong-1", &json!({"call": {"connector": PROBE}}));
    assert_eq!((wrong.status, &body(&wrong)["error"]["code"]), (400, &"validation".into()));
    let cancelled = ask(server.address(), "POST", &format!("{path}/cancel"), &[JSON], "");
    assert_eq!(cancelled.status, 409, "{cancelled:?}");
}

#[test]
fn a_full_queue_is_503_over_http() {
    let Some(tools) = tools() else { return };
    let mut stage = Stage::with(&tools, "max_jobs = 1");
    let server = stage.serve();
    assert_eq!(post(&server, "one", &call(&stage, "/text/one")).status, 202);
    let busy = post(&server, "two", &call(&stage, "/text/two"));
    let error = &body(&busy)["error"];
    assert_eq!((busy.status, &error["code"]), (503, &"busy".into()));
    assert_eq!(error["details"]["idempotency_key"], "two");
    stage.nats.kill();
    let away = post(&server, "three", &call(&stage, "/text/three"));
    let error = &body(&away)["error"];
    assert_eq!((away.status, &error["code"]), (503, &"queue_unavailable".into()));
    assert!(!error.to_string().contains("127.0.0.1"), "{error}");
    // Without the key that was made for it, the client could not submit the same job again.
    let made = ask(server.address(), "POST", "/v1/jobs", &[JSON], &call(&stage, "/text/four").to_string());
    let error = &body(&made)["error"];
    assert!(
        error["details"]["idempotency_key"].as_str().is_some_and(|key| key.starts_with("job-key-")),
        "{error}"
    );
}

#[test]
fn without_a_queue_there_are_no_jobs() {
    let Some(tools) = tools() else { return };
    let stage = Stage::new(&tools);
    std::fs::write(stage.home.path().join("config.toml"), "").unwrap();
    let server = stage.serve();
    assert_eq!(post(&server, "one", &call(&stage, "/text/one")).status, 404);
    let described = ask(server.address(), "GET", "/openapi.json", &[], "");
    assert!(!described.body.contains("/v1/jobs"));
    for line in ["submit call github://cofferdam/probe sleep", "worker", "jobs list"] {
        let args: Vec<_> = line.split(' ').chain(["--format", "json"]).collect();
        let error = stage.cli().run(&args).fails(64).envelope();
        assert_eq!(error["error"]["code"], "configuration", "{line}");
        assert!(error["error"]["details"]["suggestion"].as_str().unwrap().contains("COFFERDAM_NATS_URL"));
    }
}
