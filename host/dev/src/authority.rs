//! A certificate authority that exists in one process.

use std::sync::Arc;

use cofferdam_core::digest::Digest;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The error for a certificate that cannot be made, such as one for a text that is not a DNS name.
#[derive(Debug, thiserror::Error)]
#[error("no certificate could be made: {0}")]
pub struct CertificateError(String);

impl CertificateError {
    fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// A certificate authority whose key never leaves the process: only a host that is given its certificate trusts it.
pub struct LocalAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl LocalAuthority {
    /// Creates an authority with a new key.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn new() -> Result<Self, CertificateError> {
        let mut params = CertificateParams::new(Vec::new()).map_err(CertificateError::new)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().map_err(CertificateError::new)?;
        // A client takes the authority for another one of the same name.
        let id = Digest::sha256(key.public_key_raw()).to_string();
        let name = format!("cofferdam development {}", id.get(..16).unwrap_or(&id));
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(CertificateError::new)?;
        Ok(Self { issuer })
    }

    /// Returns its certificate as PEM, for [`HostBuilder::extra_root_pem`](cofferdam_runtime::host::HostBuilder).
    #[must_use]
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Returns its certificate.
    #[must_use]
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// Issues a certificate for `names`, valid now, and its key.
    ///
    /// # Errors
    /// A name is neither a DNS name nor an address.
    pub fn certify(
        &self,
        names: &[&str],
    ) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), CertificateError> {
        self.issue(names, |_| {})
    }

    fn issue(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), CertificateError> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).map_err(CertificateError::new)?;
        change(&mut params);
        let key = KeyPair::generate().map_err(CertificateError::new)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(CertificateError::new)?;
        Ok((certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der()).into()))
    }

    /// Returns the configuration of a TLS server that is certified for `names`.
    ///
    /// # Errors
    /// As [`certify`](Self::certify).
    pub fn server_config(&self, names: &[&str]) -> Result<Arc<ServerConfig>, CertificateError> {
        let (certificate, key) = self.certify(names)?;
        Self::configure(certificate, key)
    }

    /// Returns the configuration of a TLS server whose certificate for `names` is no longer valid.
    ///
    /// # Errors
    /// As [`certify`](Self::certify).
    pub fn expired_server_config(&self, names: &[&str]) -> Result<Arc<ServerConfig>, CertificateError> {
        let (certificate, key) = self.issue(names, |params| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2020, 1, 2);
        })?;
        Self::configure(certificate, key)
    }

    fn configure(
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<ServerConfig>, CertificateError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .map_err(CertificateError::new)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .map_err(CertificateError::new)?;
        Ok(Arc::new(config))
    }
}

impl std::fmt::Debug for LocalAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalAuthority").finish_non_exhaustive()
    }
}
