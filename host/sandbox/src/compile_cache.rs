//! The way from a component's bytes to a compiled component: the cache on disk, the compiles in flight, the
//! recent failures, and only then the compiler.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::clock::Clock;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::host_key;
use tokio::sync::{OnceCell, Semaphore};
use wasmtime::Engine;
use wasmtime::component::Component;

use super::cache::{self, CodeCache, TrustedCode};
use super::compile::Compiler;
use super::compile_limits::CompileLimits;
use super::worker::WorkerForm;

/// The location of compiled code, the key that binds it to this host, and its maximum size.
#[derive(Debug, Clone)]
pub struct CodeStore {
    /// The directory.
    pub dir: PathBuf,
    /// The file with the host's key.
    pub key_file: PathBuf,
    /// The most bytes of the directory.
    pub bytes: u64,
}

/// One compile that several callers may wait for.
type CompileSlot = Arc<OnceCell<Component>>;

/// Makes components of packages.
pub(super) struct CompileCache {
    engine: Engine,
    compiler: Compiler,
    limits: CompileLimits,
    store: Option<CodeStore>,
    /// Created when a package is first loaded: inspecting a home writes nothing.
    cache: Arc<OnceLock<Option<CodeCache>>>,
    in_flight: Mutex<HashMap<Digest, CompileSlot>>,
    refused: NegativeCache,
    turns: Semaphore,
    clock: Arc<dyn Clock>,
}

impl CompileCache {
    pub(super) fn new(
        engine: Engine,
        compiler: Compiler,
        limits: CompileLimits,
        store: Option<CodeStore>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, HostError> {
        let compiler = compiler.ready()?;
        let turns = Semaphore::new(limits.parallel_compiles());
        let (cache, under_way, refused) = (Arc::default(), Mutex::default(), NegativeCache::default());
        Ok(Self { engine, compiler, limits, store, cache, in_flight: under_way, refused, turns, clock })
    }

    /// Returns the component in this form. Its code is cached under `key`, and compiled from `bytes` if it is
    /// missing. A request for a component that is being compiled waits for that compile.
    pub(super) async fn get(
        &self,
        key: &Digest,
        form: WorkerForm,
        bytes: &[u8],
    ) -> Result<Component, HostError> {
        let compile = self.join(key);
        let made = compile.get_or_try_init(|| self.make(key, form, bytes)).await.cloned();
        self.leave(key, compile);
        made
    }

    /// Returns true if there is code under one of these keys: its component was parsed within the worker's
    /// limits, since parsing precedes compiling. The code itself is checked when it is loaded.
    pub(super) fn has_code(&self, keys: &[Digest]) -> bool {
        let store = self.store.as_ref().filter(|store| store.dir.is_dir());
        let cache = store.and_then(|store| open(&self.cache, store, &self.engine));
        cache.is_some_and(|cache| keys.iter().any(|key| cache.has(key)))
    }

    /// Removes the cached code of a package that was removed.
    pub(super) fn forget(&self, digest: &Digest) {
        if let Some(cache) = self.store.as_ref().and_then(|store| open(&self.cache, store, &self.engine)) {
            cache.forget(digest);
        }
    }

    async fn make(&self, key: &Digest, form: WorkerForm, bytes: &[u8]) -> Result<Component, HostError> {
        if let Some(kept) = self.kept(key).await {
            return Ok(kept);
        }
        if let Some(error) = self.refused.get(key, self.clock.now()) {
            return Err(error);
        }
        let compiled = self.compile(key, form, bytes).await;
        if let Err(error) = &compiled {
            self.refused.put(key, error, self.clock.now());
        }
        compiled
    }

    /// Returns the code on disk, if there is some and this host wrote it.
    async fn kept(&self, digest: &Digest) -> Option<Component> {
        // Without a directory there is nothing to read, and no key to create for it.
        let store = self.store.clone().filter(|store| store.dir.is_dir())?;
        let slot = Arc::clone(&self.cache);
        let (engine, digest) = (self.engine.clone(), *digest);
        // Tens of megabytes are read, hashed and copied: not on a thread that runs guests.
        let read = tokio::task::spawn_blocking(move || {
            let code = open(&slot, &store, &engine)?.get(&digest)?;
            let loaded = code.load(&engine);
            loaded.map_err(|error| cache::rejected(&digest, "does not load", &error.to_string())).ok()
        });
        read.await.ok().flatten()
    }

    async fn compile(&self, key: &Digest, form: WorkerForm, bytes: &[u8]) -> Result<Component, HostError> {
        let budget = self.limits.budget(bytes.len())?;
        let turn = self.turns.acquire().await;
        let code = self.compiler.compile(&self.engine, form, bytes, budget).await?;
        drop(turn);
        let (engine, store, slot) = (self.engine.clone(), self.store.clone(), Arc::clone(&self.cache));
        let digest = *key;
        let loading = tokio::task::spawn_blocking(move || {
            let component = code.load(&engine).map_err(|error| unloadable(&error))?;
            keep(&engine, store, &slot, &digest, &code);
            Ok(component)
        });
        loading.await.map_err(|error| {
            HostError::new(HostErrorKind::Internal, "The compiled code was lost.").with_source(error)
        })?
    }

    fn join(&self, digest: &Digest) -> CompileSlot {
        let mut under_way = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(under_way.entry(*digest).or_default())
    }

    /// Leaves a compile. The last waiter removes the entry; each waiter keeps the compiled component itself.
    fn leave(&self, digest: &Digest, compile: CompileSlot) {
        let mut under_way = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        drop(compile);
        if under_way.get(digest).is_some_and(|it| Arc::strong_count(it) == 1) {
            under_way.remove(digest);
        }
    }
}

/// Returns the cache, created at its first use; none if the host has no usable key.
fn open<'s>(
    slot: &'s OnceLock<Option<CodeCache>>,
    store: &CodeStore,
    engine: &Engine,
) -> Option<&'s CodeCache> {
    let make = || match host_key::load_or_create(&store.key_file) {
        Ok(key) => Some(CodeCache::new(store.dir.clone(), store.bytes, &key, engine)),
        Err(reason) => {
            tracing::warn!(target: "cofferdam::cache", %reason, "no host key; compiled code is not kept");
            None
        }
    };
    slot.get_or_init(make).as_ref()
}

fn keep(
    engine: &Engine,
    store: Option<CodeStore>,
    slot: &OnceLock<Option<CodeCache>>,
    digest: &Digest,
    code: &TrustedCode,
) {
    if let Some(cache) = store.as_ref().and_then(|store| open(slot, store, engine)) {
        cache.put(digest, code);
    }
}

/// Explains why code that was just compiled does not load: it needs more than an instance slot has, or it was
/// compiled by another version.
fn unloadable(error: &wasmtime::Error) -> HostError {
    // wasmtime has no type for it; a test of installs pins the text.
    let outer = error.to_string();
    if outer.contains("does not fit in pooling allocator") {
        let reason = cofferdam_core::failure::sanitize_line(&error.root_cause().to_string(), 300);
        let message = format!("The component asks for more than any call gets here: {reason}.");
        return HostError::new(HostErrorKind::CompileRefused, message)
            .with_hint("Make its tables and its initial memories smaller.");
    }
    HostError::new(HostErrorKind::Configuration, "The compile worker is not of this version of cofferdam.")
        .with_hint("Point Compiler::child at the cofferdam binary of this very version.")
        .with_source(outer)
}

/// The number of remembered failures; the oldest is dropped first.
const MAX_REFUSALS: usize = 64;
/// The time for which a failure is remembered. It is bounded, since the operator may raise the bounds.
const REFUSAL_TTL: Duration = Duration::from_secs(600);

/// The remembered failures.
#[derive(Debug, Default)]
pub(super) struct NegativeCache {
    known: Mutex<VecDeque<CachedRefusal>>,
}

#[derive(Debug)]
struct CachedRefusal {
    component: Digest,
    error: HostError,
    at: Instant,
}

impl NegativeCache {
    /// Returns the error of a recent failed compile.
    pub(super) fn get(&self, component: &Digest, now: Instant) -> Option<HostError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|it| now.saturating_duration_since(it.at) < REFUSAL_TTL);
        known.iter().find(|it| it.component == *component).map(|it| copy_error(&it.error))
    }

    /// Stores `error`, if the component is at fault and not the host.
    pub(super) fn put(&self, component: &Digest, error: &HostError, at: Instant) {
        if !matches!(error.kind(), HostErrorKind::CompileRefused | HostErrorKind::Validation) {
            return;
        }
        // A failure that a loaded machine can cause is no property of the component.
        let bound = error.details().get("bound").and_then(|bound| bound.as_str());
        if matches!(bound, Some("wall_time" | "machine")) {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|it| it.component != *component);
        if known.len() >= MAX_REFUSALS {
            known.pop_front();
        }
        known.push_back(CachedRefusal { component: *component, error: copy_error(error), at });
    }
}

/// Returns the same error for another request.
fn copy_error(error: &HostError) -> HostError {
    let mut copy = HostError::new(error.kind(), error.message());
    for (key, value) in error.details() {
        copy = copy.detail(key, value.clone());
    }
    match error.hint() {
        Some(hint) => copy.with_hint(hint),
        None => copy,
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn refusal() -> HostError {
        HostError::new(HostErrorKind::CompileRefused, "Too much.")
            .with_hint("Less.")
            .detail("limit", "compile")
    }

    #[test]
    fn a_refusal_is_cached_for_a_while() {
        let (refused, now, digest) = (NegativeCache::default(), Instant::now(), Digest::sha256(b"bomb"));
        refused.put(&digest, &refusal(), now);
        let first = refused.get(&digest, now);
        let again = refused.get(&digest, now + REFUSAL_TTL / 2);
        let (Some(first), Some(again)) = (first, again) else { unreachable!("it was put") };
        assert_eq!(
            (again.message(), again.hint(), again.details()),
            ("Too much.", Some("Less."), first.details())
        );
        assert_ne!(first.request_id(), again.request_id());
        assert!(refused.get(&Digest::sha256(b"other"), now).is_none());
        assert!(refused.get(&digest, now + REFUSAL_TTL).is_none());
    }

    #[test]
    fn host_faults_are_not_cached_and_memory_is_bounded() {
        let (refused, now) = (NegativeCache::default(), Instant::now());
        let fault = HostError::new(HostErrorKind::Configuration, "No worker.");
        refused.put(&Digest::sha256(b"0"), &fault, now);
        assert!(refused.get(&Digest::sha256(b"0"), now).is_none());
        for number in 0..=MAX_REFUSALS {
            refused.put(&Digest::sha256(&number.to_le_bytes()), &refusal(), now);
        }
        assert!(refused.get(&Digest::sha256(&0usize.to_le_bytes()), now).is_none());
        assert!(refused.get(&Digest::sha256(&MAX_REFUSALS.to_le_bytes()), now).is_some());
    }
}
