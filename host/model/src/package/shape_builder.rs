//! Builds [`Shape`]s from a validated component's types, each type once, and none larger than a bound.
//!
//! Types are shared in the component and stay shared here; printed or checked against they are trees,
//! and a few hundred bytes can describe a tree of a million nodes. So every shape carries its size as
//! a tree, and a connector whose types are larger than a person could ever read is refused.

use std::collections::HashMap;
use std::sync::Arc;

use wasmparser::PrimitiveValType;
use wasmparser::component_types::{ComponentDefinedType, ComponentDefinedTypeId, ComponentValType};
use wasmparser::names::KebabString;
use wasmparser::types::TypesRef;

use super::shape::{ShapeCase, ShapeField, ValueShape, WitName};

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
