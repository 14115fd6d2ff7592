//! The input of a verification, from one unchanging view of the file: the chain, the signed statements, and the
//! derived tables.

use std::path::Path;

use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{schema, signing};
use crate::command::CallStatus;
use crate::error::AuditError;
use crate::evidence::{AuditEvidence, HeldKey, KeptCall, KeptEntry, KeptKey, KeptNote, KeyOfPruned};
use crate::log::StoredEntry;
use crate::seal::Sealed;

/// The size of one page of entries: a page ends once its entries have so many bytes.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// A view of one file, as it was when it was opened.
pub(super) struct Evidence {
    connection: Connection,
}

impl Evidence {
    pub(super) fn open(path: &Path) -> Result<Self, AuditError> {
        Self::of(schema::open_to_read(path)?)
    }

    /// The view of an open file.
    pub(super) fn of(connection: Connection) -> Result<Self, AuditError> {
        // Until it is closed: hosts go on writing, and none of that is seen.
        if connection.is_autocommit() {
            connection.execute_batch("BEGIN")?;
        }
        connection.query_row("SELECT count(*) FROM owners", [], |_| Ok(()))?;
        Ok(Self { connection })
    }
}

#[cfg(test)]
impl Evidence {
    pub(super) fn into_inner(self) -> Connection {
        self.connection
    }
}

impl Evidence {
    /// Some entries, as many as fit.
    fn page(&self, select: &str, from: u64, most: usize) -> Result<Vec<KeptEntry>, AuditError> {
        let mut select = self.connection.prepare_cached(select)?;
        let mut rows = select.query(params![from, i64::try_from(most).unwrap_or(i64::MAX)])?;
        let (mut entries, mut bytes) = (Vec::new(), 0_usize);
        while let Some(row) = rows.next()? {
            let hash: Vec<u8> = row.get(2)?;
            // A hash of another length is no valid hash, and a body that is not UTF-8 was none when it was
            // hashed.
            let hash = hash.try_into().unwrap_or([0; 32]);
            let body = String::from_utf8_lossy(row.get_ref(1)?.as_bytes().unwrap_or_default()).into_owned();
            let entry = StoredEntry { n: row.get(0)?, body, hash };
            let sealed: Option<Vec<u8>> = row.get(4)?;
            bytes = bytes.saturating_add(entry.body.len() + sealed.as_ref().map_or(0, Vec::len));
            entries.push(KeptEntry { entry, prev: row.get(3)?, sealed: sealed.map(Sealed::from_bytes) });
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        Ok(entries)
    }
}

impl AuditEvidence for Evidence {
    fn last(&mut self) -> Result<u64, AuditError> {
        let last = self
            .connection
            .query_row("SELECT max(n) FROM entries", [], |row| row.get::<_, Option<u64>>(0))?;
        Ok(last.unwrap_or(0))
    }

    fn entries(&mut self, from: u64, most: usize) -> Result<Vec<KeptEntry>, AuditError> {
        self.page(
            "SELECT n, body, hash, prev, sealed FROM entries WHERE n >= ?1 ORDER BY n LIMIT ?2",
            from,
            most,
        )
    }

    fn chain(&mut self, from: u64, most: usize) -> Result<Vec<KeptEntry>, AuditError> {
        self.page(
            "SELECT n, body, hash, prev, NULL FROM entries WHERE n >= ?1 ORDER BY n LIMIT ?2",
            from,
            most,
        )
    }

    fn notes(&mut self) -> Result<Vec<KeptNote>, AuditError> {
        let mut select =
            self.connection.prepare("SELECT n, note, kind <> 'head' FROM checkpoints ORDER BY n")?;
        let rows = select
            .query_map([], |row| Ok(KeptNote { n: row.get(0)?, note: row.get(1)?, is_base: row.get(2)? }))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn base(&mut self) -> Result<Option<String>, AuditError> {
        Ok(signing::base(&self.connection)?.map(|(_, note)| note))
    }

    fn call(&mut self, audit_id: &AuditId) -> Result<Option<KeptCall>, AuditError> {
        let mut select = self.connection.prepare_cached(&format!("{CALL} WHERE calls.id = ?1"))?;
        Ok(select.query_row([audit_id.bytes()], kept_call).optional()?)
    }

    fn calls(&mut self, after: Option<&AuditId>, most: usize) -> Result<Vec<KeptCall>, AuditError> {
        let after = after.map_or([0; 16], AuditId::bytes);
        let select = format!("{CALL} WHERE calls.id > ?1 ORDER BY calls.id LIMIT ?2");
        let mut select = self.connection.prepare_cached(&select)?;
        let rows = select.query_map(params![after, i64::try_from(most).unwrap_or(i64::MAX)], kept_call)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn count(&mut self) -> Result<u64, AuditError> {
        Ok(self.connection.query_row("SELECT count(*) FROM calls", [], |row| row.get(0))?)
    }

    fn counts_hold(&mut self) -> Result<bool, AuditError> {
        Ok(super::rollup::recount(&self.connection)?)
    }

    fn stray_keys(&mut self) -> Result<Vec<KeptKey>, AuditError> {
        let select = "SELECT keys.call, calls.last FROM keys LEFT JOIN calls ON calls.id = keys.call \
                      WHERE (calls.id IS NULL AND keys.state <> 3) \
                      OR (calls.id IS NOT NULL AND calls.key IS NOT keys.key) \
                      OR (calls.verdict = 0) <> (keys.state = 0) LIMIT 100";
        let mut select = self.connection.prepare(select)?;
        let rows = select.query_map([], |row| {
            let id: Vec<u8> = row.get(0)?;
            let audit_id = id.try_into().map(AuditId::from_bytes).ok();
            Ok(KeptKey { audit_id, last: row.get::<_, Option<u64>>(1)?.unwrap_or(0) })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn keys_of_pruned(&mut self, after: Option<&str>, most: usize) -> Result<Vec<KeyOfPruned>, AuditError> {
        let select = "SELECT key, call, fingerprint FROM keys WHERE key > ?1 AND state = 3 \
                      AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.id = keys.call) ORDER BY key LIMIT ?2";
        let mut select = self.connection.prepare_cached(select)?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = select.query_map(params![after.unwrap_or_default(), most], |row| {
            let id: Vec<u8> = row.get(1)?;
            let audit_id = id.try_into().map(AuditId::from_bytes).ok();
            Ok(KeyOfPruned { key: row.get(0)?, audit_id, fingerprint: row.get(2)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

const CALL: &str = "SELECT calls.id, calls.at, calls.first, calls.last, calls.actor, calls.attempts, \
                    routes.connector, routes.op, verdicts.status, verdicts.class, verdicts.code, routes.action, \
                    routes.step, calls.idempotent, calls.key, keys.fingerprint, keys.state, keys.until FROM calls \
                    LEFT JOIN keys ON keys.key = calls.key AND keys.call = calls.id \
                    LEFT JOIN routes ON routes.id = calls.route LEFT JOIN verdicts ON verdicts.id = calls.verdict";

fn kept_call(row: &Row<'_>) -> rusqlite::Result<KeptCall> {
    let text = |at: usize| row.get::<_, Option<String>>(at).map(|text| text.filter(|text| !text.is_empty()));
    let status: Option<usize> = row.get(8)?;
    let id: Vec<u8> = row.get(0)?;
    let held = match row.get::<_, Option<i64>>(16)? {
        Some(state) => Some(HeldKey {
            fingerprint: row.get(15)?,
            state,
            until: row.get::<_, Option<i64>>(17)?.and_then(|until| Timestamp::from_microsecond(until).ok()),
        }),
        None => None,
    };
    Ok(KeptCall {
        audit_id: id.try_into().map(AuditId::from_bytes).ok(),
        at: Timestamp::from_microsecond(row.get(1)?).unwrap_or_default(),
        first: row.get(2)?,
        last: row.get(3)?,
        actor: row.get(4)?,
        attempts: row.get(5)?,
        connector: text(6)?,
        op: text(7)?,
        status: status.and_then(|status| CallStatus::ALL.get(status).copied()),
        class: text(9)?,
        code: text(10)?,
        action: text(11)?,
        step: text(12)?,
        idempotent: row.get(13)?,
        key: row.get(14)?,
        held,
    })
}
