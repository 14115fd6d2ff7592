//! The sandbox: compiles verified packages, runs one attempt at a time in a fresh store, and tells every
//! ending apart. The only folder that names wasmtime.

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
use cofferdam_egress::egress::{Client, Policy};
use cofferdam_model::manifest::Manifest;
use cofferdam_model::package::Package;
use cofferdam_model::trust::Verified;
use wasmtime::component::{Component, Linker};

pub use attempt::{Attempt, AttemptTime, Ended, run};
pub use compile::Compiler;
pub use compile_limits::CompileLimits;
pub use components::CodeStore;
pub use gates::guards::{Guards, RateDelay, RateGuard};
pub use gates::http::EgressSettings;
pub use gates::ledger::AbortedRequest;
pub use gates::log::Suppressed;
pub use gates::unkeyed::UnkeyedWatch;
pub use load::{Connector, Exported, LoadError};

pub use values::{Answer, Arguments, json_fields_over, json_size_over, literal_fits};
pub use worker::{COMPILE_WORKER_ARG, compile_worker};

use bridge::WrapScope;
use components::Components;
pub use parser::PackageParser;
pub use room::{Needs, Room};
use room::{Rooms, Totals};
use worker::Form;

/// What turns packages into connectors that can run.
pub struct Sandbox {
    linker: Linker<state::State>,
    parser: Arc<PackageParser>,
    components: Arc<Components>,
    egress: EgressSettings,
    rooms: Rooms,
}

/// Components up to this many bytes are compiled twice where they have lists, as they are and wrapped, so that
/// operations without lists do without the bridge's 5 us; larger ones take longer to compile, and to
/// instantiate, than that is worth, and all their operations go through the bridge.
const TWICE_BYTES: usize = 1024 * 1024;

/// The compiled forms of one connector.
enum Variants {
    /// As it is.
    Plain(Component),
    /// Wrapped by the bridge, every operation of it.
    Bridged(Component),
    /// Both; the wrapped one is for the operations with lists.
    Both { plain: Component, bridged: Component },
}

/// Why a package did not become a connector.
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
    components: Arc<Components>,
}

impl PackageOpener {
    /// The package `bytes`, for threads that may wait.
    pub fn open_blocking(&self, bytes: Vec<u8>) -> Result<Package, HostError> {
        match self.has_code(&bytes) {
            true => Ok(Package::open(bytes)?),
            false => self.parser.open_blocking(bytes),
        }
    }

    /// The package `bytes`; a worker that parses them ends when this is dropped.
    pub async fn open(&self, bytes: Vec<u8>) -> Result<Package, HostError> {
        let opener = self.clone();
        let known = tokio::task::spawn_blocking(move || match opener.has_code(&bytes) {
            true => Package::open(bytes).map(Ok),
            false => Ok(Err(bytes)),
        });
        let lost = |error| HostError::new(HostErrorKind::Internal, "The load was lost.").because(error);
        match known.await.map_err(lost)?? {
            Ok(package) => Ok(package),
            Err(bytes) => self.parser.open(bytes).await,
        }
    }

    /// Whether code of these bytes is kept: what it cost to parse them was within the worker's limits then.
    fn has_code(&self, bytes: &[u8]) -> bool {
        let digest = Digest::of(bytes);
        self.components.has_code(&[digest, bridge::cache_key(&digest)])
    }
}

impl Sandbox {
    /// A sandbox with room for `slots` instances at once, that keeps compiled code in `store` if there is one.
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
                .because(error.to_string())
        };
        let (engine, _) = engine::new(slots).map_err(broken)?;
        let linker = link::linker(&engine).map_err(broken)?;
        let parser = Arc::new(PackageParser::new(compiler.clone(), limits.clone())?);
        let components = Arc::new(Components::new(engine, compiler, limits, store, clock)?);
        Ok(Self { linker, parser, components, egress, rooms: Rooms::new(Totals::of(slots)) })
    }

    /// Makes a verified package runnable: from kept code where there is some, else by compiling it.
    /// `proof` says that these bytes were verified; a proof for other bytes is refused.
    pub async fn load(&self, package: &Package, proof: &Verified) -> Result<Arc<Connector>, SandboxError> {
        if proof.digest() != package.digest() {
            let error = HostError::new(HostErrorKind::Internal, "The proof is about another package.");
            return Err(SandboxError::Compile(error));
        }
        let mut layouts = values::Layouts::default();
        let layouts: Vec<_> =
            package.operations().iter().map(|operation| layouts.operation(operation)).collect();
        let variants = self.variants(package, &layouts).await.map_err(SandboxError::Compile)?;
        let egress = self.egress.for_connector(package.manifest());
        let connector =
            Connector::new(&self.linker, &variants, package, layouts, egress).map_err(SandboxError::Load)?;
        Ok(Arc::new(connector))
    }

    /// What a connector with this manifest may reach from this host.
    pub fn policy(&self, manifest: &Manifest) -> Policy {
        self.egress.policy(manifest)
    }

    /// A way out of its own for a connector with this manifest: what its guest's requests would go through.
    pub fn client(&self, manifest: &Manifest) -> Client {
        self.egress.client(manifest)
    }

    /// The component as it is and, where its operations have lists, wrapped; a large one wrapped alone.
    async fn variants(
        &self,
        package: &Package,
        layouts: &[values::OperationLayout],
    ) -> Result<Variants, HostError> {
        let plain = || self.components.get(package.digest(), Form::Plain, package.bytes());
        if !layouts.iter().any(values::OperationLayout::has_lists) {
            return Ok(Variants::Plain(plain().await?));
        }
        let key = bridge::cache_key(package.digest());
        let wrapped = |scope| self.components.get(&key, Form::Wrapped(scope), package.bytes());
        let slow = |error: &HostError| {
            let reason = std::error::Error::source(error).map_or(error.to_string(), ToString::to_string);
            tracing::warn!(component = %package.digest(), reason, "lists are passed slowly: no bridge");
        };
        if package.bytes().len() > TWICE_BYTES {
            return match wrapped(WrapScope::All).await {
                Ok(bridged) => Ok(Variants::Bridged(bridged)),
                Err(error) => {
                    slow(&error);
                    Ok(Variants::Plain(plain().await?))
                }
            };
        }
        let plain = plain().await?;
        match wrapped(WrapScope::Lists).await {
            Ok(bridged) => Ok(Variants::Both { plain, bridged }),
            // One that cannot be had only makes calls slower.
            Err(error) => {
                slow(&error);
                Ok(Variants::Plain(plain))
            }
        }
    }

    /// The package `bytes`, parsed by the compile worker unless that has compiled these very bytes before. For
    /// threads that may wait.
    pub fn open_blocking(&self, bytes: Vec<u8>) -> Result<Package, HostError> {
        self.opener().open_blocking(bytes)
    }

    /// The same for a thread of its own.
    pub fn opener(&self) -> PackageOpener {
        PackageOpener { parser: Arc::clone(&self.parser), components: Arc::clone(&self.components) }
    }

    /// Parses what was not verified, and was not compiled before.
    pub fn parser(&self) -> &Arc<PackageParser> {
        &self.parser
    }

    /// Room for an instance that needs this much, if there is some now.
    pub fn try_room(&self, needs: Needs) -> Option<Room<'_>> {
        self.rooms.try_take(needs)
    }

    /// Room for an instance that needs this much, in turn; none only where the host is gone.
    pub async fn room(&self, needs: Needs) -> Option<Room<'_>> {
        self.rooms.take(needs).await
    }

    /// Forgets what is kept of a package that is gone.
    pub fn forget(&self, digest: &Digest) {
        self.components.forget(digest);
        self.components.forget(&bridge::cache_key(digest));
    }
}
