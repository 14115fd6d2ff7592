//! Traces: what a call did and when, in a file of its own, without secrets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use cofferdam_test_support::{Upstream, package};
use serde_json::{Value, json};

use crate::cli::example_cli;
use crate::dev::Workplace;

const GITHUB: &str = "api.github.com:443";

fn events<'t>(trace: &'t Value, category: &str) -> Vec<&'t Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == category).collect()
}

#[test]
fn a_trace_has_host_calls_requests_and_logs_without_secrets() {
    let (place, service) = (Workplace::new(), Upstream::start());
    let (package, file) = (place.path("issues.wasm"), place.path("trace.json"));
    fs::write(&package, package::guest_package("github-issues", &[])).unwrap();
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let mapping = format!("{GITHUB}=http://{}", service.host_port());
    let (code, _, stderr) = place.piped(
        &[
            "call",
            package.to_str().unwrap(),
            "list_issues",
            "{\"repository\": {\"owner\": \"acme\", \"name\": \"issues-2\"}}",
            "--dev",
            "--upstream",
            &mapping,
            "--bind",
            &format!("bearer/github=@{}", place.token()),
            "--trace",
            file.to_str().unwrap(),
            "--format",
            "json",
        ],
        "",
    );
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(
        file.metadata().unwrap().permissions().mode() & 0o777,
        0o600,
        "also in the place of a readable file"
    );
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("ghp-development-token"), "{text}");
    let trace: Value = serde_json::from_str(&text).unwrap();

    let requests = events(&trace, "request");
    let request = requests[0];
    assert!(
        request["name"].as_str().unwrap().starts_with(&format!("GET {GITHUB}/repos/acme/issues-2/issues?"))
    );
    assert_eq!((&request["ph"], &request["args"]["status"]), (&json!("X"), &json!(200)));
    assert_eq!(request["args"]["credentials"], json!(["bearer/github/default"]));
    assert!(request["args"]["request_headers"].to_string().contains("accept"), "{request}");
    assert!(request["args"]["response_body"].as_str().unwrap().starts_with('['), "{request}");

    let calls = events(&trace, "host_call");
    let named = |name: &str| calls.iter().any(|call| call["name"].as_str().unwrap().contains(name));
    assert!(named("outgoing-handler.handle") && named("pollable.block"), "{calls:?}");
    let fuel: Vec<_> = calls.iter().map(|call| call["args"]["fuel"].as_u64().unwrap()).collect();
    assert!(fuel.is_sorted() && fuel[0] < fuel[fuel.len() - 1], "{fuel:?}");
    // A call is over before the attempt is.
    let attempt = events(&trace, "attempt")[0];
    let end = |event: &Value| event["ts"].as_f64().unwrap() + event["dur"].as_f64().unwrap();
    assert!(calls.iter().all(|call| end(call) <= end(attempt)), "{attempt}");

    let shown = place.cli.run(&["trace", "show", file.to_str().unwrap(), "--verbose"]).ok();
    assert!(
        shown.contains("-> 200, with bearer/github/default") && shown.contains("< content-type"),
        "{shown}"
    );
}

#[test]
fn a_failed_call_in_a_home_has_a_trace_too() {
    let place = Workplace::new();
    let file = place.path("trace.json");
    let call = ["call", "github://cofferdam/probe", "panic", "--arg", "message=lost"];
    let failed = example_cli().run(&[&call[..], &["--trace", file.to_str().unwrap()]].concat()).fails(70);
    assert!(failed.stderr.contains("  in "), "{failed:?}");
    let trace: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let attempt = events(&trace, "attempt")[0];
    assert_eq!(attempt["args"]["failure"], "connector_runtime_error.trap");
    // The package has no names: the functions have numbers.
    assert!(attempt["args"]["frames"][0].as_str().unwrap().starts_with("function "), "{attempt}");
}

#[test]
fn another_file_is_no_trace() {
    let place = Workplace::new();
    let file = place.path("other.json");
    for text in ["", "{}", "[1]", "{\"traceEvents\": 7}"] {
        fs::write(&file, text).unwrap();
        let shown = place.cli.run(&["trace", "show", file.to_str().unwrap()]).fails(65);
        assert!(shown.stderr.contains("is not a trace"), "{shown:?}");
    }
    let fifo = place.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    for file in [place.path("missing/trace.json"), place.path(""), fifo] {
        let args = ["call", "github://acme/none", "x", "--trace", file.to_str().unwrap()];
        let refused = place.cli.run(&args);
        assert!(refused.stderr.contains("cannot be written"), "found out before the call: {refused:?}");
    }
}
