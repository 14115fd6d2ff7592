//! Any bytes as a signature file: read, written, and never accepted for an unsigned package.
#![no_main]

use std::sync::LazyLock;

use cofferdam_core::digest::Digest;
use cofferdam_model::manifest::ConnectorName;
use cofferdam_model::trust::{Envelope, Keyring, SecretKey, verify};
use libfuzzer_sys::fuzz_target;

static KEYRING: LazyLock<Keyring> = LazyLock::new(|| {
    let key = SecretKey::generate().expect("randomness").public();
    let text = format!("[[keys]]\nkey = \"{key}\"\nscopes = [\"github://acme/*\"]\n");
    Keyring::parse("keyring.toml", &text).expect("a keyring")
});

fuzz_target!(|data: &[u8]| {
    if let Ok(envelope) = Envelope::parse(data) {
        let _ = envelope.unverified_statement();
        assert_eq!(Envelope::parse(envelope.to_json().as_bytes()).expect("what was written"), envelope);
    }
    let name = ConnectorName::parse("github://acme/slack").expect("a name");
    let version = "1.0.0".parse().expect("a version");
    let now = "2026-06-01T00:00:00Z".parse().expect("a moment");
    assert!(verify(data, &KEYRING, &name, &version, &Digest::sha256(b"a package"), now).is_err());
});
