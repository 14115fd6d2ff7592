//! Commands that need a transaction of their own, since what they write depends on what is stored: keys that another call
//! has or had, actions, and the resolution of interrupted calls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use cofferdam_audit::store::{
    ChainHead, EntryDraft, JournalLine, SignedJournal, StoredKey, StoredKeyState, first_entry, key_decided,
    key_digest, writer_taken,
};
use cofferdam_audit::{
    AuditError, AuditErrorKind, CallStatus, KeyClaim, KeyState, OpenCall, OpenOutcome, ResolveCall,
};
use cofferdam_core::failure::AuditId;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::batch::{Batch, ChainEnd, ClaimedKey, signed, stored_id};
use super::engine::{Command, Effect, Engine, PATIENCE, PAUSE, Parked, Reply, lost, lost_journal, opened};
use super::keys::{self, KeyRow, KeyRows};
use super::process::gone;
use super::session::{AppendFault, Session, answered};
use super::{calls, checkpoint};
use crate::database::{DatabaseError, DatabaseErrorKind};

/// The result of a transaction that was tried.
enum Tried<T> {
    /// Nothing was written.
    Answer(T),
    /// It was written; whether it was committed is for the effect to find out.
    Written {
        batch: Box<Batch>,
        effect: Box<dyn FnOnce(Reply<T>) -> Effect + Send>,
        committed: Result<(), DatabaseError>,
    },
    /// Something else happened at the same time: it is tried again.
    Again,
}

/// Why a transaction could not be tried to its end. Nothing was written.
enum Untried {
    NoPartition,
    Taken,
    Database(DatabaseError),
    Log(AuditError),
}

impl From<DatabaseError> for Untried {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

impl From<tokio_postgres::Error> for Untried {
    fn from(error: tokio_postgres::Error) -> Self {
        match AppendFault::of(&error) {
            AppendFault::NoPartition => Self::NoPartition,
            AppendFault::Taken => Self::Taken,
            _ => Self::Database(DatabaseError::from_sql(&error)),
        }
    }
}

impl From<AuditError> for Untried {
    fn from(error: AuditError) -> Self {
        Self::Log(error)
    }
}

/// The journal of an interrupted call, and the number of the call's next event.
struct Adopted {
    chain: ChainEnd,
    seq: u32,
}

impl Engine {
    /// Carries out a command in a transaction of its own.
    pub(super) async fn alone(&mut self, command: Command, queue: &mut VecDeque<Command>) {
        match command {
            Command::Open(open, reply) => {
                let until = Instant::now() + PATIENCE;
                let done = loop {
                    match self
                        .attempt(until, async |engine, session| engine.try_open(session, &open).await)
                        .await
                    {
                        Ok(Tried::Again) if Instant::now() < until => tokio::time::sleep(PAUSE / 20).await,
                        done => break done,
                    }
                };
                if let Some(claim) = &open.key {
                    // Once more at the same time with others, if it is used again.
                    self.contended.remove(&key_digest(&claim.key));
                }
                self.conclude(done, reply, queue, until).await;
            }
            Command::Resolve(id, decision, reply) => {
                let until = Instant::now() + PATIENCE;
                let work = async |engine: &Self, session: &mut Session| {
                    engine.try_resolve(session, &id, &decision).await
                };
                let done = self.attempt(until, work).await;
                self.conclude(done, reply, queue, until).await;
            }
            other => queue.push_front(other),
        }
    }

    /// Tries a transaction until its end is known, or time is up.
    async fn attempt<T>(
        &mut self,
        until: Instant,
        work: impl AsyncFn(&Self, &mut Session) -> Result<T, Untried>,
    ) -> Result<T, AuditError> {
        loop {
            self.open_session(until).await?;
            let Some(mut session) = self.session.take() else { return Err(lost()) };
            let tried = work(self, &mut session).await;
            // One that waits for an answer is of no use any more.
            let is_lost = match &tried {
                Err(Untried::Database(error)) => error.kind() == DatabaseErrorKind::Unreachable,
                _ => false,
            };
            self.session = Some(session).filter(|session| !is_lost && !session.client.is_closed());
            match tried {
                Ok(tried) => return Ok(tried),
                Err(Untried::NoPartition) => self.make_partitions().await?,
                Err(Untried::Taken) => {
                    // The next session finds out which journal is not as this process left it.
                    self.session = None;
                    return Err(lost_journal());
                }
                Err(Untried::Database(error)) if error.may_pass() && Instant::now() < until => {
                    if error.kind() == DatabaseErrorKind::Full {
                        return Err(error.into());
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                Err(Untried::Database(error)) => return Err(error.into()),
                Err(Untried::Log(error)) => return Err(error),
            }
        }
    }

    async fn conclude<T>(
        &mut self,
        done: Result<Tried<T>, AuditError>,
        reply: Reply<T>,
        queue: &mut VecDeque<Command>,
        until: Instant,
    ) {
        match done {
            Ok(Tried::Answer(answer)) => drop(reply.send(Ok(answer))),
            Ok(Tried::Written { batch, effect, committed }) => {
                self.parked = Some(Parked { batch: *batch, effects: vec![effect(reply)] });
                match committed {
                    Ok(()) => self.committed().await,
                    Err(error) => {
                        tracing::debug!(target: "cofferdam::audit", %error, "whether entries were committed is found out");
                        self.session = None;
                        self.find_out(queue, until).await;
                    }
                }
            }
            Ok(Tried::Again) => {
                let error = AuditError::new(AuditErrorKind::Locked, "an interrupted call has the key");
                drop(reply.send(Err(error)));
            }
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    /// Opens a call that has a key, or resumes an interrupted one.
    async fn try_open(&self, session: &mut Session, open: &OpenCall) -> Result<Tried<OpenOutcome>, Untried> {
        let Session { client, append } = session;
        let now = match &open.key {
            Some(_) => self.key_time()?.now(),
            None => 0,
        };
        let Some(own) = self.own_end() else { return Err(lost_journal().into()) };
        let transaction = client.transaction().await?;
        let stored = match &open.key {
            Some(claim) => keys::lock(&transaction, &keys::named(claim)).await?,
            None => KeyRows::new(),
        };
        let gone = self.gone_of(&transaction, stored.values()).await?;
        let is_running = |row: &KeyRow| self.is_running(row, &gone);
        let state = open.key.as_ref().map(|claim| keys::state(&stored, claim, now, &is_running));
        let state = state.transpose()?;
        let holder = open.key.as_ref().and_then(|claim| stored.get(&key_digest(&claim.key)));
        let claimer = holder.filter(|holder| holder.stored.state == StoredKeyState::Claimed);
        let claimer = claimer.map(|holder| holder.stored.audit_id());
        let interrupted = holder.filter(|holder| {
            let may_be_resumed = |claim| holder.stored.may_be_resumed(claim, open.idempotent);
            open.key.as_ref().is_some_and(may_be_resumed) && !is_running(holder)
        });
        let by_key = interrupted.map(|holder| (holder.stored.audit_id(), Arc::clone(&open.actor)));
        let is_by_key = open.resumes.is_none() && by_key.is_some();
        let open = OpenCall { resumes: open.resumes.clone().or(by_key), ..open.clone() };
        let Some((before, actor)) = &open.resumes else {
            let Some((claim, state)) = open.key.as_ref().zip(state) else { return Err(lost().into()) };
            if !matches!(state, KeyState::Free) {
                return Ok(Tried::Answer(OpenOutcome::KeyInUse(state)));
            }
            // Its package said that it may be repeated, and that of this call does not.
            if let Some(audit_id) = claimer {
                return Ok(Tried::Answer(OpenOutcome::KeyInUse(KeyState::Unknown { audit_id })));
            }
            if !self.put_key(&transaction, &open, claim, own.name, holder).await? {
                return Ok(Tried::Again);
            }
            let mut batch = Batch::default();
            batch.append(own, &self.opening(&open));
            let key = Some(key_digest(&claim.key));
            return self.write_opened(transaction, append, batch, (open, own.name, key)).await;
        };
        let Some(Adopted { chain, seq }) = self.adopt(&transaction, before).await? else {
            return Ok(match state {
                None => Tried::Answer(OpenOutcome::AlreadyResolved),
                Some(KeyState::Free) if is_by_key => Tried::Again,
                Some(KeyState::Free) => Tried::Answer(OpenOutcome::AlreadyResolved),
                Some(KeyState::Unknown { audit_id }) if audit_id == *before => {
                    Tried::Answer(OpenOutcome::AlreadyResolved)
                }
                // Its outcome, or the call that runs, is the key's.
                Some(state) => Tried::Answer(OpenOutcome::KeyInUse(state)),
            });
        };
        let resolved = EntryDraft::of_resolution(before, open.at, seq, open.resumption(actor));
        let mut batch = Batch::default();
        let mut key = None;
        if let Some((claim, state)) = open.key.as_ref().zip(state) {
            let is_resumed = claimer.as_ref() == Some(before);
            match state {
                KeyState::Free => {}
                // An operator may resume a call that the host does not repeat.
                KeyState::Unknown { .. } if is_resumed => {}
                // The outcome of the key is the interrupted call's as well.
                state @ KeyState::Done { .. } => {
                    batch.append(chain, &resolved);
                    resolve_once(&transaction, before, None).await?;
                    batch.write(transaction.client(), append, self.id(), self.shared.given_time()).await?;
                    let committed = answered(transaction.commit()).await;
                    let effect = Box::new(|reply| Effect::answered(reply, OpenOutcome::KeyInUse(state)));
                    return Ok(Tried::Written { batch: Box::new(batch), effect, committed });
                }
                state => return Ok(Tried::Answer(OpenOutcome::KeyInUse(state))),
            }
            if claimer.is_some() && !is_resumed
                || !self.put_key(&transaction, &open, claim, chain.name, holder).await?
            {
                return Ok(Tried::Again);
            }
            key = Some(key_digest(&claim.key));
        }
        if !resolve_once(&transaction, before, Some(&open.audit_id)).await? {
            return Ok(Tried::Answer(OpenOutcome::AlreadyResolved));
        }
        batch.append(chain, &self.opening(&open));
        batch.append(chain, &resolved);
        self.write_opened(transaction, append, batch, (open, chain.name, key)).await
    }

    async fn write_opened(
        &self,
        transaction: Transaction<'_>,
        append: &tokio_postgres::Statement,
        batch: Batch,
        (open, chain, key): (OpenCall, Uuid, Option<[u8; 32]>),
    ) -> Result<Tried<OpenOutcome>, Untried> {
        batch.write(transaction.client(), append, self.id(), self.shared.given_time()).await?;
        // Once for each write: the batch that met another call's key has passed it.
        if key.is_none_or(|key| !self.contended.contains(&key)) {
            cofferdam_core::failpoint::pass("before.commit");
        }
        let committed = answered(transaction.commit()).await;
        let call = opened(&open, chain, key);
        let effect = Box::new(|reply| Effect::Opened { open: Box::new(open), call, reply: Some(reply) });
        Ok(Tried::Written { batch: Box::new(batch), effect, committed })
    }

    /// Has the call hold its key, in the place of what is stored of it. False if another call was faster.
    async fn put_key(
        &self,
        transaction: &Transaction<'_>,
        open: &OpenCall,
        claim: &KeyClaim,
        writer: Uuid,
        before: Option<&KeyRow>,
    ) -> Result<bool, Untried> {
        let claimed = ClaimedKey::new(open, claim, writer);
        let StoredKey { fingerprint, at, is_idempotent, is_action, .. } = &claimed.stored;
        let ((step, action), call) = (claimed.action(), stored_id(&open.audit_id));
        let (key, fingerprint) = (&claimed.key[..], &fingerprint[..]);
        let before = before.map(|before| Uuid::from_bytes(before.stored.call));
        // The row stays the same one: others may wait for its lock.
        let put = "INSERT INTO cofferdam.keys AS k (key, call, fingerprint, at, state, writer, is_idempotent, step_of, \
                   action_key, is_action) \
                   VALUES ($1, $2, $3, $4, 0, $5, $6, $7, $8, $9) ON CONFLICT (key) DO UPDATE SET \
                   call = excluded.call, fingerprint = excluded.fingerprint, at = excluded.at, \
                   state = 0, until = NULL, expires = NULL, \
                   writer = excluded.writer, is_idempotent = excluded.is_idempotent, step_of = excluded.step_of, \
                   action_key = excluded.action_key, is_action = excluded.is_action, \
                   has_value = false, outcome_at = NULL, outcome_place = NULL WHERE k.call = $10";
        let of_call: [&(dyn ToSql + Sync); 10] =
            [&key, &call, &fingerprint, at, &writer, is_idempotent, &step, &action, is_action, &before];
        Ok(transaction.execute(put, &of_call).await? == 1)
    }

    /// Takes the journal of an interrupted call; none if there is nothing left to resolve, or its host lives.
    async fn adopt(
        &self,
        transaction: &Transaction<'_>,
        audit_id: &AuditId,
    ) -> Result<Option<Adopted>, Untried> {
        let id = stored_id(audit_id);
        if self.has_call(audit_id) {
            return Ok(None);
        }
        let select = "SELECT writer, status, places FROM cofferdam.calls WHERE id = $1";
        let mut found = transaction.query_opt(select, &[&id]).await?;
        if found.is_none() {
            calls::fill_all(transaction).await?;
            found = transaction.query_opt(select, &[&id]).await?;
        }
        let Some(found) = found else { return Ok(None) };
        let writer: Uuid = found.try_get(0)?;
        let lock =
            "SELECT name, epoch, n, hash, sealed, holder FROM cofferdam.writers WHERE name = $1 FOR UPDATE";
        let Some(row) = transaction.query_opt(lock, &[&writer]).await? else { return Ok(None) };
        let (mut chain, holder): (_, Uuid) = (ChainEnd::read(&row)?, row.try_get(5)?);
        let Some(process) = &self.process else { return Err(lost().into()) };
        if holder != process.id && !gone(transaction, &self.shared.home).await?.has(holder) {
            return Ok(None);
        }
        // Under the lock: what its host wrote last is there.
        calls::fill_writer(transaction, writer).await?;
        let found = transaction.query_one(select, &[&id]).await?;
        let (status, places): (i16, Vec<i64>) = (found.try_get(1)?, found.try_get(2)?);
        if status != i16::from(CallStatus::Running.number()) {
            return Ok(None);
        }
        let signed = self.shared.checkpoints.journals(transaction).await?.unwrap_or_default();
        if !is_intact(transaction, &chain, signed.get(&writer.to_string())).await? {
            tracing::warn!(target: "cofferdam::audit", %writer, "a journal is damaged, and is not continued; `cofferdam audit verify` says more");
            return Ok(None);
        }
        if holder != process.id {
            // Only for a call that is resolved now: until the journal is given back, its other calls seem to run.
            chain.epoch = take(transaction, writer, process.id).await?;
        }
        let seq = last_event(transaction, writer, &places).await?.saturating_add(1);
        Ok(Some(Adopted { chain, seq }))
    }

    /// Resolves an interrupted call, or the key of a call of which it is unknown what it did.
    async fn try_resolve(
        &self,
        session: &mut Session,
        audit_id: &AuditId,
        decision: &ResolveCall,
    ) -> Result<Tried<bool>, Untried> {
        // A log that lost entries lacks what decides.
        match self.key_time() {
            Err(error) if error.kind() != AuditErrorKind::ClockBehind => return Err(error.into()),
            _ => {}
        }
        let Session { client, append } = session;
        let Some(own) = self.own_end() else { return Err(lost_journal().into()) };
        let call = stored_id(audit_id);
        let transaction = client.transaction().await?;
        let lock = "SELECT FROM cofferdam.keys WHERE call = $1 ORDER BY key FOR UPDATE";
        transaction.execute(lock, &[&call]).await?;
        let held = keys::of_call(&transaction, call).await?;
        let mut batch = Batch::default();
        if let Some(Adopted { chain, seq }) = self.adopt(&transaction, audit_id).await? {
            if !resolve_once(&transaction, audit_id, None).await? {
                return Ok(Tried::Answer(false));
            }
            batch.append(chain, &EntryDraft::of_resolution(audit_id, decision.at, seq, decision.event()));
        } else {
            let is_claimed = held.iter().any(|row| row.stored.state == StoredKeyState::Claimed);
            let is_open = held.iter().any(|row| row.stored.is_open_to(decision.frees_key));
            if is_claimed || !is_open {
                return Ok(Tried::Answer(false));
            }
            batch.append(own, &key_decided(audit_id, decision));
        }
        let open = held.iter().filter(|row| row.stored.is_open_to(decision.frees_key));
        let open: Vec<_> = open.map(|row| &row.key[..]).collect();
        match decision.frees_key {
            true => {
                transaction.execute("DELETE FROM cofferdam.keys WHERE key = ANY($1)", &[&open]).await?;
            }
            false => {
                let block =
                    "UPDATE cofferdam.keys SET state = $2, until = NULL, expires = NULL WHERE key = ANY($1)";
                transaction.execute(block, &[&open, &StoredKeyState::Blocked.number()]).await?;
            }
        }
        batch.write(transaction.client(), append, self.id(), self.shared.given_time()).await?;
        let committed = answered(transaction.commit()).await;
        Ok(Tried::Written {
            batch: Box::new(batch),
            effect: Box::new(|reply| Effect::answered(reply, true)),
            committed,
        })
    }

    /// Takes a journal that an ended process left without open calls, or begins one.
    pub(super) async fn take_chain(&mut self, until: Instant) -> Result<(), AuditError> {
        let process = self.register(until).await?.id;
        let end =
            self.attempt(until, async |engine, session| engine.try_take(session, process).await).await?;
        self.chains.insert(end.name, end);
        self.own = Some(end.name);
        Ok(())
    }

    async fn try_take(&self, session: &mut Session, process: Uuid) -> Result<ChainEnd, Untried> {
        let now = self.shared.clock.timestamp();
        let signed = self.shared.checkpoints.journals(&session.client).await?.unwrap_or_default();
        loop {
            let transaction = session.client.transaction().await?;
            let select = "SELECT name, epoch, n, hash, sealed FROM cofferdam.writers WHERE is_clean \
                          ORDER BY name LIMIT 1 FOR UPDATE SKIP LOCKED";
            let Some(row) = transaction.query_opt(select, &[]).await? else { break };
            let mut end = ChainEnd::read(&row)?;
            let name = end.name;
            let signed = signed.get(&name.to_string());
            if signed.is_none() || !is_intact(&transaction, &end, signed).await? {
                tracing::warn!(target: "cofferdam::audit", writer = %name, "a journal is damaged, and is not continued; `cofferdam audit verify` says more");
                transaction
                    .execute("UPDATE cofferdam.writers SET is_clean = false WHERE name = $1", &[&name])
                    .await?;
                answered(transaction.commit()).await?;
                continue;
            }
            end.epoch = take(&transaction, name, process).await?;
            let mut batch = Batch::default();
            batch.append(end, &writer_taken(now, 0));
            return begin(transaction, &session.append, batch, process, self.shared.given_time()).await;
        }
        let name = Uuid::now_v7();
        // Before its first entry: a journal that is in no statement could be removed unnoticed.
        match self.shared.checkpoints.sign(&self.shared, &[(name, ChainHead::EMPTY)]).await {
            Err(error) if error.kind() == AuditErrorKind::Tampered => {
                tracing::warn!(target: "cofferdam::audit", %error, "a journal is begun that no checkpoint covers");
            }
            signed => drop(signed?),
        }
        let transaction = session.client.transaction().await?;
        let end = ChainEnd { name, epoch: 1, head: ChainHead::EMPTY, sealed: 0 };
        let insert = "INSERT INTO cofferdam.writers (name, holder, epoch, n, hash, sealed) VALUES ($1, $2, 1, 0, $3, 0)";
        transaction.execute(insert, &[&name, &process, &&end.head.hash[..]]).await?;
        let mut batch = Batch::default();
        batch.append(end, &first_entry(&name.to_string(), now));
        batch.append(end, &writer_taken(now, 0));
        begin(transaction, &session.append, batch, process, self.shared.given_time()).await
    }
}

/// Takes a journal, and returns its epoch from now on.
async fn take(transaction: &Transaction<'_>, writer: Uuid, process: Uuid) -> Result<i64, Untried> {
    let take = "UPDATE cofferdam.writers SET holder = $2, epoch = epoch + 1, is_clean = false WHERE name = $1 \
                RETURNING epoch";
    Ok(transaction.query_one(take, &[&writer, &process]).await?.try_get(0)?)
}

/// Writes the first entries of a process to its journal, and returns where that ends.
async fn begin(
    transaction: Transaction<'_>,
    append: &tokio_postgres::Statement,
    batch: Batch,
    process: Uuid,
    given: Option<SystemTime>,
) -> Result<ChainEnd, Untried> {
    batch.write(transaction.client(), append, process, given).await?;
    // If this is in doubt, the journal is another's once the process has ended.
    answered(transaction.commit()).await?;
    let end = batch.chains().first().map(|(_, after)| *after);
    end.ok_or_else(|| lost().into())
}

/// Notes that an interrupted call is resolved. False if it was before.
async fn resolve_once(
    transaction: &Transaction<'_>,
    call: &AuditId,
    by: Option<&AuditId>,
) -> Result<bool, Untried> {
    let insert = "INSERT INTO cofferdam.resolutions (call, by) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    let by = by.map(stored_id);
    Ok(transaction.execute(insert, &[&stored_id(call), &by]).await? == 1)
}

/// Returns true if the journal ends with the entry that its row names, and has the one that was signed. Of a journal
/// that was pruned as a whole, the statement has the last entry.
async fn is_intact(
    transaction: &Transaction<'_>,
    end: &ChainEnd,
    signed_journal: Option<&SignedJournal>,
) -> Result<bool, Untried> {
    let SignedJournal { head, base } = signed_journal.copied().unwrap_or_default();
    if head.n > end.head.n {
        return Ok(false);
    }
    for head in [end.head, head].into_iter().filter(|head| head.n > 0 && *head != base) {
        if checkpoint::hash_of(transaction, end.name, signed(head.n)).await? != Some(head.hash) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the number of the last event of a call, whose entries are at these places.
async fn last_event(transaction: &Transaction<'_>, writer: Uuid, places: &[i64]) -> Result<u32, Untried> {
    let select = "SELECT line FROM cofferdam.entries WHERE writer = $1 AND n = ANY($2) ORDER BY n";
    let mut last = 0;
    for row in transaction.query(select, &[&writer, &places]).await? {
        let text: &str = row.try_get(0)?;
        let events = JournalLine::read(text.as_bytes()).and_then(|line| line.events());
        last = events.ok().and_then(|events| events.last().map(|event| event.seq)).unwrap_or(last);
    }
    Ok(last)
}
