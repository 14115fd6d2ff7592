//! The key of a vault, and the seal that covers the whole contents and the header together.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{Key as SealKey, XChaCha20Poly1305, XNonce};
use cofferdam_core::home_state::{VAULT_MAGIC as MAGIC, VaultMark};
use hmac::{Hmac, Mac};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

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
    pub(super) fn from_passphrase(
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
    pub(super) fn from_key_file(file: &[u8; KEY_BYTES], salt: [u8; SALT_BYTES]) -> Self {
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
    pub(super) fn matches(&self, header: &VaultHeader) -> bool {
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

/// The version of the format before the header got the counters of [`VaultMark`], which it has since version
/// 2.
const WITHOUT_MARK: u16 = 1;
const VERSION: u16 = 2;

/// The length of the header of version 1, in bytes.
pub(super) const HEADER_BYTES: usize = 112;

/// The bytes that version 2 adds to it.
pub(super) const MARK_BYTES: usize = 16;

/// Length of the checksum at the header's end.
const SUM_BYTES: usize = 8;

pub(super) const SALT_BYTES: usize = 32;
pub(super) const CHECK_BYTES: usize = 16;
pub(super) const NONCE_BYTES: usize = 24;

/// The maximum parameters that a file may request, so that a hostile one cannot exhaust the machine's memory:
/// 256 MiB, 8 passes, 16 lanes. The minimum values are those below which the algorithm does not work.
const MAX_KIB: u32 = 256 * 1024;
const MAX_PASSES: u32 = 8;
const MAX_LANES: u32 = 16;

/// The source of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyDerivation {
    /// The 32 random bytes of a key file.
    KeyFile,
    /// A passphrase, by argon2id.
    Argon2id {
        /// Passes over the memory.
        passes: u32,
        /// Memory, in KiB.
        kib: u32,
        /// Lanes.
        lanes: u32,
    },
}

/// The parameters of new vaults: the second recommendation of RFC 9106, for machines without 2 GiB to spare.
pub(super) const ARGON2ID: KeyDerivation = KeyDerivation::Argon2id { passes: 3, kib: 64 * 1024, lanes: 4 };

/// The header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VaultHeader {
    /// The counters of this vault and its home's log; `None` in a vault of version 1.
    pub(super) mark: Option<VaultMark>,
    pub(super) kdf: KeyDerivation,
    pub(super) salt: [u8; SALT_BYTES],
    /// The check value of the right key, which distinguishes a wrong key from damage. It does not help
    /// guessing: every guess costs the same derivation, and the seal itself would reveal as much.
    pub(super) check: [u8; CHECK_BYTES],
    pub(super) nonce: [u8; NONCE_BYTES],
}

/// The reason why bytes are not a valid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderProblem {
    /// The file is empty.
    Empty,
    /// It does not start with the magic bytes of a vault.
    Foreign,
    /// It has this version, which is unknown here.
    Version(u16),
    /// It was truncated or changed.
    Damaged,
    /// It requests more memory or time than any vault of this program.
    Excessive,
}

impl VaultHeader {
    /// Parses the header at the beginning of `file`; also returns the rest.
    pub(super) fn read(file: &[u8]) -> Result<(Self, &[u8]), HeaderProblem> {
        if file.is_empty() {
            return Err(HeaderProblem::Empty);
        }
        let Some(after_magic) = file.strip_prefix(MAGIC) else {
            let is_cut = MAGIC.starts_with(file);
            return Err(if is_cut { HeaderProblem::Damaged } else { HeaderProblem::Foreign });
        };
        let mut rest = HeaderFields(after_magic);
        let length = match rest.u16() {
            WITHOUT_MARK => HEADER_BYTES,
            VERSION => HEADER_BYTES + MARK_BYTES,
            0 => return Err(HeaderProblem::Damaged),
            newer => return Err(HeaderProblem::Version(newer)),
        };
        let (bytes, sealed) = file.split_at_checked(length).ok_or(HeaderProblem::Damaged)?;
        let mark = (length > HEADER_BYTES).then(|| VaultMark { counter: rest.u64(), log: rest.u64() });
        let (kind, passes, kib, lanes) = (rest.u16(), rest.u32(), rest.u32(), rest.u32());
        let (salt, check, nonce) = (rest.array(), rest.array(), rest.array());
        if rest.array::<SUM_BYTES>() != sum(bytes.get(..length - SUM_BYTES).unwrap_or_default()) {
            return Err(HeaderProblem::Damaged);
        }
        let kdf = match (kind, passes, kib, lanes) {
            (0, 0, 0, 0) => KeyDerivation::KeyFile,
            (1, ..) if passes > MAX_PASSES || kib > MAX_KIB || lanes > MAX_LANES => {
                return Err(HeaderProblem::Excessive);
            }
            (1, 1.., _, 1..) if kib >= lanes.saturating_mul(8) => {
                KeyDerivation::Argon2id { passes, kib, lanes }
            }
            _ => return Err(HeaderProblem::Damaged),
        };
        Ok((Self { mark, kdf, salt, check, nonce }, sealed))
    }

    /// Serializes the header.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let (kind, passes, kib, lanes) = match self.kdf {
            KeyDerivation::KeyFile => (0u16, 0, 0, 0),
            KeyDerivation::Argon2id { passes, kib, lanes } => (1, passes, kib, lanes),
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + MARK_BYTES);
        bytes.extend_from_slice(MAGIC);
        match self.mark {
            None => bytes.extend_from_slice(&WITHOUT_MARK.to_be_bytes()),
            Some(VaultMark { counter, log }) => {
                bytes.extend_from_slice(&VERSION.to_be_bytes());
                bytes.extend_from_slice(&counter.to_be_bytes());
                bytes.extend_from_slice(&log.to_be_bytes());
            }
        }
        bytes.extend_from_slice(&kind.to_be_bytes());
        for number in [passes, kib, lanes] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(&self.salt);
        bytes.extend_from_slice(&self.check);
        bytes.extend_from_slice(&self.nonce);
        let sum = sum(&bytes);
        bytes.extend_from_slice(&sum);
        bytes
    }
}

/// Computes a checksum that distinguishes accidental damage to the header from a wrong key. Against
/// tampering, the seal covers the header as well.
fn sum(bytes: &[u8]) -> [u8; 8] {
    Sha256::digest(bytes).first_chunk().copied().unwrap_or_default()
}

/// Splits fixed parts off the front; zeros when nothing is left.
struct HeaderFields<'a>(&'a [u8]);

impl HeaderFields<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let Some((first, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }
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
    fn sealed_contents_open_only_with_their_key() {
        let salt = new_salt().unwrap();
        let key = VaultKey::from_passphrase("correct horse", CHEAP, salt).unwrap();
        let file = key.seal(contents(), None).unwrap();
        let (header, sealed) = VaultHeader::read(&file).unwrap();
        assert!(key.matches(&header));
        assert_eq!(key.open(&header, sealed).unwrap().as_slice(), contents().as_slice());
        for wrong in ["correct hors", "correct horse ", "", "Correct horse"] {
            let wrong = VaultKey::from_passphrase(wrong, CHEAP, salt).unwrap();
            assert!(
                wrong.is_for(&header) && !wrong.matches(&header) && wrong.open(&header, sealed).is_none()
            );
        }
        let other_salt = VaultKey::from_passphrase("correct horse", CHEAP, new_salt().unwrap()).unwrap();
        assert!(!other_salt.is_for(&header) && other_salt.open(&header, sealed).is_none());
        assert!(!VaultKey::from_key_file(&[7; 32], salt).matches(&header));
    }

    #[test]
    fn two_seals_of_the_same_contents_share_nothing() {
        let key = VaultKey::from_key_file(&[7; 32], [1; 32]);
        let (one, two) = (key.seal(contents(), None).unwrap(), key.seal(contents(), None).unwrap());
        let tail = |file: &[u8]| file[file.len() - 31..].to_vec();
        assert_ne!(tail(&one), tail(&two));
        assert!(!one.windows(8).any(|window| window == b"bindings"));
    }

    #[test]
    fn the_header_is_sealed_with_the_contents() {
        // A valid header with another nonce, or from another file of the same key.
        let key = VaultKey::from_key_file(&[7; 32], [1; 32]);
        let (one, two) = (key.seal(contents(), None).unwrap(), key.seal(contents(), None).unwrap());
        let (header, _) = VaultHeader::read(&one).unwrap();
        let (_, sealed) = VaultHeader::read(&two).unwrap();
        assert!(key.open(&header, sealed).is_none());
        let (header, sealed) = VaultHeader::read(&one).unwrap();
        assert!(key.open(&VaultHeader { check: [0; CHECK_BYTES], ..header }, sealed).is_none());
        assert!(key.open(&header, sealed).is_some());
    }
    fn header(kdf: KeyDerivation) -> VaultHeader {
        let mark = Some(VaultMark { counter: 5, log: 6 });
        VaultHeader { mark, kdf, salt: [1; SALT_BYTES], check: [2; CHECK_BYTES], nonce: [3; NONCE_BYTES] }
    }

    #[test]
    fn a_header_round_trips_and_detects_changes() {
        let headers = [KeyDerivation::KeyFile, ARGON2ID].map(header);
        let old = headers.map(|header| VaultHeader { mark: None, ..header });
        for (header, length) in
            headers.map(|header| (header, 128)).into_iter().chain(old.map(|old| (old, 112)))
        {
            let bytes = header.to_bytes();
            assert_eq!(bytes.len(), length);
            let mut file = bytes.clone();
            file.extend_from_slice(b"sealed");
            assert_eq!(VaultHeader::read(&file), Ok((header, &b"sealed"[..])));
            for bit in 0..length * 8 {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(VaultHeader::read(&changed).is_err(), "bit {bit}");
            }
            for length in 0..length {
                assert!(VaultHeader::read(&bytes[..length]).is_err(), "{length} bytes");
            }
        }
    }

    #[test]
    fn header_problems_are_distinguished() {
        let problem = |bytes: &[u8]| VaultHeader::read(bytes).unwrap_err();
        assert_eq!(problem(b""), HeaderProblem::Empty);
        assert_eq!(problem(b"{\"bindings\": []}"), HeaderProblem::Foreign);
        assert_eq!(problem(&[0; 4096]), HeaderProblem::Foreign);
        assert_eq!(problem(b"cofferdam va"), HeaderProblem::Damaged);
        let mut newer = header(KeyDerivation::KeyFile).to_bytes();
        newer[17] = 3;
        assert_eq!(problem(&newer), HeaderProblem::Version(3));
        // Slightly too much memory, 4 billion passes, 1,000 lanes; with a valid checksum, as an attacker
        // would write it.
        for (passes, kib, lanes) in
            [(3, (256 << 10) + 1, 4), (9, 1024, 1), (u32::MAX, 1024, 1), (1, 65_536, 1000)]
        {
            let kdf = KeyDerivation::Argon2id { passes, kib, lanes };
            assert_eq!(problem(&header(kdf).to_bytes()), HeaderProblem::Excessive);
        }
        for (passes, kib, lanes) in [(0, 1024, 1), (1, 7, 1), (1, 1024, 0), (1, 31, 4)] {
            let kdf = KeyDerivation::Argon2id { passes, kib, lanes };
            assert_eq!(problem(&header(kdf).to_bytes()), HeaderProblem::Damaged);
        }
    }
}
