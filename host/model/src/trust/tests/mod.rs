//! Tests of trust, from real bytes: keys, envelopes, the keyring document, and every reason to refuse.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod envelope;
mod key;
mod key_set;
mod keyring;
mod succession;
mod verify;

use cofferdam_core::digest::Digest;

use super::{Envelope, Keyring, ReleaseStatement, SecretKey, SigningScope, sign};
use crate::manifest::ConnectorName;

const PACKAGE: &[u8] = b"a package";

/// An envelope that the reference implementation of DSSE (Python's securesystemslib) made, for
/// [`statement`], with the key of seed 00 01 .. 1f.
const FOREIGN: &[u8] = include_bytes!("securesystemslib.dsse.json");

fn key(seed: u8) -> SecretKey {
    let mut bytes = [seed; 32];
    if seed == 0 {
        bytes = std::array::from_fn(|index| u8::try_from(index).unwrap());
    }
    secret(&bytes)
}

fn secret(seed: &[u8; 32]) -> SecretKey {
    use base64::Engine as _;
    let seed = base64::engine::general_purpose::STANDARD.encode(seed);
    SecretKey::parse(&format!("cofferdam-secret-key:ed25519:{seed}")).unwrap()
}

fn name(text: &str) -> ConnectorName {
    ConnectorName::parse(text).unwrap()
}

fn slack() -> ConnectorName {
    name("github://acme/slack")
}

fn version(text: &str) -> semver::Version {
    text.parse().unwrap()
}

fn date(text: &str) -> jiff::Timestamp {
    text.parse().unwrap()
}

fn now() -> jiff::Timestamp {
    date("2026-06-01T00:00:00Z")
}

fn statement() -> ReleaseStatement {
    ReleaseStatement::new(slack(), version("1.2.0"), Digest::sha256(PACKAGE), date("2026-01-31T12:00:00.5Z"))
}

fn signed(seed: u8) -> Envelope {
    sign(&key(seed), &statement())
}

/// A keyring that trusts `key(seed)` for `scope`.
fn trusting(seed: u8, scope: &str) -> Keyring {
    let mut keyring = Keyring::empty();
    let scopes = [SigningScope::parse(scope).unwrap()];
    keyring.trust(&key(seed).public(), &scopes, now(), None, None).unwrap();
    keyring
}
