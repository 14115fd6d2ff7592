//! The types of references before anything runs: the type of an argument, or of a part of a step's value.

use cofferdam_core::suggest;
use cofferdam_model::action::{
    Action, ActionInput, InputKind, ReferenceRoot, ReferenceSegment, TemplateReference,
};
use cofferdam_model::package::{OperationSignature, ValueShape};

use super::shapes::{fits, nested, not_one_of, shown};

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
pub(super) type Results<'a> = Vec<Option<Vec<&'a OperationSignature>>>;

/// Resolves the type of a reference.
///
/// # Errors
/// It refers to a part that never exists. The error has the problem and the fix.
pub(super) fn follow<'a>(
    reference: &TemplateReference,
    action: &'a Action,
    results: &Results<'a>,
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
