//! Checks a step's inputs against the types of the operation's parameters before anything runs.

use cofferdam_core::document::{Diagnostics, InvalidValue, PathSegment};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::suggest;
use cofferdam_model::action::{
    Action, ActionInput, InputKind, ReferenceRoot, ReferenceSegment, Template, TemplatePart,
    TemplateReference,
};
use cofferdam_model::package::{OperationSignature, ShapeField, ValueShape, WitName};
use cofferdam_sandbox;

/// The context of the check of one step's inputs.
pub(super) struct TypedInputs<'a, 'f, 't> {
    pub(super) action: &'a Action,
    pub(super) results: &'f StepResults<'a>,
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

/// The static type of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum KnownType<'a> {
    /// An unknown type: it is a part of an argument of any shape.
    Unknown,
    /// An argument of this type, limited to these texts if there are any.
    Argument(&'a InputKind, &'a [String]),
    /// A value of this type of a connector.
    Shape(&'a ValueShape),
    /// A text with references in it.
    Text,
}

/// The static type of a reference.
pub(super) struct FoundPart<'a> {
    /// The possible types of its value: one for each candidate of a step with fallbacks.
    pub(super) any: Vec<KnownType<'a>>,
    /// True if it may be an argument that was not given.
    pub(super) may_be_absent: bool,
}

/// The results of the earlier steps: for each step, its own operation and its fallbacks'. None if one of them is
/// missing, which was reported already.
pub(super) type StepResults<'a> = Vec<Option<Vec<&'a OperationSignature>>>;

/// Resolves the type of a reference.
///
/// # Errors
/// It refers to a part that never exists. The error has the problem and the fix.
pub(super) fn follow<'a>(
    reference: &TemplateReference,
    action: &'a Action,
    results: &StepResults<'a>,
) -> Result<FoundPart<'a>, (String, String)> {
    let (starts, may_be_absent) = match &reference.root {
        ReferenceRoot::Arg(name) => match action.inputs().iter().find(|input| input.name() == name) {
            Some(input) => (vec![argument(input)], input.may_be_absent()),
            None => (vec![KnownType::Unknown], false),
        },
        ReferenceRoot::Step(at) => match results.get(*at).and_then(Option::as_ref) {
            Some(operations) => {
                let mut starts = Vec::new();
                for operation in operations {
                    let Some(shape) = operation.result() else {
                        let why = format!("`{}` returns nothing", operation.name().json());
                        return Err((why, "take the reference out".to_owned()));
                    };
                    starts.push(KnownType::Shape(shape));
                }
                (starts, false)
            }
            None => (vec![KnownType::Unknown], false),
        },
    };
    let walk = |start| reference.path.iter().try_fold(start, step);
    let any = starts.into_iter().map(walk).collect::<Result<_, _>>()?;
    Ok(FoundPart { any, may_be_absent })
}

fn argument(input: &ActionInput) -> KnownType<'_> {
    KnownType::Argument(input.kind(), input.choices())
}

/// Resolves one segment of a reference.
fn step<'a>(known: KnownType<'a>, segment: &ReferenceSegment) -> Result<KnownType<'a>, (String, String)> {
    match known {
        KnownType::Unknown => Ok(KnownType::Unknown),
        KnownType::Argument(kind, _) => match (kind, segment) {
            (InputKind::Object, ReferenceSegment::Field(_))
            | (InputKind::Array(None), ReferenceSegment::Index(_)) => Ok(KnownType::Unknown),
            (InputKind::Array(Some(item)), ReferenceSegment::Index(_)) => Ok(KnownType::Argument(item, &[])),
            (kind, _) => Err(no_part(segment, &format!("an argument of type {}", kind.name()))),
        },
        KnownType::Text => Err(no_part(segment, "a text")),
        KnownType::Shape(shape) => part(shape, segment).map(KnownType::Shape),
    }
}

fn part<'a>(shape: &'a ValueShape, segment: &ReferenceSegment) -> Result<&'a ValueShape, (String, String)> {
    match (shape, segment) {
        (ValueShape::Option(inner), ReferenceSegment::Field(name)) if nested(inner) && name == "some" => {
            Ok(inner)
        }
        (ValueShape::Option(inner), segment) if !nested(inner) => part(inner, segment),
        (ValueShape::Record(fields), ReferenceSegment::Field(name)) => {
            let found = fields.iter().find(|field| field.name.json() == name);
            found.map(|field| &field.shape).ok_or_else(|| {
                let names: Vec<_> = fields.iter().map(|field| field.name.json()).collect();
                no_field(name, &names)
            })
        }
        (ValueShape::Variant(cases), ReferenceSegment::Field(name)) => {
            let found = cases.iter().find(|case| case.name.json() == name);
            found.and_then(|case| case.payload.as_ref()).ok_or_else(|| {
                let names: Vec<_> =
                    cases.iter().filter(|it| it.payload.is_some()).map(|it| it.name.json()).collect();
                no_field(name, &names)
            })
        }
        (ValueShape::Result(ok, err), ReferenceSegment::Field(name)) => {
            let side = match name.as_str() {
                "ok" => ok.as_deref(),
                "err" => err.as_deref(),
                _ => None,
            };
            side.ok_or_else(|| no_field(name, &["ok", "err"]))
        }
        (ValueShape::List(item), ReferenceSegment::Index(_)) => Ok(item),
        (ValueShape::Tuple(items), ReferenceSegment::Index(at)) => items.get(*at).ok_or_else(|| {
            let why = format!("there is no item {at}: {} has {}", shown(shape), items.len());
            (why, "items are counted from 0".to_owned())
        }),
        (shape, segment) => Err(no_part(segment, &shown(shape))),
    }
}

fn no_field(name: &str, known: &[&str]) -> (String, String) {
    let fix = match suggest::nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? (there are: {})", known.join(", ")),
        None if known.is_empty() => "take the reference out: there are no fields".to_owned(),
        None => format!("there are: {}", known.join(", ")),
    };
    (format!("there is no field `{name}`"), fix)
}

fn no_part(segment: &ReferenceSegment, of: &str) -> (String, String) {
    match segment {
        ReferenceSegment::Field(name) => {
            (format!("{of} has no field `{name}`"), "refer to the whole of it".to_owned())
        }
        ReferenceSegment::Index(at) => {
            (format!("{of} has no item {at}"), "refer to the whole of it".to_owned())
        }
    }
}

impl KnownType<'_> {
    /// Checks that it is accepted where a value of this type is required.
    pub(super) fn fits(self, to: &ValueShape) -> Result<(), String> {
        match self {
            KnownType::Unknown => Ok(()),
            KnownType::Shape(from) => fits(from, to),
            KnownType::Text => argument_fits(&InputKind::String, &[], to),
            KnownType::Argument(kind, choices) => argument_fits(kind, choices, to),
        }
    }

    /// Checks that it can be a part of a text.
    pub(super) fn is_text(self) -> Result<(), String> {
        let list_or_object = "lists and objects have no one way to be written as text";
        match self {
            KnownType::Unknown | KnownType::Text => Ok(()),
            KnownType::Argument(InputKind::Array(_) | InputKind::Object, _) => Err(list_or_object.to_owned()),
            KnownType::Argument(..) => Ok(()),
            KnownType::Shape(shape) => {
                let inner = match shape {
                    ValueShape::Option(inner) => inner,
                    other => other,
                };
                match inner {
                    ValueShape::Bool
                    | ValueShape::Signed(_)
                    | ValueShape::Unsigned(_)
                    | ValueShape::Float(_)
                    | ValueShape::Char
                    | ValueShape::String
                    | ValueShape::Bytes
                    | ValueShape::Enum(_) => Ok(()),
                    other => Err(format!("{} is no text: {list_or_object}", shown(other))),
                }
            }
        }
    }
}

fn argument_fits(kind: &InputKind, choices: &[String], to: &ValueShape) -> Result<(), String> {
    let not = || Err(format!("a value of type {} is not {}", kind.name(), shown(to)));
    match (kind, to) {
        (InputKind::Object, ValueShape::Option(inner)) if nested(inner) => Ok(()),
        (_, ValueShape::Option(inner)) if !nested(inner) => argument_fits(kind, choices, inner),
        (InputKind::String, ValueShape::String | ValueShape::Bytes | ValueShape::Char) => Ok(()),
        (InputKind::String, ValueShape::Enum(names)) => {
            let unknown = choices.iter().find(|word| !names.iter().any(|name| name.json() == *word));
            unknown.map_or(Ok(()), |word| Err(not_one_of(word, names)))
        }
        (InputKind::String, ValueShape::Variant(_)) => fits(&ValueShape::String, to),
        (InputKind::Integer, ValueShape::Signed(_) | ValueShape::Unsigned(_) | ValueShape::Float(_))
        | (InputKind::Number, ValueShape::Float(_))
        | (InputKind::Boolean, ValueShape::Bool)
        | (InputKind::Object, ValueShape::Record(_) | ValueShape::Variant(_) | ValueShape::Result(..))
        | (InputKind::Array(None), ValueShape::List(_) | ValueShape::Tuple(_) | ValueShape::Flags(_)) => {
            Ok(())
        }
        (InputKind::Number, ValueShape::Signed(_) | ValueShape::Unsigned(_)) => {
            Err(format!("a number may have a fraction, and {} has none; declare an integer", shown(to)))
        }
        (InputKind::Array(Some(item)), ValueShape::List(of)) => argument_fits(item, &[], of),
        (InputKind::Array(Some(item)), ValueShape::Tuple(of)) => {
            of.iter().try_for_each(|of| argument_fits(item, &[], of))
        }
        (InputKind::Array(Some(item)), ValueShape::Flags(_)) if **item == InputKind::String => Ok(()),
        _ => not(),
    }
}

/// The longest type that is written out in a message, in characters.
const MAX_SHAPE_CHARS: usize = 160;

/// Returns a type in the form for a message.
pub(super) fn shown(shape: &ValueShape) -> String {
    format!("`{}`", sanitize_line(&shape.to_string(), MAX_SHAPE_CHARS))
}

/// Checks that values of `from` are accepted where `to` is required.
pub(super) fn fits(from: &ValueShape, to: &ValueShape) -> Result<(), String> {
    let not = || Err(format!("{} is not {}", shown(from), shown(to)));
    match (from, to) {
        (ValueShape::Option(a), ValueShape::Option(b)) if nested(a) || nested(b) => {
            if from == to {
                Ok(())
            } else {
                not()
            }
        }
        (ValueShape::Option(a), ValueShape::Option(b)) => fits(a, b),
        (from, ValueShape::Option(b)) if !nested(b) => fits(from, b),
        // An optional value is accepted for a required one. If it is missing, the call is refused.
        (ValueShape::Option(a), to) if !nested(a) => fits(a, to),
        (ValueShape::Bool, ValueShape::Bool)
        | (
            ValueShape::Signed(_) | ValueShape::Unsigned(_),
            ValueShape::Signed(_) | ValueShape::Unsigned(_) | ValueShape::Float(_),
        )
        | (ValueShape::Float(_), ValueShape::Float(_))
        | (
            ValueShape::String | ValueShape::Char | ValueShape::Bytes | ValueShape::Enum(_),
            ValueShape::String,
        )
        | (ValueShape::String | ValueShape::Char, ValueShape::Char)
        | (ValueShape::String | ValueShape::Bytes, ValueShape::Bytes)
        | (ValueShape::String, ValueShape::Enum(_)) => Ok(()),
        (ValueShape::String, ValueShape::Variant(cases))
            if cases.iter().any(|case| case.payload.is_none()) =>
        {
            Ok(())
        }
        (ValueShape::Enum(a), ValueShape::Enum(b)) => within(a, b),
        (ValueShape::Enum(a), ValueShape::Variant(cases)) => {
            let plain: Vec<WitName> =
                cases.iter().filter(|case| case.payload.is_none()).map(|case| case.name.clone()).collect();
            within(a, &plain)
        }
        (ValueShape::Flags(a), ValueShape::Flags(b)) => within(a, b),
        (ValueShape::Flags(_), ValueShape::List(item)) => fits(&ValueShape::String, item),
        (ValueShape::List(item), ValueShape::Flags(_)) => fits(item, &ValueShape::String),
        (ValueShape::List(a), ValueShape::List(b)) => fits(a, b),
        (ValueShape::Tuple(a), ValueShape::Tuple(b)) if a.len() == b.len() => {
            a.iter().zip(b.iter()).try_for_each(|(a, b)| fits(a, b))
        }
        (ValueShape::Tuple(items), ValueShape::List(item)) => {
            items.iter().try_for_each(|own| fits(own, item))
        }
        (ValueShape::Record(a), ValueShape::Record(b)) => {
            for field in a.iter() {
                let Some(wanted) = b.iter().find(|wanted| wanted.name == field.name) else {
                    return Err(format!(
                        "it has a field `{}`, which {} has not",
                        field.name.json(),
                        shown(to)
                    ));
                };
                fits(&field.shape, &wanted.shape).map_err(|why| format!("`{}`: {why}", field.name.json()))?;
            }
            match b
                .iter()
                .find(|wanted| !optional(&wanted.shape) && !a.iter().any(|it| it.name == wanted.name))
            {
                Some(missing) => Err(format!("it has no field `{}`", missing.name.json())),
                None => Ok(()),
            }
        }
        (ValueShape::Variant(a), ValueShape::Variant(b)) => a.iter().try_for_each(|case| {
            let found = b.iter().find(|wanted| wanted.name == case.name);
            match found.map(|wanted| (&case.payload, &wanted.payload)) {
                Some((None, None)) => Ok(()),
                Some((Some(a), Some(b))) => fits(a, b),
                _ => Err(format!("its case `{}` is none of {}", case.name.json(), shown(to))),
            }
        }),
        (ValueShape::Result(a_ok, a_err), ValueShape::Result(b_ok, b_err)) => {
            let side = |a: &Option<_>, b: &Option<_>| match (a, b) {
                (None, None) => Ok(()),
                (Some(a), Some(b)) => fits(AsRef::<ValueShape>::as_ref(a), AsRef::<ValueShape>::as_ref(b)),
                _ => not(),
            };
            side(a_ok, b_ok)?;
            side(a_err, b_err)
        }
        _ => not(),
    }
}

/// True if a value of this type may be left out of a record.
pub(super) fn optional(shape: &ValueShape) -> bool {
    matches!(shape, ValueShape::Option(_))
}

/// True if an option of it would be a nested option, which JSON writes as `{"some": ..}`.
pub(super) fn nested(shape: &ValueShape) -> bool {
    matches!(shape, ValueShape::Option(_))
}

/// Checks that every one of `names` is one of `known`.
fn within(names: &[WitName], known: &[WitName]) -> Result<(), String> {
    match names.iter().find(|name| !known.contains(name)) {
        Some(name) => Err(not_one_of(name.json(), known)),
        None => Ok(()),
    }
}

/// Returns the message for a word that is none of the known ones.
pub(super) fn not_one_of(word: &str, known: &[WitName]) -> String {
    let words: Vec<_> = known.iter().map(WitName::json).collect();
    let near = suggest::nearest(word, words.iter().copied());
    let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    format!(
        "`{}` is none of {}{near}",
        sanitize_line(word, 64),
        sanitize_line(&words.join(", "), MAX_SHAPE_CHARS)
    )
}
