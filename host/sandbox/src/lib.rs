//! The sandbox: compiles verified packages, runs one attempt at a time in a fresh store, and classifies every
//! ending. It is the only directory that names wasmtime.

mod account;
mod attempt;
mod bridge;
mod cache;
mod compile;
mod compile_limits;
mod components;
mod engine;
mod entry;
mod gates;
mod limiter;
mod link;
mod load;
mod memory;
mod outcome;
mod parser;
#[cfg(test)]
mod reference;
mod refused;
mod room;
mod state;
mod stdio;
#[cfg(test)]
mod surface_tests;
mod trap_table;
mod traps;
mod values;
mod words;
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
pub use compile::Compiler;
pub use compile_limits::CompileLimits;
pub use components::CodeStore;
pub use gates::guards::{Guards, RateDelay, RateGuard};
pub use gates::http::EgressSettings;
pub use gates::ledger::AbortedRequest;
pub use gates::log::SuppressedLines;
pub use gates::unkeyed::UnkeyedWatch;
pub use load::{ExportedOperation, LoadError, LoadedConnector};

pub use values::{EncodedArguments, ResultFormat, json_fields_over, json_size_over, literal_fits};
pub use worker::{COMPILE_WORKER_ARG, compile_worker};

use bridge::WrapScope;
use components::CompileCache;
pub use parser::PackageParser;
use room::{PoolCapacity, PoolQuota};
pub use room::{PoolNeeds, PoolPermit};
use worker::WorkerForm;

/// The compiler and runner of connectors.
pub struct Sandbox {
    linker: Linker<state::StoreData>,
    parser: Arc<PackageParser>,
    components: Arc<CompileCache>,
    egress: EgressSettings,
    rooms: PoolQuota,
}

/// The size limit for compiling a component twice. Components up to this many bytes are compiled as they are
/// and wrapped if they have lists, so that operations without lists avoid the bridge's 5 us. For larger ones
/// the second compile and instantiation cost more than that saves, so all their operations go through the
/// bridge.
const TWICE_BYTES: usize = 1024 * 1024;

/// The compiled forms of one connector.
enum EngineVariants {
    /// As it is.
    Plain(Component),
    /// Wrapped by the bridge, every operation of it.
    Bridged(Component),
    /// Both; the wrapped one is for the operations with lists.
    Both { plain: Component, bridged: Component },
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
        self.components.has_code(&[digest, bridge::cache_key(&digest)])
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
        let (engine, _) = engine::new(slots).map_err(broken)?;
        let linker = link::linker(&engine).map_err(broken)?;
        let parser = Arc::new(PackageParser::new(compiler.clone(), limits.clone())?);
        let components = Arc::new(CompileCache::new(engine, compiler, limits, store, clock)?);
        Ok(Self { linker, parser, components, egress, rooms: PoolQuota::new(PoolCapacity::of(slots)) })
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
        let variants = self.variants(package, &layouts).await.map_err(SandboxError::Compile)?;
        let egress = self.egress.for_connector(package.manifest());
        let connector = LoadedConnector::new(&self.linker, &variants, package, layouts, egress)
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

    /// Returns the component as it is and, if its operations have lists, wrapped; a large one only wrapped.
    async fn variants(
        &self,
        package: &Package,
        layouts: &[values::OperationLayout],
    ) -> Result<EngineVariants, HostError> {
        let plain = || self.components.get(package.digest(), WorkerForm::Plain, package.bytes());
        if !layouts.iter().any(values::OperationLayout::has_lists) {
            return Ok(EngineVariants::Plain(plain().await?));
        }
        let key = bridge::cache_key(package.digest());
        let wrapped = |scope| self.components.get(&key, WorkerForm::Wrapped(scope), package.bytes());
        let slow = |error: &HostError| {
            let reason = std::error::Error::source(error).map_or(error.to_string(), ToString::to_string);
            tracing::warn!(component = %package.digest(), reason, "lists are passed slowly: no bridge");
        };
        if package.bytes().len() > TWICE_BYTES {
            return match wrapped(WrapScope::All).await {
                Ok(bridged) => Ok(EngineVariants::Bridged(bridged)),
                Err(error) => {
                    slow(&error);
                    Ok(EngineVariants::Plain(plain().await?))
                }
            };
        }
        let plain = plain().await?;
        match wrapped(WrapScope::Lists).await {
            Ok(bridged) => Ok(EngineVariants::Both { plain, bridged }),
            // A missing wrapper only makes calls slower.
            Err(error) => {
                slow(&error);
                Ok(EngineVariants::Plain(plain))
            }
        }
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
    pub fn try_room(&self, needs: PoolNeeds) -> Option<PoolPermit<'_>> {
        self.rooms.try_take(needs)
    }

    /// Waits in turn for room for an instance with these needs; returns none only if the host is gone.
    pub async fn room(&self, needs: PoolNeeds) -> Option<PoolPermit<'_>> {
        self.rooms.take(needs).await
    }

    /// Removes the cached data of a package that was removed.
    pub fn forget(&self, digest: &Digest) {
        self.components.forget(digest);
        self.components.forget(&bridge::cache_key(digest));
    }
}
