//! The write side of the audit log in journals: calls are opened, extended and closed in the journal of this process.
//!
//! A call without an idempotency key takes two writes to a file and nothing else. A key is claimed in the key table
//! before the first entry, and changed there after the last one. If the process ends between the two, the journal is
//! right, and the table is brought up to date from it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use cofferdam_core::clock::Clock;
use cofferdam_core::event::operator::OperatorEvent;
use cofferdam_core::event::recorded::RecordedEvent;
use cofferdam_core::failpoint;
use cofferdam_core::failure::AuditId;
use cofferdam_core::home_state::StateLoss;
use cofferdam_core::host_key;
use cofferdam_core::private_file::SharedFileLock;
use cofferdam_core::warnings::WarningLog;
use jiff::Timestamp;
use tokio::sync::oneshot;

use super::checkpoint_file::{CheckpointFile, CheckpointReader};
use super::commit::{AfterCommit, Committed, JournalCommitter, LateEvents, allow_waiting, lock};
use super::evidence::JournalEvidence;
use super::key_claims::{ClaimOutcome, HeldClaim, HeldKeys, KEYS_LOCK, end_key};
use super::keys::KeyTable;
use super::line::{ChainHead, EntryDraft};
use super::log_time::accepted_time_in;
use super::maintenance::Maintenance;
use super::segment::{last_entry, segments, sync_paths};
use super::stored_key::{KeyEnd, SealedOutcome, key_digest};
use super::writer_dir;
use super::{Durability, Journal, JournalSettings, UnendedCache, UnendedCalls, sync};
use crate::command::{
    CallStatus, CloseCall, KeyClaim, KeyState, LogTime, OpenCall, OpenOutcome, Pruned, ResolveCall,
};
use crate::entry::Entry;
use crate::error::{AuditError, AuditErrorKind};
use crate::evidence::AuditEvidence;
use crate::index::{IndexReader, LogIndex, ProcessCalls};
use crate::log::{AuditLog, AuditReader, LogFuture, LogPosition, wait};
use crate::seal::Sealed;
use crate::settings::{BUSY_TIMEOUT, LogSettings};
use crate::verify::AcknowledgedFinding;

/// The pause before it is looked again whether a call's beginning is written.
const OPENING_PAUSE: Duration = Duration::from_millis(1);

/// The directory of the journals in a home directory.
const DIRECTORY: &str = "audit";

/// The most ends of calls that are kept in memory until they can be written.
pub const LATE_ENDS: usize = 4_096;

/// The number of kept ends up to which those of calls that never began are kept as well. While nothing can be written,
/// each call is one, which did nothing, and all that are kept are tried again with the next call.
const LATE_REFUSALS: usize = 64;

/// The audit log of a host, in journals of its home directory.
pub struct JournalLog(Arc<LogWriter>);

pub(super) struct LogWriter {
    pub(super) home: PathBuf,
    root: PathBuf,
    pub(super) settings: LogSettings,
    pub(super) journal_settings: JournalSettings,
    pub(super) clock: Arc<dyn Clock>,
    state: Mutex<WriterState>,
    /// None until the first key.
    pub(super) keys: RwLock<Option<Arc<KeyTable>>>,
    /// The lock that all users of the key table share.
    pub(super) keys_lock: SharedFileLock,
    /// Held while an interrupted call is resolved: by one thread of the process that has its journal.
    pub(super) resolving: Mutex<()>,
    /// None until the first entry.
    checkpoints: OnceLock<CheckpointFile>,
    pub(super) maintenance: Maintenance,
    /// The number of commands that run, or are to run, on threads that may wait.
    pub(super) working: AtomicUsize,
    /// True if there are ends that could not be written.
    has_unwritten: AtomicBool,
    /// True if the journal has ends of calls that the key table lacks.
    are_keys_behind: AtomicBool,
    /// The calls without an end in journals of other processes.
    unended: Mutex<UnendedCache>,
}

#[derive(Default)]
pub(super) struct WriterState {
    /// The journal that new calls are added to; none until the first call, and after its files were replaced.
    pub(super) own: Option<Arc<HeldJournal>>,
    /// Journals of ended processes, in which this process resumes calls.
    pub(super) adopted: HashMap<String, AdoptedJournal>,
    /// Calls that are about to be opened.
    pub(super) pending_opens: HashSet<AuditId>,
    /// Calls that are being ended, and whose key has not its state yet.
    pub(super) ending_keys: HashSet<AuditId>,
    /// The calls of this process that have no end.
    pub(super) calls: HashMap<AuditId, OpenedCall>,
    /// Ends that are being written, and the commands that wait for the result in addition to the first one.
    ending: HashMap<AuditId, Vec<oneshot::Sender<Result<(), AuditError>>>>,
    /// Ends that could not be written, to be written before the next entries.
    late_ends: HashMap<AuditId, LateEnd>,
    /// Calls whose late end was written, until their caller tries to write it again.
    ended_late: HashSet<AuditId>,
}

/// A journal whose lock this process holds.
pub(super) struct HeldJournal {
    pub(super) writer: String,
    pub(super) committer: Arc<JournalCommitter>,
}

/// A journal of an ended process.
pub(super) struct AdoptedJournal {
    pub(super) journal: Arc<HeldJournal>,
    /// The number of those that are about to write to it.
    pub(super) users: usize,
}

/// A call of this process that has no end.
#[derive(Clone)]
pub(super) struct OpenedCall {
    journal: Arc<HeldJournal>,
    actor: Arc<str>,
    key: Option<[u8; 32]>,
    /// True if the call resumes another one.
    resumes: bool,
    /// True until its beginning is written.
    is_opening: bool,
    /// True once a file of its journal was replaced: nothing more of it is written, and it runs until its end is due.
    is_lost: bool,
    /// The events to be written before its next entry: see [`LateEvents`].
    late_events: Arc<Mutex<Vec<EntryDraft>>>,
}

impl OpenedCall {
    fn new(journal: &Arc<HeldJournal>, call: &OpenCall, is_opening: bool) -> Self {
        Self {
            journal: Arc::clone(journal),
            actor: Arc::clone(&call.actor),
            key: call.key.as_ref().map(|claim| key_digest(&claim.key)),
            resumes: call.resumes.is_some(),
            is_opening,
            is_lost: false,
            late_events: Arc::default(),
        }
    }
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

/// A call with a key that is being ended: it counts as running until its key has its state.
struct EndingKey {
    own: Arc<LogWriter>,
    audit_id: AuditId,
    key: [u8; 32],
    end: KeyEnd,
    /// The table, which no process rebuilds until the key has its state.
    keys: Result<HeldKeys, AuditError>,
    /// True while the journal has the end, and the key table does not.
    is_behind: bool,
}

impl EndingKey {
    fn new(own: &Arc<LogWriter>, end: &CloseCall, key: [u8; 32], keys: Result<HeldKeys, AuditError>) -> Self {
        own.state().ending_keys.insert(end.audit_id.clone());
        let (call, has_value) = (end.audit_id.bytes(), end.verdict.status == CallStatus::Value);
        let (own, audit_id) = (Arc::clone(own), end.audit_id.clone());
        Self { own, audit_id, key, end: KeyEnd { call, key: end.key, has_value }, keys, is_behind: false }
    }

    /// Stores the state of the key after the journal has the end of the call: on this thread, or on one that may wait.
    fn apply(mut self, outcome: Option<SealedOutcome>) {
        self.is_behind = true;
        let at_once =
            self.keys.as_ref().ok().and_then(|keys| {
                keys.table.try_change(|table| end_key(table, &self.key, &self.end, outcome))
            });
        if at_once.is_some() {
            self.is_behind = false;
            return self.copy_if_due();
        }
        Arc::clone(&self.own).in_background(move |_| {
            let changed = self.keys.as_ref().map_err(Clone::clone).and_then(|keys| {
                keys.table.change(|table| end_key(table, &self.key, &self.end, outcome))
            });
            self.is_behind = changed.is_err();
            self.copy_if_due();
            // The table is brought up to date from the journal when it is opened next.
            changed.inspect_err(|error| {
                tracing::warn!(target: "cofferdam::audit", %error, "the table of idempotency keys is behind the journal");
            })
        });
    }

    fn copy_if_due(&self) {
        if self.keys.as_ref().is_ok_and(|keys| keys.table.is_copy_due()) {
            self.own.copy_keys();
        }
    }
}

impl Drop for EndingKey {
    fn drop(&mut self) {
        // The work on the background thread may never have begun.
        self.own.are_keys_behind.fetch_or(self.is_behind, Ordering::SeqCst);
        self.own.state().ending_keys.remove(&self.audit_id);
    }
}

/// The end of a call that is being written: once, however often it is asked for.
struct EndingCall {
    own: Arc<LogWriter>,
    audit_id: AuditId,
    is_finished: bool,
}

impl EndingCall {
    fn begin(own: &Arc<LogWriter>, state: &mut WriterState, audit_id: &AuditId) -> Self {
        state.ending.insert(audit_id.clone(), Vec::new());
        Self { own: Arc::clone(own), audit_id: audit_id.clone(), is_finished: false }
    }

    /// Reports the result to all that ask for this end. `state` already has its consequences.
    fn finish(&mut self, state: &mut WriterState, result: &Result<(), AuditError>) {
        self.is_finished = true;
        for waits in state.ending.remove(&self.audit_id).into_iter().flatten() {
            // It may have gone.
            let _ = waits.send(result.clone());
        }
    }
}

impl Drop for EndingCall {
    fn drop(&mut self) {
        // It was not written, or the thread panicked while it was.
        if !self.is_finished {
            self.own.state().ending.remove(&self.audit_id);
        }
    }
}

/// Returns the error of a command about a call that has no beginning in the journal, or in one that was replaced.
fn without_beginning(audit_id: &AuditId) -> AuditError {
    AuditError::new(AuditErrorKind::Replaced, format_args!("{audit_id} has no beginning in it"))
}

/// Returns the outcome of a call whose beginning is being written.
fn started(written: LogFuture<()>) -> LogFuture<OpenOutcome> {
    Box::pin(async { written.await.map(|()| OpenOutcome::Started) })
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
            keys_lock: SharedFileLock::new(home.join(DIRECTORY).join(KEYS_LOCK)),
            root: home.join(DIRECTORY),
            journal_settings: JournalSettings {
                durability: settings.durability,
                ..JournalSettings::default()
            },
            settings,
            clock,
            state: Mutex::default(),
            keys: RwLock::default(),
            resolving: Mutex::default(),
            checkpoints: OnceLock::new(),
            maintenance: Maintenance::default(),
            working: AtomicUsize::new(0),
            has_unwritten: AtomicBool::new(false),
            are_keys_behind: AtomicBool::new(false),
            unended: Mutex::default(),
        }))
    }

    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<LogWriter>) -> Result<T, AuditError> + Send + 'static,
    ) -> LogFuture<T> {
        on_waiting_thread(self.0.work(work))
    }
}

/// Runs what may wait on a thread for that, or at once if there is no runtime.
pub(crate) fn on_waiting_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AuditError> + Send + 'static,
) -> LogFuture<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => {
            let task = runtime.spawn_blocking(work);
            let lost = |_| Err(AuditError::new(AuditErrorKind::Other, "a thread of the audit log panicked"));
            Box::pin(async move { task.await.unwrap_or_else(lost) })
        }
        Err(_) => {
            let done = work();
            Box::pin(async { done })
        }
    }
}

impl Drop for JournalLog {
    /// Waits until all that was asked for is written.
    fn drop(&mut self) {
        while self.0.working.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(OPENING_PAUSE);
        }
        self.0.journals().iter().for_each(|journal| journal.committer.finish());
        allow_waiting(|| self.0.maintain_at_end());
    }
}

/// Notes the end of work on a thread that may wait, also of work that was never begun.
struct WorkDone(Arc<LogWriter>);

impl Drop for WorkDone {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AuditLog for JournalLog {
    fn open(&self, call: OpenCall) -> LogFuture<OpenOutcome> {
        let journal = self.0.journal_for(&call).filter(|_| call.key.is_none());
        if let Some(journal) = journal {
            return started(self.0.begin(journal, &call, Vec::new(), None));
        }
        let pending = PendingOpen::new(&self.0, &call.audit_id);
        if let Some(opened) = self.0.open_at_once(&call) {
            return opened;
        }
        self.blocking(move |own| {
            let outcome = own.with_sound_keys(|| own.open(&call));
            drop(pending);
            outcome
        })
    }

    fn append(&self, audit_id: &AuditId, entry: Entry) -> LogFuture<()> {
        self.0.append(audit_id, &entry)
    }

    fn close(&self, begin: Option<Box<OpenCall>>, end: CloseCall) -> LogFuture<()> {
        let (blocks, key) = {
            let state = self.0.state();
            match state.calls.get(&end.audit_id) {
                Some(call) => (call.is_opening, call.key),
                None => (state.own.is_none() || state.pending_opens.contains(&end.audit_id), None),
            }
        };
        let keys = key.filter(|_| !blocks).and_then(|_| self.0.keys_at_once());
        if blocks || key.is_some() != keys.is_some() {
            return self.blocking(move |own| own.close(begin.as_deref(), &end));
        }
        let ending = key.zip(keys).map(|(key, keys)| EndingKey::new(&self.0, &end, key, Ok(keys)));
        self.0.end(begin.as_deref(), &end, ending).unwrap_or_else(|error| Box::pin(async { Err(error) }))
    }

    fn key_state(&self, claim: KeyClaim) -> LogFuture<KeyState> {
        if self.0.is_free_at_once(&claim) {
            return Box::pin(async { Ok(KeyState::Free) });
        }
        self.blocking(move |own| own.with_sound_keys(|| own.key_state(&claim)))
    }

    fn record(&self, at: Timestamp, event: OperatorEvent<'static>) -> LogFuture<()> {
        self.blocking(move |own| {
            let (journal, time) = (own.own_journal()?, accepted_time_in(&event));
            let write = |event| {
                let draft = EntryDraft::of_log(at, &RecordedEvent::Operator(Box::new(event)));
                wait(own.write(&journal, vec![draft], Box::new(|_| ()), None))
            };
            write(event.clone())?;
            if let Some(Err(error)) = time.map(|time| own.accept_time(time)) {
                // If this fails as well, the caller learns what failed first.
                let _ = write(OperatorEvent { failed: true, ..event });
                return Err(error);
            }
            // A command without a runtime ends soon, and signs at no other time.
            if tokio::runtime::Handle::try_current().is_err() {
                report_unsigned(|| own.sign().map(drop));
            }
            Ok(())
        })
    }

    fn resolve(&self, audit_id: &AuditId, decision: ResolveCall) -> LogFuture<bool> {
        let audit_id = audit_id.clone();
        self.blocking(move |own| {
            // The decision may be recorded already: this is not repeated here.
            own.resolve(&audit_id, &decision).inspect_err(|error| own.forget_damaged_keys(error))
        })
    }

    fn time(&self) -> LogFuture<LogTime> {
        self.blocking(|own| own.with_sound_keys(|| own.log_time()))
    }

    fn sign(&self) -> LogFuture<String> {
        self.blocking(|own| own.sign())
    }

    fn accept(&self, findings: Vec<AcknowledgedFinding>, user: Arc<str>) -> LogFuture<String> {
        self.blocking(move |own| own.accept(&findings, &user))
    }

    fn prune(&self, before: Timestamp, dry_run: bool, user: Arc<str>) -> LogFuture<Pruned> {
        self.blocking(move |own| own.prune(before, dry_run, Some(&user)))
    }

    fn flush(&self) -> LogFuture<()> {
        let own = Arc::clone(&self.0);
        // It waits for the work on other threads, and is not counted as such.
        on_waiting_thread(move || allow_waiting(|| own.flush()))
    }

    fn reader(&self) -> Result<Box<dyn AuditReader>, AuditError> {
        let process = Arc::clone(&self.0);
        Ok(Box::new(IndexReader::open(&self.0.root, process)?))
    }

    fn reindex(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<u64, AuditError> {
        let mut entries = 0;
        LogIndex::rebuild(&self.0.root, &mut |lines, done, all| {
            entries = lines;
            progress(done, all);
        })?;
        Ok(entries)
    }

    fn retention(&self) -> Option<Duration> {
        self.0.settings.retention
    }

    fn loss(&self) -> Result<Option<StateLoss>, AuditError> {
        CheckpointReader::new(&self.0.home, &self.0.root).loss()
    }

    fn end(&self) -> Result<LogPosition, AuditError> {
        let mut position = LogPosition::default();
        for writer in writer_dir::names(&self.0.root)? {
            let dir = self.0.root.join(&writer);
            let Some(newest) = segments(&dir)?.pop() else { continue };
            // Until a segment has a line, the entry before its first one is the last.
            let last = last_entry(&dir, newest)?.unwrap_or(newest.saturating_sub(1));
            position.0.insert(writer, last);
        }
        Ok(position)
    }

    fn evidence(&self) -> Result<Box<dyn AuditEvidence>, AuditError> {
        Ok(Box::new(JournalEvidence::new(&self.0)))
    }
}

impl LogWriter {
    /// Returns work that is waited for before the log is dropped. It runs to its end also if nothing waits for its result.
    fn work<T>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> Result<T, AuditError> + Send + 'static,
    ) -> impl FnOnce() -> Result<T, AuditError> + Send + 'static {
        self.working.fetch_add(1, Ordering::SeqCst);
        let done = WorkDone(Arc::clone(self));
        move || {
            let done = done;
            allow_waiting(|| work(&done.0))
        }
    }

    /// Runs work for which no call waits, on another thread.
    pub(super) fn in_background(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> Result<(), AuditError> + Send + 'static,
    ) {
        let work = self.work(work);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(work)),
            Err(_) => drop(std::thread::spawn(work)),
        }
    }

    /// Returns the directory of the journals.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn state(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the journal of this process, if the call can be opened there without waiting: the journal is there, the
    /// call is not open yet, and it resumes none.
    fn journal_for(&self, call: &OpenCall) -> Option<Arc<HeldJournal>> {
        let state = self.state();
        let is_new = call.resumes.is_none() && !state.calls.contains_key(&call.audit_id);
        state.own.clone().filter(|_| is_new)
    }

    /// Returns true if the call is open. Waits while its beginning is being written, and, `or_pending`, while it is about to
    /// be opened.
    fn has_opened(&self, audit_id: &AuditId, or_pending: bool) -> bool {
        loop {
            {
                let state = self.state();
                match state.calls.get(audit_id) {
                    Some(call) if call.is_opening => {}
                    Some(call) => return !call.is_lost,
                    None if or_pending && state.pending_opens.contains(audit_id) => {}
                    None => return false,
                }
            }
            std::thread::sleep(OPENING_PAUSE);
        }
    }

    /// Returns the journal of this process, which is taken or begun if there is none.
    pub(super) fn own_journal(&self) -> Result<Arc<HeldJournal>, AuditError> {
        let mut state = self.state();
        if let Some(journal) = &state.own {
            return Ok(Arc::clone(journal));
        }
        let journal = Journal::take(&self.root, self.journal_settings, &self.signed_heads()?)?;
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

    /// Returns the signed ends of journals; none if there is no valid statement.
    pub(super) fn signed_heads(&self) -> Result<BTreeMap<String, ChainHead>, AuditError> {
        CheckpointReader::new(&self.home, &self.root).heads()
    }

    pub(super) fn checkpoints(&self) -> Result<&CheckpointFile, AuditError> {
        if let Some(file) = self.checkpoints.get() {
            return Ok(file);
        }
        let key = host_key::load_or_create(&self.home.join("host.key"))?;
        let file = CheckpointFile::new(&self.home, &self.root, &key);
        Ok(self.checkpoints.get_or_init(|| file))
    }

    pub(super) fn held(&self, journal: Journal) -> Arc<HeldJournal> {
        let writer = journal.writer().to_owned();
        Arc::new(HeldJournal { writer, committer: JournalCommitter::new(journal, Arc::clone(&self.clock)) })
    }

    /// Writes entries, after those that could not be written before.
    pub(super) fn write(
        self: &Arc<Self>,
        journal: &Arc<HeldJournal>,
        drafts: Vec<EntryDraft>,
        done: AfterCommit,
        late: Option<LateEvents>,
    ) -> LogFuture<()> {
        if self.has_unwritten.swap(false, Ordering::Relaxed) {
            let ends: Vec<_> = {
                let mut state = self.state();
                let ends = std::mem::take(&mut state.late_ends).into_iter();
                ends.map(|(id, end)| (EndingCall::begin(self, &mut state, &id), end)).collect()
            };
            for (ending, LateEnd { call, drafts }) in ends {
                drop(self.write_end(ending, call, drafts, None, true));
            }
        }
        self.commit(journal, drafts, done, late)
    }

    fn commit(
        self: &Arc<Self>,
        journal: &Arc<HeldJournal>,
        drafts: Vec<EntryDraft>,
        done: impl FnOnce(Committed<'_>) + Send + 'static,
        late: Option<LateEvents>,
    ) -> LogFuture<()> {
        let (own, of) = (Arc::clone(self), Arc::clone(journal));
        journal.committer.commit(
            drafts,
            Box::new(move |committed| {
                let result = committed.result;
                let _ = result.as_ref().inspect_err(|error| own.failed(&of, error));
                done(committed);
                match result {
                    Ok(()) => {
                        if own.maintenance.warnings.resolve("written") {
                            own.maintenance.warnings.resolve("refused");
                            tracing::info!(target: "cofferdam::audit", "the audit log is written again");
                        }
                        own.maintain_soon();
                    }
                    // It is tried again, and every call that waits for it says so itself.
                    Err(error) if own.maintenance.warnings.is_new("written", error) => {
                        tracing::warn!(target: "cofferdam::audit", %error, "the audit log was not written");
                    }
                    Err(_) => {}
                }
            }),
            late,
        )
    }

    /// Lets go of a journal whose files are not those that were opened.
    pub(super) fn failed(&self, journal: &Arc<HeldJournal>, error: &AuditError) {
        if error.kind() != AuditErrorKind::Replaced {
            return;
        }
        let mut state = self.state();
        // A call that began in a replaced file does not go on in another one. While it runs, the lock of its journal
        // is held: others would take it for interrupted.
        let lost = state.calls.values_mut().filter(|call| Arc::ptr_eq(&call.journal, journal));
        lost.for_each(|call| call.is_lost = true);
        if state.adopted.get(&journal.writer).is_some_and(|it| Arc::ptr_eq(&it.journal, journal)) {
            state.adopted.remove(&journal.writer);
        }
        if state.own.as_ref().is_some_and(|own| Arc::ptr_eq(own, journal)) {
            state.own = None;
        }
    }

    /// Signs for an adopted journal and gives it back, once this process needs it no longer.
    pub(super) fn leave(&self, journal: &Arc<HeldJournal>) -> Result<(), AuditError> {
        if !self.state().is_left(journal) {
            return Ok(());
        }
        // The next process may not write to it, so that no other one signs for what this one wrote.
        let signed = self.sign_journals(&[journal]).map(drop);
        let mut state = self.state();
        if state.is_left(journal) {
            state.adopted.remove(&journal.writer);
            journal.committer.with_journal(|journal| journal.dir.give_back());
        }
        signed
    }

    /// Signs for these journals as they are, and returns the note.
    pub(super) fn sign_journals(&self, journals: &[&Arc<HeldJournal>]) -> Result<String, AuditError> {
        let mut heads = Vec::new();
        for journal in journals {
            // Of entries that the disk has: after a power cut nothing that is signed for may be missing.
            let (head, ended, newest) = journal
                .committer
                .with_journal(|journal| (journal.head(), journal.ended_files(), journal.files()));
            let newest = newest.inspect_err(|error| self.failed(journal, error))?;
            sync_paths(&ended?)?;
            sync(newest)?;
            journal.committer.with_journal(|journal| journal.note_synced(head.n));
            heads.push((journal.writer.as_str(), head));
        }
        self.checkpoints()?.sign(&heads, self.clock.timestamp())
    }

    fn append(self: &Arc<Self>, audit_id: &AuditId, entry: &Entry) -> LogFuture<()> {
        let opened = self.state().calls.get(audit_id).filter(|call| !call.is_lost).cloned();
        let Some(OpenedCall { journal, late_events, .. }) = opened else {
            let missing = without_beginning(audit_id);
            return Box::pin(async { Err(missing) });
        };
        let draft = EntryDraft::of_call(audit_id, false, entry);
        // A caller that waits writes its own events again; one that has gone does not.
        let late = LateEvents { events: Arc::clone(&late_events), entry: Some(draft.clone()) };
        let done = move |Committed { mut drafts, result }: Committed<'_>| {
            if result.is_err() {
                drafts.pop();
                lock(&late_events).splice(0..0, drafts);
            }
        };
        self.write(&journal, vec![draft], Box::new(done), Some(late))
    }

    /// Writes the beginning of a call, and `more` with it. Its claim is released if that fails.
    pub(super) fn begin(
        self: &Arc<Self>,
        journal: Arc<HeldJournal>,
        call: &OpenCall,
        more: Vec<EntryDraft>,
        claim: Option<HeldClaim>,
    ) -> LogFuture<()> {
        let mut drafts = vec![self.opening(call)];
        drafts.extend(more);
        let (own, audit_id) = (Arc::clone(self), call.audit_id.clone());
        // Known before it is written: nothing takes it for a call of an ended process.
        self.state().calls.insert(audit_id.clone(), OpenedCall::new(&journal, call, true));
        let done = move |Committed { result, .. }: Committed<'_>| {
            if result.is_err() {
                // Until its key is released, the call counts as running.
                claim.inspect(|claim| claim.release(&audit_id));
                own.state().calls.remove(&audit_id);
            } else if let Some(call) = own.state().calls.get_mut(&audit_id) {
                call.is_opening = false;
            }
        };
        self.write(&journal, drafts, Box::new(done), None)
    }

    /// Returns the first entry of a call.
    fn opening(&self, call: &OpenCall) -> EntryDraft {
        EntryDraft::of_opening(call, self.sealable(&call.actor, call.request.as_ref()))
    }

    /// Returns the sealed part, unless the client's quota of sealed bytes is used up.
    fn sealable(&self, client: &str, part: Option<&Sealed>) -> Option<Sealed> {
        part.filter(|_| !self.is_full(client)).cloned()
    }

    /// Opens a call that has a key or resumes another one, or that is the first one of this process.
    fn open(self: &Arc<Self>, call: &OpenCall) -> Result<OpenOutcome, AuditError> {
        if self.has_opened(&call.audit_id, false) {
            return Ok(OpenOutcome::Started);
        }
        let Some(claim) = &call.key else {
            return match &call.resumes {
                Some((before, actor)) => self.open_resuming(call, before, actor),
                None => wait(self.begin(self.own_journal()?, call, Vec::new(), None))
                    .map(|()| OpenOutcome::Started),
            };
        };
        let keys = self.keys()?;
        self.follow_clock(&keys.table, claim.at)?;
        let until = self.clock.now() + BUSY_TIMEOUT;
        loop {
            self.settle_key(&keys, key_digest(&claim.key))?;
            let by_key = self
                .interrupted_holder(&keys, claim, call.idempotent)?
                .map(|before| (before, Arc::clone(&call.actor)));
            let call = OpenCall { resumes: call.resumes.clone().or(by_key.clone()), ..call.clone() };
            let opened = match &call.resumes {
                Some((before, actor)) => self.open_keyed_resuming(&keys, claim, &call, before, actor)?,
                None => self.open_claiming(&keys, claim, &call, self.own_journal()?, Vec::new())?,
            };
            match opened {
                // Another process resumed the interrupted call meanwhile: its outcome is this one's as well. Or that ended
                // since the key was looked at, and its interrupted call is this one's to resume.
                Some(OpenOutcome::AlreadyResolved) if by_key.is_some() && self.clock.now() < until => {}
                None if self.clock.now() < until => {}
                Some(opened) => return Ok(opened),
                None => {
                    return Err(AuditError::new(AuditErrorKind::Locked, "an interrupted call has the key"));
                }
            }
            std::thread::sleep(OPENING_PAUSE);
        }
    }

    /// Opens a call in this journal, if its key is free, and writes `more` with its beginning. None if an interrupted call
    /// has the key, which this one does not resume.
    pub(super) fn open_claiming(
        self: &Arc<Self>,
        keys: &HeldKeys,
        claim: &KeyClaim,
        call: &OpenCall,
        journal: Arc<HeldJournal>,
        more: Vec<EntryDraft>,
    ) -> Result<Option<OpenOutcome>, AuditError> {
        match self.claim(keys, call, claim, &journal)? {
            ClaimOutcome::Claimed { before } => {
                let held = HeldClaim { keys: keys.clone(), key: key_digest(&claim.key), before };
                wait(self.begin(journal, call, more, Some(held)))?;
                Ok(Some(OpenOutcome::Started))
            }
            ClaimOutcome::InUse(state) => Ok(Some(OpenOutcome::KeyInUse(state))),
            ClaimOutcome::Interrupted => Ok(None),
        }
    }

    /// Opens a call in the journal of this process under a key that no call has. None if that requires waiting, or if the
    /// key may be taken.
    fn open_at_once(self: &Arc<Self>, call: &OpenCall) -> Option<LogFuture<OpenOutcome>> {
        // With `power`, the journal is in use for as long as the disk takes.
        let claim = call.key.as_ref().filter(|_| self.settings.durability == Durability::Process)?;
        let journal = self.journal_for(call)?;
        let held = self.claim_at_once(call, claim, &journal)?;
        Some(started(self.begin(journal, call, Vec::new(), Some(held))))
    }

    /// Writes the end of a call, unless it is written or being written already, and then stores the state of its key.
    fn end(
        self: &Arc<Self>,
        begin: Option<&OpenCall>,
        end: &CloseCall,
        key: Option<EndingKey>,
    ) -> Result<LogFuture<()>, AuditError> {
        let (ending, known, late) = {
            let mut state = self.state();
            if state.ended_late.remove(&end.audit_id) {
                return Ok(Box::pin(async { Ok(()) }));
            }
            if let Some(waiting) = state.ending.get_mut(&end.audit_id) {
                let (waits, result) = oneshot::channel();
                waiting.push(waits);
                let lost =
                    |_| Err(AuditError::new(AuditErrorKind::Other, "the end of the call was not written"));
                return Ok(Box::pin(async move { result.await.unwrap_or_else(lost) }));
            }
            let late = state.late_ends.remove(&end.audit_id);
            let mut known = state.calls.get(&end.audit_id).cloned();
            if late.is_none() && known.take_if(|call| call.is_lost).is_some() {
                state.calls.remove(&end.audit_id);
            }
            (EndingCall::begin(self, &mut state, &end.audit_id), known, late)
        };
        if let Some(LateEnd { call, drafts }) = late {
            return Ok(self.write_end(ending, call, drafts, key, false));
        }
        let (call, mut drafts) = match (known, begin) {
            (Some(call), _) => (call, Vec::new()),
            (None, Some(begin)) => {
                (OpenedCall::new(&self.own_journal()?, begin, false), vec![self.opening(begin)])
            }
            (None, None) => return Err(without_beginning(&end.audit_id)),
        };
        let (entry, is_end) = end.last_events(call.resumes);
        // A call that began and ended in one entry needs no other, unless its outcome is sealed.
        let outcome = self.sealable(&call.actor, end.outcome.as_ref());
        if !entry.is_empty() || outcome.is_some() || drafts.is_empty() {
            drafts.push(EntryDraft::of_call(&end.audit_id, is_end, &entry).with_sealed(outcome));
        }
        Ok(self.write_end(ending, call, drafts, key, false))
    }

    fn write_end(
        self: &Arc<Self>,
        mut ending: EndingCall,
        call: OpenedCall,
        drafts: Vec<EntryDraft>,
        key: Option<EndingKey>,
        is_late: bool,
    ) -> LogFuture<()> {
        let own = Arc::clone(self);
        let journal = Arc::clone(&call.journal);
        let late = LateEvents { events: Arc::clone(&call.late_events), entry: None };
        let done = move |Committed { drafts, result }: Committed<'_>| {
            let mut state = own.state();
            let id = ending.audit_id.clone();
            match result {
                Ok(()) => {
                    state.calls.remove(&id);
                    if is_late {
                        if state.ended_late.len() >= LATE_ENDS {
                            state.ended_late.clear();
                        }
                        state.ended_late.insert(id);
                    }
                    ending.finish(&mut state, result);
                    let is_left = state.is_left(&call.journal);
                    drop(state);
                    let last = drafts.last();
                    let is_end = last.and_then(EntryDraft::call).is_some_and(|(_, is_end)| is_end);
                    // A call without an end holds its key until an operator decides about it.
                    if let Some(key) = key.filter(|_| is_end) {
                        key.apply(last.and_then(|draft| draft.sealed_at));
                    }
                    if is_late && call.key.is_some() {
                        own.read_own_keys(&call.journal);
                    }
                    if is_left {
                        own.in_background(move |own| own.leave(&call.journal));
                    }
                }
                Err(error) => {
                    let kept = Some(state.late_ends.len());
                    if keeps_late_end(&drafts, error, kept, &own.maintenance.warnings) {
                        state.late_ends.insert(id, LateEnd { call, drafts });
                        own.has_unwritten.store(true, Ordering::Relaxed);
                    }
                    ending.finish(&mut state, result);
                    drop(state);
                    own.are_keys_behind.fetch_or(key.is_some(), Ordering::SeqCst);
                }
            }
        };
        self.commit(&journal, drafts, done, Some(late))
    }

    /// Copies the changes of the key table into its file, on a thread that may wait.
    fn copy_keys(self: &Arc<Self>) {
        self.in_background(|own| {
            own.keys().and_then(|keys| keys.table.copy_changes()).inspect_err(|error| {
                tracing::warn!(target: "cofferdam::audit", %error, "changes of idempotency keys stay in keys.db-wal");
            })
        });
    }

    /// Ends a call on a thread that may wait.
    fn close(self: &Arc<Self>, begin: Option<&OpenCall>, end: &CloseCall) -> Result<(), AuditError> {
        // Its caller may not have waited until it was open.
        let _ = self.has_opened(&end.audit_id, true);
        let key = self.state().calls.get(&end.audit_id).and_then(|call| call.key);
        let ending = key.map(|key| EndingKey::new(self, end, key, self.keys()));
        wait(self.end(begin, end, ending)?)
    }
}

impl ProcessCalls for LogWriter {
    fn undecided(&self, of: Option<&AuditId>) -> Result<Vec<AuditId>, AuditError> {
        self.undecided_calls(of)
    }

    fn is_interrupted(&self, audit_id: &AuditId) -> bool {
        let adopted: Vec<_> = {
            let state = self.state();
            if state.calls.contains_key(audit_id) {
                return false;
            }
            state.adopted.values().map(|adopted| Arc::clone(&adopted.journal)).collect()
        };
        let has = |journal: &mut Journal| journal.unended.first_entry(audit_id).is_some();
        adopted.iter().any(|journal| journal.committer.with_journal(has))
    }

    fn unended(&self, journal: &Path) -> Result<Arc<UnendedCalls>, AuditError> {
        self.unended.lock().unwrap_or_else(PoisonError::into_inner).read(journal)
    }
}

impl WriterState {
    /// Returns true for an adopted journal that this process needs no longer.
    fn is_left(&self, journal: &Arc<HeldJournal>) -> bool {
        let adopted = self.adopted.get(&journal.writer);
        adopted.is_some_and(|adopted| adopted.users == 0 && Arc::ptr_eq(&adopted.journal, journal))
            && !self.calls.values().any(|call| Arc::ptr_eq(&call.journal, journal))
    }
}

impl Drop for LogWriter {
    /// Writes the ends that could not be written, and gives the journals back.
    fn drop(&mut self) {
        let now = self.clock.timestamp();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for LateEnd { call, mut drafts } in std::mem::take(&mut state.late_ends).into_values() {
            let mut events = std::mem::take(&mut *lock(&call.late_events));
            let mut drafts: Vec<_> = events.iter_mut().chain(&mut drafts).collect();
            if let Err(error) = call.journal.committer.with_journal(|journal| journal.write(&mut drafts, now))
            {
                tracing::error!(target: "cofferdam::audit", %error, "the end of a call could not be written: it is incomplete");
            }
        }
        state.calls.clear();
        let adopted = std::mem::take(&mut state.adopted);
        let own = state.own.take();
        for AdoptedJournal { journal, .. } in adopted.into_values() {
            report_unsigned(|| self.sign_journals(&[&journal]).map(drop));
        }
        let Some(own) = own else { return };
        let writer = own.writer.clone();
        let head = own.committer.with_journal(|journal| journal.head().n);
        let keys = self.keys.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(keys), false) = (keys, self.are_keys_behind.load(Ordering::SeqCst)) {
            let noted = keys.change(|keys| {
                keys.note_read(&writer, head);
                Ok(())
            });
            drop(noted);
        }
        let Some(journal) = Arc::into_inner(own).and_then(|own| own.committer.into_journal()) else { return };
        report_unsigned(|| {
            failpoint::pass("checkpoint.before");
            let head = journal.release(now)?;
            if let Some(checkpoints) = self.checkpoints.get() {
                checkpoints.sign(&[(&writer, head)], now)?;
            }
            failpoint::pass("checkpoint.after");
            Ok(())
        });
    }
}

/// Logs a failed signature. A panic would end the process where a log is dropped, and nothing is lost without a
/// statement.
fn report_unsigned(sign: impl FnOnce() -> Result<(), AuditError>) {
    let panicked = |_| Err(AuditError::new(AuditErrorKind::Other, "the thread panicked"));
    if let Err(error) = catch_unwind(AssertUnwindSafe(sign)).unwrap_or_else(panicked) {
        tracing::warn!(target: "cofferdam::audit", %error, "no checkpoint was signed");
    }
}

/// Returns true if the end of a call that could not be written is to be kept, and logs the error otherwise. `kept` is
/// the number of ends that are kept already; none if this one cannot be written later either.
pub fn keeps_late_end(
    drafts: &[EntryDraft],
    error: &AuditError,
    kept: Option<usize>,
    warnings: &WarningLog,
) -> bool {
    let never_began = drafts.first().is_some_and(|draft| draft.has_event("received"));
    let most = if never_began { LATE_REFUSALS } else { LATE_ENDS };
    let is_kept = error.kind().may_pass() && kept.is_some_and(|kept| kept < most);
    if !is_kept && !never_began {
        tracing::error!(target: "cofferdam::audit", %error, "the end of a call cannot be written: it is incomplete");
    } else if !is_kept && warnings.is_new("refused", error) {
        tracing::warn!(target: "cofferdam::audit", %error, "calls that were not run are not in the audit log");
    }
    is_kept
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
