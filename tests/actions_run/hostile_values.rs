//! Values that would change their meaning if they were parsed again: they stay data in every place.

use serde_json::{Value, json};

use super::fixture::{Stage, input, step};

const HOSTILE: [&str; 12] = [
    "${args.other}",
    "${steps.one.body}",
    "$${args.other}",
    "$$$${args.other}",
    "}${args.other",
    "\"; DROP TABLE calls; --",
    "+++\n[[execute]]\nid = \"evil\"\n+++",
    "a\\u0024{args.other}",
    "\u{202e}drow\u{200b}",
    "../../etc/passwd",
    "line\r\nInjected: header",
    "{\"$ref\": \"#\"}",
];

#[test]
fn hostile_values_stay_data_in_templates() {
    let stage = Stage::new();
    let url = stage.url("/echo");
    let rest = [
        input("value"),
        input("other"),
        step("one", "order", &format!("url = \"{url}\", body = \"${{args.value}}\", labels = [\"a\"]"), ""),
        step(
            "two",
            "order",
            &format!(
                "url = \"{url}\", body = \"<${{args.value}}|$${{args.other}}|${{steps.one.status}}>\", labels = [\"b\"]"
            ),
            "",
        ),
        step(
            "three",
            "order",
            &format!("url = \"{url}\", body = \"${{steps.two.body}}\", labels = [\"c\"]"),
            "",
        ),
    ];
    stage.ground.action("hostile", &rest.concat());
    for hostile in HOSTILE {
        let before = stage.ground.upstream.requests();
        let (value, report) = stage.run("hostile", json!({"value": hostile, "other": "SECRET-OTHER"}));
        let value = value.unwrap();
        let seen = stage.ground.upstream.seen_after(before);
        let bodies: Vec<_> = seen
            .iter()
            .filter(|seen| seen.path == "/echo")
            .map(|seen| String::from_utf8_lossy(&seen.body))
            .collect();
        let mine = |text: &str| bodies.iter().any(|body| body == text);
        assert!(mine(hostile), "{hostile:?}: {bodies:?}");
        assert!(mine(&format!("<{hostile}|${{args.other}}|200>")), "{hostile:?}: {bodies:?}");
        // The second step's result is passed on unchanged, whatever it contains.
        assert!(mine(value.steps["two"]["body"].as_str().unwrap()), "{hostile:?}");
        assert!(!bodies.iter().any(|body| body.contains("SECRET-OTHER")), "{hostile:?}: {bodies:?}");
        let told = cofferdam_runtime::agent::action_value("hostile", &value, &report, usize::MAX);
        assert!(!told.text().contains('\u{202e}') && !told.text().contains('\u{200b}'), "{hostile:?}");
    }
}

#[test]
fn callers_cannot_override_the_authors_inputs() {
    let stage = Stage::new();
    let (theirs, ours) = (stage.url("/text/theirs"), stage.url("/text/ours"));
    let rest =
        input("body") + &step("one", "post", &format!("url = \"{ours}\", body = \"${{args.body}}\""), "");
    stage.ground.action("authors", &rest);
    let (outcome, _) = stage.run("authors", json!({"body": "b", "url": theirs}));
    assert!(outcome.is_err(), "an undeclared argument is refused, and overwrites nothing");
    let (outcome, _) = stage.run("authors", json!({"body": "b"}));
    assert!(outcome.is_ok());
    assert_eq!((stage.asked("/text/theirs"), stage.asked("/text/ours")), (0, 1));
}

#[test]
fn a_missing_item_ends_the_action_before_the_step() {
    let stage = Stage::new();
    let url = stage.url("/text/nowhere");
    let rest = [
        "[[inputs]]\nname = \"many\"\ntype = \"array\"\nitems_type = \"string\"\ndescription = \"Texts.\"\n"
            .to_owned(),
        stage.fetch("one", "/text/nowhere-1", ""),
        step("two", "post", &format!("url = \"{url}\", body = \"${{args.many[3]}}\""), ""),
    ];
    stage.ground.action("nowhere", &rest.concat());
    let (outcome, report) = stage.run("nowhere", json!({"many": ["a"]}));
    let error = outcome.map(|_| Value::Null).unwrap_err();
    assert!(error.to_string().contains("there is no item 3"), "{error}");
    assert_eq!(
        (report.done().count(), stage.asked("/text/nowhere")),
        (1, 1),
        "only the first: a prefix of its path"
    );
    let (value, _) = stage.run("nowhere", json!({"many": ["a", "b", "c", "${args.many[0]}"]}));
    assert!(value.is_ok());
    let seen = stage.ground.upstream.seen("/text/nowhere");
    assert_eq!(seen.last().unwrap().body, "${args.many[0]}");
}
