//! Calls that work: every shape of value through JSON, and an API with pages.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam::{Call, HostErrorKind};
use serde_json::{Value, json};

use crate::envelope;
use crate::shared_host::{example, refused, run, shared_host};

#[test]
fn every_shape_of_value_is_returned_as_json() {
    let world = shared_host();
    let hello = |op: &str, args: Value| world.value("hello", op, args);
    assert_eq!(
        hello("greet", json!({"name": "Ada"})),
        json!({"text": "Good day, Ada.", "length": 14}),
        "an option may be left out"
    );
    assert_eq!(hello("greet", json!({"name": "Zoë", "tone": "warm"}))["text"], "Hello, dear Zoë!");
    assert_eq!(hello("greet", json!({"name": "Ada", "tone": null}))["text"], "Good day, Ada.");
    let scalars = json!({
        "truth": true, "small": 255, "short": -32768, "big": u64::MAX, "low": i64::MIN,
        "fraction": -0.5, "letter": "ß", "text": "a\u{0}\n\"\\ 🦀",
    });
    assert_eq!(hello("echo_scalars", json!({"value": scalars})), scalars);
    let shapes = json!(["empty", {"circle": 1.0}, {"rectangle": [2, 3.5]}]);
    assert_eq!(hello("areas", json!({"shapes": shapes})), json!([0.0, std::f64::consts::PI, 7.0]));
    let rights = json!({"one": ["read", "write"], "other": ["write", "share"]});
    assert_eq!(hello("common_rights", rights), json!(["write"]));
    assert_eq!(hello("reverse", json!({"bytes": "AAEC/w=="})), json!("/wIBAA=="));
    assert_eq!(
        hello("parse_all", json!({"texts": ["12", "x", "-9223372036854775808"]})),
        json!([{"ok": 12}, {"err": "x"}, {"ok": i64::MIN}])
    );
    assert_eq!(hello("divide", json!({"dividend": -7, "divisor": 2})), json!([-3, -1]));
    assert_eq!(hello("nothing", json!({})), Value::Null);
}

#[test]
fn a_megabyte_of_bytes_round_trips() {
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
    let args = json!({ "bytes": STANDARD.encode(bytes) });
    assert_eq!(shared_host().value("hello", "reverse", args), json!(STANDARD.encode(reversed)));
}

#[test]
fn nested_options_distinguish_none_from_some_none() {
    let people = json!([
        {"full_name": "A", "nick_names": []},
        {"full_name": "B", "age": 30, "address": {"some": null}, "nick_names": ["b", ""]},
        {"full_name": "C", "age": 40, "address": {"some": "here"}, "nick_names": []},
    ]);
    let sorted = shared_host().value("hello", "by_age", json!({"people": people}));
    let names: Vec<_> = sorted.as_array().unwrap().iter().map(|person| &person["full_name"]).collect();
    assert_eq!(names, ["C", "B", "A"]);
    assert_eq!(
        [&sorted[2]["address"], &sorted[1]["address"], &sorted[0]["address"]],
        [&Value::Null, &json!({"some": null}), &json!({"some": "here"})]
    );
}

#[test]
fn numbers_without_a_json_form_are_strings() {
    let scalars = |fraction: Value, big: Value| {
        json!({"value": {"truth": false, "small": 0, "short": 0, "big": big, "low": "-9223372036854775808",
                         "fraction": fraction, "letter": "x", "text": ""}})
    };
    for word in ["NaN", "Infinity", "-Infinity"] {
        let echoed =
            shared_host().value("hello", "echo_scalars", scalars(json!(word), json!("18446744073709551615")));
        assert_eq!(echoed["fraction"], word);
        assert_eq!((&echoed["big"], &echoed["low"]), (&json!(u64::MAX), &json!(i64::MIN)));
    }
}

#[test]
fn invalid_arguments_are_rejected_with_their_path() {
    let good = json!({"truth": true, "small": 1, "short": 1, "big": 1, "low": 1, "fraction": 1, "letter": "x", "text": ""});
    let scalars = |field: &str, value: Value| {
        let mut scalars = good.clone();
        scalars[field] = value;
        json!({"value": scalars})
    };
    let cases = [
        ("greet", json!({"name": 7}), "args.name"),
        ("greet", json!({}), "name"),
        ("greet", json!({"name": "x", "tone": "rude"}), "args.tone"),
        ("greet", json!({"name": "x", "tome": "warm"}), "tome"),
        ("greet", json!("Ada"), "args"),
        ("echo_scalars", scalars("small", json!(256)), "args.value.small"),
        ("echo_scalars", scalars("short", json!(-32769)), "args.value.short"),
        ("echo_scalars", scalars("big", json!(-1)), "args.value.big"),
        ("echo_scalars", scalars("big", json!("18446744073709551616")), "args.value.big"),
        ("echo_scalars", scalars("low", json!(1.5)), "args.value.low"),
        ("echo_scalars", scalars("letter", json!("xy")), "args.value.letter"),
        ("echo_scalars", scalars("letter", json!("")), "args.value.letter"),
        ("echo_scalars", scalars("truth", json!("true")), "args.value.truth"),
        ("echo_scalars", scalars("more", json!(1)), "more"),
        ("areas", json!({"shapes": ["empty", {"circle": "x"}]}), "args.shapes[1]"),
        ("areas", json!({"shapes": [{"rectangle": [1]}]}), "args.shapes[0]"),
        ("areas", json!({"shapes": ["triangle"]}), "args.shapes[0]"),
        ("areas", json!({"shapes": [{"circle": 1, "empty": null}]}), "args.shapes[0]"),
        ("common_rights", json!({"one": ["read"], "other": ["own"]}), "args.other"),
        ("reverse", json!({"bytes": "not base64!"}), "args.bytes"),
        (
            "by_age",
            json!({"people": [{"full_name": "A", "age": 256, "nick_names": []}]}),
            "args.people[0].age",
        ),
        ("by_age", json!({"people": [{"full_name": "A"}]}), "nick_names"),
    ];
    for (op, args, path) in cases {
        let error = refused(shared_host().call("hello", op, args.clone()));
        assert_eq!(error.kind(), HostErrorKind::Validation, "{op} {args}");
        assert!(error.message().contains(path), "{op} {args}: {}", error.message());
        envelope::check_host_error(&error);
    }
}

#[test]
fn arguments_that_are_too_large_are_a_limit() {
    let text = "x".repeat(5 * 1024 * 1024);
    let failure = shared_host().failure("hello", "greet", json!({"name": text}));
    envelope::check(&failure, envelope::limit("payload"));
}

#[test]
fn unknown_names_are_rejected_with_suggestions() {
    let error = refused(shared_host().call("hello", "greeet", json!({})));
    assert_eq!(error.kind(), HostErrorKind::OpNotFound);
    assert!(error.hint().unwrap().contains("`greet`"), "{:?}", error.hint());
    let unknown = cofferdam_test_support::connector("github://cofferdam/helo@0.1.0");
    let error = refused(run(shared_host().host.call(&unknown, "greet", json!({}))));
    assert_eq!(error.kind(), HostErrorKind::ConnectorNotFound);
    assert!(error.hint().unwrap().contains("github://cofferdam/hello@0.1.0"), "{:?}", error.hint());
}

#[test]
fn a_call_knows_its_key_its_attempt_and_its_deadline() {
    let world = shared_host();
    let first = world.value("probe", "call_info", json!({}));
    let second = world.value("probe", "call_info", json!({}));
    assert_eq!(first["attempt"], 1);
    assert!(first["deadline_ms"].as_u64().unwrap() <= 30_000);
    assert!(first["deadline_ms"].as_u64().unwrap() > 0);
    assert_ne!(first["idempotency_key"], second["idempotency_key"], "a new call has a new key");
    let call = Call::new(example("probe"), "call_info", json!({})).idempotency_key("order-17");
    assert_eq!(run(world.host.run(call)).outcome.unwrap()["idempotency_key"], "order-17");
    for bad in ["", "two words", "line\nend", "order~1", "order:post", &"x".repeat(201)] {
        let call = Call::new(example("probe"), "call_info", json!({})).idempotency_key(bad);
        assert_eq!(refused(run(world.host.run(call)).outcome).kind(), HostErrorKind::Validation, "{bad:?}");
    }
}

#[test]
fn a_guest_sees_nothing_of_the_machine() {
    let world = shared_host();
    let found = world.value("probe", "env", json!({}));
    assert_eq!(found["environment"], json!([]), "{found}");
    assert!(found["arguments"].as_array().unwrap().iter().all(|argument| argument == ""), "{found}");
    let root = found["root"].to_string();
    assert!(!root.contains("etc") && !root.contains("usr"), "{found}");
    let clock = world.value("probe", "clock", json!({}));
    assert!(clock["wall_ms"].as_u64().unwrap() > 1_700_000_000_000, "{clock}");
    let random = |_| world.value("probe", "random", json!({"bytes": 32})).to_string();
    assert_eq!((0..3).map(random).collect::<HashSet<_>>().len(), 3, "randomness is random");
}

fn repository(name: &str) -> Value {
    json!({"owner": "acme", "name": name, "base_url": shared_host().upstream.url("")})
}

fn list(name: &str, limit: Value) -> Value {
    shared_host().value(
        "github-issues",
        "list_issues",
        json!({"repository": repository(name), "limit": limit}),
    )
}

#[test]
fn issues_are_listed_across_pages_by_link() {
    let all = list("issues-250", json!(1000));
    let numbers: Vec<_> = all["issues"].as_array().unwrap().iter().map(|issue| &issue["number"]).collect();
    assert_eq!(numbers.len(), 250);
    assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), 250, "none twice");
    assert_eq!(all["more"], false);
    assert_eq!(shared_host().upstream.seen("/repos/acme/issues-250/issues?").len(), 3, "100 a page");
    let some = list("issues-251", json!(120));
    assert_eq!((some["issues"].as_array().unwrap().len(), &some["more"]), (120, &json!(true)));
    assert_eq!(
        shared_host().upstream.seen("/repos/acme/issues-251/issues?").len(),
        2,
        "no page more than needed"
    );
    assert_eq!(list("issues-0", Value::Null), json!({"issues": [], "more": false}));
}

#[test]
fn an_issue_is_fetched() {
    let issue = shared_host().value(
        "github-issues",
        "get_issue",
        json!({"repository": repository("issues-9"), "number": 7}),
    );
    assert_eq!((&issue["number"], &issue["state"]), (&json!(7), &json!("open")));
    assert_eq!((&issue["author"], &issue["labels"]), (&json!("octocat"), &json!(["bug"])));
}

#[test]
fn an_issue_is_created_once_per_idempotency_key() {
    let world = shared_host();
    let args = json!({"repository": repository("issues-3"), "title": "It leaks", "body": "Look.", "labels": ["bug"]});
    let create = |args: &Value| {
        Call::new(example("github-issues"), "create_issue", args.clone()).idempotency_key("k-1")
    };
    let first = run(world.host.run(create(&args))).outcome.unwrap();
    assert_eq!((&first["number"], &first["title"]), (&json!(4), &json!("It leaks")));
    // The host has logged the outcome; if it has lost that, the service still knows the key.
    let again = run(world.host.run(create(&args))).outcome.unwrap();
    assert_eq!(again, first, "the same key creates nothing twice");
    let forgetful = world.home.builder().allow_private(world.upstream.host_port());
    let forgetful = forgetful.key_ttl(std::time::Duration::ZERO).build().unwrap();
    let forgotten = |key: &str| {
        let call = Call::new(example("github-issues"), "create_issue", args.clone());
        run(forgetful.run(call.idempotency_key(key))).outcome.unwrap()
    };
    assert_eq!((&forgotten("k-2")["number"], &forgotten("k-2")["number"]), (&json!(5), &json!(5)));
    let posts = world.upstream.seen("/repos/acme/issues-3/issues");
    let keys: Vec<_> = posts
        .iter()
        .filter(|seen| seen.method == "POST")
        .map(|seen| seen.header("idempotency-key"))
        .collect();
    assert_eq!(keys, [Some("k-1:create"), Some("k-2:create"), Some("k-2:create")]);
    let other = world.value("github-issues", "create_issue", args);
    assert_eq!(other["number"], 6, "another call is another issue");
}

#[test]
fn a_redirect_is_shown_to_the_guest_and_not_followed() {
    let world = shared_host();
    let to = world.elsewhere.url("/text/followed");
    let url = world.upstream.url(&format!("/redirect?to={to}"));
    let response = world.value("probe", "fetch", json!({"url": url}));
    assert_eq!(response["status"], 302);
    assert!(world.elsewhere.seen("/text/followed").is_empty());
}

#[test]
fn a_request_has_no_forbidden_headers() {
    let world = shared_host();
    let response = world.value("probe", "fetch", json!({"url": world.upstream.url("/echo")}));
    let echo: Value = serde_json::from_str(response["body"].as_str().unwrap()).unwrap();
    let names: Vec<_> =
        echo["headers"].as_array().unwrap().iter().map(|header| header[0].as_str().unwrap()).collect();
    for forbidden in ["proxy-authorization", "forwarded", "x-forwarded-for", "cookie", "authorization"] {
        assert!(!names.contains(&forbidden), "{names:?}");
    }
    assert_eq!(names.iter().filter(|name| **name == "host").count(), 1);
}

#[test]
fn a_large_request_arrives_complete() {
    let body = "x".repeat(3 * 1024 * 1024);
    let url = shared_host().upstream.url("/text/large");
    assert_eq!(shared_host().value("probe", "post", json!({"url": url, "body": body}))["status"], 200);
    let seen = shared_host().upstream.seen("/text/large");
    assert_eq!((seen.len(), seen[0].body.len()), (1, body.len()));
    assert!(seen[0].header("idempotency-key").is_some());
}

#[test]
fn a_guest_that_writes_much_does_not_fail() {
    let world = shared_host();
    assert_eq!(world.value("probe", "log_flood", json!({"lines": 5_000, "length": 100})), Value::Null);
    assert_eq!(world.value("probe", "log_flood", json!({"lines": 3, "length": 100_000})), Value::Null);
    assert_eq!(world.value("probe", "stdout_flood", json!({"bytes": 1_000_000})), Value::Null);
}

#[test]
fn the_same_call_uses_the_same_fuel() {
    let world = shared_host();
    let burnt = || {
        let before = records_of("areas").len();
        world.value("hello", "areas", json!({"shapes": ["empty", {"circle": 2}]}));
        records_of("areas")[before..].iter().filter_map(|fuel| fuel.clone()).next().unwrap()
    };
    assert_eq!(burnt(), burnt());
}

fn records_of(op: &str) -> Vec<Option<String>> {
    cofferdam_test_support::log_capture::records(|record| {
        record.get("op") == Some(op)
            && record.get("outcome") == Some("value")
            && record.get("memory_bytes").is_some()
    })
    .iter()
    .map(|record| record.get("fuel").map(str::to_owned))
    .collect()
}
