//! Declared effects of operations, and their enforcement: a real guest that violates them, and a server that
//! counts.

use std::sync::LazyLock;

use cofferdam::{Call, ConnectorRef, FailureBoundary, FailureClass, Fallback};
use cofferdam_runtime::host::AccessQuery;
use cofferdam_test_support::{ScriptedReply, connector};
use serde_json::{Value, json};

use crate::documents::fixture::{CallRecord, SeparateHome};
use crate::envelope::{Expected, check, denied};

/// Repeatable probes: `reader` is declared read-only, `writer` declares no effect.
struct Stage(SeparateHome);

/// Shared by the tests that need neither a server nor circuits of their own.
static SHARED: LazyLock<Stage> = LazyLock::new(|| Stage::with(&["reader", "writer", "adder", "dav"]));

impl Stage {
    fn with(names: &[&str]) -> Self {
        let own = SeparateHome::new(|builder, _| builder);
        let manifest = own.manifest();
        let (head, rest) = manifest.split_once("[connector.idempotency.operations]").unwrap();
        let (_, tail) = rest.split_once("[capabilities.network]").unwrap();
        for name in names {
            let table = match *name {
                "reader" => {
                    "[connector.effects]\ndefault = \"read_only\"\noperations.fetch = \"read_only\"\n"
                }
                "adder" => "[connector.effects]\ndefault = \"additive\"\n",
                // Declared repeatable by name: its requests have no key.
                _ => "[connector.idempotency.operations]\nask = \"idempotent\"\n",
            };
            let methods = if *name == "dav" { "\nmethods = [\"PROPFIND\"]" } else { "" };
            let text = format!("{head}{table}[capabilities.network]{methods}{tail}");
            own.install(&text.replace("github://cofferdam/probe", &format!("github://cofferdam/{name}")));
        }
        Self(own)
    }

    /// Has the connector request `path` with these methods, attempt by attempt.
    fn ask(&self, name: &str, path: &str, methods: &[&[&str]]) -> CallRecord {
        self.0.call(Call::new(named(name), "ask", self.args(path, methods)))
    }

    fn args(&self, path: &str, methods: &[&[&str]]) -> Value {
        json!({"url": self.0.upstream.url(path), "methods": methods, "field": null})
    }

    /// The methods that the server saw there.
    fn seen(&self, path: &str) -> Vec<String> {
        self.0.upstream.seen(path).into_iter().map(|seen| seen.method).collect()
    }
}

fn named(name: &str) -> ConnectorRef {
    connector(&format!("github://cofferdam/{name}@0.1.0"))
}

fn held() -> Expected {
    Expected { boundary: FailureBoundary::ConnectorManifest, ..denied("method_not_granted") }
}

#[test]
fn read_only_operations_may_read() {
    let stage = &*SHARED;
    for (at, method) in ["GET", "HEAD", "OPTIONS"].into_iter().enumerate() {
        let path = format!("/text/{at}");
        let told = stage.ask("reader", &path, &[&[method]]);
        assert_eq!(told.outcome.unwrap(), json!(200), "{method}");
        assert_eq!(stage.seen(&path), [method]);
    }
    let fetch = Call::new(named("reader"), "fetch", json!({"url": stage.0.upstream.url("/text/here")}));
    assert_eq!(stage.0.call(fetch).outcome.unwrap()["body"], "here");
}

#[test]
fn read_only_operations_are_denied_other_methods() {
    let stage = Stage::with(&["reader"]);
    for method in
        ["POST", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE", "QUERY", "get", "GeT", "Post", "HEADS"]
    {
        let told = stage.ask("reader", "/text/never", &[&[method]]);
        let failure = told.failure();
        check(failure, held());
        let details = failure.details();
        assert_eq!(details["requested"], format!("method:{method}"));
        assert_eq!(details["granted"], json!(["method:GET", "method:HEAD", "method:OPTIONS"]));
        assert_eq!(details["op"], "ask");
        let allow = json!({"file": "connector.toml", "table": "[connector.effects.operations]",
            "line": "ask = \"destructive\""});
        assert_eq!(details["allow"], allow);
        let place = details["declared_at"].as_str().unwrap();
        let line: usize = place.strip_prefix("connector.toml:").unwrap().parse().unwrap();
        assert_eq!(line, 9, "where the manifest says it");
        for part in [method, "ask is declared read_only", place, "ask = \"destructive\"", "then build"] {
            assert!(failure.message().contains(part), "{part}: {failure}");
        }
        assert_eq!((told.attempts(), told.waits()), (1, vec![]), "it is not tried again");
    }
    // The SDK's own functions, and an operation with its own declaration.
    for (op, args) in [
        ("post", json!({"url": stage.0.upstream.url("/text/never"), "body": "x"})),
        ("post_bytes", json!({"url": stage.0.upstream.url("/text/never"), "bytes": 70_000})),
    ] {
        check(stage.0.call(Call::new(named("reader"), op, args)).failure(), held());
    }
    assert_eq!(stage.0.upstream.connections(), 0, "not even a connection was made");
}

#[test]
fn method_override_headers_do_not_bypass_read_only() {
    let stage = &*SHARED;
    for name in ["X-HTTP-Method-Override", "x-http-method", "X-METHOD-OVERRIDE", "X_HTTP_Method_Override"] {
        let args = json!({"url": stage.0.upstream.url("/text/never"), "methods": [["GET"]], "field": name});
        let told = stage.0.call(Call::new(named("reader"), "ask", args.clone()));
        check(told.failure(), held());
        assert_eq!(told.failure().details()["requested"], format!("header:{}", name.to_ascii_lowercase()));
    }
    let fetch = json!({"url": stage.0.upstream.url("/text/never"), "name": "x-http-method", "value": "GET"});
    let told = stage.0.call(Call::new(named("reader"), "fetch_with_header", fetch));
    check(told.failure(), held());
    // Guests cannot set connection fields, so they are never sent.
    let args =
        json!({"url": stage.0.upstream.url("/text/upgrade"), "methods": [["GET"]], "field": "Upgrade"});
    assert!(stage.0.call(Call::new(named("reader"), "ask", args)).outcome.is_err());
    for path in ["/text/never", "/text/upgrade"] {
        assert_eq!(stage.seen(path), Vec::<String>::new());
    }
    // Other operations may.
    let args =
        json!({"url": stage.0.upstream.url("/text/yes"), "methods": [["GET"]], "field": "x-http-method"});
    assert_eq!(stage.0.call(Call::new(named("writer"), "ask", args)).outcome.unwrap(), 200);
    assert_eq!(stage.0.upstream.seen("/text/yes")[0].header("x-http-method"), Some("POST"));
}

#[test]
fn a_read_only_denial_is_final() {
    let stage = &*SHARED;
    for turn in 0..20 {
        let path = format!("/text/after-{turn}");
        let told = stage.ask("reader", &path, &[&["POST", "GET", "GET"]]);
        check(told.failure(), held());
        assert_eq!(stage.seen(&path), Vec::<String>::new(), "a request was admitted after the denial");
        let path = format!("/text/before-{turn}");
        check(stage.ask("reader", &path, &[&["GET", "DELETE", "GET"]]).failure(), held());
        assert_eq!(stage.seen(&path), ["GET"]);
    }
}

#[test]
fn every_attempt_is_held_to_read_only() {
    let stage = Stage::with(&["reader"]);
    let url = stage.0.upstream.script(
        "/again",
        [ScriptedReply::status(503), ScriptedReply::status(503), ScriptedReply::status(200)],
    );
    assert!(url.ends_with("/again"));
    let told = stage.ask("reader", "/again", &[&["GET"], &["HEAD"], &["POST"]]);
    check(told.failure(), held());
    assert_eq!(told.failure().class(), FailureClass::CapabilityDenied);
    assert_eq!(told.attempts(), 3, "{:?}", told.names());
    assert_eq!(stage.seen("/again"), ["GET", "HEAD"]);
}

#[test]
fn each_fallback_is_held_to_its_own_declaration() {
    let stage = Stage::with(&["reader", "writer", "adder"]);
    let chain = |first: &str, then: &str, path: &str, method: &str| {
        let call = Call::new(named(first), "ask", stage.args(path, &[&[method]]));
        stage.0.call(call.or_else(Fallback::new(named(then), "ask")))
    };
    // The first may, the second must not.
    let told = chain("writer", "reader", "/status/503?writer", "POST");
    assert_eq!(told.failure().class(), FailureClass::CapabilityDenied, "{:?}", told.outcome);
    let posts = stage.seen("/status/503?writer");
    assert_eq!(posts, ["POST"; 4], "the writer's attempts, and nothing of who was asked then");
    // The first reads and fails; the second may post.
    let methods: &[&[&str]] = &[&["GET"]];
    let call = Call::new(named("reader"), "ask", stage.args("/status/503?reader", methods));
    let args = json!({"url": stage.0.upstream.url("/text/posted"), "methods": [["POST"]], "field": null});
    let Value::Object(args) = args else { unreachable!() };
    let told = stage.0.call(call.or_else(Fallback::new(named("adder"), "ask").with_args(args)));
    assert_eq!(told.outcome.unwrap(), json!(200));
    assert_eq!(stage.seen("/text/posted"), ["POST"]);
}

#[test]
fn manifest_methods_extend_the_default_list() {
    let stage = &*SHARED;
    for method in ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] {
        let path = format!("/text/listed-{method}");
        assert_eq!(stage.ask("writer", &path, &[&[method]]).outcome.unwrap(), json!(200), "{method}");
        assert_eq!(stage.seen(&path), [method]);
    }
    assert_eq!(stage.ask("dav", "/text/dav", &[&["PROPFIND"]]).outcome.unwrap(), json!(200));
    assert_eq!(stage.seen("/text/dav"), ["PROPFIND"]);
    for (name, method, line) in [
        ("writer", "PROPFIND", Some("methods = [\"PROPFIND\"]")),
        ("dav", "REPORT", Some("methods = [\"PROPFIND\", \"REPORT\"]")),
        ("writer", "CONNECT", None),
        ("dav", "TRACE", None),
        ("writer", "TRACK", None),
        ("writer", "post", None),
    ] {
        let told = stage.ask(name, "/text/unlisted", &[&[method]]);
        check(told.failure(), held());
        let details = told.failure().details();
        assert_eq!(details["requested"], format!("method:{method}"));
        assert_eq!(details.get("allow").map(|allow| &allow["line"]), line.map(|line| json!(line)).as_ref());
        assert_eq!(details["request_sent"], false);
    }
    assert_eq!(stage.seen("/text/unlisted"), Vec::<String>::new());
}

#[test]
fn inspect_and_why_show_the_methods() {
    let stage = &*SHARED;
    let host = stage.0.host();
    assert_eq!(host.inspect(&named("dav")).unwrap().methods, ["PROPFIND"]);
    assert_eq!(host.inspect(&named("writer")).unwrap().methods, [""; 0]);
    let why = |name: &str, access: &str| {
        host.why(&named(name), &AccessQuery::parse(access).unwrap(), None).unwrap().into_result()
    };
    assert_eq!(why("dav", "method:PROPFIND").unwrap().granted_by()[0].line(), "methods = [\"PROPFIND\"]");
    assert!(why("writer", "method:PATCH").unwrap().granted_by().is_empty());
    for (name, access) in [("writer", "method:PROPFIND"), ("dav", "method:TRACE"), ("dav", "method:get")] {
        assert_eq!(why(name, access).unwrap_err().code().name(), "method_not_granted", "{name} {access}");
    }
    let notes = why("dav", &stage.0.upstream.url("/")).unwrap().notes().join(" ");
    assert!(notes.contains("It may send PROPFIND"), "{notes}");
}

#[test]
fn inspect_and_why_show_declared_effects() {
    let stage = &*SHARED;
    let host = stage.0.host();
    let of = |name: &str| {
        let inspection = host.inspect(&named(name)).unwrap();
        let whole = serde_json::to_value(&inspection).unwrap();
        let operations = whole["operations"].as_array().unwrap().clone();
        operations.iter().find(|operation| operation["name"] == "fetch").unwrap()["effect"].clone()
    };
    assert_eq!(
        [of("reader"), of("adder"), of("writer")],
        [json!("read_only"), json!("additive"), Value::Null]
    );
    let access = AccessQuery::parse(&stage.0.upstream.url("/")).unwrap();
    let notes =
        |name: &str| host.why(&named(name), &access, None).unwrap().into_result().unwrap().notes().join(" ");
    assert!(
        notes("reader").contains("declared read_only: GET, HEAD and OPTIONS pass"),
        "{}",
        notes("reader")
    );
    assert!(!notes("writer").contains("read_only"));
}

#[test]
fn inspect_shows_what_the_examples_declare() {
    let world = crate::shared_host::shared_host();
    let cli = cofferdam_test_support::Cli::new(crate::COFFERDAM, world.home.path());
    for (guest, told) in [
        ("github-issues", vec!["Declared read_only: changes nothing", "Declared additive: adds"]),
        ("s3", vec!["Declared convergent: may overwrite or remove"]),
        ("probe", vec!["Its effect is not declared: take it for destructive"]),
    ] {
        let page = cli.run(&["inspect", &format!("github://cofferdam/{guest}"), "--verbose"]).ok();
        for words in told {
            assert!(page.contains(words), "{words}: {page}");
        }
    }
}
