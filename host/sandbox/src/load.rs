//! A loaded connector: the parts of a call that can be prepared once.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use cofferdam_core::failure::{LimitHit, LimitKind};
use cofferdam_core::limits;
use cofferdam_egress::egress::{EgressClient, ReadOnly};
use cofferdam_model::package::{OperationSignature, Package};
use serde_json::Value;
use wasmtime::Engine;
use wasmtime::component::{Component, InstancePre, Linker};

use super::CompiledConnector;
use super::adapter;
use super::hostcalls::sockets;
use super::memory::GrowthRefusal;
use super::operation_fn::OperationFn;
use super::pool_quota::PoolNeeds;
use super::store_data::StoreData;
use super::values::{ArgumentError, EncodedArguments, OperationLayout};

/// A verified connector, compiled, linked and resolved: immutable, shared by all its calls.
pub struct LoadedConnector {
    operations: HashMap<String, Arc<ExportedOperation>>,
    egress: EgressClient,
    excess: Option<LimitHit>,
}

/// An operation, the component that is instantiated to call it, and the way to call it.
pub struct ExportedOperation {
    operation: OperationSignature,
    /// Its name for callers, created once.
    name: Arc<str>,
    pre: InstancePre<StoreData>,
    needs: PoolNeeds,
    entry: OperationFn,
    /// The restriction of its requests, if it is declared read-only.
    read_only: Option<Arc<ReadOnly>>,
}

/// The reason why a verified component cannot be linked.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(String);

impl LoadedConnector {
    pub(super) fn new(
        linker: &Linker<StoreData>,
        compiled: &CompiledConnector,
        package: &Package,
        layouts: Vec<OperationLayout>,
        egress: EgressClient,
    ) -> Result<Self, LoadError> {
        let text = |error: &dyn fmt::Display| {
            LoadError(cofferdam_core::failure::sanitize_line(&error.to_string(), 500))
        };
        let CompiledConnector { component, is_adapted } = compiled;
        let pre = linked(linker, component).map_err(|error| text(&format_args!("{error:#}")))?;
        let excess = excess(compiled, package)?;
        let needs = PoolNeeds::for_component(component);
        let manifest = Arc::new(package.manifest().clone());
        let mut operations = HashMap::with_capacity(layouts.len());
        for (at, (operation, layout)) in package.operations().iter().zip(layouts).enumerate() {
            let entry = match is_adapted {
                true => OperationFn::adapted(component, at, layout),
                false => OperationFn::plain(component, operation, layout),
            };
            let entry = entry.ok_or_else(|| missing(operation))?;
            let (operation, name) = (operation.clone(), operation.name().json());
            let read_only = ReadOnly::for_operation(&manifest, name).map(Arc::new);
            let exported =
                ExportedOperation { operation, name: name.into(), pre: pre.clone(), needs, entry, read_only };
            operations.insert(name.to_owned(), Arc::new(exported));
        }
        Ok(Self { operations, egress, excess })
    }

    /// Returns the operation with this name, as callers write it.
    pub fn operation(&self, name: &str) -> Option<&Arc<ExportedOperation>> {
        self.operations.get(name)
    }

    /// Every operation's name.
    pub fn operation_names(&self) -> impl Iterator<Item = &str> {
        self.operations.keys().map(String::as_str)
    }

    /// Refuses to instantiate more parts than the limit of every call.
    pub(super) fn fits(&self) -> Result<(), GrowthRefusal> {
        self.excess.map_or(Ok(()), |hit| Err(GrowthRefusal(hit)))
    }

    pub(super) fn egress(&self) -> &EgressClient {
        &self.egress
    }
}

impl ExportedOperation {
    /// The operation.
    pub fn operation(&self) -> &OperationSignature {
        &self.operation
    }

    /// Its name, as callers write it.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Checks the arguments object against the types of the parameters.
    ///
    /// # Errors
    /// An argument does not fit; the error has its path.
    pub fn arguments(&self, args: &Value) -> Result<EncodedArguments, ArgumentError> {
        self.entry.arguments(args)
    }

    /// Checks arguments given as JSON text.
    ///
    /// # Errors
    /// The text is not JSON, or an argument does not fit; the error has its path.
    pub fn arguments_from_text(&self, args: &str) -> Result<EncodedArguments, ArgumentError> {
        self.entry.arguments_from_text(args)
    }

    /// Returns the pool resources that an instance for it needs.
    pub fn needs(&self) -> PoolNeeds {
        self.needs
    }

    pub(super) fn read_only(&self) -> Option<&Arc<ReadOnly>> {
        self.read_only.as_ref()
    }

    pub(super) fn pre(&self) -> &InstancePre<StoreData> {
        &self.pre
    }

    pub(super) fn engine(&self) -> &Engine {
        self.pre.component().engine()
    }

    pub(super) fn entry(&self) -> &OperationFn {
        &self.entry
    }
}

/// Links a component: sockets only if it imports them, and then disabled ones.
fn linked(linker: &Linker<StoreData>, component: &Component) -> wasmtime::Result<InstancePre<StoreData>> {
    let engine = component.engine();
    if !sockets::imported(engine, component) {
        return linker.instantiate_pre(component);
    }
    let mut linker = linker.clone();
    sockets::link(&mut linker, engine, component)?;
    linker.instantiate_pre(component)
}

/// Returns the first number of parts that is above its limit. It is known before the component is
/// instantiated.
fn excess(compiled: &CompiledConnector, package: &Package) -> Result<Option<LimitHit>, LoadError> {
    let CompiledConnector { component, is_adapted } = compiled;
    let added = if *is_adapted { adapter::MEMORIES } else { 0 };
    let required = component
        .resources_required()
        .ok_or_else(|| LoadError("the component leaves open which modules it is made of".into()))?;
    let parts = [
        (LimitKind::Instances, limits::INSTANCES, package.core_instances()),
        (
            LimitKind::Memories,
            limits::MEMORIES,
            u64::from(required.num_memories).saturating_sub(added as u64),
        ),
        (LimitKind::Tables, limits::TABLES, u64::from(required.num_tables)),
    ];
    let mut hits =
        parts.map(|(limit, configured, used)| LimitHit::new(limit, configured as u64, used)).into_iter();
    Ok(hits.find(|hit| hit.used > hit.configured))
}

fn missing(operation: &OperationSignature) -> LoadError {
    LoadError(format!("the component does not export {}", operation.name().wit()))
}
