//! The calls without an end of journals that no process holds: a journal is read again only after a change of its file.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_core::file_fingerprint::FileFingerprint;

use super::segment::{self, LINES, SegmentReader};
use super::{JournalLine, UnendedCalls, unended_of};
use crate::error::AuditError;

/// By the directory of a journal, the file of its newest segment with a line, and the calls without an end in it.
#[derive(Debug, Default)]
pub(crate) struct UnendedCache(HashMap<PathBuf, (FileFingerprint, Arc<UnendedCalls>)>);

impl UnendedCache {
    /// Returns the calls without an end according to the newest segment, whether a process holds the journal or not.
    pub(crate) fn read(&mut self, dir: &Path) -> Result<Arc<UnendedCalls>, AuditError> {
        let Some(newest) = segment::newest_with_line(dir)? else {
            self.0.remove(dir);
            return Ok(Arc::default());
        };
        let file = fs::symlink_metadata(segment::path_of(dir, newest, LINES));
        let file = file.ok().map(|file| FileFingerprint::from(&file)).filter(FileFingerprint::is_stable);
        if let (Some(file), Some((read, calls))) = (file, self.0.get(dir))
            && file == *read
        {
            return Ok(calls.clone());
        }
        let calls = Arc::new(read(dir, newest)?);
        match file {
            Some(file) => drop(self.0.insert(dir.to_owned(), (file, calls.clone()))),
            None => drop(self.0.remove(dir)),
        }
        Ok(calls)
    }
}

fn read(dir: &Path, newest: u64) -> Result<UnendedCalls, AuditError> {
    let last = segment::last_line(dir, newest)?;
    if let Some(Ok(last)) = last.as_deref().map(JournalLine::read)
        && let Some(none) = UnendedCalls::after_release(&last)
    {
        return Ok(none);
    }
    let reader = SegmentReader::open_regular(dir, newest)?;
    reader.map_or(Ok(UnendedCalls::default()), unended_of)
}
