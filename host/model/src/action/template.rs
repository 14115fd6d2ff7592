//! A value with references in it, read once and filled in once: what is filled in is never read again.

use cofferdam_core::document::{Node, Refused};
use serde_json::{Map, Value};

use super::reference::{Scope, reference};

/// Deepest nesting of an input's lists and tables.
const MAX_DEPTH: usize = 32;

/// Most parts of one text: references, and what stands between them.
const MAX_PARTS: usize = 256;

/// A step's input, or a part of one.
#[derive(Debug, Clone, PartialEq)]
pub enum Template {
    /// As it stands.
    Literal(Value),
    /// A reference alone: the value keeps its type.
    Whole(Reference),
    /// A text with references in it.
    Text(Vec<Part>),
    /// A list with references somewhere in it.
    List(Vec<Template>),
    /// A table with references somewhere in it, in the order of the file.
    Table(Vec<(String, Template)>),
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// As it stands.
    Literal(String),
    /// What is referred to, as text.
    Reference(Reference),
}

/// What stands between `${` and `}`.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// The value that it begins at.
    pub root: Root,
    /// The fields and places within that value.
    pub path: Vec<Segment>,
    /// As it is written, without `${` and `}`.
    pub text: String,
}

/// Where a reference begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// An argument of the caller's.
    Arg(String),
    /// The value of an earlier step, by its place.
    Step(usize),
}

/// One step into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// The field of this name.
    Field(String),
    /// The item at this place.
    Index(usize),
}

/// What templates are filled in with.
#[derive(Debug, Clone, Copy)]
pub struct Values<'v> {
    /// The caller's arguments, with defaults.
    pub args: &'v Map<String, Value>,
    /// The values of the steps so far.
    pub steps: &'v [Value],
}

impl Template {
    /// Reads a value of the file; what is wrong with its references is reported.
    pub(super) fn read(node: &Node<'_>, scope: Scope<'_>) -> Option<Self> {
        Self::read_below(node, scope, 0)
    }

    fn read_below(node: &Node<'_>, scope: Scope<'_>, depth: usize) -> Option<Self> {
        if depth > MAX_DEPTH {
            let message = format!("values are nested more than {MAX_DEPTH} deep");
            node.place().refuse(Refused::new(message, "flatten them"));
            return None;
        }
        match node {
            Node::Plain(plain) => Some(Self::Literal(plain.value.clone())),
            Node::Text(text) => text.parse(|text| read_text(text, scope)),
            Node::List(_, items) => {
                // All of them are read, so that all that is wrong is told.
                let items: Vec<_> =
                    items.iter().map(|item| Self::read_below(item, scope, depth + 1)).collect();
                let items: Vec<_> = items.into_iter().collect::<Option<_>>()?;
                let plain = items.iter().map(|item| item.literal().cloned()).collect::<Option<Vec<_>>>();
                Some(plain.map_or_else(|| Self::List(items), |plain| Self::Literal(plain.into())))
            }
            Node::Table(_, fields) => {
                let read = |(name, field): &(_, Node<'_>)| {
                    let name: &cofferdam_core::document::Located<'_, &str> = name;
                    if name.value.contains("${") {
                        let message = "a name has no references in it";
                        name.refuse(Refused::new(message, "write the name out; references stand in values"));
                        return None;
                    }
                    Some((name.value.to_owned(), Self::read_below(field, scope, depth + 1)?))
                };
                let fields: Vec<_> = fields.iter().map(read).collect();
                let fields: Vec<_> = fields.into_iter().collect::<Option<_>>()?;
                let plain = |(name, field): &(String, Self)| Some((name.clone(), field.literal()?.clone()));
                let all = fields.iter().map(plain).collect::<Option<Map<_, _>>>();
                Some(all.map_or_else(|| Self::Table(fields), |all| Self::Literal(all.into())))
            }
        }
    }

    /// The value of one without references.
    pub(crate) fn literal(&self) -> Option<&Value> {
        match self {
            Self::Literal(value) => Some(value),
            _ => None,
        }
    }
}

/// Divides a text at its references. Before a `{`, two dollars stand for one, and one that is left over begins a
/// reference: `$${` is a plain `${`, and `$$${args.sum}` a dollar and a sum.
pub(super) fn read_text(text: &str, scope: Scope<'_>) -> Result<Template, Refused> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at_checked(at).unwrap_or((rest, ""));
        plain.push_str(before);
        let dollars = after.bytes().take_while(|b| *b == b'$').count();
        let after = after.get(dollars..).unwrap_or_default();
        let Some(inside) = after.strip_prefix('{') else {
            plain.extend(std::iter::repeat_n('$', dollars));
            rest = after;
            continue;
        };
        plain.extend(std::iter::repeat_n('$', dollars / 2));
        if dollars % 2 == 0 {
            rest = after;
            continue;
        }
        let Some((inside, after)) = inside.split_once('}') else {
            let message = "a `${` is not closed";
            return Err(Refused::new(message, "write the `}`, or `$${` for a plain `${`"));
        };
        if !plain.is_empty() {
            parts.push(Part::Literal(std::mem::take(&mut plain)));
        }
        parts.push(Part::Reference(reference(inside, scope)?));
        if parts.len() > MAX_PARTS {
            return Err(Refused::new("the text has too many references", "divide it: up to 128 are taken"));
        }
        rest = after;
    }
    plain.push_str(rest);
    if parts.is_empty() {
        return Ok(Template::Literal(plain.into()));
    }
    if !plain.is_empty() {
        parts.push(Part::Literal(plain));
    }
    match parts.as_mut_slice() {
        [Part::Reference(alone)] => Ok(Template::Whole(alone.clone())),
        _ => Ok(Template::Text(parts)),
    }
}

impl Template {
    /// The value as it is written in a file: references between `${` and `}`, and a plain `${` as `$${`.
    #[must_use]
    pub fn written(&self) -> Value {
        match self {
            Self::Literal(value) => escaped(value),
            Self::Whole(reference) => format!("${{{}}}", reference.text).into(),
            Self::Text(parts) => parts
                .iter()
                .zip(1..)
                .fold(String::new(), |text, (part, next)| {
                    text + &match part {
                        Part::Literal(plain) => escape(plain, parts.get(next).is_some()),
                        Part::Reference(reference) => format!("${{{}}}", reference.text),
                    }
                })
                .into(),
            Self::List(items) => items.iter().map(Self::written).collect(),
            Self::Table(fields) => {
                Value::Object(fields.iter().map(|(name, field)| (name.clone(), field.written())).collect())
            }
        }
    }
}

fn escaped(value: &Value) -> Value {
    match value {
        Value::String(text) => escape(text, false).into(),
        Value::Array(items) => items.iter().map(escaped).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, field)| (name.clone(), escaped(field))).collect())
        }
        plain => plain.clone(),
    }
}

/// Twice as many dollars wherever a reference could begin with them: before a `{`, and at the end before a reference.
pub(super) fn escape(text: &str, reference_follows: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut dollars = 0;
    for c in text.chars() {
        if c == '{' {
            escaped.extend(std::iter::repeat_n('$', dollars));
        }
        dollars = if c == '$' { dollars + 1 } else { 0 };
        escaped.push(c);
    }
    if reference_follows {
        escaped.extend(std::iter::repeat_n('$', dollars));
    }
    escaped
}
