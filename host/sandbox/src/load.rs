//! A loaded connector: everything a call needs that can be made once.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use cofferdam_core::failure::{LimitHit, LimitKind};
use cofferdam_core::limits;
use cofferdam_egress::egress::ReadOnly;
use cofferdam_model::package::{Operation, Package};
use serde_json::Value;
use wasmtime::Engine;
use wasmtime::component::{Component, InstancePre, Linker};

use super::Variants;
use super::bridge::{self, WrapScope};
use super::entry::Entry;
use super::gates::http::Egress;
use super::gates::sockets;
use super::limiter::Refused;
use super::room::Needs;
use super::state::State;
use super::values::{ArgumentError, Arguments, OperationLayout};

/// A verified connector, compiled, linked and resolved: immutable, shared by all its calls.
pub struct Connector {
    operations: HashMap<String, Exported>,
    egress: Egress,
    excess: Option<LimitHit>,
}

/// An operation, what is instantiated to call it, and how it is called.
pub struct Exported {
    operation: Operation,
    /// Its name for callers, written once.
    name: Arc<str>,
    pre: InstancePre<State>,
    needs: Needs,
    entry: Entry,
    /// Where it is declared to change nothing: what its requests are held to.
    read_only: Option<Arc<ReadOnly>>,
}

/// Why a verified component cannot be linked.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(String);

impl Connector {
    pub(super) fn new(
        linker: &Linker<State>,
        variants: &Variants,
        package: &Package,
        layouts: Vec<OperationLayout>,
        egress: Egress,
    ) -> Result<Self, LoadError> {
        let text =
            |error: &dyn fmt::Display| LoadError(cofferdam_core::failure::safe_line(&error.to_string(), 500));
        let pre = |component: &Component| {
            linked(linker, component).map_err(|error| text(&format_args!("{error:#}")))
        };
        let (plain, bridged, scope) = match variants {
            Variants::Plain(plain) => (Some(pre(plain)?), None, WrapScope::Lists),
            Variants::Bridged(bridged) => (None, Some(pre(bridged)?), WrapScope::All),
            Variants::Both { plain, bridged } => (Some(pre(plain)?), Some(pre(bridged)?), WrapScope::Lists),
        };
        let excess = excess(variants, package)?;
        let manifest = Arc::new(package.manifest().clone());
        let mut operations = HashMap::with_capacity(layouts.len());
        for (at, (operation, layout)) in package.operations().iter().zip(layouts).enumerate() {
            let through_bridge = bridged.as_ref().filter(|_| scope.includes(&layout));
            let (pre, entry) = match (through_bridge, &plain) {
                (Some(pre), _) => (pre, Entry::bridged(pre.component(), at, layout)),
                (None, Some(pre)) => (pre, Entry::plain(pre.component(), operation, layout)),
                (None, None) => return Err(missing(operation)),
            };
            let entry = entry.ok_or_else(|| missing(operation))?;
            let needs = Needs::of(pre.component());
            let (operation, name) = (operation.clone(), operation.name().json());
            let read_only = ReadOnly::of(&manifest, name).map(Arc::new);
            let exported =
                Exported { operation, name: name.into(), pre: pre.clone(), needs, entry, read_only };
            operations.insert(name.to_owned(), exported);
        }
        Ok(Self { operations, egress, excess })
    }

    /// The operation under its caller's name.
    pub fn operation(&self, name: &str) -> Option<&Exported> {
        self.operations.get(name)
    }

    /// Every operation's name.
    pub fn operation_names(&self) -> impl Iterator<Item = &str> {
        self.operations.keys().map(String::as_str)
    }

    /// Refuses to instantiate more parts than any call gets.
    pub(super) fn fits(&self) -> Result<(), Refused> {
        self.excess.map_or(Ok(()), |hit| Err(Refused(hit)))
    }

    pub(super) fn egress(&self) -> &Egress {
        &self.egress
    }
}

impl Exported {
    /// The operation.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Its name, as callers write it.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The arguments object, checked against the types of the parameters.
    ///
    /// # Errors
    /// What does not fit, with its path.
    pub fn arguments(&self, args: &Value) -> Result<Arguments, ArgumentError> {
        self.entry.arguments(args)
    }

    /// The same from JSON text.
    ///
    /// # Errors
    /// The text is not JSON, or does not fit, with its path.
    pub fn arguments_from_text(&self, args: &str) -> Result<Arguments, ArgumentError> {
        self.entry.arguments_from_text(args)
    }

    /// What an instance for it takes of the pool.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    pub(super) fn read_only(&self) -> Option<&Arc<ReadOnly>> {
        self.read_only.as_ref()
    }

    pub(super) fn pre(&self) -> &InstancePre<State> {
        &self.pre
    }

    pub(super) fn engine(&self) -> &Engine {
        self.pre.component().engine()
    }

    pub(super) fn entry(&self) -> &Entry {
        &self.entry
    }
}

/// Links a component: sockets only where it imports them, and then shut ones.
fn linked(linker: &Linker<State>, component: &Component) -> wasmtime::Result<InstancePre<State>> {
    let engine = component.engine();
    if !sockets::imported(engine, component) {
        return linker.instantiate_pre(component);
    }
    let mut linker = linker.clone();
    sockets::link(&mut linker, engine, component)?;
    linker.instantiate_pre(component)
}

/// The first number of parts that is above its limit. It is known before anything is instantiated.
fn excess(variants: &Variants, package: &Package) -> Result<Option<LimitHit>, LoadError> {
    let (component, bridges) = match variants {
        Variants::Plain(plain) | Variants::Both { plain, .. } => (plain, 0),
        Variants::Bridged(bridged) => (bridged, bridge::MEMORIES),
    };
    let required = component
        .resources_required()
        .ok_or_else(|| LoadError("the component leaves open which modules it is made of".into()))?;
    let parts = [
        (LimitKind::Instances, limits::INSTANCES, package.core_instances()),
        (
            LimitKind::Memories,
            limits::MEMORIES,
            u64::from(required.num_memories).saturating_sub(bridges as u64),
        ),
        (LimitKind::Tables, limits::TABLES, u64::from(required.num_tables)),
    ];
    let mut hits =
        parts.map(|(limit, configured, used)| LimitHit::new(limit, configured as u64, used)).into_iter();
    Ok(hits.find(|hit| hit.used > hit.configured))
}

fn missing(operation: &Operation) -> LoadError {
    LoadError(format!("the component does not export {}", operation.name().wit()))
}
