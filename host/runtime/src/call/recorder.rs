//! Records a call or an action in the audit log, each event before its effect happens, and notifies the listeners.
//!
//! A call takes two commits: its admission, before its guest runs, and its end, before any listener or caller sees
//! it. Each further attempt takes one, and so does the wait before it; other events are written with the next commit. A
//! failed write is retried three times, after 2, 4 and 6 seconds; then nothing runs. Calls that arrive while the log is
//! known to be unwritable try once and fail at once.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cofferdam_audit::{
    AuditError, AuditErrorKind, CallOutcome, CallStatus, CallTarget, CloseCall, Entry, KeyClaim,
    KeyDisposition, KeyState, LogFuture, OpenCall, OpenOutcome, Part, Sealed, difference_from_attempt,
};
use cofferdam_core::clock::Clock;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::event::recorded::{
    CanonicalJson, Ended, EventLine, EventText, Received, RecordedClaim, RecordedEvent,
};
use cofferdam_core::event::{Event, EventKind, Listener, shown_wait};
use cofferdam_core::failpoint;
use cofferdam_core::failure::{AuditId, RecoveryPrompt};
use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::{Level, Span};

use super::audit_context::AuditContext;
use super::pipeline::CallPipeline;
use super::redact::{self, FieldRedactor};
use super::report;
use super::sealed_payload::UnsealedPayload;
use super::spans;
use crate::log_errors::log_error;

/// The delays before a write is retried.
const WAITS: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(6)];

/// The number of retries of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Persistence {
    /// Three retries, unless the log is known to be unwritable: nothing was done that has to be recorded.
    WhileWritable,
    /// Three retries: otherwise the outcome of an executed call would be lost.
    Always,
    /// As `WhileWritable`, for a command that only reads. Its success does not show that the log can be written.
    WhileReadable,
}

/// The state of the write of a call's beginning.
enum Beginning {
    Unwritten,
    /// The write was requested and not confirmed. The same write may be requested again.
    Requested(Arc<OpenCall>),
    Written,
    /// The write was requested, and the file was replaced since. The new file gets nothing of this call.
    Lost,
}

/// Records one call or one action: numbers its events, writes them to the audit log, and notifies the listeners.
pub(super) struct CallRecorder {
    context: Arc<AuditContext>,
    clock: Arc<dyn Clock>,
    listener: Option<Arc<dyn Listener>>,
    /// The span of the whole call.
    pub(super) span: Span,
    pub(super) redactor: FieldRedactor,
    pub(super) audit_id: AuditId,
    at: Timestamp,
    since: Instant,
    target: CallTarget,
    pub(super) actor: Arc<str>,
    /// True if the call may be repeated, as far as that is known.
    pub(super) idempotent: bool,
    /// The key under which the call is to run.
    pub(super) claim: Option<KeyClaim>,
    /// The call that this one resumes, and the actor of that.
    pub(super) resumes: Option<(AuditId, Arc<str>)>,
    request: Option<Sealed>,
    /// The number of the last event.
    seq: u32,
    /// The events that are not written yet.
    lines: Vec<EventText>,
    /// The earlier events of an entry that is being added to the call, without its last one.
    uncommitted: Option<Vec<EventText>>,
    /// True between two tries of a command: the log has nothing of it then.
    is_between_tries: AtomicBool,
    /// The number of the last attempt, and its failure as it is recorded, while both are in `lines`.
    pub(super) attempt_failure: Option<(u32, Map<String, Value>)>,
    beginning: Beginning,
    /// The outcome, once the final event was added.
    outcome: Option<CallOutcome>,
    /// True once the write of the end was requested.
    is_ending: bool,
    /// True once the listeners were notified of the end.
    pub(super) is_over: bool,
}

/// The end of a call or an action.
pub(super) struct CallEnd {
    /// The number of attempts; of an action, of begun steps.
    pub(super) attempts: u32,
    pub(super) outcome: CallOutcome,
    pub(super) key: KeyDisposition,
    /// The facts of the final event, except those that follow from the other fields.
    pub(super) facts: Ended<'static>,
    /// The outcome, to be replayed.
    pub(super) sealed: Option<Sealed>,
}

impl CallEnd {
    /// Creates the end of a call that was cancelled.
    pub(super) fn cancelled(attempts: u32, key: KeyDisposition, retried: Option<u32>) -> Self {
        let facts = Ended { retried, ..Ended::default() };
        Self { attempts, outcome: bare(CallStatus::Cancelled), key, facts, sealed: None }
    }
}

impl CallRecorder {
    /// Records that a call or an action was requested.
    pub(super) fn open(
        pipeline: &CallPipeline,
        audit_id: AuditId,
        target: CallTarget,
        actor: Arc<str>,
        parent: Option<&AuditId>,
        span: Span,
    ) -> Self {
        let (context, clock) = (Arc::clone(&pipeline.audit), Arc::clone(&pipeline.loader.clock));
        let mut recorder = Self {
            at: clock.timestamp(),
            since: clock.now(),
            redactor: FieldRedactor::new(context.settings().field_bytes),
            context,
            clock,
            listener: pipeline.listener.clone(),
            span,
            audit_id,
            target,
            actor,
            idempotent: false,
            claim: None,
            resumes: None,
            request: None,
            seq: 0,
            lines: Vec::with_capacity(4),
            uncommitted: None,
            is_between_tries: AtomicBool::new(false),
            attempt_failure: None,
            beginning: Beginning::Unwritten,
            outcome: None,
            is_ending: false,
            is_over: false,
        };
        let (target, actor) = (recorder.target.clone(), Arc::clone(&recorder.actor));
        recorder.write(RecordedEvent::Received(Received {
            action: target.action.as_deref().map(Cow::from),
            actor: (&*actor).into(),
            connector: (&*target.connector).into(),
            op: (&*target.op).into(),
            parent: parent.map(|action| action.as_str().into()),
            step: target.step.as_deref().map(Cow::from),
        }));
        recorder.notify(EventKind::Received { connector: &target.connector, op: &target.op });
        recorder
    }

    /// Marks that the connector has no such operation. Its name is in the events, but calls are not listed under
    /// names that callers make up.
    pub(super) fn clear_operation(&mut self) {
        self.target.op = "".into();
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.timestamp()
    }

    /// Returns the time until which an outcome that is written now is kept for its key. A clock that was set back since
    /// the call was received does not shorten it: once it is right again, the call would be done twice.
    pub(super) fn key_expiry(&self) -> Timestamp {
        let ttl = self.context.settings().key_ttl;
        let elapsed = self.clock.now().saturating_duration_since(self.since);
        let now = self.at.checked_add(elapsed).unwrap_or(self.at).max(self.clock.timestamp());
        now.checked_add(ttl).unwrap_or(Timestamp::MAX)
    }

    /// Returns the key under which the call is to run, in the form that the audit log proves.
    pub(super) fn recorded_claim(&self) -> Option<RecordedClaim> {
        self.claim.as_ref().map(|claim| claim.recorded(self.target.step.as_deref()))
    }

    /// True if everything that is needed to repeat the call is kept.
    pub(super) fn keeps_request(&self) -> bool {
        self.request.is_some()
    }

    /// Seals everything that is needed to repeat the call.
    ///
    /// # Errors
    /// It cannot be sealed.
    pub(super) fn seal_request(&mut self, request: Vec<u8>) -> Result<(), HostError> {
        let sealed = self.context.seal(&self.audit_id, Part::Request, request);
        self.request = sealed.map_err(unavailable)?;
        Ok(())
    }

    /// Does not keep the request, since another call has the same or nothing comes of it.
    pub(super) fn forget_request(&mut self) {
        self.request = None;
    }

    /// Adds one event, which is written with the next commit.
    pub(super) fn write(&mut self, event: RecordedEvent<'_>) {
        self.seq = self.seq.saturating_add(1);
        // The first event has the exact time of the call's beginning, to the microsecond.
        let at = if self.seq == 1 { self.at } else { self.clock.timestamp() };
        self.lines.push(EventLine { at, seq: self.seq, event }.to_text());
    }

    /// Notifies the log and the listener of the event that was added last. Neither can fail the call.
    pub(super) fn notify(&self, step: EventKind<'_>) {
        let (id, seq) = (self.audit_id.as_str(), self.seq);
        if tracing::enabled!(target: "cofferdam::event", Level::INFO) {
            let facts = || Value::Object(step.payload()).to_string();
            match step {
                EventKind::RetryScheduled { failure, retry, of, delay, .. } => {
                    let wait = shown_wait(delay);
                    tracing::info!(target: "cofferdam::event", audit_id = id, seq, step = step.name(), facts = facts(), "{failure} Retry {retry}/{of} in {wait}");
                }
                EventKind::FallbackTriggered { .. }
                | EventKind::CircuitChanged { .. }
                | EventKind::Suppressed { .. } => {
                    tracing::info!(target: "cofferdam::event", audit_id = id, seq, step = step.name(), facts = facts(), "step");
                }
                _ if tracing::enabled!(target: "cofferdam::event", Level::DEBUG) => {
                    tracing::debug!(target: "cofferdam::event", audit_id = id, seq, step = step.name(), facts = facts(), "step");
                }
                _ => {}
            }
        }
        if let Some(listener) = &self.listener {
            let event = Event::new(&self.audit_id, seq, step);
            if catch_unwind(AssertUnwindSafe(|| listener.event(&event))).is_err() {
                tracing::warn!(target: "cofferdam::event", audit_id = id, seq, "a listener panicked");
            }
        }
    }

    /// Adds one event, and notifies the log and the listener.
    pub(super) fn step(&mut self, step: EventKind<'_>) {
        let mut event = RecordedEvent::from(step);
        if let RecordedEvent::Suppressed(facts) = &mut event {
            facts.cause = self.redactor.text(&facts.cause).into();
            facts.reason = self.redactor.text(&facts.reason).into();
        }
        self.write(event);
        self.notify(step);
    }

    /// Returns the current state of the call's key.
    ///
    /// # Errors
    /// `audit_unavailable`: the state cannot be read.
    pub(super) async fn key_state(&self) -> Result<KeyState, HostError> {
        let Some(claim) = self.claim_now() else { return Ok(KeyState::Free) };
        let state = self.retried(Persistence::WhileReadable, || self.context.log().key_state(claim.clone()));
        Ok(match (state.await.map_err(unavailable)?, &self.resumes) {
            // The interrupted call has the key until the one that resumes it takes it over.
            (KeyState::Unknown { audit_id }, Some((before, _))) if audit_id == *before => KeyState::Free,
            (state, _) => state,
        })
    }

    /// Writes all events so far, and returns when they are durable. If nothing was written because the call's key
    /// is taken, the last event does not happen.
    ///
    /// # Errors
    /// `audit_unavailable`: they are not durable, and the last event does not happen.
    pub(super) async fn commit(&mut self) -> Result<OpenOutcome, HostError> {
        let committed = spans::recording(self.commit_lines()).await;
        if !matches!(committed, Ok(OpenOutcome::Started)) {
            self.seq = self.seq.saturating_sub(1);
        }
        committed
    }

    async fn commit_lines(&mut self) -> Result<OpenOutcome, HostError> {
        if failpoint::skips("skip.open") {
            return Ok(OpenOutcome::Started);
        }
        let entry = self.take_entry();
        // What is left for the next commit, if this one fails: all but the last event, which does not happen.
        let earlier = |entry: &Entry| match entry.events() {
            [earlier @ .., _] => earlier.to_vec(),
            [] => Vec::new(),
        };
        if matches!(self.beginning, Beginning::Written) {
            self.uncommitted = Some(earlier(&entry));
            let append = || self.context.log().append(&self.audit_id, entry.clone());
            let appended = self.retried(Persistence::WhileWritable, append).await;
            let uncommitted = self.uncommitted.take();
            if let Err(error) = appended {
                self.lines = uncommitted.unwrap_or_default();
                return Err(unavailable(error));
            }
            failpoint::pass("append.durable");
            return Ok(OpenOutcome::Started);
        }
        let mut open = self.open_call(entry.clone());
        open.key = self.claim_now();
        // A call that is refused before its first attempt resumes nothing. So this is set only here.
        open.resumes = self.resumes.clone();
        let mut open = Arc::new(open);
        self.beginning = Beginning::Requested(Arc::clone(&open));
        let command = || self.context.log().open(OpenCall::clone(&open));
        let opened = match self.retried(Persistence::WhileWritable, command).await {
            Ok(opened) => opened,
            Err(error) => {
                Arc::make_mut(&mut open).entry = Entry::new(earlier(&entry));
                self.beginning = match error.kind() {
                    AuditErrorKind::Replaced => Beginning::Lost,
                    _ => Beginning::Requested(open),
                };
                return Err(unavailable(error));
            }
        };
        failpoint::pass("open.durable");
        if failpoint::skips("open.unheard") {
            std::future::pending::<()>().await;
        }
        match &opened {
            OpenOutcome::Started => self.beginning = Beginning::Written,
            OpenOutcome::KeyInUse(_) | OpenOutcome::AlreadyResolved => {
                self.lines = earlier(&entry);
                self.beginning = Beginning::Unwritten;
            }
        }
        Ok(opened)
    }

    /// Submits all events so far, without waiting.
    pub(super) fn submit(&mut self) {
        if matches!(self.beginning, Beginning::Written) && !self.lines.is_empty() {
            let entry = self.take_entry();
            drop(self.context.log().append(&self.audit_id, entry));
        }
    }

    /// Returns the end of a call with this outcome, and the failure or the error as its operator sees it. `retried` is
    /// the number of retries, for a call.
    pub(super) fn end<A>(
        &self,
        outcome: &Result<A, Error>,
        attempts: u32,
        key: KeyDisposition,
        retried: Option<u32>,
    ) -> (CallEnd, Option<Map<String, Value>>) {
        let mut facts = Ended { retried, ..Ended::default() };
        let error = outcome.as_ref().err();
        let operator = error.map(|error| {
            let mut view = report::error_view(error, &self.redactor);
            let recorded = report::recorded_view(view.clone(), Some(&self.audit_id));
            let of_attempt = self.attempt_failure.as_ref().and_then(|(attempt, failure)| {
                Some((*attempt, difference_from_attempt(&recorded, failure)?))
            });
            let (attempt, recorded) =
                of_attempt.map_or((None, recorded), |(attempt, rest)| (Some(attempt), rest));
            (facts.failed_attempt, facts.failure) = (attempt, CanonicalJson::new(&recorded));
            if let Some(retried) = retried {
                view.insert("retried".to_owned(), retried.into());
            }
            view.insert("actor".to_owned(), (*self.actor).into());
            view.insert("at".to_owned(), self.now().to_string().into());
            view
        });
        facts.prompt = error.and_then(Error::prompt).map(|prompt| prompt.name().into());
        let outcome = outcome_of(error);
        (CallEnd { attempts, outcome, key, facts, sealed: None }, operator)
    }

    /// Adds the result to the end of a call that has an outcome of its own.
    pub(super) fn add_result(&self, end: &mut CallEnd, payload: UnsealedPayload) {
        end.facts.result = Some(match end.outcome.status {
            CallStatus::Value => self.redactor.recorded(payload.payload()),
            // The text of a failure is recorded in full elsewhere.
            _ => redact::measured(payload.payload()),
        });
        // The caller of a call that was not admitted gets its error even if it cannot be sealed.
        end.sealed = self.context.seal(&self.audit_id, Part::Outcome, payload.text).ok().flatten();
    }

    /// Writes the end. Returns whether it is durable, and the outcome of which the listeners are to be notified: it
    /// is the caller's, and an outcome that is not recorded is not returned.
    ///
    /// The error is `audit_unavailable` if nothing was run, `outcome_unknown` if something was.
    pub(super) async fn close(&mut self, mut end: CallEnd) -> (Result<(), HostError>, CallOutcome) {
        let (attempts, outcome) = (end.attempts, end.outcome.clone());
        self.write_final(&mut end);
        let closed = match attempts == 0 && outcome.status != CallStatus::Value {
            // Nothing was done, so the error is returned even if it cannot be recorded.
            true => spans::recording(self.close_once(end)).await.or(Ok(())),
            false => spans::recording(self.close_durably(end)).await,
        };
        spans::called(&self.span, attempts, &outcome, closed.as_ref().err());
        match closed {
            Ok(()) => (Ok(()), outcome),
            Err(error) => {
                let code = Some(error.kind().code().into());
                let refused = CallOutcome { code, ..bare(CallStatus::Refused) };
                (Err(error.with_request_id(&self.audit_id)), refused)
            }
        }
    }

    /// Writes the end of a call that did something or returns an outcome, and returns when it is durable.
    async fn close_durably(&mut self, end: CallEnd) -> Result<(), HostError> {
        let attempts = end.attempts;
        let (open, close) = self.close_call(end);
        if failpoint::skips("skip.close") {
            return Ok(());
        }
        let close = || self.context.log().close(open.clone(), close.clone());
        self.retried(Persistence::Always, close).await.map_err(|error| match attempts {
            0 => unavailable(error),
            _ => unknown(error),
        })?;
        failpoint::pass("close.durable");
        Ok(())
    }

    /// Writes the end of a call that did nothing, with a single try.
    async fn close_once(&mut self, end: CallEnd) -> Result<(), HostError> {
        if matches!(self.beginning, Beginning::Lost) {
            return Ok(());
        }
        let (open, close) = self.close_call(end);
        self.context.log().close(open, close).await.map_err(|error| {
            tracing::info!(target: "cofferdam::audit", audit_id = self.audit_id.as_str(), %error, "a call that was not taken up is not on record");
            unavailable(error)
        })
    }

    /// Notifies the log and the listener of the end.
    pub(super) fn notify_end(&mut self, outcome: &CallOutcome, prompt: Option<RecoveryPrompt>) {
        self.is_over = true;
        let (status, code) = (outcome.status.name(), outcome.code.as_deref());
        self.notify(EventKind::Final { outcome: status, class: outcome.class, code, prompt });
    }

    /// Adds the final event of a call that is dropped. There is only one end: if it was added already, its waiter was
    /// dropped, and `end` gets that outcome.
    pub(super) fn cancel(&mut self, end: &mut CallEnd) {
        match self.outcome.take() {
            Some(outcome) => end.outcome = outcome,
            None => self.write_final(end),
        }
    }

    /// Submits the end of a dropped call without waiting for it: this end, unless one was submitted already.
    pub(super) fn abandon(&mut self, end: CallEnd) {
        spans::called(&self.span, end.attempts, &end.outcome, None);
        // The log carries out what was submitted, and tries it again.
        if self.is_ending || matches!(self.beginning, Beginning::Lost) {
            return;
        }
        let (open, close) = self.close_call(end);
        drop(self.context.log().close(open, close));
    }

    fn write_final(&mut self, end: &mut CallEnd) {
        self.take_back_uncommitted();
        let facts = std::mem::take(&mut end.facts);
        let CallOutcome { status, class, code } = &end.outcome;
        let duration = self.clock.now().saturating_duration_since(self.since);
        self.write(RecordedEvent::Final(Ended {
            attempts: Some(end.attempts),
            class: class.map(Cow::from),
            code: code.as_deref().map(Cow::from),
            duration_us: Some(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)),
            key_end: self.claim.as_ref().map(|claim| end.key.recorded(claim)),
            status: status.name().into(),
            ..facts
        }));
        self.outcome = Some(end.outcome.clone());
    }

    /// Takes back the events of a commit that was dropped between two tries: without them, numbers would be missing
    /// in the log, as if events had been removed. The log itself keeps the events of a try that is running.
    fn take_back_uncommitted(&mut self) {
        let is_between_tries = self.is_between_tries.load(Ordering::Relaxed);
        if let Some(earlier) = self.uncommitted.take().filter(|_| is_between_tries) {
            self.lines = earlier;
            // The last event does not happen.
            self.seq = self.seq.saturating_sub(1);
        }
    }

    /// Returns the command that ends the call, with its beginning if that was not written.
    fn close_call(&mut self, end: CallEnd) -> (Option<Box<OpenCall>>, CloseCall) {
        self.is_ending = true;
        let (open, entry) = match std::mem::replace(&mut self.beginning, Beginning::Written) {
            Beginning::Written | Beginning::Lost => (None, self.take_entry()),
            // Another call may have claimed the key first. This call is over, so it claims none.
            Beginning::Requested(open) => {
                let open = OpenCall { key: None, resumes: None, ..Arc::unwrap_or_clone(open) };
                (Some(Box::new(open)), self.take_entry())
            }
            // A call that was never opened is opened and closed in one write.
            Beginning::Unwritten => {
                let last = self.lines.pop();
                let begun = self.take_entry();
                (Some(Box::new(self.open_call(begun))), Entry::new(last.into_iter().collect()))
            }
        };
        let close = CloseCall {
            audit_id: self.audit_id.clone(),
            attempts: end.attempts,
            verdict: end.outcome,
            key: end.key,
            entry,
            outcome: end.sealed,
        };
        (open, close)
    }

    fn open_call(&self, entry: Entry) -> OpenCall {
        OpenCall {
            audit_id: self.audit_id.clone(),
            at: self.at,
            route: self.target.clone(),
            actor: Arc::clone(&self.actor),
            idempotent: self.idempotent,
            key: None,
            resumes: None,
            entry,
            request: self.request.clone(),
        }
    }

    fn claim_now(&self) -> Option<KeyClaim> {
        self.claim.clone().map(|claim| KeyClaim { at: self.clock.timestamp(), ..claim })
    }

    fn take_entry(&mut self) -> Entry {
        // A failure is left out of the end of the call only if the same entry has it.
        self.attempt_failure = None;
        Entry::new(std::mem::take(&mut self.lines))
    }

    async fn retried<T>(
        &self,
        persistence: Persistence,
        command: impl Fn() -> LogFuture<T>,
    ) -> Result<T, AuditError> {
        let mut waits = WAITS.into_iter();
        loop {
            let answer = command();
            failpoint::pass("submitted");
            let error = match answer.await {
                Ok(answer) => {
                    if persistence != Persistence::WhileReadable {
                        self.context.note_unwritable(false);
                    }
                    return Ok(answer);
                }
                Err(error) if is_retried(error.kind()) => error,
                Err(error) => return Err(error),
            };
            let waits_again = persistence == Persistence::Always || !self.context.is_unwritable();
            let Some(wait) = waits.next().filter(|_| waits_again) else {
                self.context.note_unwritable(true);
                return Err(error);
            };
            // The writer has logged a warning about it.
            tracing::info!(target: "cofferdam::audit", audit_id = self.audit_id.as_str(), %error, "the audit log is tried again in {} s", wait.as_secs());
            self.is_between_tries.store(true, Ordering::Relaxed);
            self.clock.sleep_until(self.clock.now() + wait).await;
            self.is_between_tries.store(false, Ordering::Relaxed);
        }
    }
}

/// True if a write that failed for this reason is retried. A damaged log counts, too: an operator may be repairing
/// it.
const fn is_retried(kind: AuditErrorKind) -> bool {
    // The next call is written to whichever file is there then. This one is not.
    !matches!(
        kind,
        AuditErrorKind::Replaced
            | AuditErrorKind::TooNew
            | AuditErrorKind::Lost
            | AuditErrorKind::ClockBehind
    )
}

/// Returns the outcome of a call that has no failure and no error.
fn bare(status: CallStatus) -> CallOutcome {
    CallOutcome { status, class: None, code: None }
}

/// Returns the outcome of a call or a step.
pub(super) fn outcome_of(error: Option<&Error>) -> CallOutcome {
    let Some(error) = error else { return bare(CallStatus::Value) };
    match error {
        Error::Failure(failure) => CallOutcome {
            class: Some(failure.class().name()),
            code: Some(failure.code().into()),
            ..bare(CallStatus::Failure)
        },
        Error::Host(error) => {
            let status = match error.kind() {
                HostErrorKind::Cancelled => CallStatus::Cancelled,
                _ => CallStatus::Refused,
            };
            CallOutcome { code: Some(error.kind().code().into()), ..bare(status) }
        }
    }
}

/// Returns the error of a call that was not run.
pub(super) fn unavailable(error: AuditError) -> HostError {
    let what = "The call was not run, since it could not be recorded";
    log_error(HostErrorKind::AuditUnavailable, what, error)
}

fn unknown(error: AuditError) -> HostError {
    let what = "The call was run, and its outcome is unknown, since it could not be recorded";
    log_error(HostErrorKind::OutcomeUnknown, what, error)
        .with_hint("Look at the service before it is called again; `cofferdam recover list` has it.")
}
