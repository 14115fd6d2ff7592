//! Writes parameters into paths, queries, header fields and forms, in the styles of OpenAPI.

use serde_json::Value;

/// A style of OpenAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Simple,
    Label,
    Matrix,
    Form,
    SpaceDelimited,
    PipeDelimited,
    DeepObject,
}

/// Characters that are sent as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Those without a meaning in a URL.
    Unreserved,
    /// Those with one, too: `allowReserved`.
    Reserved,
    /// All: header fields are not encoded.
    All,
}

/// Encodes a text for a URL.
pub(crate) fn encode(text: &str, keep: Keep) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        let is_kept = match keep {
            Keep::Unreserved => byte.is_ascii_alphanumeric() || b"-._~".contains(&byte),
            // Not `&` and `#`, which would end the value.
            Keep::Reserved => byte.is_ascii_alphanumeric() || b"-._~:/?[]@!$'()*+,;=".contains(&byte),
            Keep::All => true,
        };
        if is_kept && byte.is_ascii() {
            encoded.push(char::from(byte));
        } else if keep == Keep::All {
            // A header field of other characters has no agreed form; the SDK refuses control characters.
            return text.to_owned();
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Returns a value as text: lists and objects as JSON.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Joins the items of a list, or the names and values of an object.
fn joined(value: &Value, comma: &str, equals: &str, keep: Keep) -> String {
    let text = |value: &Value| encode(&plain(value), keep);
    match value {
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(comma),
        Value::Object(fields) => {
            let pair =
                |(name, value): (&String, &Value)| format!("{}{equals}{}", encode(name, keep), text(value));
            fields.iter().map(pair).collect::<Vec<_>>().join(comma)
        }
        value => text(value),
    }
}

/// Returns the text of a parameter in a path.
pub(crate) fn path(name: &str, style: Style, explode: bool, value: &Value) -> String {
    let keep = Keep::Unreserved;
    let equals = if explode { "=" } else { "," };
    match (style, value) {
        (Style::Label, value) => {
            let comma = if explode { "." } else { "," };
            format!(".{}", joined(value, comma, equals, keep))
        }
        (Style::Matrix, Value::Array(items)) if explode => {
            let item = |value: &Value| format!(";{}={}", encode(name, keep), encode(&plain(value), keep));
            items.iter().map(item).collect()
        }
        (Style::Matrix, Value::Object(_)) if explode => format!(";{}", joined(value, ";", "=", keep)),
        (Style::Matrix, value) => format!(";{}={}", encode(name, keep), joined(value, ",", ",", keep)),
        (_, value) => match joined(value, ",", equals, keep).as_str() {
            // A segment of dots would lead up in the path.
            "." => "%2E".to_owned(),
            ".." => "%2E%2E".to_owned(),
            text => text.to_owned(),
        },
    }
}

/// Returns the text of a parameter in a header field.
pub(crate) fn header(explode: bool, value: &Value) -> String {
    joined(value, ",", if explode { "=" } else { "," }, Keep::All)
}

/// Returns the pairs of a parameter in a query, encoded.
pub(crate) fn query(name: &str, style: Style, explode: bool, keep: Keep, value: &Value) -> Vec<String> {
    let encoded = |(name, value): (String, String)| {
        format!("{}={}", encode(&name, Keep::Unreserved), encode(&value, keep))
    };
    let one = |comma: &str| {
        let is_empty = value.as_array().is_some_and(Vec::is_empty);
        let pair = format!("{}={}", encode(name, Keep::Unreserved), joined(value, comma, comma, keep));
        if is_empty { Vec::new() } else { vec![pair] }
    };
    match style {
        Style::SpaceDelimited if !explode => one("%20"),
        Style::PipeDelimited if !explode => one("%7C"),
        Style::Form if !explode => one(","),
        Style::DeepObject => nested(name, value).into_iter().map(encoded).collect(),
        _ => exploded(name, value).into_iter().map(encoded).collect(),
    }
}

/// Returns a pair for each item of a list and each field of an object.
fn exploded(name: &str, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Array(items) => items.iter().map(|item| (name.to_owned(), plain(item))).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), plain(value))).collect(),
        value => vec![(name.to_owned(), plain(value))],
    }
}

/// Returns pairs with brackets: `filter[name]=x`, `ids[]=1`, `items[0][id]=1`.
fn nested(name: &str, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Array(items) => {
            let is_numbered = items.iter().any(|item| item.is_object() || item.is_array());
            let item = |(at, item): (usize, &Value)| {
                let name = if is_numbered { format!("{name}[{at}]") } else { format!("{name}[]") };
                nested(&name, item)
            };
            items.iter().enumerate().flat_map(item).collect()
        }
        Value::Object(fields) => {
            let field = |(inner, value): (&String, &Value)| nested(&format!("{name}[{inner}]"), value);
            fields.iter().flat_map(field).collect()
        }
        value => vec![(name.to_owned(), plain(value))],
    }
}

/// Returns the pairs of a form. `styles` are those of fields that are not written in the usual way: lists as repeated
/// names, and objects as JSON.
pub(crate) fn form(value: &Value, styles: &[(&str, Style, bool)]) -> Vec<(String, String)> {
    let Value::Object(fields) = value else {
        return Vec::new();
    };
    let mut pairs = Vec::new();
    for (name, value) in fields {
        let style = styles.iter().find(|(styled, ..)| styled == name);
        match (style, value) {
            (Some((_, Style::DeepObject, _)), value) => pairs.extend(nested(name, value)),
            (Some((_, _, true)), value) => pairs.extend(exploded(name, value)),
            (Some((_, style, false)), value) => {
                let comma = match style {
                    Style::SpaceDelimited => " ",
                    Style::PipeDelimited => "|",
                    _ => ",",
                };
                pairs.push((name.clone(), joined(value, comma, comma, Keep::All)));
            }
            (None, Value::Array(items)) => {
                pairs.extend(items.iter().map(|item| (name.clone(), plain(item))));
            }
            (None, value) => pairs.push((name.clone(), plain(value))),
        }
    }
    pairs
}
