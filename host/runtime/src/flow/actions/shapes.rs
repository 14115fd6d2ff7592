//! Type compatibility: checks that every value of one type is a value of another, as far as types show.
//!
//! Some checks depend on the value and are left to the call, which refuses a misfit before anything is sent: the
//! range of a number, the words of an enum, and the presence of an optional value.

use cofferdam_core::failure::sanitize_line;
use cofferdam_core::suggest;
use cofferdam_model::package::{ValueShape, WitName};

/// The longest type that is written out in a message, in characters.
const SHOWN: usize = 160;

/// Returns a type in the form for a message.
pub(super) fn shown(shape: &ValueShape) -> String {
    format!("`{}`", sanitize_line(&shape.to_string(), SHOWN))
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
    format!("`{}` is none of {}{near}", sanitize_line(word, 64), sanitize_line(&words.join(", "), SHOWN))
}
