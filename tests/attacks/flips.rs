//! One flipped bit anywhere: in an installed package, in one to be installed, in a signature, in the keyring.

use std::fs;
use std::path::Path;

use cofferdam::{Error, FailureBoundary, FailureClass, InstallOptions};
use cofferdam_model::manifest::ConnectorName;
use cofferdam_model::trust::{KeyStatus, Keyring};
use cofferdam_test_support::{InstallAccepted as _, Signer};
use serde_json::Value;

use super::{NAME, installed, quiet};
use crate::envelope::{Expected, check, check_host_error, check_json};
use crate::shared_host::{failed, run};

const MISMATCH: Expected = Expected {
    class: FailureClass::HashMismatch,
    boundary: FailureBoundary::Runtime,
    retriable: false,
    code: "hash",
};

/// `path` with each byte flipped in turn, one bit of it, and put right again at the end.
fn each_flip(path: &Path, mut look: impl FnMut(usize, &[u8])) {
    let good = fs::read(path).unwrap();
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(path, &bytes).unwrap();
        look(at, &bytes);
    }
    fs::write(path, good).unwrap();
}

#[test]
fn flipped_bytes_of_installed_packages_are_detected() {
    let it = installed();
    let host = it.home.host();
    each_flip(&it.file(), |at, _| {
        let failure = failed(it.call(&host));
        assert_eq!(failure.class(), FailureClass::HashMismatch, "byte {at}: {failure}");
        check(&failure, MISMATCH);
    });
    it.call(&host).unwrap();
}

#[test]
fn flipped_bytes_of_packages_are_refused_at_install() {
    let it = installed();
    let (bytes, host) = (quiet(NAME, "2.0.0"), it.home.host());
    let signed = it.signer.sign(&bytes);
    let before = it.home.snapshot();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        match run(host.install_accepted(flipped, Some(signed.clone()), InstallOptions::default())) {
            Err(Error::Host(error)) => check_host_error(&error),
            Err(Error::Failure(failure)) => {
                check_json(&serde_json::to_value(&failure).unwrap());
                assert_eq!(failure.class(), FailureClass::SignatureFailure, "byte {at}: {failure}");
            }
            Ok(installed) => panic!("byte {at}: {installed:?}"),
        }
    }
    assert_eq!(it.home.snapshot(), before);
}

#[test]
fn flipped_signature_bytes_never_change_the_payload() {
    let it = installed();
    let host = it.home.host();
    let good: Value = serde_json::from_slice(&it.signer.sign(&it.bytes)).unwrap();
    let mut harmless = 0;
    each_flip(&it.file().with_file_name("signature.dsse.json"), |at, bytes| match it.call(&host) {
        Err(Error::Failure(failure)) => {
            check_json(&serde_json::to_value(&failure).unwrap());
            assert_eq!(failure.class(), FailureClass::SignatureFailure, "byte {at}: {failure}");
        }
        // Key ids are hints, and white space is none of the content: the payload has to be what it was.
        Ok(_) => {
            harmless += 1;
            let read: Value = serde_json::from_slice(bytes).unwrap();
            let payload = |value: &Value| value["payload"].as_str().unwrap().trim_end_matches('=').len();
            assert_eq!(payload(&read), payload(&good), "byte {at}");
        }
        Err(Error::Host(error)) => panic!("byte {at}: {error}"),
    });
    assert!(harmless < 120, "{harmless} flips are of no consequence");
    it.call(&host).unwrap();
}

#[test]
fn flipped_keyring_bits_never_extend_trust() {
    let it = installed();
    let stranger = Signer::new();
    it.home.trust(&stranger.public(), "github://elsewhere/*");
    it.home.revoke(&it.signer.public());
    let text = fs::read_to_string(it.home.path().join("keyring.toml")).unwrap();
    let (name, now) = (ConnectorName::parse(NAME).unwrap(), jiff::Timestamp::now());
    let mut read = 0;
    for at in 0..text.len() {
        for bit in 0..8 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            let Ok(text) = String::from_utf8(bytes) else { continue };
            let Ok(keyring) = Keyring::parse("keyring.toml", &text) else { continue };
            read += 1;
            let good = keyring.entries().iter().filter(|entry| {
                let theirs = [it.signer.public(), stranger.public()].contains(entry.key());
                theirs && entry.status(now) == KeyStatus::Trusted && entry.covers(&name)
            });
            assert_eq!(good.count(), 0, "bit {bit} of byte {at}:\n{text}");
        }
    }
    assert!(read > 100, "only {read} flipped keyrings could be read");
}
