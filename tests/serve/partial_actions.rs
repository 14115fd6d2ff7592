//! Actions over HTTP that end with completed steps: no response claims that nothing was done, or that a retry
//! is safe if it is not; unusable actions and partial values are reported as such.

use serde_json::{Value, json};

use super::actions::{run, stage};
use super::fixture::{Answer, Stage, probe};

const JSON: &str = "content-type: application/json";

/// The action of [`stage`] under another name, otherwise written.
fn other(stage: &Stage, name: &str, change: impl Fn(&str) -> String) -> String {
    let text = std::fs::read_to_string(stage.home.path().join("post-and-get.md")).unwrap();
    let text = change(&text.replace("name = \"post-and-get\"", &format!("name = \"{name}\"")));
    std::fs::write(stage.home.path().join(format!("{name}.md")), text).unwrap();
    stage.cli().run(&["action", "add", &format!("{name}.md")]).ok();
    format!("/v1/actions/{name}/run")
}

fn ask(stage: &Stage, path: &str, headers: &[&str], url: &str) -> Answer {
    let body = json!({"args": {"text": "a", "url": url}}).to_string();
    stage.ask("POST", path, &[&[JSON], headers].concat(), body.as_bytes())
}

#[test]
fn partial_actions_are_retriable_only_with_a_key() {
    let stage = stage();
    let args = json!({"args": {"text": "a", "url": stage.upstream.url("/status/503/a?retry_after=7")}});
    // The second step fails transiently with a retry delay; the first has posted.
    let failed = run(&stage, &[], &args);
    assert_eq!((failed.status, failed.header("retry-after")), (502, None), "{failed:?}");
    let error = &failed.json()["error"];
    assert_eq!(
        (&error["class"], &error["retriable"]),
        (&json!("external_api_error"), &json!(false)),
        "{error}"
    );
    let details = &error["details"];
    assert!(details.get("retry_after_ms").is_none(), "{error}");
    assert_eq!(
        (&details["again"], &details["not_again"]),
        (&json!("ask_first"), &json!(["posted"])),
        "{error}"
    );
    assert_eq!((&details["done"], &details["step"]), (&json!(["posted"]), &json!("got")), "{error}");
    // The step's own failure is included unchanged, and logged.
    let own = &details["failure"];
    assert_eq!(
        (&own["retriable"], &own["details"]["retry_after_ms"]),
        (&json!(true), &json!(7000)),
        "{error}"
    );
    assert_eq!(own["audit_id"], error["audit_id"]);
    let id = error["audit_id"].as_str().unwrap();
    assert_eq!(stage.get(&format!("/v1/audit/{id}")).json()["error"]["retriable"], true);
    // Under a key the same request may be sent again, and the response says so.
    let keyed = run(&stage, &["idempotency-key: half-1"], &args);
    assert_eq!((keyed.status, keyed.header("retry-after")), (502, Some("7")), "{keyed:?}");
    let error = &keyed.json()["error"];
    assert_eq!(
        (&error["retriable"], &error["details"]["again"]),
        (&json!(true), &json!("under_key")),
        "{error}"
    );
    assert!(error["details"].get("failure").is_none());
    let posted = || stage.upstream.seen("/text/posted").len();
    assert_eq!(posted(), 2);
    run(&stage, &["idempotency-key: half-1"], &args);
    assert_eq!(posted(), 2, "what was said is so");
    // If no completed step is unsafe to repeat, the response is the step's envelope and nothing else.
    let reads = other(&stage, "reads", |text| {
        text.replace("op = \"post\"", "op = \"fetch\"").replace(", body = \"${args.text}\"", "")
    });
    let failed = ask(&stage, &reads, &[], &stage.upstream.url("/status/503/a?retry_after=7"));
    assert_eq!((failed.status, failed.header("retry-after")), (502, Some("7")), "{failed:?}");
    assert_eq!(failed.header("steps-done"), Some("posted"));
    let error = &failed.json()["error"];
    assert!(error["retriable"] == true && error["details"].get("again").is_none(), "{error}");
}

#[test]
fn partial_actions_never_claim_no_effect() {
    let stage = stage();
    let url = stage.upstream.url("/text/got");
    // The last step's result does not match the file's schema.
    let bad = other(&stage, "bad-output", |text| {
        text.replace("\n+++\nPosts", "\n[output]\ntype = \"object\"\nrequired = [\"none\"]\n+++\nPosts")
    });
    let answer = ask(&stage, &bad, &[], &url);
    assert_eq!((answer.status, answer.header("steps-done")), (500, Some("posted, got")), "{answer:?}");
    assert_eq!(answer.json()["error"]["details"]["again"], "ask_first", "{answer:?}");
    // An ungranted host is 403 for a call, and for an action without completed steps.
    let denied = ask(&stage, "/v1/actions/post-and-get/run", &[], "https://example.com/");
    assert_eq!((denied.status, denied.word().as_str()), (500, "capability_denied"), "{denied:?}");
    let alone = stage.post(&probe("fetch", &json!({"url": "https://example.com/"})));
    assert_eq!(alone.status, 403, "{alone:?}");
    assert_eq!(stage.upstream.seen("/text/posted").len(), 2);
}

#[test]
fn partial_values_and_replays_have_headers() {
    let stage = stage();
    let gone = stage.upstream.url("/drop");
    let all = other(&stage, "some", |text| {
        text.replace("operations = [\"post\", \"fetch\"]", "operations = [\"post\", \"fetch_all\"]")
            .replace("op = \"fetch\"", "op = \"fetch_all\"")
            .replace("url = \"${args.url}\"", &format!("urls = [\"${{args.url}}\", \"{gone}\"]"))
    });
    let asked = || ask(&stage, &all, &["idempotency-key: some-1"], &stage.upstream.url("/text/got"));
    let first = asked();
    assert_eq!((first.status, first.header("steps-partial")), (200, Some("got=1")), "{first:?}");
    assert_eq!(first.header("replayed"), None);
    let again = asked();
    assert_eq!((again.header("steps-partial"), &again.body), (Some("got=1"), &first.body), "{again:?}");
    assert_eq!(again.header("replayed"), first.header("audit-id"));
    // On the command line, too: here of the same run.
    let url = format!("url={}", stage.upstream.url("/text/got"));
    let command = ["run", "some", "text=a", &url, "--key", "some-2"];
    for _ in 0..2 {
        let ran = stage.cli().run(&command);
        assert!(
            ran.stderr.contains("the value of step got is partial: 1 of its items failed"),
            "{}",
            ran.stderr
        );
    }
    let told = stage.cli().run(&[&command[..], &["--as-tool-result"]].concat()).ok();
    assert!(told.contains("answered in part") && told.contains("replayed"), "{told}");
    // A final failure is not worth a retry, which its response says.
    let missing = || {
        let url = stage.upstream.url("/status/404/a");
        ask(&stage, "/v1/actions/post-and-get/run", &["idempotency-key: stands"], &url)
    };
    let (first, again) = (missing(), missing());
    assert_eq!((first.header("replayed"), first.status), (None, 502), "{first:?}");
    assert_eq!(again.header("replayed"), first.json()["error"]["audit_id"].as_str(), "{again:?}");
    let call = probe("post", &json!({"url": stage.upstream.url("/status/404/b"), "body": "b"}));
    let call = || stage.post_with(&["idempotency-key: stands-too"], &call);
    let (first, again) = (call(), call());
    assert_eq!(again.header("replayed"), first.json()["error"]["audit_id"].as_str(), "{again:?}");
}

#[test]
fn an_unusable_action_hides_its_file() {
    let stage = stage();
    let path = other(&stage, "breaks", str::to_owned);
    let file = stage.home.path().join("actions/breaks.md");
    let text = std::fs::read_to_string(&file).unwrap();
    for broken in [
        text.replace("${args.text}", "${steps.later.text}"),
        text.replace("+++\n", "+++\nsecret-looking line\n"),
        text.replace("version = \"0.1.0\"\nhash", "version = \"9.9.9\"\nhash"),
    ] {
        std::fs::write(&file, &broken).unwrap();
        let answer = ask(&stage, &path, &[], &stage.upstream.url("/text/got"));
        assert_eq!((answer.status, answer.word().as_str()), (422, "action_unusable"), "{answer:?}");
        for told in ["breaks.md", "later", "secret-looking", "9.9.9", "posted"] {
            assert!(!answer.body.contains(told), "{told}: {answer:?}");
        }
    }
    assert!(stage.upstream.seen("/text/posted").is_empty());
}

#[test]
fn bad_paths_and_huge_bodies_get_an_envelope() {
    let stage = stage();
    for (method, path) in [("POST", "/v1/actions/%ff/run"), ("GET", "/v1/audit/%ff")] {
        let answer = stage.ask(method, path, &[JSON], b"{}");
        assert_eq!((answer.status, answer.word().as_str()), (404, "no_such_path"), "{answer:?}");
    }
    let empties = |n: usize| vec![Value::Array(Vec::new()); n];
    let call = stage.post(&probe("fetch", &json!({"url": empties(500_001)})));
    assert_eq!((call.status, call.word().as_str()), (400, "validation"), "{}", call.status);
    assert!(call.body.contains("more than 500000 values"), "{}", call.body);
    let of = run(&stage, &[], &json!({"args": {"text": empties(50_001)}}));
    assert!(of.status == 400 && of.body.contains("more than 50000 values"), "{}", of.body);
}

#[test]
fn the_audit_api_hides_connector_text() {
    let stage = stage();
    let failed = stage.post(&probe("fail", &json!({"kind": "upstream", "message": "m"})));
    let id = failed.json()["error"]["audit_id"].as_str().unwrap().to_owned();
    assert!(failed.body.contains("as_asked"), "its own caller is told: {failed:?}");
    let shown = stage.get(&format!("/v1/audit/{id}"));
    assert_eq!(
        (shown.status, &shown.json()["error"]["class"]),
        (200, &json!("external_api_error")),
        "{shown:?}"
    );
    assert!(!shown.body.contains("as_asked"), "{shown:?}");
}
