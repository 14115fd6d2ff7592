//! The signed statements of the audit log: in the table `checkpoints`, and the newest in the file beside it.

use std::fs::File;
use std::io;

use cofferdam_core::failpoint;
use cofferdam_core::home_state::{HomeState, LogProgress, StateLoss, StoredState};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use serde_json::{Map, Value};

use super::loss::{Comparison, Witnesses, has};
use super::writer::Head;
use crate::anchor::Anchor;
use crate::checkpoint::{Checkpoint, Statement};
use crate::entry::{Entry, chained};
use crate::error::{AuditError, AuditErrorKind};
use crate::note::NoteSigner;
use crate::verify::Accepted;

/// A statement at least every so many entries; of each such stretch, the newest is kept.
pub(super) const EVERY: u64 = 1_000;

/// The signing state of one host.
pub(super) struct Signing {
    pub(super) signer: NoteSigner,
    pub(super) anchor: Anchor,
    pub(super) state: HomeState,
    /// True if statements survive a power failure.
    pub(super) power: bool,
}

/// A transaction that may write.
pub(super) fn begin(connection: &Connection) -> rusqlite::Result<rusqlite::Transaction<'_>> {
    // Of a connection that nothing else uses: an unchecked transaction is one like any other.
    rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
}

impl Signing {
    /// Signs for a record that has no entry yet, before the first: whatever it has later, there is a statement about it,
    /// and one that has none was tampered with.
    pub(super) fn begin(&self, connection: &Connection) -> Result<(), AuditError> {
        let is_signed = "SELECT 1 FROM checkpoints UNION ALL SELECT 1 FROM entries LIMIT 1";
        if connection.prepare_cached(is_signed)?.exists([])? {
            return Ok(());
        }
        let transaction = begin(connection)?;
        if transaction.prepare_cached(is_signed)?.exists([])? {
            return Ok(());
        }
        let head = super::writer::head(&transaction)?;
        let note = self.note(&head, Statement::Head);
        // The file first, on the disk: a statement without it is one whose file was removed. One that is there already
        // is of this record, whose maker was killed, or of one that is gone: then it is evidence.
        if self.anchor.read()?.is_none() {
            self.anchor.write(&note, true).map_err(AuditError::from_io)?;
        }
        let insert = "INSERT INTO checkpoints (n, kind, note) VALUES (?1, 'head', ?2)";
        transaction.execute(insert, params![head.n, note])?;
        Ok(transaction.commit()?)
    }

    /// Compares the log and the vault with what the home remembers of them. A home from before it remembered anything
    /// begins here, with the log as it is.
    pub(super) fn loss(&self, connection: &Connection) -> Result<Option<StateLoss>, AuditError> {
        let key = self.signer.key();
        let witnesses = Witnesses { state: &self.state, anchor: &self.anchor, key: Some(&key) };
        let mut found = witnesses.compare(Some(connection))?;
        if found == Comparison::NotBegun {
            // Before the first statement of the new form: one that has no memory beside it has lost it.
            let head = super::writer::head(connection)?;
            let log = LogProgress { n: head.n, hash: head.hash, highest: head.n };
            self.state.create(Some(log)).map_err(AuditError::from_state)?;
            self.advance(connection, &head)?;
            found = witnesses.compare(Some(connection))?;
        }
        Ok(found.loss())
    }

    /// Has the home remember the log as it is, before the beginning of it goes.
    pub(super) fn remember(&self, connection: &Connection) -> Result<(), AuditError> {
        if let Some(loss) = self.loss(connection)? {
            return Err(AuditError::new(AuditErrorKind::Lost, loss));
        }
        let Head { n, hash } = super::writer::head(connection)?;
        self.advance(connection, &Head { n, hash })
    }

    /// Has the home remember this end of the log.
    fn advance(&self, connection: &Connection, head: &Head) -> Result<(), AuditError> {
        sync(connection)?;
        self.state.advance_log(head.n, head.hash).map_err(AuditError::from_state)
    }

    /// Signs for the chain as it is, unless that was done, or unless what this host wrote (`own`) is not there any
    /// more, or nothing was signed although there are entries. The statement.
    pub(super) fn sign(&self, connection: &Connection, own: Option<&Head>) -> Result<String, AuditError> {
        let transaction = begin(connection)?;
        let head = super::writer::head(&transaction)?;
        if let Some(own) = own
            && hash_at(&transaction, &head, own.n)?.is_some_and(|hash| hash != Some(own.hash))
        {
            return self.protest(own);
        }
        let newest = newest(&transaction)?;
        if newest.is_none() && base(&transaction)?.is_none() {
            let what = "its signed statements were removed; `cofferdam audit verify` says more";
            tracing::error!(target: "cofferdam::audit", n = head.n, "the record was changed: {what}");
            return Err(AuditError::new(AuditErrorKind::Corrupt, what));
        }
        if let Some((n, note)) = &newest
            && *n == head.n
            && Checkpoint::read(note, &self.signer.key()).is_ok()
        {
            self.anchor(&transaction, &head, note)?;
            return Ok(note.clone());
        }
        let (transaction, head) = match self.put_back(&transaction, newest.as_ref())? {
            Some(file) => {
                let payload = Map::from_iter([("file".to_owned(), file.into())]);
                say(&transaction, &head, "checkpoint_replaced", &payload)?;
                // The file speaks of nothing that is not committed: a log that is behind it has lost entries.
                transaction.commit()?;
                tracing::warn!(target: "cofferdam::audit", "audit.checkpoint was put back from an older copy; an entry of the log has it");
                let transaction = begin(connection)?;
                let head = super::writer::head(&transaction)?;
                (transaction, head)
            }
            None => (transaction, head),
        };
        let note = self.note(&head, Statement::Head);
        // The file is written first: a reader that finds the statement in the table finds one at least as new
        // in the file, even after a crash in between. The entries that it covers are committed already.
        self.anchor(&transaction, &head, &note)?;
        if let Some((n, _)) = newest
            && n / EVERY == head.n / EVERY
        {
            let delete = "DELETE FROM checkpoints WHERE n = ?1 AND kind = 'head'";
            transaction.prepare_cached(delete)?.execute([n])?;
        }
        let insert = "INSERT OR REPLACE INTO checkpoints (n, kind, note) VALUES (?1, 'head', ?2)";
        transaction.prepare_cached(insert)?.execute(params![head.n, note])?;
        transaction.commit()?;
        failpoint::pass("checkpoint.committed");
        // A loss stays remembered until the operator accepts it.
        match self.loss(connection)? {
            None => self.advance(connection, &head)?,
            Some(loss) => {
                tracing::warn!(target: "cofferdam::audit", "{loss}; `cofferdam audit verify` says more")
            }
        }
        Ok(note)
    }

    /// The statement in the file, where it is older than the newest one of the log: the file is always written first.
    fn put_back(
        &self,
        connection: &Connection,
        newest: Option<&(u64, String)>,
    ) -> Result<Option<String>, AuditError> {
        let Some((n, _)) = newest else { return Ok(None) };
        let file = self.anchor.read()?;
        let is_older = |file: &String| match Checkpoint::read(file, &self.signer.key()) {
            Ok(said) => Ok(said.n < *n && has(connection, Some(&self.signer.key()), said.n, said.hash)?),
            Err(_) => Ok::<_, AuditError>(false),
        };
        match file {
            Some(file) if is_older(&file)? => Ok(Some(file)),
            _ => Ok(None),
        }
    }

    /// Signs that the missing entries of this host existed, and stores the statement where it is not
    /// overwritten.
    fn protest(&self, own: &Head) -> Result<String, AuditError> {
        let note = self.note(own, Statement::Head);
        self.anchor.write(&note, self.power).map_err(AuditError::from_io)?;
        let what = "what this host wrote is not in it any more; `cofferdam audit verify` says more";
        tracing::error!(target: "cofferdam::audit", n = own.n, "the record was changed: {what}");
        Err(AuditError::new(AuditErrorKind::Corrupt, what))
    }

    /// Puts the newest statement into the file. One that knows more than the audit log is evidence, and stays; so is that
    /// there is none, since there was one before the first entry.
    fn anchor(&self, connection: &Connection, head: &Head, note: &str) -> Result<(), AuditError> {
        let Some(there) = self.anchor.read()? else {
            tracing::warn!(target: "cofferdam::audit", "audit.checkpoint was removed, and is not made anew; `cofferdam audit verify` says more");
            return Ok(());
        };
        {
            if there == note {
                return Ok(());
            }
            let evidence = match Checkpoint::read(&there, &self.signer.key()) {
                Ok(there) if there.n > head.n => Some("it signs for more than there is"),
                Ok(there) => match hash_at(connection, head, there.n)? {
                    Some(hash) if hash != Some(there.hash) => Some("it signs for another record"),
                    _ => None,
                },
                Err(_) => Some("this host did not sign it"),
            };
            if let Some(why) = evidence {
                tracing::warn!(target: "cofferdam::audit", "audit.checkpoint is left as it is: {why}; `cofferdam audit verify` says more");
                return Ok(());
            }
        }
        sync(connection)?;
        self.anchor.write(note, self.power).map_err(AuditError::from_io)
    }

    /// Puts on record that the operator accepts these flaws, and signs anew, whatever the file says.
    ///
    /// Nothing is written where there is neither a flaw nor a loss. A loss counts also where the flaws were accepted
    /// before: the process may have ended before the home remembered it.
    pub(super) fn accept(&self, connection: &Connection, flaws: Vec<Accepted>) -> Result<String, AuditError> {
        if flaws.is_empty() && self.loss(connection)?.is_none() {
            return self.sign(connection, None);
        }
        // An operator that repairs the vault first does not accept an older one unseen.
        self.state.vault_mark().map_err(AuditError::from_state)?;
        let transaction = begin(connection)?;
        let head = super::writer::head(&transaction)?;
        let mut payload = Map::new();
        payload.insert("note".into(), self.note(&head, Statement::Accepts(flaws)).into());
        let there = self.anchor.read()?;
        payload.insert("file".into(), there.map_or(Value::Null, Value::from));
        let ahead: Vec<String> = {
            let mut select =
                transaction.prepare("SELECT note FROM checkpoints WHERE n > ?1 ORDER BY n LIMIT 100")?;
            let notes = select.query_map([head.n], |row| row.get(0))?;
            notes.collect::<Result<_, _>>()?
        };
        payload.insert("removed".into(), ahead.into());
        transaction.execute("DELETE FROM checkpoints WHERE n > ?1", [head.n])?;
        let head = say(&transaction, &head, "loss_accepted", &payload)?;
        let note = self.note(&head, Statement::Head);
        let insert = "INSERT OR REPLACE INTO checkpoints (n, kind, note) VALUES (?1, 'head', ?2)";
        transaction.execute(insert, params![head.n, note])?;
        transaction.commit()?;
        failpoint::pass("accept.committed");
        sync(connection)?;
        self.anchor.write(&note, self.power).map_err(AuditError::from_io)?;
        self.state.accept(head.n, head.hash).map_err(AuditError::from_state)?;
        Ok(note)
    }

    pub(super) fn note(&self, head: &Head, statement: Statement) -> String {
        let vault = match self.state.read() {
            Ok(StoredState::Valid(progress)) => progress.vault.map_or(0, |vault| vault.highest),
            _ => 0,
        };
        Checkpoint { n: head.n, hash: head.hash, at: Timestamp::now(), vault: Some(vault), statement }
            .sign(&self.signer)
    }
}

/// Puts the committed entries on the disk: after a power cut neither `home.state` nor `audit.checkpoint` may be ahead of
/// them.
fn sync(connection: &Connection) -> Result<(), AuditError> {
    let log = format!("{}-wal", connection.path().unwrap_or_default());
    match File::open(log).and_then(|log| log.sync_data()) {
        // SQLite removes the file once its content is in the database, on the disk.
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(AuditError::from_io(error)),
        _ => Ok(()),
    }
}

/// Adds an entry of the audit log itself.
pub(super) fn say(
    connection: &Connection,
    head: &Head,
    name: &'static str,
    payload: &Map<String, Value>,
) -> rusqlite::Result<Head> {
    let entry = Entry::of_the_log(name, Timestamp::now(), payload);
    let n = head.n.saturating_add(1);
    let hash = chained(&head.hash, n, entry.digest());
    let insert = "INSERT INTO entries (n, prev, body, hash) VALUES (?1, 0, ?2, ?3)";
    connection.prepare_cached(insert)?.execute(params![n, entry.body(), hash])?;
    Ok(Head { n, hash })
}

/// The hash of an entry that is or was there; none where nothing can be told, since it was pruned.
pub(super) fn hash_at(
    connection: &Connection,
    head: &Head,
    n: u64,
) -> rusqlite::Result<Option<Option<[u8; 32]>>> {
    let select = "SELECT hash FROM entries WHERE n = ?1";
    let hash = connection.prepare_cached(select)?.query_row([n], |row| row.get(0)).optional()?;
    let pruned = n == 0 || base(connection)?.is_some_and(|(base, _)| n <= base && base <= head.n);
    Ok(if hash.is_none() && pruned { None } else { Some(hash) })
}

/// The newest statement about the end of the chain.
pub(super) fn newest(connection: &Connection) -> rusqlite::Result<Option<(u64, String)>> {
    let select = "SELECT n, note FROM checkpoints WHERE kind = 'head' ORDER BY n DESC LIMIT 1";
    connection.prepare_cached(select)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// The statement about the beginning of the chain, where it was pruned.
pub(super) fn base(connection: &Connection) -> rusqlite::Result<Option<(u64, String)>> {
    let select = "SELECT n, note FROM checkpoints WHERE kind = 'base' ORDER BY n DESC LIMIT 1";
    connection.prepare_cached(select)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}
