//! The TLS settings of outgoing connections: whom to believe, and nothing weaker than TLS 1.2.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Certificates that cannot be used as roots.
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
        /// Which one, from 1.
        number: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The cryptography does not offer what TLS 1.2 and 1.3 need.
    #[error("TLS cannot be set up: {0}")]
    Provider(String),
}

/// The certificates in a PEM text, for [`default_tls`].
///
/// # Errors
/// A text that is not PEM, or has no certificate in it.
pub fn roots_from_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsSetupError> {
    let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let roots = roots.map_err(|error| TlsSetupError::Pem(error.to_string()))?;
    if roots.is_empty() { Err(TlsSetupError::NoCertificate) } else { Ok(roots) }
}

/// Settings that believe Mozilla's root programme (as compiled in, the same on every machine) and
/// `extra_roots`; TLS 1.2 and 1.3 with ring, HTTP/1.1, no client certificate.
///
/// The provider is named here rather than taken from the process, so that no other crate's choice of a
/// default can change it.
///
/// # Errors
/// A certificate that cannot be a root, by its position.
pub fn default_tls(
    extra_roots: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<Arc<ClientConfig>, TlsSetupError> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for (index, root) in extra_roots.into_iter().enumerate() {
        let refused =
            |error: rustls::Error| TlsSetupError::Root { number: index + 1, reason: error.to_string() };
        roots.add(root).map_err(refused)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(rustls::DEFAULT_VERSIONS)
        .map_err(|error| TlsSetupError::Provider(error.to_string()))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
