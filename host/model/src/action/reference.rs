//! The text between `${` and `}`: parsed once, by a grammar without expressions, and resolved at once.

use cofferdam_core::document::{InvalidValue, quoted};
use cofferdam_core::suggest;

use super::template::{ReferenceRoot, ReferenceSegment, TemplateReference};

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
