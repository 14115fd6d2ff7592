//! The settings of a client: the operator's choices about addresses, TLS, credentials and time.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_egress::egress::{
    HostPort, PrivateGrant, Resolve, RootCertificates, SystemResolver, roots_from_pem,
};
use zeroize::Zeroizing;

/// The time for one command's exchange with a registry.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// The settings of a [`DistributionClient`](crate::DistributionClient).
///
/// By default, no address may be a private one, except the loopback address of a registry whose reference names the
/// loopback interface. Such a registry is spoken to over plain HTTP, all others over TLS. No credentials are sent.
#[derive(Clone)]
pub struct DistributionSettings {
    pub(crate) private: Vec<PrivateGrant>,
    pub(crate) plain_http: Vec<HostPort>,
    pub(crate) tls_on_loopback: bool,
    pub(crate) roots: RootCertificates,
    /// Certificates in DER.
    pub(crate) extra_roots: Vec<Vec<u8>>,
    pub(crate) docker_config: Option<Zeroizing<Vec<u8>>>,
    pub(crate) time_limit: Duration,
    pub(crate) resolver: Arc<dyn Resolve>,
}

impl Default for DistributionSettings {
    fn default() -> Self {
        Self {
            private: Vec::new(),
            plain_http: Vec::new(),
            tls_on_loopback: false,
            roots: RootCertificates::Platform,
            extra_roots: Vec::new(),
            docker_config: None,
            time_limit: TIME_LIMIT,
            resolver: Arc::new(SystemResolver::default()),
        }
    }
}

impl DistributionSettings {
    /// Allows a host to have a private address.
    #[must_use]
    pub fn allow_private(mut self, grant: PrivateGrant) -> Self {
        self.private.push(grant);
        self
    }

    /// Speaks plain HTTP to this host and port.
    #[must_use]
    pub fn plain_http(mut self, host_port: HostPort) -> Self {
        self.plain_http.push(host_port);
        self
    }

    /// Speaks TLS to registries on loopback, too.
    #[must_use]
    pub fn tls_on_loopback(mut self) -> Self {
        self.tls_on_loopback = true;
        self
    }

    /// Sets the certificate authorities that are trusted.
    #[must_use]
    pub fn roots(mut self, roots: RootCertificates) -> Self {
        self.roots = roots;
        self
    }

    /// Trusts the certificates of a PEM file in addition.
    ///
    /// # Errors
    /// `configuration` if it contains none.
    pub fn extra_root_pem(mut self, pem: &[u8]) -> Result<Self, HostError> {
        let roots = roots_from_pem(pem).map_err(|error| {
            HostError::new(HostErrorKind::Configuration, format!("The extra root cannot be used: {error}."))
                .with_hint("Name a PEM file with certificates.")
        })?;
        self.extra_roots.extend(roots.iter().map(|root| root.to_vec()));
        Ok(self)
    }

    /// Takes credentials from the text of a `config.json` of Docker, and from the helpers that it names.
    #[must_use]
    pub fn docker_config(mut self, text: Zeroizing<Vec<u8>>) -> Self {
        self.docker_config = Some(text);
        self
    }

    /// Sets the time for one whole operation.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Sets the resolver of names.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = resolver;
        self
    }

    /// Returns all certificates to trust, in DER, if they replace those of the platform.
    pub(crate) fn only_roots(&self) -> Vec<Vec<u8>> {
        match self.roots {
            RootCertificates::Platform => Vec::new(),
            RootCertificates::Bundled => {
                let bundled = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|root| root.to_vec());
                bundled.chain(self.extra_roots.iter().cloned()).collect()
            }
        }
    }
}
