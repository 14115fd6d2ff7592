//! A certificate authority of the tests' own, for servers that have to be believed, or must not be.

use cofferdam_dev::LocalAuthority;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate authority that is trusted only here.
pub struct Authority(LocalAuthority);

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
        Self(LocalAuthority::new().expect("a certificate"))
    }

    /// Its certificate, for a host's roots.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for `names`, valid now, and its key.
    ///
    /// # Panics
    /// They are no names.
    #[must_use]
    pub fn certify(&self, names: &[&str]) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        self.0.certify(names).expect("a certificate")
    }
}
