//! The client: resolves references, downloads packages, lists tags.

use std::future::Future;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use oci_client::RegistryOperation;
use url::Url;

use crate::artifact::{BlobDescriptor, KEY_SET_LAYER, key_set_layer, package_layer, trust_layer};
use crate::reference::{RegistryRef, RemoteRef};
use crate::registry::RepositorySession;
use crate::settings::DistributionSettings;
use crate::{error, web};

/// A client for registries and web servers. Each operation has its own connections.
#[derive(Clone, Default)]
pub struct DistributionClient {
    pub(crate) settings: DistributionSettings,
}

/// A downloaded package. Its bytes have its digest; its signature is not verified.
#[derive(Debug, Clone)]
pub struct FetchedPackage {
    /// The package.
    pub bytes: Vec<u8>,
    /// Its signature, a DSSE envelope; the accepted one if there are several.
    pub signature: Option<Vec<u8>>,
    /// The reference of a registry with the digest of the manifest, which gets the same bytes or nothing. That of a web
    /// server is as it was given, and gets what is there then.
    pub pinned: RemoteRef,
}

/// The downloaded trust of a cluster. Its signature is not verified.
#[derive(Debug, Clone)]
pub struct FetchedTrust {
    /// The bundle.
    pub bundle: Vec<u8>,
    /// The digest of its manifest.
    pub manifest: Digest,
}

/// The decision about a signature: the digest of the package, and the envelope.
type AcceptSignature<'a> = &'a (dyn Fn(&Digest, &[u8]) -> bool + Sync);

impl DistributionClient {
    /// Creates a client.
    #[must_use]
    pub fn new(settings: DistributionSettings) -> Self {
        Self { settings }
    }

    /// Downloads a package with its signature. `progress` gets the received bytes, and the total as far as it is known.
    ///
    /// A tag is resolved once, and the rest is requested by digest. If several signatures refer to the package, `accepts`
    /// decides which is returned; without an accepted one, it is the first.
    ///
    /// # Errors
    /// `source_unavailable` if it cannot be had, `source_refused` if what the source sent or where it led is not
    /// acceptable, `configuration` if the credentials cannot be used or the machine has no certificate
    /// authorities.
    pub async fn fetch(
        &self,
        reference: &RemoteRef,
        progress: &(dyn Fn(u64, u64) + Sync),
        accepts: AcceptSignature<'_>,
    ) -> Result<FetchedPackage, HostError> {
        self.in_time(reference, async {
            match reference {
                RemoteRef::Web(address) => {
                    let (bytes, signature) = web::fetch(&self.settings, address, progress).await?;
                    Ok(FetchedPackage { bytes, signature, pinned: reference.clone() })
                }
                RemoteRef::Registry(registry) => self.fetch_artifact(registry, progress, accepts).await,
            }
        })
        .await
    }

    async fn fetch_artifact(
        &self,
        reference: &RegistryRef,
        progress: &(dyn Fn(u64, u64) + Sync),
        accepts: AcceptSignature<'_>,
    ) -> Result<FetchedPackage, HostError> {
        let session = RepositorySession::open(&self.settings, reference, RegistryOperation::Pull).await?;
        let (manifest, layer) = session.resolve().await?;
        let accepts = |envelope: &[u8]| accepts(&layer.digest, envelope);
        let signature = session.signature(&manifest, &accepts).await?;
        let bytes = session.blob(&layer, progress).await?;
        let pinned = RemoteRef::Registry(reference.clone().with_digest(manifest));
        Ok(FetchedPackage { bytes, signature, pinned })
    }

    /// Downloads the key set of a publisher, as it is: nothing shows that it is genuine.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub async fn fetch_key_set(&self, reference: &RegistryRef) -> Result<Vec<u8>, HostError> {
        self.in_time(reference, async {
            let session = RepositorySession::open(&self.settings, reference, RegistryOperation::Pull).await?;
            let layer = key_set_layer(&session.manifest().await?).map_err(|reason| {
                error::refused(
                    format!("{reference} is not a key set: {reason}."),
                    format!("Name an artifact whose one layer is a key set, of the type {KEY_SET_LAYER}."),
                )
            })?;
            session.blob(&layer, &|_, _| {}).await
        })
        .await
    }

    /// Downloads the trust of a cluster, as it is: nothing shows that it is genuine. None if the reference leads to the
    /// manifest `known`, of which nothing more is asked for.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub async fn fetch_trust(
        &self,
        reference: &RegistryRef,
        known: Option<&Digest>,
    ) -> Result<Option<FetchedTrust>, HostError> {
        self.in_time(reference, async {
            let session = RepositorySession::open(&self.settings, reference, RegistryOperation::Pull).await?;
            let manifest = session.manifest().await?;
            match known == Some(&Digest::sha256(&manifest)) {
                true => Ok(None),
                false => session.trust(&manifest).await.map(Some),
            }
        })
        .await
    }

    /// Downloads the trust of a cluster; none if the registry has nothing under the reference.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub async fn find_trust(&self, reference: &RegistryRef) -> Result<Option<FetchedTrust>, HostError> {
        self.in_time(reference, async {
            let session = RepositorySession::open(&self.settings, reference, RegistryOperation::Pull).await?;
            match session.find_manifest(&session.image()).await? {
                Some(manifest) => session.trust(&manifest).await.map(Some),
                None => Ok(None),
            }
        })
        .await
    }

    /// Publishes the trust of a cluster under the tag of `reference`, and moves the tag. Returns the manifest's digest.
    ///
    /// # Errors
    /// `validation` if the reference has no tag or has a digest; else as [`fetch`](Self::fetch).
    pub async fn publish_trust(&self, reference: &RegistryRef, bundle: Vec<u8>) -> Result<Digest, HostError> {
        let tag = reference.tag().filter(|_| reference.digest().is_none()).ok_or_else(|| {
            let message = format!("{reference} cannot be published to: it must have a tag and no digest.");
            HostError::new(HostErrorKind::Validation, message)
                .with_hint("Write it like oci://registry.example/acme/trust:stable.")
        })?;
        self.in_time(reference, async {
            let session = RepositorySession::open(&self.settings, reference, RegistryOperation::Push).await?;
            session.publish_trust(tag, bundle).await
        })
        .await
    }

    /// Downloads a document of at most `limit` bytes from a web server: by https, or by http from this machine.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub async fn fetch_document(&self, url: &Url, limit: u64) -> Result<Vec<u8>, HostError> {
        self.in_time(url, web::fetch_document(&self.settings, url, limit)).await
    }

    /// Returns the tags of a repository, in the order of their letters. The tag and digest of `reference` have no effect.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub async fn tags(&self, reference: &RegistryRef) -> Result<Vec<String>, HostError> {
        self.in_time(reference, async {
            RepositorySession::open(&self.settings, reference, RegistryOperation::Pull).await?.tags().await
        })
        .await
    }

    /// Bounds an operation by the time limit of the settings.
    pub(crate) async fn in_time<T>(
        &self,
        reference: &dyn std::fmt::Display,
        operation: impl Future<Output = Result<T, HostError>>,
    ) -> Result<T, HostError> {
        let limit = self.settings.time_limit;
        let ended = tokio::time::timeout(limit, operation).await;
        ended.unwrap_or_else(|_| Err(error::too_slow(reference, limit)))
    }
}

impl RepositorySession {
    /// Downloads the trust of a cluster that this manifest has.
    async fn trust(&self, manifest: &[u8]) -> Result<FetchedTrust, HostError> {
        let layer = trust_layer(manifest).map_err(|reason| {
            error::refused(
                format!("{} is not the trust of a cluster: {reason}.", self.reference),
                "Name an artifact that `cofferdam trust publish` has pushed.",
            )
        })?;
        let bundle = self.blob(&layer, &|_, _| {}).await?;
        Ok(FetchedTrust { bundle, manifest: Digest::sha256(manifest) })
    }

    /// Resolves the reference once: the digest of its manifest, and the package in it.
    async fn resolve(&self) -> Result<(Digest, BlobDescriptor), HostError> {
        let manifest = self.manifest().await?;
        let layer = package_layer(&manifest).map_err(|reason| {
            error::refused(
                format!("{} is not a package: {reason}.", self.reference),
                "Name an artifact that `cofferdam publish` or another tool for Wasm artifacts has pushed.",
            )
        })?;
        Ok((Digest::sha256(&manifest), layer))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::collections::BTreeMap;
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use cofferdam_egress::egress::{Resolve, ResolveError, ResolvedAddresses};
    use cofferdam_model::trust::ENVELOPE_BYTES;
    use zeroize::Zeroizing;

    use super::*;
    use crate::publish::{ComponentInterface, Publication};

    /// Fails so many times, and then resolves every name to an address of another machine.
    struct Elsewhere(AtomicUsize);

    impl Resolve for Elsewhere {
        fn resolve<'a>(&'a self, _host: &'a str) -> ResolvedAddresses<'a> {
            let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            Box::pin(async move {
                left.err().map(|_| vec![IpAddr::from([198, 51, 100, 1])]).ok_or(ResolveError::Failed)
            })
        }
    }

    #[tokio::test]
    async fn a_signature_that_no_fetch_takes_is_not_published() {
        let publication = Publication {
            package: b"wasm".to_vec(),
            file_name: "a.wasm".to_owned(),
            signature: Some(vec![b' '; ENVELOPE_BYTES + 1]),
            interface: ComponentInterface::default(),
            annotations: BTreeMap::new(),
        };
        let reference = "oci://127.0.0.1:1/acme/quiet:1.0.0".parse().unwrap();
        let error = DistributionClient::default().publish(&reference, publication, false).await.unwrap_err();
        assert_eq!(error.kind(), HostErrorKind::Validation, "{error}");
    }

    #[tokio::test]
    async fn a_loopback_name_sends_no_password_elsewhere() {
        let registry = "registry.localhost:5000";
        let config = format!("{{\"auths\": {{\"{registry}\": {{\"auth\": \"YWRhOnMzY3JldA==\"}}}}}}");
        let reference = format!("oci://{registry}/acme/quiet").parse().unwrap();
        for (failures, words) in [(0, "not one of loopback"), (1, "cannot be reached")] {
            let settings = DistributionSettings::default()
                .resolver(Arc::new(Elsewhere(AtomicUsize::new(failures))))
                .docker_config(Zeroizing::new(config.clone().into_bytes()))
                .time_limit(Duration::from_secs(5));
            let error = DistributionClient::new(settings).tags(&reference).await.unwrap_err();
            assert!(error.message().contains(words), "{error}");
        }
    }
}
