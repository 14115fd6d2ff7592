//! The index of the journals: a SQLite file from which calls are found, and which can be rebuilt at any moment.

mod batch;
mod facts;
mod file_read;
mod find;
mod index_file;
mod interner;
mod journal_fill;
mod places;
mod reader;
mod rollup;
mod sealed_quota;
mod usage;

#[cfg(test)]
mod queries_tests;
#[cfg(test)]
mod quota_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
#[path = "../../../../tests/support/src/traffic.rs"]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "shared with the tests' support"
)]
mod traffic;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Transaction, TransactionBehavior};

pub use self::facts::{EndFacts, LineFacts, LineRequest};
pub(crate) use self::index_file::FILE as INDEX_FILE;
use self::index_file::IndexFile;
use self::interner::Interner;
use self::journal_fill::{FillBudget, FillResult, IndexProgress, JournalFiles};
pub(crate) use self::reader::{IndexReader, ProcessCalls};
pub use self::usage::AttemptUsage;
pub(crate) use self::usage::RESOURCES;
use crate::approvals::{ApprovalId, ApprovalState};
use crate::error::{AuditError, AuditErrorKind};
use crate::journal::writer_names;
use crate::settings::BUSY_TIMEOUT;

/// The wait for another process that fills the index, before it is looked again whether that is done.
const BUSY_WAIT: Duration = Duration::from_millis(20);

/// Receives the progress of a rebuild: the lines and the bytes that were read, and the bytes of all journals.
pub(crate) type FillProgress<'p> = dyn FnMut(u64, u64, u64) + 'p;

/// The index of the journals below a directory.
pub(crate) struct LogIndex {
    root: PathBuf,
    file: IndexFile,
    interner: Interner,
    /// True once the last indexed line of each journal was found where it was.
    is_checked: bool,
    /// Reused for what is read of the journals.
    buffer: Vec<u8>,
}

/// The state of the index compared with the journals.
enum IndexState {
    Current,
    Behind,
    /// It is not of these journals.
    Unfit(String),
}

impl LogIndex {
    /// Opens the index of the journals below `root`, or creates it. It is filled by [`update`](Self::update).
    ///
    /// # Errors
    /// The file cannot be written, or is not private.
    pub(crate) fn open(root: &Path) -> Result<Self, AuditError> {
        Ok(Self::new(root, IndexFile::open(root)?))
    }

    /// Creates an index in memory, for a directory that cannot be written.
    fn in_memory(root: &Path) -> Result<Self, AuditError> {
        Ok(Self::new(root, IndexFile::in_memory()?))
    }

    fn new(root: &Path, file: IndexFile) -> Self {
        let (root, interner) = (root.to_owned(), Interner::default());
        Self { root, file, interner, is_checked: false, buffer: Vec::new() }
    }

    /// Makes the index again from the journals.
    ///
    /// # Errors
    /// The journals cannot be read, or the file cannot be written.
    pub(crate) fn rebuild(root: &Path, progress: &mut FillProgress<'_>) -> Result<(), AuditError> {
        let mut index = Self::open(root)?;
        index.replace("the operator asked for it")?;
        index.fill(Some(progress))
    }

    /// Returns the end of an approval according to the journals below `root`: denied or withdrawn or, if it is for one
    /// call, used. None if they have neither.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) and [`update`](Self::update).
    pub(crate) fn end_of_approval(
        root: &Path,
        id: &ApprovalId,
        same_arguments: bool,
    ) -> Result<Option<ApprovalState>, AuditError> {
        // The calls may be recorded elsewhere.
        if writer_names(root)?.is_empty() {
            return Ok(None);
        }
        let mut index = Self::open(root)?;
        index.update()?;
        // Without the denials that failed, of which there are two entries.
        let withdrawn = "SELECT coalesce(sum(iif(json_extract(event, '$.failed'), -1, 1)), 0) > 0 FROM operator_events \
                         WHERE json_extract(event, '$.subject') = ?1 AND json_extract(event, '$.action') = 'deny'";
        let used = "SELECT EXISTS (SELECT 1 FROM used_approvals WHERE approval = ?1)";
        let connection = &index.file.connection;
        let has = |select| connection.query_row(select, [id.as_str()], |row| row.get::<_, bool>(0));
        Ok(match has(withdrawn)? {
            true => Some(ApprovalState::Denied),
            false => (!same_arguments && has(used)?).then_some(ApprovalState::Used),
        })
    }

    /// Adds what the journals have that is not in the index. Calls whose beginning was pruned leave it.
    ///
    /// An index that is not of these journals is made again.
    ///
    /// # Errors
    /// The journals cannot be read, or the file cannot be written.
    pub(crate) fn update(&mut self) -> Result<(), AuditError> {
        self.fill(None)
    }

    fn fill(&mut self, mut progress: Option<&mut FillProgress<'_>>) -> Result<(), AuditError> {
        let unfit = match self.fill_once(progress.as_deref_mut()) {
            Ok(None) => return Ok(()),
            Ok(Some(reason)) => reason,
            Err(error) if is_fault_of_file(&error) => error.to_string(),
            Err(error) => return Err(error),
        };
        self.replace(&unfit)?;
        match self.fill_once(progress)? {
            None => Ok(()),
            // The journals are replaced while they are read.
            Some(reason) => Err(AuditError::new(AuditErrorKind::Replaced, reason)),
        }
    }

    /// Replaces the index by an empty one.
    fn replace(&mut self, reason: &str) -> Result<(), AuditError> {
        self.interner = Interner::default();
        self.file.replace(reason)
    }

    /// Adds what is missing. Returns a reason if the index is not of these journals.
    fn fill_once(
        &mut self,
        mut progress: Option<&mut FillProgress<'_>>,
    ) -> Result<Option<String>, AuditError> {
        if !self.file.is_in_place() {
            self.interner = Interner::default();
            self.file = IndexFile::open(&self.root)?;
        }
        let (mut lines, mut version, mut waited_from) = (0, 0, Instant::now());
        loop {
            match self.state()? {
                IndexState::Current => return Ok(None),
                IndexState::Unfit(reason) => return Ok(Some(reason)),
                IndexState::Behind => {}
            }
            match self.fill_batch(&mut lines, progress.as_deref_mut()) {
                Ok(FillResult::Complete) => return self.file.copy_log().map(|()| None),
                Ok(FillResult::Unfit(reason)) => return Ok(Some(reason)),
                Ok(FillResult::Partial) => {
                    self.file.copy_log()?;
                    waited_from = Instant::now();
                }
                // Another process fills the index. It is waited for as long as it makes progress.
                Err(error) if error.kind() == AuditErrorKind::Locked => {
                    let now =
                        self.file.connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
                    if version != now {
                        (version, waited_from) = (now, Instant::now());
                    } else if waited_from.elapsed() > BUSY_TIMEOUT {
                        return Err(error);
                    }
                }
                Err(error) => {
                    self.interner = Interner::default();
                    return Err(error);
                }
            }
        }
    }

    /// Compares the index with the journals.
    fn state(&mut self) -> Result<IndexState, AuditError> {
        // In this order: the journals are never behind what is in the index.
        let stored = IndexProgress::read_all(&self.file.connection)?;
        let journals = self.journals()?;
        if let Some(gone) = stored.keys().find(|name| !journals.iter().any(|journal| journal.name == **name))
        {
            return Ok(IndexState::Unfit(format!("the journal {gone} is not there")));
        }
        let mut is_behind = false;
        for journal in &journals {
            let Some(progress) = stored.get(&journal.name) else {
                is_behind |= journal.seen()? > 0 || journal.firsts.len() > 1;
                continue;
            };
            if !self.is_checked && !progress.is_of(journal)? {
                return Ok(IndexState::Unfit(format!("the journal {} is another one", journal.name)));
            }
            is_behind |= progress.is_behind(journal)?;
        }
        self.is_checked = true;
        Ok(if is_behind { IndexState::Behind } else { IndexState::Current })
    }

    /// Adds some of what is missing in one transaction.
    fn fill_batch(
        &mut self,
        lines: &mut u64,
        progress: Option<&mut FillProgress<'_>>,
    ) -> Result<FillResult, AuditError> {
        let journals = self.journals()?;
        let connection = &self.file.connection;
        connection.busy_timeout(BUSY_WAIT)?;
        let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate);
        connection.busy_timeout(BUSY_TIMEOUT)?;
        let transaction = transaction?;
        let mut stored = IndexProgress::read_all(&transaction)?;
        let mut budget = FillBudget::new();
        for journal in &journals {
            let mut own = match stored.remove(&journal.name) {
                Some(own) => own,
                None => match IndexProgress::begin(&transaction, journal)? {
                    Some(own) => own,
                    None => continue,
                },
            };
            let filled =
                own.fill(&transaction, &mut self.interner, journal, &mut budget, &mut self.buffer)?;
            if let FillResult::Unfit(reason) = filled {
                return Ok(FillResult::Unfit(reason));
            }
            if budget.is_spent {
                break;
            }
        }
        transaction.commit()?;
        *lines = lines.saturating_add(budget.lines);
        if let Some(progress) = progress {
            let (mut done, mut all) = (0_u64, 0_u64);
            for journal in &journals {
                let [read, length] = IndexProgress::bytes(connection, journal)?;
                (done, all) = (done.saturating_add(read), all.saturating_add(length));
            }
            progress(*lines, done, all);
        }
        Ok(if budget.is_spent { FillResult::Partial } else { FillResult::Complete })
    }

    fn journals(&self) -> Result<Vec<JournalFiles>, AuditError> {
        let names = writer_names(&self.root)?;
        names.into_iter().filter_map(|name| JournalFiles::list(&self.root, name).transpose()).collect()
    }
}

/// Returns true if the index itself is at fault, so that it is worth to make it again.
fn is_fault_of_file(error: &AuditError) -> bool {
    matches!(error.kind(), AuditErrorKind::Corrupt | AuditErrorKind::Other)
}
