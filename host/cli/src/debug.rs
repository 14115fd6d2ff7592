//! A failure as its operator sees it, for people at a terminal.

use cofferdam_core::failure::printable_json;
use serde_json::{Map, Value};

use super::ui::Ui;

/// Says on standard error all that the record has of a failure, a line for each fact.
pub(super) fn tell(ui: &Ui, view: &Map<String, Value>) {
    lines(view).iter().for_each(|line| ui.note(&format!("debug: {line}")));
}

/// Shows what the guest wrote on standard error before it was ended, a panic's message or a traceback: line by line, each
/// with a mark of whose words they are. What a guest reports itself speaks for itself.
pub(super) fn tell_stderr(ui: &Ui, view: &Map<String, Value>) {
    let text = |name: &str| view.get(name).and_then(Value::as_str);
    let ended =
        matches!(text("code"), Some("trap" | "exit")) || text("class") == Some("resource_limit_exceeded");
    for line in text("stderr").filter(|_| ended).iter().flat_map(|text| text.lines()) {
        ui.note(&format!("connector: {line}"));
    }
}

/// The lines: each field and what it says, texts as they are but for what could drive a terminal.
pub(super) fn lines(view: &Map<String, Value>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, value) in view {
        match value {
            Value::Array(items) => items.iter().for_each(|item| lines.push(line(name, item))),
            Value::Object(fields) => {
                fields.iter().for_each(|(field, value)| lines.push(line(&format!("{name}.{field}"), value)));
            }
            value => lines.push(line(name, value)),
        }
    }
    lines
}

fn line(name: &str, value: &Value) -> String {
    format!("{name}: {}", printable_json(&value.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn a_text_drives_no_terminal() {
        let view =
            json!({"class": "a", "chain": ["one", "two\u{1b}[31m\n"], "details": {"code": "b"}, "none": []});
        let lines = view.as_object().map(super::lines).unwrap_or_default();
        assert_eq!(
            lines,
            ["class: \"a\"", "chain: \"one\"", "chain: \"two\\u001b[31m\\n\"", "details.code: \"b\""]
        );
    }
}
