//! One operation on a registry, through `oci-client` and the guard.

use std::collections::BTreeSet;
use std::future::Future;

use bytes::Bytes;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::HostError;
use cofferdam_egress::egress::{HostPort, PrivateGrant};
use futures_util::StreamExt as _;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::{DigestError, OciDistributionError};
use oci_client::manifest::{
    IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE,
    OCI_IMAGE_MEDIA_TYPE,
};
use oci_client::secrets::RegistryAuth;
use oci_client::token_cache::{RegistryToken, RegistryTokenType};
use oci_client::{Client, Reference, RegistryOperation};

use crate::artifact::{self, BlobDescriptor, SIGNATURE_BYTES, SIGNATURE_TYPE};
use crate::guard::{ConnectionGuard, PlainHttp};
use crate::panic_guard::{guard_future, guard_panic};
use crate::reference::RegistryRef;
use crate::settings::DistributionSettings;
use crate::web::{CONNECT, SILENCE, USER_AGENT};
use crate::{credentials, error};

/// The bytes that may come back in a step that asks for manifests, tokens or lists.
pub(crate) const DOCUMENT_BYTES: u64 = 8 * 1024 * 1024;

/// The bytes that a step may get beyond its blob: TLS, headers, tokens.
const OVERHEAD: u64 = 1024 * 1024;

/// The most signatures of one package that are looked at.
const SIGNATURES: usize = 128;

/// The number of tags that are asked for at once, and the most that are listed.
const TAGS_AT_ONCE: usize = 1000;
const TAGS: usize = 20_000;

/// The kinds of manifests that a registry may send. Lists are accepted here and refused later, with an error that names
/// the reason.
const MANIFESTS: [&str; 4] = [
    OCI_IMAGE_MEDIA_TYPE,
    OCI_IMAGE_INDEX_MEDIA_TYPE,
    IMAGE_MANIFEST_MEDIA_TYPE,
    IMAGE_MANIFEST_LIST_MEDIA_TYPE,
];

/// The hosts of the loopback interface.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Returns the permission for `host:port` to have a loopback address, if it is a name of the loopback interface. The
/// operator wrote this name, so it needs no `--allow-private`.
pub(crate) fn loopback_grant(host: &str, port: u16) -> Option<PrivateGrant> {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let text = match address.parse::<std::net::IpAddr>() {
        Ok(_) => format!("{host}:{port}={address}"),
        Err(_) => format!("{host}:{port}"),
    };
    is_loopback(host).then(|| PrivateGrant::parse(&text).ok()).flatten()
}

/// A connection to a repository, for one operation.
pub(crate) struct RepositorySession {
    pub(crate) guard: ConnectionGuard,
    pub(crate) client: Client,
    pub(crate) auth: RegistryAuth,
    pub(crate) reference: RegistryRef,
}

impl RepositorySession {
    /// Prepares the client, and logs in.
    pub(crate) async fn open(
        settings: &DistributionSettings,
        reference: &RegistryRef,
        operation: RegistryOperation,
    ) -> Result<Self, HostError> {
        let registry = reference.registry();
        let is_named = settings
            .plain_http
            .iter()
            .any(|plain| plain.host() == reference.host() && plain.port() == reference.port().unwrap_or(80));
        // Traffic on loopback passes no network. The guard checks that the address is one, whatever the name says.
        let is_loopback_http = !is_named && is_loopback(reference.host()) && !settings.tls_on_loopback;
        let is_plain = is_named || is_loopback_http;
        let port = reference.port().unwrap_or(if is_plain { 80 } else { 443 });
        let own = HostPort::parse(&format!("{}:{port}", reference.host()));
        let own = own.map_err(|error| error::internal("The registry's address is not one.", error))?;
        let mut private = settings.private.clone();
        private.extend(loopback_grant(reference.host(), port));
        let plain_http =
            PlainHttp { named: settings.plain_http.clone(), loopback: is_loopback_http.then_some(own) };
        let guard = ConnectionGuard::start(&private, plain_http, settings.resolver.clone()).await?;
        let auth = credentials::look_up(settings.docker_config.as_ref(), &registry).await?;
        let certificates = |roots: Vec<Vec<u8>>| {
            let each = roots.into_iter().map(|data| Certificate { encoding: CertificateEncoding::Der, data });
            each.collect::<Vec<_>>()
        };
        // Refused only if there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = ClientConfig {
            protocol: match is_plain {
                true => ClientProtocol::HttpsExcept(vec![registry]),
                false => ClientProtocol::Https,
            },
            use_monolithic_push: true,
            tls_certs_only: certificates(settings.only_roots()),
            extra_root_certificates: certificates(settings.extra_roots.clone()),
            platform_resolver: None,
            read_timeout: Some(SILENCE),
            connect_timeout: Some(CONNECT),
            user_agent: USER_AGENT,
            https_proxy: Some(guard.url().to_owned()),
            http_proxy: Some(guard.url().to_owned()),
            ..ClientConfig::default()
        };
        // It also sets up a client that it does not use, and panics if the machine has no certificate authorities.
        let client = guard_panic(|| Client::try_from(config));
        let client = client.ok_or_else(error::no_client)?;
        let client = client.map_err(|error| error::no_client().with_source(error))?;
        let session = Self { guard, client, auth, reference: reference.clone() };
        session.log_in(operation).await?;
        Ok(session)
    }

    /// Gets a token now, so that a refusal is known as one: later, the client would go on without.
    async fn log_in(&self, operation: RegistryOperation) -> Result<(), HostError> {
        let image = self.image();
        let token = self.step(DOCUMENT_BYTES, self.client.auth(&image, &self.auth, operation)).await?;
        let Some(token) = token else { return Ok(()) };
        // The client would panic on it.
        if http::HeaderValue::from_str(&token).is_err() {
            return Err(error::unreadable_answer(&self.reference));
        }
        // A token for pushing allows pulling, too. One for pulling alone may be refused for a repository that does not
        // exist yet.
        let token = RegistryTokenType::Bearer(RegistryToken::Token { token });
        self.client.tokens.insert(&image, RegistryOperation::Pull, token).await;
        Ok(())
    }

    /// Runs one request of the client, which may get so many bytes.
    pub(crate) async fn step<T>(
        &self,
        bytes: u64,
        request: impl Future<Output = Result<T, OciDistributionError>>,
    ) -> Result<T, HostError> {
        self.try_step(bytes, request).await?.map_err(|error| error::from_client(&self.reference, error))
    }

    /// As [`step`](Self::step), but returns the client's error, unless the guard has a better one.
    pub(crate) async fn try_step<T>(
        &self,
        bytes: u64,
        request: impl Future<Output = Result<T, OciDistributionError>>,
    ) -> Result<Result<T, OciDistributionError>, HostError> {
        self.guard.begin_step(bytes);
        // The client unwraps what some servers can break: tokens that fit no header, upload locations that are no URL.
        let ended = guard_future(request).await;
        // Also after a success: a body without a length that the guard cut looks complete.
        if let Some(refusal) = self.guard.take_refusal() {
            return Err(refusal);
        }
        ended.ok_or_else(|| error::unreadable_answer(&self.reference))
    }

    /// Returns the reference as the client takes it.
    pub(crate) fn image(&self) -> Reference {
        let (registry, repository) = (self.reference.registry(), self.reference.repository().to_owned());
        match (self.reference.digest(), self.reference.tag()) {
            (Some(digest), _) => Reference::with_digest(registry, repository, format!("sha256:{digest}")),
            (None, tag) => Reference::with_tag(registry, repository, tag.unwrap_or("latest").to_owned()),
        }
    }

    /// Returns the reference of a manifest by its digest.
    pub(crate) fn by_digest(&self, digest: &Digest) -> Reference {
        self.image().clone_with_digest(format!("sha256:{digest}"))
    }

    /// Returns the manifest of `image`; none if there is none.
    pub(crate) async fn find_manifest(&self, image: &Reference) -> Result<Option<Bytes>, HostError> {
        let pull = self.client.pull_manifest_raw(image, &self.auth, &MANIFESTS);
        match self.try_step(DOCUMENT_BYTES, pull).await? {
            Ok((manifest, _)) => Ok(Some(manifest)),
            Err(error) if error::is_missing(&error) => Ok(None),
            Err(error) => Err(error::from_client(&self.reference, error)),
        }
    }

    /// Returns the manifest of the session's reference, which must have a tag or a digest.
    pub(crate) async fn manifest(&self) -> Result<Bytes, HostError> {
        if self.reference.tag().is_none() && self.reference.digest().is_none() {
            let message = format!("{} has neither a tag nor a digest.", self.reference);
            let hint = format!("`cofferdam tags {}` lists the tags.", self.reference);
            return Err(
                HostError::new(cofferdam_core::error::HostErrorKind::Validation, message).with_hint(hint)
            );
        }
        let manifest = self.find_manifest(&self.image()).await?.ok_or_else(|| {
            let hint = match self.reference.digest() {
                Some(_) => "Check the reference.".to_owned(),
                None => {
                    let (registry, repository) = (self.reference.registry(), self.reference.repository());
                    format!("`cofferdam tags oci://{registry}/{repository}` lists the tags.")
                }
            };
            error::unavailable(format!("The registry does not have {}.", self.reference), hint)
        })?;
        let got = Digest::sha256(&manifest);
        match self.reference.digest() {
            Some(wanted) if *wanted != got => Err(error::refused(
                format!("The registry sent the manifest sha256:{got} for {}.", self.reference),
                "Do not use this copy, and report it to the registry's operator.",
            )),
            _ => Ok(manifest),
        }
    }

    /// Downloads a blob, and compares it with its descriptor.
    pub(crate) async fn blob(
        &self,
        blob: &BlobDescriptor,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Vec<u8>, HostError> {
        let BlobDescriptor { digest, size } = blob;
        let name = format!("sha256:{digest}");
        let image = self.image();
        let budget = size + size / 16 + OVERHEAD;
        let mut stream = self.step(budget, self.client.pull_blob_stream(&image, name.as_str())).await?;
        let mut bytes = Vec::with_capacity(usize::try_from(*size).unwrap_or_default());
        let (mut received, mut broken) = (0, None);
        while let Some(chunk) = stream.next().await {
            match chunk {
                Ok(chunk) => bytes.extend_from_slice(&chunk),
                Err(error) => {
                    broken = Some(error);
                    break;
                }
            }
            received = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            if received > *size {
                return Err(self.guard.take_refusal().unwrap_or_else(error::too_much));
            }
            progress(received, *size);
        }
        if let Some(refusal) = self.guard.take_refusal() {
            return Err(refusal);
        }
        if received == *size && Digest::sha256(&bytes) == *digest {
            return Ok(bytes);
        }
        // The client reports a wrong digest in the same way as a broken connection.
        let is_digest =
            |error: &std::io::Error| error.get_ref().is_some_and(|inner| inner.is::<DigestError>());
        if received < *size
            && let Some(error) = broken.filter(|error| !is_digest(error))
        {
            return Err(error::from_client(&self.reference, OciDistributionError::IoError(error)));
        }
        let message =
            format!("The registry sent other bytes than the {size} of {name} in {}.", self.reference);
        Err(error::refused(
            message,
            "Do not use this copy. Try again, and report it to the registry's operator.",
        ))
    }

    /// Returns the signatures that refer to the manifest `subject`: the first that `accepts` takes; otherwise the first
    /// of all, for the message about it.
    pub(crate) async fn signature(
        &self,
        subject: &Digest,
        accepts: &(dyn Fn(&[u8]) -> bool + Sync),
    ) -> Result<Option<Vec<u8>>, HostError> {
        let mut first = None;
        let mut problem = None;
        let referrers = self.signature_manifests(subject).await?;
        if referrers.len() > SIGNATURES {
            tracing::warn!(
                "{} has more than {SIGNATURES} signatures; others are not looked at",
                self.reference
            );
        }
        for referrer in referrers.iter().take(SIGNATURES) {
            // One that is broken must not hide another.
            match self.signature_at(referrer, subject).await {
                Ok(envelope) if accepts(&envelope) => return Ok(Some(envelope)),
                Ok(envelope) => first = first.or(Some(envelope)),
                Err(error) => {
                    tracing::debug!(%error, "a signature of {} is not one", self.reference);
                    problem = problem.or(Some(error));
                }
            }
        }
        match (first, problem) {
            (None, Some(problem)) => Err(problem),
            (first, _) => Ok(first),
        }
    }

    /// Returns the manifests that the registry lists as signatures of `subject`.
    pub(crate) async fn signature_manifests(&self, subject: &Digest) -> Result<Vec<Digest>, HostError> {
        let image = self.by_digest(subject);
        let index =
            self.step(DOCUMENT_BYTES, self.client.pull_referrers(&image, Some(SIGNATURE_TYPE))).await?;
        // Registries may ignore the filter.
        let entries =
            index.manifests.iter().filter(|entry| entry.artifact_type.as_deref() == Some(SIGNATURE_TYPE));
        Ok(entries.filter_map(|entry| artifact::digest(&entry.digest)).collect())
    }

    async fn signature_at(&self, referrer: &Digest, subject: &Digest) -> Result<Vec<u8>, HostError> {
        let unusable = |reason: String| {
            error::refused(
                format!("The signature sha256:{referrer} of {} cannot be used: {reason}.", self.reference),
                "Report it to the package's publisher.",
            )
        };
        let manifest = self.find_manifest(&self.by_digest(referrer)).await?;
        let manifest = manifest.ok_or_else(|| unusable("the registry does not have it".to_owned()))?;
        let layer = artifact::signature_layer(&manifest, subject).map_err(unusable)?;
        debug_assert!(layer.size <= SIGNATURE_BYTES);
        self.blob(&layer, &|_, _| {}).await
    }

    /// Returns the tags of the repository, without those that only list referrers.
    pub(crate) async fn tags(&self) -> Result<Vec<String>, HostError> {
        let image = self.image();
        let mut tags = BTreeSet::new();
        let mut last = None::<String>;
        while tags.len() < TAGS {
            let list = self.client.list_tags(&image, &self.auth, Some(TAGS_AT_ONCE), last.as_deref());
            let page = match self.try_step(DOCUMENT_BYTES, list).await? {
                Ok(page) => page.tags,
                Err(error) if error::is_missing(&error) => {
                    let message = format!("The registry has no repository {}.", self.reference);
                    return Err(error::unavailable(message, "Check the reference."));
                }
                Err(error) => return Err(error::from_client(&self.reference, error)),
            };
            // Registries without pages send everything each time, in any order.
            let is_last = page.len() < TAGS_AT_ONCE || page.iter().all(|tag| tags.contains(tag));
            last = page.last().cloned();
            tags.extend(page);
            if is_last {
                break;
            }
        }
        tags.retain(|tag| !is_referrers_tag(tag) && self.reference.with_tag(tag).is_ok());
        Ok(tags.into_iter().collect())
    }
}

/// Returns the tag under which registries without the referrers API list the referrers of a manifest.
pub(crate) fn referrers_tag(subject: &Digest) -> String {
    format!("sha256-{subject}")
}

fn is_referrers_tag(tag: &str) -> bool {
    tag.strip_prefix("sha256-").is_some_and(|digest| Digest::parse(digest).is_some())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn only_loopback_names_may_have_loopback_addresses() {
        for (host, shown) in [
            ("localhost", Some("localhost:5000")),
            ("registry.localhost", Some("registry.localhost:5000")),
            ("127.0.0.1", Some("127.0.0.1:5000=127.0.0.1")),
            ("127.8.8.8", Some("127.8.8.8:5000=127.8.8.8")),
            ("[::1]", Some("[::1]:5000=::1")),
            ("10.0.0.1", None),
            ("localhost.example", None),
            ("[fd00::1]", None),
        ] {
            assert_eq!(loopback_grant(host, 5000).map(|grant| grant.to_string()).as_deref(), shown, "{host}");
        }
    }

    #[test]
    fn a_tag_of_referrers_is_not_a_version() {
        assert!(is_referrers_tag(&referrers_tag(&Digest::sha256(b"x"))));
        assert!(!is_referrers_tag("sha256-1.0"));
    }
}
