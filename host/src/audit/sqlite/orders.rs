//! One order, carried out within a transaction.

use std::collections::HashMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::names::Names;
use super::owners;
use super::rollup::{self, Ended};
use super::settled::resumed_by;
use super::writer::Head;
use crate::audit::entry::{Entry, chained};
use crate::audit::error::AuditError;
use crate::audit::order::{CloseCall, KeyClaim, KeyEnd, OpenCall, Opened, Order, Pruned, Reply, Standing};
use crate::audit::seal::Sealed;
use crate::failure::AuditId;

/// An answer that waits for the commit.
pub(super) enum Answer {
    Opened(Reply<Opened>, Option<Opened>),
    Done(Reply<()>),
    Settled(Reply<bool>, bool),
    Standing(Reply<Standing>, Option<Standing>),
    Signed(Reply<String>),
    Pruned(Reply<Pruned>),
    Nobody,
}

impl Answer {
    /// The answer to an order that is not carried out.
    pub(super) fn refused(order: Order) -> Self {
        match order {
            Order::Open { reply, .. } => Self::Opened(reply, None),
            Order::Append { reply, .. } | Order::Close { reply, .. } => {
                reply.map_or(Self::Nobody, Self::Done)
            }
            Order::Settle { reply, .. } => Self::Settled(reply, false),
            Order::Look { reply, .. } => Self::Standing(reply, None),
            Order::Flush { reply } => Self::Done(reply),
            Order::Sign { reply } | Order::Accept { reply, .. } => Self::Signed(reply),
            Order::Prune { reply, .. } => Self::Pruned(reply),
        }
    }

    /// Whether it is of a call that begins.
    pub(super) fn is_of_open(&self) -> bool {
        matches!(self, Self::Opened(..))
    }

    /// Whether it is of a call that goes on, or ends.
    pub(super) fn is_of_more(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Nobody)
    }

    /// Tells whoever waits; whoever does no more is not told.
    pub(super) fn tell(self, error: Option<&AuditError>) {
        fn send<T>(reply: Reply<T>, answer: Option<T>, error: Option<&AuditError>) {
            let answer = match (error, answer) {
                (None, Some(answer)) => Ok(answer),
                (Some(error), _) => Err(error.clone()),
                // Only where the order failed, and then there is an error.
                (None, None) => return,
            };
            let _ = reply.send(answer);
        }
        match self {
            Self::Opened(reply, opened) => send(reply, opened, error),
            Self::Done(reply) => send(reply, Some(()), error),
            Self::Settled(reply, settled) => send(reply, Some(settled), error),
            Self::Standing(reply, standing) => send(reply, standing, error),
            Self::Signed(reply) => send(reply, None, error),
            Self::Pruned(reply) => send(reply, None, error),
            Self::Nobody => {}
        }
    }
}

/// Where in the record the transaction is.
pub(super) struct At<'w> {
    pub(super) names: &'w mut Names,
    pub(super) open: &'w mut HashMap<[u8; 16], u64>,
    pub(super) owner: i64,
    pub(super) lives: &'w Path,
    pub(super) head: Head,
    /// How many calls got an end.
    pub(super) ended: usize,
    /// Up to where they are counted, once that was looked up.
    pub(super) counted: Option<[u8; 16]>,
}

/// Carries it out. What is answered holds only if the transaction is committed.
pub(super) fn carry_out(
    connection: &Connection,
    at: &mut At<'_>,
    order: Order,
) -> (Answer, rusqlite::Result<()>) {
    match order {
        Order::Open { call, reply } => match at.open(connection, &call) {
            Ok(opened) => (Answer::Opened(reply, Some(opened)), Ok(())),
            Err(error) => (Answer::Opened(reply, None), Err(error)),
        },
        Order::Append { audit_id, entry, reply } => {
            let outcome = at.append(connection, &audit_id, &entry);
            (reply.map_or(Answer::Nobody, Answer::Done), outcome)
        }
        Order::Close { open, call, reply } => {
            let opened = match open {
                Some(open) => at.open(connection, &open).map(drop),
                None => Ok(()),
            };
            let outcome = opened.and_then(|()| at.close(connection, &call));
            (reply.map_or(Answer::Nobody, Answer::Done), outcome)
        }
        Order::Settle { audit_id, decision, reply } => {
            match at.settle(connection, audit_id.bytes(), &decision) {
                Ok(settled) => (Answer::Settled(reply, settled), Ok(())),
                Err(error) => (Answer::Settled(reply, false), Err(error)),
            }
        }
        Order::Look { claim, reply } => match at.standing(connection, &claim) {
            Ok(standing) => (Answer::Standing(reply, Some(standing)), Ok(())),
            Err(error) => (Answer::Standing(reply, None), Err(error)),
        },
        Order::Flush { reply } => (Answer::Done(reply), Ok(())),
        // Done by themselves, after all that came before them.
        Order::Sign { reply } | Order::Accept { reply, .. } => (Answer::Signed(reply), Ok(())),
        Order::Prune { reply, .. } => (Answer::Pruned(reply), Ok(())),
    }
}

impl At<'_> {
    fn open(&mut self, connection: &Connection, call: &OpenCall) -> rusqlite::Result<Opened> {
        let id = call.audit_id.bytes();
        if self.last(connection, id)?.is_some() {
            return Ok(Opened::Begun);
        }
        if let Some(claim) = &call.key {
            match self.standing(connection, claim)? {
                Standing::Free => {}
                taken => return Ok(Opened::Taken(taken)),
            }
        }
        if let Some((before, actor)) = &call.resumes
            && !self.settle(connection, before.bytes(), &resumed_by(call, actor))?
        {
            return Ok(Opened::Decided);
        }
        if let Some(claim) = &call.key {
            // Whose key was free although somebody has it, was cut short: this call does it again.
            if let Some(before) = self.holder(connection, &claim.key)? {
                self.settle(connection, before, &resumed_by(call, &call.actor))?;
            }
            let insert = "INSERT INTO keys (key, fingerprint, call, state) VALUES (?1, ?2, ?3, 0) \
                          ON CONFLICT DO UPDATE SET fingerprint = ?2, call = ?3, state = 0, until = NULL";
            connection.prepare_cached(insert)?.execute(params![&*claim.key, claim.fingerprint, id])?;
        }
        let n = self.entry(connection, 0, &call.entry, call.request.as_ref())?;
        let route = self.names.route(connection, &call.route)?;
        let insert = "INSERT INTO calls (id, at, route, actor, idempotent, owner, first, last, verdict, key) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, 0, ?8)";
        connection.prepare_cached(insert)?.execute(params![
            id,
            call.at.as_microsecond(),
            route,
            &*call.actor,
            call.idempotent,
            self.owner,
            n,
            call.key.as_ref().map(|claim| &*claim.key),
        ])?;
        self.open.insert(id, n);
        Ok(Opened::Begun)
    }

    fn append(&mut self, connection: &Connection, audit_id: &AuditId, entry: &Entry) -> rusqlite::Result<()> {
        let id = audit_id.bytes();
        let prev = self.last(connection, id)?.unwrap_or(0);
        let n = self.entry(connection, prev, entry, None)?;
        connection.prepare_cached("UPDATE calls SET last = ?2 WHERE id = ?1")?.execute(params![id, n])?;
        self.open.entry(id).and_modify(|last| *last = n);
        Ok(())
    }

    fn close(&mut self, connection: &Connection, call: &CloseCall) -> rusqlite::Result<()> {
        let id = call.audit_id.bytes();
        let Some(prev) = self.last_open(connection, id)? else { return Ok(()) };
        // What was begun and ended in one entry needs no other, unless something is kept of its end.
        let n = match call.entry.is_empty() && call.outcome.is_none() {
            true => prev,
            false => self.entry(connection, prev, &call.entry, call.outcome.as_ref())?,
        };
        let verdict = self.names.verdict(connection, &call.verdict)?;
        let update = "UPDATE calls SET last = ?2, verdict = ?3, duration = ?4, attempts = ?5 WHERE id = ?1 \
                      RETURNING key, at, route";
        let duration = saturated(call.duration_us);
        let (key, at, route): (Option<String>, _, _) = connection
            .prepare_cached(update)?
            .query_row(params![id, n, verdict, duration, call.attempts], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        self.ended(connection, Ended { id, at, route, verdict, duration: Some(duration) })?;
        if let Some(key) = key {
            let (state, until) = match call.key {
                KeyEnd::Keeps(until) => (Some(1), Some(until.as_microsecond())),
                KeyEnd::Unknown => (Some(2), None),
                KeyEnd::Free => (None, None),
            };
            let end = match state {
                Some(_) => "UPDATE keys SET state = ?3, until = ?4 WHERE key = ?1 AND call = ?2",
                None => "DELETE FROM keys WHERE key = ?1 AND call = ?2 AND ?3 IS NULL AND ?4 IS NULL",
            };
            connection.prepare_cached(end)?.execute(params![key, id, state, until])?;
        }
        self.open.remove(&id);
        Ok(())
    }

    pub(super) fn ended(&mut self, connection: &Connection, call: Ended) -> rusqlite::Result<()> {
        self.ended += 1;
        rollup::ended(connection, &mut self.counted, call)
    }

    fn standing(&self, connection: &Connection, claim: &KeyClaim) -> rusqlite::Result<Standing> {
        let select = "SELECT keys.fingerprint, keys.call, keys.state, calls.idempotent, entries.sealed, keys.until \
                      FROM keys LEFT JOIN calls ON calls.id = keys.call \
                      LEFT JOIN entries ON keys.state = 1 AND entries.n = calls.last WHERE keys.key = ?1";
        let found = connection.prepare_cached(select)?;
        let found = { found }
            .query_row([&*claim.key], |row| {
                let fingerprint: [u8; 32] = row.get(0)?;
                let id: [u8; 16] = row.get(1)?;
                let state: i64 = row.get(2)?;
                let idempotent: Option<bool> = row.get(3)?;
                let outcome: Option<Vec<u8>> = row.get(4)?;
                let over =
                    row.get::<_, Option<i64>>(5)?.is_some_and(|until| until <= claim.at.as_microsecond());
                Ok((!over).then_some((fingerprint, id, state, idempotent.unwrap_or(false), outcome)))
            })
            .optional()?;
        let Some((fingerprint, id, state, idempotent, outcome)) = found.flatten() else {
            return Ok(Standing::Free);
        };
        let audit_id = AuditId::from_bytes(id);
        if fingerprint != claim.fingerprint {
            return Ok(Standing::Different { audit_id });
        }
        Ok(match state {
            1 => Standing::Done { audit_id, outcome: outcome.map(Sealed::from_bytes) },
            0 if !self.is_incomplete(connection, id)? => Standing::Running { audit_id },
            // What was cut short may be done again where that is as good as once.
            0 if idempotent => Standing::Free,
            _ => Standing::Unknown { audit_id },
        })
    }

    pub(super) fn is_incomplete(&self, connection: &Connection, id: [u8; 16]) -> rusqlite::Result<bool> {
        let select = "SELECT owners.id, owners.name FROM calls JOIN owners ON owners.id = calls.owner \
                      WHERE calls.id = ?1 AND calls.verdict = 0";
        let owner = connection.prepare_cached(select)?;
        let owner: Option<(i64, String)> =
            { owner }.query_row([id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        Ok(owner.is_some_and(|(owner, name)| owner != self.owner && !owners::lives(self.lives, &name)))
    }

    pub(super) fn last(&self, connection: &Connection, id: [u8; 16]) -> rusqlite::Result<Option<u64>> {
        if let Some(last) = self.open.get(&id) {
            return Ok(Some(*last));
        }
        let mut select = connection.prepare_cached("SELECT last FROM calls WHERE id = ?1")?;
        select.query_row([id], |row| row.get(0)).optional()
    }

    fn last_open(&self, connection: &Connection, id: [u8; 16]) -> rusqlite::Result<Option<u64>> {
        if let Some(last) = self.open.get(&id) {
            return Ok(Some(*last));
        }
        let mut select = connection.prepare_cached("SELECT last FROM calls WHERE id = ?1 AND verdict = 0")?;
        select.query_row([id], |row| row.get(0)).optional()
    }

    /// Adds an entry to the chain.
    pub(super) fn entry(
        &mut self,
        connection: &Connection,
        prev: u64,
        entry: &Entry,
        sealed: Option<&Sealed>,
    ) -> rusqlite::Result<u64> {
        let n = self.head.n.saturating_add(1);
        let hash = chained(&self.head.hash, n, entry.digest());
        let insert = "INSERT INTO entries (n, prev, body, hash, sealed) VALUES (?1, ?2, ?3, ?4, ?5)";
        connection.prepare_cached(insert)?.execute(params![
            n,
            prev,
            entry.body(),
            hash,
            sealed.map(Sealed::bytes)
        ])?;
        self.head = Head { n, hash };
        Ok(n)
    }
}

fn saturated(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
