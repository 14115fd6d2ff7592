//! Tests of escapes and values: any text can be written, is read as itself, and is filled in unchanged.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::template::ReferenceScope;
use super::template::{Template, TemplatePart, TemplateValues, escape, read_text};

const SCOPE: ReferenceScope<'_> = ReferenceScope { inputs: &["branch", "other"], steps: &["one"], at: 1 };

fn read(text: &str) -> Option<Template> {
    read_text(text, SCOPE).ok()
}

/// Generates texts of a template's special characters, in any order, and of any others.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("$".to_owned()),
        Just("${".to_owned()),
        Just("{".to_owned()),
        Just("}".to_owned()),
        Just("${args.branch}".to_owned()),
        Just("${steps.one.x[0]}".to_owned()),
        Just("${secrets.token}".to_owned()),
        Just("\u{0}\u{202e}\"\n\\".to_owned()),
        any::<String>(),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Returns the template filled in with these texts.
fn filled(template: &Template, branch: &str, one: &str) -> Value {
    let args = Map::from_iter([("branch".to_owned(), branch.into()), ("other".to_owned(), "OTHER".into())]);
    let steps = [json!({"x": [one]})];
    template.render_value(&TemplateValues { args: &args, steps: &steps }).unwrap().unwrap()
}

proptest! {
    #[test]
    fn escaped_text_round_trips(text in texts()) {
        prop_assert_eq!(read(&escape(&text, false)), Some(Template::Literal(text.clone().into())));
        let before = format!("{}${{args.branch}}", escape(&text, true));
        match read(&before) {
            Some(Template::Reference(_)) => prop_assert!(text.is_empty()),
            Some(Template::Text(parts)) => match parts.as_slice() {
                [TemplatePart::Literal(plain), TemplatePart::Reference(_)] => prop_assert_eq!(plain, &text),
                other => panic!("{before}: {other:?}"),
            },
            other => panic!("{before}: {other:?}"),
        }
    }

    #[test]
    fn templates_round_trip(text in texts()) {
        if let Some(template) = read(&text) {
            let written = template.to_source();
            prop_assert_eq!(read(written.as_str().unwrap()), Some(template));
        }
    }

    #[test]
    fn values_are_inserted_verbatim_between_texts(
        before in texts(), between in texts(), after in texts(), branch in texts(), one in texts(),
    ) {
        let text = format!(
            "{}${{args.branch}}{}${{steps.one.x[0]}}{}",
            escape(&before, true), escape(&between, true), escape(&after, false)
        );
        let expected = format!("{before}{branch}{between}{one}{after}");
        prop_assert_eq!(filled(&read(&text).unwrap(), &branch, &one), Value::from(expected));
        // Alone it is the value itself.
        prop_assert_eq!(filled(&read("${args.branch}").unwrap(), &branch, &one), Value::from(branch));
    }
}

#[test]
fn dollar_escapes_match_the_documentation() {
    for (written, filled_in) in [
        ("$${args.branch}", "${args.branch}"),
        ("$$${args.branch}", "$B"),
        ("$$$${args.branch}", "$${args.branch}"),
        ("$5, $$5 and {x}", "$5, $$5 and {x}"),
        ("$$${args.branch}$${args.other}", "$B${args.other}"),
    ] {
        assert_eq!(filled(&read(written).unwrap(), "B", "1"), filled_in, "{written}");
    }
    for broken in ["${", "$$${", "${args.branch", "${}", "${ args.branch }", "${${args.branch}}"] {
        assert!(read(broken).is_none(), "{broken}");
    }
}
