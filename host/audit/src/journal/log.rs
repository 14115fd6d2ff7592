//! The write side of the audit log in journals: calls are opened, extended and closed in the journal of this process.
//!
//! A call without an idempotency key takes two writes to a file and nothing else. A key is claimed in the key table
//! before the first entry, and changed there after the last one. If the process ends between the two, the journal is
//! right, and the table is brought up to date from it.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cofferdam_core::clock::Clock;
use cofferdam_core::event::operator::{OPERATOR_EVENT, OperatorEvent};
use cofferdam_core::event::recorded::{EventLine, RecordedEvent, Resolution};
use cofferdam_core::failure::AuditId;
use cofferdam_core::home_state::StateLoss;
use cofferdam_core::host_key;
use cofferdam_core::private_file::FileLock;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::checkpoint_file::CheckpointFile;
use super::commit::{AfterCommit, CommitFuture, JournalCommitter};
use super::key_facts;
use super::keys::{KeyChange, KeyTable, SealedOutcome, StoredKey, StoredKeyState};
use super::line::EntryDraft;
use super::segment::read_sealed;
use super::writer_dir::{self, WriterDir};
use super::{Journal, JournalSettings, sync};
use crate::command::{
    CallStatus, CloseCall, KeyClaim, KeyDisposition, KeyScope, KeyState, OpenCall, OpenOutcome, ResolveCall,
};
use crate::entry::Entry;
use crate::error::{AuditError, AuditErrorKind};
use crate::log::LogFuture;
use crate::sqlite::LogSettings;

/// The delay before a statement is signed for entries.
const SIGNING_DELAY: Duration = Duration::from_secs(1);

/// The pause before it is looked again whether a call's beginning is written.
const OPENING_PAUSE: Duration = Duration::from_millis(1);

/// The directory of the journals in a home directory.
const DIRECTORY: &str = "audit";

/// The key table in it, and the lock that its users share.
const KEYS: &str = "keys.db";
const KEYS_LOCK: &str = "keys.lock";

/// The most ends of calls that are kept in memory until they can be written.
const LATE_ENDS: usize = 4_096;

/// The audit log of a host, in journals of its home directory.
pub struct JournalLog(Arc<LogWriter>);

struct LogWriter {
    home: PathBuf,
    root: PathBuf,
    settings: LogSettings,
    clock: Arc<dyn Clock>,
    state: Mutex<WriterState>,
    /// None until the first key.
    keys: RwLock<Option<Arc<KeyTable>>>,
    /// Held while an interrupted call is resolved: by one thread of the process that has its journal.
    resolving: Mutex<()>,
    /// None until the first entry.
    checkpoints: OnceLock<CheckpointFile>,
    /// True while a task waits to sign, or signs.
    is_signing: AtomicBool,
    /// True if there are ends that could not be written.
    has_unwritten: AtomicBool,
    /// The number of keys whose calls have their end in the journal, and not yet in the key table.
    ending_keys: AtomicUsize,
}

#[derive(Default)]
struct WriterState {
    /// The journal that new calls are added to; none until the first call, and after its files were replaced.
    own: Option<Arc<HeldJournal>>,
    /// Journals of ended processes, in which this process resumes calls.
    adopted: HashMap<String, Arc<HeldJournal>>,
    /// Calls that are about to be opened.
    pending_opens: HashSet<AuditId>,
    /// The calls of this process that have no end.
    calls: HashMap<AuditId, OpenedCall>,
    /// Events that could not be written and that no caller waits for, to be written with the next entry of the call.
    late_events: HashMap<AuditId, Vec<EntryDraft>>,
    /// Ends that could not be written, to be written before the next entries.
    late_ends: HashMap<AuditId, LateEnd>,
    /// Calls whose late end was written, until their caller tries to write it again.
    ended_late: HashSet<AuditId>,
}

/// A journal whose lock this process holds.
struct HeldJournal {
    writer: String,
    committer: Arc<JournalCommitter>,
}

/// A call of this process that has no end.
#[derive(Clone)]
struct OpenedCall {
    journal: Arc<HeldJournal>,
    key: Option<[u8; 32]>,
    /// True if the call resumes another one.
    resumes: bool,
    /// True until its beginning is written.
    is_opening: bool,
}

/// A call that is about to be opened, by a thread that may wait.
struct PendingOpen {
    own: Arc<LogWriter>,
    audit_id: AuditId,
}

impl PendingOpen {
    fn new(own: &Arc<LogWriter>, audit_id: &AuditId) -> Self {
        own.state().pending_opens.insert(audit_id.clone());
        Self { own: Arc::clone(own), audit_id: audit_id.clone() }
    }
}

impl Drop for PendingOpen {
    fn drop(&mut self) {
        self.own.state().pending_opens.remove(&self.audit_id);
    }
}

/// The end of a call that is to be written again.
struct LateEnd {
    call: OpenedCall,
    drafts: Vec<EntryDraft>,
}

impl JournalLog {
    /// Creates an audit log in this home directory. Nothing is opened or created before the first command.
    pub fn new(home: &Path, settings: LogSettings, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(LogWriter {
            home: home.to_owned(),
            root: home.join(DIRECTORY),
            settings,
            clock,
            state: Mutex::default(),
            keys: RwLock::default(),
            resolving: Mutex::default(),
            checkpoints: OnceLock::new(),
            is_signing: AtomicBool::new(false),
            has_unwritten: AtomicBool::new(false),
            ending_keys: AtomicUsize::new(0),
        }))
    }

    /// Opens a call, which may run if the outcome says so.
    pub fn open(&self, call: OpenCall) -> LogFuture<OpenOutcome> {
        if call.key.is_some()
            || call.resumes.is_some()
            || !self.0.is_open()
            || self.0.has_call(&call.audit_id)
        {
            let pending = PendingOpen::new(&self.0, &call.audit_id);
            return self.blocking(move |own| {
                let outcome = own.open(&call);
                drop(pending);
                outcome
            });
        }
        match self.0.own_journal() {
            Ok(journal) => {
                let written = self.0.begin(journal, &call, Vec::new());
                Box::pin(async { written.await.map(|()| OpenOutcome::Started) })
            }
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    /// Adds events to an open call.
    pub fn append(&self, audit_id: &AuditId, entry: &Entry) -> LogFuture<()> {
        self.0.append(audit_id, entry, false)
    }

    /// Adds events to an open call without waiting. If they cannot be written now, they are with the call's next entry.
    pub fn append_later(&self, audit_id: &AuditId, entry: &Entry) {
        drop(self.0.append(audit_id, entry, true));
    }

    /// Ends a call. With `begin`, of which nothing was written before, the call is opened first, in the same write.
    pub fn close(&self, begin: Option<OpenCall>, end: CloseCall) -> LogFuture<()> {
        let is_open = self.0.state().calls.get(&end.audit_id).cloned();
        let blocks = match &is_open {
            Some(call) => call.key.is_some() || call.is_opening,
            None => !self.0.is_open() || self.0.state().pending_opens.contains(&end.audit_id),
        };
        if blocks {
            return self.blocking(move |own| own.close(begin, &end));
        }
        match self.0.end(begin, &end) {
            Ok(end) => end.written,
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    /// Returns what is missing of the journals, or beside them, as far as the home remembers. It blocks: not for an
    /// executor's threads.
    ///
    /// # Errors
    /// That cannot be determined.
    pub fn loss(&self) -> Result<Option<StateLoss>, AuditError> {
        self.0.checkpoints()?.loss()
    }

    /// Records a change that an operator makes. It is durable when the future completes.
    pub fn record(&self, at: Timestamp, event: OperatorEvent<'static>) -> LogFuture<()> {
        self.blocking(move |own| {
            let draft = EntryDraft::of_log(OPERATOR_EVENT, at, &event);
            wait(own.write(&own.own_journal()?, vec![draft], Box::new(|_| ())))?;
            // A command without a runtime ends soon, and signs at no other time.
            if tokio::runtime::Handle::try_current().is_err()
                && let Err(error) = own.sign()
            {
                tracing::warn!(target: "cofferdam::audit", %error, "no checkpoint was signed");
            }
            Ok(())
        })
    }

    /// Signs for the journal of this process as it is, and returns the note.
    pub fn sign(&self) -> LogFuture<String> {
        self.blocking(|own| own.sign())
    }

    /// Returns the state of an idempotency key.
    pub fn key_state(&self, claim: KeyClaim) -> LogFuture<KeyState> {
        self.blocking(move |own| {
            let keys = own.keys()?;
            own.settle_claim(&keys, &claim)?;
            keys.table.change(|keys| own.state_of(keys, &claim))
        })
    }

    /// Resolves a call that never ended. Returns false if there is nothing left to resolve.
    pub fn resolve(&self, audit_id: &AuditId, decision: ResolveCall) -> LogFuture<bool> {
        let audit_id = audit_id.clone();
        self.blocking(move |own| own.resolve(&audit_id, &decision))
    }

    /// Runs what may wait for the disk or for another process on a thread for that. It runs to its end also if the
    /// future is dropped.
    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<LogWriter>) -> Result<T, AuditError> + Send + 'static,
    ) -> LogFuture<T> {
        let own = Arc::clone(&self.0);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                let task = runtime.spawn_blocking(move || work(&own));
                Box::pin(async {
                    let lost =
                        |_| Err(AuditError::new(AuditErrorKind::Other, "a thread of the audit log panicked"));
                    task.await.unwrap_or_else(lost)
                })
            }
            Err(_) => {
                let done = work(&own);
                Box::pin(async { done })
            }
        }
    }
}

impl LogWriter {
    fn state(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_call(&self, audit_id: &AuditId) -> bool {
        self.state().calls.contains_key(audit_id)
    }

    /// Waits while a call is opened whose caller did not wait for that.
    fn wait_until_open(&self, audit_id: &AuditId) {
        let is_pending = || {
            let state = self.state();
            let is_opening = state.calls.get(audit_id).is_some_and(|call| call.is_opening);
            is_opening || state.pending_opens.contains(audit_id)
        };
        while is_pending() {
            std::thread::sleep(OPENING_PAUSE);
        }
    }

    /// Returns true if this process has a journal, so that a call can be added without waiting.
    fn is_open(&self) -> bool {
        self.state().own.is_some()
    }

    /// Returns the journal of this process, which is taken or begun if there is none.
    fn own_journal(&self) -> Result<Arc<HeldJournal>, AuditError> {
        let mut state = self.state();
        if let Some(journal) = &state.own {
            return Ok(Arc::clone(journal));
        }
        let journal = Journal::take(&self.root, self.journal_settings())?;
        // Before its first entry: a journal that is in no statement could be removed unnoticed.
        match self.checkpoints()?.register(journal.writer(), self.clock.timestamp()) {
            // Calls without a key go on: what is wrong stays as it is, and verification reports it.
            Err(error) if error.kind() == AuditErrorKind::Tampered => {
                tracing::warn!(target: "cofferdam::audit", %error, "a journal is begun that no checkpoint covers");
            }
            registered => registered?,
        }
        Ok(Arc::clone(state.own.insert(self.held(journal))))
    }

    fn checkpoints(&self) -> Result<&CheckpointFile, AuditError> {
        if let Some(file) = self.checkpoints.get() {
            return Ok(file);
        }
        let key = host_key::load_or_create(&self.home.join("host.key")).map_err(AuditError::from_key)?;
        let file = CheckpointFile::new(&self.home, &self.root, &key, self.settings.busy_timeout);
        Ok(self.checkpoints.get_or_init(|| file))
    }

    /// Signs for the own journal as it is, and returns the note.
    fn sign(&self) -> Result<String, AuditError> {
        let journal = self.own_journal()?;
        // Of entries that the disk has: after a power cut nothing that is signed for may be missing.
        let (head, files) = journal.committer.with_journal(|journal| (journal.head(), journal.files()));
        sync(files.inspect_err(|error| self.failed(&journal, error))?)?;
        let note = self.checkpoints()?.sign(&journal.writer, head, self.clock.timestamp())?;
        Ok(note)
    }

    /// Has a statement signed soon.
    fn sign_soon(self: &Arc<Self>) {
        if self.is_signing.swap(true, Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            self.is_signing.store(false, Ordering::Relaxed);
            return;
        };
        let (own, clock) = (Arc::downgrade(self), Arc::clone(&self.clock));
        let due = clock.now() + SIGNING_DELAY;
        runtime.spawn(async move {
            clock.sleep_until(due).await;
            let sign = move || {
                let Some(own) = own.upgrade() else { return };
                own.is_signing.store(false, Ordering::Relaxed);
                if let Err(error) = own.sign() {
                    tracing::warn!(target: "cofferdam::audit", %error, "no checkpoint was signed");
                }
            };
            drop(tokio::task::spawn_blocking(sign));
        });
    }

    fn journal_settings(&self) -> JournalSettings {
        JournalSettings { durability: self.settings.durability, ..JournalSettings::default() }
    }

    fn held(&self, journal: Journal) -> Arc<HeldJournal> {
        let writer = journal.writer().to_owned();
        Arc::new(HeldJournal { writer, committer: JournalCommitter::new(journal, Arc::clone(&self.clock)) })
    }

    fn opened(&self, audit_id: &AuditId) -> Result<OpenedCall, AuditError> {
        let missing = format_args!("{audit_id} has no beginning in it");
        self.state()
            .calls
            .get(audit_id)
            .cloned()
            .ok_or_else(|| AuditError::new(AuditErrorKind::Replaced, missing))
    }

    /// Writes entries, after those that could not be written before.
    fn write(
        self: &Arc<Self>,
        journal: &Arc<HeldJournal>,
        drafts: Vec<EntryDraft>,
        done: AfterCommit,
    ) -> CommitFuture {
        if self.has_unwritten.swap(false, Ordering::Relaxed) {
            let late = std::mem::take(&mut self.state().late_ends);
            for (audit_id, LateEnd { call, drafts }) in late {
                drop(self.write_end(&call, &audit_id, drafts, true));
            }
        }
        self.commit(journal, drafts, done)
    }

    fn commit(
        self: &Arc<Self>,
        journal: &Arc<HeldJournal>,
        drafts: Vec<EntryDraft>,
        done: AfterCommit,
    ) -> CommitFuture {
        let (own, of) = (Arc::clone(self), Arc::clone(journal));
        journal.committer.commit(
            drafts,
            Box::new(move |result| {
                match result {
                    Ok(()) => own.sign_soon(),
                    Err(error) => own.failed(&of, error),
                }
                done(result);
            }),
        )
    }

    /// Lets go of a journal whose files are not those that were opened.
    fn failed(&self, journal: &Arc<HeldJournal>, error: &AuditError) {
        if error.kind() != AuditErrorKind::Replaced {
            return;
        }
        let mut state = self.state();
        // A call that began in a replaced file does not go on in another one.
        state.calls.retain(|_, call| !Arc::ptr_eq(&call.journal, journal));
        state.adopted.remove(&journal.writer);
        if state.own.as_ref().is_some_and(|own| Arc::ptr_eq(own, journal)) {
            state.own = None;
        }
    }

    fn append(self: &Arc<Self>, audit_id: &AuditId, entry: &Entry, is_late: bool) -> CommitFuture {
        let call = match self.opened(audit_id) {
            Ok(call) => call,
            Err(error) => return Box::pin(async { Err(error) }),
        };
        let mut drafts = self.state().late_events.remove(audit_id).unwrap_or_default();
        let late = drafts.clone();
        drafts.push(EntryDraft::of_entry(audit_id, false, entry));
        let (own, id, again) =
            (Arc::clone(self), audit_id.clone(), if is_late { drafts.clone() } else { late });
        let done = move |result: &Result<(), AuditError>| {
            if result.is_err() && !again.is_empty() {
                own.state().late_events.entry(id).or_default().extend(again);
            }
        };
        self.write(&call.journal, drafts, Box::new(done))
    }

    /// Writes the beginning of a call, and `more` with it.
    fn begin(
        self: &Arc<Self>,
        journal: Arc<HeldJournal>,
        call: &OpenCall,
        more: Vec<EntryDraft>,
    ) -> CommitFuture {
        let mut drafts = vec![opening(call)];
        drafts.extend(more);
        let (own, audit_id) = (Arc::clone(self), call.audit_id.clone());
        // Known before it is written: nothing takes it for a call of an ended process.
        self.state()
            .calls
            .insert(audit_id.clone(), OpenedCall { is_opening: true, ..opened(&journal, call) });
        let done = move |result: &Result<(), AuditError>| {
            let mut state = own.state();
            if result.is_err() {
                state.calls.remove(&audit_id);
            } else if let Some(call) = state.calls.get_mut(&audit_id) {
                call.is_opening = false;
            }
        };
        self.write(&journal, drafts, Box::new(done))
    }

    /// Opens a call that has a key or resumes another one, or that is the first one of this process.
    fn open(self: &Arc<Self>, call: &OpenCall) -> Result<OpenOutcome, AuditError> {
        if self.has_call(&call.audit_id) {
            return Ok(OpenOutcome::Started);
        }
        let Some(claim) = &call.key else { return self.open_claimed(call) };
        // Held until the call is in the journal: from then on the table can be made again from that.
        let keys = self.keys()?;
        self.settle_claim(&keys, claim)?;
        let (claimed, before) = match self.claim(&keys, call, claim)? {
            ClaimOutcome::Claimed { before } => {
                let interrupted = before.as_ref().filter(|before| before.state == StoredKeyState::Claimed);
                let interrupted = interrupted.map(|before| AuditId::from_bytes(before.call));
                let by_key = interrupted.map(|before| (before, Arc::clone(&call.actor)));
                (OpenCall { resumes: call.resumes.clone().or(by_key), ..call.clone() }, before)
            }
            ClaimOutcome::InUse(state) => return Ok(OpenOutcome::KeyInUse(state)),
        };
        let outcome = self.open_claimed(&claimed);
        if !matches!(outcome, Ok(OpenOutcome::Started)) {
            self.release_claim(&keys, claim, &call.audit_id, before.as_ref());
        }
        outcome
    }

    fn open_claimed(self: &Arc<Self>, call: &OpenCall) -> Result<OpenOutcome, AuditError> {
        match &call.resumes {
            None => wait(self.begin(self.own_journal()?, call, Vec::new())).map(|()| OpenOutcome::Started),
            Some((before, actor)) => self.open_resuming(call, before, actor),
        }
    }

    /// Opens a call that resumes an interrupted one, in the journal of that.
    fn open_resuming(
        self: &Arc<Self>,
        call: &OpenCall,
        before: &AuditId,
        actor: &Arc<str>,
    ) -> Result<OpenOutcome, AuditError> {
        let _resolving = self.resolving.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((journal, resolved)) = self.adopt(before, |seq| {
            let facts = Resolution {
                actor: actor.to_string().into(),
                by: Some(call.audit_id.to_string().into()),
                ..Resolution::default()
            };
            EventLine { at: call.at, seq, event: RecordedEvent::Resumed(facts) }
        })?
        else {
            return Ok(OpenOutcome::AlreadyResolved);
        };
        wait(self.begin(Arc::clone(&journal), call, vec![resolved])).map(|()| OpenOutcome::Started)
    }

    /// Takes the journal of an interrupted call, and returns it with the entry that resolves the call.
    fn adopt(
        &self,
        audit_id: &AuditId,
        resolution: impl FnOnce(u32) -> EventLine<'static>,
    ) -> Result<Option<(Arc<HeldJournal>, EntryDraft)>, AuditError> {
        let Some(journal) = self.journal_of(audit_id)? else { return Ok(None) };
        let seq = journal.committer.with_journal(|journal| journal.last_event(audit_id))?.unwrap_or(0);
        let line = resolution(seq.saturating_add(1)).to_text();
        Ok(Some((journal, EntryDraft::of_call(audit_id, true, &[line]))))
    }

    /// Returns the journal with an interrupted call, taken by this process; none if no free journal has the call.
    fn journal_of(&self, audit_id: &AuditId) -> Result<Option<Arc<HeldJournal>>, AuditError> {
        let has =
            |journal: &mut Journal| Ok::<_, AuditError>(journal.unended()?.first_entry(audit_id).is_some());
        let held: Vec<_> = {
            let state = self.state();
            // A call of this process runs, or is being ended.
            if state.calls.contains_key(audit_id) {
                return Ok(None);
            }
            state.own.iter().chain(state.adopted.values()).cloned().collect()
        };
        for journal in held {
            if journal.committer.with_journal(has)? {
                return Ok(Some(journal));
            }
        }
        for name in writer_dir::names(&self.root)? {
            let Some(dir) = WriterDir::try_take(&self.root, &name)? else { continue };
            let Some(mut journal) = Journal::open(dir, self.journal_settings())? else { continue };
            if has(&mut journal)? {
                let journal = self.held(journal);
                self.state().adopted.insert(name, Arc::clone(&journal));
                return Ok(Some(journal));
            }
        }
        Ok(None)
    }

    /// Writes the end of a call.
    fn end(self: &Arc<Self>, begin: Option<OpenCall>, end: &CloseCall) -> Result<EndWrite, AuditError> {
        let (known, late) = {
            let mut state = self.state();
            if state.ended_late.remove(&end.audit_id) {
                return Ok(EndWrite::done());
            }
            let late = state.late_ends.remove(&end.audit_id);
            (state.calls.get(&end.audit_id).cloned(), late)
        };
        if let Some(LateEnd { call, drafts }) = late {
            return Ok(EndWrite::of(&drafts, self.write_end(&call, &end.audit_id, drafts.clone(), false)));
        }
        let (call, mut drafts) = match (known, begin) {
            (Some(call), _) => (call, self.state().late_events.remove(&end.audit_id).unwrap_or_default()),
            (None, Some(begin)) => (opened(&self.own_journal()?, &begin), vec![opening(&begin)]),
            (None, None) => return self.opened(&end.audit_id).map(|_| EndWrite::done()),
        };
        let did_nothing = end.verdict.status == CallStatus::Cancelled || end.attempts == 0;
        // The unknown result of the resumed call is unknown for this one as well: an operator decides about it.
        let is_end = !(did_nothing && call.resumes);
        let entry = if is_end { end.entry.clone() } else { end.entry.without_its_end(&end.audit_id) };
        // A call that began and ended in one entry needs no other, unless its outcome is sealed.
        if !entry.is_empty() || end.outcome.is_some() || drafts.is_empty() {
            drafts.push(EntryDraft::of_entry(&end.audit_id, is_end, &entry).with_sealed(end.outcome.clone()));
        }
        Ok(EndWrite::of(&drafts, self.write_end(&call, &end.audit_id, drafts.clone(), false)))
    }

    fn write_end(
        self: &Arc<Self>,
        call: &OpenedCall,
        audit_id: &AuditId,
        drafts: Vec<EntryDraft>,
        is_late: bool,
    ) -> CommitFuture {
        let (own, id, again) = (Arc::clone(self), audit_id.clone(), drafts.clone());
        let call = call.clone();
        let journal = Arc::clone(&call.journal);
        let done = move |result: &Result<(), AuditError>| {
            let mut state = own.state();
            match result {
                Ok(()) => {
                    state.calls.remove(&id);
                    state.late_events.remove(&id);
                    state.leave(&call.journal);
                    if is_late {
                        if state.ended_late.len() >= LATE_ENDS {
                            state.ended_late.clear();
                        }
                        state.ended_late.insert(id);
                    }
                    drop(state);
                    if is_late && call.key.is_some() {
                        own.read_own_keys(&call.journal);
                    }
                }
                Err(error) if error.kind().may_pass() && state.late_ends.len() < LATE_ENDS => {
                    state.late_ends.insert(id, LateEnd { call, drafts: again });
                    own.has_unwritten.store(true, Ordering::Relaxed);
                }
                Err(error) => {
                    tracing::error!(target: "cofferdam::audit", %error, "the end of a call cannot be written: it is incomplete");
                }
            }
        };
        self.commit(&journal, drafts, Box::new(done))
    }

    /// Ends a call that has a key, or the first one of this process.
    fn close(self: &Arc<Self>, begin: Option<OpenCall>, end: &CloseCall) -> Result<(), AuditError> {
        self.wait_until_open(&end.audit_id);
        let key = self.state().calls.get(&end.audit_id).and_then(|call| call.key);
        let Some(key) = key else { return self.end(begin, end).and_then(|write| wait(write.written)) };
        self.ending_keys.fetch_add(1, Ordering::SeqCst);
        // Held until the key has its state: meanwhile the table is not made again without it.
        let keys = self.keys();
        let EndWrite { written, is_end, outcome } = self.end(begin, end)?;
        wait(written)?;
        let changed = match is_end {
            true => keys.and_then(|keys| end_key(&keys.table, &key, end, outcome.get().copied())),
            // The call holds its key until an operator decides about it.
            false => Ok(()),
        };
        match changed {
            Ok(()) => drop(self.ending_keys.fetch_sub(1, Ordering::SeqCst)),
            // The journal has it: the table is brought up to date when it is opened next.
            Err(error) => {
                tracing::warn!(target: "cofferdam::audit", %error, "the table of idempotency keys is behind the journal");
            }
        }
        Ok(())
    }

    /// Returns the key table, brought up to date from the journals.
    fn keys(&self) -> Result<HeldKeys, AuditError> {
        let lock = self.root.join(KEYS_LOCK);
        let patience = self.settings.busy_timeout;
        let shared = FileLock::acquire_shared(&lock, patience)
            .map_err(|error| AuditError::from_file(KEYS_LOCK, error))?;
        let shared =
            shared.ok_or_else(|| AuditError::new(AuditErrorKind::Locked, "the key table is made again"))?;
        let opened = self.keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(table) = opened.filter(|table| table.is_in_place()) {
            return Ok(HeldKeys { table, _shared: shared });
        }
        drop(shared);
        // The journals may lack calls under keys: nothing runs under one until the operator accepts that.
        if let Some(loss) = self.checkpoints()?.loss()? {
            return Err(AuditError::new(AuditErrorKind::Lost, loss));
        }
        let alone =
            FileLock::acquire(&lock, patience).map_err(|error| AuditError::from_file(KEYS_LOCK, error))?;
        let alone =
            alone.ok_or_else(|| AuditError::new(AuditErrorKind::Locked, "the key table is in use"))?;
        let table = Arc::new(self.open_keys()?);
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&table));
        alone.share().map_err(AuditError::from_io)?;
        Ok(HeldKeys { table, _shared: alone })
    }

    fn open_keys(&self) -> Result<KeyTable, AuditError> {
        let key = host_key::load_or_create(&self.home.join("host.key")).map_err(AuditError::from_key)?;
        let path = self.root.join(KEYS);
        let table = match KeyTable::open(&path, &key, self.settings.busy_timeout) {
            Err(error) if matches!(error.kind(), AuditErrorKind::Tampered | AuditErrorKind::Corrupt) => {
                tracing::error!(target: "cofferdam::audit", %error, "the table of idempotency keys is made again from the journals");
                KeyTable::move_away(&path)?;
                KeyTable::open(&path, &key, self.settings.busy_timeout)?
            }
            table => table?,
        };
        self.read_journal_keys(&table, &writer_dir::names(&self.root)?)?;
        Ok(table)
    }

    /// Brings the key table up to date with the journals of these writers.
    fn read_journal_keys(&self, table: &KeyTable, writers: &[String]) -> Result<(), AuditError> {
        table.change(|keys| {
            let mut decided = Vec::new();
            for writer in writers {
                let n = key_facts::apply(keys, &self.root, writer, &mut decided)?;
                keys.note_read(writer, n);
            }
            // The call that is decided about may be in any journal.
            for (call, frees_key) in decided {
                key_facts::resolve(keys, &call, frees_key)?;
            }
            Ok(())
        })
    }

    /// Brings the key table up to date with a journal of this process, on a thread that may wait.
    fn read_own_keys(self: &Arc<Self>, journal: &HeldJournal) {
        let (own, writer) = (Arc::clone(self), journal.writer.clone());
        let read = move || {
            if let Err(error) = own.keys().and_then(|keys| own.read_journal_keys(&keys.table, &[writer])) {
                tracing::warn!(target: "cofferdam::audit", %error, "the table of idempotency keys is behind the journal");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(read)),
            Err(_) => read(),
        }
    }

    /// Brings a claim up to date whose process may have ended.
    fn settle_claim(&self, keys: &HeldKeys, claim: &KeyClaim) -> Result<(), AuditError> {
        let (table, key) = (&keys.table, digest(&claim.key));
        let Some(stored) = table.get(&key)?.filter(|stored| stored.state == StoredKeyState::Claimed) else {
            return Ok(());
        };
        if self.is_running(&stored) {
            return Ok(());
        }
        // None if another process took the journal just now, to resume the call.
        let Some(dir) = WriterDir::try_take(&self.root, &stored.writer)? else { return Ok(()) };
        self.read_journal_keys(table, std::slice::from_ref(&stored.writer))?;
        // A damaged journal tells nothing: the key stays taken.
        let Some(mut journal) = Journal::open(dir, self.journal_settings())? else { return Ok(()) };
        if journal.unended()?.first_entry(&AuditId::from_bytes(stored.call)).is_some() {
            return Ok(());
        }
        // Its process ended before the call was in the journal: nothing of it ran.
        table.change(|keys| match keys.get(&key)? {
            Some(now) if now == stored => keys.remove(&key),
            _ => Ok(()),
        })
    }

    /// Returns true if the process of the key's call lives, so that the call runs or is about to.
    fn is_running(&self, stored: &StoredKey) -> bool {
        let state = self.state();
        if state.calls.contains_key(&AuditId::from_bytes(stored.call)) {
            return true;
        }
        let is_own = |journal: &Arc<HeldJournal>| journal.writer == stored.writer;
        match state.own.iter().any(is_own) || state.adopted.contains_key(&stored.writer) {
            // A call of this process that is being opened, in a commit that is under way.
            true => true,
            false => WriterDir::is_held(&self.root, &stored.writer),
        }
    }

    fn state_of(&self, keys: &KeyChange<'_>, claim: &KeyClaim) -> Result<KeyState, AuditError> {
        let state = self.state_of_key(keys, claim)?;
        let (KeyState::Free, KeyScope::Action { action, steps }) = (&state, &claim.of) else {
            return Ok(state);
        };
        let now = claim.at.as_microsecond();
        for step in steps {
            if let Some(stored) = keys.get(&digest(step))?
                && !stored.has_expired(now)
                && stored.step_of.as_deref() != Some(name_of(action))
            {
                return Ok(KeyState::Different { audit_id: AuditId::from_bytes(stored.call) });
            }
        }
        Ok(state)
    }

    fn state_of_key(&self, keys: &KeyChange<'_>, claim: &KeyClaim) -> Result<KeyState, AuditError> {
        let Some(stored) = keys.get(&digest(&claim.key))? else { return Ok(KeyState::Free) };
        let stays = claim.of == KeyScope::Step
            && stored.step_of.is_some()
            && (stored.has_value || !stored.is_idempotent);
        if !stays && stored.has_expired(claim.at.as_microsecond()) {
            return Ok(KeyState::Free);
        }
        let audit_id = AuditId::from_bytes(stored.call);
        if stored.fingerprint != claim.fingerprint {
            return Ok(KeyState::Different { audit_id });
        }
        Ok(match stored.state {
            StoredKeyState::Retained => {
                let dir = self.root.join(&stored.writer);
                let read = |at: SealedOutcome| read_sealed(&dir, at.segment, at.offset, at.bytes);
                let outcome = stored.outcome.map(read).transpose()?.flatten();
                KeyState::Done { audit_id, idempotent: stored.is_idempotent, outcome }
            }
            StoredKeyState::Claimed if self.is_running(&stored) => KeyState::Running { audit_id },
            // An interrupted call may be repeated if it is idempotent.
            StoredKeyState::Claimed if stored.is_idempotent => KeyState::Free,
            _ => KeyState::Unknown { audit_id },
        })
    }

    /// Claims a key for a call that is about to be opened.
    fn claim(&self, keys: &HeldKeys, call: &OpenCall, claim: &KeyClaim) -> Result<ClaimOutcome, AuditError> {
        let (journal, key) = (self.own_journal()?, digest(&claim.key));
        keys.table.change(|keys| {
            match self.state_of(keys, claim)? {
                KeyState::Free => {}
                state => return Ok(ClaimOutcome::InUse(state)),
            }
            let before = keys.get(&key)?;
            if let (KeyScope::Action { steps, .. }, Some(StoredKeyState::Retained)) =
                (&claim.of, before.as_ref().map(|before| before.state))
            {
                // The action's own outcome has expired, and with it those of its steps.
                for step in steps {
                    if keys
                        .get(&digest(step))?
                        .is_some_and(|stored| stored.has_expired(claim.at.as_microsecond()))
                    {
                        keys.remove(&digest(step))?;
                    }
                }
            }
            let action = call.route.action.as_deref().filter(|_| call.route.step.is_some());
            // An interrupted call is resumed in its own journal.
            let interrupted = before.as_ref().filter(|before| before.state == StoredKeyState::Claimed);
            let stored = StoredKey {
                call: call.audit_id.bytes(),
                fingerprint: claim.fingerprint,
                at: call.at.as_microsecond(),
                state: StoredKeyState::Claimed,
                until: None,
                writer: interrupted.map_or(&journal.writer, |before| &before.writer).clone(),
                is_idempotent: call.idempotent,
                step_of: action.map(|action| name_of(action).to_owned()),
                has_value: false,
                outcome: None,
            };
            keys.put(&key, &stored)?;
            Ok(ClaimOutcome::Claimed { before })
        })
    }

    /// Gives up a claim of a call that was not opened. `before` is what was stored of the key.
    fn release_claim(
        &self,
        keys: &HeldKeys,
        claim: &KeyClaim,
        audit_id: &AuditId,
        before: Option<&StoredKey>,
    ) {
        let key = digest(&claim.key);
        let released = keys.table.change(|keys| match (keys.get(&key)?, before) {
            (Some(stored), Some(before)) if stored.call == audit_id.bytes() => keys.put(&key, before),
            (Some(stored), None) if stored.call == audit_id.bytes() => keys.remove(&key),
            _ => Ok(()),
        });
        if let Err(error) = released {
            tracing::warn!(target: "cofferdam::audit", %error, "an idempotency key stays taken until this process ends");
        }
    }

    /// Resolves an interrupted call, or the key of a call of which it is unknown what it did.
    fn resolve(self: &Arc<Self>, audit_id: &AuditId, decision: &ResolveCall) -> Result<bool, AuditError> {
        let keys = self.keys()?;
        let _resolving = self.resolving.lock().unwrap_or_else(PoisonError::into_inner);
        let resolved = self.adopt(audit_id, |seq| {
            let event = match decision.status {
                CallStatus::Resumed => RecordedEvent::Resumed(decision.facts.clone()),
                _ => RecordedEvent::Skipped(decision.facts.clone()),
            };
            EventLine { at: decision.at, seq, event }
        })?;
        let resolve_keys =
            || keys.table.change(|keys| key_facts::resolve(keys, audit_id, decision.frees_key));
        if let Some((journal, draft)) = resolved {
            let written = wait(journal.committer.commit(vec![draft], Box::new(|_| ())));
            self.state().leave(&journal);
            written?;
            return resolve_keys().map(|_| true);
        }
        if decision.status != CallStatus::Skipped || self.is_claimed(&keys, audit_id)? {
            return Ok(false);
        }
        let is_changed = resolve_keys()?;
        if is_changed {
            let decided = key_facts::decided(audit_id, &decision.facts, decision.frees_key, decision.at);
            wait(self.write(&self.own_journal()?, vec![decided], Box::new(|_| ())))?;
        }
        Ok(is_changed)
    }

    /// Returns true if the call holds a key and has no end.
    fn is_claimed(&self, keys: &HeldKeys, audit_id: &AuditId) -> Result<bool, AuditError> {
        keys.table.change(|keys| {
            for key in keys.keys_of(&audit_id.bytes())? {
                if keys.get(&key)?.is_some_and(|stored| stored.state == StoredKeyState::Claimed) {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }
}

/// The key table while this process uses it: meanwhile no other process makes it again.
struct HeldKeys {
    table: Arc<KeyTable>,
    _shared: FileLock,
}

/// The write of a call's end.
struct EndWrite {
    written: CommitFuture,
    /// False if the call stays without an end.
    is_end: bool,
    /// The place of the sealed outcome, once it is written.
    outcome: Arc<OnceLock<SealedOutcome>>,
}

impl EndWrite {
    /// The end is written already.
    fn done() -> Self {
        Self { written: Box::pin(async { Ok(()) }), is_end: false, outcome: Arc::default() }
    }

    fn of(drafts: &[EntryDraft], written: CommitFuture) -> Self {
        let last = drafts.last();
        let is_end = last.and_then(|draft| draft.call.as_ref()).is_some_and(|(_, is_end)| *is_end);
        Self { written, is_end, outcome: last.map(|draft| Arc::clone(&draft.sealed_at)).unwrap_or_default() }
    }
}

/// Changes the key of a call that has ended.
fn end_key(
    table: &KeyTable,
    key: &[u8; 32],
    end: &CloseCall,
    outcome: Option<SealedOutcome>,
) -> Result<(), AuditError> {
    table.change(|keys| {
        let Some(stored) = keys.get(key)?.filter(|stored| stored.call == end.audit_id.bytes()) else {
            return Ok(());
        };
        let has_value = end.verdict.status == CallStatus::Value;
        match end.key {
            KeyDisposition::Release => keys.remove(key),
            KeyDisposition::Undetermined => {
                keys.put(key, &StoredKey { state: StoredKeyState::Undetermined, until: None, ..stored })
            }
            KeyDisposition::Retain(until) => {
                let (state, until) = (StoredKeyState::Retained, Some(until.as_microsecond()));
                keys.put(key, &StoredKey { state, until, has_value, outcome, ..stored })
            }
        }
    })
}

/// The result of claiming a key.
enum ClaimOutcome {
    /// The key is the call's; `before` is what was stored of it.
    Claimed {
        before: Option<StoredKey>,
    },
    InUse(KeyState),
}

impl WriterState {
    /// Gives an adopted journal back, once no call of this process is in it.
    fn leave(&mut self, journal: &Arc<HeldJournal>) {
        let is_adopted = self.adopted.contains_key(&journal.writer);
        if is_adopted && !self.calls.values().any(|call| Arc::ptr_eq(&call.journal, journal)) {
            self.adopted.remove(&journal.writer);
        }
    }
}

impl Drop for LogWriter {
    /// Writes the ends that could not be written, and gives the journals back.
    fn drop(&mut self) {
        let now = self.clock.timestamp();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for LateEnd { call, drafts } in std::mem::take(&mut state.late_ends).into_values() {
            let drafts: Vec<_> = drafts.iter().collect();
            if let Err(error) = call.journal.committer.with_journal(|journal| journal.write(&drafts, now)) {
                tracing::error!(target: "cofferdam::audit", %error, "the end of a call could not be written: it is incomplete");
            }
        }
        state.calls.clear();
        let Some(own) = state.own.take() else { return };
        let writer = own.writer.clone();
        let head = own.committer.with_journal(|journal| journal.head().n);
        let keys = self.keys.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(keys), 0) = (keys, self.ending_keys.load(Ordering::SeqCst)) {
            let noted = keys.change(|keys| {
                keys.note_read(&writer, head);
                Ok(())
            });
            drop(noted);
        }
        let Some(journal) = Arc::into_inner(own).and_then(|own| own.committer.into_journal()) else { return };
        let signed = journal.release(now).and_then(|head| match self.checkpoints.get() {
            Some(checkpoints) => checkpoints.sign(&writer, head, now).map(drop),
            None => Ok(()),
        });
        if let Err(error) = signed {
            tracing::warn!(target: "cofferdam::audit", %error, "no checkpoint was signed");
        }
    }
}

fn opened(journal: &Arc<HeldJournal>, call: &OpenCall) -> OpenedCall {
    let key = call.key.as_ref().map(|claim| digest(&claim.key));
    OpenedCall { journal: Arc::clone(journal), key, resumes: call.resumes.is_some(), is_opening: false }
}

fn opening(call: &OpenCall) -> EntryDraft {
    let opening = EntryDraft::of_entry(&call.audit_id, false, &call.entry).with_sealed(call.request.clone());
    match &call.resumes {
        Some((before, _)) => opening.resuming(before.clone()),
        None => opening,
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// Returns the name of an action, without its version.
pub(super) fn name_of(action: &str) -> &str {
    action.split('@').next().unwrap_or_default()
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;

/// Waits for a commit on a thread that may wait.
fn wait(mut commit: CommitFuture) -> Result<(), AuditError> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.block_on(commit),
        // Without a runtime, another thread may still be writing it.
        Err(_) => loop {
            match commit.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::yield_now(),
            }
        },
    }
}
