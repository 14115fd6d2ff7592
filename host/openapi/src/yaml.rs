//! Parses YAML to the value that a JSON text with the same content has.
//!
//! Aliases are copied, as documents use them, within a budget: a text of a few lines cannot become millions of values.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};
use serde_json::{Map, Number, Value};

/// The deepest nesting.
const MAX_DEPTH: usize = 120;

/// The most values that the aliases of one document may add.
const MAX_COPIED: usize = 200_000;

/// A problem with its line and column.
#[derive(Debug)]
pub(crate) struct YamlProblem {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) message: String,
}

/// Parses a text with one document.
pub(crate) fn parse(text: &str) -> Result<Value, YamlProblem> {
    let mut reader =
        YamlReader { parser: Parser::new_from_str(text), anchors: HashMap::new(), copied: 0, at: (1, 0) };
    loop {
        match reader.next()? {
            Event::StreamStart | Event::DocumentStart(_) => {}
            Event::StreamEnd => return Ok(Value::Null),
            event => {
                let value = reader.value(event, 0)?;
                loop {
                    match reader.next()? {
                        Event::StreamEnd => return Ok(value),
                        Event::DocumentEnd => {}
                        _ => return Err(reader.problem("a second document begins here")),
                    }
                }
            }
        }
    }
}

struct YamlReader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    anchors: HashMap<usize, (Value, usize)>,
    copied: usize,
    at: (usize, usize),
}

impl<'t> YamlReader<'t> {
    fn next(&mut self) -> Result<Event<'t>, YamlProblem> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                self.at = (span.start.line(), span.start.col());
                Ok(event)
            }
            Some(Err(error)) => {
                self.at = (error.marker().line(), error.marker().col());
                Err(self.problem(&format!("this is not YAML: {}", error.info())))
            }
            None => Ok(Event::StreamEnd),
        }
    }

    fn problem(&self, message: &str) -> YamlProblem {
        YamlProblem { line: self.at.0, column: self.at.1 + 1, message: message.to_owned() }
    }

    fn value(&mut self, event: Event<'t>, depth: usize) -> Result<Value, YamlProblem> {
        if depth > MAX_DEPTH {
            return Err(self.problem(&format!("values are nested more than {MAX_DEPTH} deep")));
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = style != ScalarStyle::Plain || tag.is_some_and(|tag| tag.suffix == "str");
                (if is_text { Value::String(text.into_owned()) } else { plain(&text) }, anchor)
            }
            Event::SequenceStart(anchor, _) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        Event::SequenceEnd => break,
                        event => items.push(self.value(event, depth + 1)?),
                    }
                }
                (Value::Array(items), anchor)
            }
            Event::MappingStart(anchor, _) => (Value::Object(self.mapping(depth)?), anchor),
            Event::Alias(anchor) => {
                let Some((value, size)) = self.anchors.get(&anchor).cloned() else {
                    return Err(
                        self.problem("this alias has no anchor before it, or is inside its own anchor")
                    );
                };
                self.copied = self.copied.saturating_add(size);
                if self.copied > MAX_COPIED {
                    return Err(self.problem(&format!("aliases copy more than {MAX_COPIED} values")));
                }
                (value, 0)
            }
            _ => return Err(self.problem("a value is missing here")),
        };
        if anchor != 0 {
            let size = count(&value);
            // Holding many large anchors costs as much as using them.
            self.copied = self.copied.saturating_add(size);
            if self.copied > MAX_COPIED {
                return Err(self.problem(&format!("anchors hold more than {MAX_COPIED} values")));
            }
            self.anchors.insert(anchor, (value.clone(), size));
        }
        Ok(value)
    }

    fn mapping(&mut self, depth: usize) -> Result<Map<String, Value>, YamlProblem> {
        let mut fields = Map::new();
        loop {
            let key = match self.next()? {
                Event::MappingEnd => return Ok(fields),
                Event::Scalar(text, ..) => text.into_owned(),
                _ => return Err(self.problem("this key is not a text")),
            };
            let event = self.next()?;
            let value = self.value(event, depth + 1)?;
            if key == "<<"
                && let Value::Object(merged) = value
            {
                for (name, value) in merged {
                    fields.entry(name).or_insert(value);
                }
                continue;
            }
            if fields.contains_key(&key) {
                return Err(self.problem("the key before this value is there twice"));
            }
            fields.insert(key, value);
        }
    }
}

fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

/// Returns the value of a scalar without quotes, by YAML's core schema.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return Value::String(text.to_owned());
    }
    if let Ok(number) = text.parse::<i64>() {
        return Value::Number(number.into());
    }
    if let Ok(number) = text.parse::<u64>() {
        return Value::Number(number.into());
    }
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let number = text.parse::<f64>().ok().filter(|_| is_number).and_then(Number::from_f64);
    number.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_has_the_values_of_json() {
        let text = "a: 1\nb: [true, ~, 'x', 1.5, 007x, \"2\"]\nc: &c {d: v1.0}\ne: *c\nf:\n  <<: *c\n  g: -3\n'200': |\n  two\n  lines\n";
        let expected = json!({"a": 1, "b": [true, null, "x", 1.5, "007x", "2"], "c": {"d": "v1.0"}, "e": {"d": "v1.0"},
            "f": {"d": "v1.0", "g": -3}, "200": "two\nlines\n"});
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn aliases_have_a_budget() {
        let mut text = "a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]\n".to_owned();
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        let problem = parse(&text).unwrap_err();
        assert!(problem.message.contains("more than"), "{}", problem.message);
    }

    #[test]
    fn problems_have_a_line() {
        for (text, line, word) in [
            ("a: 1\na: 2\n", 2, "twice"),
            ("a: 1\n---\nb: 2\n", 2, "second"),
            ("a: [1\n", 2, "YAML"),
            ("a: &x [*x]\n", 1, "alias"),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.message.contains(word), "{text}: {}", problem.message);
            assert_eq!(problem.line, line, "{text}");
        }
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        assert!(parse(&deep).is_err());
    }
}
