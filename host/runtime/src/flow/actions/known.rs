//! What is known of a reference's value before anything runs: the type of an argument, or of a part of a step's value.

use cofferdam_core::spelling;
use cofferdam_model::action::{Action, Input, InputKind, Reference, Root, Segment};
use cofferdam_model::package::{Operation, Shape};

use super::shapes::{fits, nested, not_one_of, shown};

/// What is known of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Known<'a> {
    /// Nothing: it is a part of an argument of any shape.
    Unknown,
    /// It is of this type, and one of these texts if there are any.
    Argument(&'a InputKind, &'a [String]),
    /// It is of this type of a connector's.
    Shape(&'a Shape),
    /// It is a text that is put together.
    Text,
}

/// What is known of a reference.
pub(super) struct Found<'a> {
    /// What its value may be: of a step with alternates, one for each.
    pub(super) any: Vec<Known<'a>>,
    /// Whether it may be an argument that was not given.
    pub(super) may_be_absent: bool,
}

/// What the steps before one return: for each, its own operation and its alternates'. None where one of them could
/// not be found, which was told.
pub(super) type Results<'a> = Vec<Option<Vec<&'a Operation>>>;

/// Follows a reference along the types.
///
/// # Errors
/// It leads to nothing that there ever is: what is wrong, and what to do.
pub(super) fn follow<'a>(
    reference: &Reference,
    action: &'a Action,
    results: &Results<'a>,
) -> Result<Found<'a>, (String, String)> {
    let (starts, may_be_absent) = match &reference.root {
        Root::Arg(name) => match action.inputs().iter().find(|input| input.name() == name) {
            Some(input) => (vec![argument(input)], input.may_be_absent()),
            None => (vec![Known::Unknown], false),
        },
        Root::Step(at) => match results.get(*at).and_then(Option::as_ref) {
            Some(operations) => {
                let mut starts = Vec::new();
                for operation in operations {
                    let Some(shape) = operation.result() else {
                        let why = format!("`{}` returns nothing", operation.name().json());
                        return Err((why, "take the reference out".to_owned()));
                    };
                    starts.push(Known::Shape(shape));
                }
                (starts, false)
            }
            None => (vec![Known::Unknown], false),
        },
    };
    let walk = |start| reference.path.iter().try_fold(start, step);
    let any = starts.into_iter().map(walk).collect::<Result<_, _>>()?;
    Ok(Found { any, may_be_absent })
}

fn argument(input: &Input) -> Known<'_> {
    Known::Argument(input.kind(), input.choices())
}

/// One step into a value.
fn step<'a>(known: Known<'a>, segment: &Segment) -> Result<Known<'a>, (String, String)> {
    match known {
        Known::Unknown => Ok(Known::Unknown),
        Known::Argument(kind, _) => match (kind, segment) {
            (InputKind::Object, Segment::Field(_)) | (InputKind::Array(None), Segment::Index(_)) => {
                Ok(Known::Unknown)
            }
            (InputKind::Array(Some(item)), Segment::Index(_)) => Ok(Known::Argument(item, &[])),
            (kind, _) => Err(no_part(segment, &format!("an argument of type {}", kind.name()))),
        },
        Known::Text => Err(no_part(segment, "a text")),
        Known::Shape(shape) => part(shape, segment).map(Known::Shape),
    }
}

fn part<'a>(shape: &'a Shape, segment: &Segment) -> Result<&'a Shape, (String, String)> {
    match (shape, segment) {
        (Shape::Option(inner), Segment::Field(name)) if nested(inner) && name == "some" => Ok(inner),
        (Shape::Option(inner), segment) if !nested(inner) => part(inner, segment),
        (Shape::Record(fields), Segment::Field(name)) => {
            let found = fields.iter().find(|field| field.name.json() == name);
            found.map(|field| &field.shape).ok_or_else(|| {
                let names: Vec<_> = fields.iter().map(|field| field.name.json()).collect();
                no_field(name, &names)
            })
        }
        (Shape::Variant(cases), Segment::Field(name)) => {
            let found = cases.iter().find(|case| case.name.json() == name);
            found.and_then(|case| case.payload.as_ref()).ok_or_else(|| {
                let names: Vec<_> =
                    cases.iter().filter(|it| it.payload.is_some()).map(|it| it.name.json()).collect();
                no_field(name, &names)
            })
        }
        (Shape::Result(ok, err), Segment::Field(name)) => {
            let side = match name.as_str() {
                "ok" => ok.as_deref(),
                "err" => err.as_deref(),
                _ => None,
            };
            side.ok_or_else(|| no_field(name, &["ok", "err"]))
        }
        (Shape::List(item), Segment::Index(_)) => Ok(item),
        (Shape::Tuple(items), Segment::Index(at)) => items.get(*at).ok_or_else(|| {
            let why = format!("there is no item {at}: {} has {}", shown(shape), items.len());
            (why, "items are counted from 0".to_owned())
        }),
        (shape, segment) => Err(no_part(segment, &shown(shape))),
    }
}

fn no_field(name: &str, known: &[&str]) -> (String, String) {
    let fix = match spelling::nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? (there are: {})", known.join(", ")),
        None if known.is_empty() => "take the reference out: there are no fields".to_owned(),
        None => format!("there are: {}", known.join(", ")),
    };
    (format!("there is no field `{name}`"), fix)
}

fn no_part(segment: &Segment, of: &str) -> (String, String) {
    match segment {
        Segment::Field(name) => {
            (format!("{of} has no field `{name}`"), "refer to the whole of it".to_owned())
        }
        Segment::Index(at) => (format!("{of} has no item {at}"), "refer to the whole of it".to_owned()),
    }
}

impl Known<'_> {
    /// Whether it may stand where a value of this type is wanted.
    pub(super) fn fits(self, to: &Shape) -> Result<(), String> {
        match self {
            Known::Unknown => Ok(()),
            Known::Shape(from) => fits(from, to),
            Known::Text => argument_fits(&InputKind::String, &[], to),
            Known::Argument(kind, choices) => argument_fits(kind, choices, to),
        }
    }

    /// Whether it can be a part of a text.
    pub(super) fn is_text(self) -> Result<(), String> {
        let list_or_object = "lists and objects have no one way to be written as text";
        match self {
            Known::Unknown | Known::Text => Ok(()),
            Known::Argument(InputKind::Array(_) | InputKind::Object, _) => Err(list_or_object.to_owned()),
            Known::Argument(..) => Ok(()),
            Known::Shape(shape) => {
                let inner = match shape {
                    Shape::Option(inner) => inner,
                    other => other,
                };
                match inner {
                    Shape::Bool
                    | Shape::Signed(_)
                    | Shape::Unsigned(_)
                    | Shape::Float(_)
                    | Shape::Char
                    | Shape::String
                    | Shape::Bytes
                    | Shape::Enum(_) => Ok(()),
                    other => Err(format!("{} is no text: {list_or_object}", shown(other))),
                }
            }
        }
    }
}

fn argument_fits(kind: &InputKind, choices: &[String], to: &Shape) -> Result<(), String> {
    let not = || Err(format!("a value of type {} is not {}", kind.name(), shown(to)));
    match (kind, to) {
        (InputKind::Object, Shape::Option(inner)) if nested(inner) => Ok(()),
        (_, Shape::Option(inner)) if !nested(inner) => argument_fits(kind, choices, inner),
        (InputKind::String, Shape::String | Shape::Bytes | Shape::Char) => Ok(()),
        (InputKind::String, Shape::Enum(names)) => {
            let unknown = choices.iter().find(|word| !names.iter().any(|name| name.json() == *word));
            unknown.map_or(Ok(()), |word| Err(not_one_of(word, names)))
        }
        (InputKind::String, Shape::Variant(_)) => fits(&Shape::String, to),
        (InputKind::Integer, Shape::Signed(_) | Shape::Unsigned(_) | Shape::Float(_))
        | (InputKind::Number, Shape::Float(_))
        | (InputKind::Boolean, Shape::Bool)
        | (InputKind::Object, Shape::Record(_) | Shape::Variant(_) | Shape::Result(..))
        | (InputKind::Array(None), Shape::List(_) | Shape::Tuple(_) | Shape::Flags(_)) => Ok(()),
        (InputKind::Number, Shape::Signed(_) | Shape::Unsigned(_)) => {
            Err(format!("a number may have a fraction, and {} has none; declare an integer", shown(to)))
        }
        (InputKind::Array(Some(item)), Shape::List(of)) => argument_fits(item, &[], of),
        (InputKind::Array(Some(item)), Shape::Tuple(of)) => {
            of.iter().try_for_each(|of| argument_fits(item, &[], of))
        }
        (InputKind::Array(Some(item)), Shape::Flags(_)) if **item == InputKind::String => Ok(()),
        _ => not(),
    }
}
