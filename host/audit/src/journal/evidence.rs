//! Journals in a home directory, as a verification reads them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_core::digest::Digest;

use super::LogWriter;
use super::checkpoint_file;
use super::line::{JournalLine, SealedPlace};
use super::segment::{LineText, SegmentReader, head_before, is_torn_from, open_sealed, read_part, segments};
use super::writer_dir;
use crate::error::{AuditError, AuditErrorKind};
use crate::evidence::{AuditEvidence, DerivedFinding, EvidenceLine, SealedState};

/// The files of a home, as they are when they are read.
pub(super) struct JournalEvidence {
    log: Arc<LogWriter>,
    /// The file of sealed parts that was read last.
    sealed: Mutex<Option<(PathBuf, Option<File>)>>,
}

impl JournalEvidence {
    pub(super) fn new(log: &Arc<LogWriter>) -> Self {
        Self { log: Arc::clone(log), sealed: Mutex::default() }
    }
}

/// Returns true if these segments lead to the first entry of the `next` one: they were pruned, and the process ended
/// before it removed them.
fn lead_to(dir: &Path, pruned: &[u64], next: Option<&u64>) -> Result<bool, AuditError> {
    let mut end = None;
    for first in pruned {
        let mut head = end.map_or_else(|| head_before(dir, *first), Ok)?;
        end = None;
        // Removed meanwhile.
        let Some(mut reader) = SegmentReader::open_regular(dir, *first)? else { continue };
        while let Some(read) = reader.next()? {
            if JournalLine::following(head, read.bytes).is_err() || !read.is_whole {
                return Ok(false);
            }
            head = head.after(read.bytes);
            end = Some(head);
        }
        if end.is_none() {
            return Ok(false);
        }
    }
    match (end, next) {
        (Some(end), Some(next)) => Ok(head_before(dir, *next)? == end),
        _ => Ok(true),
    }
}

impl AuditEvidence for JournalEvidence {
    fn writers(&self) -> Result<Vec<String>, AuditError> {
        let names = writer_dir::names(self.log.root())?;
        // A directory without a segment has no journal.
        let has_journal =
            |name: &String| segments(&self.log.root().join(name)).map(|segments| !segments.is_empty());
        let found = names.into_iter().map(|name| has_journal(&name).map(|has| has.then_some(name)));
        found.filter_map(Result::transpose).collect()
    }

    fn checkpoint(&self) -> Result<Option<String>, AuditError> {
        checkpoint_file::text(self.log.root())
    }

    fn read(
        &self,
        writer: &str,
        after: u64,
        visit: &mut dyn FnMut(EvidenceLine<'_>) -> Result<(), AuditError>,
    ) -> Result<(), AuditError> {
        let dir = self.log.root().join(writer);
        let firsts = segments(&dir)?;
        let newest = firsts.last().copied();
        let begin = firsts.iter().rposition(|first| *first <= after.saturating_add(1)).unwrap_or(0);
        // Older segments are left over from pruning only if they lead to it. Otherwise they are verified as well, since
        // hosts may read them.
        let (pruned, rest) = firsts.split_at_checked(begin).unwrap_or_default();
        let begin = if lead_to(&dir, pruned, rest.first())? { begin } else { 0 };
        let mut due = 0_u64;
        for segment in firsts.into_iter().skip(begin) {
            let is_newest = newest == Some(segment);
            let mut reader = match SegmentReader::open(&dir, segment) {
                Ok(Some(reader)) => reader,
                // Pruned meanwhile.
                Ok(None) => continue,
                // Something else than a file is in its place, which has no line that a host wrote.
                Err(error) if error.kind() == AuditErrorKind::Corrupt => {
                    let (position, text) = (0, &b""[..]);
                    visit(EvidenceLine { segment, position, is_whole: true, is_newest, text })?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (mut position, mut lines) = (0_u64, 0_u64);
            while let Some(line) = reader.next()? {
                let LineText { is_whole, bytes: text } = line;
                visit(EvidenceLine { segment, position, is_whole, is_newest, text })?;
                let length = (text.len() as u64).saturating_add(u64::from(is_whole));
                position = position.saturating_add(length);
                lines = lines.saturating_add(u64::from(is_whole));
            }
            // A host begins a segment after the last entry of the one before, and the next one after an entry of it.
            if position == 0 && (!is_newest || segment < due) {
                visit(EvidenceLine { segment, position, is_whole: false, is_newest: false, text: b"" })?;
            }
            due = segment.saturating_add(lines);
        }
        Ok(())
    }

    fn is_torn(&self, writer: &str, segment: u64, position: u64) -> Result<bool, AuditError> {
        is_torn_from(&self.log.root().join(writer), segment, position)
    }

    fn sealed(&self, writer: &str, segment: u64, place: &SealedPlace) -> Result<SealedState, AuditError> {
        let path = self.log.root().join(writer).join(segment.to_string());
        let mut opened = self.sealed.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.as_ref().is_none_or(|(of, _)| *of != path) {
            match open_sealed(&self.log.root().join(writer), segment) {
                Ok(file) => *opened = Some((path, file)),
                Err(error) if error.kind() == AuditErrorKind::Tampered => return Ok(SealedState::Changed),
                Err(error) => return Err(error),
            }
        }
        // Dropped with all that was sealed of the segment.
        let Some((_, Some(file))) = &*opened else { return Ok(SealedState::Intact) };
        let sealed = read_part(file, place.offset, place.bytes)?;
        let is_dropped = sealed.iter().all(|byte| *byte == 0);
        Ok(match (sealed.len() as u64) < place.bytes {
            true => SealedState::Short,
            false if Digest::sha256(&sealed).to_string() == place.sha256 || is_dropped => SealedState::Intact,
            false => SealedState::Changed,
        })
    }

    fn derived(&mut self) -> Result<Vec<DerivedFinding>, AuditError> {
        self.log.check_derived()
    }
}
