//! Exports: the lines of journals as they are, which any holder of the public key can verify without the audit log.
//!
//! ```text
//! {"export":2,"key":"cofferdam-audit+...","part":false}
//! {"journal":"<writer>","after":{"n":0,"hash":"<64 digits>"}}
//! <the lines of the journal>
//! {"checkpoint":"cofferdam audit log\n..."}
//! ```
//!
//! The last line is a signed statement about where each journal begins and ends, which says that the export ends there:
//! an export that was cut off is not accepted as complete. Each line has one spelling.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _, Write};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::AuditError;
use crate::evidence::{AuditEvidence, EvidenceLine, LeftOver};
use crate::hex::{hex, unhex};
use crate::journal::{ChainHead, ExportScope, JournalLine, LINE_BYTES, LogCheckpoint, SignedJournal};
use crate::note::{NoteKey, NoteSigner};
use crate::verify::{FINDINGS, FindingKind, Verifier, VerifyOutcome};

/// The version of the form.
const FORMAT_VERSION: u8 = 2;

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    export: u8,
    /// The public key, for readers that have no better source.
    key: String,
    /// True if the export covers only some time.
    part: bool,
}

/// The line before those of a journal.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JournalHeader {
    journal: String,
    after: EntryHash,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryHash {
    n: u64,
    hash: String,
}

/// The last line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Footer {
    checkpoint: String,
}

/// The time that an export covers.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExportRange {
    /// Entries from then on.
    pub since: Option<Timestamp>,
    /// Entries before then.
    pub until: Option<Timestamp>,
}

/// The reason why an export cannot be made or checked.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// It cannot be written or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Its first line is not that of an export.
    #[error("it is no export of an audit log: {0}")]
    NoExport(&'static str),
    /// The audit log cannot be read.
    #[error(transparent)]
    Log(#[from] AuditError),
    /// An entry does not follow the one before it.
    #[error("entry {n} of the journal {writer} was changed, or does not belong there")]
    Tampered {
        /// The writer of the journal.
        writer: String,
        /// The number of the entry.
        n: u64,
    },
}

/// The result of checking an export.
#[derive(Debug)]
pub struct CheckedExport {
    /// The findings, and what was checked.
    pub outcome: VerifyOutcome,
    /// The key that must have signed it.
    pub key: NoteKey,
    /// True if the export covers only some time.
    pub part: bool,
}

/// Writes the entries of this time, and returns their number. `progress` gets the number of entries that were read.
///
/// # Errors
/// The log cannot be read, or the output not be written. With `is_strict`, an entry that does not follow the one before
/// it is an error, too.
pub fn export(
    evidence: &dyn AuditEvidence,
    signer: &NoteSigner,
    range: ExportRange,
    is_strict: bool,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ExportError> {
    let scope = match range.since.is_some() || range.until.is_some() {
        true => ExportScope::Part,
        false => ExportScope::Whole,
    };
    let header =
        Header { export: FORMAT_VERSION, key: signer.key().to_string(), part: scope == ExportScope::Part };
    let writers = evidence.writers()?;
    let signed = evidence.checkpoint()?.and_then(|note| LogCheckpoint::read(&note, &signer.key()).ok());
    let mut exported = ExportedLines { out, header, read: 0, written: 0, journals: BTreeMap::new() };
    for writer in writers {
        let journal = signed.as_ref().and_then(|signed| signed.journals.get(&writer));
        let base = journal.map_or(ChainHead::EMPTY, |journal| journal.base);
        let (mut head, mut error, mut is_over, mut left_over) = (base, None, false, LeftOver::default());
        evidence.read(&writer, base.n, &mut |line: EvidenceLine<'_>| {
            let end = journal.map_or(0, |journal| journal.head.n);
            let is_torn = || evidence.is_torn(&writer, line.segment, line.position);
            if is_over || left_over.has(&line, head, end, is_torn)? || error.is_some() || !line.is_whole {
                return Ok(());
            }
            if is_strict && JournalLine::following(head, line.text).is_err() {
                let (writer, n) = (writer.clone(), head.n.saturating_add(1));
                error = Some(ExportError::Tampered { writer, n });
                return Ok(());
            }
            let before = head;
            let n = JournalLine::read(line.text).map_or(head.n.saturating_add(1), |line| line.n);
            head = ChainHead::at(n, line.text);
            let at = time_of(line.text);
            is_over = range.until.is_some_and(|until| at.is_some_and(|at| at >= until));
            let is_due = !is_over && range.since.is_none_or(|since| at.is_none_or(|at| at >= since));
            if is_due || !is_over && exported.journals.contains_key(&writer) {
                error = exported.line(&writer, before, head, line.text).err().map(ExportError::Io);
            }
            exported.read = exported.read.saturating_add(1);
            progress(exported.read);
            Ok(())
        })?;
        if let Some(error) = error {
            return Err(error);
        }
    }
    let ExportedLines { out, written, journals, .. } = exported;
    if written > 0 {
        let (at, export) = (Timestamp::now(), Some(scope));
        let checkpoint = LogCheckpoint { at, vault: None, journals, export }.sign(signer);
        writeln!(out, "{}", line_of(&Footer { checkpoint }))?;
    }
    Ok(written)
}

/// The lines that were exported.
struct ExportedLines<'o> {
    out: &'o mut dyn Write,
    header: Header,
    read: u64,
    written: u64,
    journals: BTreeMap<String, SignedJournal>,
}

impl ExportedLines<'_> {
    fn line(&mut self, writer: &str, before: ChainHead, head: ChainHead, text: &[u8]) -> io::Result<()> {
        // An output without entries stays empty, since it is no export.
        if self.written == 0 {
            writeln!(self.out, "{}", line_of(&self.header))?;
        }
        if !self.journals.contains_key(writer) {
            let after = EntryHash { n: before.n, hash: hex(&before.hash) };
            writeln!(self.out, "{}", line_of(&JournalHeader { journal: writer.to_owned(), after }))?;
            self.journals.insert(writer.to_owned(), SignedJournal { head: before, base: before });
        }
        if let Some(journal) = self.journals.get_mut(writer) {
            journal.head = head;
        }
        self.written = self.written.saturating_add(1);
        self.out.write_all(text)?;
        self.out.write_all(b"\n")
    }
}

/// Returns the time of a line: of its first event, or of what it says of the log.
fn time_of(text: &[u8]) -> Option<Timestamp> {
    let (_, rest) = std::str::from_utf8(text).ok()?.split_once("\"at\":\"")?;
    rest.split('"').next()?.parse().ok()
}

/// Checks an export with `key`, or with the key that it names itself. `pinned` are statements that are stored elsewhere.
///
/// # Errors
/// The export cannot be read, or is none.
pub fn verify_export(
    lines: &mut dyn BufRead,
    key: Option<&NoteKey>,
    pinned: &[String],
    progress: &mut dyn FnMut(u64),
) -> Result<CheckedExport, ExportError> {
    let first = next(lines)?.ok_or(ExportError::NoExport("it is empty"))?;
    let header: Header =
        exact(&first).ok_or(ExportError::NoExport("its first line does not say what it is"))?;
    if header.export != FORMAT_VERSION {
        return Err(ExportError::NoExport("it has a form that this cofferdam does not know"));
    }
    let own = NoteKey::parse(&header.key).ok_or(ExportError::NoExport("its first line names no key"))?;
    let key = key.cloned().unwrap_or_else(|| own.clone());
    let mut verifier = Verifier::new(&key, FINDINGS);
    if key != own {
        let what = format!("the export names the key {}, and {} is to be the one", own.id(), key.id());
        verifier.find(0, FindingKind::Signature, what);
    }
    verifier.is_part = header.part;
    pinned.iter().for_each(|note| drop(verifier.note(note, "a checkpoint kept elsewhere")));
    let mut journals = BTreeMap::<String, SignedJournal>::new();
    let (mut is_begun, mut footer) = (false, None);
    let (mut number, mut read) = (1_u64, 0_u64);
    while let Some(line) = next(lines)? {
        number = number.saturating_add(1);
        if footer.is_some() {
            verifier.find(0, FindingKind::Line, format!("line {number} comes after the end of the export"));
            continue;
        }
        if let Some(header) = exact::<JournalHeader>(&line) {
            journals.extend(verifier.end_journal());
            let hash = unhex(&header.after.hash);
            let base = ChainHead { n: header.after.n, hash: hash.unwrap_or_default() };
            if journals.contains_key(&header.journal) || hash.is_none() {
                let what = format!("line {number} does not begin a journal");
                verifier.find(0, FindingKind::Line, what);
            }
            verifier.begin_journal(&header.journal, base);
            is_begun = true;
        } else if let Some(note) = exact::<Footer>(&line) {
            journals.extend(verifier.end_journal());
            footer = Some(note.checkpoint);
        } else if is_begun {
            drop(verifier.line(&line));
            read = read.saturating_add(1);
            progress(read);
        } else {
            verifier.find(0, FindingKind::Line, format!("line {number} is in no journal"));
        }
    }
    journals.extend(verifier.end_journal());
    check_end(&mut verifier, footer.as_deref(), &journals, header.part);
    if !header.part {
        verifier.miss_unchecked();
    }
    let mut outcome = verifier.end();
    // An export has neither the keys nor what is sealed: it cannot show that these are as they were written.
    outcome.put_back.retain(|it| matches!(it.flaw, FindingKind::Edited | FindingKind::Unreadable));
    Ok(CheckedExport { outcome, part: header.part, key })
}

/// Compares what was read with the signed statement at the end.
fn check_end(
    verifier: &mut Verifier<'_>,
    footer: Option<&str>,
    journals: &BTreeMap<String, SignedJournal>,
    part: bool,
) {
    let scope = if part { ExportScope::Part } else { ExportScope::Whole };
    let Some(footer) = footer else {
        let what = "the export ends without the statement that it ends there: its end is missing".to_owned();
        return verifier.find(0, FindingKind::Truncated, what);
    };
    let Some(signed) = verifier.signed(footer, "the export") else { return };
    if signed.export != Some(scope) {
        let what = "the statement at the end is not about an export like this one".to_owned();
        verifier.find(0, FindingKind::Line, what);
    }
    for (writer, expected) in &signed.journals {
        let what = match journals.get(writer) {
            None => format!("the journal {writer} is missing"),
            Some(found) if found == expected => continue,
            Some(found) if found.base != expected.base => {
                format!("the journal {writer} does not begin where it was signed to begin")
            }
            Some(found) if found.head.n < expected.head.n => {
                format!(
                    "the journal {writer} ends with entry {}, and was signed up to entry {}",
                    found.head.n, expected.head.n
                )
            }
            Some(_) => format!("the journal {writer} is not the one that was signed"),
        };
        let read = journals.get(writer).map_or(0, |found| found.head.n);
        let (n, flaw) = match read < expected.head.n {
            true => (read.saturating_add(1), FindingKind::Truncated),
            false => (expected.head.n, FindingKind::Rewritten),
        };
        verifier.find_of(writer, n, flaw, what);
    }
    for writer in journals.keys().filter(|writer| !signed.journals.contains_key(*writer)) {
        let what = format!("no signed statement is about the journal {writer}");
        verifier.find(0, FindingKind::Signature, what);
    }
}

/// Reads a line that has exactly the form in which it is written.
fn exact<T: Serialize + for<'d> Deserialize<'d>>(line: &[u8]) -> Option<T> {
    serde_json::from_slice(line).ok().filter(|read| line_of(read).as_bytes() == line)
}

/// Returns the next line without its end. A line that has no end, or is too long, is returned as an empty one, which
/// no host writes.
fn next(lines: &mut dyn BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = (&mut *lines).take(LINE_BYTES).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.pop_if(|byte| *byte == b'\n').is_none() {
        line.clear();
    }
    Ok(Some(line))
}

fn line_of(line: &impl Serialize) -> String {
    // Texts, numbers and truths: nothing in it can fail.
    serde_json::to_string(line).unwrap_or_default()
}
