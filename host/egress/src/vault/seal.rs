//! The key of a vault, and the seal that covers the whole contents and the header together.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{Key as SealKey, XChaCha20Poly1305, XNonce};
use cofferdam_core::home_state::VaultMark;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::header::{CHECK_BYTES, KeyDerivation, NONCE_BYTES, SALT_BYTES, VaultHeader};

/// The length of the seal's tag, in bytes.
const TAG_BYTES: usize = 16;

/// The length of a key, and of a key file, in bytes.
pub(super) const KEY_BYTES: usize = 32;

/// The key that seals and opens, derived from a passphrase or a key file, and from the salt of one vault.
pub(super) struct VaultKey {
    kdf: KeyDerivation,
    salt: [u8; SALT_BYTES],
    seal: Zeroizing<[u8; KEY_BYTES]>,
    check: [u8; CHECK_BYTES],
}

/// The reason why there is no key.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyProblem {
    /// There is not enough memory to derive it.
    #[error("this machine does not give the {0} MiB of memory that its lock takes")]
    Memory(u32),
    /// The system has no randomness.
    #[error("the system gave no random bytes ({0})")]
    Random(getrandom::Error),
    /// The algorithm rejects its parameters.
    #[error("the parameters of its lock are not acceptable ({0})")]
    Parameters(argon2::Error),
}

impl VaultKey {
    /// Derives the key of a passphrase for this salt. Slow by design.
    pub(super) fn of_passphrase(
        passphrase: &str,
        kdf: KeyDerivation,
        salt: [u8; SALT_BYTES],
    ) -> Result<Self, KeyProblem> {
        let (passes, kib, lanes) = match kdf {
            KeyDerivation::Argon2id { passes, kib, lanes } => (passes, kib, lanes),
            KeyDerivation::KeyFile => (1, 8, 1),
        };
        let params = Params::new(kib, passes, lanes, Some(KEY_BYTES)).map_err(KeyProblem::Parameters)?;
        let mut memory: Zeroizing<Vec<Block>> = Zeroizing::new(Vec::new());
        memory.try_reserve_exact(params.block_count()).map_err(|_| KeyProblem::Memory(kib / 1024))?;
        memory.resize(params.block_count(), Block::default());
        let mut master = Zeroizing::new([0; KEY_BYTES]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into_with_memory(
                passphrase.as_bytes(),
                &salt,
                master.as_mut_slice(),
                &mut **memory,
            )
            .map_err(KeyProblem::Parameters)?;
        Ok(Self::from_master(&master, kdf, salt))
    }

    /// Derives the key of a key file for this salt.
    pub(super) fn of_file(file: &[u8; KEY_BYTES], salt: [u8; SALT_BYTES]) -> Self {
        Self::from_master(file, KeyDerivation::KeyFile, salt)
    }

    fn from_master(master: &[u8; KEY_BYTES], kdf: KeyDerivation, salt: [u8; SALT_BYTES]) -> Self {
        let derive = |purpose: &[u8]| -> Zeroizing<[u8; KEY_BYTES]> {
            // HMAC pads a key that is shorter than a block in the same way.
            let mut block = Zeroizing::new([0; 64]);
            block.iter_mut().zip(master).for_each(|(to, from)| *to = *from);
            let mut mac = <Hmac<Sha256> as hmac::KeyInit>::new((&*block).into());
            mac.update(purpose);
            mac.update(&salt);
            Zeroizing::new(mac.finalize().into_bytes().into())
        };
        let check = derive(b"cofferdam vault 1: check").first_chunk().copied().unwrap_or_default();
        Self { kdf, salt, seal: derive(b"cofferdam vault 1: seal"), check }
    }

    /// Returns whether it was derived for the vault with this header, from whichever passphrase or key file.
    pub(super) fn is_for(&self, header: &VaultHeader) -> bool {
        (self.kdf, self.salt) == (header.kdf, header.salt)
    }

    /// Returns whether it is the right key. The compared value is not secret to a reader of the file.
    pub(super) fn fits(&self, header: &VaultHeader) -> bool {
        self.is_for(header) && self.check == header.check
    }

    /// Returns the whole file for these contents; `contents` is cleared.
    pub(super) fn seal(
        &self,
        mut contents: Zeroizing<Vec<u8>>,
        mark: Option<VaultMark>,
    ) -> Result<Vec<u8>, KeyProblem> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(KeyProblem::Random)?;
        let header =
            VaultHeader { mark, kdf: self.kdf, salt: self.salt, check: self.check, nonce }.to_bytes();
        // Sealed in place: a buffer that grows would leave a copy behind.
        let mut sealed = Zeroizing::new(Vec::with_capacity(contents.len() + TAG_BYTES));
        sealed.append(&mut contents);
        let done = self.cipher().encrypt_in_place(&XNonce::from(nonce), &header, &mut *sealed);
        // This fails only beyond 256 GiB.
        done.map_err(|_| KeyProblem::Memory(u32::MAX))?;
        Ok([header.as_slice(), sealed.as_slice()].concat())
    }

    /// Opens the contents of a file with this header; `None` if the header or the contents were changed.
    pub(super) fn open(&self, header: &VaultHeader, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let mut contents = Zeroizing::new(sealed.to_vec());
        let nonce = XNonce::from(header.nonce);
        self.cipher().decrypt_in_place(&nonce, &header.to_bytes(), &mut *contents).ok()?;
        Some(contents)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(<&SealKey>::from(&*self.seal))
    }
}

/// Generates a salt for a new lock.
pub(super) fn new_salt() -> Result<[u8; SALT_BYTES], KeyProblem> {
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt).map_err(KeyProblem::Random)?;
    Ok(salt)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use super::*;

    /// Cheap parameters for tests, in the form of the real ones.
    const CHEAP: KeyDerivation = KeyDerivation::Argon2id { passes: 1, kib: 64, lanes: 2 };

    fn contents() -> Zeroizing<Vec<u8>> {
        Zeroizing::new(b"{\"bindings\":[]}".to_vec())
    }

    #[test]
    fn what_is_sealed_opens_with_the_same_key_and_no_other() {
        let salt = new_salt().unwrap();
        let key = VaultKey::of_passphrase("correct horse", CHEAP, salt).unwrap();
        let file = key.seal(contents(), None).unwrap();
        let (header, sealed) = VaultHeader::read(&file).unwrap();
        assert!(key.fits(&header));
        assert_eq!(key.open(&header, sealed).unwrap().as_slice(), contents().as_slice());
        for wrong in ["correct hors", "correct horse ", "", "Correct horse"] {
            let wrong = VaultKey::of_passphrase(wrong, CHEAP, salt).unwrap();
            assert!(wrong.is_for(&header) && !wrong.fits(&header) && wrong.open(&header, sealed).is_none());
        }
        let other_salt = VaultKey::of_passphrase("correct horse", CHEAP, new_salt().unwrap()).unwrap();
        assert!(!other_salt.is_for(&header) && other_salt.open(&header, sealed).is_none());
        assert!(!VaultKey::of_file(&[7; 32], salt).fits(&header));
    }

    #[test]
    fn two_seals_of_the_same_contents_share_nothing() {
        let key = VaultKey::of_file(&[7; 32], [1; 32]);
        let (one, two) = (key.seal(contents(), None).unwrap(), key.seal(contents(), None).unwrap());
        let tail = |file: &[u8]| file[file.len() - 31..].to_vec();
        assert_ne!(tail(&one), tail(&two));
        assert!(!one.windows(8).any(|window| window == b"bindings"));
    }

    #[test]
    fn the_header_is_sealed_with_the_contents() {
        // A valid header with another nonce, or from another file of the same key.
        let key = VaultKey::of_file(&[7; 32], [1; 32]);
        let (one, two) = (key.seal(contents(), None).unwrap(), key.seal(contents(), None).unwrap());
        let (header, _) = VaultHeader::read(&one).unwrap();
        let (_, sealed) = VaultHeader::read(&two).unwrap();
        assert!(key.open(&header, sealed).is_none());
        let (header, sealed) = VaultHeader::read(&one).unwrap();
        assert!(key.open(&VaultHeader { check: [0; CHECK_BYTES], ..header }, sealed).is_none());
        assert!(key.open(&header, sealed).is_some());
    }
}
