//! Parses YAML to the tree that a TOML text with the same values has, so that one reader reads both.
//!
//! Only what TOML has, too, is accepted: no anchors, no tags, no `null`, one document, and keys that are scalars. So no
//! document is larger than its text.

use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput, Tag};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::error::{InvalidValue, quoted};
use super::reader::MAX_DEPTH;

/// The deepest nesting. A table of tables, which TOML writes in one line, is two levels here.
const YAML_DEPTH: usize = 2 * MAX_DEPTH;

/// A problem and its place.
type Problem = (Range<usize>, InvalidValue);

/// Parses the root table of `text`.
pub(super) fn parse(text: &str) -> Result<DeTable<'_>, Problem> {
    let mut reader = YamlReader::new(text);
    let root = loop {
        match reader.next()? {
            (Event::StreamStart | Event::DocumentStart(_), _) => {}
            (Event::StreamEnd, _) => return Ok(DeTable::new()),
            (event, place) => break reader.value(event, place, 0)?,
        }
    };
    while let (event, place) = reader.next()?
        && event != Event::StreamEnd
    {
        if event != Event::DocumentEnd {
            return refuse(place, "a second document begins here", "write one document a file");
        }
    }
    let place = root.span();
    match root.into_inner() {
        DeValue::Table(table) => Ok(table),
        _ => refuse(place, "the document is not a table", "begin with a key, like `scenario:`"),
    }
}

struct YamlReader<'t> {
    text: &'t str,
    parser: Parser<'t, StrInput<'t>>,
    /// The position of each character in bytes: the parser counts characters.
    offsets: Vec<usize>,
}

impl<'t> YamlReader<'t> {
    fn new(text: &'t str) -> Self {
        let offsets = text.char_indices().map(|(offset, _)| offset).collect();
        Self { text, parser: Parser::new_from_str(text), offsets }
    }

    fn offset(&self, character: usize) -> usize {
        self.offsets.get(character).copied().unwrap_or(self.text.len())
    }

    fn next(&mut self) -> Result<(Event<'t>, Range<usize>), Problem> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                Ok((event, self.offset(span.start.index())..self.offset(span.end.index())))
            }
            Some(Err(error)) => {
                let at = self.offset(error.marker().index());
                refuse(at..at, &format!("this is not YAML: {}", error.info()), "correct the YAML here")
            }
            None => Ok((Event::StreamEnd, self.text.len()..self.text.len())),
        }
    }

    fn value(
        &mut self,
        event: Event<'t>,
        place: Range<usize>,
        depth: usize,
    ) -> Result<Spanned<DeValue<'t>>, Problem> {
        if depth > YAML_DEPTH {
            let message = format!("values are nested more than {YAML_DEPTH} deep");
            return refuse(place, &message, "flatten them");
        }
        let value = match event {
            Event::Scalar(text, style, anchor, tag) => {
                reject_anchor(&place, anchor, tag.as_deref())?;
                match style {
                    ScalarStyle::Plain => self.plain(&place, text.as_ref())?,
                    _ => DeValue::String(text),
                }
            }
            Event::SequenceStart(anchor, tag) => {
                reject_anchor(&place, anchor, tag.as_deref())?;
                let mut items = DeArray::new();
                loop {
                    let (event, place) = self.next()?;
                    if event == Event::SequenceEnd {
                        break DeValue::Array(items);
                    }
                    items.push(self.value(event, place, depth + 1)?);
                }
            }
            Event::MappingStart(anchor, tag) => {
                reject_anchor(&place, anchor, tag.as_deref())?;
                DeValue::Table(self.table(depth)?)
            }
            _ => return refuse(place, "this is an alias", "write the value itself"),
        };
        Ok(Spanned::new(place, value))
    }

    /// Reads the rest of a mapping.
    fn table(&mut self, depth: usize) -> Result<DeTable<'t>, Problem> {
        let mut table = DeTable::new();
        loop {
            let (key, place) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(table),
                (Event::Scalar(text, _, 0, None), place) => (text, place),
                (_, place) => {
                    let fix = "write a text as key; a placeholder like \"{{any}}\" has to be in quotes";
                    return refuse(place, "this key is not a text", fix);
                }
            };
            let (event, at) = self.next()?;
            let value = self.value(event, at, depth + 1)?;
            if table.contains_key(key.as_ref()) {
                let message = format!("the key {} stands twice in its table", quoted(&key));
                return refuse(place, &message, "keep one of the two");
            }
            table.insert(Spanned::new(place, key), value);
        }
    }

    /// Returns the value of a scalar without quotes.
    fn plain(&self, place: &Range<usize>, text: &str) -> Result<DeValue<'t>, Problem> {
        Ok(match text {
            "" | "~" | "null" | "Null" | "NULL" => {
                let fix = "write a value, or leave the key out; \"{{null}}\" stands for JSON's null";
                return refuse(place.clone(), "this is null", fix);
            }
            "true" | "True" | "TRUE" => DeValue::Boolean(true),
            "false" | "False" | "FALSE" => DeValue::Boolean(false),
            _ => {
                let source = self.text.get(place.clone()).filter(|source| *source == text);
                match source.filter(|_| is_decimal(text)).map(DeValue::parse) {
                    Some(Ok(number)) if !number.get_ref().is_datetime() => number.into_inner(),
                    _ => DeValue::String(text.to_owned().into()),
                }
            }
        })
    }
}

/// Returns whether the text may be a number of both languages.
fn is_decimal(text: &str) -> bool {
    text.strip_prefix(['-', '+']).unwrap_or(text).starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b))
}

fn reject_anchor(place: &Range<usize>, anchor: usize, tag: Option<&Tag>) -> Result<(), Problem> {
    match (anchor, tag) {
        (0, None) => Ok(()),
        (0, Some(_)) => refuse(place.clone(), "this has a tag", "write the value without it"),
        (_, _) => refuse(place.clone(), "this has an anchor", "write the value where it is needed"),
    }
}

fn refuse<T>(place: Range<usize>, message: &str, fix: &str) -> Result<T, Problem> {
    Err((place, InvalidValue::new(message, fix)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::super::{SpannedValue, read_yaml};

    /// The problem of a document, without its fix.
    fn problem(text: &str) -> String {
        let error = read_yaml("t.yaml", text, |table| table.node("a").map(drop)).unwrap_err();
        let shown = error.to_string();
        shown.split(';').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn values_have_the_types_of_the_core_schema() {
        let text =
            "# é\na: [yes, 'true', true, 7, -2.5, 1e3, 0x10, 007, 1_000, 2026-01-02, .inf, \"{{any}}\"]\n";
        let (texts, line) = read_yaml("t.yaml", text, |table| {
            let Some(SpannedValue::List(place, items)) = table.node("a") else { return None };
            let shown = items.iter().map(|item| match item {
                SpannedValue::Text(text) => format!("text {}", text.value),
                SpannedValue::Plain(plain) => plain.value.to_string(),
                _ => String::new(),
            });
            Some((shown.collect::<Vec<_>>(), place.line()))
        })
        .unwrap();
        let expected = [
            "text yes",
            "text true",
            "true",
            "7",
            "-2.5",
            "1000.0",
            "text 0x10",
            "text 007",
            "text 1_000",
            "text 2026-01-02",
            "text .inf",
            "text {{any}}",
        ];
        assert_eq!((texts, line), (expected.map(str::to_owned).to_vec(), 2));
    }

    #[test]
    fn what_toml_does_not_have_is_refused_with_its_place() {
        let deep = format!("a: {}", "[".repeat(40));
        for (text, expected) in [
            ("a: &x 1\n", "t.yaml:1:4: this has an anchor"),
            ("b: 1\na: !!str 1\n", "t.yaml:2:"),
            ("a: *x\n", "t.yaml:1:"),
            ("a: {{any}}\n", "t.yaml:1:"),
            ("a:\n  b: ~\n", "t.yaml:2:6: this is null"),
            ("a: 1\n\na: 2\n", "t.yaml:3:1: the key \"a\" stands twice in its table"),
            ("a: 1\n---\na: 2\n", "t.yaml:2:1: a second document begins here"),
            ("- a\n", "t.yaml:1:1: the document is not a table"),
            ("é: 1\na: \"x\n", "t.yaml:"),
            ("\u{feff}a: 1", "t.yaml:1:1: the document starts with a byte order mark"),
            (deep.as_str(), "t.yaml:1:"),
        ] {
            let found = problem(text);
            assert!(found.starts_with(expected), "{text}: {found}");
        }
    }

    #[test]
    fn an_empty_document_is_an_empty_table() {
        for text in ["", "# nothing\n", "---\n{}\n"] {
            assert!(read_yaml("t.yaml", text, |table| (!table.has("a")).then_some(())).is_ok(), "{text}");
        }
    }
}
