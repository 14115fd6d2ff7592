//! The audit log of a call: the caller and the request, each step, and a failure in the operator's view.

mod changes;
mod lost_log;
mod queries;
mod read_only;
mod unwritable;

use cofferdam::{AuditId, Call, Host, InstallOptions};
use cofferdam_runtime::call::CallResult;
use cofferdam_test_support::{Cli, Home, InstallAccepted as _, Signer, connector, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::shared_host::{example, failed, refused, run, shared_host};

/// The events of a call in order, from the audit log in `home`.
fn events(home: &Home, audit_id: &AuditId) -> Vec<Value> {
    let entries = home.host().audit().reader().unwrap().entries_of(audit_id).unwrap();
    let bodies = entries.iter().map(|entry| serde_json::from_str::<Value>(&entry.text).unwrap());
    let events: Vec<Value> = bodies.flat_map(|body| body["events"].as_array().unwrap().clone()).collect();
    let seqs: Vec<_> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=events.len() as u64).collect::<Vec<_>>(), "contiguous, from 1");
    assert_eq!(events.iter().filter(|event| event["type"] == "final").count(), 1, "one end");
    events
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

fn payload<'e>(events: &'e [Value], name: &str) -> &'e Value {
    &events.iter().find(|event| event["type"] == name).unwrap_or_else(|| panic!("no {name}"))["payload"]
}

const TOKEN: &str = "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";

fn at(host: &Host, call: Call) -> (Result<Value, cofferdam::Error>, AuditId) {
    let CallResult { outcome, report } = run(host.run(call));
    (outcome, report.audit_id)
}

#[test]
fn a_successful_call_is_logged_with_caller_and_limits() {
    let world = shared_host();
    let args = json!({"url": world.upstream.url("/text/record?value"), "body": format!("key {TOKEN}")});
    let call =
        Call::new(example("probe"), "post", args.clone()).actor("svc:billing").step_of("bill@1.0.0", "send");
    let (outcome, id) = at(&world.host, call);
    let value = outcome.unwrap();
    let events = events(&world.home, &id);
    assert_eq!(types(&events), ["received", "admitted", "attempt_started", "attempt_ended", "final"]);
    let received = payload(&events, "received");
    assert_eq!(
        (&received["actor"], &received["action"], &received["step"]),
        (&json!("svc:billing"), &json!("bill@1.0.0"), &json!("send"))
    );
    let admitted = payload(&events, "admitted");
    for (field, expected) in [
        ("repeat", json!("never")),
        ("profile", json!("standard")),
        ("key", json!("minted")),
        ("idempotency_key", Value::Null),
        ("op", Value::Null),
        ("connector", Value::Null),
        ("bindings", Value::Null),
    ] {
        assert_eq!(admitted[field], expected, "{field}");
    }
    assert!(admitted["hash"].as_str().unwrap().starts_with("sha256:") && admitted["signer"].is_string());
    assert_eq!(admitted["limits"]["wall_ms"], 30_000);
    let text = args.to_string();
    let arguments = &admitted["arguments"];
    assert_eq!(arguments["bytes"], text.len());
    assert_eq!(arguments["sha256"], cofferdam_core::digest::Digest::sha256(text.as_bytes()).to_string());
    assert_eq!(arguments["text"], text.replace(TOKEN, "[REDACTED]"));
    let ended = payload(&events, "attempt_ended");
    assert_eq!(ended["connector"], Value::Null);
    assert_eq!(received["connector"], example("probe").to_string());
    let shown =
        Cli::new(COFFERDAM, world.home.path()).run(&["audit", "show", id.as_str(), "--format", "json"]);
    let shown = shown.json()["events"].as_array().unwrap().clone();
    for name in ["admitted", "attempt_ended"] {
        assert_eq!(payload(&shown, name)["connector"], received["connector"], "{name}");
    }
    let shown = payload(&shown, "admitted");
    assert_eq!((&shown["idempotent"], &shown["unsigned"]), (&json!(false), &Value::Null));
    assert!(ended["usage"]["fuel"].as_u64() > Some(0) && ended["usage"]["requests"] == 1);
    for phase in ["admit_us", "record_us", "instantiate_us", "guest_us"] {
        assert!(ended["phases"][phase].is_u64(), "{phase}: {ended}");
    }
    let end = payload(&events, "final");
    let outcome = serde_json::to_string(&value).unwrap();
    assert_eq!(end["status"], json!("value"));
    assert_eq!(
        end["result"]["sha256"],
        cofferdam_core::digest::Digest::sha256(outcome.as_bytes()).to_string()
    );
    assert_eq!(end["result"]["text"], outcome);
}

#[test]
fn failures_are_logged_in_full_and_redacted_elsewhere() {
    let world = shared_host();
    let call = Call::new(example("probe"), "panic", json!({"message": format!("inner {TOKEN}")}));
    let CallResult { outcome, report } = run(world.host.run(call.actor("ada")));
    let failure = failed(outcome);
    let events = events(&world.home, &report.audit_id);
    let (ended, end) = (payload(&events, "attempt_ended"), payload(&events, "final"));
    let view = &ended["failure"];
    for key in ["boundary", "cause"] {
        assert!(!view[key].is_null(), "{key}: {view}");
    }
    for key in ["class", "code", "retried", "actor", "at", "audit_id", "message", "trap"] {
        assert!(view[key].is_null(), "{key} is recorded elsewhere: {view}");
    }
    let trap = &view["details"]["trap"];
    assert_eq!((&ended["class"], trap), (&json!("connector_runtime_error"), &json!("unreachable")));
    assert!(view["details"]["code"].is_null(), "{view}");
    assert!(view["chain"].as_array().unwrap().len() >= 2, "{view}");
    assert!(view["stderr"].as_str().unwrap().contains("inner [REDACTED]"), "{view}");
    // The end has only what the attempt did not know.
    assert_eq!((&end["class"], &end["failed_attempt"]), (&ended["class"], &json!(1)));
    let rest = json!({"boundary": view["boundary"], "details": {"request_sent": false}});
    assert_eq!(end["failure"], rest);
    assert!(!serde_json::to_string(&events).unwrap().contains(TOKEN));
    let envelope = serde_json::to_string(&failure).unwrap();
    assert!(!envelope.contains("inner") && !envelope.contains("wasm backtrace"), "{envelope}");

    // The reader adds the facts again.
    let mut reader = world.home.host().audit().reader().unwrap();
    let row = reader.call(&report.audit_id).unwrap().unwrap();
    let (_, read) = reader.events_of(&report.audit_id).unwrap();
    let mut read = read.iter().rev().find_map(|event| event.failure(&row)).unwrap();
    let mut view = report.operator_view().unwrap().clone();
    // The operator's view is made just before the event.
    assert!(read.remove("at").is_some() && view.remove("at").is_some() && view["actor"] == "ada");
    assert_eq!(read, view);
    let shown = Cli::new(COFFERDAM, world.home.path());
    let shown = shown.run(&["audit", "show", report.audit_id.as_str(), "--format", "json"]).json();
    assert_eq!(shown["error"]["stderr"], view["stderr"]);
    let end = payload(shown["events"].as_array().unwrap(), "final");
    assert_eq!((&end["failure"]["stderr"], &end["failed_attempt"]), (&view["stderr"], &Value::Null));
}

#[test]
fn refusals_and_retries_are_logged() {
    let world = shared_host();
    let (outcome, id) = at(&world.host, Call::new(example("probe"), "nothing", json!({})));
    assert_eq!(refused(outcome).kind().code(), "op_not_found");
    let refused = events(&world.home, &id);
    assert_eq!(types(&refused), ["received", "final"]);
    let end = payload(&refused, "final");
    assert_eq!(
        (&end["status"], &end["code"], &end["attempts"]),
        (&json!("refused"), &json!("op_not_found"), &json!(0))
    );
    assert!(end["failure"]["chain"][0].as_str().unwrap().contains("has no operation"));

    let url = world.upstream.url("/flaky/2/record");
    let (outcome, id) = at(&world.host, Call::new(example("probe"), "fetch", json!({"url": url})));
    outcome.unwrap();
    let retried = events(&world.home, &id);
    let names = types(&retried);
    assert_eq!(names.iter().filter(|name| **name == "admitted").count(), 1, "once for a candidate");
    assert_eq!(names.iter().filter(|name| **name == "attempt_ended").count(), 3);
    let wait = payload(&retried, "retry_scheduled");
    let (delay, jitter) = (wait["delay_ms"].as_i64().unwrap(), wait["jitter_us"].as_i64().unwrap());
    assert!((0..=200_000).contains(&jitter) && (delay * 1_000 - 1_000_000 - jitter).abs() < 2_000, "{wait}");
    assert_eq!(payload(&retried, "final")["retried"], 2);
}

/// What is repeated is on record before it runs: each retry adds the wait and the next attempt.
#[test]
fn a_call_takes_two_writes_and_two_a_retry() {
    let world = shared_host();
    let written = |path: &str, key: Option<&str>| {
        let call = Call::new(example("probe"), "fetch", json!({"url": world.upstream.url(path)}));
        let call = key.into_iter().fold(call, |call, key| call.idempotency_key(key));
        let (outcome, id) = at(&world.host, call);
        outcome.unwrap();
        world.home.host().audit().reader().unwrap().entries_of(&id).unwrap().len()
    };
    assert_eq!(written("/text/written", None), 2);
    assert_eq!(written("/text/written-once", Some("written-once")), 2);
    assert_eq!(written("/flaky/2/written", None), 6);
}

#[test]
fn an_unsigned_package_is_logged_as_unsigned() {
    let home = Home::new(COFFERDAM);
    let host = home.host();
    let bytes = package::pack(&package::quiet(), &package::manifest("github://acme/quiet", "1.0.0"));
    run(host.install_accepted(bytes, None, InstallOptions::default().allow_unsigned())).unwrap();
    let call = Call::new(connector("github://acme/quiet@1.0.0"), "run", json!({}));
    let (outcome, id) = at(&host, call.allow_unsigned());
    outcome.unwrap();
    let (_, events) = home.host().audit().reader().unwrap().events_of(&id).unwrap();
    let admitted = events.iter().find(|event| event.name == "admitted").unwrap().facts();
    assert_eq!((admitted.get("unsigned"), admitted.get("signer")), (Some(&json!(true)), None));
}

#[test]
fn large_texts_are_truncated_or_left_out() {
    let world = shared_host();
    let long = "é".repeat(100_000);
    let echo = |host: &Host| {
        let url = world.upstream.url("/text/record?large");
        at(host, Call::new(example("probe"), "post", json!({"url": url, "body": long})))
    };
    let id = echo(&world.host).1;
    let kept = payload(&events(&world.home, &id), "admitted")["arguments"].clone();
    let text = kept["text"].as_str().unwrap();
    assert!(
        text.ends_with(&format!("…[truncated, {} bytes]", kept["bytes"])),
        "{}",
        &text[text.len() - 60..]
    );
    assert!((65_000..66_000).contains(&text.len()), "{}", text.len());
    let builder = world.home.builder().allow_private(world.upstream.host_port());
    let id = echo(&builder.field_bytes(0).build().unwrap()).1;
    let kept = payload(&events(&world.home, &id), "admitted")["arguments"].clone();
    assert_eq!(kept.as_object().unwrap().keys().collect::<Vec<_>>(), ["bytes", "sha256"]);
}

#[test]
fn the_command_line_shows_operator_details() {
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let probe = shared_host().packages.iter().find(|(name, _)| *name == "probe").unwrap();
    run(home.install(&probe.1, &signer)).unwrap();
    let cli = Cli::new(COFFERDAM, home.path());
    let message = "message=inner words\nand \u{1b}[31mmore";
    let panic = ["call", "github://cofferdam/probe", "panic", "--arg", message];
    let with = |more: &[&str]| cli.run(&[&panic[..], more].concat()).fails(70);
    let plain = with(&[]);
    // The panic's message, each line marked as the connector's; the envelope has none of it.
    let shown = |words: &str| {
        plain.stderr.lines().any(|line| line.starts_with("connector: ") && line.contains(words))
    };
    assert!(shown("panicked at") && shown("inner words"), "{}", plain.stderr);
    assert!(plain.stderr.lines().any(|line| line.starts_with("connector: and ")), "{}", plain.stderr);
    assert!(!plain.stderr.contains('\u{1b}'), "{}", plain.stderr);
    assert!(!with(&["--format", "json"]).stderr.contains("inner words"));
    let told = with(&["--debug"]);
    let said =
        |words: &str| told.stderr.lines().any(|line| line.starts_with("debug: ") && line.contains(words));
    assert!(said("stderr: ") && said("inner words") && said("trap: \"unreachable\""), "{}", told.stderr);
    assert_eq!(told.stdout, "");
    let json: Value = serde_json::from_str(&with(&["--debug", "--format", "json"]).stdout).unwrap();
    assert!(json["debug"]["stderr"].as_str().unwrap().contains("inner words"), "{json}");
    assert!(!json["error"].to_string().contains("inner words") && json["report"].is_null());
    let id = json["error"]["audit_id"].as_str().and_then(AuditId::parse).unwrap();
    let events = events(&home, &id);
    assert_eq!(payload(&events, "attempt_ended")["failure"]["stderr"], json["debug"]["stderr"]);
    assert!(payload(&events, "received")["actor"].as_str().unwrap().starts_with("cli:"));
    cli.run(&[&panic[..], &["--debug", "--as-tool-result"]].concat()).fails(2).said("--debug");
}
