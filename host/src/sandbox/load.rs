//! A loaded connector: everything a call needs that can be made once.

use std::collections::HashMap;
use std::fmt;

use wasmtime::Engine;
use wasmtime::component::{Component, ComponentExportIndex, Func, Instance, InstancePre, Linker};

use super::gates::http::Egress;
use super::gates::sockets;
use super::limiter::Refused;
use super::state::State;
use crate::failure::{LimitHit, LimitKind};
use crate::limits;
use crate::package::{Operation, Package};

/// A verified connector, compiled, linked and resolved: immutable, shared by all its calls.
pub(crate) struct Connector {
    pre: InstancePre<State>,
    operations: HashMap<String, Exported>,
    egress: Egress,
    excess: Option<LimitHit>,
}

/// An operation with the function it is.
pub(crate) struct Exported {
    operation: Operation,
    index: ComponentExportIndex,
}

/// Why a verified component cannot be linked.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct LoadError(String);

impl Connector {
    pub(super) fn new(
        linker: &Linker<State>,
        component: &Component,
        package: &Package,
        egress: Egress,
    ) -> Result<Self, LoadError> {
        let text = |error: &dyn fmt::Display| LoadError(crate::failure::safe_line(&error.to_string(), 500));
        let engine = component.engine();
        let shut_sockets = || -> wasmtime::Result<_> {
            let mut linker = linker.clone();
            sockets::link(&mut linker, engine, component)?;
            linker.instantiate_pre(component)
        };
        let pre = match sockets::imported(engine, component) {
            true => shut_sockets(),
            false => linker.instantiate_pre(component),
        };
        let pre = pre.map_err(|error| text(&error.root_cause()))?;
        let mut operations = HashMap::with_capacity(package.operations().len());
        for operation in package.operations() {
            let interface = match operation.interface() {
                Some(interface) => {
                    Some(component.get_export_index(None, interface).ok_or_else(|| missing(operation))?)
                }
                None => None,
            };
            let index = component
                .get_export_index(interface.as_ref(), operation.name().wit())
                .ok_or_else(|| missing(operation))?;
            let exported = Exported { operation: operation.clone(), index };
            operations.insert(operation.name().json().to_owned(), exported);
        }
        let excess = excess(component, package)?;
        Ok(Self { pre, operations, egress, excess })
    }

    /// The operation under its caller's name.
    pub(crate) fn operation(&self, name: &str) -> Option<&Exported> {
        self.operations.get(name)
    }

    /// Every operation's name.
    pub(crate) fn operation_names(&self) -> impl Iterator<Item = &str> {
        self.operations.keys().map(String::as_str)
    }

    /// Refuses to instantiate more parts than any call gets.
    pub(super) fn fits(&self) -> Result<(), Refused> {
        self.excess.map_or(Ok(()), |hit| Err(Refused(hit)))
    }

    pub(super) fn pre(&self) -> &InstancePre<State> {
        &self.pre
    }

    pub(super) fn engine(&self) -> &Engine {
        self.pre.component().engine()
    }

    pub(super) fn egress(&self) -> &Egress {
        &self.egress
    }
}

impl Exported {
    /// The operation.
    pub(crate) fn operation(&self) -> &Operation {
        &self.operation
    }

    pub(super) fn function(
        &self,
        store: impl wasmtime::AsContextMut,
        instance: &Instance,
    ) -> wasmtime::Result<Func> {
        instance
            .get_func(store, self.index)
            .ok_or_else(|| wasmtime::Error::msg("the export is not a function"))
    }
}

/// The first number of parts that is above its limit. It is known before anything is instantiated.
fn excess(component: &Component, package: &Package) -> Result<Option<LimitHit>, LoadError> {
    let required = component
        .resources_required()
        .ok_or_else(|| LoadError("the component leaves open which modules it is made of".into()))?;
    let parts = [
        (LimitKind::Instances, limits::INSTANCES, package.core_instances()),
        (LimitKind::Memories, limits::MEMORIES, u64::from(required.num_memories)),
        (LimitKind::Tables, limits::TABLES, u64::from(required.num_tables)),
    ];
    let mut hits = parts
        .map(|(limit, configured, used)| LimitHit { limit, configured: configured as u64, used })
        .into_iter();
    Ok(hits.find(|hit| hit.used > hit.configured))
}

fn missing(operation: &Operation) -> LoadError {
    LoadError(format!("the component does not export {}", operation.name().wit()))
}
