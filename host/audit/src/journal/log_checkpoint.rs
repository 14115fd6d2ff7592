//! The signed statement about all journals of a home, so that a missing writer, segment or end is found.
//!
//! The text of the note is C2SP's checkpoint form: the origin, the size of the log, and the SHA-256 of the lines about
//! writers, in base64; then further lines. The size is the number of entries in all journals, of those that were removed
//! since, and of journals: it grows with each change, also with a removal.
//!
//! ```text
//! cofferdam audit log
//! 1024
//! <base64>
//! time 2026-11-24T12:00:00.000000Z
//! vault 3
//! writer <name> <entries> <hash of the last one> <removed entries> <hash of the last of these>
//! ```
//!
//! `vault` is the number of changes of the home's vault; it is absent in statements that leave the home. Entries that a
//! journal has beyond those in the statement were written since. The statement at the end of an export has a last line
//! `exported` or `exported part`: it ends there.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::event::log_event::LossAccepted;
use cofferdam_core::event::recorded::RecordedEvent;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::line::{ChainHead, EntryDraft};
use crate::error::{AuditError, AuditErrorKind};
use crate::hex::{hex, unhex};
use crate::note::{NoteFlaw, NoteKey, NoteSigner};
use crate::verify::{AcknowledgedFinding, FindingKind};

/// The origin line of statements about journals.
const ORIGIN: &str = "cofferdam audit log";

/// The journal of a writer according to a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SignedJournal {
    /// The last entry.
    pub head: ChainHead,
    /// The last entry that was removed, since it was older than the operator keeps.
    pub base: ChainHead,
}

/// Has journals end with these entries, as far as they do not go on already.
pub fn end_journals<W: ToString>(journals: &mut BTreeMap<String, SignedJournal>, heads: &[(W, ChainHead)]) {
    for (writer, head) in heads {
        let journal = journals.entry(writer.to_string()).or_default();
        if journal.head.n <= head.n {
            journal.head = *head;
        }
    }
}

/// Has journals begin after these entries.
pub fn begin_journals<W: ToString>(
    journals: &mut BTreeMap<String, SignedJournal>,
    bases: &BTreeMap<W, ChainHead>,
) {
    for (writer, base) in bases {
        let journal = journals.entry(writer.to_string()).or_default();
        journal.base = *base;
        if journal.head.n < base.n {
            journal.head = *base;
        }
    }
}

/// A statement about all journals of a home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogCheckpoint {
    /// When it was signed.
    pub at: Timestamp,
    /// The number of changes of the home's vault.
    pub vault: Option<u64>,
    /// By the name of the writer.
    pub journals: BTreeMap<String, SignedJournal>,
    /// The export that ends with the statement.
    pub(crate) export: Option<ExportScope>,
}

/// The part of an audit log that an export has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExportScope {
    /// All entries that there are.
    Whole,
    /// The entries of some time.
    Part,
}

impl ExportScope {
    const fn line(self) -> &'static str {
        match self {
            Self::Whole => "exported",
            Self::Part => "exported part",
        }
    }
}

impl LogCheckpoint {
    /// Creates a statement about these journals.
    pub fn new(at: Timestamp, journals: BTreeMap<String, SignedJournal>) -> Self {
        Self { at, vault: None, journals, export: None }
    }

    /// Returns the number of entries of all journals, removed ones included, of removals, and of journals.
    pub fn size(&self) -> u64 {
        self.journals.values().fold(0, |sum, SignedJournal { head, base }| {
            sum.saturating_add(head.n).saturating_add(base.n).saturating_add(1)
        })
    }

    /// Returns the SHA-256 of all that is said of the journals.
    pub fn root(&self) -> [u8; 32] {
        Sha256::digest(self.writer_lines().as_bytes()).into()
    }

    /// Returns the signed note.
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
        // A statement has one spelling.
        (checkpoint.text() == text).then_some(checkpoint).ok_or(NoteFlaw::Malformed)
    }

    fn writer_lines(&self) -> String {
        let mut lines = String::new();
        for (name, SignedJournal { head, base }) in &self.journals {
            let (head_hash, base_hash) = (hex(&head.hash), hex(&base.hash));
            // Writing to memory cannot fail.
            let _ = writeln!(lines, "writer {name} {} {head_hash} {} {base_hash}", head.n, base.n);
        }
        lines
    }

    fn text(&self) -> String {
        let (size, root, at) = (self.size(), STANDARD.encode(self.root()), self.at);
        let vault = self.vault.map(|vault| format!("vault {vault}\n")).unwrap_or_default();
        let export = self.export.map(|scope| format!("{}\n", scope.line())).unwrap_or_default();
        format!("{ORIGIN}\n{size}\n{root}\ntime {at:.6}\n{vault}{}{export}", self.writer_lines())
    }
}

/// The statement about the journals of a log, as it is stored.
pub enum StoredCheckpoint {
    /// There is none.
    Missing,
    /// Something else than a statement that a host with this key signed.
    Invalid,
    /// A statement.
    Valid(LogCheckpoint),
}

impl StoredCheckpoint {
    /// Reads what is stored; `key` is none if `host.key` cannot be used.
    pub fn read(note: Option<&str>, key: Option<&NoteKey>) -> Self {
        let Some(note) = note else { return Self::Missing };
        let read = key.and_then(|key| LogCheckpoint::read(note, key).ok());
        // The statement at the end of an export is about a part of the log.
        let read = read.filter(|checkpoint| checkpoint.export.is_none());
        read.map_or(Self::Invalid, Self::Valid)
    }

    /// Returns the statement; none if it is missing or was changed.
    pub fn valid(self) -> Option<LogCheckpoint> {
        match self {
            Self::Valid(checkpoint) => Some(checkpoint),
            Self::Missing | Self::Invalid => None,
        }
    }

    /// Returns the statement that the next one is made from; none for the first one of a log that `is_new`. One that is
    /// missing or was changed is evidence, and stays as it is.
    ///
    /// # Errors
    /// `Tampered`: it is missing or was changed. `name` is its name for the operator.
    pub fn signable(self, is_new: bool, name: &str) -> Result<Option<LogCheckpoint>, AuditError> {
        let what = match self {
            Self::Valid(checkpoint) => return Ok(Some(checkpoint)),
            Self::Missing if is_new => return Ok(None),
            Self::Missing => "was removed",
            Self::Invalid => "was changed",
        };
        let what = format_args!("{name} {what}, and is not made again; `cofferdam audit verify` says more");
        Err(AuditError::new(AuditErrorKind::Tampered, what))
    }
}

fn parse(text: &str) -> Option<LogCheckpoint> {
    // The size and the hash follow from the other lines.
    let mut lines = text.strip_prefix(ORIGIN)?.strip_prefix('\n')?.lines().skip(2).peekable();
    let at = lines.next()?.strip_prefix("time ")?.parse().ok()?;
    let vault = match lines.next_if(|line| line.starts_with("vault ")) {
        Some(line) => Some(line.strip_prefix("vault ")?.parse().ok()?),
        None => None,
    };
    let mut journals = BTreeMap::new();
    while let Some(line) = lines.next_if(|line| line.starts_with("writer ")) {
        let (name, journal) = journal(line)?;
        journals.insert(name, journal);
    }
    let scopes = [ExportScope::Whole, ExportScope::Part];
    let export = match lines.next() {
        Some(line) => Some(scopes.into_iter().find(|scope| scope.line() == line)?),
        None => None,
    };
    lines.next().is_none().then_some(LogCheckpoint { at, vault, journals, export })
}

fn journal(line: &str) -> Option<(String, SignedJournal)> {
    let mut words = line.strip_prefix("writer ")?.split(' ');
    let name = words.next().filter(|name| Uuid::try_parse(name).is_ok())?.to_owned();
    let mut head = || Some(ChainHead { n: words.next()?.parse().ok()?, hash: unhex(words.next()?)? });
    let journal = SignedJournal { head: head()?, base: head()? };
    words.next().is_none().then_some((name, journal))
}

/// The origin line of statements with accepted findings.
const ACCEPTED_ORIGIN: &str = "cofferdam audit log, accepted findings";

/// Returns the entry in which an operator accepts these findings. It is signed: the entries of a journal since its last
/// checkpoint can be written by anything that can write the file. `checkpoint` is the statement that is replaced then.
///
/// ```text
/// cofferdam audit log, accepted findings
/// time 2026-11-24T12:00:00.000000Z
/// finding <writer, or -> <entry> <kind> <SHA-256 of what it is found in>
/// ```
pub fn accepted_entry(
    findings: &[AcknowledgedFinding],
    checkpoint: Option<String>,
    at: Timestamp,
    signer: &NoteSigner,
) -> EntryDraft {
    let mut text = format!("{ACCEPTED_ORIGIN}\ntime {at:.6}\n");
    for AcknowledgedFinding { writer, n, flaw, of } in findings {
        let writer = writer.as_deref().unwrap_or(NO_WRITER);
        let _ = writeln!(text, "finding {writer} {n} {} {}", flaw.name(), hex(of));
    }
    let facts = LossAccepted { accepted: signer.sign(&text), checkpoint };
    EntryDraft::of_log(at, &RecordedEvent::LossAccepted(facts))
}

/// The name in the place of a writer's.
const NO_WRITER: &str = "-";

/// Reads the accepted findings in a note that `key` signed.
///
/// # Errors
/// It is none, or not this key's.
pub(crate) fn read_accepted(note: &str, key: &NoteKey) -> Result<Vec<AcknowledgedFinding>, NoteFlaw> {
    let mut lines = key.text_of(note)?.lines();
    let is_one = lines.next() == Some(ACCEPTED_ORIGIN) && lines.next().is_some();
    let findings = lines.map(accepted_finding).collect::<Option<_>>();
    findings.filter(|_| is_one).ok_or(NoteFlaw::Malformed)
}

fn accepted_finding(line: &str) -> Option<AcknowledgedFinding> {
    let mut words = line.strip_prefix("finding ")?.split(' ');
    let writer = words.next().filter(|writer| *writer != NO_WRITER).map(str::to_owned);
    let (n, flaw, of) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    Some(AcknowledgedFinding { writer, n, flaw: FindingKind::from_name(flaw)?, of: unhex(of)? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use super::*;

    #[test]
    fn statements_about_journals_round_trip() {
        let signer = NoteSigner::new(&[7; 32]);
        let journal = |n| SignedJournal { head: ChainHead { n, hash: [3; 32] }, base: ChainHead::EMPTY };
        for (vault, writers) in [(None, 0_u8), (Some(0), 1), (Some(u64::MAX), 2)] {
            let journals =
                (0..writers).map(|n| (Uuid::from_u128(n.into()).to_string(), journal(n.into()))).collect();
            let at = Timestamp::from_microsecond(1_700_000_000_000_001).unwrap();
            let export = [None, Some(ExportScope::Whole), Some(ExportScope::Part)][usize::from(writers)];
            let checkpoint = LogCheckpoint { at, vault, journals, export };
            let note = checkpoint.sign(&signer);
            assert_eq!(LogCheckpoint::read(&note, &signer.key()), Ok(checkpoint), "{note}");
            let other = NoteSigner::new(&[8; 32]).key();
            assert_eq!(LogCheckpoint::read(&note, &other), Err(NoteFlaw::Foreign));
        }
    }

    #[test]
    fn statements_have_one_spelling() {
        let signer = NoteSigner::new(&[7; 32]);
        let checkpoint =
            LogCheckpoint { at: Timestamp::UNIX_EPOCH, vault: None, journals: BTreeMap::new(), export: None };
        let text = checkpoint.text();
        let name = Uuid::nil();
        let zeros = hex(&[0; 32]);
        for text in [
            text.replace("\n0\n", "\n1\n"),
            text.replace("log\n", "\n"),
            format!("{text}writer {name} 1 {zeros} 0 {zeros}\n"),
            format!("{text}writer ../x 0 {zeros} 0 {zeros}\n"),
            format!("{text}\n"),
            format!("{text}exported\nexported\n"),
        ] {
            let read = LogCheckpoint::read(&signer.sign(&text), &signer.key());
            assert_eq!(read, Err(NoteFlaw::Malformed), "{text}");
        }
    }
}
