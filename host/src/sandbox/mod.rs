//! The sandbox: compiles verified packages, runs one attempt at a time in a fresh store, and tells every
//! ending apart. The only folder that names wasmtime.

mod attempt;
mod breather;
mod cache;
mod compile;
mod compile_limits;
mod components;
mod engine;
mod gates;
mod host_key;
mod limiter;
mod link;
mod load;
mod outcome;
#[cfg(test)]
mod reference;
mod refused;
mod state;
mod stdio;
#[cfg(test)]
mod surface_tests;
mod trap_table;
mod traps;
mod usage;
mod values;
mod words;
mod worker;

use std::sync::Arc;

use wasmtime::component::Linker;

pub(crate) use attempt::{Attempt, run};
pub use compile::Compiler;
pub use compile_limits::CompileLimits;
pub(crate) use components::CodeStore;
pub(crate) use gates::http::EgressSettings;
pub(crate) use load::{Connector, Exported, LoadError};
pub use usage::Usage;
pub(crate) use values::{json_size, lower_arguments};
pub(crate) use wasmtime::component::Val as ComponentValue;
pub use worker::{COMPILE_WORKER_ARG, compile_worker};

use crate::clock::Clock;
use crate::egress::Policy;
use crate::error::{HostError, HostErrorKind};
use crate::manifest::Manifest;
use crate::package::Package;
use crate::trust::Verified;
use components::Components;

/// What turns packages into connectors that can run.
pub(crate) struct Sandbox {
    linker: Linker<state::State>,
    components: Components,
    egress: EgressSettings,
}

/// Why a package did not become a connector.
pub(crate) enum SandboxError {
    /// It could not be compiled.
    Compile(HostError),
    /// It could not be linked.
    Load(LoadError),
}

impl Sandbox {
    /// A sandbox with room for `slots` instances at once, that keeps compiled code in `store` if there is one.
    pub(crate) fn new(
        slots: u32,
        compiler: Compiler,
        limits: CompileLimits,
        store: Option<CodeStore>,
        egress: EgressSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, HostError> {
        let broken = |error: wasmtime::Error| {
            HostError::new(HostErrorKind::Internal, "The WebAssembly engine could not be made.")
                .because(error.to_string())
        };
        let (engine, _) = engine::new(slots).map_err(broken)?;
        let linker = link::linker(&engine).map_err(broken)?;
        let components = Components::new(engine, compiler, limits, store, clock)?;
        Ok(Self { linker, components, egress })
    }

    /// Makes a verified package runnable: from kept code where there is some, else by compiling it.
    /// `proof` says that these bytes were verified; a proof for other bytes is refused.
    pub(crate) async fn load(
        &self,
        package: &Package,
        proof: &Verified,
    ) -> Result<Arc<Connector>, SandboxError> {
        if proof.digest() != package.digest() {
            let error = HostError::new(HostErrorKind::Internal, "The proof is about another package.");
            return Err(SandboxError::Compile(error));
        }
        let component = self.components.get(package).await.map_err(SandboxError::Compile)?;
        let egress = self.egress.for_connector(package.manifest());
        let connector =
            Connector::new(&self.linker, &component, package, egress).map_err(SandboxError::Load)?;
        Ok(Arc::new(connector))
    }

    /// What a connector with this manifest may reach from this host.
    pub(crate) fn policy(&self, manifest: &Manifest) -> Policy {
        self.egress.policy(manifest)
    }

    /// Forgets what is kept of a package that is gone.
    pub(crate) fn forget(&self, digest: &crate::digest::Digest) {
        self.components.forget(digest);
    }
}
