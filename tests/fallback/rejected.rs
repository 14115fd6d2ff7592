//! Chains that are refused before any candidate is tried.

use cofferdam::{ActionScope, Call, FailureClass, Fallback, HostErrorKind};
use serde_json::{Map, Value, json};

use super::fixture::{Stage, ask, fallback, other};
use crate::envelope::check_host_error;
use crate::shared_host::{failed, refused, run};

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn non_idempotent_operations_have_no_fallbacks() {
    let stage = Stage::new();
    let post = |path: &str| json!({"url": stage.a(path), "bytes": 1});
    let once = Call::new(other("a"), "post_bytes", post("/text/once"));
    let instead = fallback("b", stage.b("/text/once"));
    let said = ask("a", stage.a("/text/once")).not_idempotent();
    for (call, words) in [
        (once.or_else(instead.clone()), ["`post_bytes` of github://acme/a@0.1.0", "not idempotent"]),
        (said.or_else(instead), ["`fetch` of github://acme/a@0.1.0", "says the call itself"]),
        (
            ask("a", stage.a("/status/503/once"))
                .or_else(Fallback::new(other("b"), "post_bytes").with_args(object(post("/text/once")))),
            ["Fallback 1 of the call, `post_bytes` of github://acme/b@0.1.0", "not idempotent"],
        ),
    ] {
        let error = refused(run(stage.host.run(call)).outcome);
        check_host_error(&error);
        assert_eq!(error.kind(), HostErrorKind::Validation);
        assert!(words.iter().all(|words| error.message().contains(words)), "{error}");
        assert!(error.hint().unwrap().contains("without"), "{:?}", error.hint());
    }
    assert_eq!((stage.asked_a("/text/once"), stage.asked_a("/status/503/once")), (0, 0));
    assert_eq!(stage.asked_b("/text/once"), 0);
}

#[test]
fn an_invalid_fallback_is_refused_up_front() {
    let stage = Stage::new();
    let call = || ask("a", stage.a("/text/early"));
    let with = |args: Value| Fallback::new(other("b"), "fetch").with_args(object(args));
    for (instead, kind, words) in [
        (
            fallback("c", stage.b("/text/early")),
            HostErrorKind::ConnectorNotFound,
            "acme/c@0.1.0 is not installed",
        ),
        (Fallback::new(other("b"), "fetsh"), HostErrorKind::OpNotFound, "no operation `fetsh`"),
        (with(json!({"url": 7})), HostErrorKind::Validation, "args.url"),
        (with(json!({"model": "small"})), HostErrorKind::Validation, "model"),
        (Fallback::new(other("a"), "fetch"), HostErrorKind::Validation, "asks the same"),
    ] {
        let error = refused(run(stage.host.run(call().or_else(instead))).outcome);
        check_host_error(&error);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().starts_with("Fallback 1 of the call, "), "{error}");
        assert!(error.message().contains(words), "{error}");
        assert_eq!(error.details()["candidate"], 1);
    }
    let hint = refused(run(stage.host.run(call().or_else(Fallback::new(other("b"), "fetsh")))).outcome);
    assert!(hint.hint().unwrap().contains("`fetch`"), "{:?}", hint.hint());
    let narrow = ActionScope::new("ask@1.0.0", ["spin"], ["a.example:443"]);
    let outside = fallback("b", stage.b("/text/early")).within(narrow.unwrap());
    let failure = failed(run(stage.host.run(call().or_else(outside))).outcome);
    assert_eq!(failure.class(), FailureClass::CapabilityDenied);
    assert_eq!(failure.details()["connector"], "github://acme/b@0.1.0");
    let many = (0..17).fold(call(), |call, n| call.or_else(fallback("b", stage.b(&format!("/text/{n}")))));
    assert!(refused(run(stage.host.run(many)).outcome).message().contains("17 fallbacks"));
    assert_eq!(stage.asked_a("/text/early"), 0);
}

/// Under another key, the same would be done again.
#[test]
fn duplicate_candidates_are_refused() {
    let stage = Stage::new();
    let credential = "kind = \"bearer\"\nservice = \"acme\"\nhosts = [\"api.acme.example:443\"]";
    stage.ground.install_with("accounts", &format!("\n[[capabilities.credential]]\n{credential}\n"));
    let args = json!({"url": stage.a("/status/503/same"), "body": "charge"});
    let text = || Call::from_text(other("a"), "post", args.to_string()).idempotency_key("k");
    let value = || Call::new(other("a"), "post", args.clone());
    let again = || Fallback::new(other("a"), "post");
    let restated = || again().with_args(object(json!({"body": "charge"})));
    let accounts = || Call::new(other("accounts"), "post", args.clone());
    let account = || Fallback::new(other("accounts"), "post");
    for call in [
        text().or_else(restated()),
        value().or_else(restated()),
        text().or_else(again()),
        value().or_else(again().identity("unused", "work")),
        accounts().or_else(account().identity("acme", "default")),
        accounts().identity("acme", "work").or_else(account().identity("acme", "work")),
        accounts().identity("acme", "work").or_else(account()),
    ] {
        let error = refused(run(stage.host.run(call)).outcome);
        check_host_error(&error);
        assert!(
            error.message().contains("Fallback 1") && error.message().contains("asks the same"),
            "{error}"
        );
    }
    assert_eq!(stage.asked_a("/status/503/same"), 0);
    // Another account is another candidate: the call moves on to it, and its binding is missing.
    let failure =
        failed(run(stage.host.run(accounts().or_else(account().identity("acme", "second")))).outcome);
    assert_eq!(failure.class(), FailureClass::BindingRequired);
}

#[test]
fn oversized_arguments_are_refused_in_any_candidate() {
    let stage = Stage::new();
    let large = "x".repeat(4 * 1024 * 1024);
    let with = |body: &str| json!({"url": stage.a("/text/large"), "body": body});
    let small = || Fallback::new(other("b"), "post").with_args(object(json!({"body": "small"})));
    let half = "x".repeat(3 * 1024 * 1024);
    for call in [
        Call::new(other("a"), "post", with(&large)).or_else(small()),
        Call::from_text(other("a"), "post", with(&large).to_string()).or_else(small()),
        Call::new(other("a"), "post", with("small"))
            .or_else(Fallback::new(other("b"), "post").with_args(object(with(&large)))),
        Call::new(other("a"), "post", with(&half))
            .or_else(Fallback::new(other("b"), "post").with_args(object(json!({"url": half})))),
    ] {
        let failure = failed(run(stage.host.run(call)).outcome);
        assert_eq!((failure.class(), failure.code()), (FailureClass::ResourceLimitExceeded, "payload"));
    }
    assert_eq!(stage.asked_a("/text/large"), 0);
}

#[test]
fn duplicate_arguments_are_refused_in_a_chain() {
    let stage = Stage::new();
    let twice = format!(r#"{{"url": "{0}", "url": "{0}"}}"#, stage.a("/text/twice"));
    let call = Call::from_text(other("a"), "fetch", twice).or_else(fallback("b", stage.b("/text/twice")));
    assert_eq!(refused(run(stage.host.run(call)).outcome).kind(), HostErrorKind::Validation);
    assert_eq!(stage.asked_b("/text/twice"), 0);
}
