//! Checks a step's inputs against the types of the operation's parameters before anything runs.

use cofferdam_core::document::{Diagnostics, InvalidValue, PathSegment};
use cofferdam_core::suggest;
use cofferdam_model::action::{Action, Template, TemplatePart};
use cofferdam_model::package::{OperationSignature, ShapeField, ValueShape};
use cofferdam_sandbox;

use super::known::{KnownType, Results, follow};
use super::shapes::{nested, not_one_of, optional, shown};

/// The context of the check of one step's inputs.
pub(super) struct TypedInputs<'a, 'f, 't> {
    pub(super) action: &'a Action,
    pub(super) results: &'f Results<'a>,
    pub(super) findings: &'f mut Diagnostics<'t>,
}

/// One input of a call.
#[derive(Clone)]
pub(super) struct GivenInputs<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a Template,
    /// Its path in the file, or the path that its problems are reported for.
    pub(super) path: Vec<PathSegment<'a>>,
    /// The type that it was checked against already.
    pub(super) held: Option<&'a ValueShape>,
}

impl TypedInputs<'_, '_, '_> {
    /// Checks that every parameter is given once and fits. `here` is the path of the inputs.
    pub(super) fn inputs(
        &mut self,
        operation: &OperationSignature,
        given: &[GivenInputs<'_>],
        here: &[PathSegment<'_>],
    ) {
        let name = operation.name().json();
        for input in given {
            match operation.params().iter().find(|param| param.name.json() == input.name) {
                Some(param) if input.held == Some(&param.shape) => {}
                Some(param) => {
                    self.fits(input.value, &param.shape, &mut input.path.clone(), optional(&param.shape));
                }
                None => {
                    let params: Vec<_> = operation.params().iter().map(|it| it.name.json()).collect();
                    let shown = cofferdam_core::failure::sanitize_line(input.name, 64);
                    let message = format!("`{name}` has no parameter `{shown}`");
                    self.refuse(&input.path, message, nearest(input.name, &params));
                }
            }
        }
        let missing = |param: &&ShapeField| {
            !optional(&param.shape) && !given.iter().any(|input| input.name == param.name.json())
        };
        for param in operation.params().iter().filter(missing) {
            let message = format!("`{name}` needs `{}`: {}", param.name.json(), shown(&param.shape));
            self.refuse(here, message, format!("give it: the operation is {operation}"));
        }
    }

    fn refuse(&mut self, path: &[PathSegment<'_>], message: String, fix: impl Into<String>) {
        self.findings.refuse(path, &InvalidValue::new(message, fix));
    }

    /// Checks a template against a type. `may_miss` says whether the parent can do without the value.
    fn fits<'p>(
        &mut self,
        template: &'p Template,
        to: &'p ValueShape,
        path: &mut Vec<PathSegment<'p>>,
        may_miss: bool,
    ) {
        match (template, to) {
            (Template::Literal(value), to) => {
                if let Err((steps, expected)) = cofferdam_sandbox::literal_fits(to, value) {
                    let mut path = path.clone();
                    path.extend(steps.iter().map(|step| key(step)));
                    self.refuse(&path, expected, format!("write a value of type {}", shown(to)));
                }
            }
            (Template::Reference(_) | Template::Text(_), to) => self.referred(template, to, path, may_miss),
            (Template::List(_) | Template::Table(_), ValueShape::Option(inner)) if !nested(inner) => {
                self.fits(template, inner, path, false);
            }
            (Template::List(items), ValueShape::List(item)) => {
                for (at, own) in items.iter().enumerate() {
                    path.push(PathSegment::At(at));
                    self.fits(own, item, path, true);
                    path.pop();
                }
            }
            (Template::List(items), ValueShape::Tuple(of)) if items.len() == of.len() => {
                for (at, (own, to)) in items.iter().zip(of.iter()).enumerate() {
                    path.push(PathSegment::At(at));
                    self.fits(own, to, path, false);
                    path.pop();
                }
            }
            (Template::List(items), ValueShape::Flags(names)) => {
                for (at, own) in items.iter().enumerate() {
                    path.push(PathSegment::At(at));
                    match own {
                        Template::Literal(serde_json::Value::String(word))
                            if !names.iter().any(|name| name.json() == word) =>
                        {
                            self.refuse(path, not_one_of(word, names), "write one of them");
                        }
                        own => self.fits(own, &ValueShape::String, path, true),
                    }
                    path.pop();
                }
            }
            (Template::Table(fields), ValueShape::Record(of)) => self.record(fields, of, path),
            (Template::Table(fields), ValueShape::Variant(cases)) => {
                let payload = |name: &str| {
                    cases.iter().find(|case| case.name.json() == name).and_then(|case| case.payload.as_ref())
                };
                self.case(fields, payload, to, path);
            }
            (Template::Table(fields), ValueShape::Result(ok, err)) => {
                let side = |name: &str| match name {
                    "ok" => ok.as_deref(),
                    "err" => err.as_deref(),
                    _ => None,
                };
                self.case(fields, side, to, path);
            }
            (Template::Table(fields), ValueShape::Option(inner)) => {
                self.case(fields, |name| (name == "some").then_some(&**inner), to, path);
            }
            (Template::List(_), to) => {
                self.refuse(path, format!("a list is not {}", shown(to)), "write a value of that type");
            }
            (Template::Table(_), to) => {
                self.refuse(path, format!("a table is not {}", shown(to)), "write a value of that type");
            }
        }
    }

    fn record<'p>(
        &mut self,
        fields: &'p [(String, Template)],
        of: &'p [ShapeField],
        path: &mut Vec<PathSegment<'p>>,
    ) {
        for (name, own) in fields {
            path.push(PathSegment::Name(name));
            match of.iter().find(|field| field.name.json() == name) {
                Some(field) => self.fits(own, &field.shape, path, optional(&field.shape)),
                None => {
                    let names: Vec<_> = of.iter().map(|field| field.name.json()).collect();
                    self.refuse(path, "there is no such field".to_owned(), nearest(name, &names));
                }
            }
            path.pop();
        }
        for field in of {
            if !optional(&field.shape) && !fields.iter().any(|(name, _)| name == field.name.json()) {
                let message =
                    format!("the field `{}` is missing: {}", field.name.json(), shown(&field.shape));
                self.refuse(path, message, "give it");
            }
        }
    }

    /// Checks a table with one field, whose name selects the variant case.
    fn case<'p>(
        &mut self,
        fields: &'p [(String, Template)],
        payload: impl Fn(&str) -> Option<&'p ValueShape>,
        to: &ValueShape,
        path: &mut Vec<PathSegment<'p>>,
    ) {
        match fields {
            [(name, own)] if payload(name).is_some() => {
                path.push(PathSegment::Name(name));
                if let Some(shape) = payload(name) {
                    self.fits(own, shape, path, optional(shape));
                }
                path.pop();
            }
            _ => {
                let message = format!("this is none of {}", shown(to));
                self.refuse(path, message, "write one of its cases: { case = value }");
            }
        }
    }

    /// Checks a reference, or a text with references.
    fn referred(&mut self, template: &Template, to: &ValueShape, path: &[PathSegment<'_>], may_miss: bool) {
        let (alone, parts) = match template {
            Template::Reference(reference) => (Some(reference), &[][..]),
            Template::Text(parts) => (None, parts.as_slice()),
            _ => return,
        };
        let references = alone.into_iter().chain(parts.iter().filter_map(|part| match part {
            TemplatePart::Reference(reference) => Some(reference),
            TemplatePart::Literal(_) => None,
        }));
        for reference in references {
            let shown_it = format!("`${{{}}}`", cofferdam_core::failure::sanitize_line(&reference.text, 80));
            let found = match follow(reference, self.action, self.results) {
                Ok(found) => found,
                Err((why, fix)) => {
                    self.refuse(path, format!("{shown_it} leads nowhere: {why}"), fix);
                    continue;
                }
            };
            if found.may_be_absent && (alone.is_none() || !may_miss) {
                let where_it_is = if alone.is_none() { "a text" } else { "a place that needs a value" };
                let message = format!("{shown_it} may be left out by callers, and stands in {where_it_is}");
                self.refuse(path, message, "give the input a default, or make it required");
            }
            for known in &found.any {
                let fits = if alone.is_some() { known.fits(to) } else { known.is_text() };
                if let Err(why) = fits {
                    let fix = if alone.is_some() {
                        "refer to a value of the right type"
                    } else {
                        "refer to a part of it"
                    };
                    self.refuse(path, format!("{shown_it} does not fit: {why}"), fix);
                    break;
                }
            }
        }
        if alone.is_none()
            && let Err(why) = KnownType::Text.fits(to)
        {
            self.refuse(path, format!("a text does not fit: {why}"), "write a value of the right type");
        }
    }
}

/// Converts a step into a value, in the sandbox's notation, to a path segment.
fn key(step: &str) -> PathSegment<'_> {
    match step.strip_prefix('.') {
        Some(name) => PathSegment::Name(name),
        None => step.trim_matches(['[', ']']).parse().map_or(PathSegment::Name(step), PathSegment::At),
    }
}

fn nearest(word: &str, known: &[&str]) -> String {
    match suggest::nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "take it out: there are none".to_owned(),
        None => format!("there are: {}", known.join(", ")),
    }
}
