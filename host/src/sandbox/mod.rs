//! The sandbox: compiles verified packages, runs one attempt at a time in a fresh store, and tells every
//! ending apart. The only folder that names wasmtime.

mod attempt;
mod breather;
mod cache;
mod compile;
mod engine;
mod gates;
mod limiter;
mod link;
mod load;
mod outcome;
#[cfg(test)]
mod reference;
mod state;
mod stdio;
#[cfg(test)]
mod surface_tests;
mod trap_table;
mod traps;
mod usage;
mod values;
mod words;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use wasmtime::Engine;
use wasmtime::component::Linker;

pub(crate) use attempt::{Attempt, run};
pub use compile::{COMPILE_WORKER_ARG, Compiler, compile_worker};
pub(crate) use gates::http::EgressSettings;
pub(crate) use load::{Connector, Exported, LoadError};
pub use usage::Usage;
pub(crate) use values::{json_size, lower_arguments};
pub(crate) use wasmtime::component::Val as ComponentValue;

use crate::egress::Policy;
use crate::error::{HostError, HostErrorKind};
use crate::manifest::Manifest;
use crate::package::Package;
use crate::trust::Verified;
use cache::CodeCache;

/// What turns packages into connectors that can run.
pub(crate) struct Sandbox {
    engine: Engine,
    linker: Linker<state::State>,
    compiler: Compiler,
    places: Option<CachePlaces>,
    cache: OnceLock<Option<CodeCache>>,
    egress: EgressSettings,
    compiling: tokio::sync::Semaphore,
}

/// Where compiled code is kept, and the key that binds it to this host.
struct CachePlaces {
    dir: PathBuf,
    key_file: PathBuf,
}

/// Why a package did not become a connector.
pub(crate) enum SandboxError {
    /// It could not be compiled.
    Compile(HostError),
    /// It could not be linked.
    Load(LoadError),
}

/// Components that are compiled at once; each takes a worker process and its memory.
const PARALLEL_COMPILES: usize = 2;

impl Sandbox {
    /// A sandbox with room for `slots` instances at once. Compiled code is kept in `cache_dir`, bound to
    /// the key in `key_file`, if both can be used.
    pub(crate) fn new(
        slots: u32,
        compiler: Compiler,
        cache_dir: Option<PathBuf>,
        key_file: Option<PathBuf>,
        egress: EgressSettings,
    ) -> Result<Self, HostError> {
        let broken = |error: wasmtime::Error| {
            HostError::new(HostErrorKind::Internal, "The WebAssembly engine could not be made.")
                .because(error.to_string())
        };
        let (engine, _) = engine::new(slots).map_err(broken)?;
        let linker = link::linker(&engine).map_err(broken)?;
        let places = cache_dir.zip(key_file).map(|(dir, key_file)| CachePlaces { dir, key_file });
        let cache = OnceLock::new();
        let compiling = tokio::sync::Semaphore::new(PARALLEL_COMPILES);
        Ok(Self { engine, linker, compiler, places, cache, egress, compiling })
    }

    /// The cache. It and the host's key are made when a package is first loaded: looking around in a home
    /// writes nothing.
    fn cache(&self) -> Option<&CodeCache> {
        let open = || {
            let CachePlaces { dir, key_file } = self.places.as_ref()?;
            match cache::host_key(key_file) {
                Ok(key) => Some(CodeCache::new(dir.clone(), &key, &self.engine)),
                Err(error) => {
                    tracing::warn!(reason = %error, "no host key; compiled code is not kept");
                    None
                }
            }
        };
        self.cache.get_or_init(open).as_ref()
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
        let component = self.component(package).await.map_err(SandboxError::Compile)?;
        let egress = self.egress.for_connector(package.manifest());
        let connector =
            Connector::new(&self.linker, &component, package, egress).map_err(SandboxError::Load)?;
        Ok(Arc::new(connector))
    }

    /// What a connector with this manifest may reach from this host.
    pub(crate) fn policy(&self, manifest: &Manifest) -> Policy {
        self.egress.policy(manifest)
    }

    async fn component(&self, package: &Package) -> Result<wasmtime::component::Component, HostError> {
        if let Some(code) = self.cache().and_then(|cache| cache.get(package.digest())) {
            match code.load(&self.engine) {
                Ok(component) => return Ok(component),
                Err(error) => tracing::warn!(reason = %error, "kept code does not load; compiling again"),
            }
        }
        let _permit = self.compiling.acquire().await;
        let code = self.compiler.compile(&self.engine, package.bytes()).await?;
        let component = code.load(&self.engine).map_err(|error| unloadable(&error))?;
        if let Some(cache) = self.cache() {
            cache.put(package.digest(), &code);
        }
        Ok(component)
    }

    /// Forgets what is kept of a package that is gone.
    pub(crate) fn forget(&self, digest: &crate::digest::Digest) {
        if let Some(cache) = self.cache() {
            cache.forget(digest);
        }
    }
}

/// Why code that was just compiled does not load: it asks for more than an instance slot has, or it was
/// compiled by another version.
fn unloadable(error: &wasmtime::Error) -> HostError {
    // wasmtime has no type for it; a test of installs pins the words.
    let outer = error.to_string();
    if outer.contains("does not fit in pooling allocator") {
        let reason = crate::failure::safe_line(&error.root_cause().to_string(), 300);
        let message = format!("The component asks for more than any call gets here: {reason}.");
        return HostError::new(HostErrorKind::CompileRefused, message)
            .hint("Make its tables and its initial memories smaller.");
    }
    HostError::new(HostErrorKind::Configuration, "The compile worker is not of this version of cofferdam.")
        .hint("Point Compiler::child at the cofferdam binary of this very version.")
        .because(outer)
}
