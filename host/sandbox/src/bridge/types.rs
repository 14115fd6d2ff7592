//! The component types of the operations, written from their shapes: each once, nominal ones with a name.

use std::collections::HashMap;

use cofferdam_model::package::{Field, Operation, Shape, ShapeKey, failure_shape};
use wasm_encoder::{
    Component, ComponentImportSection, ComponentTypeRef, ComponentTypeSection, ComponentValType,
    PrimitiveValType, TypeBounds,
};

use super::wrap::Entry;

/// Writes types into a component. In the bridge each nominal type is imported under a name, as the
/// component model asks of the types of imported functions; outside, the same walk gives the types that
/// the bridge is instantiated with.
pub(super) struct Types<'c> {
    into: &'c mut Component,
    next: u32,
    naming: Naming,
    nominal: Vec<u32>,
    known: HashMap<ShapeKey, u32>,
}

/// What gives nominal types a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    Nothing,
    Imported,
    /// As a connector's own; only tests write connectors.
    #[cfg(test)]
    Exported,
}

impl<'c> Types<'c> {
    /// Types from index `next` on.
    pub(super) fn new(into: &'c mut Component, next: u32, naming: Naming) -> Self {
        Self { into, next, naming, nominal: Vec::new(), known: HashMap::new() }
    }

    /// The name of the nominal type number `at`.
    pub(super) fn name(at: usize) -> String {
        format!("t{at}")
    }

    /// The nominal types, in the order of their names.
    pub(super) fn nominal(self) -> Vec<u32> {
        self.nominal
    }

    /// The type of an operation's function.
    pub(super) fn operation(&mut self, operation: &Operation) -> u32 {
        self.function(operation.params(), operation.result())
    }

    /// The type of a function with these parameters, whose result is `result<result, failure>`.
    pub(super) fn function(&mut self, params: &[Field], result: Option<&Shape>) -> u32 {
        let params: Vec<_> = params.iter().map(|param| (param.name.wit(), self.of(&param.shape))).collect();
        let ok = result.map(|shape| self.of(shape));
        let err = self.of(failure_shape());
        let result = self.define(|types| types.defined_type().result(ok, Some(err)));
        self.define(|types| {
            types.function().params(params).result(Some(ComponentValType::Type(result)));
        })
    }

    /// `func(list<u8>) -> list<u8>`.
    pub(super) fn bytes_function(&mut self) -> u32 {
        let bytes =
            ComponentValType::Type(self.define(|types| types.defined_type().list(PrimitiveValType::U8)));
        self.define(|types| {
            types.function().params([("a", bytes)]).result(Some(bytes));
        })
    }

    /// All types that the operations use, without their functions.
    pub(super) fn all(&mut self, entries: &[Entry<'_>]) {
        for operation in entries.iter().map(|entry| entry.operation) {
            for param in operation.params() {
                self.of(&param.shape);
            }
            if let Some(result) = operation.result() {
                self.of(result);
            }
            self.of(failure_shape());
        }
    }

    fn define(&mut self, write: impl FnOnce(wasm_encoder::ComponentTypeEncoder<'_>)) -> u32 {
        let mut section = ComponentTypeSection::new();
        write(section.ty());
        self.into.section(&section);
        self.next += 1;
        self.next - 1
    }

    fn of(&mut self, shape: &Shape) -> ComponentValType {
        if let Some(primitive) = primitive(shape) {
            return ComponentValType::Primitive(primitive);
        }
        let key = shape.key();
        if let Some(index) = key.and_then(|key| self.known.get(&key)) {
            return ComponentValType::Type(*index);
        }
        let mut index = self.compound(shape);
        if matches!(shape, Shape::Record(_) | Shape::Variant(_) | Shape::Enum(_) | Shape::Flags(_)) {
            if self.naming == Naming::Imported {
                let mut imports = ComponentImportSection::new();
                let bounds = ComponentTypeRef::Type(TypeBounds::Eq(index));
                imports.import(Self::name(self.nominal.len()).as_str(), bounds);
                self.into.section(&imports);
                index = self.next;
                self.next += 1;
            }
            #[cfg(test)]
            if self.naming == Naming::Exported {
                let mut exports = wasm_encoder::ComponentExportSection::new();
                let kind = wasm_encoder::ComponentExportKind::Type;
                exports.export(Self::name(self.nominal.len()).as_str(), kind, index, None);
                self.into.section(&exports);
                index = self.next;
                self.next += 1;
            }
            self.nominal.push(index);
        }
        if let Some(key) = key {
            self.known.insert(key, index);
        }
        ComponentValType::Type(index)
    }

    fn compound(&mut self, shape: &Shape) -> u32 {
        match shape {
            Shape::List(item) => {
                let item = self.of(item);
                self.define(|types| types.defined_type().list(item))
            }
            Shape::Tuple(items) => {
                let items: Vec<_> = items.iter().map(|item| self.of(item)).collect();
                self.define(|types| types.defined_type().tuple(items))
            }
            Shape::Option(item) => {
                let item = self.of(item);
                self.define(|types| types.defined_type().option(item))
            }
            Shape::Result(ok, err) => {
                let (ok, err) = (ok.as_ref().map(|ok| self.of(ok)), err.as_ref().map(|err| self.of(err)));
                self.define(|types| types.defined_type().result(ok, err))
            }
            Shape::Record(fields) => {
                let fields: Vec<_> =
                    fields.iter().map(|field| (field.name.wit(), self.of(&field.shape))).collect();
                self.define(|types| types.defined_type().record(fields))
            }
            Shape::Variant(cases) => {
                let cases: Vec<_> = cases
                    .iter()
                    .map(|case| (case.name.wit(), case.payload.as_ref().map(|payload| self.of(payload))))
                    .collect();
                self.define(|types| types.defined_type().variant(cases))
            }
            Shape::Enum(names) => {
                self.define(|types| types.defined_type().enum_type(names.iter().map(|n| n.wit())))
            }
            Shape::Flags(names) => {
                self.define(|types| types.defined_type().flags(names.iter().map(|n| n.wit())))
            }
            // The primitives have been dealt with.
            _ => self.define(|types| types.defined_type().list(PrimitiveValType::U8)),
        }
    }
}

fn primitive(shape: &Shape) -> Option<PrimitiveValType> {
    Some(match shape {
        Shape::Bool => PrimitiveValType::Bool,
        Shape::Signed(8) => PrimitiveValType::S8,
        Shape::Signed(16) => PrimitiveValType::S16,
        Shape::Signed(32) => PrimitiveValType::S32,
        Shape::Signed(_) => PrimitiveValType::S64,
        Shape::Unsigned(8) => PrimitiveValType::U8,
        Shape::Unsigned(16) => PrimitiveValType::U16,
        Shape::Unsigned(32) => PrimitiveValType::U32,
        Shape::Unsigned(_) => PrimitiveValType::U64,
        Shape::Float(32) => PrimitiveValType::F32,
        Shape::Float(_) => PrimitiveValType::F64,
        Shape::Char => PrimitiveValType::Char,
        Shape::String => PrimitiveValType::String,
        _ => return None,
    })
}
