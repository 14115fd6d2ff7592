//! The operator's word that what is there is what the log goes on with, and the comparison of the key table with the
//! journals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::failpoint;
use cofferdam_core::failure::AuditId;

use super::checkpoint_file;
use super::keys::{KeyTable, StoredKey, StoredKeyState};
use super::line::{ChainHead, EntryDraft, JournalLine};
use super::log::{LogWriter, wait};
use super::log_checkpoint::{SignedJournal, sign_accepted};
use super::segment::{SegmentReader, hash_before, segments};
use super::writer_dir;
use crate::error::AuditError;
use crate::evidence::DerivedFinding;
use crate::verify::{AcknowledgedFinding, LOSS_ACCEPTED, LossAccepted};

/// A difference between the key table and the journals is one that is found each time: hosts write both meanwhile.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(50);

impl LogWriter {
    /// Records and signs that the operator accepts these findings, and signs for the journals as they are.
    ///
    /// Nothing is written if there is neither a finding nor a loss. A loss counts also if the findings were accepted
    /// before: the process may have ended before the home remembered it.
    pub(super) fn accept(self: &Arc<Self>, findings: &[AcknowledgedFinding]) -> Result<String, AuditError> {
        let checkpoints = self.checkpoints()?;
        if findings.is_empty() && checkpoints.reader().loss()?.is_none() {
            return self.sign();
        }
        // An operator that repairs the vault first does not accept an older one unseen.
        checkpoints.reader().check_vault()?;
        let (own, now) = (self.own_journal()?, self.clock.timestamp());
        let accepted = sign_accepted(findings, now, checkpoints.signer());
        let facts = LossAccepted { accepted, checkpoint: checkpoint_file::text(self.root())? };
        let entry = EntryDraft::of_log(LOSS_ACCEPTED, now, &facts);
        wait(self.write(&own, vec![entry], Box::new(|_| ()), None))?;
        failpoint::pass("accept.committed");
        let signed = checkpoints.journals()?.unwrap_or_default();
        let mut journals = BTreeMap::new();
        for writer in writer_dir::names(self.root())? {
            let journal = self.journal_as_it_is(&writer, signed.get(&writer))?;
            journals.extend(journal.map(|journal| (writer, journal)));
        }
        checkpoints.accept(journals, now)
    }

    /// Returns where a journal begins and ends, according to its files; none if it has no entry.
    fn journal_as_it_is(
        &self,
        writer: &str,
        signed: Option<&SignedJournal>,
    ) -> Result<Option<SignedJournal>, AuditError> {
        let dir = self.root().join(writer);
        let firsts = segments(&dir)?;
        let (Some(first), Some(newest)) = (firsts.first(), firsts.last()) else { return Ok(None) };
        let base = match signed {
            Some(signed) if signed.base.n < *first => signed.base,
            _ => base_before(&dir, *first)?,
        };
        let mut head = base;
        if let Some(mut reader) = SegmentReader::open(&dir, *newest, ChainHead::EMPTY)? {
            while let Some(read) = reader.next_text()? {
                if let (true, Ok(line)) = (read.is_whole, JournalLine::read(read.bytes)) {
                    head = ChainHead { n: line.n.saturating_sub(1), ..ChainHead::EMPTY }.after(read.bytes);
                }
            }
        }
        Ok(Some(SignedJournal { head, base }))
    }

    /// Compares the key table with the journals. A damaged table is made again.
    pub(super) fn check_derived(self: &Arc<Self>) -> Result<Vec<DerivedFinding>, AuditError> {
        // Without a table nothing is derived; without write access it is not made again.
        if !self.has_key_table() {
            return Ok(Vec::new());
        }
        let Ok(keys) = self.keys() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for _ in 0..TRIES {
            // In this order: what is read later is never behind.
            let stored = keys.table.all()?;
            found = self.key_differences(&stored)?;
            if found.is_empty() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(found)
    }

    fn key_differences(
        &self,
        stored: &BTreeMap<[u8; 32], StoredKey>,
    ) -> Result<Vec<DerivedFinding>, AuditError> {
        let table = KeyTable::in_memory()?;
        self.read_journal_keys(&table, &writer_dir::names(self.root())?)?;
        let (expected, now) = (table.all()?, self.clock.timestamp().as_microsecond());
        let mut found = Vec::new();
        let mut differs = |of: &StoredKey, what: &str| {
            let audit_id = Some(AuditId::from_bytes(of.call));
            found.push(DerivedFinding { audit_id, what: what.to_owned() });
        };
        for (key, expected) in &expected {
            match stored.get(key) {
                // Its process may not have brought the table up to date yet.
                Some(own) if own.call == expected.call && own.state == StoredKeyState::Claimed => {}
                Some(own) if is_same(own, expected) => {}
                Some(_) => differs(expected, "the table of idempotency keys has the key in another state"),
                None if expected.has_expired(now) => {}
                None => differs(expected, "the table of idempotency keys lacks the key"),
            }
        }
        for (_, own) in stored.iter().filter(|(key, _)| !expected.contains_key(*key)) {
            if own.state != StoredKeyState::Claimed && !own.has_expired(now) {
                differs(own, "the table of idempotency keys has a key that no call has");
            }
        }
        Ok(found)
    }
}

fn is_same(own: &StoredKey, expected: &StoredKey) -> bool {
    let facts =
        |of: &StoredKey| (of.call, of.fingerprint, of.state, of.until, of.is_idempotent, of.has_value);
    facts(own) == facts(expected)
}

/// Returns the entry before the first one of this segment.
fn base_before(dir: &std::path::Path, first: u64) -> Result<ChainHead, AuditError> {
    let hash = hash_before(dir, first)?.unwrap_or_default();
    Ok(ChainHead { n: first.saturating_sub(1), hash })
}
