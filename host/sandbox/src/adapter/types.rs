//! The component types of the operations, written from their shapes: each once, nominal ones with a name.

use std::collections::HashMap;

use cofferdam_model::package::{OperationSignature, ShapeField, ShapeKey, ValueShape, failure_shape};
use wasm_encoder::{
    Component, ComponentImportSection, ComponentTypeRef, ComponentTypeSection, ComponentValType,
    PrimitiveValType, TypeBounds,
};

use super::wrap::AdapterEntry;

/// Writes types into a component. In the adapter each nominal type is imported under a name, as the component
/// model requires for the types of imported functions; outside, the same walk produces the types that the
/// adapter is instantiated with.
pub(super) struct AdapterTypes<'c> {
    into: &'c mut Component,
    next: u32,
    naming: TypeNaming,
    nominal: Vec<u32>,
    known: HashMap<ShapeKey, u32>,
}

/// The way in which nominal types get a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeNaming {
    Nothing,
    Imported,
    /// Exported, as in a connector; only tests write connectors.
    #[cfg(test)]
    Exported,
}

impl<'c> AdapterTypes<'c> {
    /// Types from index `next` on.
    pub(super) fn new(into: &'c mut Component, next: u32, naming: TypeNaming) -> Self {
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
    pub(super) fn operation(&mut self, operation: &OperationSignature) -> u32 {
        self.function(operation.params(), operation.result())
    }

    /// The type of a function with these parameters, whose result is `result<result, failure>`.
    pub(super) fn function(&mut self, params: &[ShapeField], result: Option<&ValueShape>) -> u32 {
        let params: Vec<_> =
            params.iter().map(|param| (param.name.wit(), self.value_type(&param.shape))).collect();
        let ok = result.map(|shape| self.value_type(shape));
        let err = self.value_type(failure_shape());
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
    pub(super) fn all(&mut self, entries: &[AdapterEntry<'_>]) {
        for operation in entries.iter().map(|entry| entry.operation) {
            for param in operation.params() {
                self.value_type(&param.shape);
            }
            if let Some(result) = operation.result() {
                self.value_type(result);
            }
            self.value_type(failure_shape());
        }
    }

    fn define(&mut self, write: impl FnOnce(wasm_encoder::ComponentTypeEncoder<'_>)) -> u32 {
        let mut section = ComponentTypeSection::new();
        write(section.ty());
        self.into.section(&section);
        self.next += 1;
        self.next - 1
    }

    fn value_type(&mut self, shape: &ValueShape) -> ComponentValType {
        if let Some(primitive) = primitive(shape) {
            return ComponentValType::Primitive(primitive);
        }
        let key = shape.key();
        if let Some(index) = key.and_then(|key| self.known.get(&key)) {
            return ComponentValType::Type(*index);
        }
        let mut index = self.compound(shape);
        if matches!(
            shape,
            ValueShape::Record(_) | ValueShape::Variant(_) | ValueShape::Enum(_) | ValueShape::Flags(_)
        ) {
            if self.naming == TypeNaming::Imported {
                let mut imports = ComponentImportSection::new();
                let bounds = ComponentTypeRef::Type(TypeBounds::Eq(index));
                imports.import(Self::name(self.nominal.len()).as_str(), bounds);
                self.into.section(&imports);
                index = self.next;
                self.next += 1;
            }
            #[cfg(test)]
            if self.naming == TypeNaming::Exported {
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

    fn compound(&mut self, shape: &ValueShape) -> u32 {
        match shape {
            ValueShape::List(item) => {
                let item = self.value_type(item);
                self.define(|types| types.defined_type().list(item))
            }
            ValueShape::Tuple(items) => {
                let items: Vec<_> = items.iter().map(|item| self.value_type(item)).collect();
                self.define(|types| types.defined_type().tuple(items))
            }
            ValueShape::Option(item) => {
                let item = self.value_type(item);
                self.define(|types| types.defined_type().option(item))
            }
            ValueShape::Result(ok, err) => {
                let (ok, err) =
                    (ok.as_ref().map(|ok| self.value_type(ok)), err.as_ref().map(|err| self.value_type(err)));
                self.define(|types| types.defined_type().result(ok, err))
            }
            ValueShape::Record(fields) => {
                let fields: Vec<_> =
                    fields.iter().map(|field| (field.name.wit(), self.value_type(&field.shape))).collect();
                self.define(|types| types.defined_type().record(fields))
            }
            ValueShape::Variant(cases) => {
                let cases: Vec<_> = cases
                    .iter()
                    .map(|case| {
                        (case.name.wit(), case.payload.as_ref().map(|payload| self.value_type(payload)))
                    })
                    .collect();
                self.define(|types| types.defined_type().variant(cases))
            }
            ValueShape::Enum(names) => {
                self.define(|types| types.defined_type().enum_type(names.iter().map(|n| n.wit())))
            }
            ValueShape::Flags(names) => {
                self.define(|types| types.defined_type().flags(names.iter().map(|n| n.wit())))
            }
            // The primitives are handled above.
            _ => self.define(|types| types.defined_type().list(PrimitiveValType::U8)),
        }
    }
}

fn primitive(shape: &ValueShape) -> Option<PrimitiveValType> {
    Some(match shape {
        ValueShape::Bool => PrimitiveValType::Bool,
        ValueShape::Signed(8) => PrimitiveValType::S8,
        ValueShape::Signed(16) => PrimitiveValType::S16,
        ValueShape::Signed(32) => PrimitiveValType::S32,
        ValueShape::Signed(_) => PrimitiveValType::S64,
        ValueShape::Unsigned(8) => PrimitiveValType::U8,
        ValueShape::Unsigned(16) => PrimitiveValType::U16,
        ValueShape::Unsigned(32) => PrimitiveValType::U32,
        ValueShape::Unsigned(_) => PrimitiveValType::U64,
        ValueShape::Float(32) => PrimitiveValType::F32,
        ValueShape::Float(_) => PrimitiveValType::F64,
        ValueShape::Char => PrimitiveValType::Char,
        ValueShape::String => PrimitiveValType::String,
        _ => return None,
    })
}
