//! A whole action's file, and every mistake that can be made in one.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test")]

use serde_json::json;

use super::*;

pub(super) const HASH: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

pub(super) fn ship_update() -> String {
    format!(
        r#"+++
name = "ship-update"
version = "1.0.0"
title = "Ship update"
timeout = "60s"
match = {{ intent = ["announce a pull request"] }}

[[requires.connectors]]
name = "github://aileron/github"
version = "1.2.0"
hash = "{HASH}"
capabilities = {{ operations = ["find_pr"], hosts = ["api.github.com:443"] }}

[[requires.connectors]]
name = "github://aileron/slack"
version = "2.0.0"
hash = "{HASH}"
capabilities = {{ operations = ["post", "react"] }}
identity = {{ slack = "work" }}

[[inputs]]
name = "branch"
type = "string"
description = "The branch."

[[inputs]]
name = "count"
type = "integer"
description = "How many."
required = false
default = 3

[[inputs]]
name = "labels"
type = "array"
items_type = "string"
description = "Labels."
required = false

[[execute]]
id = "find"
connector = "github://aileron/github"
op = "find_pr"
inputs = {{ branch = "${{args.branch}}", limit = "${{args.count}}", labels = "${{args.labels}}" }}

[[execute]]
id = "post"
connector = "github://aileron/slack"
op = "post"
idempotent = false
timeout = "10s"
inputs.text = "Shipped ${{steps.find.title}} (#${{steps.find.number}}), $${{literal}}, $5, $$${{args.count}}"
inputs.blocks = [{{ kind = "plain", of = "${{steps.find.labels[0].name}}" }}]

[[execute]]
id = "react"
connector = "github://aileron/slack"
op = "react"
retry = {{ max = 2, initial = "1s", max_delay = "8s", jitter = 0.2 }}
fallback = [{{ connector = "github://aileron/slack", op = "post", inputs = {{ text = "x" }} }}]
inputs = {{ timestamp = "${{steps.post.timestamp}}", emoji = "rocket" }}

[output]
type = "object"
required = ["ok"]
+++
# Ship update

Finds the pull request of a branch
and announces it.

More.
"#
    )
}

fn parsed(text: &str) -> Result<Action, DocumentError> {
    Action::parse("ship-update.md", text.as_bytes())
}

#[test]
fn a_complete_file_is_parsed() {
    let action = parsed(&ship_update()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(&**action.reference(), "ship-update@1.0.0");
    assert_eq!(action.description(), "Finds the pull request of a branch and announces it.");
    assert_eq!(action.timeout(), Some(std::time::Duration::from_secs(60)));
    assert_eq!(action.requires()[1].scope().identities()["slack"], "work");
    assert_eq!(action.requires()[0].scope().hosts()[0].to_string(), "api.github.com:443");
    assert_eq!((action.requires()[1].line(), action.steps()[1].line()), (14, 46));
    assert_eq!(action.intents(), ["announce a pull request"]);
    assert!(action.steps()[1].non_idempotent && !action.steps()[0].non_idempotent);
    assert!(matches!(action.steps()[2].retry(), Some(StepRetry::Own { max: 2, .. })));
    assert_eq!(
        action.input_schema(),
        json!({
            "type": "object",
            "properties": {
                "branch": {"type": "string", "description": "The branch."},
                "count": {"type": "integer", "description": "How many.", "default": 3},
                "labels": {"type": "array", "items": {"type": "string"}, "description": "Labels."},
            },
            "required": ["branch"],
            "additionalProperties": false,
        })
    );
    assert!(action.output().unwrap().check(&json!({"ok": 1})).is_ok());
    let error = action.output().unwrap().check(&json!({"secret": "hunter2"})).unwrap_err().to_string();
    assert!(error.contains("[output]/required") && !error.contains("hunter2"), "{error}");
}

#[test]
fn templates_are_expanded_once() {
    let action = parsed(&ship_update()).unwrap();
    let args = action.arguments(&json!({"branch": "${args.count}", "labels": null})).unwrap();
    assert_eq!(json!(args), json!({"branch": "${args.count}", "count": 3}));
    let found = json!({"title": "a ${steps.find.number} $${x}", "number": 7, "labels": [{"name": ["n"]}]});
    let values = TemplateValues { args: &args, steps: &[] };
    assert_eq!(
        json!(action.steps()[0].target().render(&values).unwrap()),
        json!({"branch": "${args.count}", "limit": 3}),
    );
    let steps = [found];
    let values = TemplateValues { args: &args, steps: &steps };
    assert_eq!(
        json!(action.steps()[1].target().render(&values).unwrap()),
        json!({
            "text": "Shipped a ${steps.find.number} $${x} (#7), ${literal}, $5, $3",
            "blocks": [{"kind": "plain", "of": ["n"]}],
        }),
    );
}

#[test]
fn references_must_exist_and_match() {
    let action = parsed(&ship_update()).unwrap();
    let args = action.arguments(&json!({"branch": "b"})).unwrap();
    let says = |found: serde_json::Value| {
        let steps = [found];
        let error =
            action.steps()[1].target().render(&TemplateValues { args: &args, steps: &steps }).unwrap_err();
        error.to_string()
    };
    let good = json!({"title": "t", "number": 7, "labels": [{"name": "n"}]});
    let with = |name: &str, value: serde_json::Value| {
        let mut changed = good.clone();
        changed[name] = value;
        changed
    };
    for (found, expected) in [
        (with("title", json!(null)), "`${steps.find.title}` is nothing"),
        (with("title", json!(["hunter2"])), "`${steps.find.title}` is a list"),
        (with("title", json!({"hunter2": 1})), "`${steps.find.title}` is an object"),
        (with("labels", json!([])), "`${steps.find.labels[0].name}` leads nowhere: there is no item 0"),
        (with("labels", json!([{}])), "there is no field `name`"),
        (with("labels", json!(null)), "leads into nothing"),
        (with("labels", json!({"0": 1})), "there is no item 0"),
        (json!(null), "`${steps.find.title}` leads into nothing"),
        (with("title", json!("x".repeat(5 << 20))), "more than 4 MiB"),
        (with("labels", json!([{"name": "x".repeat(5 << 20)}])), "more than 4 MiB"),
    ] {
        let error = says(found);
        assert!(error.contains(expected) && !error.contains("hunter2"), "{expected}: {error}");
    }
}

#[test]
fn all_argument_errors_are_reported() {
    let action = parsed(&ship_update()).unwrap();
    let good = action.arguments(&json!({"branch": "b", "count": 4.0, "labels": ["x"]})).unwrap();
    assert_eq!(json!(good), json!({"branch": "b", "count": 4, "labels": ["x"]}));
    let error = action
        .arguments(&json!({"brunch": "hunter2", "count": 1.5, "labels": ["x", 3], "\u{1b}[31m": 1}))
        .unwrap_err();
    let problems = error.details()["problems"].as_array().unwrap();
    let problems: Vec<_> = problems.iter().map(|it| it.as_str().unwrap()).collect();
    assert_eq!(
        problems,
        [
            "args.branch is missing",
            "args.count: expected a whole number of at most 64 bits",
            "args.labels: item 1: expected a string, got a number",
            "args.brunch is no input of this action; did you mean `branch`?",
            "args.[31m is no input of this action",
        ]
    );
    assert!(
        !error.message().contains("hunter2") && error.hint().unwrap().contains("count (integer, optional)")
    );
    for (given, says) in [
        (json!([]), "no object"),
        (json!(null), "no object"),
        (json!({"branch": null}), "args.branch is missing"),
        (json!({"branch": ["b"]}), "expected a string, got an array"),
        (json!({"branch": "b", "count": 1e308}), "a whole number"),
        (json!({"branch": "b", "count": 9_007_199_254_740_993.0}), "a whole number"),
        (json!({"branch": "b", "count": "3"}), "expected a whole number, got a string"),
        (json!({"branch": "b", "count": true}), "got a boolean"),
        (json!({"branch": "x".repeat(5 << 20)}), "more than 4 MiB"),
    ] {
        let error = action.arguments(&given).unwrap_err();
        assert!(error.message().contains(says), "{says}: {error}");
    }
    // Exact integers stay exact.
    for exact in [json!(9_007_199_254_740_993_u64), json!(u64::MAX), json!(i64::MIN)] {
        assert_eq!(action.arguments(&json!({"branch": "b", "count": exact})).unwrap()["count"], exact);
    }
    assert_eq!(action.arguments(&json!({"branch": "b", "count": -0.0})).unwrap()["count"], json!(0));
}

#[test]
fn serialized_templates_parse_to_the_same() {
    let action = parsed(&ship_update()).unwrap();
    let [(_, text), (_, blocks)] = action.steps()[1].target().inputs() else { panic!("two inputs") };
    assert_eq!(
        text.to_source(),
        json!("Shipped ${steps.find.title} (#${steps.find.number}), $${literal}, $5, $$${args.count}")
    );
    assert_eq!(blocks.to_source(), json!([{"kind": "plain", "of": "${steps.find.labels[0].name}"}]));
}

/// Values of callers and services pass through unchanged, whatever their text.
#[test]
fn values_are_never_read_as_templates() {
    use proptest::prelude::*;
    use proptest::test_runner::{RngSeed, TestRunner};

    let nasty = prop::sample::select(vec![
        "${",
        "$${",
        "}",
        "{",
        "$",
        "args.branch",
        "steps.find.title",
        "${args.branch}",
        "${steps.find.title}",
        "{{secrets.x}}",
        "{{steps.find}}",
        "\\",
        "\"",
        "\n",
        "\u{202e}",
        "\0",
    ]);
    let piece = prop_oneof![nasty.prop_map(str::to_owned), any::<String>()];
    let text = prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat());
    let action = parsed(&ship_update()).unwrap();
    let config = ProptestConfig {
        cases: 500,
        rng_seed: RngSeed::Fixed(0x00c0_ffee),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let outcome =
        TestRunner::new(config).run(&(text.clone(), text.clone(), text), |(branch, title, name)| {
            let args = action.arguments(&json!({"branch": branch, "labels": [branch]})).unwrap();
            let found = json!({"title": title, "number": 7, "labels": [{"name": {"$${args.branch}": name}}]});
            let steps = [found];
            let values = TemplateValues { args: &args, steps: &steps };
            let first = action.steps()[0].target().render(&values).unwrap();
            prop_assert_eq!(json!(first), json!({"branch": branch, "limit": 3, "labels": [branch]}));
            let second = action.steps()[1].target().render(&values).unwrap();
            let expected = format!("Shipped {title} (#7), ${{literal}}, $5, $3");
            prop_assert_eq!(
                json!(second),
                json!({"text": expected, "blocks": [{"kind": "plain", "of": {"$${args.branch}": name}}]})
            );
            Ok(())
        });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
