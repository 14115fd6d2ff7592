//! The types of an operation's values, as a tree made once at load: what JSON is checked against.
//!
//! Names are kept twice: as WIT writes them (`kebab-case`, what the component knows) and as JSON
//! writes them (`snake_case`, what callers see), so that a call formats nothing.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use wasmparser::PrimitiveValType;
use wasmparser::component_types::{ComponentDefinedType, ComponentDefinedTypeId, ComponentValType};
use wasmparser::names::KebabString;
use wasmparser::types::TypesRef;

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

/// The most nodes that one operation's types may have, as a tree.
const MAX_NODES: usize = 10_000;
const MAX_DEPTH: usize = 64;

/// A shape and its measures as a tree.
#[derive(Clone)]
pub(super) struct MeasuredShape {
    pub(super) shape: ValueShape,
    nodes: usize,
    depth: usize,
}

/// The reason why a type cannot be an operation's, as the end of a sentence that begins with "it".
pub(super) type UnsupportedReason = &'static str;

pub(super) struct ShapeBuilder<'t> {
    types: TypesRef<'t>,
    built: HashMap<ComponentDefinedTypeId, MeasuredShape>,
}

impl<'t> ShapeBuilder<'t> {
    pub(super) fn new(types: TypesRef<'t>) -> Self {
        Self { types, built: HashMap::new() }
    }

    pub(super) fn resolve(&mut self, ty: ComponentValType) -> Result<MeasuredShape, UnsupportedReason> {
        match ty {
            ComponentValType::Primitive(primitive) => leaf(primitive_shape(primitive)?, 0),
            ComponentValType::Type(id) => {
                if let Some(built) = self.built.get(&id) {
                    return Ok(built.clone());
                }
                let built = self.defined(id)?;
                self.built.insert(id, built.clone());
                Ok(built)
            }
        }
    }

    /// The sides of a `result`, if `ty` is one.
    pub(super) fn result_of(
        &self,
        ty: ComponentValType,
    ) -> Option<(Option<ComponentValType>, Option<ComponentValType>)> {
        let ComponentValType::Type(id) = ty else { return None };
        match self.types.get(id)? {
            ComponentDefinedType::Result { ok, err, .. } => Some((*ok, *err)),
            _ => None,
        }
    }

    fn defined(&mut self, id: ComponentDefinedTypeId) -> Result<MeasuredShape, UnsupportedReason> {
        let types = self.types;
        let Some(defined) = types.get(id) else { return Err("has a type that cannot be found") };
        match defined {
            ComponentDefinedType::Primitive(primitive) => leaf(primitive_shape(*primitive)?, 0),
            ComponentDefinedType::Record(record) => {
                let mut tree = TreeSize::default();
                let fields = record.fields.iter().map(|(name, ty)| {
                    Ok(ShapeField {
                        name: WitName::from_wit(name.as_str()),
                        shape: tree.add(self.resolve(*ty)?),
                    })
                });
                let fields = fields.collect::<Result<Arc<[ShapeField]>, UnsupportedReason>>()?;
                tree.under(ValueShape::Record(fields))
            }
            ComponentDefinedType::Variant(variant) => {
                let mut tree = TreeSize::default();
                let cases = variant.cases.iter().map(|(name, case)| {
                    let payload = case.ty.map(|ty| self.resolve(ty)).transpose()?;
                    Ok(ShapeCase {
                        name: WitName::from_wit(name.as_str()),
                        payload: payload.map(|payload| tree.add(payload)),
                    })
                });
                let cases = cases.collect::<Result<Arc<[ShapeCase]>, UnsupportedReason>>()?;
                let names = cases.len();
                tree.under(ValueShape::Variant(cases))?.with_names(names)
            }
            ComponentDefinedType::List { element, .. } => {
                let mut tree = TreeSize::default();
                match tree.add(self.resolve(*element)?) {
                    ValueShape::Unsigned(8) => leaf(ValueShape::Bytes, 0),
                    element => tree.under(ValueShape::List(Arc::new(element))),
                }
            }
            ComponentDefinedType::Tuple(tuple) => {
                let mut tree = TreeSize::default();
                let items = tuple.types.iter().map(|ty| Ok(tree.add(self.resolve(*ty)?)));
                let items = items.collect::<Result<Arc<[ValueShape]>, UnsupportedReason>>()?;
                tree.under(ValueShape::Tuple(items))
            }
            ComponentDefinedType::Option { ty, .. } => {
                let mut tree = TreeSize::default();
                let item = tree.add(self.resolve(*ty)?);
                tree.under(ValueShape::Option(Arc::new(item)))
            }
            ComponentDefinedType::Result { ok, err, .. } => {
                let mut tree = TreeSize::default();
                let mut side = |ty: Option<ComponentValType>| -> Result<_, UnsupportedReason> {
                    let built = ty.map(|ty| self.resolve(ty)).transpose()?;
                    Ok(built.map(|built| Arc::new(tree.add(built))))
                };
                let (ok, err) = (side(*ok)?, side(*err)?);
                tree.under(ValueShape::Result(ok, err))
            }
            ComponentDefinedType::Enum(names) => leaf(ValueShape::Enum(all_names(names)), names.len()),
            ComponentDefinedType::Flags(names) => leaf(ValueShape::Flags(all_names(names)), names.len()),
            ComponentDefinedType::Own(_) | ComponentDefinedType::Borrow(_) => {
                Err("has a resource handle, which cannot leave the sandbox")
            }
            ComponentDefinedType::Stream { .. } | ComponentDefinedType::Future { .. } => {
                Err("has a stream or future, which the connector contract does not know")
            }
            ComponentDefinedType::Map { .. } => {
                Err("has a `map`, which the connector contract does not know")
            }
            ComponentDefinedType::FixedLengthList { .. } => {
                Err("has a list of fixed length, which the connector contract does not know")
            }
        }
    }
}

fn all_names<'n>(names: impl IntoIterator<Item = &'n KebabString>) -> Arc<[WitName]> {
    names.into_iter().map(|name| WitName::from_wit(name.as_str())).collect()
}

fn primitive_shape(primitive: PrimitiveValType) -> Result<ValueShape, UnsupportedReason> {
    Ok(match primitive {
        PrimitiveValType::Bool => ValueShape::Bool,
        PrimitiveValType::S8 => ValueShape::Signed(8),
        PrimitiveValType::S16 => ValueShape::Signed(16),
        PrimitiveValType::S32 => ValueShape::Signed(32),
        PrimitiveValType::S64 => ValueShape::Signed(64),
        PrimitiveValType::U8 => ValueShape::Unsigned(8),
        PrimitiveValType::U16 => ValueShape::Unsigned(16),
        PrimitiveValType::U32 => ValueShape::Unsigned(32),
        PrimitiveValType::U64 => ValueShape::Unsigned(64),
        PrimitiveValType::F32 => ValueShape::Float(32),
        PrimitiveValType::F64 => ValueShape::Float(64),
        PrimitiveValType::Char => ValueShape::Char,
        PrimitiveValType::String => ValueShape::String,
        PrimitiveValType::ErrorContext => {
            return Err("has an `error-context`, which the connector contract does not know");
        }
    })
}

/// The measures of a node's children.
#[derive(Default)]
struct TreeSize {
    nodes: usize,
    depth: usize,
}

impl TreeSize {
    fn add(&mut self, child: MeasuredShape) -> ValueShape {
        self.nodes = self.nodes.saturating_add(child.nodes);
        self.depth = self.depth.max(child.depth);
        child.shape
    }

    fn under(self, shape: ValueShape) -> Result<MeasuredShape, UnsupportedReason> {
        MeasuredShape { shape, nodes: self.nodes.saturating_add(1), depth: self.depth + 1 }.check_size()
    }
}

fn leaf(shape: ValueShape, names: usize) -> Result<MeasuredShape, UnsupportedReason> {
    MeasuredShape { shape, nodes: 1, depth: 1 }.with_names(names)
}

impl MeasuredShape {
    /// Counts the names of cases without a payload as nodes: they are printed and checked like them.
    fn with_names(mut self, names: usize) -> Result<Self, UnsupportedReason> {
        self.nodes = self.nodes.saturating_add(names);
        self.check_size()
    }

    fn check_size(self) -> Result<Self, UnsupportedReason> {
        if self.nodes > MAX_NODES {
            return Err("has a type of more than 10,000 parts");
        }
        if self.depth > MAX_DEPTH {
            return Err("has a type nested more than 64 deep");
        }
        Ok(self)
    }
}

/// The field whose items say what of a value is missing.
const ERRORS: &str = "errors";

/// One operation of a connector.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationSignature {
    pub(super) name: WitName,
    pub(super) interface: Option<String>,
    pub(super) params: Vec<ShapeField>,
    pub(super) result: Option<ValueShape>,
}

impl OperationSignature {
    /// The name: `json()` for callers, `wit()` as the component exports it.
    #[must_use]
    pub fn name(&self) -> &WitName {
        &self.name
    }

    /// The exported interface it is in (`acme:slack/slack@1.0.0`); none at the top level of the world.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// The parameters, in order.
    #[must_use]
    pub fn params(&self) -> &[ShapeField] {
        &self.params
    }

    /// Returns true if its value can be partial: a record with a list `errors`, one for each item that
    /// failed.
    #[must_use]
    pub fn lists_errors(&self) -> bool {
        let Some(ValueShape::Record(fields)) = &self.result else { return false };
        fields.iter().any(|field| field.name.json() == ERRORS && matches!(field.shape, ValueShape::List(_)))
    }

    /// Returns the type of its value.
    #[must_use]
    pub fn result(&self) -> Option<&ValueShape> {
        self.result.as_ref()
    }
}

impl fmt::Display for OperationSignature {
    /// As `inspect` shows it: `list_issues(repo: string, page: option<u32>) -> list<issue>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name.json())?;
        for (at, param) in self.params.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{}: {}", param.name.json(), param.shape)?;
        }
        f.write_str(")")?;
        match &self.result {
            Some(result) => write!(f, " -> {result}"),
            None => Ok(()),
        }
    }
}
