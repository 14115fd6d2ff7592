//! The two ways to call an operation: through the adapter with values as bytes, or as exported with dynamic
//! values.

use std::cell::Cell;

use cofferdam_model::package::OperationSignature;
use serde_json::Value;
use wasmtime::Store;
use wasmtime::component::{Component, ComponentExportIndex, Instance, TypedFunc, Val, WasmList};

use super::adapter;
use super::memory::MemoryAccount;
use super::values::{
    ArgumentError, DecodeError, DecodedResult, EncodedArguments, OperationLayout, ResultFormat,
};

/// The function of an operation, and the layout of its values.
pub(super) struct OperationFn {
    layout: OperationLayout,
    function: FunctionKind,
}

/// The function to call.
#[derive(Debug, Clone, Copy)]
enum FunctionKind {
    /// The adapter's.
    Adapted(ComponentExportIndex),
    /// The connector's own.
    Plain(ComponentExportIndex),
}

impl OperationFn {
    /// The operation at this place in the order of operations, in the wrapped component.
    pub(super) fn adapted(wrapped: &Component, at: usize, layout: OperationLayout) -> Option<Self> {
        let index = find(wrapped, Some(adapter::INSTANCE), &adapter::export_name(at))?;
        Some(Self { layout, function: FunctionKind::Adapted(index) })
    }

    /// The operation in the connector's own component.
    pub(super) fn plain(
        component: &Component,
        operation: &OperationSignature,
        layout: OperationLayout,
    ) -> Option<Self> {
        let index = find(component, operation.interface(), operation.name().wit())?;
        Some(Self { layout, function: FunctionKind::Plain(index) })
    }

    /// The arguments object, checked against the types of the parameters.
    pub(super) fn arguments(&self, args: &Value) -> Result<EncodedArguments, ArgumentError> {
        self.layout.arguments(args)
    }

    /// Checks arguments given as JSON text.
    pub(super) fn arguments_from_text(&self, args: &str) -> Result<EncodedArguments, ArgumentError> {
        self.layout.arguments_from_text(args)
    }

    /// Calls the operation in `instance`; its result is charged to `memory`.
    pub(super) async fn call<T: Send + 'static, A: ResultFormat>(
        &self,
        store: &mut Store<T>,
        instance: &Instance,
        args: &EncodedArguments,
        memory: &MemoryAccount,
    ) -> wasmtime::Result<Result<DecodedResult<A>, DecodeError>> {
        match self.function {
            FunctionKind::Adapted(index) => {
                let function: TypedFunc<(&[u8],), (WasmList<u8>,)> =
                    instance.get_typed_func(&mut *store, index)?;
                let (image,) = function.call_async(&mut *store, (args.abi_buffer(),)).await?;
                decoded(memory, |room| self.layout.decode_result(args, image.as_le_slice(&*store), room))
            }
            FunctionKind::Plain(index) => {
                let function = instance.get_func(&mut *store, index);
                let function =
                    function.ok_or_else(|| wasmtime::Error::msg("the export is not a function"))?;
                let Ok(args) = self.layout.parameters(args) else { return Ok(Err(DecodeError::Malformed)) };
                let mut results = [Val::Bool(false)];
                function.call_async(&mut *store, &args, &mut results).await?;
                let [result] = results;
                decoded(memory, |room| self.layout.decode_dynamic(&result, room))
            }
        }
    }
}

/// Decodes the returned value within the rest of the attempt's memory, and charges it.
fn decoded<R>(
    memory: &MemoryAccount,
    decode: impl FnOnce(&Cell<usize>) -> Result<R, DecodeError>,
) -> wasmtime::Result<Result<R, DecodeError>> {
    let before = usize::try_from(memory.room()).unwrap_or(usize::MAX);
    let room = Cell::new(before);
    let decoded = decode(&room);
    // Never released: the attempt does nothing after it.
    memory.hold(before.saturating_sub(room.get()) as u64)?;
    Ok(decoded)
}

fn find(component: &Component, interface: Option<&str>, name: &str) -> Option<ComponentExportIndex> {
    let interface = match interface {
        Some(interface) => Some(component.get_export_index(None, interface)?),
        None => None,
    };
    component.get_export_index(interface.as_ref(), name)
}
