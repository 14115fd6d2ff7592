//! Exports: the chain as lines of JSON, which any holder of the public key can verify without the audit log.
//!
//! ```text
//! {"export":1,"origin":"cofferdam audit","key":"cofferdam-audit+...","part":false,"base":null}
//! {"n":1,"hash":"<64 digits>","prev_hash":"<64 digits>","body":{...}}
//! {"checkpoint":"cofferdam audit\n1000\n..."}
//! ```
//!
//! A body is included as the text that was hashed, which is JSON; so a line is checked byte by byte, and has
//! one spelling. The first line contains the entry after which the export begins: `base` is null at the very
//! beginning, and otherwise a signed statement. The last line is a signed statement about the last entry, which
//! says that the export ends there: an export that was truncated after an earlier statement is not accepted as
//! complete.

use std::io::{self, BufRead, Read as _, Write};

use serde::{Deserialize, Serialize};

use super::checkpoint::{Checkpoint, ORIGIN, Statement};
use super::entry::GENESIS;
use super::log::StoredEntry;
use super::note::NoteKey;
use super::verify::{Flaw, Outcome, Verifier};

/// The version of the form.
const FORM: u8 = 1;

/// Longest line, in bytes: of events, each of whose texts has a limit.
const LINE_BYTES: u64 = 64 * 1024 * 1024;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    export: u8,
    origin: String,
    /// The public key, for readers that have no better source.
    key: String,
    /// True if the export covers only a part of the audit log.
    part: bool,
    /// The statement about the entry before the first.
    base: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    checkpoint: String,
}

/// Writes an export.
pub struct Exporter<'w> {
    out: &'w mut dyn Write,
    before: [u8; 32],
}

impl<'w> Exporter<'w> {
    /// Begins after an entry with this hash.
    pub fn begin(
        out: &'w mut dyn Write,
        key: &NoteKey,
        part: bool,
        base: Option<(String, [u8; 32])>,
    ) -> io::Result<Self> {
        let (base, before) = match base {
            Some((note, hash)) => (Some(note), hash),
            None => (None, GENESIS),
        };
        let header = Header { export: FORM, origin: ORIGIN.to_owned(), key: key.to_string(), part, base };
        writeln!(out, "{}", line_of(&header))?;
        Ok(Self { out, before })
    }

    /// Writes one entry.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn entry(&mut self, entry: &StoredEntry) -> io::Result<()> {
        writeln!(self.out, "{}", line_of_entry(entry, &self.before))?;
        self.before = entry.hash;
        Ok(())
    }

    /// Writes one signed statement.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn checkpoint(&mut self, note: &str) -> io::Result<()> {
        writeln!(self.out, "{}", line_of(&Signed { checkpoint: note.to_owned() }))
    }
}

/// Why an export cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Its first line is not that of an export.
    #[error("it is no export of a record: {0}")]
    NoExport(&'static str),
}

/// The result of checking an export.
pub struct Checked {
    pub outcome: Outcome,
    pub key: NoteKey,
    /// True if the export covers only a part of the audit log.
    pub part: bool,
}

/// Checks an export with `key`, or with the key that it names itself.
pub fn check(
    lines: &mut dyn BufRead,
    key: Option<&NoteKey>,
    pinned: &[String],
    progress: &mut dyn FnMut(u64),
) -> Result<Checked, ExportError> {
    let first = next(lines)?.ok_or(ExportError::NoExport("it is empty"))?;
    let header: Header = serde_json::from_str(&first)
        .ok()
        .filter(|header| line_of(header) == first)
        .ok_or(ExportError::NoExport("its first line does not say what it is"))?;
    if header.export != FORM || header.origin != ORIGIN {
        return Err(ExportError::NoExport("it has a form that this cofferdam does not know"));
    }
    let own = NoteKey::parse(&header.key).ok_or(ExportError::NoExport("its first line names no key"))?;
    let key = key.cloned().unwrap_or_else(|| own.clone());
    let mut verifier = Verifier::new(&key);
    if header.part {
        verifier.is_a_part();
    }
    if key != own {
        let what = format!("the export names the key {}, and {} is to be the one", own.id(), key.id());
        verifier.find(0, None, None, Flaw::Signature, what);
    }
    if let Some(note) = &header.base {
        match Checkpoint::read(note, &key) {
            // A part begins after any entry, the whole of a pruned record after the last that was pruned.
            Ok(Checkpoint { n, hash, statement, .. }) if header.part || statement == Statement::Pruned => {
                verifier.begin_after(n, hash);
            }
            _ => {
                let what = "what the export says of its beginning is not signed".to_owned();
                verifier.find(0, None, None, Flaw::Signature, what);
                verifier.begin_anywhere();
            }
        }
    }
    pinned.iter().for_each(|note| drop(verifier.note(note, 0, "a checkpoint kept elsewhere")));
    let (mut number, mut is_over) = (1, false);
    while let Some(line) = next(lines)? {
        number += 1_u64;
        if std::mem::take(&mut is_over) {
            let what = format!("line {number} comes after the end of the export");
            verifier.find(verifier.n().saturating_add(1), None, None, Flaw::Line, what);
        }
        if let Some(entry) = entry_of(&line) {
            let before = verifier.hash();
            if line_of_entry(&entry, &before) != line && entry.n == verifier.n().saturating_add(1) {
                let what = format!("line {number} does not name the hash of the entry before it");
                verifier.find(entry.n, None, None, Flaw::Line, what);
            }
            drop(verifier.entry(&entry, None));
        } else if let Some(note) = note_of(&line) {
            let signed = verifier.note(&note, verifier.n(), "the export");
            let n = verifier.n();
            // Of a whole record or of a part: of which, is signed here, and the first line has to say the same.
            let end = Statement::Exported { part: header.part };
            is_over = signed.as_ref().is_some_and(|said| said.n == n && said.statement == end);
            let signed = signed.map(|signed| signed.n);
            // One that does not hold is a finding already.
            if let Some(signed) = signed.filter(|signed| *signed != n) {
                let what = format!("the checkpoint in line {number} is not one about the entry before it");
                verifier.find(if signed > n { n.saturating_add(1) } else { n }, None, None, Flaw::Line, what);
            }
        } else {
            let what = format!("line {number} is not as it was written");
            verifier.find(verifier.n().saturating_add(1), None, None, Flaw::Line, what);
        }
        progress(verifier.n());
    }
    if !is_over {
        let what = format!(
            "the export ends with entry {}, and not with the statement that it ends there, as the whole or the part that \
             its first line says: its end is missing, or its first line was changed",
            verifier.n()
        );
        verifier.find(verifier.n().saturating_add(1), None, None, Flaw::Truncated, what);
    }
    drop(verifier.without_an_end());
    let mut outcome = verifier.end();
    // An export has neither the lists nor what is sealed: it cannot show that these are as they were written.
    outcome.put_back.retain(|(_, flaw)| matches!(flaw, Flaw::Edited | Flaw::Unreadable));
    Ok(Checked { outcome, part: header.part, key })
}

/// Returns the next line without its end. A line that has no end, is too long or is not UTF-8 is returned as an
/// empty text, which no host writes.
fn next(lines: &mut dyn BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let read = (&mut *lines).take(LINE_BYTES).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    Ok(Some(match line.strip_suffix(b"\n") {
        Some(line) => String::from_utf8(line.to_vec()).unwrap_or_default(),
        None => String::new(),
    }))
}

fn line_of(line: &impl Serialize) -> String {
    // Texts, numbers and truths: nothing in it can fail.
    serde_json::to_string(line).unwrap_or_default()
}

fn line_of_entry(entry: &StoredEntry, before: &[u8; 32]) -> String {
    let (n, hash, before) = (entry.n, hex(&entry.hash), hex(before));
    format!("{{\"n\":{n},\"hash\":\"{hash}\",\"prev_hash\":\"{before}\",\"body\":{}}}", entry.body)
}

/// The entry of a line, whatever it says of the hash before it.
fn entry_of(line: &str) -> Option<StoredEntry> {
    let (n, rest) = line.strip_prefix("{\"n\":")?.split_once(",\"hash\":\"")?;
    let (hash, rest) = rest.split_once("\",\"prev_hash\":\"")?;
    let (before, body) = rest.split_once("\",\"body\":")?;
    let body = body.strip_suffix('}')?;
    let entry = StoredEntry { n: n.parse().ok()?, body: body.to_owned(), hash: unhex(hash)? };
    // One spelling.
    (line_of_entry(&entry, &unhex(before)?) == line).then_some(entry)
}

fn note_of(line: &str) -> Option<String> {
    let signed: Signed = serde_json::from_str(line).ok()?;
    (line_of(&signed) == line).then_some(signed.checkpoint)
}
