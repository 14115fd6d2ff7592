//! The types of an operation's values, as a tree made once at load: what JSON is checked against.
//!
//! Names are kept twice: as WIT writes them (`kebab-case`, what the component knows) and as JSON
//! writes them (`snake_case`, what callers see), so that a call formats nothing.

use std::sync::Arc;

/// A name in both spellings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitName {
    wit: Arc<str>,
    json: Arc<str>,
}

impl WitName {
    /// From the WIT spelling.
    #[must_use]
    pub fn from_wit(wit: &str) -> Self {
        Self { wit: wit.into(), json: wit.replace('-', "_").into() }
    }

    /// `kebab-case`, as the component knows it.
    #[must_use]
    pub fn wit(&self) -> &str {
        &self.wit
    }

    /// `snake_case`, as callers see it.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }
}

/// The shape of a value. Resources, streams and futures have none: an operation cannot use them.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueShape {
    /// `bool`.
    Bool,
    /// `s8` to `s64`; the number is the width in bits.
    Signed(u8),
    /// `u8` to `u64`; the number is the width in bits.
    Unsigned(u8),
    /// `f32` or `f64`; the number is the width in bits.
    Float(u8),
    /// `char`.
    Char,
    /// `string`.
    String,
    /// `list<u8>`: base64 text in JSON.
    Bytes,
    /// `list<T>`.
    List(Arc<ValueShape>),
    /// `tuple<..>`.
    Tuple(Arc<[ValueShape]>),
    /// `option<T>`.
    Option(Arc<ValueShape>),
    /// `result<T, E>`, either side may be missing.
    Result(Option<Arc<ValueShape>>, Option<Arc<ValueShape>>),
    /// A record's fields, in order.
    Record(Arc<[ShapeField]>),
    /// A variant's cases, in order.
    Variant(Arc<[ShapeCase]>),
    /// An enum's cases, in order.
    Enum(Arc<[WitName]>),
    /// Flags, in order.
    Flags(Arc<[WitName]>),
}

/// A record's field, or an operation's parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct ShapeField {
    /// Its name.
    pub name: WitName,
    /// Its shape.
    pub shape: ValueShape,
}

/// A variant's case.
#[derive(Debug, Clone, PartialEq)]
pub struct ShapeCase {
    /// Its name.
    pub name: WitName,
    /// Its payload.
    pub payload: Option<ValueShape>,
}

/// The identity of a shape's parts: equal for shapes that share them. Components share types, and shapes stay
/// shared, so that a result for a shape is found again by this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShapeKey(std::mem::Discriminant<ValueShape>, usize, usize);

impl ValueShape {
    /// The key while the shape lives; none for a shape without parts.
    pub fn key(&self) -> Option<ShapeKey> {
        fn at<T: ?Sized>(parts: &Arc<T>) -> usize {
            Arc::as_ptr(parts).cast::<()>().addr()
        }
        let side = |side: &Option<Arc<ValueShape>>| side.as_ref().map_or(0, at);
        let (first, second) = match self {
            ValueShape::List(item) | ValueShape::Option(item) => (at(item), 0),
            ValueShape::Tuple(items) => (at(items), 0),
            ValueShape::Result(ok, err) => (side(ok), side(err)),
            ValueShape::Record(fields) => (at(fields), 0),
            ValueShape::Variant(cases) => (at(cases), 0),
            ValueShape::Enum(names) | ValueShape::Flags(names) => (at(names), 0),
            _ => return None,
        };
        Some(ShapeKey(std::mem::discriminant(self), first, second))
    }
}

impl std::fmt::Display for ValueShape {
    /// As `inspect` shows it, with the caller's names: `list<string>`, `{title: string, labels: list<string>}`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ValueShape::Bool => f.write_str("bool"),
            ValueShape::Signed(bits) => write!(f, "s{bits}"),
            ValueShape::Unsigned(bits) => write!(f, "u{bits}"),
            ValueShape::Float(bits) => write!(f, "f{bits}"),
            ValueShape::Char => f.write_str("char"),
            ValueShape::String => f.write_str("string"),
            ValueShape::Bytes => f.write_str("bytes"),
            ValueShape::List(item) => write!(f, "list<{item}>"),
            ValueShape::Tuple(items) => {
                f.write_str("tuple<")?;
                separated(f, items, ", ", |f, item| item.fmt(f))?;
                f.write_str(">")
            }
            ValueShape::Option(item) => write!(f, "option<{item}>"),
            ValueShape::Result(ok, err) => {
                f.write_str("result<")?;
                match ok {
                    Some(ok) => ok.fmt(f)?,
                    None => f.write_str("_")?,
                }
                err.as_ref().map_or(Ok(()), |err| write!(f, ", {err}"))?;
                f.write_str(">")
            }
            ValueShape::Record(fields) => {
                f.write_str("{")?;
                separated(f, fields, ", ", |f, field| write!(f, "{}: {}", field.name.json(), field.shape))?;
                f.write_str("}")
            }
            ValueShape::Variant(cases) => separated(f, cases, " | ", |f, case| match &case.payload {
                Some(payload) => write!(f, "{}({payload})", case.name.json()),
                None => f.write_str(case.name.json()),
            }),
            ValueShape::Enum(names) => separated(f, names, " | ", |f, name| f.write_str(name.json())),
            ValueShape::Flags(names) => {
                f.write_str("flags{")?;
                separated(f, names, ", ", |f, name| f.write_str(name.json()))?;
                f.write_str("}")
            }
        }
    }
}

fn separated<T>(
    f: &mut std::fmt::Formatter<'_>,
    items: &[T],
    separator: &str,
    mut each: impl FnMut(&mut std::fmt::Formatter<'_>, &T) -> std::fmt::Result,
) -> std::fmt::Result {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            f.write_str(separator)?;
        }
        each(f, item)?;
    }
    Ok(())
}
