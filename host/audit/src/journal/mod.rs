//! The journal of one writer: append-only segments of chained lines.

mod accept;
mod checkpoint_file;
mod commit;
mod disk_usage;
mod evidence;
mod key_claims;
mod key_facts;
mod keys;
mod line;
mod log;
mod log_checkpoint;
mod log_time;
mod maintenance;
mod prune;
mod prune_facts;
mod resolution;
mod segment;
mod stored_key;
#[cfg(test)]
mod tests;
mod unended;
mod unended_cache;
mod writer_dir;

use std::collections::BTreeMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::event::log_event::WriterTaken;
use cofferdam_core::event::recorded::RecordedEvent;
use cofferdam_core::failpoint;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

pub(crate) use disk_usage::disk_usage;
pub use key_facts::{KeyFact, decided as key_decided, decision};
pub use line::{ChainHead, EntryDraft, JournalLine, LineFault, LogEvent, SealedPlace, indexed_line};
use log::LogWriter;
pub(crate) use log::on_waiting_thread;
pub use log::{JournalLog, LATE_ENDS, keeps_late_end};
pub(crate) use log_checkpoint::{ExportScope, read_accepted};
pub use log_checkpoint::{
    LogCheckpoint, SignedJournal, StoredCheckpoint, accepted_entry, begin_journals, end_journals,
};
pub use log_time::{ClockState, accepted_time_in, believed_time, check_clock, clock_state, log_time_at};
pub use prune_facts::{HeldKey, JournalCut, KeptFacts, PruneTimes, prune_entries, prune_result};
use segment::{AppendError, Segment, SegmentEnd, SegmentLengths, sync_paths};
pub(crate) use segment::{
    LINE_BYTES, SegmentReader, drop_sealed, open_lines, open_sealed, read_sealed, segments,
};
use stored_key::SealedOutcome;
pub use stored_key::{StepOf, StoredKey, StoredKeyState, key_differences, key_digest, key_state};
pub use unended::first_entry;
pub(crate) use unended::{SEGMENT_BEGUN, UnendedCalls, ends_call};
pub(crate) use unended_cache::UnendedCache;
pub(crate) use writer_dir::{WriterDir, names as writer_names};

use crate::error::{AuditError, AuditErrorKind};
use crate::settings::Durability;

/// The length at which a segment is followed by the next one. A process reads at most one segment to know the calls
/// that have no end.
const SEGMENT_BYTES: u64 = 8 * 1024 * 1024;

/// The age at which a segment is followed by the next one, so that old calls can be removed. One that was begun by a
/// clock so far ahead is followed as well, so that what the clock does afterwards is seen.
const SEGMENT_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The settings of a journal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JournalSettings {
    pub(crate) durability: Durability,
    /// The length in bytes at which a segment is followed by the next one.
    pub(crate) segment_bytes: u64,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self { durability: Durability::Process, segment_bytes: SEGMENT_BYTES }
    }
}

/// The journal of a writer that this process holds.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: WriterDir,
    settings: JournalSettings,
    head: ChainHead,
    /// An entry up to which all are on the disk.
    synced: u64,
    /// None if the next entry begins a segment.
    segment: Option<Segment>,
    /// The calls without an end.
    unended: UnendedCalls,
    /// True if a line of the newest segment was changed before an entry that was signed for.
    is_changed: bool,
    /// Bytes that were cut off the end; none once this process has written that it took the journal.
    untold: Option<u64>,
    lines: Vec<u8>,
    sealed: Vec<u8>,
    /// The failpoint at which the next write panics.
    #[cfg(test)]
    panics_at: Option<&'static str>,
}

/// Returns the entry that a process writes before its first one. `cut_bytes` are those of a last line without an end,
/// which were removed.
pub fn writer_taken(at: Timestamp, cut_bytes: u64) -> EntryDraft {
    let taken = WriterTaken { cut_bytes, version: env!("CARGO_PKG_VERSION").to_owned() };
    EntryDraft::of_log(at, &RecordedEvent::WriterTaken(taken))
}

impl Journal {
    /// Takes a journal below `root` that no process holds, or begins one.
    ///
    /// A journal with calls that have no end is not taken: as long as a process held it, these could not be resumed by
    /// another one. Nor is one whose end does not hold together, or that is not the one that was signed: continuing it
    /// would hide what is missing.
    pub(crate) fn take(
        root: &Path,
        settings: JournalSettings,
        signed: &BTreeMap<String, ChainHead>,
    ) -> Result<Self, AuditError> {
        for name in writer_dir::names(root)? {
            let Some(dir) = WriterDir::try_take_regular(root, &name)? else { continue };
            let signed = signed.get(&name).copied();
            match Self::open(dir, settings, signed)? {
                Some(mut journal) => {
                    let is_known = signed.is_some() || journal.head.n == 0;
                    if is_known && !journal.is_changed && journal.unended.is_empty() {
                        journal.dir.keep()?;
                        return Ok(journal);
                    }
                }
                None => {
                    tracing::warn!(target: "cofferdam::audit", writer = name, "the journal is damaged, and is not continued; `cofferdam audit verify` says more");
                }
            }
        }
        let mut dir = WriterDir::create(root)?;
        dir.keep()?;
        let begun = Self::open(dir, settings, Some(ChainHead::EMPTY))?;
        begun.ok_or_else(|| AuditError::new(AuditErrorKind::Other, "a new journal is not empty"))
    }

    /// Opens the journal in this directory; none if its end does not hold together, or is not the one that was `signed`.
    /// Without a signed end, nothing but a last line without its end is removed.
    pub(crate) fn open(
        dir: WriterDir,
        settings: JournalSettings,
        signed: Option<ChainHead>,
    ) -> Result<Option<Self>, AuditError> {
        let (mut firsts, path) = (segments(dir.path())?, dir.path());
        let (mut segment, mut end, mut begun_bytes) = (None, SegmentEnd::default(), 0_u64);
        while let Some(first) = firsts.pop() {
            let mut newest = match Segment::open(path, first) {
                // Something else than a file is in its place.
                Err(error) if error.kind() == AuditErrorKind::Corrupt => return Ok(None),
                newest => newest?,
            };
            let is_unsigned = signed.is_none_or(|signed| signed.n < first);
            // The entry that was signed is in an earlier segment then.
            let earlier = signed.filter(|signed| is_unsigned && signed.n > 0);
            if let Some(signed) = earlier
                && segment::hash_of(path, signed.n)? != Some(signed.hash)
            {
                return Ok(None);
            }
            match newest.recover(signed)? {
                Some(found) => {
                    (segment, end) = (Some(newest), found);
                    break;
                }
                // A process was killed before the first line of the segment was written.
                None if is_unsigned && newest.is_begun()? => {
                    begun_bytes = begun_bytes.saturating_add(newest.remove()?);
                }
                None => return Ok(None),
            }
        }
        if segment.is_none() && signed.is_some_and(|signed| signed.n > 0) {
            return Ok(None);
        }
        let SegmentEnd { head, cut_bytes, unended, is_changed } = end;
        let (lines, sealed) = (Vec::new(), Vec::new());
        let untold = Some(cut_bytes.saturating_add(begun_bytes));
        Ok(Some(Self {
            dir,
            settings,
            head,
            synced: signed.map_or(0, |signed| signed.n),
            segment,
            unended,
            is_changed,
            untold,
            lines,
            sealed,
            #[cfg(test)]
            panics_at: None,
        }))
    }

    /// Returns the name of the writer.
    pub(crate) fn writer(&self) -> &str {
        self.dir.name()
    }

    /// Writes that this process is done with the journal, if all calls have an end: the next process takes it then
    /// without reading more than the last line. Returns the end of the chain.
    pub(crate) fn release(mut self, now: Timestamp) -> Result<ChainHead, AuditError> {
        // Otherwise nothing was written since it was taken.
        if self.untold.is_none()
            && let Some(mut released) = self.unended.release(now)
        {
            self.write(&mut [&mut released], now)?;
        }
        self.sync()?;
        Ok(self.head)
    }

    /// Returns the files with the newest entries, and checks that they are the ones at their paths.
    pub(crate) fn files(&self) -> Result<Vec<File>, AuditError> {
        self.dir.check()?;
        self.segment.as_ref().map_or(Ok(()), Segment::check)?;
        self.segment.as_ref().map_or(Ok(Vec::new()), Segment::files)
    }

    /// Returns the files of earlier segments that may not be on the disk yet: they ended since the last signature, or
    /// the process that wrote them was killed.
    pub(crate) fn ended_files(&self) -> Result<Vec<PathBuf>, AuditError> {
        let newest = self.segment.as_ref().map_or(u64::MAX, Segment::first);
        segment::files_after(self.dir.path(), self.synced, newest)
    }

    /// Notes that all entries up to this one are on the disk.
    pub(crate) fn note_synced(&mut self, n: u64) {
        self.synced = self.synced.max(n);
    }

    /// Waits until all entries are on the disk, and checks that the newest files are the ones at their paths.
    pub(crate) fn sync(&self) -> Result<(), AuditError> {
        let files = self.files()?;
        sync_paths(&self.ended_files()?)?;
        sync(files)
    }

    /// Returns the end of the chain.
    pub(crate) fn head(&self) -> ChainHead {
        self.head
    }

    /// Appends these entries, all of them or none.
    ///
    /// # Errors
    /// Nothing was written.
    pub(crate) fn write(&mut self, drafts: &mut [&mut EntryDraft], now: Timestamp) -> Result<(), AuditError> {
        if drafts.is_empty() {
            return Ok(());
        }
        if self.segment.as_ref().is_some_and(|segment| self.is_full(segment, now)) {
            self.segment = None;
        }
        self.commit(drafts, now)
    }

    /// Ends the segment and begins the next one, so that the old one can be removed.
    pub(crate) fn begin_segment(&mut self, now: Timestamp) -> Result<(), AuditError> {
        // One that has no line yet, since the disk was full, is begun where it is.
        self.segment = self.segment.take().filter(|segment| segment.length() == 0);
        self.commit(&mut [], now)
    }

    /// Returns true if the segment is long or old enough. One without a line is not, however long the disk was full.
    fn is_full(&self, segment: &Segment, now: Timestamp) -> bool {
        let is_long = segment.length() >= self.settings.segment_bytes;
        segment.length() > 0 && (is_long || segment.is_further_than(SEGMENT_AGE, now))
    }

    fn commit(&mut self, drafts: &mut [&mut EntryDraft], now: Timestamp) -> Result<(), AuditError> {
        let before = self.segment.as_ref().map(|segment| (segment.first(), segment.lengths()));
        // A panic would leave the entries of the other callers in doubt.
        let appended = catch_unwind(AssertUnwindSafe(|| self.append(drafts, now)));
        let appended = appended
            .unwrap_or_else(|_| Err(AppendError { error: commit::panicked(), is_undone: self.cut(before) }));
        let head = appended.map_err(|failed| {
            if !failed.is_undone {
                let failed = self.segment.take();
                if let Some(new) =
                    failed.filter(|segment| before.is_none_or(|(first, _)| first != segment.first()))
                {
                    new.discard();
                }
            }
            failed.error
        })?;
        let mut n = head.n.saturating_sub(drafts.len() as u64);
        for draft in drafts {
            n = n.saturating_add(1);
            self.unended.wrote(draft, n);
        }
        (self.head, self.untold) = (head, None);
        Ok(())
    }

    /// Appends these entries, and returns the head after them. If it panics, a part of them may have been written.
    fn append(&mut self, drafts: &mut [&mut EntryDraft], now: Timestamp) -> Result<ChainHead, AppendError> {
        let segment = match &mut self.segment {
            Some(segment) => segment,
            none => none.insert(Segment::create(self.dir.path(), self.head.n.saturating_add(1))?),
        };
        let mut begun = (segment.length() == 0).then(|| {
            segment.begins(now);
            self.unended.begin_segment(self.dir.name(), now)
        });
        let mut taken = self.untold.map(|cut_bytes| writer_taken(now, cut_bytes));
        let sealed_before = segment.sealed_length();
        self.lines.clear();
        self.sealed.clear();
        let mut head = self.head;
        for draft in begun.iter_mut().chain(&mut taken).chain(drafts.iter_mut().map(|draft| &mut **draft)) {
            let place = draft.sealed.as_ref().map(|sealed| {
                let offset = sealed_before.saturating_add(self.sealed.len() as u64);
                self.sealed.extend_from_slice(sealed.bytes());
                SealedPlace::at(offset, sealed)
            });
            head = draft.append_to(&mut self.lines, head, place.as_ref());
            draft.sealed_at = place.map(|SealedPlace { offset, bytes, .. }| SealedOutcome {
                segment: segment.first(),
                offset,
                bytes,
            });
        }
        failpoint::pass("before.commit");
        #[cfg(test)]
        tests::panic_if(self.panics_at.take_if(|at| *at == "before.commit"));
        segment.append(&self.lines, &self.sealed, self.settings.durability)?;
        failpoint::pass("after.commit");
        failpoint::pass_if("open.committed", || drafts.iter().any(|draft| draft.has_event("received")));
        failpoint::pass_if("close.committed", || {
            drafts.iter().any(|draft| draft.has_event("final") || draft.has_event("cut_short"))
        });
        #[cfg(test)]
        tests::panic_if(self.panics_at.take_if(|at| *at == "after.commit"));
        Ok(head)
    }

    /// Removes what was appended since the newest segment had these lengths. Returns false if that fails.
    fn cut(&mut self, before: Option<(u64, SegmentLengths)>) -> bool {
        let Some(segment) = &mut self.segment else { return true };
        // A new segment had no line.
        let lengths = before.filter(|(first, _)| *first == segment.first());
        segment.cut(lengths.map(|(_, lengths)| lengths).unwrap_or_default())
    }

    /// Returns the number of the last event of a call without an end; none if no such call is in the journal.
    pub(crate) fn last_event(&self, audit_id: &AuditId) -> Result<Option<u32>, AuditError> {
        let Some(first_entry) = self.unended.first_entry(audit_id) else { return Ok(None) };
        let firsts = segments(self.dir.path())?;
        let begin = firsts.iter().rposition(|first| *first <= first_entry).unwrap_or(0);
        let mut last = 0;
        for first in firsts.into_iter().skip(begin) {
            let Some(mut reader) = SegmentReader::open(self.dir.path(), first)? else { break };
            while let Some(read) = reader.next()? {
                let Ok(line) = JournalLine::read(read.bytes) else { break };
                if line.audit_id.as_deref() == Some(audit_id.as_str()) {
                    let events = line.events().unwrap_or_default();
                    last = events.iter().map(|event| event.seq).fold(last, u32::max);
                }
            }
        }
        Ok(Some(last))
    }
}

/// Waits until the files are on the disk.
pub(crate) fn sync(files: Vec<File>) -> Result<(), AuditError> {
    Ok(files.into_iter().try_for_each(|file| file.sync_data())?)
}

/// Reads the calls without an end from the newest segment of a journal that has its first line.
pub(crate) fn read_unended(dir: &Path) -> Result<UnendedCalls, AuditError> {
    let Some(newest) = segment::newest_with_line(dir)? else { return Ok(UnendedCalls::default()) };
    SegmentReader::open(dir, newest)?.map_or(Ok(UnendedCalls::default()), unended_of)
}

/// Reads the calls without an end. Lines that cannot be understood are left out, since verification reports them, and so
/// is a last line without an end.
fn unended_of(mut reader: SegmentReader) -> Result<UnendedCalls, AuditError> {
    let mut unended = UnendedCalls::default();
    while let Some(read) = reader.next()? {
        if let (true, Ok(line)) = (read.is_whole, JournalLine::read(read.bytes)) {
            unended.read(&line);
        }
    }
    Ok(unended)
}
