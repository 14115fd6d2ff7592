//! The TLS settings of outgoing connections: the trusted authorities, and at least TLS 1.2.

use std::sync::Arc;

use rustls::client::{Resumption, WantsClientCert};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use tokio::sync::OnceCell;

/// The number of sessions that one connector may resume: some for each of its few hosts.
const SESSIONS: usize = 32;

/// The source of trusted certificate authorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RootCertificates {
    /// The machine's, as its administrators configure them (on Linux also by `SSL_CERT_FILE` or
    /// `SSL_CERT_DIR`). The default.
    #[default]
    Platform,
    /// Mozilla's, compiled into this program: the same on every machine.
    Bundled,
}

/// The error for certificates that cannot be used as roots.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsSetupError {
    /// The text holds no certificate.
    #[error("no certificate found; a PEM file with -----BEGIN CERTIFICATE----- is expected")]
    NoCertificate,
    /// The text is not PEM.
    #[error("the PEM text cannot be read: {0}")]
    Pem(String),
    /// The certificate cannot be a root.
    #[error("certificate {number} cannot be used as a root: {reason}")]
    Root {
        /// The position of the certificate, from 1.
        number: usize,
        /// The reason.
        reason: String,
    },
    /// The cryptography provider does not support TLS 1.2 and 1.3.
    #[error("TLS cannot be set up: {0}")]
    Provider(String),
}

/// Parses the certificates in a PEM text, for [`Tls::new`].
///
/// # Errors
/// A text that is not PEM, or that contains no certificate.
pub fn roots_from_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsSetupError> {
    let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let roots = roots.map_err(|error| TlsSetupError::Pem(error.to_string()))?;
    if roots.is_empty() { Err(TlsSetupError::NoCertificate) } else { Ok(roots) }
}

/// Creates settings that trust the platform's authorities and `extra_roots`.
///
/// # Errors
/// As [`Tls::new`].
pub fn default_tls(
    extra_roots: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<Arc<Tls>, TlsSetupError> {
    Tls::new(RootCertificates::Platform, extra_roots)
}

/// TLS 1.2 and 1.3 with ring, HTTP/1.1, no client certificate. The authorities are loaded when the
/// first connection needs them, so that a call without TLS does not pay for it.
///
/// The provider is named here rather than taken from the process, so that no other crate's choice of a
/// default can change it. Chains are verified by webpki on every platform, with the platform's authorities as
/// data: results and error messages are the same everywhere, and no verifier of an operating system fetches
/// anything outside the gate.
pub struct Tls {
    builder: ConfigBuilder<ClientConfig, WantsVerifier>,
    roots: RootCertificates,
    extra: RootCertStore,
    platform: fn() -> Vec<CertificateDer<'static>>,
    trust: OnceCell<TrustedRoots>,
}

/// The loaded authorities.
#[derive(Clone)]
struct TrustedRoots {
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    /// True if the platform has no authority, so that an unknown issuer may be this machine's fault.
    bare: bool,
}

/// There are no trusted authorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoRoots;

/// The settings of one connector. The authorities are shared by all; the sessions to resume are its own.
pub(super) struct ConnectorTls {
    pub(super) config: Arc<ClientConfig>,
    /// True if an unknown issuer is this machine's fault rather than the server's.
    pub(super) bare: bool,
}

impl Tls {
    /// Creates settings that trust `roots` and `extra_roots`.
    ///
    /// # Errors
    /// A certificate of `extra_roots` that cannot be a root, by its position.
    pub fn new(
        roots: RootCertificates,
        extra_roots: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Result<Arc<Self>, TlsSetupError> {
        let mut extra = RootCertStore::empty();
        for (index, root) in extra_roots.into_iter().enumerate() {
            let refused =
                |error: rustls::Error| TlsSetupError::Root { number: index + 1, reason: error.to_string() };
            extra.add(root).map_err(refused)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .map_err(|error| TlsSetupError::Provider(error.to_string()))?;
        let platform = || rustls_native_certs::load_native_certs().certs;
        Ok(Arc::new(Self { builder, roots, extra, platform, trust: OnceCell::new() }))
    }

    /// Returns the settings for one connector. The first call loads the authorities.
    pub(super) async fn for_connector(&self) -> Result<ConnectorTls, NoRoots> {
        // A machine without authorities is checked again: they may be installed while the host runs.
        let trust = self.trust.get_or_try_init(|| self.read()).await?.clone();
        let mut config = trust.builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        Ok(ConnectorTls { config: Arc::new(config), bare: trust.bare })
    }

    /// Returns the settings for a client of the host itself, without ALPN. None if no authority is trusted. The first call
    /// loads the authorities.
    pub async fn client_config(&self) -> Option<ClientConfig> {
        let trust = self.trust.get_or_try_init(|| self.read()).await.ok()?;
        Some(trust.builder.clone().with_no_client_auth())
    }

    /// Creates the settings of a machine without authorities.
    #[cfg(test)]
    pub(super) fn without_platform_roots(
        extra: Vec<CertificateDer<'static>>,
    ) -> Result<Arc<Self>, TlsSetupError> {
        let mut tls = Self::new(RootCertificates::Platform, extra)?;
        Arc::get_mut(&mut tls).ok_or(TlsSetupError::NoCertificate)?.platform = Vec::new;
        Ok(tls)
    }

    async fn read(&self) -> Result<TrustedRoots, NoRoots> {
        let mut store = self.extra.clone();
        let bare = match self.roots {
            RootCertificates::Bundled => {
                store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
                false
            }
            RootCertificates::Platform => {
                // This reads some 150 files, or calls the system's own service.
                let certificates = tokio::task::spawn_blocking(self.platform).await.unwrap_or_default();
                // Every platform has some certificates that webpki cannot use.
                store.add_parsable_certificates(certificates).0 == 0
            }
        };
        if store.is_empty() {
            return Err(NoRoots);
        }
        Ok(TrustedRoots { builder: self.builder.clone().with_root_certificates(store), bare })
    }
}
