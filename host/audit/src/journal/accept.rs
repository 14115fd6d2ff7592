//! The operator's word that what is there is what the log goes on with, and the comparison of the key table with the
//! journals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::failpoint;

use super::checkpoint_file;
use super::key_claims::{KEYS_LOCK, is_damaged};
use super::keys::KeyTable;
use super::line::{ChainHead, EntryDraft, JournalLine};
use super::log::LogWriter;
use super::log_checkpoint::{SignedJournal, accepted_entry};
use super::log_time::believed_time;
use super::segment::{SegmentReader, files_after, hash_of, head_before, segments, sync_paths};
use super::stored_key::{StoredKey, StoredKeyState, key_differences};
use super::writer_dir;
use crate::error::{AuditError, AuditErrorKind};
use crate::evidence::DerivedFinding;
use crate::log::wait;
use crate::verify::{AcknowledgedFinding, FindingKind};

/// A difference between the key table and the journals is one that is found each time: hosts write both meanwhile.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(50);

/// The files beside the journals that no host replaces if a directory, a link or a pipe is in their place.
/// `keys.db` itself is moved away then, and made again.
const REGULAR_FILES: [&str; 14] = [
    "approvals.db",
    "approvals.db-wal",
    "approvals.db-shm",
    "retained",
    KEYS_LOCK,
    "keys.db-wal",
    "keys.db-shm",
    "checkpoint.lock",
    "prune.lock",
    "index.lock",
    "index.stamp",
    "index.db",
    "index.db-wal",
    "index.db-shm",
];

impl LogWriter {
    /// Records and signs that the operator accepts these findings, and signs for the journals as they are.
    ///
    /// Nothing is written if there is neither a finding nor a loss. A loss counts also if the findings were accepted
    /// before: the process may have ended before the home remembered it.
    pub(super) fn accept(
        self: &Arc<Self>,
        findings: &[AcknowledgedFinding],
        user: &str,
    ) -> Result<String, AuditError> {
        let checkpoints = self.checkpoints()?;
        let loss = checkpoints.reader.loss()?;
        if findings.is_empty() && loss.is_none() {
            return self.sign();
        }
        // An operator that repairs the vault first does not accept an older one unseen.
        checkpoints.reader.check_vault()?;
        let (own, now) = (self.own_journal()?, self.clock.timestamp());
        let entries = vec![
            accepted_entry(findings, checkpoint_file::text(self.root())?, now, &checkpoints.signer),
            EntryDraft::of_acceptance(now, findings.len(), loss.as_ref(), user),
        ];
        wait(self.write(&own, entries, Box::new(|_| ()), None))?;
        failpoint::pass("accept.committed");
        self.accept_journals()?;
        // Keys of calls that are gone stay taken.
        let derived = self.check_derived()?;
        if derived.is_empty() {
            return checkpoint_file::text(self.root()).map(Option::unwrap_or_default);
        }
        let findings: Vec<_> = derived.iter().map(AcknowledgedFinding::from).collect();
        let entry = accepted_entry(&findings, None, now, &checkpoints.signer);
        wait(self.write(&own, vec![entry], Box::new(|_| ()), None))?;
        self.sign()
    }

    /// Signs for all journals as they are.
    fn accept_journals(&self) -> Result<(), AuditError> {
        let (checkpoints, now) = (self.checkpoints()?, self.clock.timestamp());
        let signed = checkpoints.journals()?.unwrap_or_default();
        let mut journals = BTreeMap::new();
        for writer in writer_dir::names(self.root())? {
            let journal = self.journal_as_it_is(&writer, signed.get(&writer))?;
            // After a power cut nothing that is signed for may be missing.
            sync_paths(&files_after(&self.root().join(&writer), 0, u64::MAX)?)?;
            journals.extend(journal.map(|journal| (writer, journal)));
        }
        checkpoints.accept(journals, now).map(drop)
    }

    /// Returns where a journal begins and ends, according to its files; none if it has no entry.
    fn journal_as_it_is(
        &self,
        writer: &str,
        signed: Option<&SignedJournal>,
    ) -> Result<Option<SignedJournal>, AuditError> {
        let dir = self.root().join(writer);
        let firsts = segments(&dir)?;
        let Some(first) = firsts.first() else { return Ok(None) };
        let base = match signed {
            Some(signed) if signed.base.n < *first => signed.base,
            _ => head_before(&dir, *first)?,
        };
        let mut head = None;
        // The newest segment may have no line that can be read.
        for segment in firsts.iter().rev() {
            let Some(mut reader) = SegmentReader::open_regular(&dir, *segment)? else { continue };
            while let Some(read) = reader.next()? {
                if let (true, Ok(line)) = (read.is_whole, JournalLine::read(read.bytes)) {
                    head = Some(ChainHead::at(line.n, read.bytes));
                }
            }
            // A segment with another name than its own may not be where the entry is looked for.
            head = match head {
                Some(found) if hash_of(&dir, found.n)? == Some(found.hash) => break,
                _ => None,
            };
        }
        Ok(Some(SignedJournal { head: head.unwrap_or(base), base }))
    }

    /// Checks the types of the files beside the journals, and compares the key table with the journals. A damaged
    /// table is made again.
    pub(super) fn check_derived(self: &Arc<Self>) -> Result<Vec<DerivedFinding>, AuditError> {
        let is_other =
            |name: &str| self.root().join(name).symlink_metadata().is_ok_and(|there| !there.is_file());
        let others: Vec<_> = REGULAR_FILES.into_iter().filter(|name| is_other(name)).collect();
        // The key table cannot be opened without its lock and its write-ahead log.
        let mut found = match others.iter().any(|name| name.starts_with("keys.")) {
            true => Vec::new(),
            false => self.check_keys()?,
        };
        found.extend(others.into_iter().map(|name| {
            let what = format!("audit/{name} is not a regular file: remove it while no host runs");
            DerivedFinding { audit_id: None, flaw: FindingKind::FileType, what }
        }));
        Ok(found)
    }

    /// Compares the key table with the journals. A damaged table is made again.
    fn check_keys(self: &Arc<Self>) -> Result<Vec<DerivedFinding>, AuditError> {
        // Without a table nothing is derived.
        if !self.has_key_table() {
            return Ok(Vec::new());
        }
        let mut keys = match self.keys() {
            Ok(keys) => keys,
            // It cannot be made again, and a loss is a finding of its own.
            Err(error) if error.kind().is_unwritable() || error.kind() == AuditErrorKind::Lost => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let mut found: Option<Vec<DerivedFinding>> = None;
        for _ in 0..TRIES {
            // In this order: what is read later is never behind.
            let stored = match keys.table.all() {
                Err(error) if is_damaged(&error) => {
                    self.forget_damaged_keys(&error);
                    // Its lock would hold up the one under which the table is made again.
                    drop(keys);
                    keys = self.keys()?;
                    keys.table.all()?
                }
                stored => stored?,
            };
            let mut now = self.key_differences(&stored, keys.table.seen()?)?;
            now.retain(|finding| found.as_ref().is_none_or(|before| before.contains(finding)));
            if found.insert(now).is_empty() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(found.unwrap_or_default())
    }

    /// `seen` is the time that the log goes by.
    fn key_differences(
        &self,
        stored: &BTreeMap<[u8; 32], StoredKey>,
        seen: Option<i64>,
    ) -> Result<Vec<DerivedFinding>, AuditError> {
        let table = KeyTable::in_memory()?;
        self.read_journal_keys(&table, &writer_dir::names(self.root())?)?;
        let (expected, clock) = (table.all()?, self.clock.timestamp().as_microsecond());
        let now = believed_time(seen, clock);
        // The process of a claimed key may not have brought the table up to date yet.
        let is_ahead = |own: &StoredKey| own.state == StoredKeyState::Claimed;
        Ok(key_differences(stored, &expected, now, |_, own, expected| own.is_same(expected), is_ahead))
    }
}
