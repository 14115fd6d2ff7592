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

fn parsed(text: &str) -> Result<Action, ActionError> {
    Action::parse("ship-update.md", text.as_bytes())
}

#[test]
fn a_whole_file_is_read() {
    let action = parsed(&ship_update()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(&**action.reference(), "ship-update@1.0.0");
    assert_eq!(action.description(), "Finds the pull request of a branch and announces it.");
    assert_eq!(action.timeout(), Some(std::time::Duration::from_secs(60)));
    assert_eq!(action.requires()[1].scope().identities()["slack"], "work");
    assert_eq!(action.requires()[0].scope().hosts()[0].to_string(), "api.github.com:443");
    assert_eq!((action.requires()[1].line(), action.steps()[1].line()), (14, 46));
    assert_eq!(action.intents(), ["announce a pull request"]);
    assert!(action.steps()[1].once && !action.steps()[0].once);
    assert!(matches!(action.steps()[2].retry(), Some(Retry::Own { max: 2, .. })));
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
fn steps_are_filled_in_once() {
    let action = parsed(&ship_update()).unwrap();
    let args = action.arguments(&json!({"branch": "${args.count}", "labels": null})).unwrap();
    assert_eq!(json!(args), json!({"branch": "${args.count}", "count": 3}));
    let found = json!({"title": "a ${steps.find.number} $${x}", "number": 7, "labels": [{"name": ["n"]}]});
    let values = Values { args: &args, steps: &[] };
    assert_eq!(
        json!(action.steps()[0].target().render(&values).unwrap()),
        json!({"branch": "${args.count}", "limit": 3}),
    );
    let steps = [found];
    let values = Values { args: &args, steps: &steps };
    assert_eq!(
        json!(action.steps()[1].target().render(&values).unwrap()),
        json!({
            "text": "Shipped a ${steps.find.number} $${x} (#7), ${literal}, $5, $3",
            "blocks": [{"kind": "plain", "of": ["n"]}],
        }),
    );
}
