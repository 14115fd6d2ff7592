//! Seals requests and outcomes, which are stored completely for replay, with a key of the host.
//!
//! The cipher is XChaCha20-Poly1305 under a key derived from the host's. The nonce consists of the call's id
//! and the sealed part's kind: both are new with each call, and each is sealed once. A sealed text
//! that is moved to another call does not open, since its nonce differs.
//!
//! A call seals two short texts. The crate `chacha20poly1305` takes 2.3 us for 45 bytes, most of it to prepare tables for
//! long texts, and `ring` 0.4 us. `ring` has short nonces only; `chacha20::hchacha` derives the key for the short nonce.

use bytes::Bytes;
use chacha20::{R20, hchacha};
use cofferdam_core::failure::AuditId;
use cofferdam_core::host_key::derived;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::error::Unspecified;
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
    key: Zeroizing<[u8; 32]>,
}

impl Sealer {
    /// A sealer with a key derived from the host's.
    #[must_use]
    pub fn new(host_key: &[u8; 32]) -> Self {
        Self { key: Zeroizing::new(derived(host_key, b"cofferdam audit seal v1")) }
    }

    /// Seals a part of a call where it lies; to be done once for each.
    pub fn seal(&self, audit_id: &AuditId, part: Part, mut text: Vec<u8>) -> Result<Sealed, AuditError> {
        let sealed = xchacha20_poly1305(&self.key, &nonce(audit_id, part))
            .and_then(|(key, nonce)| key.seal_in_place_append_tag(nonce, Aad::from(BOUND_TO), &mut text));
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
        let mut text = Zeroizing::new(sealed.bytes().to_vec());
        let opened = xchacha20_poly1305(&self.key, &nonce(audit_id, part)).and_then(|(key, nonce)| {
            key.open_in_place(nonce, Aad::from(BOUND_TO), &mut text).map(|opened| opened.len())
        });
        let length = opened.map_err(|_| {
            AuditError::new(
                AuditErrorKind::Corrupt,
                "what is sealed does not open: it was changed, or host.key was",
            )
        })?;
        text.truncate(length);
        Ok(text)
    }
}

fn nonce(audit_id: &AuditId, part: Part) -> [u8; 24] {
    let mut nonce = [part as u8; 24];
    let (id, _) = nonce.split_at_mut(16);
    id.copy_from_slice(&audit_id.bytes());
    nonce
}

/// Returns the key and the nonce of ChaCha20-Poly1305 that XChaCha20-Poly1305 has for this key and nonce
/// (draft-irtf-cfrg-xchacha-03, section 2.3).
fn xchacha20_poly1305(key: &[u8; 32], nonce: &[u8; 24]) -> Result<(LessSafeKey, Nonce), Unspecified> {
    let (subkey_of, rest) = nonce.split_first_chunk::<16>().ok_or(Unspecified)?;
    let subkey = Zeroizing::new(<[u8; 32]>::from(hchacha::<R20>(key.into(), subkey_of.into())));
    let mut short = [0; 12];
    let (_, end) = short.split_at_mut(4);
    end.copy_from_slice(rest);
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &*subkey)?);
    Ok((key, Nonce::assume_unique_for_key(short)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    /// The example of draft-irtf-cfrg-xchacha-03, section A.3.1.
    #[test]
    fn the_cipher_is_xchacha20_poly1305() {
        let key = std::array::from_fn(|at| 0x80 + u8::try_from(at).unwrap());
        let nonce = std::array::from_fn(|at| 0x40 + u8::try_from(at).unwrap());
        let aad = [0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7];
        let mut text =
            b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the \
            future, sunscreen would be it."
                .to_vec();
        let (key, nonce) = xchacha20_poly1305(&key, &nonce).unwrap();
        key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut text).unwrap();
        let (begin, tag) = (text.first_chunk::<8>().unwrap(), text.last_chunk::<16>().unwrap());
        assert_eq!(u64::from_be_bytes(*begin), 0xbd6d_179d_3e83_d43b);
        assert_eq!(u128::from_be_bytes(*tag), 0xc087_5924_c1c7_9879_47de_afd8_780a_cf49);
    }

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
