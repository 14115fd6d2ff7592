//! Reads the audit log with a connection of its own, which sees all that is committed and holds up no writer.

use std::path::{Path, PathBuf};

use cofferdam_core::event::operator::OperatorEvent;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::find::{self, Plan};
use super::{owners, rollup, schema, sealed};
use crate::command::CallStatus;
use crate::entry::operator_event;
use crate::error::AuditError;
use crate::log::{AuditReader, CallRow, Filter, StoredEntry};
use crate::seal::Sealed;
use crate::stats::{SealedUsage, Stats};

/// A reader of one file.
pub(super) struct Reader {
    connection: Connection,
    lives: PathBuf,
}

impl Reader {
    pub(super) fn open(path: &Path, lives: PathBuf) -> Result<Self, AuditError> {
        Ok(Self { connection: schema::open_to_read(path)?, lives })
    }

    /// The row of one call. Incomplete it is only if it had no end after its host was found gone.
    fn row(&self, id: [u8; 16]) -> Result<Option<CallRow>, AuditError> {
        let mut select = self.connection.prepare_cached(&format!("{ROW} WHERE calls.id = ?1"))?;
        let mut read = || select.query_row([id], |row| Ok((call_row(row)?, row.get(15)?))).optional();
        let found: Option<(CallRow, Option<String>)> = read()?;
        let Some((row, owner)) = found else { return Ok(None) };
        if row.status != CallStatus::Running || owner.is_none_or(|name| owners::lives(&self.lives, &name)) {
            return Ok(Some(row));
        }
        Ok(read()?.map(|(row, _)| CallRow { incomplete: row.status == CallStatus::Running, ..row }))
    }
}

const ROW: &str = "SELECT calls.id, calls.at, routes.connector, routes.op, routes.action, routes.step, calls.actor, \
                   calls.idempotent, verdicts.status, verdicts.class, verdicts.code, calls.duration, calls.attempts, \
                   calls.first, calls.last, owners.name FROM calls JOIN routes ON routes.id = calls.route \
                   JOIN verdicts ON verdicts.id = calls.verdict LEFT JOIN owners ON owners.id = calls.owner";

const SELECT_BETWEEN: &str = "SELECT id FROM calls WHERE id >= ?1 AND id <= ?2 ORDER BY id LIMIT ?3";
const SELECT_LENGTH: &str = "SELECT n FROM entries ORDER BY n DESC LIMIT 1";

/// Queries of calls here.
#[cfg(test)]
pub(super) const QUERIES: [&str; 1] = [SELECT_BETWEEN];

fn call_row(row: &Row<'_>) -> rusqlite::Result<CallRow> {
    let text = |at: usize| row.get::<_, String>(at).map(|text| Some(text).filter(|text| !text.is_empty()));
    let status: usize = row.get(8)?;
    Ok(CallRow {
        audit_id: AuditId::from_bytes(row.get(0)?),
        at: jiff::Timestamp::from_microsecond(row.get(1)?).unwrap_or_default(),
        connector: row.get(2)?,
        op: row.get(3)?,
        action: text(4)?,
        step: text(5)?,
        actor: row.get(6)?,
        idempotent: row.get(7)?,
        status: CallStatus::ALL.get(status).copied().unwrap_or(CallStatus::Running),
        incomplete: false,
        class: text(9)?,
        code: text(10)?,
        duration_us: row.get(11)?,
        attempts: row.get(12)?,
        first: row.get(13)?,
        last: row.get(14)?,
    })
}

impl AuditReader for Reader {
    fn list(&mut self, filter: &Filter) -> Result<Vec<CallRow>, AuditError> {
        let limit = if filter.limit == 0 { usize::MAX } else { filter.limit };
        let found = {
            // All scans see the same moment.
            let transaction = self.connection.unchecked_transaction()?;
            Plan::new(&transaction, filter)?.calls(&transaction, &self.lives, limit)?
        };
        let rows = found.into_iter().filter_map(|id| self.row(id).transpose());
        // One may have ended since.
        let open = filter.incomplete || filter.status == Some(CallStatus::Running);
        let stands = |row: &CallRow| {
            !open || (row.status == CallStatus::Running && row.incomplete == filter.incomplete)
        };
        rows.filter(|row| row.as_ref().map_or(true, stands)).collect()
    }

    fn call(&mut self, audit_id: &AuditId) -> Result<Option<CallRow>, AuditError> {
        self.row(audit_id.bytes())
    }

    fn between(&mut self, from: &AuditId, to: &AuditId, most: usize) -> Result<Vec<AuditId>, AuditError> {
        let mut select = self.connection.prepare_cached(SELECT_BETWEEN)?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = select.query_map(params![from.bytes(), to.bytes(), most], |row| row.get(0))?;
        let ids = rows.map(|id| id.map(AuditId::from_bytes));
        Ok(ids.collect::<Result<_, _>>()?)
    }

    fn length(&mut self) -> Result<u64, AuditError> {
        Ok(self
            .connection
            .prepare_cached(SELECT_LENGTH)?
            .query_row([], |row| row.get(0))
            .optional()?
            .unwrap_or(0))
    }

    fn codes(&mut self) -> Result<Vec<String>, AuditError> {
        let select = "SELECT DISTINCT code FROM verdicts WHERE code <> '' ORDER BY code";
        let mut select = self.connection.prepare_cached(select)?;
        Ok(select.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
    }

    fn stats(&mut self, filter: &Filter) -> Result<Stats, AuditError> {
        let transaction = self.connection.unchecked_transaction()?;
        let lives = |owner| find::owner_lives(&transaction, &self.lives, owner);
        Ok(rollup::stats(&transaction, filter, lives)?)
    }

    fn sealed_usage(&mut self) -> Result<Vec<SealedUsage>, AuditError> {
        Ok(sealed::usage(&self.connection)?)
    }

    fn undecided_keys(&mut self, of: Option<&AuditId>) -> Result<Vec<AuditId>, AuditError> {
        let select = "SELECT call FROM keys WHERE state = 2 AND (?1 IS NULL OR call = ?1) ORDER BY call";
        let mut select = self.connection.prepare_cached(select)?;
        let rows = select.query_map([of.map(AuditId::bytes)], |row| row.get(0))?;
        Ok(rows.map(|id| id.map(AuditId::from_bytes)).collect::<Result<_, _>>()?)
    }

    fn entries_of(&mut self, audit_id: &AuditId) -> Result<Vec<StoredEntry>, AuditError> {
        let last = "SELECT last FROM calls WHERE id = ?1";
        let last = self.connection.query_row(last, [audit_id.bytes()], |row| row.get(0)).optional()?;
        let mut next: u64 = last.unwrap_or(0);
        let mut entries = Vec::new();
        let mut select =
            self.connection.prepare_cached("SELECT n, body, hash, prev FROM entries WHERE n = ?1")?;
        while next > 0 {
            let found =
                select.query_row([next], |row| Ok((stored(row)?, row.get::<_, u64>(3)?))).optional()?;
            let Some((entry, prev)) = found else { break };
            // Backwards and nowhere else: a record that was tampered with has no loops either.
            next = prev.min(entry.n.saturating_sub(1));
            entries.push(entry);
        }
        entries.reverse();
        Ok(entries)
    }

    fn entries(&mut self, from: u64, most: usize) -> Result<Vec<StoredEntry>, AuditError> {
        let select = "SELECT n, body, hash FROM entries WHERE n >= ?1 ORDER BY n LIMIT ?2";
        let mut select = self.connection.prepare_cached(select)?;
        let rows = select.query_map(params![from, i64::try_from(most).unwrap_or(i64::MAX)], stored)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn operator_events(
        &mut self,
        since: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, OperatorEvent<'static>)>, AuditError> {
        // All entries are searched, since such entries are in no table.
        let mut select = self.connection.prepare_cached("SELECT body FROM entries ORDER BY n DESC")?;
        let mut rows = select.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let body = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
            if !body.starts_with("{\"log\":") {
                continue;
            }
            let event = operator_event(body).filter(|(at, _)| since.is_none_or(|since| *at >= since));
            found.extend(event);
            if found.len() == limit && limit > 0 {
                break;
            }
        }
        Ok(found)
    }

    fn sealed(&mut self, audit_id: &AuditId) -> Result<(Option<Sealed>, Option<Sealed>), AuditError> {
        let select = "SELECT f.sealed, l.sealed, calls.verdict FROM calls LEFT JOIN entries f ON f.n = calls.first \
                      LEFT JOIN entries l ON l.n = calls.last AND calls.last <> calls.first WHERE calls.id = ?1";
        let found = self.connection.query_row(select, [audit_id.bytes()], |row| {
            Ok((row.get::<_, Option<Vec<u8>>>(0)?, row.get::<_, Option<Vec<u8>>>(1)?))
        });
        let (request, outcome) = found.optional()?.unwrap_or_default();
        Ok((request.map(Sealed::from_bytes), outcome.map(Sealed::from_bytes)))
    }
}

fn stored(row: &Row<'_>) -> rusqlite::Result<StoredEntry> {
    Ok(StoredEntry { n: row.get(0)?, body: row.get(1)?, hash: row.get(2)? })
}
