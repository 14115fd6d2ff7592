//! The quota of sealed bytes: how many each client has in the log, and which ones go when there are too many.
//!
//! Requests and outcomes are stored completely, sealed, to be done or given again. A client that makes many large calls
//! would fill the disk with them. So the oldest go first, of calls that have ended: the call stays in the log and its
//! idempotency key stays taken, and a repeated call is refused, since its outcome is not stored. Nothing is dropped of a
//! call that runs, is incomplete or has an undetermined key: an operator needs it to decide.

use cofferdam_core::failure::AuditId;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::LogIndex;
use super::reader::{LineFailure, read_lines};
use crate::error::AuditError;
use crate::journal::drop_sealed;
use crate::settings::SealedQuota;
use crate::stats::SealedUsage;
use crate::upkeep::{QuotaOutcome, below_quota};

/// The most calls of one client whose sealed parts one transaction drops: the next one goes on.
const CALLS_AT_ONCE: usize = 1_024;

/// The most transactions of one enforcement.
const ROUNDS: usize = 16;

/// The most clients that one transaction makes room among, those with the most bytes first.
const CLIENTS_AT_ONCE: usize = 8;

/// The oldest calls of a client that have sealed bytes and need no decision. The steps of actions only with `?2`: an
/// interrupted action goes on from the outcomes of its steps.
const SELECT_OLDEST: &str = "SELECT calls.seq, calls.id, writers.name, calls.places, calls.sealed \
    FROM calls INDEXED BY calls_sealed JOIN writers ON writers.id = calls.writer \
    WHERE calls.actor = ?1 AND calls.sealed > 0 AND calls.outcome <> 0 \
    AND (calls.is_undetermined = 0 OR EXISTS (SELECT 1 FROM decided WHERE decided.call = calls.id)) \
    AND (?2 OR NOT EXISTS (SELECT 1 FROM targets WHERE targets.id = calls.target AND targets.step <> '')) \
    ORDER BY calls.seq LIMIT ?3";

/// The sealed bytes of a client, with its number in the index.
pub(super) struct ClientUsage {
    actor: i64,
    pub(super) usage: SealedUsage,
}

/// The calls of a client whose sealed parts were dropped, and their bytes.
#[derive(Default)]
struct Dropped {
    calls: usize,
    bytes: u64,
}

impl LogIndex {
    /// Drops sealed parts of the oldest calls that have ended, as far as there are more than the quota allows: they are
    /// overwritten with zeros in the files beside the journals.
    ///
    /// # Errors
    /// The files or the index cannot be written.
    pub(crate) fn enforce_quota(&mut self, quota: SealedQuota) -> Result<QuotaOutcome, AuditError> {
        let mut outcome = QuotaOutcome::default();
        for _ in 0..ROUNDS {
            let usage = usage(&self.file.connection)?;
            let is_above = usage.iter().any(|client| client.usage.bytes > quota.per_client);
            if !is_above && sum(&usage) <= quota.in_all {
                break;
            }
            let dropped = self.make_room(quota, &mut outcome)?;
            outcome.dropped = outcome.dropped.saturating_add(dropped);
            if dropped == 0 {
                break;
            }
        }
        Ok(outcome)
    }

    /// Drops some of what is above the quota, in one transaction. Returns the number of calls.
    fn make_room(&self, quota: SealedQuota, outcome: &mut QuotaOutcome) -> Result<usize, AuditError> {
        let transaction = Transaction::new_unchecked(&self.file.connection, TransactionBehavior::Immediate)?;
        let mut dropped = Dropped::default();
        let mut usage = usage(&transaction)?;
        for client in usage.iter_mut().filter(|client| client.usage.bytes > quota.per_client) {
            let need = client.usage.bytes.saturating_sub(below_quota(quota.per_client));
            let own = self.drop_oldest(&transaction, client, need)?;
            if own.bytes == 0 {
                outcome.clients.insert(client.usage.client.clone());
            }
            client.usage.bytes = client.usage.bytes.saturating_sub(own.bytes);
            dropped.add(&own);
        }
        let in_all = sum(&usage);
        if in_all > quota.in_all {
            usage.sort_by_key(|client| std::cmp::Reverse(client.usage.bytes));
            let (mut need, mut freed) = (in_all.saturating_sub(below_quota(quota.in_all)), 0_u64);
            for client in usage.iter().take(CLIENTS_AT_ONCE) {
                let own = self.drop_oldest(&transaction, client, need)?;
                (need, freed) = (need.saturating_sub(own.bytes), freed.saturating_add(own.bytes));
                dropped.add(&own);
                if need == 0 {
                    break;
                }
            }
            outcome.is_all = freed == 0;
        }
        transaction.commit()?;
        Ok(dropped.calls)
    }

    /// Drops the sealed parts of the client's oldest calls, `need` bytes or more.
    fn drop_oldest(
        &self,
        connection: &Connection,
        client: &ClientUsage,
        need: u64,
    ) -> Result<Dropped, AuditError> {
        let mut dropped = Dropped::default();
        for with_steps in [false, true] {
            if dropped.bytes >= need {
                break;
            }
            let oldest: Vec<_> = {
                let mut select = connection.prepare_cached(SELECT_OLDEST)?;
                let most = i64::try_from(CALLS_AT_ONCE.saturating_sub(dropped.calls)).unwrap_or(0);
                let rows = select.query_map(params![client.actor, with_steps, most], |row| {
                    let (seq, id, writer): (i64, _, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
                    Ok((seq, id, writer, row.get::<_, Vec<u8>>(3)?, row.get(4)?))
                })?;
                rows.collect::<Result<_, _>>()?
            };
            for (seq, id, writer, places, bytes) in oldest {
                if dropped.bytes >= need {
                    break;
                }
                if self.drop_parts(&writer, &places, &AuditId::from_bytes(id))? {
                    connection
                        .prepare_cached("UPDATE calls SET sealed = 0 WHERE seq = ?1")?
                        .execute([seq])?;
                    dropped.add(&Dropped { calls: 1, bytes });
                }
            }
        }
        if dropped.bytes > 0 {
            let update = "UPDATE actors SET sealed = max(sealed - ?2, 0) WHERE id = ?1";
            connection.prepare_cached(update)?.execute(params![client.actor, dropped.bytes])?;
        }
        Ok(dropped)
    }

    /// Drops the sealed parts of a call that has ended according to the journal. False if the journal does not say so.
    fn drop_parts(&self, writer: &str, places: &[u8], audit_id: &AuditId) -> Result<bool, AuditError> {
        let lines = match read_lines(&self.root, writer, places, audit_id) {
            Ok(lines) => lines,
            // Verification reports it, and it stays as evidence.
            Err(LineFailure::Misplaced | LineFailure::Changed(_)) => return Ok(false),
            Err(LineFailure::Failed(error)) => return Err(error),
        };
        if !lines.iter().any(|line| line.is_end) {
            return Ok(false);
        }
        for line in lines {
            if let Some(place) = &line.sealed {
                drop_sealed(&self.root.join(writer), line.segment, place)?;
            }
        }
        Ok(true)
    }
}

impl Dropped {
    fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Returns the sealed bytes of each client that has any, the most first.
pub(super) fn usage(connection: &Connection) -> rusqlite::Result<Vec<ClientUsage>> {
    let select = "SELECT id, name, sealed FROM actors WHERE sealed > 0 ORDER BY sealed DESC, name";
    let mut select = connection.prepare_cached(select)?;
    let usage = select.query_map([], |row| {
        let usage = SealedUsage { client: row.get(1)?, bytes: row.get(2)? };
        Ok(ClientUsage { actor: row.get(0)?, usage })
    })?;
    usage.collect()
}

fn sum(usage: &[ClientUsage]) -> u64 {
    usage.iter().fold(0, |sum, client| sum.saturating_add(client.usage.bytes))
}
