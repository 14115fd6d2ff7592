//! The traits of an audit log: one writes it, one reads it.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use cofferdam_core::digest::Digest;
use cofferdam_core::event::operator::{OperatorAction, OperatorEvent};
use cofferdam_core::failure::AuditId;
use cofferdam_core::home_state::StateLoss;
use jiff::Timestamp;
use serde::Serialize;

use super::call_facts::restore_facts;
use super::command::{
    CallStatus, CloseCall, KeyClaim, KeyState, LogTime, OpenCall, OpenOutcome, Pruned, ResolveCall,
    serialize_time,
};
use super::entry::{Entry, LoggedEvent};
use super::error::{AuditError, AuditErrorKind};
use super::evidence::AuditEvidence;
use super::journal::JournalLine;
use super::request_stats::RequestSum;
use super::seal::Sealed;
use super::stats::{HistoryPart, HistoryQuery, LogStorage, SealedUsage, Stats, StatsGrouping, StatsQuery};
use super::verify::AcknowledgedFinding;

/// The result of a command to the audit log, once its effect is durable. Fails if the command could not be written,
/// or if the audit log is gone.
///
/// The command was submitted when the future was created, and is carried out even if the future is dropped, also
/// before it was polled.
pub type LogFuture<T> = Pin<Box<dyn Future<Output = Result<T, AuditError>> + Send>>;

/// Waits for the log on this thread, which may block, with a runtime and without.
///
/// # Errors
/// Those of the command.
pub fn wait<T>(future: impl Future<Output = Result<T, AuditError>>) -> Result<T, AuditError> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    // A task that has used up its budget would never see the future complete.
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// The log that calls are recorded in. Several hosts may share one.
///
/// Each command is submitted before its method returns. Commands about one open call are carried out in the
/// order of their submission. Entries of many calls are written together.
pub trait AuditLog: Send + Sync + 'static {
    /// Opens a call, which may run if the outcome says so. Opening a call that is open already changes nothing.
    fn open(&self, call: OpenCall) -> LogFuture<OpenOutcome>;

    /// Adds events to an open call. If the future is dropped and the write fails, it is retried later.
    fn append(&self, audit_id: &AuditId, entry: Entry) -> LogFuture<()>;

    /// Ends a call. With `begin`, of which nothing was written before, the call is opened first, in the same commit.
    /// If the write fails, it is retried later.
    fn close(&self, begin: Option<Box<OpenCall>>, end: CloseCall) -> LogFuture<()>;

    /// Returns the state of an idempotency key.
    fn key_state(&self, claim: KeyClaim) -> LogFuture<KeyState>;

    /// Resolves a call that never ended. Returns false if there is nothing left to resolve.
    fn resolve(&self, audit_id: &AuditId, decision: ResolveCall) -> LogFuture<bool>;

    /// Records a change that an operator makes. It is durable when the future completes. A recorded change of the clock is
    /// the operator's word for the time: see [`AuditLog::time`].
    fn record(&self, at: Timestamp, event: OperatorEvent<'static>) -> LogFuture<()>;

    /// Returns the time that the log goes by: that of the clock, unless it is more than a day away from the newest entry.
    /// Then no key expires and nothing is removed by a clock that is ahead, and no call runs under a key by one that is
    /// behind, until the operator accepts the clock.
    fn time(&self) -> LogFuture<LogTime>;

    /// Signs a checkpoint with the ends of this process's journals, and returns its note.
    fn sign(&self) -> LogFuture<String>;

    /// Records and signs that the operator, `user`, accepts these findings, and returns the note of that checkpoint.
    fn accept(&self, findings: Vec<AcknowledgedFinding>, user: Arc<str>) -> LogFuture<String>;

    /// Removes the calls that were received before `before`, from the oldest on, as far as none of them is needed.
    /// With `dry_run`, only reports what would be removed. `user` is the operator.
    fn prune(&self, before: Timestamp, dry_run: bool, user: Arc<str>) -> LogFuture<Pruned>;

    /// Succeeds if this process could record a call now. By default it always does.
    fn ready(&self) -> LogFuture<()> {
        Box::pin(async { Ok(()) })
    }

    /// Changes nothing. Completes when all earlier commands are durable.
    fn flush(&self) -> LogFuture<()>;

    /// Returns a reader, which sees everything that was durable when it was asked for. It blocks: not for an executor's
    /// threads.
    ///
    /// # Errors
    /// `Absent`: nothing was recorded yet; the audit log cannot be read.
    fn reader(&self) -> Result<Box<dyn AuditReader>, AuditError>;

    /// Makes the index of the log again, if it has one. `progress` gets the bytes that were read, and those of the whole
    /// log. Returns the number of entries. It blocks: not for an executor's threads.
    ///
    /// # Errors
    /// The audit log cannot be read, or the index not be written.
    fn reindex(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<u64, AuditError> {
        let _ = progress;
        Ok(0)
    }

    /// Returns the time for which calls are kept; none if they are kept until an operator removes them.
    fn retention(&self) -> Option<Duration> {
        None
    }

    /// Returns what is missing of the log, or beside it, as far as its home remembers. It blocks: not for an executor's
    /// threads.
    ///
    /// # Errors
    /// That cannot be determined.
    fn loss(&self) -> Result<Option<StateLoss>, AuditError> {
        Ok(None)
    }

    /// Returns the end of the audit log as it is now, without reading what was added. It blocks: not for an executor's
    /// threads.
    ///
    /// # Errors
    /// The audit log cannot be read.
    fn end(&self) -> Result<LogPosition, AuditError> {
        match self.reader() {
            Err(error) if error.kind() == AuditErrorKind::Absent => Ok(LogPosition::default()),
            reader => reader?.end(),
        }
    }

    /// Returns everything that a verification looks at, as it is now. It blocks: not for an executor's threads.
    ///
    /// # Errors
    /// The audit log cannot be read, or has no chain.
    fn evidence(&self) -> Result<Box<dyn AuditEvidence>, AuditError> {
        Err(AuditError::new(AuditErrorKind::Other, "this audit log has no chain that could be verified"))
    }
}

/// Reads the audit log. Its methods block, and fail if it cannot be read. Each one sees at least what was durable when
/// it was called.
pub trait AuditReader: Send {
    /// Returns the calls that match `filter`, the newest first.
    fn list(&mut self, filter: &Filter) -> Result<Vec<CallRow>, AuditError>;

    /// Returns one call.
    fn call(&mut self, audit_id: &AuditId) -> Result<Option<CallRow>, AuditError>;

    /// Returns the ids of up to `most` calls from `from` to `to`, in order.
    fn between(&mut self, from: &AuditId, to: &AuditId, most: usize) -> Result<Vec<AuditId>, AuditError>;

    /// Returns the number of calls of each kind that match `filter`, their durations and their usage. Times are rounded to
    /// whole hours; `key`, `limit` and `before` are ignored.
    fn stats(&mut self, filter: &Filter, query: StatsQuery) -> Result<Stats, AuditError>;

    /// Returns the calls that match `filter` by the step in which they were received, the first step first; steps without
    /// a call are left out. The times of the filter, `key`, `limit` and `before` are ignored.
    fn history(&mut self, filter: &Filter, query: HistoryQuery) -> Result<Vec<HistoryPart>, AuditError> {
        let mut parts = Vec::new();
        let by = StatsQuery { by: StatsGrouping::Boundary, usage: false };
        for start in query.starts() {
            let until = Timestamp::from_second(start.as_second().saturating_add(query.step.seconds())).ok();
            let filter = Filter { since: Some(start), until, ..filter.clone() };
            let groups = self.stats(&filter, by)?.groups;
            if !groups.is_empty() {
                parts.push(HistoryPart { start, groups });
            }
        }
        Ok(parts)
    }

    /// Returns the requests of the ended calls of the connector, operation, action and time that `filter` names, by
    /// connector, operation, host and kind; times are taken as whole hours.
    fn requests(&mut self, filter: &Filter) -> Result<Vec<RequestSum>, AuditError>;

    /// Returns the space that the audit log uses.
    fn storage(&mut self) -> Result<LogStorage, AuditError>;

    /// Returns every code that a recorded failure or error has, in order.
    fn codes(&mut self) -> Result<Vec<String>, AuditError>;

    /// Returns the end of the audit log as it is now.
    fn end(&mut self) -> Result<LogPosition, AuditError>;

    /// Returns the calls that ended after `position`, which is moved to the end of what was read: up to `most` of them.
    fn ended_after(&mut self, position: &mut LogPosition, most: usize) -> Result<Vec<CallRow>, AuditError>;

    /// Returns the entries of one call, in order.
    ///
    /// # Errors
    /// The audit log cannot be read. `Tampered`: an entry was changed.
    fn entries_of(&mut self, audit_id: &AuditId) -> Result<Vec<StoredEntry>, AuditError>;

    /// Returns the entries of one call and their events, in order. Each event has all its facts, also those that the
    /// log has only once for several events.
    ///
    /// # Errors
    /// Those of [`entries_of`](Self::entries_of).
    fn events_of(&mut self, audit_id: &AuditId) -> Result<(Vec<StoredEntry>, Vec<LoggedEvent>), AuditError> {
        let entries = self.entries_of(audit_id)?;
        let mut events = Vec::new();
        for entry in &entries {
            events.extend(entry.events()?);
        }
        restore_facts(&mut events);
        Ok((entries, events))
    }

    /// Returns the bytes of sealed requests and outcomes by client, the most first.
    fn sealed_usage(&mut self) -> Result<Vec<SealedUsage>, AuditError>;

    /// Returns the changes that operators made, the newest first, and those of a journal in its order.
    fn operator_events(&mut self, filter: &OperatorEventFilter) -> Result<Vec<OperatorChange>, AuditError>;

    /// Returns the ended calls of which it is unknown what was done under their key, and that are not resolved:
    /// all of them, or only `of` if it is one of them.
    fn undecided_keys(&mut self, of: Option<&AuditId>) -> Result<Vec<AuditId>, AuditError>;

    /// Returns the sealed parts of a call: its request and its outcome. None of those that were dropped.
    fn sealed(&mut self, audit_id: &AuditId) -> Result<(Option<Sealed>, Option<Sealed>), AuditError>;
}

/// A position in the audit log: for each journal, by the name of its writer, the number of an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogPosition(pub BTreeMap<String, u64>);

/// The longest idempotency key, in bytes.
pub const KEY_BYTES: usize = 200;

/// Which calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Not those with a value, and not those without an end.
    pub failed: bool,
    /// With this status; running are those whose host lives.
    pub status: Option<CallStatus>,
    /// Of this class.
    pub class: Option<String>,
    /// With this code.
    pub code: Option<String>,
    /// Of this connector: `name`, or `name@version`.
    pub connector: Option<String>,
    /// Of this operation.
    pub op: Option<String>,
    /// Of this action, `name` or `name@version`: its own row, and the calls that are its steps.
    pub action: Option<String>,
    /// By this actor. On its own it selects no range of an index: all calls of the time are read.
    pub actor: Option<String>,
    /// Under the idempotency key of its caller with this SHA-256. Statistics and histories ignore it.
    pub key: Option<[u8; 32]>,
    /// Received at or after.
    pub since: Option<Timestamp>,
    /// Received before.
    pub until: Option<Timestamp>,
    /// Begun before this one: the next page is that before the last one of this page.
    pub before: Option<AuditId>,
    /// The maximum number of calls; 0 for all.
    pub limit: usize,
}

impl Filter {
    /// Returns the status that selected calls have in a store, which does not know which hosts live.
    #[must_use]
    pub fn stored_status(&self) -> Option<CallStatus> {
        self.status.map(|status| if status.has_end() { status } else { CallStatus::Running })
    }

    /// Returns the times in whole hours: the beginning of that of `since`, and the end of that of `until`.
    #[must_use]
    pub fn whole_hours(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        const HOUR: i64 = 3_600_000_000;
        let time = |hour: i64| Timestamp::from_microsecond(hour.saturating_mul(HOUR)).ok();
        let since = self.since.map(|since| since.as_microsecond().div_euclid(HOUR));
        let last = self.until.map(|until| until.as_microsecond().saturating_sub(1).div_euclid(HOUR));
        (since.and_then(time), last.and_then(|last| time(last.saturating_add(1))))
    }

    /// The form of the texts that [`select_key`](Self::select_key) takes, as a hint.
    pub const KEY_FORM: &str =
        "Give 1 to 200 printable ASCII characters without spaces, `:` and `~`, or `sha256:` and 64 digits.";

    /// Selects the calls under an idempotency key: `key` is the key itself, or `sha256:` and the 64 digits of its
    /// SHA-256. Returns false for a text that is neither.
    pub fn select_key(&mut self, key: &str) -> bool {
        let is_key = (1..=KEY_BYTES).contains(&key.len())
            && key.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'~');
        let digest = match key.contains(':') {
            // No key has a `:` in it.
            true => Some(key).filter(|key| key.starts_with("sha256:")).and_then(Digest::parse),
            false => is_key.then(|| Digest::sha256(key.as_bytes())),
        };
        self.key = digest.map(|digest| *digest.as_bytes());
        self.key.is_some()
    }
}

/// A change that an operator made.
#[derive(Debug, Clone, Serialize)]
pub struct OperatorChange {
    /// The time, by the clock of its host.
    #[serde(serialize_with = "serialize_time")]
    pub at: Timestamp,
    /// The time by which changes are ordered. It rises with each change in a journal, also if the clock went back between
    /// two of them.
    #[serde(skip)]
    pub place: Timestamp,
    /// The change.
    #[serde(flatten)]
    pub event: OperatorEvent<'static>,
}

impl OperatorChange {
    /// Reads a change as it is stored, with times in microseconds since 1970. None if it cannot be read.
    #[must_use]
    pub fn read(at: i64, place: i64, event: &str) -> Option<Self> {
        let [at, place] = [at, place].map(|time| Timestamp::from_microsecond(time).ok());
        Some(Self { at: at?, place: place?, event: serde_json::from_str(event).ok()? })
    }
}

/// A selection of changes by operators.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperatorEventFilter {
    /// Of these kinds.
    pub actions: ActionSet,
    /// Made at or after.
    pub since: Option<Timestamp>,
    /// Made before.
    pub until: Option<Timestamp>,
    /// Placed before: the place of the last change of a page selects the next one.
    pub before: Option<Timestamp>,
    /// The maximum number of changes; 0 for all.
    pub limit: usize,
}

/// A set of kinds of changes. By default, it has all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActionSet {
    /// These actions.
    Only(Vec<OperatorAction>),
    /// All other actions, with those that only a newer version knows.
    Except(Vec<OperatorAction>),
}

impl Default for ActionSet {
    fn default() -> Self {
        Self::Except(Vec::new())
    }
}

impl ActionSet {
    /// Returns names of actions, and true if the set has exactly these; false if it has all others.
    #[must_use]
    pub fn names(&self) -> (Vec<&'static str>, bool) {
        let (actions, is_only) = match self {
            Self::Only(actions) => (actions, true),
            Self::Except(actions) => (actions, false),
        };
        (actions.iter().map(|action| action.name()).collect(), is_only)
    }
}

/// A call in the audit log, in one row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct CallRow {
    /// The call's id.
    #[cfg_attr(feature = "schemars", schemars(with = "String"))]
    pub audit_id: AuditId,
    /// The time at which it was received, as RFC 3339.
    #[serde(serialize_with = "serialize_time")]
    #[cfg_attr(feature = "schemars", schemars(with = "String"))]
    pub at: Timestamp,
    /// The connector, as `name@version`.
    pub connector: String,
    /// The operation.
    pub op: String,
    /// The action that it was a step of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The caller's name.
    pub actor: String,
    /// True if it may be repeated.
    pub idempotent: bool,
    /// `running`, `value`, `failure`, `refused`, `cancelled`, `resumed`, `skipped`; or `incomplete`: started
    /// by a process that is gone.
    #[cfg_attr(feature = "schemars", schemars(with = "String"))]
    pub status: CallStatus,
    /// The failure's class.
    pub class: Option<String>,
    /// The failure's or the error's code.
    pub code: Option<String>,
    /// The duration in microseconds; none while it is running.
    pub duration_us: Option<u64>,
    /// The number of attempts; none while it is running.
    pub attempts: Option<u32>,
}

/// An entry as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// The writer of its journal.
    pub writer: String,
    /// Its number in that journal, from 1, without gaps.
    pub n: u64,
    /// Its canonical JSON.
    pub text: String,
}

impl StoredEntry {
    /// Returns the SHA-256 of the entry, which the next entry of its journal names, in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> String {
        Digest::sha256(self.text.as_bytes()).to_string()
    }

    /// Reads the events of the call as they are recorded; none from an entry that is of no call.
    ///
    /// # Errors
    /// `Tampered`: the text is not that of an entry.
    pub fn events(&self) -> Result<Vec<LoggedEvent>, AuditError> {
        let events = JournalLine::read(self.text.as_bytes()).and_then(|line| line.events());
        events.map_err(|fault| {
            let Self { writer, n, .. } = self;
            AuditError::new(
                AuditErrorKind::Tampered,
                format_args!("entry {n} of the journal {writer}: {fault}"),
            )
        })
    }
}
