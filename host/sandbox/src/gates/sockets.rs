//! `wasi:sockets`: there to link against, where a manifest names it, and shut: the first use ends the call.
//!
//! The libc inside every component of some toolchains (componentize-py) imports sockets whether the
//! connector uses them or not, and those tools cannot leave them out without leaving out HTTP as well. So a
//! manifest may name the interfaces; nothing stands behind them: no function here touches a socket, a
//! resolver or the system.

use std::sync::Arc;

use cofferdam_model::package::shut;
use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker, ResourceType};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable};

use super::ledger::Verdict;
use crate::state::State;

const PACKAGE: &str = "wasi:sockets/";

/// What a handle on a socket would refer to.
struct Shut;

/// Whether `component` imports any of it.
pub(crate) fn imported(engine: &Engine, component: &Component) -> bool {
    component.component_type().imports(engine).any(|(name, _)| name.starts_with(PACKAGE))
}

/// Defines what `component` imports of it, under the names and types it has there.
pub(crate) fn link(
    linker: &mut Linker<State>,
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
                        ledger.end(Verdict::Denied(shut(&interface)));
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

/// What a handle is on: a socket or what belongs to one, unless the interface has the type from `wasi:io`,
/// where it has to be the same.
fn resource(name: &str) -> ResourceType {
    match name {
        "pollable" => ResourceType::host::<DynPollable>(),
        "input-stream" => ResourceType::host::<DynInputStream>(),
        "output-stream" => ResourceType::host::<DynOutputStream>(),
        _ => ResourceType::host::<Shut>(),
    }
}
