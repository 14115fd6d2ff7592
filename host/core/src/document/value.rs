//! A value of a document as a tree in which every part has its place, for values with reading rules of their
//! own.

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::InvalidValue;
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
        plain => match json_value(plain) {
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

/// Converts the table to an object. A value without a JSON form is rejected, with a description of how to
/// write it.
pub(super) fn object(table: &DeTable<'_>) -> Result<Map<String, Value>, InvalidValue> {
    let fields =
        table.iter().map(|(key, field)| Ok((key.get_ref().to_string(), json_value(field.get_ref())?)));
    fields.collect()
}

pub(super) fn json_value(toml: &DeValue<'_>) -> Result<Value, InvalidValue> {
    Ok(match toml {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Integer(value) => integer(value.as_str(), value.radix())?,
        DeValue::Float(float) => fraction(float.as_str())?,
        DeValue::Array(items) => {
            items.iter().map(|item| json_value(item.get_ref())).collect::<Result<Vec<_>, _>>()?.into()
        }
        DeValue::Table(table) => object(table)?.into(),
        DeValue::Datetime(_) => {
            return Err(InvalidValue::new("JSON has no dates", "put it in double quotes"));
        }
    })
}

fn integer(digits: &str, radix: u32) -> Result<Value, InvalidValue> {
    let digits = digits.replace('_', "");
    let number = u64::from_str_radix(&digits, radix).map(Value::from);
    let number = number.or_else(|_| i64::from_str_radix(&digits, radix).map(Value::from));
    number.map_err(|_| InvalidValue::new("a number of more than 64 bits", "put it in double quotes"))
}

fn fraction(text: &str) -> Result<Value, InvalidValue> {
    let number = text.replace('_', "").parse::<f64>().ok().and_then(Number::from_f64);
    let fix = "write \"NaN\", \"Infinity\" or \"-Infinity\"";
    number.map(Value::Number).ok_or_else(|| InvalidValue::new("JSON has no such number", fix))
}
