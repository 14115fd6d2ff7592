//! The first bytes of a vault file: the parameters of its lock, in plain text and authenticated with the
//! rest.

use cofferdam_core::home_state::{VAULT_MAGIC as MAGIC, VaultMark};
use sha2::{Digest as _, Sha256};

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

    fn header(kdf: KeyDerivation) -> VaultHeader {
        let mark = Some(VaultMark { counter: 5, log: 6 });
        VaultHeader { mark, kdf, salt: [1; SALT_BYTES], check: [2; CHECK_BYTES], nonce: [3; NONCE_BYTES] }
    }

    #[test]
    fn a_header_is_read_as_it_was_written_and_every_changed_bit_is_seen() {
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
    fn what_is_no_vault_and_what_is_too_much_are_told_apart() {
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
