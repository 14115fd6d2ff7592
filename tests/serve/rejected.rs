//! Requests that are not calls: refused with the reason, nothing runs, and the next one is answered.

use serde_json::json;

use super::fixture::{Stage, probe, read};
use crate::envelope::check_host_json;

#[test]
fn malformed_bodies_are_refused_one_by_one() {
    let stage = Stage::new();
    let json = "content-type: application/json";
    let deep = format!(r#"{{"connector": "c", "op": "o", "args": {}"#, "[".repeat(200_000));
    for (body, said) in [
        ("", "not JSON"),
        ("{\"connector\": ", "not JSON"),
        ("null", "not a call"),
        ("[{}]", "not a call"),
        (r#"{"op": "o"}"#, "connector"),
        (r#"{"connector": "c", "op": "o", "tool": 1}"#, "`tool`"),
        (r#"{"connector": "c", "op": "o", "op": "p"}"#, "`op` stands twice"),
        (r#"{"connector": "c", "op": "o", "args": {"a": {"b": 1, "b": 2}}}"#, "`b` stands twice"),
        (r#"{"connector": "c", "op": null}"#, "expected a string"),
        (deep.as_str(), "not JSON"),
    ] {
        let answer = stage.ask("POST", "/v1/calls", &[json], body.as_bytes());
        let shown = &body[..body.len().min(100)];
        assert_eq!((answer.status, answer.word().as_str()), (400, "validation"), "{shown}: {answer:?}");
        assert!(answer.body.contains(said), "{shown}: {answer:?}");
        check_host_json(&answer.json());
    }
    let bytes = stage.ask("POST", "/v1/calls", &[json], &[0xff, 0xfe, 0x00]);
    assert_eq!(bytes.status, 400, "{bytes:?}");
    for kind in ["content-type: text/plain", "content-type: application/x-www-form-urlencoded", "x-none: 1"] {
        let answer = stage.ask("POST", "/v1/calls", &[kind], br#"{"connector": "c", "op": "o"}"#);
        assert_eq!(
            (answer.status, answer.word().as_str()),
            (415, "unsupported_media_type"),
            "{kind}: {answer:?}"
        );
    }
    let long = vec![b' '; 20 << 20];
    let answer = stage.ask("POST", "/v1/calls", &[json], &long);
    assert_eq!((answer.status, answer.word().as_str()), (413, "too_large"), "{answer:?}");
    // Nothing of this was a call.
    let list = stage.cli().run(&["audit", "list", "--format", "json"]).json();
    assert_eq!(list, json!([]));
    let url = stage.upstream.url("/text/after");
    assert_eq!(stage.post(&probe("fetch", &json!({"url": url}))).status, 200);
}

#[test]
fn unauthenticated_clients_learn_nothing() {
    let stage = Stage::new();
    let plain = |path: &str, headers: &[&str]| read(stage.begin_plain("GET", path, headers, b""));
    for path in ["/v1/audit/audit-01890000-0000-7000-8000-000000000001", "/openapi.json", "/nowhere"] {
        let answer = plain(path, &[]);
        assert_eq!((answer.status, answer.word().as_str()), (401, "unauthorized"), "{path}: {answer:?}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    assert_eq!(plain("/healthz", &[]).status, 200);
    assert_eq!(plain("/healthz", &["host: evil.example"]).status, 403);
    let other = read(stage.begin_plain("DELETE", "/healthz", &[], b""));
    assert_eq!((other.status, other.header("allow")), (405, Some("GET,HEAD")), "{other:?}");
    let origin = stage.ask("GET", "/openapi.json", &["origin: https://evil.example"], b"");
    assert_eq!((origin.status, origin.word().as_str()), (403, "origin_refused"));
    let host = stage.ask("GET", "/openapi.json", &["host: evil.example"], b"");
    assert_eq!((host.status, host.word().as_str()), (403, "host_refused"));
}

#[test]
fn unknown_paths_and_methods_are_reported() {
    let stage = Stage::new();
    for path in
        ["/", "/v1", "/v1/calls/", "/v1/calls/x", "/v2/calls", "/v1/audit/", "/v1/audit/a/b", "//v1/calls"]
    {
        let answer = stage.ask("POST", path, &["content-type: application/json"], b"{}");
        assert_eq!((answer.status, answer.word().as_str()), (404, "no_such_path"), "{path}: {answer:?}");
    }
    for (method, path, allow) in [
        ("GET", "/v1/calls", "POST"),
        ("DELETE", "/v1/calls", "POST"),
        ("POST", "/openapi.json", "GET,HEAD"),
        ("PUT", "/v1/audit/audit-01890000-0000-7000-8000-000000000001", "GET,HEAD"),
        ("POST", "/v1/audit", "GET,HEAD"),
        ("POST", "/v1/stats", "GET,HEAD"),
        ("DELETE", "/v1/connectors/github/cofferdam/hello", "GET,HEAD"),
        ("GET", "/v1/connectors/github/cofferdam/hello/operations/greet", "POST"),
        ("OPTIONS", "/v1/calls", "POST"),
        ("BREW", "/v1/calls", "POST"),
    ] {
        let answer = stage.ask(method, path, &[], b"");
        assert_eq!(
            (answer.status, answer.word().as_str()),
            (405, "method_not_allowed"),
            "{method} {path}: {answer:?}"
        );
        assert_eq!(answer.header("allow"), Some(allow), "{answer:?}");
    }
}

/// `COFFERDAM_SERVE_TOKEN=$(cat missing)` was to be a token.
#[test]
fn an_empty_token_variable_is_refused() {
    let home = cofferdam_test_support::Home::new(crate::COFFERDAM);
    let cli = cofferdam_test_support::Cli::new(crate::COFFERDAM, home.path());
    for (args, variable) in [
        (["serve", "--listen", "127.0.0.1:0"], "COFFERDAM_SERVE_TOKEN"),
        (["mcp", "--http", "127.0.0.1:0"], "COFFERDAM_MCP_TOKEN"),
    ] {
        let output = cli.command(&args).env(variable, "").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains("token"), "{said}");
    }
}
