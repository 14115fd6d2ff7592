//! The quota of sealed bytes: how many each client has in the log, and which ones go when there are too many.
//!
//! Requests and outcomes are kept whole, sealed, to be done or given again. A client that makes many large calls would
//! fill the disk with them. So the oldest go first, of calls that have ended: the call stays in the log and its
//! idempotency key stays taken, and a repeated call is refused, since its outcome is not kept. Nothing is dropped of a
//! call that runs, was interrupted or has an unknown outcome: an operator needs it to decide.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension as _, params};

use super::SealedQuota;
use crate::stats::SealedUsage;

/// The most calls of one client from which one commit drops what is sealed: commits stay short, and the next goes on.
const CALLS_AT_ONCE: usize = 1_024;

/// The most clients that one commit makes room among, those with the most bytes first.
const CLIENTS_AT_ONCE: usize = 8;

/// The oldest calls of a client that have sealed bytes and need no decision. The steps of actions
/// only with `?2`: an action that was cut short goes on from the outcomes of its steps.
const SELECT_OLDEST: &str = "SELECT id, first, last, sealed FROM calls WHERE actor = ?1 AND sealed > 0 AND verdict <> 0 \
    AND NOT EXISTS (SELECT 1 FROM keys WHERE keys.key = calls.key AND keys.call = calls.id AND keys.state IN (0, 2)) \
    AND (?2 OR NOT EXISTS (SELECT 1 FROM routes WHERE routes.id = calls.route AND routes.step <> '')) \
    ORDER BY id LIMIT ?3";

/// The clients that are above their quota with nothing left to drop: no more is sealed for them.
#[derive(Debug, Default)]
pub(super) struct Full {
    clients: HashSet<String>,
    is_all: bool,
}

impl Full {
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty() && !self.is_all
    }

    pub(super) fn has(&self, client: &str) -> bool {
        self.is_all || self.clients.contains(client)
    }
}

/// The sealed bytes that one transaction adds.
#[derive(Debug, Default)]
pub(super) struct Added {
    clients: HashMap<String, i64>,
}

impl Added {
    pub(super) fn add(&mut self, client: &str, bytes: i64) {
        if bytes == 0 {
            return;
        }
        match self.clients.get_mut(client) {
            Some(sum) => *sum = sum.saturating_add(bytes),
            None => drop(self.clients.insert(client.to_owned(), bytes)),
        }
    }

    /// Adds them to the sums, and makes room where these are above the quota. Returns how many calls lost what was
    /// sealed of them.
    pub(super) fn settle(
        mut self,
        connection: &Connection,
        quota: SealedQuota,
        full: &mut Full,
    ) -> rusqlite::Result<usize> {
        // Those that had no room may have some now.
        for client in full.clients.drain() {
            self.clients.entry(client).or_insert(0);
        }
        if self.clients.is_empty() && !full.is_all {
            return Ok(0);
        }
        let mut dropped = 0;
        let mut in_all = change_all(connection, self.clients.values().copied().fold(0, i64::saturating_add))?;
        let per_client = saturated(quota.per_client);
        for (client, added) in self.clients {
            let bytes = change(connection, &client, added)?;
            if bytes > per_client {
                let (calls, freed) =
                    drop_oldest(connection, &client, bytes.saturating_sub(target(per_client)))?;
                dropped += calls;
                in_all = in_all.saturating_sub(freed);
                if freed == 0 {
                    full.clients.insert(client);
                }
            }
        }
        full.is_all = false;
        let total = saturated(quota.in_all);
        if in_all > total {
            let mut need = in_all.saturating_sub(target(total));
            for client in most(connection)? {
                let (calls, freed) = drop_oldest(connection, &client, need)?;
                dropped += calls;
                need = need.saturating_sub(freed);
                in_all = in_all.saturating_sub(freed);
                if need <= 0 || calls >= CALLS_AT_ONCE {
                    break;
                }
            }
            full.is_all = in_all > total && dropped == 0;
        }
        Ok(dropped)
    }
}

/// Below a quota, so that not every commit after it has to make room.
fn target(quota: i64) -> i64 {
    quota.saturating_sub(quota / 10)
}

/// Drops what is sealed of the client's oldest calls, `need` bytes or more. Returns of how many calls, and the bytes.
fn drop_oldest(connection: &Connection, client: &str, need: i64) -> rusqlite::Result<(usize, i64)> {
    let (mut calls, mut freed) = (0, 0i64);
    for with_steps in [false, true] {
        if freed >= need {
            break;
        }
        let oldest: Vec<([u8; 16], u64, u64, i64)> = {
            let mut select = connection.prepare_cached(SELECT_OLDEST)?;
            let most = CALLS_AT_ONCE.saturating_sub(calls);
            let rows = select
                .query_map(params![client, with_steps, i64::try_from(most).unwrap_or(0)], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                })?;
            rows.collect::<Result<_, _>>()?
        };
        for (id, first, last, bytes) in oldest {
            if freed >= need {
                break;
            }
            let drop = "UPDATE entries SET sealed = NULL WHERE n IN (?1, ?2)";
            connection.prepare_cached(drop)?.execute([first, last])?;
            connection.prepare_cached("UPDATE calls SET sealed = 0 WHERE id = ?1")?.execute([id])?;
            freed = freed.saturating_add(bytes);
            calls += 1;
        }
    }
    removed(connection, client, freed)?;
    Ok((calls, freed))
}

/// Takes bytes off the sums that are not in the log any more.
pub(super) fn removed(connection: &Connection, client: &str, bytes: i64) -> rusqlite::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    if change(connection, client, bytes.saturating_neg())? <= 0 {
        connection.prepare_cached("DELETE FROM sealed_by_client WHERE client = ?1")?.execute([client])?;
    }
    change_all(connection, bytes.saturating_neg()).map(drop)
}

fn change(connection: &Connection, client: &str, bytes: i64) -> rusqlite::Result<i64> {
    let change = "INSERT INTO sealed_by_client (client, bytes) VALUES (?1, ?2) \
                  ON CONFLICT DO UPDATE SET bytes = bytes + ?2 RETURNING bytes";
    connection.prepare_cached(change)?.query_row(params![client, bytes], |row| row.get(0))
}

fn change_all(connection: &Connection, bytes: i64) -> rusqlite::Result<i64> {
    let change = "UPDATE sealed_in_all SET bytes = bytes + ?1 RETURNING bytes";
    let sum = connection.prepare_cached(change)?.query_row([bytes], |row| row.get(0)).optional()?;
    Ok(sum.unwrap_or(0))
}

fn most(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let select = "SELECT client FROM sealed_by_client ORDER BY bytes DESC, client LIMIT ?1";
    let mut select = connection.prepare_cached(select)?;
    let rows = select.query_map([i64::try_from(CLIENTS_AT_ONCE).unwrap_or(1)], |row| row.get(0))?;
    rows.collect()
}

/// The usage of each client, the most first; none in a log of the first version, which did not count.
pub(super) fn usage(connection: &Connection) -> rusqlite::Result<Vec<SealedUsage>> {
    let is_counted = "SELECT 1 FROM sqlite_schema WHERE name = 'sealed_by_client'";
    if !connection.prepare_cached(is_counted)?.exists([])? {
        return Ok(Vec::new());
    }
    let select = "SELECT client, bytes FROM sealed_by_client WHERE bytes > 0 ORDER BY bytes DESC, client";
    let mut select = connection.prepare_cached(select)?;
    let rows = select.query_map([], |row| Ok(SealedUsage { client: row.get(0)?, bytes: row.get(1)? }))?;
    rows.collect()
}

fn saturated(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
