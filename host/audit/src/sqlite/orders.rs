//! One order, carried out within a transaction.

use std::collections::HashMap;
use std::path::Path;

use cofferdam_core::event::operator::OPERATOR_EVENT;
use cofferdam_core::failure::AuditId;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::names::Names;
use super::owners;
use super::place::replaced;
use super::rollup::{self, Ended};
use super::sealed;
use super::settled::resumed_by;
use super::step_keys;
use super::write_command::{Reply, WriteCommand};
use super::writer::Head;
use crate::command::{
    CallStatus, CloseCall, KeyClaim, KeyDisposition, KeyScope, KeyState, OpenCall, OpenOutcome, Pruned,
};
use crate::entry::{Entry, chained};
use crate::error::{AuditError, AuditErrorKind};
use crate::seal::Sealed;

/// An answer that waits for the commit.
pub(super) enum Answer {
    Opened(Reply<OpenOutcome>, Option<Result<OpenOutcome, AuditError>>),
    /// Without a channel, no caller waits for it.
    Done(Option<Reply<()>>, Result<(), AuditError>),
    Settled(Reply<bool>, bool),
    KeyState(Reply<KeyState>, Option<KeyState>),
    Signed(Reply<String>),
    Pruned(Reply<Pruned>),
}

impl Answer {
    /// The answer to an order that is not carried out.
    pub(super) fn refused(order: WriteCommand) -> Self {
        match order {
            WriteCommand::Open { reply, .. } => Self::Opened(reply, None),
            WriteCommand::Append { reply, .. } | WriteCommand::Close { reply, .. } => {
                Self::Done(reply, Ok(()))
            }
            WriteCommand::Resolve { reply, .. } => Self::Settled(reply, false),
            WriteCommand::KeyState { reply, .. } => Self::KeyState(reply, None),
            WriteCommand::Record { reply, .. } | WriteCommand::Flush { reply } => {
                Self::Done(Some(reply), Ok(()))
            }
            WriteCommand::Sign { reply } | WriteCommand::Accept { reply, .. } => Self::Signed(reply),
            WriteCommand::Prune { reply, .. } => Self::Pruned(reply),
        }
    }

    /// Returns true if it answers the beginning of a call.
    pub(super) fn is_of_open(&self) -> bool {
        matches!(self, Self::Opened(..))
    }

    /// Returns true if it answers the continuation or the end of a call.
    pub(super) fn is_of_more(&self) -> bool {
        matches!(self, Self::Done(..))
    }

    /// Returns false if it is certain that no caller waits for the answer.
    pub(super) fn has_waiter(&self) -> bool {
        match self {
            Self::Done(reply, _) => reply.as_ref().is_some_and(|reply| !reply.is_closed()),
            _ => true,
        }
    }

    /// Sends the answer; a receiver that is gone is ignored.
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
            Self::Opened(reply, Some(Err(own))) => send(reply, None, Some(error.unwrap_or(&own))),
            Self::Opened(reply, Some(Ok(opened))) => send(reply, Some(opened), error),
            Self::Opened(reply, None) => send(reply, None, error),
            Self::Done(reply, own) => {
                let answer = error.map_or(own, |error| Err(error.clone()));
                let unheard = match reply {
                    Some(reply) => reply.send(answer).err(),
                    None => Some(answer),
                };
                // An error of the whole commit is logged once, for all of its commands.
                if let (None, Some(Err(own))) = (error, unheard) {
                    tracing::error!(target: "cofferdam::audit", error = %own, "what came of a call is not on record");
                }
            }
            Self::Settled(reply, settled) => send(reply, Some(settled), error),
            Self::KeyState(reply, standing) => send(reply, standing, error),
            Self::Signed(reply) => send(reply, None, error),
            Self::Pruned(reply) => send(reply, None, error),
        }
    }
}

/// The position of the transaction in the audit log.
pub(super) struct At<'w> {
    pub(super) names: &'w mut Names,
    pub(super) open: &'w mut HashMap<[u8; 16], u64>,
    pub(super) owner: i64,
    pub(super) lives: &'w Path,
    pub(super) head: Head,
    /// The number of calls that ended.
    pub(super) ended: usize,
    /// The sealed bytes that were added, and the clients without room for more.
    pub(super) sealed: sealed::Added,
    pub(super) full: &'w sealed::Full,
    /// Up to where they are counted, once that was looked up.
    pub(super) counted: Option<[u8; 16]>,
}

/// Applies the order. The answer is valid only if the transaction is committed.
pub(super) fn carry_out(
    connection: &Connection,
    at: &mut At<'_>,
    order: WriteCommand,
) -> (Answer, rusqlite::Result<()>) {
    match order {
        WriteCommand::Open { call, reply } => match at.open(connection, &call) {
            Ok(opened) => (Answer::Opened(reply, Some(opened)), Ok(())),
            Err(error) => (Answer::Opened(reply, None), Err(error)),
        },
        WriteCommand::Append { audit_id, entry, reply } => {
            added(reply, at.append(connection, &audit_id, &entry))
        }
        WriteCommand::Close { open, call, reply } => {
            let opened = match open {
                Some(open) => at.open(connection, &open),
                None => Ok(Ok(OpenOutcome::Started)),
            };
            let outcome = opened.and_then(|opened| match opened {
                Ok(OpenOutcome::Started) => at.close(connection, &call),
                // Nothing of it ran, and nothing is to be said.
                Ok(OpenOutcome::KeyInUse(_) | OpenOutcome::AlreadyResolved) => Ok(Ok(())),
                Err(error) => Ok(Err(error)),
            });
            added(reply, outcome)
        }
        WriteCommand::Resolve { audit_id, decision, reply } => {
            match at.settle(connection, audit_id.bytes(), &decision) {
                Ok(settled) => (Answer::Settled(reply, settled), Ok(())),
                Err(error) => (Answer::Settled(reply, false), Err(error)),
            }
        }
        WriteCommand::KeyState { claim, reply } => match at.standing(connection, &claim) {
            Ok(standing) => (Answer::KeyState(reply, Some(standing)), Ok(())),
            Err(error) => (Answer::KeyState(reply, None), Err(error)),
        },
        WriteCommand::Record { at: moment, event, reply } => {
            let entry = Entry::of_the_log(OPERATOR_EVENT, moment, &event);
            added(Some(reply), at.entry(connection, 0, &entry, None).map(|_| Ok(())))
        }
        WriteCommand::Flush { reply } => (Answer::Done(Some(reply), Ok(())), Ok(())),
        // Done by themselves, after all that came before them.
        WriteCommand::Sign { reply } | WriteCommand::Accept { reply, .. } => (Answer::Signed(reply), Ok(())),
        WriteCommand::Prune { reply, .. } => (Answer::Pruned(reply), Ok(())),
    }
}

/// The answer to an order that adds to a call; an error of its own is no reason to write nothing of the others.
fn added(
    reply: Option<Reply<()>>,
    outcome: rusqlite::Result<Result<(), AuditError>>,
) -> (Answer, rusqlite::Result<()>) {
    match outcome {
        Ok(own) => (Answer::Done(reply, own), Ok(())),
        Err(error) => (Answer::Done(reply, Ok(())), Err(error)),
    }
}

/// The stored state of a call that is to be extended.
enum There {
    /// It is open; its last entry.
    Open(u64),
    /// It has the end that its host gave it.
    Ended,
}

impl<'w> At<'w> {
    pub(super) fn new(
        names: &'w mut Names,
        open: &'w mut HashMap<[u8; 16], u64>,
        owner: i64,
        lives: &'w Path,
        head: Head,
        full: &'w sealed::Full,
    ) -> Self {
        let sealed = sealed::Added::default();
        Self { names, open, owner, lives, head, ended: 0, sealed, full, counted: None }
    }
}

impl At<'_> {
    /// Answers pure queries without a transaction; returns the orders that it cannot answer for certain.
    pub(super) fn look(
        &self,
        connection: &Connection,
        orders: Vec<WriteCommand>,
        answers: &mut Vec<Answer>,
    ) -> Vec<WriteCommand> {
        let mut left = Vec::new();
        for order in orders {
            let standing = match &order {
                WriteCommand::KeyState { claim, .. } => self.standing(connection, claim).ok(),
                _ => None,
            };
            match (order, standing) {
                (WriteCommand::Flush { reply }, _) => answers.push(Answer::Done(Some(reply), Ok(()))),
                // Its host may have ended it between two glances.
                (order, None | Some(KeyState::Free | KeyState::Unknown { .. })) => left.push(order),
                (WriteCommand::KeyState { reply, .. }, standing) => {
                    answers.push(Answer::KeyState(reply, standing))
                }
                (order, _) => left.push(order),
            }
        }
        left
    }

    fn open(
        &mut self,
        connection: &Connection,
        call: &OpenCall,
    ) -> rusqlite::Result<Result<OpenOutcome, AuditError>> {
        let id = call.audit_id.bytes();
        match self.there(connection, id)? {
            Ok(Some(_)) => return Ok(Ok(OpenOutcome::Started)),
            Ok(None) => {}
            Err(error) => return Ok(Err(error)),
        }
        if let Some(claim) = &call.key {
            match self.standing(connection, claim)? {
                KeyState::Free => {}
                taken => return Ok(Ok(OpenOutcome::KeyInUse(taken))),
            }
        }
        if let Some((before, actor)) = &call.resumes
            && !self.settle(connection, before.bytes(), &resumed_by(call, actor))?
        {
            return Ok(Ok(OpenOutcome::AlreadyResolved));
        }
        if let Some(claim) = &call.key {
            // A key that is free although a call holds it belongs to an incomplete call: this call resumes that
            // one.
            if let Some(before) = self.holder(connection, &claim.key)? {
                self.settle(connection, before, &resumed_by(call, &call.actor))?;
            }
            if let KeyScope::Action { steps, .. } = &claim.of {
                step_keys::forget(connection, claim, steps)?;
            }
            let insert = "INSERT INTO keys (key, fingerprint, call, state) VALUES (?1, ?2, ?3, 0) \
                          ON CONFLICT DO UPDATE SET fingerprint = ?2, call = ?3, state = 0, until = NULL";
            connection.prepare_cached(insert)?.execute(params![&*claim.key, claim.fingerprint, id])?;
        }
        let request = call.request.as_ref().filter(|_| !self.full.has(&call.actor));
        let n = self.entry(connection, 0, &call.entry, request)?;
        let sealed = length(request);
        self.sealed.add(&call.actor, sealed);
        let route = self.names.route(connection, &call.route)?;
        let insert = "INSERT INTO calls (id, at, route, actor, idempotent, owner, first, last, verdict, key, \
                      sealed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, 0, ?8, ?9)";
        connection.prepare_cached(insert)?.execute(params![
            id,
            call.at.as_microsecond(),
            route,
            &*call.actor,
            call.idempotent,
            self.owner,
            n,
            call.key.as_ref().map(|claim| &*claim.key),
            sealed,
        ])?;
        self.open.insert(id, n);
        Ok(Ok(OpenOutcome::Started))
    }

    fn append(
        &mut self,
        connection: &Connection,
        audit_id: &AuditId,
        entry: &Entry,
    ) -> rusqlite::Result<Result<(), AuditError>> {
        let id = audit_id.bytes();
        let known = self.open.contains_key(&id);
        let prev = match self.there(connection, id)? {
            Ok(Some(There::Open(last))) => last,
            // It came before the end, which may have been durable although its commit failed.
            Ok(Some(There::Ended)) => return Ok(Ok(())),
            Ok(None) => return Ok(Err(unknown(audit_id))),
            Err(error) => return Ok(Err(error)),
        };
        // A commit that failed may have been durable all the same: what stands there already is not written again.
        if !known && self.stands(connection, prev, entry)? {
            return Ok(Ok(()));
        }
        let n = self.entry(connection, prev, entry, None)?;
        connection.prepare_cached("UPDATE calls SET last = ?2 WHERE id = ?1")?.execute(params![id, n])?;
        self.open.entry(id).and_modify(|last| *last = n);
        Ok(Ok(()))
    }

    fn close(
        &mut self,
        connection: &Connection,
        call: &CloseCall,
    ) -> rusqlite::Result<Result<(), AuditError>> {
        let id = call.audit_id.bytes();
        let prev = match self.there(connection, id)? {
            Ok(Some(There::Open(last))) => last,
            Ok(Some(There::Ended)) => return Ok(Ok(())),
            Ok(None) => return Ok(Err(unknown(&call.audit_id))),
            Err(error) => return Ok(Err(error)),
        };
        let did_nothing = call.verdict.status == CallStatus::Cancelled || call.attempts == 0;
        if did_nothing && self.does_again(connection, id)? {
            return self.cut_short(connection, id, prev, &call.entry).map(Ok);
        }
        let outcome = match &call.outcome {
            Some(outcome) if !self.full.is_empty() => {
                let actor = "SELECT actor FROM calls WHERE id = ?1";
                let actor: String = connection.prepare_cached(actor)?.query_row([id], |row| row.get(0))?;
                Some(outcome).filter(|_| !self.full.has(&actor))
            }
            outcome => outcome.as_ref(),
        };
        // A call that began and ended in one entry needs no other, unless its outcome is sealed.
        let n = match call.entry.is_empty() && outcome.is_none() {
            true => prev,
            false => self.entry(connection, prev, &call.entry, outcome)?,
        };
        let verdict = self.names.verdict(connection, &call.verdict)?;
        let update = "UPDATE calls SET last = ?2, verdict = ?3, duration = ?4, attempts = ?5, \
                      sealed = sealed + ?6 WHERE id = ?1 RETURNING key, at, route, actor";
        let (duration, sealed) = (saturated(call.duration_us), length(outcome));
        let (key, at, route, actor): (Option<String>, _, _, String) = connection
            .prepare_cached(update)?
            .query_row(params![id, n, verdict, duration, call.attempts, sealed], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
        self.sealed.add(&actor, sealed);
        self.ended(connection, Ended { id, at, route, verdict, duration: Some(duration) })?;
        if let Some(key) = key {
            let (state, until) = match call.key {
                KeyDisposition::Retain(until) => (Some(1), Some(until.as_microsecond())),
                KeyDisposition::Undetermined => (Some(2), None),
                KeyDisposition::Release => (None, None),
            };
            let end = match state {
                Some(_) => "UPDATE keys SET state = ?3, until = ?4 WHERE key = ?1 AND call = ?2",
                None => "DELETE FROM keys WHERE key = ?1 AND call = ?2 AND ?3 IS NULL AND ?4 IS NULL",
            };
            connection.prepare_cached(end)?.execute(params![key, id, state, until])?;
        }
        self.open.remove(&id);
        Ok(Ok(()))
    }

    pub(super) fn ended(&mut self, connection: &Connection, call: Ended) -> rusqlite::Result<()> {
        self.ended += 1;
        rollup::ended(connection, &mut self.counted, call)
    }

    fn standing(&self, connection: &Connection, claim: &KeyClaim) -> rusqlite::Result<KeyState> {
        let standing = self.standing_of(connection, claim)?;
        let (KeyState::Free, KeyScope::Action { action, steps }) = (&standing, &claim.of) else {
            return Ok(standing);
        };
        for key in steps {
            if let Some(audit_id) = step_keys::foreign(connection, key, action, claim.at.as_microsecond())? {
                return Ok(KeyState::Different { audit_id });
            }
        }
        Ok(standing)
    }

    fn standing_of(&self, connection: &Connection, claim: &KeyClaim) -> rusqlite::Result<KeyState> {
        let select = "SELECT keys.fingerprint, keys.call, keys.state, calls.idempotent, entries.sealed, keys.until, \
                      ifnull(routes.step, '') <> '' AND (verdicts.status = ?2 OR NOT calls.idempotent) \
                      FROM keys LEFT JOIN calls ON calls.id = keys.call \
                      LEFT JOIN routes ON routes.id = calls.route LEFT JOIN verdicts ON verdicts.id = calls.verdict \
                      LEFT JOIN entries ON keys.state = 1 AND entries.n = calls.last WHERE keys.key = ?1";
        let found = connection.prepare_cached(select)?;
        let found = { found }
            .query_row(params![&*claim.key, CallStatus::Value.number()], |row| {
                let fingerprint: [u8; 32] = row.get(0)?;
                let id: [u8; 16] = row.get(1)?;
                let state: i64 = row.get(2)?;
                let idempotent: Option<bool> = row.get(3)?;
                let outcome: Option<Vec<u8>> = row.get(4)?;
                let done = claim.of == KeyScope::Step && row.get::<_, Option<bool>>(6)?.unwrap_or(false);
                let until: Option<i64> = row.get(5)?;
                let over = !done && until.is_some_and(|until| until <= claim.at.as_microsecond());
                Ok((!over).then_some((fingerprint, id, state, idempotent.unwrap_or(false), outcome)))
            })
            .optional()?;
        let Some((fingerprint, id, state, idempotent, outcome)) = found.flatten() else {
            return Ok(KeyState::Free);
        };
        let audit_id = AuditId::from_bytes(id);
        if fingerprint != claim.fingerprint {
            return Ok(KeyState::Different { audit_id });
        }
        Ok(match state {
            1 => KeyState::Done { audit_id, idempotent, outcome: outcome.map(Sealed::from_bytes) },
            0 if !self.is_incomplete(connection, id)? => KeyState::Running { audit_id },
            // An incomplete call may be repeated if it is idempotent.
            0 if idempotent => KeyState::Free,
            _ => KeyState::Unknown { audit_id },
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

    /// Returns the stored state of this host's call, regardless of what this host remembers: the file may be
    /// another one, and another host may have taken this host for dead.
    fn there(
        &self,
        connection: &Connection,
        id: [u8; 16],
    ) -> rusqlite::Result<Result<Option<There>, AuditError>> {
        let select = "SELECT calls.last, calls.verdict, verdicts.status FROM calls \
                      LEFT JOIN verdicts ON verdicts.id = calls.verdict WHERE calls.id = ?1";
        let found = connection.prepare_cached(select)?;
        let found: Option<(u64, i64, Option<u8>)> =
            { found }.query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
        let decided = [CallStatus::Resumed, CallStatus::Skipped].map(CallStatus::number);
        Ok(Ok(match found {
            None => None,
            Some((last, 0, _)) => Some(There::Open(last)),
            Some((_, _, Some(status))) if decided.contains(&status) => {
                let id = AuditId::from_bytes(id);
                let what = format_args!("{id} is resumed or skipped: its host was taken for gone");
                return Ok(Err(AuditError::new(AuditErrorKind::Decided, what)));
            }
            Some(_) => Some(There::Ended),
        }))
    }

    /// Returns true if this is the `n`-th entry.
    pub(super) fn stands(&self, connection: &Connection, n: u64, entry: &Entry) -> rusqlite::Result<bool> {
        let mut select = connection.prepare_cached("SELECT 1 FROM entries WHERE n = ?1 AND body = ?2")?;
        select.exists(params![n, entry.body()])
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

fn unknown(audit_id: &AuditId) -> AuditError {
    replaced(format_args!("{audit_id} has no beginning in it"))
}

fn length(sealed: Option<&Sealed>) -> i64 {
    sealed.map_or(0, |sealed| saturated(sealed.bytes().len() as u64))
}

fn saturated(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
