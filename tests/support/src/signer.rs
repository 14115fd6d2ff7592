//! A signing key of a test, and what it signs.

use std::fs;
use std::path::Path;

use cofferdam_core::digest::Digest;
use cofferdam_model::manifest::ConnectorName;
use cofferdam_model::package::Package;
use cofferdam_model::trust::{PublicKey, ReleaseStatement, SecretKey, sign};
use jiff::Timestamp;
use semver::Version;

/// A key pair that exists for one test.
pub struct Signer {
    key: SecretKey,
}

impl Default for Signer {
    fn default() -> Self {
        Self::new()
    }
}

impl Signer {
    /// A new key.
    ///
    /// # Panics
    /// The machine has no randomness.
    #[must_use]
    pub fn new() -> Self {
        Self { key: SecretKey::generate().expect("the system has randomness") }
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.key.public()
    }

    /// The text of a key file, for the command line.
    #[must_use]
    pub fn secret_text(&self) -> String {
        self.key.to_text().to_string()
    }

    /// A signature file for `package` with the data of its manifest.
    ///
    /// # Panics
    /// The bytes are not a package.
    #[must_use]
    pub fn sign(&self, package: &[u8]) -> Vec<u8> {
        let package = Package::open(package.to_vec()).expect("what is signed is a package");
        let manifest = package.manifest();
        self.state(manifest.name(), manifest.version(), package.digest())
    }

    /// Writes a package to `path`, and its signature to the file next to it that `install` reads.
    ///
    /// # Panics
    /// The bytes are not a package, or a file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>, package: &[u8]) {
        let (path, signature) = (path.as_ref(), self.sign(package));
        let mut signature_path = path.as_os_str().to_owned();
        signature_path.push(".dsse.json");
        for (path, bytes) in [(path, package), (Path::new(&signature_path), &signature)] {
            fs::write(path, bytes).expect("a file of a test is written");
        }
    }

    /// A signature file for any statement that a test makes.
    #[must_use]
    pub fn state(&self, name: &ConnectorName, version: &Version, digest: &Digest) -> Vec<u8> {
        let statement = ReleaseStatement::new(name.clone(), version.clone(), *digest, Timestamp::now());
        sign(&self.key, &statement).to_json().into_bytes()
    }
}
