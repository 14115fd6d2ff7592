//! The approvals of a home: a small SQLite file that all processes of the home share.
//!
//! The file is not trusted. Each row has a MAC under a key of the host: one that was changed, added or copied to
//! another call is ignored. The file may also be an older one, which was put back: the audit log has each use before
//! the call runs, and each answer before it takes effect, so an approval is used only if the log has no end of it. The
//! file is opened for each command, which are rare, and written to the disk before one completes: a power cut does not
//! bring back an approval that was used.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_core::failure::AuditId;
use cofferdam_core::host_key;
use cofferdam_core::private_file::{self, FilePolicy};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};

use super::approval::{ApprovalState, ApprovalStep, StoredApproval, decide_approval};
use super::row::{ApprovalRow, ApprovalSeal, has_approval_room, is_approval_waiting, shown_bytes};
use super::{AnswerOutcome, ApprovalId, ApprovalStore, ApprovalVerdict, PersonAnswer};
use crate::command::LogTime;
use crate::error::{AuditError, AuditErrorKind};
use crate::index::LogIndex;
use crate::journal::on_waiting_thread;
use crate::log::LogFuture;
use crate::sqlite_file;

/// Other users may neither read nor write it.
const POLICY: FilePolicy = FilePolicy::secret(u64::MAX);

/// The file's name in the directory of the audit log.
const NAME: &str = "approvals.db";

/// The longest wait for other processes that use the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS approvals (
      id             TEXT PRIMARY KEY,
      exact          BLOB NOT NULL,
      same_arguments BLOB NOT NULL,
      is_waiting     INTEGER NOT NULL,
      ends           INTEGER NOT NULL,
      bytes          INTEGER NOT NULL,
      value          TEXT NOT NULL,
      arguments      TEXT,
      mac            BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS approvals_of_arguments ON approvals (same_arguments);
    CREATE INDEX IF NOT EXISTS approvals_that_end ON approvals (ends);
    CREATE INDEX IF NOT EXISTS approvals_that_wait ON approvals (bytes) WHERE is_waiting = 1;
";

/// The columns that a row is read from.
const COLUMNS: &str = "id, exact, same_arguments, value, mac";

/// The approvals of a home directory.
#[derive(Debug, Clone)]
pub struct ApprovalFile {
    path: PathBuf,
    key_file: PathBuf,
}

impl ApprovalFile {
    /// Returns the approvals of this home directory. Nothing is opened or created before the first command.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self { path: home.join("audit").join(NAME), key_file: home.join("host.key") }
    }

    /// Opens the file; none if it does not exist and is not `created`.
    fn open(&self, created: bool) -> Result<Option<OpenApprovals>, AuditError> {
        match self.try_open(created) {
            Err(error) if error.kind() == AuditErrorKind::Corrupt => {
                tracing::warn!(target: "cofferdam::audit", %error, "the file of approvals is damaged, and moved away: nothing in it is approved");
                sqlite_file::move_away(&self.path, &["-journal", ""])?;
                self.try_open(created)
            }
            opened => opened,
        }
    }

    fn try_open(&self, created: bool) -> Result<Option<OpenApprovals>, AuditError> {
        let path = &self.path;
        let refused = |error| AuditError::from_file(NAME, error);
        if !private_file::check(path, &POLICY).map_err(refused)? {
            if !created {
                return Ok(None);
            }
            private_file::create_dir(private_file::parent(path))?;
            sqlite_file::create_private(path)?;
        }
        let key = host_key::load_or_create(&self.key_file)?;
        let connection = Connection::open(path)?;
        sqlite_file::distrust(&connection)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // An approval that was used stays used, also after a power cut.
        connection.pragma_update(None, "synchronous", "full")?;
        connection.execute_batch(SCHEMA)?;
        Ok(Some(OpenApprovals { connection, seal: ApprovalSeal::new(&key) }))
    }

    fn with<T: Send + 'static>(
        &self,
        created: bool,
        missing: T,
        work: impl FnOnce(&mut OpenApprovals) -> Result<T, AuditError> + Send + 'static,
    ) -> LogFuture<T> {
        let own = self.clone();
        on_waiting_thread(move || match own.open(created)? {
            Some(mut opened) => work(&mut opened),
            None => Ok(missing),
        })
    }
}

impl ApprovalStore for ApprovalFile {
    fn request(&self, request: StoredApproval, call: AuditId, now: LogTime) -> LogFuture<ApprovalVerdict> {
        let root = private_file::parent(&self.path).to_owned();
        self.with(true, ApprovalVerdict::Full, move |opened| {
            loop {
                let verdict = opened.request(&request, &call, now)?;
                let ApprovalVerdict::Approved { id, same_arguments, .. } = &verdict else { return Ok(verdict) };
                let end = LogIndex::end_of_approval(&root, id, *same_arguments)?;
                let Some(end) = end else { return Ok(verdict) };
                tracing::warn!(target: "cofferdam::audit", approval = id.as_str(), "the file of approvals is an older one: the audit log has the end of this approval");
                if end == ApprovalState::Denied {
                    return Ok(ApprovalVerdict::Denied(id.clone()));
                }
                // It was for one call, and is now used in the file as well: another one is looked for.
            }
        })
    }

    fn answer(&self, id: ApprovalId, answer: PersonAnswer, now: LogTime) -> LogFuture<AnswerOutcome> {
        self.with(false, AnswerOutcome::Missing, move |opened| opened.answer(&id, answer, now))
    }

    fn list(&self) -> LogFuture<Vec<StoredApproval>> {
        self.with(false, Vec::new(), |opened| opened.list())
    }

    fn get(&self, id: ApprovalId) -> LogFuture<Option<StoredApproval>> {
        self.with(false, None, move |opened| opened.get(&id))
    }
}

/// The open file.
struct OpenApprovals {
    connection: Connection,
    seal: ApprovalSeal,
}

impl OpenApprovals {
    fn request(
        &mut self,
        request: &StoredApproval,
        call: &AuditId,
        now: LogTime,
    ) -> Result<ApprovalVerdict, AuditError> {
        let seal = self.seal.clone();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute("DELETE FROM approvals WHERE ends <= ?1", [now.time.as_microsecond()])?;
        let binding = &request.binding;
        let found = {
            let select =
                format!("SELECT {COLUMNS} FROM approvals WHERE same_arguments = ?1 ORDER BY id DESC");
            let mut select = transaction.prepare(&select)?;
            let rows = select.query_map([binding.same_arguments], |row| Ok(read(row, &seal)))?;
            rows.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?
        };
        let verdict = match decide_approval(found, binding, call, now) {
            ApprovalStep::Keep(verdict) => verdict,
            ApprovalStep::UseUp(verdict, used) => {
                update(&transaction, &used, &seal)?;
                verdict
            }
            ApprovalStep::Ask if !is_room(&transaction, request)? => ApprovalVerdict::Full,
            ApprovalStep::Ask => {
                insert(&transaction, request, &seal)?;
                ApprovalVerdict::Waiting(Box::new(request.at(now)))
            }
        };
        transaction.commit()?;
        Ok(verdict)
    }

    fn answer(
        &mut self,
        id: &ApprovalId,
        answer: PersonAnswer,
        now: LogTime,
    ) -> Result<AnswerOutcome, AuditError> {
        let seal = self.seal.clone();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let Some(mut stored) = row(&transaction, id, &seal)? else { return Ok(AnswerOutcome::Missing) };
        let outcome = stored.answer(answer, now);
        if matches!(outcome, AnswerOutcome::Taken(_)) {
            update(&transaction, &stored, &seal)?;
        }
        transaction.commit()?;
        Ok(outcome)
    }

    fn list(&mut self) -> Result<Vec<StoredApproval>, AuditError> {
        let seal = self.seal.clone();
        let mut select = self.connection.prepare(&format!("SELECT {COLUMNS} FROM approvals ORDER BY id"))?;
        let rows = select.query_map([], |row| Ok(read(row, &seal)))?;
        Ok(rows.filter_map(Result::transpose).collect::<Result<_, _>>()?)
    }

    fn get(&mut self, id: &ApprovalId) -> Result<Option<StoredApproval>, AuditError> {
        let Some(stored) = row(&self.connection, id, &self.seal)? else { return Ok(None) };
        let select = "SELECT arguments FROM approvals WHERE id = ?1";
        let text: Option<Option<String>> =
            self.connection.query_row(select, [id.as_str()], |row| row.get(0)).optional()?;
        Ok(stored.with_shown_text(text.flatten()))
    }
}

fn row(
    connection: &Connection,
    id: &ApprovalId,
    seal: &ApprovalSeal,
) -> Result<Option<StoredApproval>, AuditError> {
    let select = format!("SELECT {COLUMNS} FROM approvals WHERE id = ?1");
    let found = connection.query_row(&select, [id.as_str()], |row| Ok(read(row, seal))).optional()?;
    Ok(found.flatten())
}

/// Reads a row; none if it is not one that a host of this home wrote.
fn read(row: &Row<'_>, seal: &ApprovalSeal) -> Option<StoredApproval> {
    let columns = || {
        let (id, exact, same_arguments) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok::<_, rusqlite::Error>(ApprovalRow {
            id,
            exact,
            same_arguments,
            value: row.get(3)?,
            mac: row.get(4)?,
        })
    };
    seal.open(&columns().ok()?)
}

/// Returns true if there is room for a further request.
fn is_room(transaction: &Transaction<'_>, request: &StoredApproval) -> Result<bool, AuditError> {
    let select = "SELECT count(*), coalesce(sum(bytes), 0) FROM approvals WHERE is_waiting = 1";
    let (waiting, bytes) = transaction.query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(has_approval_room(waiting, bytes, request))
}

fn insert(
    transaction: &Transaction<'_>,
    stored: &StoredApproval,
    seal: &ApprovalSeal,
) -> Result<(), AuditError> {
    let row = seal.row(stored)?;
    let arguments = stored.approval.arguments.text.as_deref();
    transaction.execute(
        "INSERT INTO approvals (id, exact, same_arguments, is_waiting, ends, bytes, value, arguments, mac) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            row.id,
            row.exact,
            row.same_arguments,
            is_approval_waiting(stored),
            stored.ends(),
            shown_bytes(stored),
            row.value,
            arguments,
            row.mac
        ],
    )?;
    Ok(())
}

fn update(
    transaction: &Transaction<'_>,
    stored: &StoredApproval,
    seal: &ApprovalSeal,
) -> Result<(), AuditError> {
    let row = seal.row(stored)?;
    let changed = transaction.execute(
        "UPDATE approvals SET is_waiting = ?2, ends = ?3, value = ?4, mac = ?5 WHERE id = ?1",
        params![row.id, is_approval_waiting(stored), stored.ends(), row.value, row.mac],
    )?;
    // A file that was changed may ignore it: by a constraint, or by an index that has lost the row.
    let ignored = || AuditError::new(AuditErrorKind::Corrupt, "the file of approvals did not take a change");
    (changed == 1).then_some(()).ok_or_else(ignored)
}
