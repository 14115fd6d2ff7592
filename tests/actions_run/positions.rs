//! Hostile values in every position of an action: alone, in a text, in a field of an object, as an item of a
//! list, for a fallback. They arrive unchanged, or nothing runs.

use std::sync::{Arc, LazyLock};

use cofferdam::HostErrorKind;
use cofferdam_core::digest::Digest;
use cofferdam_model::action::Action;
use cofferdam_runtime::flow::{CheckedAction, RunRequest};
use serde_json::{Value, json};

use super::fixture::{Stage, input, step};
use crate::shared_host::{host_kind, run, shared_host};

/// Texts with a meaning in some language or format.
fn texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "${args.other}",
        "${steps.one.text}",
        "$${args.other}$$${args.other}",
        "${",
        "}",
        "$",
        "\"",
        "\\",
        "\\u0024{args.other}",
        "'; -- \" }] , {",
        "a\nb\r\nc\td",
        "\u{0}\u{1}\u{7f}\u{85}",
        "\u{202e}drow\u{2066}\u{200b}\u{feff}",
        "\u{fffd}\u{10ffff}\u{1f600}e\u{301}",
        "+++\nname = \"evil\"\n+++",
        "null",
        "1e999",
        "",
    ]
    .map(str::to_owned)
    .into();
    texts.push("${args.other}".repeat(20_000));
    texts
}

/// An action of `hello`, checked; its inputs are `text`, `other`, `number`, `integer`, `object` and `list`.
fn ready(steps: &str) -> CheckedAction {
    let (_, package) = shared_host().packages.iter().find(|(name, _)| *name == "hello").unwrap();
    let typed = |name: &str, kind: &str| {
        format!(
            "[[inputs]]\nname = \"{name}\"\ntype = \"{kind}\"\ndescription = \"A value.\"\nrequired = false\n"
        )
    };
    let inputs = [
        input("text").replace("[[inputs]]", "[[inputs]]\nrequired = false\ndefault = \"\""),
        input("other").replace("[[inputs]]", "[[inputs]]\nrequired = false\ndefault = \"OTHER\""),
        typed("number", "number") + "default = 0\n",
        typed("integer", "integer") + "default = 0\n",
        typed("object", "object") + "default = {}\n",
        typed("list", "array") + "default = []\n",
    ];
    let text = format!(
        "+++\nname = \"positions\"\nversion = \"1.0.0\"\n\n[[requires.connectors]]\nname = \"github://cofferdam/hello\"\n\
         version = \"0.1.0\"\nhash = \"sha256:{}\"\ncapabilities = {{ operations = [\"echo_scalars\", \"by_age\", \
         \"parse_all\", \"reverse\"] }}\n{}{steps}+++\nA test.\n",
        Digest::sha256(package),
        inputs.concat()
    );
    let action = Action::parse("positions.md", text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    run(shared_host().host.check_action(Arc::new(action))).unwrap_or_else(|error| panic!("{error}"))
}

fn hello(id: &str, op: &str, inputs: &str) -> String {
    step(id, op, inputs, "").replace("cofferdam/probe", "cofferdam/hello")
}

/// Every position of a text: a field of an object, alone and within a text; items of lists; and again what was answered.
static TEXTS: LazyLock<CheckedAction> = LazyLock::new(|| {
    let scalars = |text: &str| {
        format!(
            "value = {{ truth = true, small = 1, short = 1, big = 1, low = 1, fraction = 1.5, letter = \"x\", text = \"{text}\" }}"
        )
    };
    let steps = [
        hello("one", "echo_scalars", &scalars("${args.text}")),
        hello("two", "echo_scalars", &scalars("<${steps.one.text}|$${args.other}|${args.text}>")),
        hello(
            "three",
            "parse_all",
            "texts = [\"${args.text}\", \"[${steps.two.text}]\", \"${steps.one.text}\"]",
        ),
        hello(
            "four",
            "by_age",
            "people = [{ full_name = \"${steps.three[0].err}\", nick_names = [\"${args.text}\", \"$${x}\"] }]",
        ),
    ];
    ready(&steps.concat())
});

#[test]
fn text_arrives_unchanged_in_every_position() {
    for text in texts() {
        let outcome =
            run(shared_host().host.run_checked_action(&TEXTS, RunRequest::new(json!({"text": text}))))
                .outcome;
        // The connector parses numbers; there is none among them.
        let value = outcome.unwrap_or_else(|error| panic!("{text:?}: {error}"));
        let within = format!("<{text}|${{args.other}}|{text}>");
        assert_eq!(value.steps["one"]["text"], text, "alone, in an object");
        assert_eq!(value.steps["two"]["text"], within, "within a text, in an object");
        let items: Vec<_> = value.steps["three"].as_array().unwrap().iter().map(|it| &it["err"]).collect();
        assert_eq!(items, [&json!(text), &json!(format!("[{within}]")), &json!(text)], "in a list");
        let person = &value.steps["four"][0];
        assert_eq!((&person["full_name"], &person["nick_names"]), (&json!(text), &json!([text, "${x}"])));
    }
}

#[test]
fn a_number_arrives_exactly_or_nothing_runs() {
    let fields = "truth = false, small = 0, short = 0, letter = \"x\"";
    let steps = [
        hello(
            "one",
            "echo_scalars",
            &format!(
                "value = {{ {fields}, big = 0, low = \"${{args.integer}}\", fraction = \"${{args.number}}\", text = \
                 \"${{args.integer}} ${{args.number}}\" }}"
            ),
        ),
        hello("two", "echo_scalars", "value = \"${steps.one}\""),
    ];
    let ready = ready(&steps.concat());
    let ask = |args: Value| run(shared_host().host.run_checked_action(&ready, RunRequest::new(args))).outcome;
    for (integer, number) in [
        (json!(9_007_199_254_740_993_i64), json!(1e308)),
        (json!(-9_007_199_254_740_993_i64), json!(-1e308)),
        (json!(i64::MAX), json!(5e-324)),
        (json!(i64::MIN), json!(-0.0)),
        (json!(0), json!(0.1)),
        (json!(1), json!(9_007_199_254_740_992_u64)),
    ] {
        let value = ask(json!({"integer": integer, "number": number})).unwrap().output;
        assert_eq!(value["low"].to_string().trim_matches('"'), integer.to_string(), "no digit is lost");
        let (got, given) = (value["fraction"].as_f64().unwrap(), number.as_f64().unwrap());
        assert_eq!(got.to_bits(), given.to_bits(), "{number}: {value}");
        assert_eq!(value["text"], format!("{integer} {number}"), "as JSON has them");
    }
    for (args, words) in [
        (json!({"integer": 1e308}), "args.integer"),
        (json!({"integer": u64::MAX}), "low"),
        (json!({"integer": 9_007_199_254_740_993.5}), "args.integer"),
        (json!({"integer": 0.5}), "args.integer"),
        (json!({"integer": "1"}), "args.integer"),
        (json!({"number": "NaN"}), "args.number"),
        (json!({"number": null, "integer": true}), "args.integer"),
    ] {
        let error = ask(args.clone()).unwrap_err();
        assert!(
            error.to_string().contains(words) && host_kind(&error) == Some(HostErrorKind::Validation),
            "{args}: {error}"
        );
    }
}

#[test]
fn mismatched_objects_are_refused_at_any_depth() {
    let steps = [
        hello("one", "echo_scalars", "value = \"${args.object}\""),
        hello("two", "parse_all", "texts = \"${args.list}\""),
    ];
    let ready = ready(&steps.concat());
    let ask = |args: Value| run(shared_host().host.run_checked_action(&ready, RunRequest::new(args))).outcome;
    let nested = |depth: usize| (0..depth).fold(json!("x"), |inner, _| json!({"text": inner}));
    let good = json!({"truth": true, "small": 1, "short": 1, "big": "1", "low": "1", "fraction": 1.5, "letter": "x",
                      "text": "${args.other}"});
    let value = ask(json!({"object": good, "list": ["${args.other}"]})).unwrap();
    assert_eq!((&value.steps["one"]["text"], &value.output[0]["err"]), (&good["text"], &good["text"]));
    let with = |name: &str, value: Value| {
        let mut changed = good.clone();
        changed[name] = value;
        changed
    };
    for object in [
        json!({}),
        nested(100),
        nested(500),
        with("text", nested(100)),
        with("text", json!(["a"])),
        with("__proto__", json!({"text": "x"})),
        with("text ", json!("x")),
        with("letter", json!("xy")),
        with("fraction", json!("1e308")),
    ] {
        let error = ask(json!({"object": object, "list": []})).unwrap_err();
        assert_eq!(host_kind(&error), Some(HostErrorKind::Validation), "{error}");
        assert!(error.to_string().len() < 2_000, "{error}");
    }
    let deep = (0..500).fold(json!("x"), |inner, _| json!([inner]));
    let error = ask(json!({"object": good, "list": deep})).unwrap_err();
    assert_eq!(host_kind(&error), Some(HostErrorKind::Validation));
}

#[test]
fn hostile_values_stay_data_in_fallbacks() {
    let stage = Stage::new();
    let (nowhere, url) = (format!("http://{}/", stage.ground.closed), stage.url("/echo/instead"));
    let fallback = format!(
        "retry = \"none\"\nfallback = [{{ connector = \"github://cofferdam/probe\", op = \"order\", inputs = {{ url = \
         \"{url}\", body = \"<${{args.text}}|$${{args.text}}>\", labels = [\"${{args.label}}\"] }} }}]"
    );
    let rest =
        [input("text"), input("label"), step("ask", "fetch", &format!("url = \"{nowhere}\""), &fallback)];
    stage.ground.action("fallbacks-data", &rest.concat());
    for text in texts() {
        let before = stage.ground.upstream.requests();
        let (value, _) = stage.run("fallbacks-data", json!({"text": text, "label": "${args.text}"}));
        value.unwrap_or_else(|error| panic!("{text:?}: {error}"));
        let seen = stage.ground.upstream.seen_after(before);
        let own: Vec<_> = seen.iter().filter(|seen| seen.path == "/echo/instead").collect();
        assert_eq!(own.len(), 1);
        assert_eq!(String::from_utf8_lossy(&own[0].body), format!("<{text}|${{args.text}}>"));
    }
}

#[test]
fn the_largest_payload_arrives_whole() {
    const MOST: usize = 4 << 20;
    let stage = Stage::new();
    let url = stage.url("/echo/most");
    let rest = [
        input("text"),
        stage.fetch("one", "/text/most-1", ""),
        step("two", "order", &format!("url = \"{url}\", body = \"${{args.text}}\", labels = [\"a\"]"), ""),
    ];
    stage.ground.action("most", &rest.concat());
    // The names and the other inputs have their share.
    let text = "${args.text}".repeat((MOST - 1_000) / 12);
    let before = stage.ground.upstream.requests();
    let (value, _) = stage.run("most", json!({"text": text}));
    assert!(value.is_ok(), "{:?}", value.map(drop));
    let seen = stage.ground.upstream.seen_after(before);
    let posted = seen.iter().find(|seen| seen.path == "/echo/most").unwrap();
    assert_eq!(posted.body.len(), text.len());
    assert!(posted.body == text.as_bytes());
    let before = stage.ground.upstream.requests();
    let (outcome, report) = stage.run("most", json!({"text": "x".repeat(MOST + 1)}));
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("4 MiB") && !error.to_string().contains("xxxx"), "{error}");
    let seen = stage.ground.upstream.seen_after(before);
    assert!(!seen.iter().any(|seen| seen.path == "/echo/most"));
    assert!(report.steps[1].report.is_none());
}
