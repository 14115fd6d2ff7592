//! `wasi:sockets`: available to link against if a manifest names it, and disabled: the first use ends the
//! call.
//!
//! The libc inside every component of some toolchains (componentize-py) imports sockets whether the connector
//! uses them or not, and those tools cannot omit them without omitting HTTP as well. So a manifest may name
//! the interfaces, but they have no implementation: no function here touches a socket, a resolver or the
//! system.

use std::sync::Arc;

use cofferdam_model::package::socket_denial;
use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker, ResourceType};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable};

use super::attempt_log::Termination;
use crate::store_data::StoreData;

const PACKAGE: &str = "wasi:sockets/";

/// The type of a handle on a socket.
struct ClosedSockets;

/// Returns true if `component` imports any of it.
pub(crate) fn imported(engine: &Engine, component: &Component) -> bool {
    component.component_type().imports(engine).any(|(name, _)| name.starts_with(PACKAGE))
}

/// Defines what `component` imports of it, under the names and types it has there.
pub(crate) fn link(
    linker: &mut Linker<StoreData>,
    engine: &Engine,
    component: &Component,
) -> wasmtime::Result<()> {
    for (import, item) in component.component_type().imports(engine) {
        let ComponentItem::ComponentInstance(interface) = item.ty else { continue };
        if !import.starts_with(PACKAGE) {
            continue;
        }
        let mut instance = linker.instance(import)?;
        for (name, item) in interface.exports(engine) {
            match item.ty {
                ComponentItem::ComponentFunc(_) => {
                    let interface: Arc<str> = import.split('@').next().unwrap_or(import).into();
                    instance.func_new(name, move |store, _, _, _| {
                        let ledger = store.data().ledger();
                        ledger.end(Termination::Denied(socket_denial(&interface)));
                        Err(wasmtime::Error::msg("sockets are shut"))
                    })?;
                }
                ComponentItem::Resource(_) => {
                    instance.resource(name, resource(name), |_, _| Ok(()))?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Returns the resource type of a handle: a socket or one of its parts, unless the interface uses the type
/// from `wasi:io`, which has to be the same.
fn resource(name: &str) -> ResourceType {
    match name {
        "pollable" => ResourceType::host::<DynPollable>(),
        "input-stream" => ResourceType::host::<DynInputStream>(),
        "output-stream" => ResourceType::host::<DynOutputStream>(),
        _ => ResourceType::host::<ClosedSockets>(),
    }
}
