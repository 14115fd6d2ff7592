//! Verified loads: a connector is read once, checked, compiled from those very bytes, and cached until its files or
//! the keyring change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cofferdam_core::clock::Clock;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{Failure, FailureContext, RuntimeFault};
use cofferdam_core::limits::LimitCeilings;
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_core::suggest;
use cofferdam_model::package::Package;
use cofferdam_model::registry::{Acceptance, PackageFingerprint, PackageWatch, Registry, StoredPackage};
use cofferdam_model::trust::{Keyring, KeyringFile, KeyringFingerprint};
use cofferdam_sandbox::{LoadedConnector, PackageOpener, Sandbox, SandboxError};
use tokio::sync::Semaphore;

use super::request::ConnectorRef;
use super::verify::{self, CheckedPackage};

/// A connector that can run, with the fingerprints that show whether it still may.
pub(crate) struct LoadedPackage {
    pub(crate) checked: CheckedPackage,
    pub(crate) connector: Arc<LoadedConnector>,
    /// The package's hash, `sha256:` and 64 digits, formatted once.
    pub(crate) hash: Arc<str>,
    /// The signer's key id, formatted once.
    pub(crate) signer: Option<Arc<str>>,
    watch: PackageWatch,
    files: PackageFingerprint,
    keyring: KeyringFingerprint,
}

/// The hint if packages are there and their index is missing.
pub const REBUILD_INDEX_HINT: &str =
    "There are packages, and their index is missing: `cofferdam verify --rebuild-index` makes it anew.";

/// The parts that a slow load needs, which runs outside the executor's threads.
struct PackageReader {
    opener: PackageOpener,
    registry: Registry,
    keyring: KeyringFile,
    ceilings: LimitCeilings,
    clock: Arc<dyn Clock>,
}

/// The bytes of a package that were read once, and the keyring at that time.
struct ReadBytes {
    bytes: Vec<u8>,
    signature: Option<Vec<u8>>,
    acceptance: Option<Acceptance>,
    watch: PackageWatch,
    files: PackageFingerprint,
    keyring: Keyring,
    keyring_stamp: KeyringFingerprint,
}

/// A package that was read and checked, with the fingerprints that show whether it is still current.
struct VerifiedPackage {
    checked: CheckedPackage,
    watch: PackageWatch,
    files: PackageFingerprint,
    keyring: KeyringFingerprint,
}

impl PackageReader {
    /// Reads a package once: the bytes that are hashed are also verified, parsed and compiled, so a concurrent
    /// change of the file has no effect. The fingerprints are taken before the bytes are read.
    fn read(&self, context: &FailureContext, key: &str, digest: &Digest) -> Result<ReadBytes, Error> {
        let keyring_stamp = self.keyring.fingerprint();
        let watch = self.registry.watch(digest).map_err(HostError::from)?;
        let StoredPackage { bytes, signature, acceptance, fingerprint: stamp } =
            self.registry.read(digest).map_err(HostError::from)?;
        let got = Digest::sha256(&bytes);
        if got != *digest {
            return Err(verify::hash_mismatch(context, key, digest, &got));
        }
        let keyring = self.keyring.load()?;
        verify::check_bytes(context, digest, signature.as_deref(), &keyring, &*self.clock)?;
        Ok(ReadBytes { bytes, signature, acceptance, watch, files: stamp, keyring, keyring_stamp })
    }

    /// Checks `package`, which was parsed from the bytes of `read`. Those bytes have been moved out of `read`.
    fn verified(
        &self,
        context: &FailureContext,
        wanted: &ConnectorRef,
        package: Package,
        read: ReadBytes,
        allow_unsigned: bool,
    ) -> Result<VerifiedPackage, Error> {
        verify::identity(context, &package, wanted.name(), wanted.version())?;
        let proof = verify::check_signature(
            context,
            &package,
            read.signature.as_deref(),
            &read.keyring,
            allow_unsigned,
            &*self.clock,
        )?;
        verify::check_acceptance(wanted, &package, read.acceptance.as_ref())?;
        verify::check_manifest_limits(&self.ceilings, package.manifest())?;
        verify::check_imports(context, &package)?;
        let checked = CheckedPackage { package, proof };
        Ok(VerifiedPackage { checked, watch: read.watch, files: read.files, keyring: read.keyring_stamp })
    }
}

/// Returns the connector, unless the call pins another package of it.
fn pinned(
    context: &FailureContext,
    wanted: &ConnectorRef,
    key: &str,
    loaded: Arc<LoadedPackage>,
) -> Result<Arc<LoadedPackage>, Error> {
    let digest = loaded.checked.package.digest();
    match wanted.hash() {
        Some(pinned) if pinned != digest => {
            Err(verify::pin_mismatch(context, &format!("The installed package of {key}"), pinned, digest))
        }
        _ => Ok(loaded),
    }
}

fn busy() -> HostError {
    HostError::new(
        HostErrorKind::Busy,
        "The host has as many calls waiting for a connector to load as it takes.",
    )
    .with_hint("Try again later.")
}

/// The most packages that are read and parsed at once: each may have tens of megabytes. Compiling has a limit of
/// its own.
const READS_AT_ONCE: usize = 4;

/// The lock for loading one connector.
type LoadLock = Arc<tokio::sync::Mutex<()>>;

/// Reads, verifies and caches connectors.
pub struct PackageLoader {
    pub(crate) registry: Registry,
    pub(crate) keyring: KeyringFile,
    pub(crate) sandbox: Sandbox,
    pub(crate) ceilings: LimitCeilings,
    pub(crate) clock: Arc<dyn Clock>,
    loaded: RwLock<HashMap<String, Arc<LoadedPackage>>>,
    loading: Mutex<HashMap<String, LoadLock>>,
    /// The slots of calls that wait for a load.
    queue: Semaphore,
    reads: Semaphore,
}

impl PackageLoader {
    /// Creates a loader for which at most `queue` calls wait at once.
    pub(crate) fn new(
        registry: Registry,
        keyring: KeyringFile,
        sandbox: Sandbox,
        ceilings: LimitCeilings,
        clock: Arc<dyn Clock>,
        queue: usize,
    ) -> Self {
        let (loaded, loading) = (RwLock::default(), Mutex::default());
        let (queue, reads) = (Semaphore::new(queue), Semaphore::new(READS_AT_ONCE));
        Self { registry, keyring, sandbox, ceilings, clock, loaded, loading, queue, reads }
    }

    /// Returns the connector, from memory if nothing changed since it was verified.
    pub(crate) async fn load(
        &self,
        context: &FailureContext,
        wanted: &ConnectorRef,
        key: &str,
        allow_unsigned: bool,
    ) -> Result<Arc<LoadedPackage>, Error> {
        if let Some(current) = self.current(context, wanted, key, allow_unsigned)? {
            return Ok(current);
        }
        let _place = self.queue.try_acquire().map_err(|_| busy())?;
        let loaded = match self.cached(key, allow_unsigned) {
            Some(loaded) => loaded,
            None => {
                // One load of a connector at a time: the next caller finds it in the cache.
                let turn = self.load_lock(key);
                let loaded = {
                    let _turn = turn.lock().await;
                    match self.cached(key, allow_unsigned) {
                        Some(loaded) => Ok(loaded),
                        None => self.load_from_disk(context, wanted, key, allow_unsigned).await,
                    }
                };
                self.release_load_lock(key, turn);
                loaded?
            }
        };
        pinned(context, wanted, key, loaded)
    }

    /// Returns the connector if it is loaded and nothing changed since it was verified.
    pub(crate) fn current(
        &self,
        context: &FailureContext,
        wanted: &ConnectorRef,
        key: &str,
        allow_unsigned: bool,
    ) -> Result<Option<Arc<LoadedPackage>>, Error> {
        self.cached(key, allow_unsigned).map(|loaded| pinned(context, wanted, key, loaded)).transpose()
    }

    /// Drops a connector and its cached code.
    pub(crate) fn forget(&self, key: &str, digest: &Digest) {
        self.evict(key);
        self.sandbox.forget(digest);
    }

    fn cached(&self, key: &str, allow_unsigned: bool) -> Option<Arc<LoadedPackage>> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()?;
        let stands = loaded.watch.fingerprint() == Some(loaded.files)
            && self.keyring.fingerprint() == loaded.keyring
            && loaded.checked.proof.in_date(self.clock.timestamp())
            && (allow_unsigned || loaded.checked.proof.signer().is_some());
        stands.then_some(loaded)
    }

    fn load_lock(&self, key: &str) -> LoadLock {
        let mut loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(loading.entry(key.to_owned()).or_default())
    }

    /// Drops the locks that no load waits for, because callers may name connectors that do not exist.
    fn release_load_lock(&self, key: &str, turn: LoadLock) {
        let mut loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        drop(turn);
        if loading.get(key).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            loading.remove(key);
        }
    }

    fn evict(&self, key: &str) {
        self.loaded.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Reads and verifies a connector as a load does, but does not compile it. Its bytes are dropped.
    pub(crate) fn read_verified(
        &self,
        context: &FailureContext,
        wanted: &ConnectorRef,
    ) -> Result<Package, Error> {
        let digest = self.find(wanted)?;
        let reader = self.package_reader();
        let mut read = reader.read(context, wanted.text(), &digest)?;
        let package = reader.opener.open_blocking(std::mem::take(&mut read.bytes))?;
        Ok(reader.verified(context, wanted, package, read, false)?.checked.package.without_bytes())
    }

    fn package_reader(&self) -> PackageReader {
        PackageReader {
            opener: self.sandbox.opener(),
            registry: self.registry.clone(),
            keyring: self.keyring.clone(),
            ceilings: self.ceilings,
            clock: Arc::clone(&self.clock),
        }
    }

    async fn load_from_disk(
        &self,
        context: &FailureContext,
        wanted: &ConnectorRef,
        key: &str,
        allow_unsigned: bool,
    ) -> Result<Arc<LoadedPackage>, Error> {
        self.evict(key);
        // Reading and hashing megabytes takes milliseconds, so it must not run on a thread that runs guests.
        let reader = Arc::new(self.package_reader());
        let digest = self.find(wanted)?;
        let (task_context, name) = (context.clone(), key.to_owned());
        let place = self.reads.acquire().await;
        let task_reader = Arc::clone(&reader);
        let reading = tokio::task::spawn_blocking(move || task_reader.read(&task_context, &name, &digest));
        let mut read = reading.await.map_err(|error| {
            HostError::new(HostErrorKind::Internal, "The load was lost.").with_source(error)
        })??;
        // Not in the task above: the compiler's worker ends with the call that waits for it.
        let package = reader.opener.open(std::mem::take(&mut read.bytes)).await?;
        let VerifiedPackage { checked, watch, files, keyring } =
            reader.verified(context, wanted, package, read, allow_unsigned)?;
        drop(place);
        let connector = self.compile(context, &checked.package, &checked.proof).await?;
        let loaded = Arc::new(LoadedPackage {
            hash: format!("sha256:{digest}").into(),
            signer: checked.proof.signer().map(|signer| signer.to_string().into()),
            // It is compiled now. The cached part is the one that calls look at.
            checked: CheckedPackage { package: checked.package.without_bytes(), proof: checked.proof },
            connector,
            watch,
            files,
            keyring,
        });
        self.loaded
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.to_owned(), Arc::clone(&loaded));
        Ok(loaded)
    }

    /// Compiles and links a verified package.
    pub(crate) async fn compile(
        &self,
        context: &FailureContext,
        package: &Package,
        proof: &cofferdam_model::trust::Verified,
    ) -> Result<Arc<LoadedConnector>, Error> {
        self.sandbox.load(package, proof).await.map_err(|error| match error {
            SandboxError::Compile(error) => error.into(),
            SandboxError::Load(error) => Failure::connector_runtime_error(context, RuntimeFault::LoadFailed)
                .with_operator_note(format!("cause: {error}"))
                .into(),
        })
    }

    /// Returns the digest under which the connector is installed.
    pub(crate) fn find(&self, wanted: &ConnectorRef) -> Result<Digest, HostError> {
        let found = self.registry.find(wanted.name(), wanted.version()).map_err(HostError::from)?;
        match found {
            Some(digest) => Ok(digest),
            None => Err(self.not_installed(&wanted.to_string())),
        }
    }

    /// Returns the error for a name that is not installed, with the nearest installed name.
    pub(crate) fn not_installed(&self, wanted: &str) -> HostError {
        let installed = self.registry.list().unwrap_or_default();
        let names: Vec<String> =
            installed.iter().map(|entry| format!("{}@{}", entry.name, entry.version)).collect();
        // A bare name is compared with bare names.
        let near = match wanted.contains('@') {
            true => suggest::nearest(wanted, names.iter().map(String::as_str)),
            false => suggest::nearest(wanted, names.iter().filter_map(|name| name.split('@').next())),
        };
        let hint = match near {
            _ if self.registry.has_lost_its_index() => REBUILD_INDEX_HINT.to_owned(),
            Some(near) => format!("Did you mean {near}? `cofferdam list` shows what is installed."),
            None => "`cofferdam list` shows what is installed; `cofferdam install` adds to it.".to_owned(),
        };
        let wanted = cofferdam_core::failure::sanitize_line(wanted, 250);
        HostError::new(HostErrorKind::ConnectorNotFound, format!("{wanted} is not installed."))
            .with_hint(hint)
    }
}
