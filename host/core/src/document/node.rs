//! A value of a document as a tree whose every part knows its place, for what is read by rules of its own.

use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;

use super::as_json;
use super::reader::{Located, Sink, Table, path_part};

/// A value, with its place.
pub enum Node<'a> {
    /// A text.
    Text(Located<'a, &'a str>),
    /// A number or a truth value.
    Plain(Located<'a, Value>),
    /// A list.
    List(Located<'a, ()>, Vec<Node<'a>>),
    /// A table, its keys in the order of the text.
    Table(Located<'a, ()>, Vec<(Located<'a, &'a str>, Node<'a>)>),
}

impl<'a> Table<'a> {
    /// What stands under `key`, if anything does; what JSON has no word for is reported.
    pub fn node(&self, key: &str) -> Option<Node<'a>> {
        let (path, value) = self.get(key)?;
        node(self.sink, path, value)
    }
}

impl<'a> Node<'a> {
    /// Where it is.
    pub fn place(&self) -> Located<'a, ()> {
        let at = |sink, path: &str, span: &std::ops::Range<usize>| Located {
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

/// The tree; the reader's bound on nesting is what bounds the recursion.
fn node<'a>(sink: &'a Sink<'a>, path: String, value: &'a Spanned<DeValue<'a>>) -> Option<Node<'a>> {
    let place = |path: String| Located { sink, path, span: value.span(), value: () };
    match value.get_ref() {
        DeValue::String(text) => {
            Some(Node::Text(Located { sink, path, span: value.span(), value: text.as_ref() }))
        }
        DeValue::Array(items) => {
            // All of them are looked at, so that all that is wrong is told.
            let items: Vec<_> = items
                .iter()
                .enumerate()
                .map(|(index, item)| node(sink, format!("{path}[{index}]"), item))
                .collect();
            Some(Node::List(place(path), items.into_iter().collect::<Option<_>>()?))
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
                    Some((Located { sink, path, span: key.span(), value: name }, field))
                })
                .collect();
            Some(Node::Table(place(path), fields.into_iter().collect::<Option<_>>()?))
        }
        plain => match as_json::value(plain) {
            Ok(json) => Some(Node::Plain(Located { sink, path, span: value.span(), value: json })),
            Err(refused) => {
                place(path).refuse(refused);
                None
            }
        },
    }
}
