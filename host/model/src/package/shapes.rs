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

use super::shape::{Case, Field, Name, Shape};

/// The most nodes that one operation's types may have, as a tree.
const MAX_NODES: usize = 10_000;
const MAX_DEPTH: usize = 64;

/// A shape and its measures as a tree.
#[derive(Clone)]
pub(super) struct Built {
    pub(super) shape: Shape,
    nodes: usize,
    depth: usize,
}

/// Why a type cannot be an operation's; what a sentence says after "it".
pub(super) type Unfit = &'static str;

pub(super) struct Shapes<'t> {
    types: TypesRef<'t>,
    built: HashMap<ComponentDefinedTypeId, Built>,
}

impl<'t> Shapes<'t> {
    pub(super) fn new(types: TypesRef<'t>) -> Self {
        Self { types, built: HashMap::new() }
    }

    pub(super) fn of(&mut self, ty: ComponentValType) -> Result<Built, Unfit> {
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

    fn defined(&mut self, id: ComponentDefinedTypeId) -> Result<Built, Unfit> {
        let types = self.types;
        let Some(defined) = types.get(id) else { return Err("has a type that cannot be found") };
        match defined {
            ComponentDefinedType::Primitive(primitive) => leaf(primitive_shape(*primitive)?, 0),
            ComponentDefinedType::Record(record) => {
                let mut tree = Tree::default();
                let fields = record.fields.iter().map(|(name, ty)| {
                    Ok(Field { name: Name::from_wit(name.as_str()), shape: tree.add(self.of(*ty)?) })
                });
                let fields = fields.collect::<Result<Arc<[Field]>, Unfit>>()?;
                tree.under(Shape::Record(fields))
            }
            ComponentDefinedType::Variant(variant) => {
                let mut tree = Tree::default();
                let cases = variant.cases.iter().map(|(name, case)| {
                    let payload = case.ty.map(|ty| self.of(ty)).transpose()?;
                    Ok(Case {
                        name: Name::from_wit(name.as_str()),
                        payload: payload.map(|payload| tree.add(payload)),
                    })
                });
                let cases = cases.collect::<Result<Arc<[Case]>, Unfit>>()?;
                let names = cases.len();
                tree.under(Shape::Variant(cases))?.with_names(names)
            }
            ComponentDefinedType::List { element, .. } => {
                let mut tree = Tree::default();
                match tree.add(self.of(*element)?) {
                    Shape::Unsigned(8) => leaf(Shape::Bytes, 0),
                    element => tree.under(Shape::List(Arc::new(element))),
                }
            }
            ComponentDefinedType::Tuple(tuple) => {
                let mut tree = Tree::default();
                let items = tuple.types.iter().map(|ty| Ok(tree.add(self.of(*ty)?)));
                let items = items.collect::<Result<Arc<[Shape]>, Unfit>>()?;
                tree.under(Shape::Tuple(items))
            }
            ComponentDefinedType::Option { ty, .. } => {
                let mut tree = Tree::default();
                let item = tree.add(self.of(*ty)?);
                tree.under(Shape::Option(Arc::new(item)))
            }
            ComponentDefinedType::Result { ok, err, .. } => {
                let mut tree = Tree::default();
                let mut side = |ty: Option<ComponentValType>| -> Result<_, Unfit> {
                    let built = ty.map(|ty| self.of(ty)).transpose()?;
                    Ok(built.map(|built| Arc::new(tree.add(built))))
                };
                let (ok, err) = (side(*ok)?, side(*err)?);
                tree.under(Shape::Result(ok, err))
            }
            ComponentDefinedType::Enum(names) => leaf(Shape::Enum(all_names(names)), names.len()),
            ComponentDefinedType::Flags(names) => leaf(Shape::Flags(all_names(names)), names.len()),
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

fn all_names<'n>(names: impl IntoIterator<Item = &'n KebabString>) -> Arc<[Name]> {
    names.into_iter().map(|name| Name::from_wit(name.as_str())).collect()
}

fn primitive_shape(primitive: PrimitiveValType) -> Result<Shape, Unfit> {
    Ok(match primitive {
        PrimitiveValType::Bool => Shape::Bool,
        PrimitiveValType::S8 => Shape::Signed(8),
        PrimitiveValType::S16 => Shape::Signed(16),
        PrimitiveValType::S32 => Shape::Signed(32),
        PrimitiveValType::S64 => Shape::Signed(64),
        PrimitiveValType::U8 => Shape::Unsigned(8),
        PrimitiveValType::U16 => Shape::Unsigned(16),
        PrimitiveValType::U32 => Shape::Unsigned(32),
        PrimitiveValType::U64 => Shape::Unsigned(64),
        PrimitiveValType::F32 => Shape::Float(32),
        PrimitiveValType::F64 => Shape::Float(64),
        PrimitiveValType::Char => Shape::Char,
        PrimitiveValType::String => Shape::String,
        PrimitiveValType::ErrorContext => {
            return Err("has an `error-context`, which the connector contract does not know");
        }
    })
}

/// The measures of a node's children.
#[derive(Default)]
struct Tree {
    nodes: usize,
    depth: usize,
}

impl Tree {
    fn add(&mut self, child: Built) -> Shape {
        self.nodes = self.nodes.saturating_add(child.nodes);
        self.depth = self.depth.max(child.depth);
        child.shape
    }

    fn under(self, shape: Shape) -> Result<Built, Unfit> {
        Built { shape, nodes: self.nodes.saturating_add(1), depth: self.depth + 1 }.fitting()
    }
}

fn leaf(shape: Shape, names: usize) -> Result<Built, Unfit> {
    Built { shape, nodes: 1, depth: 1 }.with_names(names)
}

impl Built {
    /// Counts the names of cases without a payload as nodes: they are printed and checked like them.
    fn with_names(mut self, names: usize) -> Result<Self, Unfit> {
        self.nodes = self.nodes.saturating_add(names);
        self.fitting()
    }

    fn fitting(self) -> Result<Self, Unfit> {
        if self.nodes > MAX_NODES {
            return Err("has a type of more than 10,000 parts");
        }
        if self.depth > MAX_DEPTH {
            return Err("has a type nested more than 64 deep");
        }
        Ok(self)
    }
}
