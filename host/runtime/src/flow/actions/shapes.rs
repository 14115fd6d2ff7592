//! Whether every value of one type is one of another, as far as types can tell.
//!
//! What only the value tells is left to the call, which refuses it before anything is sent: whether a number is in
//! range, whether a text is one of an enum's words, and whether something is there that may be missing.

use cofferdam_core::failure::safe_line;
use cofferdam_core::spelling;
use cofferdam_model::package::{Name, Shape};

/// Longest type that is written out in a message, in characters.
const SHOWN: usize = 160;

/// A type, fit for a message.
pub(super) fn shown(shape: &Shape) -> String {
    format!("`{}`", safe_line(&shape.to_string(), SHOWN))
}

/// Whether values of `from` may stand where `to` is wanted.
pub(super) fn fits(from: &Shape, to: &Shape) -> Result<(), String> {
    let not = || Err(format!("{} is not {}", shown(from), shown(to)));
    match (from, to) {
        (Shape::Option(a), Shape::Option(b)) if nested(a) || nested(b) => {
            if from == to {
                Ok(())
            } else {
                not()
            }
        }
        (Shape::Option(a), Shape::Option(b)) => fits(a, b),
        (from, Shape::Option(b)) if !nested(b) => fits(from, b),
        // What may be missing may stand where something is needed: if it is missing, the call is refused.
        (Shape::Option(a), to) if !nested(a) => fits(a, to),
        (Shape::Bool, Shape::Bool)
        | (Shape::Signed(_) | Shape::Unsigned(_), Shape::Signed(_) | Shape::Unsigned(_) | Shape::Float(_))
        | (Shape::Float(_), Shape::Float(_))
        | (Shape::String | Shape::Char | Shape::Bytes | Shape::Enum(_), Shape::String)
        | (Shape::String | Shape::Char, Shape::Char)
        | (Shape::String | Shape::Bytes, Shape::Bytes)
        | (Shape::String, Shape::Enum(_)) => Ok(()),
        (Shape::String, Shape::Variant(cases)) if cases.iter().any(|case| case.payload.is_none()) => Ok(()),
        (Shape::Enum(a), Shape::Enum(b)) => within(a, b),
        (Shape::Enum(a), Shape::Variant(cases)) => {
            let plain: Vec<Name> =
                cases.iter().filter(|case| case.payload.is_none()).map(|case| case.name.clone()).collect();
            within(a, &plain)
        }
        (Shape::Flags(a), Shape::Flags(b)) => within(a, b),
        (Shape::Flags(_), Shape::List(item)) => fits(&Shape::String, item),
        (Shape::List(item), Shape::Flags(_)) => fits(item, &Shape::String),
        (Shape::List(a), Shape::List(b)) => fits(a, b),
        (Shape::Tuple(a), Shape::Tuple(b)) if a.len() == b.len() => {
            a.iter().zip(b.iter()).try_for_each(|(a, b)| fits(a, b))
        }
        (Shape::Tuple(items), Shape::List(item)) => items.iter().try_for_each(|own| fits(own, item)),
        (Shape::Record(a), Shape::Record(b)) => {
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
        (Shape::Variant(a), Shape::Variant(b)) => a.iter().try_for_each(|case| {
            let found = b.iter().find(|wanted| wanted.name == case.name);
            match found.map(|wanted| (&case.payload, &wanted.payload)) {
                Some((None, None)) => Ok(()),
                Some((Some(a), Some(b))) => fits(a, b),
                _ => Err(format!("its case `{}` is none of {}", case.name.json(), shown(to))),
            }
        }),
        (Shape::Result(a_ok, a_err), Shape::Result(b_ok, b_err)) => {
            let side = |a: &Option<_>, b: &Option<_>| match (a, b) {
                (None, None) => Ok(()),
                (Some(a), Some(b)) => fits(AsRef::<Shape>::as_ref(a), AsRef::<Shape>::as_ref(b)),
                _ => not(),
            };
            side(a_ok, b_ok)?;
            side(a_err, b_err)
        }
        _ => not(),
    }
}

/// Whether a value of this type may be left out of a record.
pub(super) fn optional(shape: &Shape) -> bool {
    matches!(shape, Shape::Option(_))
}

/// Whether an option of it would be an option in an option, which JSON writes as `{"some": ..}`.
pub(super) fn nested(shape: &Shape) -> bool {
    matches!(shape, Shape::Option(_))
}

/// Whether every one of `names` is one of `known`.
fn within(names: &[Name], known: &[Name]) -> Result<(), String> {
    match names.iter().find(|name| !known.contains(name)) {
        Some(name) => Err(not_one_of(name.json(), known)),
        None => Ok(()),
    }
}

/// The sentence for a word that is none of those that are known.
pub(super) fn not_one_of(word: &str, known: &[Name]) -> String {
    let words: Vec<_> = known.iter().map(Name::json).collect();
    let near = spelling::nearest(word, words.iter().copied());
    let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    format!("`{}` is none of {}{near}", safe_line(word, 64), safe_line(&words.join(", "), SHOWN))
}
