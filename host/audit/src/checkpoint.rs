//! Checkpoints: what the host signs about the chain, so that even a tail that is cut off is missed.
//!
//! The text of the note is C2SP's checkpoint form: the origin, how many entries, the hash of the last of them in
//! base64, and a line with the time. The line `vault` has how far the vault of the home had come; older statements lack
//! it. A further line says more: `pruned` (the entries up to here were removed), `exported` or
//! `exported part` (an export ends here, of the whole record or of a part), or for each flaw that the operator accepts `accepts <number> <flaw> <SHA-256 of what it is found in>`; older ones end with the
//! flaw.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

use super::export::{hex, unhex};
use super::note::{NoteFlaw, NoteKey, NoteSigner};
use super::verify::{Accepted, Flaw};

/// The origin line that identifies an audit log.
pub const ORIGIN: &str = "cofferdam audit";

/// Most flaws that one statement accepts.
pub(crate) const ACCEPTED: usize = 1_000;

/// The subject of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Statement {
    /// The chain has so many entries, and the last has this hash.
    Head,
    /// The entries up to here were removed; the chain begins after them.
    Pruned,
    /// An export ends here.
    Exported {
        /// True if the export covers only a part of the audit log.
        part: bool,
    },
    /// The operator knows of these flaws, by the number of an entry.
    Accepts(Vec<Accepted>),
}

/// A statement about the chain, at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The number of entries that were ever written, which is the number of the last one.
    pub n: u64,
    /// That entry's hash.
    pub hash: [u8; 32],
    /// When it was said.
    pub at: Timestamp,
    /// The number of changes of the home's vault; none in older statements, and in those that leave the home.
    pub vault: Option<u64>,
    /// The statement itself.
    pub statement: Statement,
}

impl Checkpoint {
    /// Signs it.
    pub fn sign(&self, signer: &NoteSigner) -> String {
        signer.sign(&self.text())
    }

    /// Reads a note that `key` signed.
    ///
    /// # Errors
    /// It is none, or not this key's.
    pub fn read(note: &str, key: &NoteKey) -> Result<Self, NoteFlaw> {
        let text = key.text_of(note)?;
        let checkpoint = parse(text).ok_or(NoteFlaw::Malformed)?;
        // One spelling: what is signed is all that is said.
        (checkpoint.text() == text).then_some(checkpoint).ok_or(NoteFlaw::Malformed)
    }

    fn text(&self) -> String {
        let (hash, at) = (STANDARD.encode(self.hash), self.at);
        let mut text = format!("{ORIGIN}\n{}\n{hash}\ntime {at:.6}\n", self.n);
        if let Some(vault) = self.vault {
            text.push_str(&format!("vault {vault}\n"));
        }
        match &self.statement {
            Statement::Head => {}
            Statement::Pruned => text.push_str("pruned\n"),
            Statement::Exported { part: false } => text.push_str("exported\n"),
            Statement::Exported { part: true } => text.push_str("exported part\n"),
            Statement::Accepts(flaws) => {
                for Accepted { n, flaw, of } in flaws {
                    let of = of.map(|of| format!(" {}", hex(&of))).unwrap_or_default();
                    text.push_str(&format!("accepts {n} {}{of}\n", flaw.name()));
                }
            }
        }
        text
    }
}

fn parse(text: &str) -> Option<Checkpoint> {
    let mut lines = text.lines();
    lines.next().filter(|origin| *origin == ORIGIN)?;
    let n = lines.next()?.parse().ok()?;
    let hash = STANDARD.decode(lines.next()?).ok()?.try_into().ok()?;
    let at = lines.next()?.strip_prefix("time ")?.parse().ok()?;
    let mut lines = lines.peekable();
    let vault = match lines.next_if(|line| line.starts_with("vault ")) {
        Some(line) => Some(line.strip_prefix("vault ")?.parse().ok()?),
        None => None,
    };
    let mut statement = Statement::Head;
    for line in lines {
        statement = match (statement, line.strip_prefix("accepts ")) {
            (Statement::Head, None) if line == "pruned" => Statement::Pruned,
            (Statement::Head, None) if line == "exported" => Statement::Exported { part: false },
            (Statement::Head, None) if line == "exported part" => Statement::Exported { part: true },
            (Statement::Head, Some(flaw)) => Statement::Accepts(vec![accepted(flaw)?]),
            (Statement::Accepts(mut flaws), Some(flaw)) if flaws.len() < ACCEPTED => {
                flaws.push(accepted(flaw)?);
                Statement::Accepts(flaws)
            }
            _ => return None,
        };
    }
    Some(Checkpoint { n, hash, at, vault, statement })
}

fn accepted(text: &str) -> Option<Accepted> {
    let (n, flaw) = text.split_once(' ')?;
    let (flaw, of) = match flaw.split_once(' ') {
        Some((flaw, of)) => (flaw, Some(unhex(of)?)),
        None => (flaw, None),
    };
    Some(Accepted { n: n.parse().ok()?, flaw: Flaw::from_name(flaw)?, of })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn signed_checkpoints_round_trip() {
        let signer = NoteSigner::new(&[7; 32]);
        let at = Timestamp::from_microsecond(1_700_000_000_000_001).unwrap();
        let statements = [
            Statement::Head,
            Statement::Pruned,
            Statement::Exported { part: false },
            Statement::Exported { part: true },
            Statement::Accepts(vec![
                Accepted { n: 3, flaw: Flaw::Edited, of: None },
                Accepted { n: 9, flaw: Flaw::Truncated, of: Some([0xab; 32]) },
            ]),
        ];
        for (statement, vault) in statements.into_iter().zip([Some(0), None, Some(7), None, Some(u64::MAX)]) {
            let checkpoint = Checkpoint { n: 12, hash: [9; 32], at, vault, statement };
            let note = checkpoint.sign(&signer);
            assert_eq!(Checkpoint::read(&note, &signer.key()), Ok(checkpoint), "{note}");
        }
        for text in ["cofferdam audit\n012\n", "other\n1\n", "cofferdam audit\n1\nAAAA\ntime x\n"] {
            assert_eq!(
                Checkpoint::read(&signer.sign(text), &signer.key()),
                Err(NoteFlaw::Malformed),
                "{text}"
            );
        }
    }
}
