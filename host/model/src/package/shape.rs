//! The types of an operation's values, as a tree made once at load: what JSON is checked against.
//!
//! Names are kept twice: as WIT writes them (`kebab-case`, what the component knows) and as JSON
//! writes them (`snake_case`, what callers see), so that a call formats nothing.

use std::sync::Arc;

/// A name in both spellings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    wit: Arc<str>,
    json: Arc<str>,
}

impl Name {
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
pub enum Shape {
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
    List(Arc<Shape>),
    /// `tuple<..>`.
    Tuple(Arc<[Shape]>),
    /// `option<T>`.
    Option(Arc<Shape>),
    /// `result<T, E>`, either side may be missing.
    Result(Option<Arc<Shape>>, Option<Arc<Shape>>),
    /// A record's fields, in order.
    Record(Arc<[Field]>),
    /// A variant's cases, in order.
    Variant(Arc<[Case]>),
    /// An enum's cases, in order.
    Enum(Arc<[Name]>),
    /// Flags, in order.
    Flags(Arc<[Name]>),
}

/// A record's field, or an operation's parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: Name,
    /// Its shape.
    pub shape: Shape,
}

/// A variant's case.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Its name.
    pub name: Name,
    /// Its payload.
    pub payload: Option<Shape>,
}

/// Where a shape's parts are: equal for shapes that share them. Components share types, and shapes stay
/// shared, so what is made of each shape once is found again by this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShapeKey(std::mem::Discriminant<Shape>, usize, usize);

impl Shape {
    /// The key while the shape lives; none for a shape without parts.
    pub fn key(&self) -> Option<ShapeKey> {
        fn at<T: ?Sized>(parts: &Arc<T>) -> usize {
            Arc::as_ptr(parts).cast::<()>().addr()
        }
        let side = |side: &Option<Arc<Shape>>| side.as_ref().map_or(0, at);
        let (first, second) = match self {
            Shape::List(item) | Shape::Option(item) => (at(item), 0),
            Shape::Tuple(items) => (at(items), 0),
            Shape::Result(ok, err) => (side(ok), side(err)),
            Shape::Record(fields) => (at(fields), 0),
            Shape::Variant(cases) => (at(cases), 0),
            Shape::Enum(names) | Shape::Flags(names) => (at(names), 0),
            _ => return None,
        };
        Some(ShapeKey(std::mem::discriminant(self), first, second))
    }
}

impl std::fmt::Display for Shape {
    /// As `inspect` shows it, with the caller's names: `list<string>`, `{title: string, labels: list<string>}`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Shape::Bool => f.write_str("bool"),
            Shape::Signed(bits) => write!(f, "s{bits}"),
            Shape::Unsigned(bits) => write!(f, "u{bits}"),
            Shape::Float(bits) => write!(f, "f{bits}"),
            Shape::Char => f.write_str("char"),
            Shape::String => f.write_str("string"),
            Shape::Bytes => f.write_str("bytes"),
            Shape::List(item) => write!(f, "list<{item}>"),
            Shape::Tuple(items) => {
                f.write_str("tuple<")?;
                separated(f, items, ", ", |f, item| item.fmt(f))?;
                f.write_str(">")
            }
            Shape::Option(item) => write!(f, "option<{item}>"),
            Shape::Result(ok, err) => {
                f.write_str("result<")?;
                match ok {
                    Some(ok) => ok.fmt(f)?,
                    None => f.write_str("_")?,
                }
                err.as_ref().map_or(Ok(()), |err| write!(f, ", {err}"))?;
                f.write_str(">")
            }
            Shape::Record(fields) => {
                f.write_str("{")?;
                separated(f, fields, ", ", |f, field| write!(f, "{}: {}", field.name.json(), field.shape))?;
                f.write_str("}")
            }
            Shape::Variant(cases) => separated(f, cases, " | ", |f, case| match &case.payload {
                Some(payload) => write!(f, "{}({payload})", case.name.json()),
                None => f.write_str(case.name.json()),
            }),
            Shape::Enum(names) => separated(f, names, " | ", |f, name| f.write_str(name.json())),
            Shape::Flags(names) => {
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
