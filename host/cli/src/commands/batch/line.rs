//! One line of a file of calls: its arguments, and the key under which it is done once.

use std::io::BufRead;
use std::path::Path;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::strict_json;
use serde_json::{Map, Value};

use crate::files;

/// Longest line, in bytes. A call accepts less, and reports it.
const LINE_BYTES: usize = 16 * 1024 * 1024;

/// A call that a line asks for.
#[derive(Debug, PartialEq)]
pub(super) struct BatchLine {
    /// The arguments, as JSON text.
    pub(super) args: String,
    /// The idempotency key.
    pub(super) key: Option<String>,
}

/// Reads lines, and tells each with its number; false ends the reading. Blank lines are none.
pub(super) fn read(
    mut from: impl BufRead,
    place: &Path,
    mut tell: impl FnMut(u64, Result<BatchLine, HostError>) -> bool,
) {
    let mut text = Vec::new();
    for number in 1_u64.. {
        text.clear();
        let mut bounded = std::io::Read::take(&mut from, LINE_BYTES as u64 + 1);
        let line = match bounded.read_until(b'\n', &mut text) {
            Ok(0) => return,
            Ok(_) if text.len() > LINE_BYTES => Err(wrong(place, number, "it is longer than 16 MiB")),
            Ok(_) if text.trim_ascii().is_empty() => continue,
            Ok(_) => parse(&text, place, number),
            Err(error) => Err(files::unreadable("The file of calls", place, error)),
        };
        let unreadable = text.len() > LINE_BYTES
            || matches!(&line, Err(error) if error.kind() == HostErrorKind::InputUnreadable);
        // After a line that was not read to its end, the next bytes are not a line.
        if !tell(number, line) || unreadable {
            return;
        }
    }
}

/// The call in a line: `{"args": {..}, "idempotency_key": ".."}`, or the arguments alone.
fn parse(text: &[u8], place: &Path, number: u64) -> Result<BatchLine, HostError> {
    // Without the line break: an unfinished value ends in its line.
    let value = strict_json::parse(text.trim_ascii_end())
        .map_err(|error| wrong(place, number, &format!("it is not JSON: column {}", error.column())))?;
    let Value::Object(mut object) = value else {
        return Err(wrong(place, number, "it is no JSON object"));
    };
    let Some(args) = object.remove("args") else {
        return Ok(BatchLine { args: Value::Object(object).to_string(), key: None });
    };
    if !args.is_object() {
        return Err(wrong(place, number, "`args` is no JSON object"));
    }
    let key = key(&mut object).map_err(|what| wrong(place, number, what))?;
    if let Some(other) = object.keys().next() {
        let what = format!("it has `args` and an unknown field `{}`", sanitize_line(other, 100));
        return Err(wrong(place, number, &what));
    }
    Ok(BatchLine { args: args.to_string(), key })
}

fn key(object: &mut Map<String, Value>) -> Result<Option<String>, &'static str> {
    match object.remove("idempotency_key") {
        None => Ok(None),
        Some(Value::String(key)) => Ok(Some(key)),
        Some(_) => Err("`idempotency_key` is no string"),
    }
}

fn wrong(place: &Path, number: u64, what: &str) -> HostError {
    let message = format!("Line {number} of {} asks for no call: {what}.", files::shown(place));
    HostError::new(HostErrorKind::Validation, message).with_hint(
        "Write each line like {\"args\": {\"name\": \"Ada\"}, \"idempotency_key\": \"order-17\"}, or the arguments alone.",
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn all(text: &str) -> Vec<(u64, Result<BatchLine, String>)> {
        let mut lines = Vec::new();
        read(text.as_bytes(), Path::new("calls.jsonl"), |number, line| {
            lines.push((number, line.map_err(|error| error.message().to_owned())));
            true
        });
        lines
    }

    #[test]
    fn a_line_may_have_a_key() {
        let line =
            |args: &str, key: Option<&str>| Ok(BatchLine { args: args.into(), key: key.map(Into::into) });
        let text = "{\"args\": {\"a\": 1}, \"idempotency_key\": \"k\"}\n\n {\"args\": {}}\r\n{\"a\": 1}\n{}";
        assert_eq!(
            all(text),
            [
                (1, line("{\"a\":1}", Some("k"))),
                (3, line("{}", None)),
                (4, line("{\"a\":1}", None)),
                (5, line("{}", None))
            ]
        );
    }

    #[test]
    fn an_invalid_line_is_named_and_others_are_kept() {
        for (text, why) in [
            ("{a: 1}", "column 2"),
            ("{\"a\": 1", "column 7"),
            ("[1]", "no JSON object"),
            ("{\"args\": [1]}", "`args` is no JSON object"),
            ("{\"args\": {}, \"key\": \"k\"}", "unknown field `key`"),
            ("{\"args\": {}, \"idempotency_key\": 1}", "no string"),
            ("{\"a\": 1, \"a\": 2}", "not JSON"),
        ] {
            let lines = all(&format!("{{}}\n{text}\n{{}}"));
            let said = lines.get(1).unwrap().1.as_ref().unwrap_err();
            assert!(said.contains(why) && said.contains("Line 2 of calls.jsonl"), "{said}");
            assert_eq!(lines.len(), 3, "{text}");
        }
        let long = format!("{{}}\n\"{}\"\n{{}}", "x".repeat(LINE_BYTES));
        let lines = all(&long);
        assert_eq!(lines.len(), 2);
        assert!(lines.get(1).unwrap().1.as_ref().unwrap_err().contains("longer than 16 MiB"));
    }
}
