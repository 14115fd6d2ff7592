//! Journals in a home directory, as a verification reads them.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use super::LogWriter;
use super::checkpoint_file;
use super::line::{ChainHead, SealedPlace};
use super::segment::{SegmentReader, open_sealed, segments};
use super::writer_dir;
use crate::error::AuditError;
use crate::evidence::{AuditEvidence, DerivedFinding, EvidenceLine};
use crate::hex::hex;

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
        for segment in firsts.into_iter().skip(begin) {
            // Pruned meanwhile.
            let Some(mut reader) = SegmentReader::open(&dir, segment, ChainHead::EMPTY)? else { continue };
            let (mut is_first, is_newest) = (true, newest == Some(segment));
            while let Some(line) = reader.next_text()? {
                let is_first = std::mem::take(&mut is_first);
                visit(EvidenceLine {
                    segment,
                    is_first,
                    is_whole: line.is_whole,
                    is_newest,
                    text: line.bytes,
                })?;
            }
        }
        Ok(())
    }

    fn sealed_holds(&self, writer: &str, segment: u64, place: &SealedPlace) -> Result<bool, AuditError> {
        let path = self.log.root().join(writer).join(segment.to_string());
        let mut opened = self.sealed.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.as_ref().is_none_or(|(of, _)| *of != path) {
            *opened = Some((path, open_sealed(&self.log.root().join(writer), segment)?));
        }
        // Dropped with all that was sealed of the segment.
        let Some((_, Some(file))) = &mut *opened else { return Ok(true) };
        let mut sealed = Vec::new();
        let read = file
            .seek(SeekFrom::Start(place.offset))
            .and_then(|_| file.take(place.bytes).read_to_end(&mut sealed));
        read.map_err(AuditError::from_io)?;
        let sha256: [u8; 32] = Sha256::digest(&sealed).into();
        Ok(hex(&sha256) == place.sha256 || sealed.iter().all(|byte| *byte == 0))
    }

    fn derived(&mut self) -> Result<Vec<DerivedFinding>, AuditError> {
        self.log.check_derived()
    }
}
