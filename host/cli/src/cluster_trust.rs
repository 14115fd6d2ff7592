//! The trust that a cluster shares: a server asks the registry for it every few seconds, and makes it its own if a pinned
//! key signed it and it is newer than what its home has seen.

use std::convert::Infallible;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::digest::Digest;
use cofferdam_core::document::InvalidValue;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::private_file::{self, FileLock, FilePolicy};
use cofferdam_distribution::{DistributionClient, FetchedTrust, RegistryRef};
use cofferdam_model::trust::{Keyring, PublicKey, TrustBundle};
use cofferdam_runtime::host::Host;
use serde::{Deserialize, Serialize};

use super::config_file::FILE;
use super::files;

/// The pause between two questions to the registry.
const INTERVAL: Duration = Duration::from_secs(2);

/// The longest time for one of them.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(10);

/// The directory in the home with what was seen last.
const DIRECTORY: &str = "trust";

/// The longest wait for another process of this home.
const PATIENCE: Duration = Duration::from_secs(5);

const STATE: FilePolicy = FilePolicy::trusted(64 * 1024);

/// The place of a cluster's trust, and the keys that may sign it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterTrust {
    pub(super) reference: RegistryRef,
    pub(super) keys: Vec<PublicKey>,
}

/// Asks for the trust of a cluster. It has the credentials of the registry, which a confined server cannot read.
pub(super) struct TrustWatch {
    trust: ClusterTrust,
    client: DistributionClient,
    home: PathBuf,
    /// The manifest that was looked at last.
    known: Option<Digest>,
    warned: Option<String>,
}

/// The last bundle that the home has seen.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeenTrust {
    version: u64,
    fingerprint: String,
}

/// The result of looking at a bundle.
#[derive(Debug, PartialEq, Eq)]
enum TrustChange {
    Applied,
    Unchanged,
}

impl TrustWatch {
    pub(super) fn new(trust: ClusterTrust, client: DistributionClient, home: PathBuf) -> Self {
        Self { trust, client, home, known: None, warned: None }
    }

    /// Asks every few seconds. Never ends.
    async fn run(mut self, host: Host) -> Infallible {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.ask(&host).await;
        }
    }

    /// Asks once. A failure is logged, once for each reason, and leaves the trust as it is.
    async fn ask(&mut self, host: &Host) {
        match self.look(host).await {
            Ok(()) => self.warned = None,
            Err(error) => {
                let reason = error.to_string();
                if self.warned.as_ref() != Some(&reason) {
                    let hint = error.hint().unwrap_or_default();
                    tracing::warn!(
                        target: "cofferdam::cluster", reference = %self.trust.reference, reason, hint,
                        "the trust of the cluster is not up to date"
                    );
                }
                self.warned = Some(reason);
            }
        }
    }

    async fn look(&mut self, host: &Host) -> Result<(), HostError> {
        let fetched = self.client.fetch_trust(&self.trust.reference, self.known.as_ref()).await?;
        let Some(FetchedTrust { bundle, manifest }) = fetched else { return Ok(()) };
        let bundle = TrustBundle::parse(&bundle, &self.trust.keys).map_err(refusal)?;
        let (host, home) = (host.clone(), self.home.clone());
        let version = bundle.version();
        let applied = tokio::task::spawn_blocking(move || apply(&bundle, &home, &host)).await;
        let applied = applied.map_err(|error| {
            HostError::new(HostErrorKind::Internal, "The change of the trust was lost.").with_source(error)
        })??;
        // A bundle that was refused is looked at again: the reason may be this host's.
        self.known = Some(manifest);
        if applied == TrustChange::Applied {
            tracing::info!(target: "cofferdam::cluster", version, "the trust of the cluster was taken over");
        }
        Ok(())
    }
}

/// Runs `serving`, and beside it the watch of the cluster's trust.
pub(super) async fn beside<T>(watch: Option<TrustWatch>, host: &Host, serving: impl Future<Output = T>) -> T {
    let Some(mut watch) = watch else { return serving.await };
    // Before the first call: what was revoked while this host was down does not run.
    drop(tokio::time::timeout(TIME_LIMIT, watch.ask(host)).await);
    tokio::select! {
        served = serving => served,
        never = watch.run(host.clone()) => match never {},
    }
}

/// Makes the bundle's keyring that of the home, unless the home has seen a newer one.
fn apply(bundle: &TrustBundle, home: &Path, host: &Host) -> Result<TrustChange, HostError> {
    let dir = home.join(DIRECTORY);
    let failed = |error: std::io::Error| files::unwritable(&dir, error);
    private_file::create_dir(&dir).map_err(failed)?;
    let lock = FileLock::acquire(&dir.join("lock"), PATIENCE).map_err(|error| failed(error.into()))?;
    let Some(_lock) = lock else {
        let message = "Another process has been changing the trust of this home for too long.";
        return Err(HostError::new(HostErrorKind::Conflict, message).with_hint("It is tried again."));
    };
    let seen = SeenTrust::load(&dir)?;
    if !seen.admits(bundle)? {
        return Ok(TrustChange::Unchanged);
    }
    host.change_keyring(|keyring| {
        *keyring = merged(keyring, bundle.keyring())?;
        Ok(())
    })?;
    if let Some(lock) = bundle.lock() {
        files::write_whole(&dir.join("connectors.lock"), lock.as_bytes())?;
    }
    let now = SeenTrust { version: bundle.version(), fingerprint: bundle.fingerprint().to_string() };
    now.store(&dir)?;
    Ok(TrustChange::Applied)
}

/// Returns the published keyring with this home's own revocations: none is undone by a bundle that does not know of it.
fn merged(own: &Keyring, published: &Keyring) -> Result<Keyring, HostError> {
    let mut merged = published.clone();
    for entry in own.entries() {
        let Some(since) = entry.revoked() else { continue };
        if merged.entry(entry.id()).and_then(cofferdam_model::trust::KeyEntry::revoked).is_none() {
            merged.revoke(entry.key(), since, entry.reason()).map_err(refusal)?;
        }
    }
    Ok(merged)
}

impl SeenTrust {
    fn path(dir: &Path) -> PathBuf {
        dir.join("seen.json")
    }

    fn load(dir: &Path) -> Result<Self, HostError> {
        let path = Self::path(dir);
        let bytes = private_file::read(&path, &STATE).map_err(|error| {
            let message = format!("{} cannot be used: {error}.", files::shown(&path));
            HostError::new(HostErrorKind::Configuration, message).with_hint(
                "It says which trust of the cluster this home has seen: make it this user's alone.",
            )
        })?;
        let Some(bytes) = bytes else { return Ok(Self::default()) };
        serde_json::from_slice(&bytes).map_err(|_| {
            let message = format!("{} is damaged.", files::shown(&path));
            HostError::new(HostErrorKind::Configuration, message)
                .with_hint("Remove it to take the trust that the registry has now, whatever its version.")
        })
    }

    fn store(&self, dir: &Path) -> Result<(), HostError> {
        let path = Self::path(dir);
        let text = serde_json::to_vec(self).unwrap_or_default();
        private_file::replace(&path, &text, &STATE).map_err(|error| {
            HostError::new(
                HostErrorKind::Configuration,
                format!("{} cannot be written: {error}.", files::shown(&path)),
            )
            .with_hint("Make the directory `trust` in the home writable.")
        })
    }

    /// Returns whether the bundle is newer than the one that was seen; false if it is the same.
    fn admits(&self, bundle: &TrustBundle) -> Result<bool, HostError> {
        let refused = |message: String| {
            Err(HostError::new(HostErrorKind::SourceRefused, message).with_hint(
                "Somebody may have put an old state back: publish the present one with `cofferdam trust publish`.",
            ))
        };
        let is_same = self.fingerprint == bundle.fingerprint().to_string();
        match bundle.version() {
            version if version < self.version => refused(format!(
                "The registry has version {version} of the cluster's trust, and this home has seen version {}.",
                self.version
            )),
            version if version == self.version && !is_same => refused(format!(
                "The registry has another version {version} of the cluster's trust than before."
            )),
            version => Ok(version > self.version),
        }
    }
}

fn refusal(refused: InvalidValue) -> HostError {
    let message = format!("{}.", files::capitalised(refused.message()));
    HostError::new(HostErrorKind::SourceRefused, message)
        .with_hint(format!("{}.", files::capitalised(refused.fix())))
}

/// Returns the configured trust; both settings are needed.
pub(super) fn configured(
    reference: Option<RegistryRef>,
    keys: Vec<PublicKey>,
) -> Result<Option<Arc<ClusterTrust>>, InvalidValue> {
    match reference {
        None if keys.is_empty() => Ok(None),
        None => Err(InvalidValue::new(
            format!("keys of a trust that {FILE} does not name"),
            "add trust = \"oci://registry.example/acme/trust:stable\"",
        )),
        Some(_) if keys.is_empty() => Err(InvalidValue::new(
            "a trust that nobody may sign",
            "add trust_keys = [\"ed25519:...\"], the public key that `cofferdam trust publish` signs with",
        )),
        Some(reference) => Ok(Some(Arc::new(ClusterTrust { reference, keys }))),
    }
}
