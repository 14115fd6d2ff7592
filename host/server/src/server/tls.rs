//! The server's certificate and key.

use std::sync::Arc;

use cofferdam_core::error::{HostError, HostErrorKind};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The server's certificate and key for TLS 1.2 and 1.3.
#[derive(Debug, Clone)]
pub struct ServerTls(pub(super) Arc<ServerConfig>);

impl ServerTls {
    /// Loads a certificate with its chain, and its private key, both as PEM text.
    ///
    /// # Errors
    /// `configuration`: no certificate, no key, or two that do not belong together.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, HostError> {
        let wrong = |message: &str, hint: &str| {
            HostError::new(HostErrorKind::Configuration, message.to_owned()).with_hint(hint)
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| {
            wrong(
                "The certificate file has no certificate.",
                "Give a PEM file with -----BEGIN CERTIFICATE-----.",
            )
        })?;
        // The error does not describe the flaw of a key.
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            wrong("The key file has no private key.", "Give a PEM file with -----BEGIN PRIVATE KEY-----.")
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let unusable = |error: rustls::Error| {
            wrong(
                "The certificate and the key cannot be used.",
                "Give a certificate and the key that it is for.",
            )
            .with_source(error)
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}
