//! A value of a document as a tree in which every part has its place, for values with reading rules of their
//! own.

use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;

use super::as_json;
use super::reader::{DiagnosticSink, DocumentTable, SpannedItem, path_part};

/// A value, with its place.
pub enum SpannedValue<'a> {
    /// A text.
    Text(SpannedItem<'a, &'a str>),
    /// A number or a truth value.
    Plain(SpannedItem<'a, Value>),
    /// A list.
    List(SpannedItem<'a, ()>, Vec<SpannedValue<'a>>),
    /// A table, its keys in the order of the text.
    Table(SpannedItem<'a, ()>, Vec<(SpannedItem<'a, &'a str>, SpannedValue<'a>)>),
}

impl<'a> DocumentTable<'a> {
    /// Returns the value under `key`, if there is one; a value without a JSON form is reported.
    pub fn node(&self, key: &str) -> Option<SpannedValue<'a>> {
        let (path, value) = self.get(key)?;
        node(self.sink, path, value)
    }
}

impl<'a> SpannedValue<'a> {
    /// Returns its place.
    pub fn location(&self) -> SpannedItem<'a, ()> {
        let at = |sink, path: &str, span: &std::ops::Range<usize>| SpannedItem {
            sink,
            path: path.to_owned(),
            span: span.clone(),
            value: (),
        };
        match self {
            Self::Text(it) => at(it.sink, &it.path, &it.span),
            Self::Plain(it) => at(it.sink, &it.path, &it.span),
            Self::List(it, _) | Self::Table(it, _) => it.clone(),
        }
    }
}

/// Builds the tree. The reader's bound on nesting bounds the recursion.
fn node<'a>(
    sink: &'a DiagnosticSink<'a>,
    path: String,
    value: &'a Spanned<DeValue<'a>>,
) -> Option<SpannedValue<'a>> {
    let place = |path: String| SpannedItem { sink, path, span: value.span(), value: () };
    match value.get_ref() {
        DeValue::String(text) => {
            Some(SpannedValue::Text(SpannedItem { sink, path, span: value.span(), value: text.as_ref() }))
        }
        DeValue::Array(items) => {
            // All of them are read, so that all problems are reported.
            let items: Vec<_> = items
                .iter()
                .enumerate()
                .map(|(index, item)| node(sink, format!("{path}[{index}]"), item))
                .collect();
            Some(SpannedValue::List(place(path), items.into_iter().collect::<Option<_>>()?))
        }
        DeValue::Table(table) => {
            let mut keys: Vec<_> = table.iter().collect();
            keys.sort_by_key(|(key, _)| key.span().start);
            let fields: Vec<_> = keys
                .into_iter()
                .map(|(key, field)| {
                    let name: &str = key.get_ref();
                    let path = format!("{path}.{}", path_part(name));
                    let field = node(sink, path.clone(), field)?;
                    Some((SpannedItem { sink, path, span: key.span(), value: name }, field))
                })
                .collect();
            Some(SpannedValue::Table(place(path), fields.into_iter().collect::<Option<_>>()?))
        }
        plain => match as_json::value(plain) {
            Ok(json) => {
                Some(SpannedValue::Plain(SpannedItem { sink, path, span: value.span(), value: json }))
            }
            Err(refused) => {
                place(path).refuse(refused);
                None
            }
        },
    }
}
