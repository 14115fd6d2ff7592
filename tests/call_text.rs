//! Calls from JSON text to JSON text: the same results and refusals as with values.

use cofferdam::{Call, Error, HostErrorKind};
use cofferdam_core::limits::LimitRequest;
use serde_json::{Value, json};

use crate::envelope;
use crate::shared_host::{example, refused, run, shared_host};

fn call_text(guest: &str, op: &str, args: &str) -> Result<String, Error> {
    run(shared_host().host.run_text(Call::from_text(example(guest), op, args))).outcome
}

#[test]
fn text_results_equal_value_results() {
    let scalars = json!({
        "truth": true, "small": 255, "short": -32768, "big": u64::MAX, "low": i64::MIN,
        "fraction": -0.5, "letter": "ß", "text": "a\u{0}\n\"\\ 🦀",
    });
    let people = json!([
        {"full_name": "A", "nick_names": []},
        {"full_name": "B", "age": 30, "address": {"some": null}, "nick_names": ["b", ""]},
    ]);
    for (op, args) in [
        ("greet", json!({"name": "Ada", "tone": "warm"})),
        ("echo_scalars", json!({"value": scalars})),
        ("areas", json!({"shapes": ["empty", {"circle": 1.0}, {"rectangle": [2, 3.5]}]})),
        ("common_rights", json!({"one": ["read", "write"], "other": ["write", "share"]})),
        ("reverse", json!({"bytes": "AAEC/w=="})),
        ("parse_all", json!({"texts": ["12", "x", "-9223372036854775808"]})),
        ("by_age", json!({"people": people})),
        ("nothing", json!({})),
    ] {
        let value = shared_host().value("hello", op, args.clone());
        assert_eq!(call_text("hello", op, &args.to_string()).unwrap(), value.to_string(), "{op}");
        assert_eq!(call_text("hello", op, &format!(" {args:#}\r\n")).unwrap(), value.to_string(), "{op}");
    }
}

#[test]
fn arguments_and_result_take_either_form() {
    let args = json!({"name": "Ada"});
    let from_text = || Call::from_text(example("hello"), "greet", args.to_string());
    let from_value = || Call::new(example("hello"), "greet", args.clone());
    let text = run(shared_host().host.run_text(from_value())).outcome.unwrap();
    assert_eq!(run(shared_host().host.run_text(from_text())).outcome.unwrap(), text);
    assert_eq!(
        run(shared_host().host.run(from_text())).outcome.unwrap(),
        serde_json::from_str::<Value>(&text).unwrap()
    );
}

#[test]
fn invalid_text_is_rejected_like_invalid_values() {
    for (op, args) in [
        ("greet", json!({"name": 7})),
        ("greet", json!({})),
        ("greet", json!({"name": "x", "tome": "warm"})),
        ("greet", json!("Ada")),
        ("by_age", json!({"people": [{"full_name": "A", "age": 256, "nick_names": []}]})),
    ] {
        let by_value = refused(shared_host().call("hello", op, args.clone()));
        let by_text = refused(call_text("hello", op, &args.to_string()));
        assert_eq!(by_text.kind(), HostErrorKind::Validation);
        assert_eq!(by_text.message(), by_value.message());
        envelope::check_host_error(&by_text);
    }
}

#[test]
fn malformed_json_is_located_but_not_quoted() {
    for (args, words) in [
        ("", "not JSON: EOF"),
        ("{\"name\": \"hunter2\"", "not JSON: EOF"),
        ("{\"name\": \"hunter2\"} hunter2", "not JSON: trailing characters at line 1 column 21"),
        ("{\"name\": hunter2}", "not JSON: expected"),
        ("{\"name\": \"hunter2\", \"name\": \"hunter2\"}", "args.name: given twice"),
    ] {
        let error = refused(call_text("hello", "greet", args));
        assert_eq!(error.kind(), HostErrorKind::Validation, "{args}");
        assert!(error.message().contains(words), "{args}: {}", error.message());
        assert!(!serde_json::to_string(&error).unwrap().contains("hunter2"), "{args}");
        envelope::check_host_error(&error);
    }
}

#[test]
fn text_has_the_limits_of_values() {
    let failure = |outcome| match outcome {
        Err(Error::Failure(failure)) => failure,
        other => panic!("{other:?}"),
    };
    let most = 4 * 1024 * 1024;
    // White space counts: the limit applies to the text.
    let args = |length: usize| {
        let args = r#"{"name":"Ada"}"#;
        args.to_owned() + &" ".repeat(length - args.len())
    };
    assert!(call_text("hello", "greet", &args(most)).is_ok());
    let over = failure(call_text("hello", "greet", &args(most + 1)));
    envelope::check(&over, envelope::limit("payload"));
    assert_eq!(over.details()["used"], most + 1);

    let long = failure(call_text("probe", "big_result", r#"{"bytes":5000000}"#));
    envelope::check(&long, envelope::limit("payload"));
    assert_eq!(long.details()["configured"], most);
    assert!(long.details()["used"].as_u64() > Some(most as u64));

    let limits = LimitRequest::parse(Some(1), None, None).unwrap();
    let call = Call::from_text(example("hello"), "greet", args(100)).limits(limits);
    envelope::check(&failure(run(shared_host().host.run_text(call)).outcome), envelope::limit("fuel"));
}
