//! A value with references, parsed once and filled in once: the filled-in values are never parsed again.

use cofferdam_core::document::{InvalidValue, SpannedValue, quoted};
use cofferdam_core::suggest;
use serde_json::{Map, Value};

/// Deepest nesting of an input's lists and tables.
const MAX_DEPTH: usize = 32;

/// The most parts of one text: references, and the text between them.
const MAX_PARTS: usize = 256;

/// A step's input, or a part of one.
#[derive(Debug, Clone, PartialEq)]
pub enum Template {
    /// A literal value.
    Literal(Value),
    /// A reference alone: the value keeps its type.
    Reference(TemplateReference),
    /// A text with references in it.
    Text(Vec<TemplatePart>),
    /// A list with references somewhere in it.
    List(Vec<Template>),
    /// A table with references somewhere in it, in the order of the file.
    Table(Vec<(String, Template)>),
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum TemplatePart {
    /// Literal text.
    Literal(String),
    /// A reference, rendered as text.
    Reference(TemplateReference),
}

/// The reference between `${` and `}`.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateReference {
    /// The value that it begins at.
    pub root: ReferenceRoot,
    /// The fields and places within that value.
    pub path: Vec<ReferenceSegment>,
    /// As it is written, without `${` and `}`.
    pub text: String,
}

/// The beginning of a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReferenceRoot {
    /// An argument of the caller's.
    Arg(String),
    /// The value of an earlier step, by its place.
    Step(usize),
}

/// One step into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReferenceSegment {
    /// The field of this name.
    Field(String),
    /// The item at this place.
    Index(usize),
}

/// The values for templates.
#[derive(Debug, Clone, Copy)]
pub struct TemplateValues<'v> {
    /// The caller's arguments, with defaults.
    pub args: &'v Map<String, Value>,
    /// The values of the steps so far.
    pub steps: &'v [Value],
}

impl Template {
    /// Reads a value of the file and reports the problems of its references.
    pub(super) fn read(node: &SpannedValue<'_>, scope: ReferenceScope<'_>) -> Option<Self> {
        Self::read_below(node, scope, 0)
    }

    fn read_below(node: &SpannedValue<'_>, scope: ReferenceScope<'_>, depth: usize) -> Option<Self> {
        if depth > MAX_DEPTH {
            let message = format!("values are nested more than {MAX_DEPTH} deep");
            node.location().refuse(InvalidValue::new(message, "flatten them"));
            return None;
        }
        match node {
            SpannedValue::Plain(plain) => Some(Self::Literal(plain.value.clone())),
            SpannedValue::Text(text) => text.parse(|text| read_text(text, scope)),
            SpannedValue::List(_, items) => {
                // All of them are read, so that all problems are reported.
                let items: Vec<_> =
                    items.iter().map(|item| Self::read_below(item, scope, depth + 1)).collect();
                let items: Vec<_> = items.into_iter().collect::<Option<_>>()?;
                let plain = items.iter().map(|item| item.literal().cloned()).collect::<Option<Vec<_>>>();
                Some(plain.map_or_else(|| Self::List(items), |plain| Self::Literal(plain.into())))
            }
            SpannedValue::Table(_, fields) => {
                let read = |(name, field): &(_, SpannedValue<'_>)| {
                    let name: &cofferdam_core::document::SpannedItem<'_, &str> = name;
                    if name.value.contains("${") {
                        let message = "a name has no references in it";
                        name.refuse(InvalidValue::new(
                            message,
                            "write the name out; references stand in values",
                        ));
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

/// Divides a text at its references. Before a `{`, two dollars are an escaped one, and a remaining one begins
/// a reference: `$${` is a plain `${`, and `$$${args.sum}` a dollar and a sum.
pub(super) fn read_text(text: &str, scope: ReferenceScope<'_>) -> Result<Template, InvalidValue> {
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
            return Err(InvalidValue::new(message, "write the `}`, or `$${` for a plain `${`"));
        };
        if !plain.is_empty() {
            parts.push(TemplatePart::Literal(std::mem::take(&mut plain)));
        }
        parts.push(TemplatePart::Reference(reference(inside, scope)?));
        if parts.len() > MAX_PARTS {
            return Err(InvalidValue::new(
                "the text has too many references",
                "divide it: up to 128 are taken",
            ));
        }
        rest = after;
    }
    plain.push_str(rest);
    if parts.is_empty() {
        return Ok(Template::Literal(plain.into()));
    }
    if !plain.is_empty() {
        parts.push(TemplatePart::Literal(plain));
    }
    match parts.as_mut_slice() {
        [TemplatePart::Reference(alone)] => Ok(Template::Reference(alone.clone())),
        _ => Ok(Template::Text(parts)),
    }
}

impl Template {
    /// The value as it is written in a file: references between `${` and `}`, and a plain `${` as `$${`.
    #[must_use]
    pub fn to_source(&self) -> Value {
        match self {
            Self::Literal(value) => escaped(value),
            Self::Reference(reference) => format!("${{{}}}", reference.text).into(),
            Self::Text(parts) => parts
                .iter()
                .zip(1..)
                .fold(String::new(), |text, (part, next)| {
                    text + &match part {
                        TemplatePart::Literal(plain) => escape(plain, parts.get(next).is_some()),
                        TemplatePart::Reference(reference) => format!("${{{}}}", reference.text),
                    }
                })
                .into(),
            Self::List(items) => items.iter().map(Self::to_source).collect(),
            Self::Table(fields) => {
                Value::Object(fields.iter().map(|(name, field)| (name.clone(), field.to_source())).collect())
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

/// Most steps into a value.
const MAX_PATH: usize = 16;

/// Longest reference, in bytes.
const MAX_BYTES: usize = 300;

/// The possible beginnings of a reference, at one step of one action.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReferenceScope<'s> {
    /// The names of the declared inputs.
    pub(super) inputs: &'s [&'s str],
    /// The ids of all steps, in order.
    pub(super) steps: &'s [&'s str],
    /// The index of the referring step.
    pub(super) at: usize,
}

/// Reads and resolves a reference.
pub(super) fn reference(text: &str, scope: ReferenceScope<'_>) -> Result<TemplateReference, InvalidValue> {
    const FORM: &str = "write it like ${args.name} or ${steps.id.field[0].name}";
    let wrong = |why: &str, fix: &str| Err(InvalidValue::new(format!("{} {why}", shown(text)), fix));
    if text.len() > MAX_BYTES {
        return wrong("is longer than 300 bytes", "shorten it");
    }
    if text.trim() != text || text.is_empty() {
        return wrong("is no reference", FORM);
    }
    let (root, rest) = word(text);
    let (name, rest) = match (root, rest.strip_prefix('.')) {
        ("args" | "steps", Some(rest)) => word(rest),
        ("args" | "steps", None) => return wrong("does not say which", FORM),
        ("secrets" | "secret" | "env" | "credentials", _) => {
            let fix =
                "bind the credential with `cofferdam binding set`: the host adds it, and no file holds it";
            return wrong("is not to be had: an action sees no secrets", fix);
        }
        (other, _) => {
            let fix = match suggest::nearest(other, ["args", "steps"]) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    "a reference begins with `args.` or `steps.`; `$${` stands for a plain `${`".to_owned()
                }
            };
            return wrong("refers to nothing there is", &fix);
        }
    };
    if name.is_empty() {
        return wrong("is no reference", FORM);
    }
    let root = if root == "args" { argument(name, scope) } else { step(name, scope) };
    let root = root.map_err(|(why, fix)| InvalidValue::new(format!("{} {why}", shown(text)), fix))?;
    match path(rest) {
        Some(path) => Ok(TemplateReference { root, path, text: text.to_owned() }),
        None => wrong("is no reference", FORM),
    }
}

type UnresolvedReference = (String, String);

fn argument(name: &str, scope: ReferenceScope<'_>) -> Result<ReferenceRoot, UnresolvedReference> {
    if scope.inputs.contains(&name) {
        return Ok(ReferenceRoot::Arg(name.to_owned()));
    }
    let why = "names no declared input".to_owned();
    Err((why, near(name, scope.inputs, "declare it under [[inputs]]")))
}

fn step(id: &str, scope: ReferenceScope<'_>) -> Result<ReferenceRoot, UnresolvedReference> {
    let Some(at) = scope.steps.iter().position(|known| *known == id) else {
        let earlier = scope.steps.get(..scope.at).unwrap_or_default();
        return Err(("names no step".to_owned(), near(id, earlier, "name an earlier step by its id")));
    };
    match at.cmp(&scope.at) {
        std::cmp::Ordering::Less => Ok(ReferenceRoot::Step(at)),
        std::cmp::Ordering::Equal => {
            let why = "is the value of this very step, which has none before it has run".to_owned();
            Err((why, "name an earlier step".to_owned()))
        }
        std::cmp::Ordering::Greater => {
            let why = "is the value of a step that comes later".to_owned();
            Err((why, "steps run in the order of the file: move that step before this one".to_owned()))
        }
    }
}

fn near(name: &str, known: &[&str], otherwise: &str) -> String {
    match suggest::nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => otherwise.to_owned(),
        None => format!("{otherwise} (there are: {})", known.join(", ")),
    }
}

/// The steps into the value.
fn path(mut rest: &str) -> Option<Vec<ReferenceSegment>> {
    let mut path = Vec::new();
    while !rest.is_empty() {
        if path.len() == MAX_PATH {
            return None;
        }
        if let Some(inner) = rest.strip_prefix('[') {
            let (digits, after) = inner.split_once(']')?;
            let plain = (1..=6).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
            path.push(ReferenceSegment::Index(digits.parse().ok().filter(|_| plain)?));
            rest = after;
        } else {
            let (name, after) = word(rest.strip_prefix('.')?);
            path.push(ReferenceSegment::Field((!name.is_empty()).then(|| name.to_owned())?));
            rest = after;
        }
    }
    Some(path)
}

/// The name that `text` begins with, and what follows.
fn word(text: &str) -> (&str, &str) {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let end = text.find(|c| !letter(c)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// Returns the reference in a form that is safe for a message.
pub(super) fn shown(text: &str) -> String {
    let quoted = quoted(text);
    format!("`${{{}}}`", quoted.trim_matches('"'))
}
