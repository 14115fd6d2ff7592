//! Seals requests and outcomes, which are stored completely for replay, with a key of the host.
//!
//! The cipher is XChaCha20-Poly1305 under a key derived from the host's. The nonce consists of the call's id
//! and the sealed part's kind: both are new with each call, and each is sealed once. A sealed text
//! that is moved to another call does not open, since its nonce differs.

use bytes::Bytes;
use chacha20poly1305::aead::{Aead, AeadInOut, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use cofferdam_core::failure::AuditId;
use cofferdam_core::host_key::derived;
use zeroize::Zeroizing;

use super::error::{AuditError, AuditErrorKind};

/// The context that every seal is bound to, in addition to its call.
const BOUND_TO: &[u8] = b"cofferdam audit v1";

/// A sealed text. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed(Bytes);

impl Sealed {
    /// The payload that was stored.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }

    /// The payload to store.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The part of a call that is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All that is needed to do it again.
    Request = 1,
    /// The outcome.
    Outcome = 2,
}

/// Seals and opens.
pub struct Sealer {
    cipher: XChaCha20Poly1305,
}

impl Sealer {
    /// A sealer with a key derived from the host's.
    #[must_use]
    pub fn new(host_key: &[u8; 32]) -> Self {
        let key = Zeroizing::new(derived(host_key, b"cofferdam audit seal v1"));
        Self { cipher: XChaCha20Poly1305::new(&Key::from(*key)) }
    }

    /// Seals a part of a call where it lies; to be done once for each.
    pub fn seal(&self, audit_id: &AuditId, part: Part, mut text: Vec<u8>) -> Result<Sealed, AuditError> {
        let sealed = self.cipher.encrypt_in_place(&nonce(audit_id, part), BOUND_TO, &mut text);
        sealed
            .map(|()| Sealed(text.into()))
            .map_err(|_| AuditError::new(AuditErrorKind::Other, "a text is too long to be sealed"))
    }

    /// Opens what was sealed as this part of this call.
    pub fn open(
        &self,
        audit_id: &AuditId,
        part: Part,
        sealed: &Sealed,
    ) -> Result<Zeroizing<Vec<u8>>, AuditError> {
        let payload = Payload { msg: sealed.bytes(), aad: BOUND_TO };
        let text = self.cipher.decrypt(&nonce(audit_id, part), payload);
        text.map(Zeroizing::new).map_err(|_| {
            AuditError::new(
                AuditErrorKind::Corrupt,
                "what is sealed does not open: it was changed, or host.key was",
            )
        })
    }
}

fn nonce(audit_id: &AuditId, part: Part) -> XNonce {
    let mut nonce = [0u8; 24];
    let (id, rest) = nonce.split_at_mut(16);
    id.copy_from_slice(&audit_id.bytes());
    rest.fill(part as u8);
    XNonce::from(nonce)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn sealed_data_opens_only_in_its_own_place() {
        let (sealer, id) = (Sealer::new(&[7; 32]), AuditId::mint());
        let sealed = sealer.seal(&id, Part::Outcome, b"{\"value\":1}".to_vec()).unwrap();
        assert_eq!(*sealer.open(&id, Part::Outcome, &sealed).unwrap(), b"{\"value\":1}");
        assert!(sealer.open(&id, Part::Request, &sealed).is_err());
        assert!(sealer.open(&AuditId::mint(), Part::Outcome, &sealed).is_err());
        assert!(Sealer::new(&[8; 32]).open(&id, Part::Outcome, &sealed).is_err());
        for at in 0..sealed.bytes().len() {
            let mut bytes = sealed.bytes().to_vec();
            *bytes.get_mut(at).unwrap() ^= 1;
            assert!(sealer.open(&id, Part::Outcome, &Sealed::from_bytes(bytes)).is_err(), "{at}");
        }
    }
}
