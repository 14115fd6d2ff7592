//! A certificate authority of the tests' own, for servers that have to be believed, or must not be.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A certificate authority that is trusted only here.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A new one, with a new key.
    ///
    /// # Panics
    /// There is no randomness.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate") }
    }

    /// Its certificate, for a host's roots.
    #[must_use]
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for `names`, valid now, and its key.
    ///
    /// # Panics
    /// They are no names.
    #[must_use]
    pub fn certify(&self, names: &[&str]) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).expect("names");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der()).into())
    }
}
