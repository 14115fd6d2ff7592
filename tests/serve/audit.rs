//! The audit log over HTTP: pages of calls, one call with its attempts, and statistics.

use cofferdam_core::digest::Digest;
use serde_json::{Value, json};

use super::fixture::{PROBE, Stage, probe};
use super::openapi::Described;

/// A server with six calls, and the ids of those that were accepted, the newest first.
fn stage() -> (Stage, Vec<String>) {
    let stage = Stage::new();
    let url = |path: &str| json!({"url": stage.upstream.url(path)});
    let mut ids = Vec::new();
    for call in [
        probe("fetch", &url("/text/a")),
        probe("fetch", &url("/status/503/a")),
        probe("fetch", &json!({"url": "https://example.com/hidden-path"})),
        probe("panic", &json!({"message": "a hidden message"})),
        probe("none", &json!({})),
        json!({"connector": "github://cofferdam/hello", "op": "greet", "args": {"name": "hidden name"}}),
    ] {
        let told = stage.post(&call).json();
        let id = told["audit_id"].as_str().or(told["error"]["audit_id"].as_str());
        ids.extend(id.map(str::to_owned));
    }
    ids.reverse();
    (stage, ids)
}

/// The ids of the calls in an answer.
fn ids(page: &Value) -> Vec<&str> {
    page["calls"].as_array().unwrap().iter().map(|call| call["audit_id"].as_str().unwrap()).collect()
}

#[test]
fn calls_are_filtered_and_paged() {
    let (stage, known) = stage();
    let described = Described::of(&stage.get("/openapi.json"));
    let page = |query: &str| {
        let answer = stage.get(&format!("/v1/audit{query}"));
        described.fits("/v1/audit", "get", &answer);
        assert_eq!(answer.status, 200, "{query}: {answer:?}");
        answer.json()
    };
    let all = page("");
    assert_eq!((ids(&all).len(), &all["next"]), (6, &Value::Null), "{all}");
    assert!(known.iter().all(|id| ids(&all).contains(&id.as_str())), "{all}");
    assert_eq!(all["calls"], stage.cli().run(&["audit", "list", "--format", "json"]).json());
    for (query, calls) in [
        ("?connector=github%3A%2F%2Fcofferdam%2Fprobe", 5),
        ("?connector=github://cofferdam/hello@0.1.0", 1),
        ("?connector=github://cofferdam/hello@9.9.9", 0),
        ("?op=fetch", 3),
        ("?class=external_api_error", 1),
        ("?code=op_not_found", 1),
        ("?status=refused", 1),
        ("?status=incomplete", 0),
        ("?failed=true&op=fetch", 2),
        ("?actor=http", 6),
        ("?actor=host", 0),
        ("?action=none", 0),
        ("?since=2000-01-01T00:00:00Z&until=2000-01-02T00:00:00Z", 0),
        ("?since=2000-01-01T00:00:00Z", 6),
    ] {
        assert_eq!(ids(&page(query)).len(), calls, "{query}");
    }
    let mut pages: Vec<Value> = Vec::new();
    let mut query = "?limit=4".to_owned();
    loop {
        let next = page(&query);
        pages.extend(next["calls"].as_array().unwrap().iter().cloned());
        let Some(before) = next["next"].as_str() else { break };
        query = format!("?limit=4&before={before}");
    }
    assert_eq!(Value::from(pages), all["calls"]);
    for query in ["?limit=0", "?limit=1001", "?before=x", "?since=yesterday", "?actr=a", "?op=a&op=b", "?op="]
    {
        let answer = stage.get(&format!("/v1/audit{query}"));
        described.fits("/v1/audit", "get", &answer);
        let error = answer.json();
        assert_eq!((answer.status, answer.word().as_str()), (400, "validation"), "{query}");
        assert!(error["error"]["message"].as_str().unwrap().contains('`'), "{error}");
    }
}

#[test]
fn calls_are_found_by_their_idempotency_key() {
    let stage = Stage::new();
    let described = Described::of(&stage.get("/openapi.json"));
    let call = probe("fetch", &json!({"url": stage.upstream.url("/text/keyed")}));
    let keyed = stage.post_with(&["idempotency-key: order-17"], &call).json();
    assert_eq!(stage.post(&call).status, 200);
    let hash = Digest::sha256(b"order-17");
    let sha256 = format!("sha256:{hash}");
    for (key, found) in [("order-17", 1), (sha256.as_str(), 1), ("order-18", 0)] {
        let answer = stage.get(&format!("/v1/audit?key={key}"));
        described.fits("/v1/audit", "get", &answer);
        let page = answer.json();
        assert_eq!(ids(&page).len(), found, "{key}: {page}");
        assert!(ids(&page).iter().all(|id| keyed["audit_id"] == *id), "{key}: {page}");
    }
    for wrong in ["", "secret:17", "sha256:secret", "a%20secret"] {
        let answer = stage.get(&format!("/v1/audit?key={wrong}"));
        described.fits("/v1/audit", "get", &answer);
        assert_eq!((answer.status, answer.word().as_str()), (400, "validation"), "{wrong}");
        assert!(!answer.body.contains("secret"), "{answer:?}");
    }
    assert_eq!(stage.get("/v1/stats?key=order-17").status, 400);
}

#[test]
fn a_call_has_its_place_in_the_chain() {
    let stage = Stage::new();
    let call = probe("fetch", &json!({"url": stage.upstream.url("/text/a")}));
    let id = stage.post(&call).json()["audit_id"].as_str().unwrap().to_owned();
    let shown = stage.get(&format!("/v1/audit/{id}")).json();
    let export = stage.cli().run(&["audit", "export", "-"]).ok();
    let lines: Vec<(&str, Value)> =
        export.lines().map(|line| (line, serde_json::from_str(line).unwrap())).collect();
    let of_call = lines.iter().filter(|(_, entry)| entry["audit_id"] == id.as_str());
    let hashes: Vec<_> = of_call
        .map(|(line, entry)| (entry["n"].clone(), Digest::sha256(line.as_bytes()).to_string()))
        .collect();
    let command = stage.cli().run(&["audit", "show", &id, "--format", "json"]).json();
    let entries = command["entries"].as_array().unwrap();
    let named =
        entries.iter().map(|entry| (entry["n"].clone(), entry["sha256"].as_str().unwrap().to_owned()));
    assert_eq!((entries.len(), &named.collect::<Vec<_>>()), (2, &hashes), "{command}");
    for entry in entries {
        assert!(lines.iter().any(|(_, line)| line["journal"] == entry["writer"]), "{entry}");
    }
    let places = entries.iter().map(|entry| json!({"writer": entry["writer"], "n": entry["n"]}));
    assert_eq!(shown["entries"], places.collect::<Value>());
    assert!(stage.cli().run(&["audit", "show", &id]).ok().contains(&hashes[1].1));
}

#[test]
fn a_call_has_its_attempts_without_contents() {
    let (stage, known) = stage();
    let described = Described::of(&stage.get("/openapi.json"));
    let mut attempts = Vec::new();
    for id in &known {
        let answer = stage.get(&format!("/v1/audit/{id}"));
        described.fits("/v1/audit/{id}", "get", &answer);
        for hidden in ["hidden", "/text/a", "/status/503", stage.home.path().to_str().unwrap()] {
            assert!(!answer.body.contains(hidden), "{hidden}: {answer:?}");
        }
        let call = answer.json();
        assert_eq!(call["hash"].as_str().unwrap().len(), "sha256:".len() + 64, "{call}");
        assert!(call["signer"].is_string(), "{call}");
        assert_eq!(call["ended_attempts"][0]["connector"], call["connector"], "{call}");
        attempts.push(call["ended_attempts"][0].clone());
    }
    let [greet, _, denied, failed, fetched] = attempts.as_slice() else { panic!("{attempts:?}") };
    assert_eq!((&greet["status"], &greet["requests"]), (&json!("value"), &json!([])));
    assert!(greet["usage"]["fuel"].as_u64() > Some(0) && greet["phases"]["guest_us"].is_u64(), "{greet}");
    let request = |attempt: &Value| {
        let request = &attempt["requests"][0];
        (request["method"].clone(), request["status"].clone(), request["host"].clone())
    };
    let host = json!(stage.upstream.host_port());
    assert_eq!(request(fetched), (json!("GET"), json!(200), host.clone()));
    assert_eq!(request(failed), (json!("GET"), json!(503), host));
    assert_eq!(request(denied), (json!("GET"), Value::Null, json!("example.com:443")));
    assert_eq!((&failed["class"], &failed["code"]), (&json!("external_api_error"), &json!("unavailable")));
}

#[test]
fn statistics_are_those_of_the_command() {
    let (stage, _) = stage();
    let described = Described::of(&stage.get("/openapi.json"));
    for (query, args) in [
        ("", &[][..]),
        ("?by=operation&usage=true", &["--by", "operation", "--usage"]),
        ("?by=host&usage=true", &["--by", "host", "--usage"]),
        ("?by=code&failed=true", &["--by", "code", "--failed"]),
        ("?by=actor&actor=http", &["--by", "actor", "--actor", "http"]),
        ("?actor=nobody", &["--actor", "nobody"]),
        (
            "?connector=github://cofferdam/probe&op=fetch",
            &["--connector", "github://cofferdam/probe", "--op", "fetch"],
        ),
    ] {
        let answer = stage.get(&format!("/v1/stats{query}"));
        described.fits("/v1/stats", "get", &answer);
        let command = [&["audit", "stats", "--format", "json"], args].concat();
        assert_eq!(answer.json(), stage.cli().run(&command).json(), "{query}");
    }
    let used = stage.get(&format!("/v1/stats?usage=true&connector={PROBE}")).json();
    let fuel = &used["by_connector"][0]["usage"]["fuel"];
    assert!(fuel["max"].as_u64() > Some(0) && fuel["limit"].as_u64() > fuel["max"].as_u64(), "{used}");
    let usage = &used["by_connector"][0]["usage"];
    let response = &usage["response_bytes"];
    assert_eq!(response["limit"], 10 * 1024 * 1024, "{used}");
    assert!(response["max"].as_u64() > Some(0), "{used}");
    let ranges = response["ranges"].as_array().unwrap();
    let attempts: u64 = ranges.iter().map(|range| range["attempts"].as_u64().unwrap()).sum();
    // Those without a response have one of 0 bytes.
    assert_eq!((&ranges[0]["from"], attempts), (&json!(0), usage["attempts"].as_u64().unwrap()), "{used}");
    for query in ["?by=week", "?usage=yes", "?limit=1", "?by=actor&by=code"] {
        let answer = stage.get(&format!("/v1/stats{query}"));
        described.fits("/v1/stats", "get", &answer);
        assert_eq!((answer.status, answer.word().as_str()), (400, "validation"), "{query}");
    }
}

#[test]
fn an_empty_log_has_no_calls() {
    let stage = Stage::new();
    let described = Described::of(&stage.get("/openapi.json"));
    for path in ["/v1/audit", "/v1/stats"] {
        let answer = stage.get(path);
        described.fits(path, "get", &answer);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!(stage.get("/v1/audit").json(), json!({"calls": [], "next": null}));
}
