//! The connectors over HTTP: what each may do, the types of its operations, and a path for each.

use cofferdam_test_support::Signer;
use serde_json::{Value, json};

use super::console::Browser;
use super::fixture::{Answer, Stage, probe};
use super::openapi::Described;
use crate::bindings::{fed, slack};

const HELLO: &str = "/v1/connectors/github/cofferdam/hello";
const SHOWN: &str = "/v1/connectors/{scheme}/{owner}/{repository}";
const DIFFERENCE: &str = "/v1/connectors/{scheme}/{owner}/{repository}/difference";
const OPERATION: &str = "/v1/connectors/{scheme}/{owner}/{repository}/operations/{op}";

fn call(stage: &Stage, path: &str, headers: &[&str], body: &Value) -> Answer {
    let headers = [&["content-type: application/json"], headers].concat();
    stage.ask("POST", path, &headers, body.to_string().as_bytes())
}

#[test]
fn connectors_are_listed_with_their_calls() {
    let stage = Stage::new();
    let described = Described::of(&stage.get("/openapi.json"));
    let url = |path: &str| json!({"url": stage.upstream.url(path)});
    assert_eq!(stage.post(&probe("fetch", &url("/text/a"))).status, 200);
    assert_eq!(stage.post(&probe("fetch", &url("/status/503/a"))).status, 502);
    let answer = stage.get("/v1/connectors");
    described.fits("/v1/connectors", "get", &answer);
    let list = answer.json()["connectors"].clone();
    let known = stage.cli().run(&["list", "--format", "json"]).json();
    let field = |list: &Value, name: &str| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|connector| connector[name].clone()).collect()
    };
    for name in ["name", "version", "hash", "active"] {
        assert_eq!(field(&list, name), field(&known, name));
    }
    let one = |name: &str| list.as_array().unwrap().iter().find(|it| it["name"] == name).unwrap().clone();
    let (hello, probe) = (one("github://cofferdam/hello"), one("github://cofferdam/probe"));
    assert_eq!((&probe["calls"], &probe["failed"]), (&json!(2), &json!(1)), "{list}");
    assert_eq!((&hello["calls"], &hello["last_call"]), (&json!(0), &Value::Null), "{list}");
    assert!(probe["accepted"]["by"].is_string() && probe["last_call"].is_string(), "{list}");
    assert_eq!(probe["accepted"]["signers"].as_array().unwrap().len(), 1, "{list}");
}

#[test]
fn a_connector_is_shown_with_its_grants_and_types() {
    let stage = Stage::new();
    let described = Described::of(&stage.get("/openapi.json"));
    let show = |path: &str| {
        let answer = stage.get(path);
        described.fits(SHOWN, "get", &answer);
        answer
    };
    let hello = show(HELLO).json();
    assert_eq!(hello, show(&format!("{HELLO}@0.1.0")).json());
    assert_eq!((&hello["signature"]["status"], &hello["intact"]), (&json!("trusted"), &json!(true)));
    let operation = |name: &str| {
        let all = hello["operations"].as_array().unwrap();
        all.iter().find(|operation| operation["name"] == name).unwrap().clone()
    };
    let greet = operation("greet");
    assert_eq!((&greet["effect"], &greet["repeat"]), (&json!("read_only"), &json!("always")), "{greet}");
    assert_eq!(greet["path"], format!("{HELLO}@0.1.0/operations/greet"));
    assert_eq!(greet["input"]["required"], json!(["name"]), "{greet}");
    assert_eq!(greet["input"]["properties"]["tone"]["enum"], json!(["formal", "warm"]), "{greet}");
    assert_eq!(greet["output"]["properties"]["text"], json!({"type": "string"}), "{greet}");
    for (name, limit) in hello["limits"].as_object().unwrap() {
        let amount = |of: &str| limit[of].as_u64().unwrap();
        assert!(amount("effective") == amount("default") && amount("default") <= amount("ceiling"), "{name}");
    }
    let slack = show("/v1/connectors/github/cofferdam/slack").json();
    assert_eq!(slack["grants"]["hosts"], json!(["slack.com:443"]));
    let credential = &slack["grants"]["credentials"][0];
    assert_eq!((&credential["name"], &credential["bound"]), (&json!("bearer/slack"), &json!(false)));
    let secret = "xoxb-0123456789-abcdefghij";
    fed(&stage.cli(), &["binding", "set", "bearer/slack", "--stdin"], secret).ok();
    let answer = show("/v1/connectors/github/cofferdam/slack");
    let bound = answer.json()["grants"]["credentials"][0].clone();
    assert_eq!((&bound["bound"], &bound["bindings"]), (&json!(true), &json!(["bearer/slack/default"])));
    for hidden in [secret, stage.home.path().to_str().unwrap()] {
        assert!(!answer.body.contains(hidden), "{answer:?}");
    }
}

#[test]
fn missing_connectors_have_the_usual_errors() {
    let stage = Stage::new();
    let described = Described::of(&stage.get("/openapi.json"));
    for (path, word) in [
        ("/v1/connectors/github/acme/none", "connector_not_found"),
        ("/v1/connectors/github/cofferdam/hello@9.9.9", "connector_not_found"),
        ("/v1/connectors/github/cofferdam/Hello", "no_such_path"),
        ("/v1/connectors/ftp/cofferdam/hello", "no_such_path"),
        ("/v1/connectors/github/cofferdam", "no_such_path"),
        ("/v1/connectors/github%3A%2F%2Fcofferdam%2Fhello", "no_such_path"),
    ] {
        let answer = stage.get(path);
        assert_eq!((answer.status, answer.word().as_str()), (404, word), "{path}: {answer:?}");
        described.fits(SHOWN, "get", &answer);
    }
    // A package that was changed is shown as such, and is not described.
    let file = stage.home.installed_file(&cofferdam_test_support::package::guest_package("hello", &[]));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.extend_from_slice(b"\0\x02\x01x");
    std::fs::write(&file, bytes).unwrap();
    let shown = stage.get(HELLO);
    described.fits(SHOWN, "get", &shown);
    assert_eq!((shown.status, &shown.json()["intact"]), (200, &json!(false)), "{shown:?}");
    let description = stage.get("/openapi.json?connector=github%3A%2F%2Fcofferdam%2Fhello");
    assert_eq!((description.status, description.word().as_str()), (422, "hash_mismatch"));
    described.fits("/openapi.json", "get", &description);
}

const SLACK: &str = "github://acme/slack";

/// The versions of a connector with the host that each may reach.
const VERSIONS: [(&str, &str); 3] =
    [("1.0.0", "slack.com:443"), ("1.2.0", "files.slack.com:443"), ("1.10.0", "files.slack.com:443")];

/// A stage with these versions, of which the last one is active.
fn stage_with_versions() -> Stage {
    let (stage, signer) = (Stage::with(&["--token-file", "token", "--console"]), Signer::new());
    stage.home.trust(&signer.public(), "github://acme/*");
    for (version, host) in VERSIONS {
        let file = stage.home.path().join(format!("{version}.wasm"));
        signer.write(&file, &slack(SLACK, version, host));
        stage.cli().install(&[file]).ok();
    }
    stage
}

#[test]
fn installed_versions_are_compared() {
    let stage = stage_with_versions();
    let described = Described::of(&stage.get("/openapi.json"));
    let shown = stage.get("/v1/connectors/github/acme/slack@1.2.0");
    described.fits(SHOWN, "get", &shown);
    assert_eq!(shown.json()["versions"], json!(["1.10.0", "1.0.0"]), "{shown:?}");
    let difference = |path: &str| {
        let answer = stage.get(&format!("/v1/connectors/github/{path}"));
        described.fits(DIFFERENCE, "get", &answer);
        answer
    };
    let upgrade = difference("acme/slack@1.2.0/difference?from=1.0.0").json();
    let (before, after) = (format!("{SLACK}@1.0.0"), format!("{SLACK}@1.2.0"));
    let known = stage.cli().run(&["diff", &before, &after, "--format", "json"]).json();
    for part in ["before", "after", "changes"] {
        assert_eq!(upgrade[part], known[part]);
    }
    let heaviest = json!({
        "severity": "wider", "part": "network", "subject": "files.slack.com:443",
        "what": "it may reach this host as well", "before": null, "after": "files.slack.com:443"
    });
    assert_eq!((&upgrade["wider"], &upgrade["changes"][0]), (&json!(true), &heaviest), "{upgrade}");
    // Without a version, it is the active one.
    let same = difference("acme/slack/difference?from=1.2.0").json();
    assert_eq!((&same["after"]["version"], &same["wider"]), (&json!("1.10.0"), &json!(false)), "{same}");

    for (path, status, word) in [
        ("acme/slack@1.2.0/difference", 400, "validation"),
        ("acme/slack@1.2.0/difference?from=", 400, "validation"),
        ("acme/slack@1.2.0/difference?from=latest", 400, "validation"),
        ("acme/slack@1.2.0/difference?from=1.0.0&from=1.0.0", 400, "validation"),
        ("acme/slack@1.2.0/difference?from=1.0.0&to=1.2.0", 400, "validation"),
        ("acme/slack@1.2.0/difference?from=1.2.0", 400, "validation"),
        ("acme/slack/difference?from=1.10.0", 400, "validation"),
        ("acme/slack@9.9.9/difference?from=1.0.0", 404, "connector_not_found"),
        ("acme/none/difference?from=1.0.0", 404, "connector_not_found"),
        ("Acme/slack/difference?from=1.0.0", 404, "no_such_path"),
    ] {
        let answer = difference(path);
        assert_eq!((answer.status, answer.word().as_str()), (status, word), "{path}: {answer:?}");
    }
    for (path, hint) in [
        ("acme/slack@1.2.0/difference?from=9.9.9", "Other installed versions: 1.10.0, 1.0.0."),
        ("cofferdam/hello/difference?from=9.9.9", "No other version of it is installed."),
    ] {
        let answer = difference(path);
        assert_eq!((answer.status, answer.word().as_str()), (404, "connector_not_found"), "{answer:?}");
        assert_eq!(answer.json()["error"]["details"]["suggestion"], hint, "{answer:?}");
    }
    // A package that was changed is not compared.
    let (version, host) = VERSIONS[0];
    let file = stage.home.installed_file(&slack(SLACK, version, host));
    std::fs::write(&file, slack(SLACK, version, "evil.example:443")).unwrap();
    let changed = difference("acme/slack@1.2.0/difference?from=1.0.0");
    assert_eq!((changed.status, changed.word().as_str()), (422, "hash_mismatch"), "{changed:?}");
}

#[test]
fn the_console_compares_versions() {
    let stage = stage_with_versions();
    let browser = Browser::open(&stage);
    let path = "/console/connectors/github/acme/slack@1.2.0";
    // As a form sends it: a field without a value selects nothing.
    for page in [browser.page(path), browser.page(&format!("{path}?from="))] {
        for version in ["1.10.0", "1.0.0"] {
            assert!(page.contains(&format!("href=\"{path}?from={version}\"")), "{version}: {page}");
        }
        assert!(!page.contains("Compared with"), "{page}");
    }
    let compared = browser.page(&format!("{path}?from=1.0.0"));
    for shown in ["it may do more", "<span class=\"bad\">wider</span>", "<code>files.slack.com:443</code>"] {
        assert!(compared.contains(shown), "{shown}: {compared}");
    }
    for (from, status, text) in [
        ("9.9.9", 404, "Other installed versions: 1.10.0, 1.0.0."),
        ("1.2.0", 400, "cannot be compared with itself"),
        ("%3Cscript%3E", 400, "cannot be `&lt;script&gt;`"),
    ] {
        let answer = browser.get(&format!("{path}?from={from}"));
        assert_eq!(answer.status, status, "{answer:?}");
        for shown in [text, "<h2>Limits</h2>", "?from=1.0.0"] {
            assert!(answer.body.contains(shown), "{shown}: {answer:?}");
        }
    }
    let only = browser.page("/console/connectors/github/cofferdam/hello@0.1.0");
    assert!(!only.contains("to another version"), "{only}");
    let report = stage.home.path().join("slack.html");
    stage.cli().run(&["report", SLACK, "--out", report.to_str().unwrap()]).ok();
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.contains("<h2>Limits</h2>") && !report.contains("to another version"), "{report}");
}

#[test]
fn an_operation_has_a_path_of_its_own() {
    let stage = Stage::new();
    let described = Described::of(&stage.get("/openapi.json"));
    let typed = Described::of(&stage.get("/openapi.json?connector=github%3A%2F%2Fcofferdam%2Fhello"));
    let greet = format!("{HELLO}/operations/greet");
    let run = |path: &str, headers: &[&str], body: &Value| {
        let answer = call(&stage, path, headers, body);
        described.fits(OPERATION, "post", &answer);
        answer
    };
    let ada = json!({"args": {"name": "Ada", "tone": "warm"}});
    let answer = run(&greet, &[], &ada);
    assert_eq!((answer.status, &answer.json()["attempts"]), (200, &json!(1)), "{answer:?}");
    typed.fits(&greet, "post", &answer);
    assert!(typed.accepts(&greet, &ada) && !typed.accepts(&greet, &json!({"args": {"name": 1}})));
    assert!(
        !typed.accepts(&greet, &json!({})) && !typed.accepts(&greet, &json!({"args": {}, "op": "greet"}))
    );
    let failed = run(&greet, &[], &json!({"args": {"name": ""}}));
    typed.fits(&greet, "post", &failed);
    assert_eq!(failed.word(), "connector_runtime_error", "{failed:?}");
    // With an idempotency key it is the call of `/v1/calls`.
    let key = &["idempotency-key: greet-1"];
    let first = run(&format!("{HELLO}@0.1.0/operations/greet"), key, &ada);
    let body = json!({"connector": "github://cofferdam/hello", "op": "greet", "args": ada["args"]});
    let second = stage.post_with(key, &body).json();
    assert_eq!(second["replayed"], first.json()["audit_id"], "{second}");
    for (path, body, status, word) in [
        (greet.as_str(), json!({"args": {"name": 1}}), 400, "validation"),
        (&greet, json!({"op": "greet"}), 400, "validation"),
        (&greet, json!([]), 400, "validation"),
        (&format!("{HELLO}/operations/none"), json!({}), 404, "op_not_found"),
        (&format!("{HELLO}@0.2.0/operations/greet"), json!({}), 404, "connector_not_found"),
        ("/v1/connectors/github/Acme/x/operations/a", json!({}), 404, "no_such_path"),
    ] {
        let answer = run(path, &[], &body);
        assert_eq!((answer.status, answer.word().as_str()), (status, word), "{path}: {answer:?}");
    }
    assert_eq!(stage.ask("POST", &greet, &[], b"{}").status, 415);
    assert_eq!(stage.get(&greet).status, 405);
}

#[test]
fn a_description_has_a_path_for_each_operation() {
    let stage = Stage::new();
    for (query, prefix) in [
        ("github%3A%2F%2Fcofferdam%2Fhello", HELLO.to_owned()),
        ("github://cofferdam/hello@0.1.0", format!("{HELLO}@0.1.0")),
    ] {
        let description = stage.get(&format!("/openapi.json?connector={query}")).json();
        let paths = description["paths"].as_object().unwrap();
        let shown = stage.get(HELLO).json();
        let operations: Vec<_> = shown["operations"].as_array().unwrap().iter().collect();
        assert_eq!(paths.len(), operations.len());
        for operation in operations {
            let name = operation["name"].as_str().unwrap();
            let post = &paths[&format!("{prefix}/operations/{name}")]["post"];
            assert_eq!(post["operationId"], name);
            let body = &post["requestBody"]["content"]["application/json"]["schema"];
            assert_eq!(body["properties"]["args"], operation["input"]);
            let value = &post["responses"]["200"]["content"]["application/json"]["schema"];
            assert_eq!(value["properties"]["value"], operation["output"]);
        }
        assert_eq!(description["security"], json!([{"token": []}]));
        assert!(paths.values().all(|path| {
            path["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
                .get("identities")
                .is_none()
        }));
        assert_eq!(description["info"]["version"], "0.1.0");
    }
    let slack = stage.get("/openapi.json?connector=github://cofferdam/slack").json();
    let post = &slack["paths"]["/v1/connectors/github/cofferdam/slack/operations/post_message"]["post"];
    let request = &post["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(request["properties"]["identities"]["properties"], json!({"slack": {"type": "string"}}));
    for (query, status, word) in [
        ("connector=hello", 400, "validation"),
        ("conector=github://cofferdam/hello", 400, "validation"),
        ("connector=github://acme/none", 404, "connector_not_found"),
    ] {
        let answer = stage.get(&format!("/openapi.json?{query}"));
        assert_eq!((answer.status, answer.word().as_str()), (status, word), "{answer:?}");
    }
}
