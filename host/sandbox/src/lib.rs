//! The sandbox: compiles verified packages, runs one attempt at a time in a fresh store, and classifies every
//! ending. It is the only directory that names wasmtime.

mod adapter;
mod attempt;
mod attempt_trace;
mod cache;
mod compile;
mod compile_cache;
mod compile_limits;
mod engine;
mod guest_frames;
mod hostcalls;
mod load;
mod memory;
mod operation_fn;
mod outcome;
mod pool_quota;
#[cfg(test)]
mod reference_tests;
mod stdio;
mod store_data;
#[cfg(test)]
mod surface_tests;
mod traps;
mod values;
mod worker;
mod yield_hook;

use std::sync::Arc;

use cofferdam_core::clock::Clock;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_egress::egress::{EgressClient, EgressPolicy};
use cofferdam_model::manifest::Manifest;
use cofferdam_model::package::Package;
use cofferdam_model::trust::Verified;
use wasmtime::component::{Component, Linker};

pub use attempt::{Attempt, AttemptEnd, AttemptTime, run};
pub use compile::{Compiler, PackageParser};
pub use compile_cache::CodeStore;
pub use compile_limits::CompileLimits;
pub use hostcalls::guards::{AttemptGuards, RateDelay, RateGuard};
pub use hostcalls::http::EgressSettings;
pub use hostcalls::log::{RecordedLog, SuppressedError};
pub use hostcalls::request_observer::{KeyWatch, SentEffects};
pub use load::{ExportedOperation, LoadError, LoadedConnector};

pub use values::{EncodedArguments, ResultFormat, json_fields_over, json_size_over, literal_fits};
pub use worker::{COMPILE_WORKER_ARG, compile_worker};

use compile_cache::CompileCache;
use pool_quota::{PoolCapacity, PoolQuota};
pub use pool_quota::{PoolNeeds, PoolPermit};
use worker::WorkerForm;

/// The compiler and runner of connectors.
pub struct Sandbox {
    linker: Linker<store_data::StoreData>,
    parser: Arc<PackageParser>,
    components: Arc<CompileCache>,
    egress: EgressSettings,
    pool_quota: PoolQuota,
}

/// A compiled connector, in the form in which all its operations are called.
struct CompiledConnector {
    component: Component,
    /// True if it is wrapped by the adapter.
    is_adapted: bool,
}

/// The reason why a package did not become a connector.
pub enum SandboxError {
    /// It could not be compiled.
    Compile(HostError),
    /// It could not be linked.
    Load(LoadError),
}

/// Opens packages that this host may have compiled before.
#[derive(Clone)]
pub struct PackageOpener {
    parser: Arc<PackageParser>,
    components: Arc<CompileCache>,
}

impl PackageOpener {
    /// Opens the package `bytes` on a thread that may block.
    pub fn open_blocking(&self, bytes: Vec<u8>) -> Result<Package, HostError> {
        match self.has_code(&bytes) {
            true => Ok(Package::open(bytes)?),
            false => self.parser.open_blocking(bytes),
        }
    }

    /// Opens the package `bytes`; a worker that parses them is stopped when this future is dropped.
    pub async fn open(&self, bytes: Vec<u8>) -> Result<Package, HostError> {
        let opener = self.clone();
        let known = tokio::task::spawn_blocking(move || match opener.has_code(&bytes) {
            true => Package::open(bytes).map(Ok),
            false => Ok(Err(bytes)),
        });
        let lost = |error| HostError::new(HostErrorKind::Internal, "The load was lost.").with_source(error);
        match known.await.map_err(lost)?? {
            Ok(package) => Ok(package),
            Err(bytes) => self.parser.open(bytes).await,
        }
    }

    /// Returns true if there is cached code of these bytes: parsing them stayed within the worker's limits
    /// then.
    fn has_code(&self, bytes: &[u8]) -> bool {
        let digest = Digest::sha256(bytes);
        self.components.has_code(&[digest, adapter::cache_key(&digest)])
    }
}

impl Sandbox {
    /// Creates a sandbox with room for `slots` instances at once, that caches compiled code in `store` if
    /// there is one.
    pub fn new(
        slots: u32,
        compiler: Compiler,
        limits: CompileLimits,
        store: Option<CodeStore>,
        egress: EgressSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, HostError> {
        let broken = |error: wasmtime::Error| {
            HostError::new(HostErrorKind::Internal, "The WebAssembly engine could not be made.")
                .with_source(error.to_string())
        };
        let (engine, _) = engine::new(slots, compiler.debugging()).map_err(broken)?;
        let linker = engine::linker(&engine).map_err(broken)?;
        let parser = Arc::new(PackageParser::new(compiler.clone(), limits.clone())?);
        let components = Arc::new(CompileCache::new(engine, compiler, limits, store, clock)?);
        Ok(Self {
            linker,
            parser,
            components,
            egress,
            pool_quota: PoolQuota::new(PoolCapacity::for_slots(slots)),
        })
    }

    /// Makes a verified package runnable: from cached code if there is some, else by compiling it. `proof`
    /// says that these bytes were verified; a proof for other bytes is refused.
    pub async fn load(
        &self,
        package: &Package,
        proof: &Verified,
    ) -> Result<Arc<LoadedConnector>, SandboxError> {
        if proof.digest() != package.digest() {
            let error = HostError::new(HostErrorKind::Internal, "The proof is about another package.");
            return Err(SandboxError::Compile(error));
        }
        let mut layouts = values::LayoutTable::default();
        let layouts: Vec<_> =
            package.operations().iter().map(|operation| layouts.operation(operation)).collect();
        let compiled = self.compiled(package, &layouts).await.map_err(SandboxError::Compile)?;
        let egress = self.egress.client(package.manifest());
        let connector = LoadedConnector::new(&self.linker, &compiled, package, layouts, egress)
            .map_err(SandboxError::Load)?;
        Ok(Arc::new(connector))
    }

    /// Returns the policy for the hosts that a connector with this manifest may reach from this host.
    pub fn policy(&self, manifest: &Manifest) -> EgressPolicy {
        self.egress.policy(manifest)
    }

    /// Returns a client of its own for a connector with this manifest, as its guest's requests would use it.
    pub fn client(&self, manifest: &Manifest) -> EgressClient {
        self.egress.client(manifest)
    }

    /// Compiles a connector: wrapped by the adapter if one of its operations has lists in its types, else as it is.
    async fn compiled(
        &self,
        package: &Package,
        layouts: &[values::OperationLayout],
    ) -> Result<CompiledConnector, HostError> {
        if layouts.iter().any(values::OperationLayout::has_lists) {
            let key = adapter::cache_key(package.digest());
            match self.components.get(&key, WorkerForm::Adapted, package.bytes()).await {
                Ok(component) => return Ok(CompiledConnector { component, is_adapted: true }),
                // It cannot be wrapped, and without the adapter its calls are only slower.
                Err(error) if error.kind() == HostErrorKind::Validation => {
                    let reason =
                        std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
                    tracing::warn!(component = %package.digest(), reason, "lists are passed slowly: no adapter");
                }
                Err(error) => return Err(error),
            }
        }
        let component = self.components.get(package.digest(), WorkerForm::Plain, package.bytes()).await?;
        Ok(CompiledConnector { component, is_adapted: false })
    }

    /// Opens the package `bytes`, parsed by the compile worker unless it has compiled the same bytes before.
    /// For threads that may block.
    pub fn open_blocking(&self, bytes: Vec<u8>) -> Result<Package, HostError> {
        self.opener().open_blocking(bytes)
    }

    /// Returns an opener for use on another thread.
    pub fn opener(&self) -> PackageOpener {
        PackageOpener { parser: Arc::clone(&self.parser), components: Arc::clone(&self.components) }
    }

    /// Returns the parser for bytes that were neither verified nor compiled before.
    pub fn parser(&self) -> &Arc<PackageParser> {
        &self.parser
    }

    /// Returns room for an instance with these needs, if there is some now.
    pub fn try_pool_permit(&self, needs: PoolNeeds) -> Option<PoolPermit<'_>> {
        self.pool_quota.try_take(needs)
    }

    /// Waits in turn for room for an instance with these needs; returns none only if the host is gone.
    pub async fn pool_permit(&self, needs: PoolNeeds) -> Option<PoolPermit<'_>> {
        self.pool_quota.take(needs).await
    }

    /// Removes the cached data of a package that was removed.
    pub fn forget(&self, digest: &Digest) {
        self.components.forget(digest);
        self.components.forget(&adapter::cache_key(digest));
    }
}
