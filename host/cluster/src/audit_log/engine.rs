//! The task that writes: it takes the commands of all calls, and writes what waits in one transaction.
//!
//! Nothing is in doubt for long. If a connection is lost while a transaction is committed, the next session moves the
//! journals on to another epoch, which ends the chance of the lost one, and reads where they end: it was committed, or it is
//! written again. As long as no session can be opened, what waits fails after a while; the outcome of the lost transaction
//! is found out before anything else is written.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use cofferdam_audit::store::{ChainHead, EntryDraft, LATE_ENDS, StoredKeyState, keeps_late_end, key_digest};
use cofferdam_audit::{
    AuditError, AuditErrorKind, CallStatus, CloseCall, Entry, KeyClaim, KeyDisposition, KeyScope, KeyState,
    LogTime, OpenCall, OpenOutcome, ResolveCall, Sealed,
};
use cofferdam_core::event::recorded::EventText;
use cofferdam_core::failpoint;
use cofferdam_core::failure::AuditId;
use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::LogShared;
use super::batch::{Batch, ChainEnd, ClaimedKey, KeyEnd, signed, stored_id};
use super::checkpoint;
use super::keys::{self, KeyRow};
use super::process::{self, GoneProcesses, Process, Registration};
use super::session::{ANSWER_TIME, AppendFault, Session, answered, make_partitions};
use super::time::{self, SeenTime};
use crate::database::{DatabaseError, DatabaseErrorKind};

/// The most entries of one transaction.
const ENTRIES_AT_ONCE: usize = 1_024;

/// The time for which a write waits for the database. After it, the host waits and tries again itself.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// The pause before a session is opened again.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// The time for which it is not looked again whether calls may run under keys.
const KEY_CHECK_AGE: Duration = Duration::from_secs(1);

pub(super) type Reply<T> = oneshot::Sender<Result<T, AuditError>>;

/// A command to the log.
pub(super) enum Command {
    Open(Box<OpenCall>, Reply<OpenOutcome>),
    Append(AuditId, Entry, Reply<()>),
    Close(Option<Box<OpenCall>>, Box<CloseCall>, Option<Reply<()>>),
    /// The end of a call whose entries are known already.
    End(Box<PlannedEnd>, Option<Reply<()>>),
    /// Entries about the log itself.
    Entries(Vec<EntryDraft>, Reply<()>),
    KeyState(KeyClaim, Reply<KeyState>),
    Resolve(AuditId, Box<ResolveCall>, Reply<bool>),
    Time(Reply<LogTime>),
    /// Has the time of the log be read again.
    Forget(Reply<()>),
    /// Has this process hold a journal.
    Begin(Reply<()>),
    /// The ends of the journals of this process, and its calls that have no end.
    Holdings(Reply<Holdings>),
}

/// The journals and calls of this process. By default, those of one that has written nothing.
#[derive(Default)]
pub(super) struct Holdings {
    pub(super) process: Uuid,
    pub(super) chains: Vec<(Uuid, ChainHead)>,
    pub(super) calls: HashSet<AuditId>,
}

/// A call of this process that has no end.
#[derive(Clone)]
pub(super) struct OpenedCall {
    pub(super) chain: Uuid,
    pub(super) actor: Arc<str>,
    pub(super) key: Option<[u8; 32]>,
    /// True if the call resumes another one.
    pub(super) resumes: bool,
    /// Events that were written although their caller was told that they were not.
    pub(super) unacknowledged: Vec<EventText>,
    /// By how much its events are numbered higher than its host numbers them, since some of those were written.
    pub(super) shift: u32,
}

/// The end of a call that is to be written.
pub(super) struct PlannedEnd {
    id: AuditId,
    call: OpenedCall,
    drafts: Vec<EntryDraft>,
    key: Option<KeyEnd>,
}

/// The consequence of a transaction for one command.
pub(super) enum Effect {
    Opened {
        open: Box<OpenCall>,
        call: OpenedCall,
        reply: Option<Reply<OpenOutcome>>,
    },
    Appended {
        id: AuditId,
        late: Vec<Entry>,
        own: Entry,
        shift: u32,
        reply: Option<Reply<()>>,
    },
    Ended {
        end: Box<PlannedEnd>,
        reply: Option<Reply<()>>,
    },
    Logged {
        drafts: Vec<EntryDraft>,
        reply: Option<Reply<()>>,
    },
    /// Nothing but the answer, which gets the error if nothing was written.
    Answered(Option<Answer>),
}

/// Answers a command. Returns false if its caller has gone.
type Answer = Box<dyn FnOnce(Result<(), AuditError>) -> bool + Send>;

impl Effect {
    /// Returns the effect that a command has this answer.
    pub(super) fn answered<T: Send + 'static>(reply: Reply<T>, answer: T) -> Self {
        Self::Answered(Some(Box::new(|done| reply.send(done.map(|()| answer)).is_ok())))
    }

    /// Answers the command with this error, if its caller waits. Returns false if that has gone without an answer.
    fn refuse(&mut self, error: &AuditError) -> bool {
        fn send<T>(reply: &mut Option<Reply<T>>, error: &AuditError) -> bool {
            reply.take().is_none_or(|reply| reply.send(Err(error.clone())).is_ok())
        }
        match self {
            Self::Opened { reply, .. } => send(reply, error),
            Self::Appended { reply, .. } | Self::Ended { reply, .. } | Self::Logged { reply, .. } => {
                send(reply, error)
            }
            Self::Answered(answer) => answer.take().is_none_or(|answer| answer(Err(error.clone()))),
        }
    }
}

/// The wait for commands that come at once after the answers to others: a caller whose call has begun often ends it soon.
/// Without it, the first one back would have a transaction of its own, and all others would wait for that.
#[derive(Default)]
struct Gathering {
    /// The commands that were answered last.
    expected: usize,
    /// The longest wait for as many.
    window: Duration,
    /// The transactions that begin without a wait, since the last one was in vain.
    skipped: u8,
}

impl Gathering {
    /// Takes the commands that are there, and waits a moment for more if that is likely to help.
    fn gather(&mut self, queue: &mut VecDeque<Command>, commands: &mut mpsc::UnboundedReceiver<Command>) {
        let begun = Instant::now();
        loop {
            while queue.len() < ENTRIES_AT_ONCE
                && let Ok(command) = commands.try_recv()
            {
                queue.push_back(command);
            }
            if queue.len() >= self.expected {
                return;
            }
            if self.skipped > 0 {
                self.skipped -= 1;
                return;
            }
            if begun.elapsed() >= self.window {
                self.skipped = SKIPPED;
                return;
            }
            // A timer would take longer. Nothing else is to be done on this thread.
            std::thread::yield_now();
        }
    }

    fn answered(&mut self, count: usize, time: Duration) {
        (self.expected, self.window) = (count, (time / 4).min(LONGEST_GATHERING));
    }
}

/// The longest wait for callers that were just answered.
const LONGEST_GATHERING: Duration = Duration::from_millis(1);

/// The transactions after a wait in vain that begin without one.
const SKIPPED: u8 = 15;

/// A transaction of which it is not known whether it was committed.
pub(super) struct Parked {
    pub(super) batch: Batch,
    pub(super) effects: Vec<Effect>,
}

/// The plan for a command.
enum Planned {
    /// It is in the batch, or has its reply.
    Done,
    /// It needs a batch without the entries before it.
    Next(Command),
    /// It needs a transaction of its own.
    Alone(Command),
}

pub(super) struct Engine {
    pub(super) shared: Arc<LogShared>,
    pub(super) process: Option<Arc<Process>>,
    registration: watch::Receiver<Registration>,
    registration_sender: Option<watch::Sender<Registration>>,
    ends: watch::Sender<bool>,
    /// The runtime in which the lease of this process is renewed.
    lives: tokio::runtime::Handle,
    pub(super) session: Option<Session>,
    /// The journal that new calls are added to.
    pub(super) own: Option<Uuid>,
    /// The committed ends of the journals of this process: its own, and those in which it resumes calls.
    pub(super) chains: HashMap<Uuid, ChainEnd>,
    pub(super) calls: HashMap<AuditId, OpenedCall>,
    /// Calls whose journal this process has lost. They run until their end is due, although no more of them is
    /// written.
    lost_calls: HashSet<AuditId>,
    /// Events that could not be written and that no caller waits for, to be written with the next entry of the call.
    late_events: HashMap<AuditId, Vec<Entry>>,
    pub(super) late_ends: HashMap<AuditId, Box<PlannedEnd>>,
    /// Ends of calls whose beginnings are parked: they depend on whether those were written.
    late_closes: HashMap<AuditId, (Option<Box<OpenCall>>, Box<CloseCall>)>,
    /// Calls whose late end was written, until their caller tries to write it again.
    ended_late: HashSet<AuditId>,
    pub(super) parked: Option<Parked>,
    /// Keys that a call of another host claimed first: decided about in a transaction of its own.
    pub(super) contended: HashSet<[u8; 32]>,
    key_check: Option<(Instant, Result<SeenTime, AuditError>)>,
    /// True if entries were written since the last signature.
    has_new: bool,
}

impl Engine {
    pub(super) fn new(shared: Arc<LogShared>, lives: tokio::runtime::Handle) -> Self {
        let (sender, registration) = watch::channel(Registration::Pending);
        Self {
            shared,
            process: None,
            registration,
            registration_sender: Some(sender),
            ends: watch::channel(false).0,
            lives,
            session: None,
            own: None,
            chains: HashMap::new(),
            calls: HashMap::new(),
            lost_calls: HashSet::new(),
            late_events: HashMap::new(),
            late_ends: HashMap::new(),
            late_closes: HashMap::new(),
            ended_late: HashSet::new(),
            parked: None,
            contended: HashSet::new(),
            key_check: None,
            has_new: false,
        }
    }

    /// Carries out commands until there can be no more, and then gives up what this process holds.
    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let (mut queue, mut gathering) = (VecDeque::new(), Gathering::default());
        let mut has_panicked = false;
        loop {
            // After a panic, all callers may wait for what is parked.
            if queue.is_empty() && !has_panicked {
                match commands.recv().await {
                    Some(command) => queue.push_back(command),
                    None => break,
                }
            }
            gathering.gather(&mut queue, &mut commands);
            let (begun, count) = (Instant::now(), queue.len());
            let work = async {
                if has_panicked {
                    self.find_out(&mut queue, Instant::now() + PATIENCE).await;
                }
                self.step(&mut queue).await;
            };
            let is_panic = AssertUnwindSafe(work).catch_unwind().await.is_err();
            if is_panic {
                // A transaction that was under way is parked: the next session finds out what became of it.
                tracing::error!(target: "cofferdam::audit", "the thread that writes the audit log panicked, and goes on");
                (self.session, self.key_check) = (None, None);
                tokio::time::sleep(PAUSE).await;
            }
            if is_panic && has_panicked {
                // It may panic each time, so that callers do not wait for its end.
                self.fail_unknown(&lost());
                for command in std::mem::take(&mut queue) {
                    self.fail(command, &lost());
                }
            }
            has_panicked = is_panic && !has_panicked;
            gathering.answered(count.saturating_sub(queue.len()), begun.elapsed());
            self.release_adopted().await;
        }
        self.finish().await;
    }

    /// Carries out commands from the front of the queue, in one transaction.
    async fn step(&mut self, queue: &mut VecDeque<Command>) {
        for (begin, end) in std::mem::take(&mut self.late_closes).into_values() {
            queue.push_front(Command::Close(begin, end, None));
        }
        if let Err(error) = self.prepare(queue).await {
            for command in std::mem::take(queue) {
                self.fail(command, &error);
            }
            return;
        }
        self.answer_key_states(queue).await;
        let (mut batch, mut effects) = (Batch::default(), Vec::new());
        for end in std::mem::take(&mut self.late_ends).into_values() {
            self.plan_end(*end, None, &mut batch, &mut effects);
        }
        while batch.len() < ENTRIES_AT_ONCE
            && let Some(command) = queue.pop_front()
        {
            match self.plan(command, &mut batch, &mut effects) {
                Planned::Done => {}
                Planned::Next(command) => {
                    queue.push_front(command);
                    break;
                }
                Planned::Alone(command) if batch.is_empty() => return self.alone(command, queue).await,
                Planned::Alone(command) => {
                    queue.push_front(command);
                    break;
                }
            }
        }
        if !batch.is_empty() {
            self.commit(batch, effects, queue).await;
        }
    }

    /// Has a session, the state of keys, and a journal, as far as the commands need them.
    async fn prepare(&mut self, queue: &VecDeque<Command>) -> Result<(), AuditError> {
        let until = Instant::now() + PATIENCE;
        if let Some(unwritten) = self.resolve_parked(until).await? {
            self.failed(unwritten, &lost());
        }
        self.open_session(until).await?;
        let writes = |command: &Command| match command {
            Command::Entries(drafts, _) => !drafts.is_empty(),
            Command::KeyState(..) | Command::Time(_) | Command::Forget(_) | Command::Holdings(_) => false,
            _ => true,
        };
        if self.own.is_none() && queue.iter().any(writes) {
            self.take_chain(until).await?;
        }
        let is_keyed = |command: &Command| match command {
            Command::Open(open, _) => open.key.is_some(),
            Command::KeyState(..) | Command::Time(_) | Command::Resolve(..) => true,
            _ => false,
        };
        if queue.iter().any(is_keyed) {
            self.check_keys().await;
        }
        Ok(())
    }

    /// Opens a session, unless there is one, and checks that the journals of this process are as it left them.
    pub(super) async fn open_session(&mut self, until: Instant) -> Result<(), AuditError> {
        loop {
            match self.try_session().await {
                Ok(()) => return Ok(()),
                Err(error) if error.may_pass() && Instant::now() < until => {
                    self.session = None;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    self.session = None;
                    if self.shared.warnings.is_new("written", &error) {
                        tracing::warn!(target: "cofferdam::audit", %error, "the audit log was not written");
                    }
                    return Err(error.into());
                }
            }
        }
    }

    async fn try_session(&mut self) -> Result<(), DatabaseError> {
        if self.session.as_ref().is_some_and(|session| !session.client.is_closed()) {
            return Ok(());
        }
        let session = Session::open(&self.shared.database).await?;
        // The last one may have lost commits: nothing of it is believed any more.
        self.key_check = None;
        let parked: HashSet<Uuid> = self.parked.iter().flat_map(|parked| parked.batch.names()).collect();
        let names: Vec<_> = self.chains.keys().filter(|name| !parked.contains(*name)).copied().collect();
        if !names.is_empty() {
            let found = self.next_epoch(&session, &names).await?;
            for name in names {
                let Some(known) = self.chains.get(&name).copied() else { continue };
                match found.get(&name) {
                    Some(end) if end.head == known.head => drop(self.chains.insert(name, *end)),
                    _ => self.lose_or_miss(&session, known).await?,
                }
            }
        }
        self.session = Some(session);
        Ok(())
    }

    /// Moves journals of this process to their next epochs, in which no lost session writes, and returns where they end.
    async fn next_epoch(
        &self,
        session: &Session,
        names: &[Uuid],
    ) -> Result<HashMap<Uuid, ChainEnd>, DatabaseError> {
        let update = "UPDATE cofferdam.writers SET epoch = epoch + 1 WHERE name = ANY($1) AND holder = $2 \
                      RETURNING name, epoch, n, hash, sealed";
        let names = names.to_vec();
        let mut found = HashMap::new();
        for row in answered(session.client.query(update, &[&names, &self.id()])).await? {
            let end = ChainEnd::read(&row)?;
            found.insert(end.name, end);
        }
        Ok(found)
    }

    /// Gives back the journals in which this process has resumed calls, once those have ended. Until then the other
    /// interrupted calls in them look to all hosts as if they were running here.
    async fn release_adopted(&mut self) {
        let late = self.late_ends.values().map(|end| end.call.chain);
        let in_use: HashSet<Uuid> =
            self.calls.values().map(|call| call.chain).chain(late).chain(self.own).collect();
        let idle: Vec<Uuid> = self.chains.keys().filter(|name| !in_use.contains(*name)).copied().collect();
        let Some(session) = self.session.as_ref().filter(|_| self.parked.is_none() && !idle.is_empty())
        else {
            return;
        };
        let ends = idle.iter().filter_map(|name| self.chains.get(name));
        let heads: Vec<_> = ends.map(|end| (end.name, end.head)).collect();
        // No other process knows what this one has written in them.
        let signed = tokio::time::timeout(PATIENCE, self.shared.checkpoints.sign(&self.shared, &heads)).await;
        if let Err(error) = signed.unwrap_or_else(|_| Err(lost())) {
            tracing::warn!(target: "cofferdam::audit", %error, "no checkpoint was signed");
        }
        let release = "UPDATE cofferdam.writers SET holder = $3, epoch = epoch + 1 WHERE name = ANY($1) AND holder = $2";
        // No process has this id: every host finds that the holder is gone.
        match answered(session.client.execute(release, &[&idle, &self.id(), &Uuid::nil()])).await {
            Ok(_) => self.chains.retain(|name, _| !idle.contains(name)),
            Err(error) => {
                tracing::debug!(target: "cofferdam::audit", %error, "a journal is given back later");
                self.session = None;
            }
        }
    }

    /// Returns the id of this process.
    pub(super) fn id(&self) -> Uuid {
        self.process.as_ref().map(|process| process.id).unwrap_or_default()
    }

    /// Lets go of a journal that is not as this process left it. If entries are missing that it knows, all hosts have to know.
    async fn lose_or_miss(&mut self, session: &Session, known: ChainEnd) -> Result<(), DatabaseError> {
        let ChainEnd { name, head, .. } = known;
        let is_there = match checkpoint::hash_of(&session.client, name, signed(head.n)).await? {
            Some(hash) => hash == head.hash,
            // It may have been pruned by the process that has the journal now.
            None => {
                let select = "SELECT FROM cofferdam.writers WHERE name = $1 AND n > $2";
                session.client.query_opt(select, &[&name, &signed(head.n)]).await?.is_some()
            }
        };
        if !is_there {
            self.shared.checkpoints.miss(&session.client, head.n, true).await?;
        }
        self.lose(name);
        Ok(())
    }

    /// Lets go of a journal that another process has taken, or that is not as it was left.
    fn lose(&mut self, name: Uuid) {
        // If entries are missing, keys may be.
        self.key_check = None;
        tracing::error!(target: "cofferdam::audit", writer = %name, "the journal was taken by another host, or is not as this one left it: its calls cannot be recorded");
        self.chains.remove(&name);
        let lost = self.calls.extract_if(|_, call| call.chain == name).map(|(id, _)| id);
        self.lost_calls.extend(lost);
        self.own = self.own.filter(|own| *own != name);
    }

    /// Finds out whether the parked transaction was committed, if there is one. Returns its effects if it was not.
    async fn resolve_parked(&mut self, until: Instant) -> Result<Option<Vec<Effect>>, AuditError> {
        while let Some(parked) = &self.parked {
            let names = parked.batch.names();
            self.open_session(until).await?;
            let Some(session) = &self.session else { return Err(lost()) };
            let found = self.next_epoch(session, &names).await;
            match found {
                Ok(found) => {
                    let Some(parked) = self.parked.take() else { break };
                    return Ok(self.resolved(parked, &found).await);
                }
                Err(error) => {
                    self.session = None;
                    if Instant::now() >= until || !error.may_pass() {
                        return Err(error.into());
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        Ok(None)
    }

    /// Returns whether calls may run under keys, and the time of the log.
    async fn check_keys(&mut self) {
        let age = if self.shared.settings.follows_clock { Duration::ZERO } else { KEY_CHECK_AGE };
        if self.key_check.as_ref().is_some_and(|(at, checked)| checked.is_ok() && at.elapsed() < age) {
            return;
        }
        let checked = self.look_at_keys().await;
        self.leave_if_unanswered(&checked);
        self.key_check = Some((Instant::now(), checked));
    }

    /// Gives up a session that may still wait for an answer.
    fn leave_if_unanswered<T>(&mut self, done: &Result<T, AuditError>) {
        if done.as_ref().is_err_and(|error| error.kind() == AuditErrorKind::Unreachable) {
            self.session = None;
        }
    }

    async fn look_at_keys(&self) -> Result<SeenTime, AuditError> {
        let Some(session) = &self.session else { return Err(lost()) };
        if let Some(loss) = self.shared.checkpoints.loss(&session.client).await? {
            return Err(AuditError::new(AuditErrorKind::Lost, loss));
        }
        Ok(SeenTime::read(&session.client, self.shared.given_time()).await?)
    }

    /// Returns the time of the log, if calls may run under keys.
    pub(super) fn key_time(&self) -> Result<SeenTime, AuditError> {
        let checked = self.key_check.as_ref().map(|(_, checked)| checked.clone());
        let seen = checked.unwrap_or_else(|| Err(lost()))?;
        seen.check(&self.shared.warnings)?;
        Ok(seen)
    }

    /// Answers all questions about keys at once.
    async fn answer_key_states(&mut self, queue: &mut VecDeque<Command>) {
        let (mut asked, mut rest) = (Vec::new(), VecDeque::new());
        for command in queue.drain(..) {
            match command {
                Command::KeyState(claim, reply) => asked.push((claim, reply)),
                command => rest.push_back(command),
            }
        }
        *queue = rest;
        if asked.is_empty() {
            return;
        }
        let states = self.key_states(asked.iter().map(|(claim, _)| claim)).await;
        self.leave_if_unanswered(&states);
        match states {
            Ok(states) => {
                asked.into_iter().zip(states).for_each(|((_, reply), state)| drop(reply.send(Ok(state))))
            }
            Err(error) => asked.into_iter().for_each(|(_, reply)| drop(reply.send(Err(error.clone())))),
        }
    }

    async fn key_states<'c>(
        &self,
        claims: impl Iterator<Item = &'c KeyClaim>,
    ) -> Result<Vec<KeyState>, AuditError> {
        let (now, claims) = (self.key_time()?.now(), claims.collect::<Vec<_>>());
        let Some(session) = &self.session else { return Err(lost()) };
        let named: Vec<_> = claims.iter().flat_map(|claim| keys::named(claim)).collect();
        let stored = keys::read(&session.client, &named).await?;
        let gone = self.gone_of(&session.client, stored.values()).await?;
        let is_running = |row: &KeyRow| self.is_running(row, &gone);
        claims.iter().map(|claim| keys::state(&stored, claim, now, &is_running)).collect()
    }

    /// Returns which processes are gone, if one of these keys depends on that.
    pub(super) async fn gone_of(
        &self,
        client: &impl tokio_postgres::GenericClient,
        mut rows: impl Iterator<Item = &KeyRow>,
    ) -> Result<GoneProcesses, DatabaseError> {
        let own = self.id();
        let depends = rows.any(|row| row.stored.state == StoredKeyState::Claimed && row.holder != Some(own));
        match depends {
            true => process::gone(client, &self.shared.home).await,
            false => Ok(GoneProcesses::default()),
        }
    }

    /// Returns true for a call of this process that runs, or whose end is not written yet.
    pub(super) fn has_call(&self, id: &AuditId) -> bool {
        self.calls.contains_key(id) || self.lost_calls.contains(id) || self.late_ends.contains_key(id)
    }

    /// Returns true if the process of a key's call lives, so that the call runs.
    pub(super) fn is_running(&self, row: &KeyRow, gone: &GoneProcesses) -> bool {
        let is_own = self.has_call(&row.stored.audit_id());
        is_own || row.holder.is_some_and(|holder| holder != self.id() && !gone.has(holder))
    }

    /// Adds the command to the batch, if it fits.
    fn plan(&mut self, command: Command, batch: &mut Batch, effects: &mut Vec<Effect>) -> Planned {
        match command {
            Command::Open(open, reply) => return self.plan_open(open, reply, batch, effects),
            Command::Append(id, entry, reply) => match self.opened(&id, effects) {
                Ok(call) => {
                    let is_pending =
                        |effect: &Effect| matches!(effect, Effect::Appended { id: own, .. } if *own == id);
                    if !call.unacknowledged.is_empty() && effects.iter().any(is_pending) {
                        return Planned::Next(Command::Append(id, entry, reply));
                    }
                    let late = self.late_events.remove(&id).unwrap_or_default();
                    let drafts = drafts_after(&id, &call, late.iter().chain([&entry]));
                    if let Some(chain) = self.chains.get(&call.chain).copied() {
                        for draft in &drafts.0 {
                            batch.append(chain, draft);
                        }
                    }
                    effects.push(Effect::Appended {
                        id,
                        late,
                        own: entry,
                        shift: drafts.1,
                        reply: Some(reply),
                    });
                    if batch.is_empty() {
                        // All of it was written before.
                        self.succeeded(std::mem::take(effects));
                    }
                }
                Err(error) => drop(reply.send(Err(error))),
            },
            Command::Close(begin, end, reply) => return self.plan_close(begin, *end, reply, batch, effects),
            Command::End(end, reply) => self.plan_end(*end, reply, batch, effects),
            // It waits for what was asked for before.
            Command::Entries(drafts, reply) if drafts.is_empty() => match batch.is_empty() {
                true => drop(reply.send(Ok(()))),
                false => effects.push(Effect::Logged { drafts, reply: Some(reply) }),
            },
            Command::Entries(drafts, reply) => match self.own_end() {
                Some(chain) => {
                    for draft in &drafts {
                        batch.append(chain, draft);
                    }
                    effects.push(Effect::Logged { drafts, reply: Some(reply) });
                }
                None => drop(reply.send(Err(lost()))),
            },
            Command::Time(reply) => {
                let checked = self.key_check.as_ref().map(|(_, checked)| checked.clone());
                drop(reply.send(checked.unwrap_or_else(|| Err(lost())).map(SeenTime::log_time)));
            }
            Command::Forget(reply) => {
                self.key_check = None;
                drop(reply.send(Ok(())));
            }
            Command::Begin(reply) => drop(reply.send(Ok(()))),
            Command::Holdings(reply) => {
                let chains = self.chains.values().map(|end| (end.name, end.head)).collect();
                let calls = self.calls.keys().chain(&self.lost_calls).chain(self.late_ends.keys());
                let calls = calls.cloned().collect();
                drop(reply.send(Ok(Holdings { process: self.id(), chains, calls })));
            }
            command @ Command::Resolve(..) => return Planned::Alone(command),
            // Those were answered before.
            Command::KeyState(_, reply) => drop(reply.send(Err(lost()))),
        }
        Planned::Done
    }

    fn plan_open(
        &mut self,
        open: Box<OpenCall>,
        reply: Reply<OpenOutcome>,
        batch: &mut Batch,
        effects: &mut Vec<Effect>,
    ) -> Planned {
        if self.calls.contains_key(&open.audit_id) {
            drop(reply.send(Ok(OpenOutcome::Started)));
            return Planned::Done;
        }
        if opens(effects, &open.audit_id) {
            return Planned::Next(Command::Open(open, reply));
        }
        let Some(chain) = self.own_end() else {
            drop(reply.send(Err(lost())));
            return Planned::Done;
        };
        let mut claimed = None;
        if let Some(claim) = &open.key {
            if let Err(error) = self.key_time() {
                drop(reply.send(Err(error)));
                return Planned::Done;
            }
            let key = key_digest(&claim.key);
            if open.resumes.is_some()
                || matches!(claim.of, KeyScope::Action { .. })
                || self.contended.contains(&key)
            {
                return Planned::Alone(Command::Open(open, reply));
            }
            if batch.claims(&key) || batch.ends(&key) {
                return Planned::Next(Command::Open(open, reply));
            }
            batch.claim(ClaimedKey::new(&open, claim, chain.name));
            claimed = Some(key);
        } else if open.resumes.is_some() {
            return Planned::Alone(Command::Open(open, reply));
        }
        batch.append(chain, &self.opening(&open));
        let call = opened(&open, chain.name, claimed);
        effects.push(Effect::Opened { open, call, reply: Some(reply) });
        Planned::Done
    }

    fn plan_close(
        &mut self,
        begin: Option<Box<OpenCall>>,
        end: CloseCall,
        reply: Option<Reply<()>>,
        batch: &mut Batch,
        effects: &mut Vec<Effect>,
    ) -> Planned {
        self.lost_calls.remove(&end.audit_id);
        if self.ended_late.remove(&end.audit_id) {
            reply.map(|reply| reply.send(Ok(())));
            return Planned::Done;
        }
        let is_ending =
            |effect: &Effect| matches!(effect, Effect::Ended { end: own, .. } if own.id == end.audit_id);
        if effects.iter().any(is_ending) {
            return Planned::Next(Command::Close(begin, Box::new(end), reply));
        }
        // Another call may have its key, as this transaction finds out: then it does not begin.
        let claims_here = |effect: &Effect| matches!(effect, Effect::Opened { open, call, .. } if call.key.is_some() && open.audit_id == end.audit_id);
        if effects.iter().any(claims_here) {
            return Planned::Next(Command::Close(begin, Box::new(end), reply));
        }
        if let Some(late) = self.late_ends.remove(&end.audit_id) {
            self.plan_end(*late, reply, batch, effects);
            return Planned::Done;
        }
        let known = self.opened(&end.audit_id, effects);
        let (call, mut drafts) = match (known, &begin, self.own_end()) {
            (Ok(call), _, _) => {
                let late = self.late_events.remove(&end.audit_id).unwrap_or_default();
                let (drafts, shift) = drafts_after(&end.audit_id, &call, late.iter());
                (OpenedCall { shift, ..call }, drafts)
            }
            (Err(_), Some(begin), Some(chain)) => {
                (opened(begin, chain.name, None), vec![self.opening(begin)])
            }
            (Err(error), ..) => {
                reply.map(|reply| reply.send(Err(error)));
                return Planned::Done;
            }
        };
        let (entry, is_end) = end.last_events(call.resumes);
        let (entry, _) = entry.after(&call.unacknowledged, call.shift);
        // A call that began and ended in one entry needs no other, unless its outcome is sealed.
        let outcome = self.sealable(&call.actor, end.outcome.as_ref());
        if !entry.is_empty() || outcome.is_some() || drafts.is_empty() {
            drafts.push(EntryDraft::of_call(&end.audit_id, is_end, &entry).with_sealed(outcome));
        }
        // A call without an end holds its key until an operator decides about it.
        let key = is_end.then(|| self.key_end(&end));
        let end = PlannedEnd { id: end.audit_id, call, drafts, key };
        self.plan_end(end, reply, batch, effects);
        Planned::Done
    }

    fn plan_end(
        &mut self,
        end: PlannedEnd,
        reply: Option<Reply<()>>,
        batch: &mut Batch,
        effects: &mut Vec<Effect>,
    ) {
        let Some(chain) = self.chains.get(&end.call.chain).copied() else {
            tracing::error!(target: "cofferdam::audit", audit_id = end.id.as_str(), "the end of a call cannot be written: it is incomplete");
            self.lost_calls.remove(&end.id);
            reply.map(|reply| reply.send(Err(replaced(&end.id))));
            return;
        };
        let mut place = None;
        for draft in &end.drafts {
            place = batch.append(chain, draft);
        }
        if let (Some(key), Some(state)) = (end.call.key, end.key) {
            batch.end_key(key, stored_id(&end.id), state, place);
        }
        effects.push(Effect::Ended { end: Box::new(end), reply });
    }

    /// Returns the state of a call's key after its end.
    fn key_end(&self, end: &CloseCall) -> KeyEnd {
        let is_value = end.verdict.status == CallStatus::Value;
        let key_end = |state, retained: Option<_>| KeyEnd {
            state,
            retained,
            has_value: is_value && retained.is_some(),
        };
        match end.key {
            KeyDisposition::Release => key_end(None, None),
            KeyDisposition::Undetermined => key_end(Some(StoredKeyState::Undetermined), None),
            KeyDisposition::Retain(until) => {
                let until = until.as_microsecond();
                // By the clock of the database: that of this host may be another one.
                let ttl = until.saturating_sub(self.shared.clock.timestamp().as_microsecond());
                key_end(Some(StoredKeyState::Retained), Some((until, ttl)))
            }
        }
    }

    /// Returns a call that has no end, and may be opened by the batch.
    fn opened(&self, id: &AuditId, effects: &[Effect]) -> Result<OpenedCall, AuditError> {
        let pending = || {
            effects.iter().rev().find_map(|effect| match effect {
                Effect::Opened { open, call, .. } if open.audit_id == *id => Some(call),
                _ => None,
            })
        };
        self.calls.get(id).or_else(pending).cloned().ok_or_else(|| replaced(id))
    }

    pub(super) fn own_end(&self) -> Option<ChainEnd> {
        self.own.and_then(|own| self.chains.get(&own).copied())
    }

    /// Returns the first entry of a call.
    pub(super) fn opening(&self, open: &OpenCall) -> EntryDraft {
        EntryDraft::of_opening(open, self.sealable(&open.actor, open.request.as_ref()))
    }

    fn sealable(&self, client: &str, part: Option<&Sealed>) -> Option<Sealed> {
        part.filter(|_| !self.shared.is_full(client)).cloned()
    }

    /// Writes the batch. What it could not write is in the queue again, or has failed. Until that is known, the batch is
    /// parked, so that a panic leaves nothing in doubt either.
    async fn commit(&mut self, batch: Batch, mut effects: Vec<Effect>, queue: &mut VecDeque<Command>) {
        if failpoint::skips("close.early") && effects.iter_mut().filter_map(acknowledge_early).count() > 0 {
            failpoint::pass("early.told");
        }
        self.parked = Some(Parked { batch, effects });
        failpoint::pass("before.commit");
        let until = Instant::now() + PATIENCE;
        loop {
            let session = self.session.as_ref().filter(|session| !session.client.is_closed());
            let (Some(session), Some(parked)) = (session, &self.parked) else {
                // The next session may find another database, and first checks whether entries are missing there.
                let effects = self.unpark();
                return self.requeue(effects, queue);
            };
            let given = self.shared.given_time();
            let written = parked.batch.write(&session.client, &session.append, self.id(), given);
            let fault = match tokio::time::timeout(ANSWER_TIME, written).await {
                Ok(Ok(())) => return self.committed().await,
                Ok(Err(error)) => AppendFault::of(&error),
                Err(_) => AppendFault::Unknown(DatabaseError::unanswered()),
            };
            match fault {
                AppendFault::KeyTaken if failpoint::skips("key.unchecked") => {
                    self.parked.iter_mut().for_each(|parked| parked.batch.forget_claims());
                }
                AppendFault::KeyTaken => {
                    let effects = self.unpark();
                    return self.contend(effects, queue);
                }
                // One of its journals is another's, or not as this process left it.
                AppendFault::Taken => return self.find_out(queue, until).await,
                AppendFault::NoPartition => {
                    if let Err(error) = self.make_partitions().await {
                        return self.fail_parked(&error);
                    }
                }
                AppendFault::Unknown(error) => {
                    tracing::debug!(target: "cofferdam::audit", %error, "whether entries were committed is found out");
                    self.session = None;
                    return self.find_out(queue, until).await;
                }
                AppendFault::Failed(error) => {
                    if error.kind() == DatabaseErrorKind::Busy && Instant::now() < until {
                        continue;
                    }
                    let error = AuditError::from(error);
                    if self.shared.warnings.is_new("written", &error) {
                        tracing::warn!(target: "cofferdam::audit", %error, "the audit log was not written");
                    }
                    return self.fail_parked(&error);
                }
            }
        }
    }

    fn unpark(&mut self) -> Vec<Effect> {
        self.parked.take().map(|parked| parked.effects).unwrap_or_default()
    }

    fn fail_parked(&mut self, error: &AuditError) {
        let effects = self.unpark();
        self.failed(effects, error);
    }

    /// Finds out whether the parked transaction was committed, whose session was lost. If it was not, its commands are in
    /// the queue again; if that cannot be found out in time, they fail.
    pub(super) async fn find_out(&mut self, queue: &mut VecDeque<Command>, until: Instant) {
        match self.resolve_parked(until).await {
            Ok(Some(unwritten)) => self.requeue(unwritten, queue),
            Ok(None) => {}
            Err(error) => self.fail_unknown(&error),
        }
    }

    /// Fails the commands of the parked transaction. What became of them is found out later.
    fn fail_unknown(&mut self, error: &AuditError) {
        for effect in self.parked.iter_mut().flat_map(|parked| parked.effects.iter_mut()) {
            let is_heard = effect.refuse(error);
            // A caller that has gone does not write its events again.
            if let (false, Effect::Appended { late, own, .. }) = (is_heard, effect) {
                late.push(std::mem::replace(own, Entry::new(Vec::new())));
            }
        }
    }

    /// Draws the consequences of a transaction if it was committed, according to where its journals end. Returns them if it
    /// was not.
    async fn resolved(&mut self, parked: Parked, found: &HashMap<Uuid, ChainEnd>) -> Option<Vec<Effect>> {
        let Parked { batch, effects } = parked;
        let is_committed = batch
            .chains()
            .iter()
            .all(|(_, after)| found.get(&after.name).is_some_and(|found| found.head == after.head));
        if is_committed {
            self.chains.extend(found);
            self.succeeded(effects);
            return None;
        }
        let mut others = Vec::new();
        for (before, _) in batch.chains() {
            match (found.get(&before.name), self.chains.contains_key(&before.name)) {
                (Some(end), true) if end.head == before.head => drop(self.chains.insert(end.name, *end)),
                (_, true) => others.push(*before),
                // It was about to be taken.
                (_, false) => {}
            }
        }
        if !others.is_empty()
            && let Some(session) = self.session.take()
        {
            for known in others {
                if let Err(error) = self.lose_or_miss(&session, known).await {
                    // The next session compares it again.
                    tracing::debug!(target: "cofferdam::audit", %error, "what became of a journal is found out later");
                    return Some(effects);
                }
            }
            self.session = Some(session);
        }
        Some(effects)
    }

    /// Has the commands of a transaction that wrote nothing be carried out again, before all others.
    fn requeue(&mut self, effects: Vec<Effect>, queue: &mut VecDeque<Command>) {
        for effect in effects.into_iter().rev() {
            match effect {
                Effect::Opened { open, reply: Some(reply), .. } => {
                    queue.push_front(Command::Open(open, reply))
                }
                Effect::Appended { id, late, own, reply: Some(reply), .. } => {
                    if !late.is_empty() {
                        self.late_events.entry(id.clone()).or_default().splice(..0, late);
                    }
                    queue.push_front(Command::Append(id, own, reply));
                }
                Effect::Ended { end, reply } => queue.push_front(Command::End(end, reply)),
                Effect::Logged { drafts, reply: Some(reply) } => {
                    queue.push_front(Command::Entries(drafts, reply))
                }
                effect => self.failed(vec![effect], &lost()),
            }
        }
    }

    /// Has the keys of a transaction decided about one by one, since another call has one of them.
    fn contend(&mut self, effects: Vec<Effect>, queue: &mut VecDeque<Command>) {
        for effect in &effects {
            if let Effect::Opened { call: OpenedCall { key: Some(key), .. }, .. } = effect {
                self.contended.insert(*key);
            }
        }
        self.requeue(effects, queue);
    }

    pub(super) async fn make_partitions(&mut self) -> Result<(), AuditError> {
        let at = self.shared.given_time();
        let Some(mut session) = self.session.take() else { return Err(lost()) };
        let now = "SELECT coalesce($1, clock_timestamp())";
        let row = session.client.query_one(now, &[&at]).await.map_err(DatabaseError::from)?;
        let at: SystemTime = row.try_get(0).map_err(DatabaseError::from)?;
        make_partitions(&mut session.client, at).await?;
        self.session = Some(session);
        Ok(())
    }

    /// Draws the consequences of the parked transaction, which was committed in the current session.
    pub(super) async fn committed(&mut self) {
        failpoint::pass("after.commit");
        let Some(Parked { batch, effects }) = self.parked.take() else { return };
        for (_, after) in batch.chains() {
            self.chains.insert(after.name, *after);
        }
        let has = |is: fn(&Effect) -> bool| effects.iter().any(is);
        failpoint::pass_if("open.committed", || has(|effect| matches!(effect, Effect::Opened { .. })));
        failpoint::pass_if("close.committed", || has(|effect| matches!(effect, Effect::Ended { .. })));
        self.succeeded(effects);
        self.follow_time().await;
    }

    /// Has the time of the log follow the entries.
    async fn follow_time(&mut self) {
        let (Some((_, Ok(seen))), Some(session)) = (&self.key_check, &self.session) else { return };
        if seen.is_to_move()
            && let Err(error) = time::advance(&session.client, *seen).await
        {
            tracing::debug!(target: "cofferdam::audit", %error, "the time of the log is behind");
            self.session = None;
        } else if seen.is_to_move() {
            self.key_check = None;
        }
    }

    /// Draws the consequences of a transaction that was committed.
    fn succeeded(&mut self, effects: Vec<Effect>) {
        self.has_new = true;
        if self.shared.warnings.resolve("written") {
            self.shared.warnings.resolve("refused");
            tracing::info!(target: "cofferdam::audit", "the audit log is written again");
        }
        for effect in effects {
            match effect {
                Effect::Opened { open, mut call, reply } => {
                    if let Some(key) = &call.key {
                        self.contended.remove(key);
                    }
                    if reply.is_none() {
                        call.unacknowledged = open.entry.events().to_vec();
                    }
                    self.calls.insert(open.audit_id, call);
                    reply.map(|reply| reply.send(Ok(OpenOutcome::Started)));
                }
                Effect::Appended { id, own, shift, reply, .. } => {
                    if let Some(call) = self.calls.get_mut(&id) {
                        call.shift = shift;
                        call.unacknowledged =
                            if reply.is_some() { Vec::new() } else { own.events().to_vec() };
                    }
                    reply.map(|reply| reply.send(Ok(())));
                }
                Effect::Ended { end, reply } => {
                    self.calls.remove(&end.id);
                    self.late_events.remove(&end.id);
                    if reply.is_none() {
                        if self.ended_late.len() >= LATE_ENDS {
                            self.ended_late.clear();
                        }
                        self.ended_late.insert(end.id);
                    }
                    reply.map(|reply| reply.send(Ok(())));
                }
                Effect::Logged { reply, .. } => drop(reply.map(|reply| reply.send(Ok(())))),
                Effect::Answered(answer) => drop(answer.map(|answer| answer(Ok(())))),
            }
        }
        self.shared.has_new.notify_one();
    }

    /// Draws the consequences of a transaction that wrote nothing.
    pub(super) fn failed(&mut self, effects: Vec<Effect>, error: &AuditError) {
        for mut effect in effects {
            let is_heard = effect.refuse(error);
            match effect {
                Effect::Appended { id, mut late, own, .. } => {
                    // A caller that waits writes its own events again; one that has gone does not.
                    if !is_heard {
                        late.push(own);
                    }
                    if !late.is_empty() && self.calls.contains_key(&id) {
                        self.late_events.entry(id).or_default().splice(..0, late);
                    }
                }
                Effect::Ended { end, .. } => {
                    self.lost_calls.remove(&end.id);
                    let can_wait = self.chains.contains_key(&end.call.chain);
                    let kept = can_wait.then_some(self.late_ends.len());
                    if keeps_late_end(&end.drafts, error, kept, &self.shared.warnings) {
                        self.late_ends.insert(end.id.clone(), end);
                    }
                }
                Effect::Opened { .. } | Effect::Logged { .. } | Effect::Answered(_) => {}
            }
        }
    }

    /// Fails a command of which nothing was written.
    fn fail(&mut self, command: Command, error: &AuditError) {
        match command {
            Command::Open(_, reply) => drop(reply.send(Err(error.clone()))),
            Command::Append(id, entry, reply) => {
                let effect =
                    Effect::Appended { id, late: Vec::new(), own: entry, shift: 0, reply: Some(reply) };
                self.failed(vec![effect], error);
            }
            Command::Close(begin, end, reply) => {
                let id = end.audit_id.clone();
                self.lost_calls.remove(&id);
                let is_parked = self
                    .parked
                    .iter()
                    .flat_map(|parked| &parked.effects)
                    .any(|effect| matches!(effect, Effect::Ended { end, .. } if end.id == id));
                let is_begun_there = self.parked.iter().any(|parked| opens(&parked.effects, &id));
                if is_begun_there && !is_parked {
                    // With a beginning of its own, the call could have two, and its key would stay claimed.
                    self.late_closes.insert(id, (begin, end));
                    reply.map(|reply| reply.send(Err(error.clone())));
                } else if !is_parked && !self.late_ends.contains_key(&id) && self.own_end().is_some() {
                    // Planned for later, in a batch that is not written.
                    let (mut batch, mut effects) = (Batch::default(), Vec::new());
                    if let Planned::Done = self.plan_close(begin, *end, reply, &mut batch, &mut effects) {
                        self.failed(effects, error);
                    }
                } else {
                    reply.map(|reply| reply.send(Err(error.clone())));
                }
            }
            Command::End(end, reply) => self.failed(vec![Effect::Ended { end, reply }], error),
            Command::Entries(_, reply) | Command::Forget(reply) | Command::Begin(reply) => {
                drop(reply.send(Err(error.clone())));
            }
            Command::KeyState(_, reply) => drop(reply.send(Err(error.clone()))),
            Command::Resolve(_, _, reply) => drop(reply.send(Err(error.clone()))),
            Command::Time(reply) => drop(reply.send(Err(error.clone()))),
            command @ Command::Holdings(_) => {
                // What this process holds is known without the database.
                self.plan(command, &mut Batch::default(), &mut Vec::new());
            }
        }
    }

    /// Registers this process, unless that was done.
    pub(super) async fn register(&mut self, until: Instant) -> Result<Arc<Process>, AuditError> {
        let process = match &self.process {
            Some(process) => Arc::clone(process),
            None => {
                let settings = &self.shared.settings;
                let process = Arc::new(Process::new(&self.shared.home, &settings.host, settings.lease)?);
                if let Some(state) = self.registration_sender.take() {
                    let shared = Arc::clone(&self.shared);
                    self.lives.spawn(Arc::clone(&process).live(shared, state, self.ends.subscribe()));
                }
                self.process = Some(Arc::clone(&process));
                process
            }
        };
        let wait = until.max(Instant::now() + PATIENCE).into();
        let registered = self.registration.wait_for(|state| !matches!(state, Registration::Pending));
        let state = tokio::time::timeout_at(wait, registered).await;
        match state.map(|state| state.map(|state| state.clone())) {
            Ok(Ok(Registration::Done)) => Ok(process),
            Ok(Ok(Registration::Failed(error))) => Err(error.into()),
            _ => Err(lost()),
        }
    }

    /// Writes what is left, and gives up what this process holds.
    async fn finish(&mut self) {
        if !self.late_ends.is_empty() || !self.late_closes.is_empty() {
            let mut nothing = VecDeque::from([Command::Entries(Vec::new(), oneshot::channel().0)]);
            self.step(&mut nothing).await;
        }
        for end in self.late_ends.values() {
            tracing::error!(target: "cofferdam::audit", audit_id = end.id.as_str(), "the end of a call could not be written: it is incomplete");
        }
        self.ends.send_replace(true);
        if self.process.is_none() {
            return;
        }
        failpoint::pass("checkpoint.before");
        let heads: Vec<_> = self.chains.values().map(|end| (end.name, end.head)).collect();
        if self.has_new
            && let Err(error) = self.shared.checkpoints.sign(&self.shared, &heads).await
        {
            tracing::warn!(target: "cofferdam::audit", %error, "no checkpoint was signed");
        }
        failpoint::pass("checkpoint.after");
        let is_clean = self.late_ends.is_empty() && self.parked.is_none();
        let open: HashSet<_> = self.calls.values().map(|call| call.chain).collect();
        let clean: Vec<Uuid> = self.own.into_iter().filter(|own| is_clean && !open.contains(own)).collect();
        let Some(session) = self.session.as_ref().filter(|session| !session.client.is_closed()) else {
            return;
        };
        if self.has_new
            && let Err(error) = time::follow(&session.client, self.shared.given_time()).await
        {
            tracing::debug!(target: "cofferdam::audit", %error, "the time of the log is behind");
        }
        let id = self.id();
        let release = async {
            let parameters: [&(dyn ToSql + Sync); 2] = [&clean, &id];
            let writers = "UPDATE cofferdam.writers SET is_clean = true WHERE name = ANY($1) AND holder = $2";
            session.client.execute(writers, &parameters).await?;
            let process = "UPDATE cofferdam.processes SET is_released = true WHERE id = $1";
            session.client.execute(process, &[&id]).await
        };
        if let Err(error) = answered(release).await {
            tracing::debug!(target: "cofferdam::audit", %error, "the lease of this process expires by itself");
        }
    }
}

/// Acknowledges the end of a call that is not committed: a defect for a test to detect.
fn acknowledge_early(effect: &mut Effect) -> Option<()> {
    let Effect::Ended { reply, .. } = effect else { return None };
    reply.take()?.send(Ok(())).ok()
}

pub(super) fn opened(open: &OpenCall, chain: Uuid, key: Option<[u8; 32]>) -> OpenedCall {
    let (actor, resumes) = (Arc::clone(&open.actor), open.resumes.is_some());
    OpenedCall { chain, actor, key, resumes, unacknowledged: Vec::new(), shift: 0 }
}

/// Returns the entries of a call after what is written of it, and by how much its events are numbered higher then.
fn drafts_after<'e>(
    id: &AuditId,
    call: &OpenedCall,
    entries: impl Iterator<Item = &'e Entry>,
) -> (Vec<EntryDraft>, u32) {
    let (mut drafts, mut shift) = (Vec::new(), call.shift);
    for entry in entries {
        let (entry, by) = entry.after(&call.unacknowledged, shift);
        shift = by;
        if !entry.is_empty() {
            drafts.push(EntryDraft::of_call(id, false, &entry));
        }
    }
    (drafts, shift)
}

fn opens(effects: &[Effect], id: &AuditId) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Opened { open, .. } if open.audit_id == *id))
}

/// The error of a write that was lost with its connection.
pub(super) fn lost() -> AuditError {
    AuditError::new(AuditErrorKind::Unreachable, "the connection to the database was lost")
}

pub(super) fn lost_journal() -> AuditError {
    let fix = "Look at the services before it is called again. See whether this host was cut off from the database for \
               longer than its lease, or whether the database is older than it was.";
    let what = "another host has taken the journal of this one, or the database is not as this host left it";
    AuditError::new(AuditErrorKind::Replaced, what).with_fix(fix)
}

fn replaced(id: &AuditId) -> AuditError {
    AuditError::new(AuditErrorKind::Replaced, format_args!("{id} has no beginning in it"))
}
