//! Writes a call's events to the audit log, each before its effect happens.
//!
//! A call takes two commits: its admission, before its guest runs, and its end, before any listener or caller sees
//! it. The events between are written with the next commit. A failed write is retried three times, after 2, 4 and 6
//! seconds; then nothing runs. Calls that arrive while the log is known to be unwritable try once and fail at once.

use cofferdam_core::event::recorded::{EventLine, EventText, RecordedClaim, RecordedEvent};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::{
    AuditError, AuditErrorKind, CallOutcome, CallStatus, CallTarget, CloseCall, Entry, KeyClaim,
    KeyDisposition, KeyState, LogFuture, OpenCall, OpenOutcome, Part, Sealed,
};
use cofferdam_core::clock::Clock;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failpoint;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

use super::recording::Recording;

/// The delays before a write is retried.
const WAITS: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(6)];

/// The number of retries of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Persistence {
    /// Three retries, unless the log is known to be unwritable: nothing was done that has to be recorded.
    WhileWritable,
    /// Three retries: otherwise the outcome of an executed call would be lost.
    Always,
}

/// The part of a call that is written to the audit log.
pub(super) struct OnRecord {
    recording: Arc<Recording>,
    clock: Arc<dyn Clock>,
    audit_id: AuditId,
    at: Timestamp,
    since: Instant,
    route: CallTarget,
    actor: Arc<str>,
    idempotent: bool,
    claim: Option<KeyClaim>,
    resumes: Option<(AuditId, Arc<str>)>,
    request: Option<Sealed>,
    /// The events that are not written yet.
    lines: Vec<EventText>,
    beginning: Beginning,
    /// The end of the call, once its write was requested.
    ending: Option<(Option<Box<OpenCall>>, CloseCall)>,
}

/// The state of the write of a call's beginning.
enum Beginning {
    Unwritten,
    /// The write was requested and not confirmed. The same write may be requested again.
    Asked(Box<OpenCall>),
    Written,
    /// The write was requested, and the file was replaced since. The new file gets nothing of this call.
    Lost,
}

/// The end of a call.
pub(super) struct End {
    pub(super) attempts: u32,
    pub(super) verdict: CallOutcome,
    pub(super) key: KeyDisposition,
    pub(super) outcome: Option<Sealed>,
}

impl OnRecord {
    pub(super) fn new(
        recording: Arc<Recording>,
        clock: Arc<dyn Clock>,
        audit_id: AuditId,
        route: CallTarget,
        actor: Arc<str>,
    ) -> Self {
        Self {
            at: clock.timestamp(),
            since: clock.now(),
            recording,
            clock,
            audit_id,
            route,
            actor,
            idempotent: false,
            claim: None,
            resumes: None,
            request: None,
            lines: Vec::with_capacity(4),
            beginning: Beginning::Unwritten,
            ending: None,
        }
    }

    pub(super) fn recording(&self) -> &Recording {
        &self.recording
    }

    pub(super) fn actor(&self) -> &Arc<str> {
        &self.actor
    }

    pub(super) fn route(&self) -> &CallTarget {
        &self.route
    }

    /// Marks that the connector has no such operation. Its name is in the events, but calls are not listed under
    /// names that callers make up.
    pub(super) fn has_no_operation(&mut self) {
        self.route.op = "".into();
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.timestamp()
    }

    /// Returns the time until which an outcome that is written now is kept for its key.
    pub(super) fn key_stands_until(&self) -> Timestamp {
        let ttl = self.recording.settings().key_ttl;
        self.clock.timestamp().checked_add(ttl).unwrap_or(Timestamp::MAX)
    }

    /// Sets whether the call may be repeated, as soon as that is known.
    pub(super) fn idempotent(&mut self, idempotent: bool) {
        self.idempotent = idempotent;
    }

    pub(super) fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// Returns the key under which the call is to run, in the form that the audit log proves: not the key itself,
    /// which may disclose too much.
    pub(super) fn claimed(&self) -> Option<RecordedClaim> {
        let claim = self.claim.as_ref()?;
        Some(RecordedClaim {
            fingerprint: Digest::from_bytes(claim.fingerprint).to_string(),
            key_sha256: Digest::sha256(claim.key.as_bytes()).to_string(),
        })
    }

    /// Sets the key under which the call is to run.
    pub(super) fn claims(&mut self, claim: KeyClaim) {
        self.claim = Some(claim);
    }

    /// Sets the call that this one resumes, and the actor of that.
    pub(super) fn resumes(&mut self, before: Option<(AuditId, Arc<str>)>) {
        self.resumes = before;
    }

    /// Keeps everything that is needed to repeat the call.
    ///
    /// # Errors
    /// It cannot be sealed.
    pub(super) fn keeps(&mut self, request: Vec<u8>) -> Result<(), HostError> {
        self.request = self.sealed(Part::Request, request).map_err(unavailable)?;
        Ok(())
    }

    /// Seals a part of the call. None if no parts are kept.
    pub(super) fn sealed(&self, part: Part, text: Vec<u8>) -> Result<Option<Sealed>, AuditError> {
        self.recording.seal(&self.audit_id, part, text)
    }

    /// Adds one event, which is written with the next commit.
    pub(super) fn event(&mut self, seq: u32, event: RecordedEvent<'_>) {
        // The first event has the exact time of the call's beginning, to the microsecond.
        let at = if seq == 1 { self.at } else { self.clock.timestamp() };
        self.lines.push(EventLine { at, seq, event }.to_text());
    }

    /// Returns the current state of the call's key.
    ///
    /// # Errors
    /// `audit_unavailable`: the state cannot be read.
    pub(super) async fn standing(&self) -> Result<KeyState, HostError> {
        let Some(claim) = self.claim_now() else { return Ok(KeyState::Free) };
        let state = self.tried(Persistence::WhileWritable, || self.recording.log().key_state(claim.clone()));
        state.await.map_err(unavailable)
    }

    /// Writes all events so far, and returns when they are durable. If nothing was written because the call's key
    /// is taken, the last event does not happen.
    ///
    /// # Errors
    /// `audit_unavailable`: they are not durable, and the last event does not happen.
    pub(super) async fn durable(&mut self) -> Result<OpenOutcome, HostError> {
        if failpoint::skips("skip.open") {
            return Ok(OpenOutcome::Started);
        }
        if matches!(self.beginning, Beginning::Written) {
            let mut lines = std::mem::take(&mut self.lines);
            let entry = Entry::new(&self.audit_id, &lines);
            let appended = self.tried(Persistence::WhileWritable, || {
                self.recording.log().append(&self.audit_id, entry.clone())
            });
            if let Err(error) = appended.await {
                // The earlier events are written with the next commit. The announced event does not happen.
                lines.pop();
                self.lines = lines;
                return Err(unavailable(error));
            }
            failpoint::pass("append.durable");
            return Ok(OpenOutcome::Started);
        }
        let mut lines = std::mem::take(&mut self.lines);
        let mut open = self.open(Entry::new(&self.audit_id, &lines));
        open.key = self.claim_now();
        // A call that is refused before its first attempt resumes nothing. So this is set only here.
        open.resumes = self.resumes.clone();
        self.beginning = Beginning::Asked(Box::new(open.clone()));
        let opened = self.tried(Persistence::WhileWritable, || self.recording.log().open(open.clone()));
        let opened = match opened.await {
            Ok(opened) => opened,
            Err(error) => {
                // The announced event does not happen.
                lines.pop();
                open.entry = Entry::new(&self.audit_id, &lines);
                self.beginning = match error.kind() {
                    AuditErrorKind::Replaced => Beginning::Lost,
                    _ => Beginning::Asked(Box::new(open)),
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
                lines.pop();
                self.lines = lines;
                self.beginning = Beginning::Unwritten;
            }
        }
        Ok(opened)
    }

    /// Submits all events so far, without waiting.
    pub(super) fn soon(&mut self) {
        if matches!(self.beginning, Beginning::Written) && !self.lines.is_empty() {
            let entry = self.entry();
            drop(self.recording.log().append(&self.audit_id, entry));
        }
    }

    /// Writes the end of a call that did something or returns an outcome, and returns when it is durable.
    ///
    /// # Errors
    /// It is not durable: `audit_unavailable` if nothing was run, `outcome_unknown` if something was.
    pub(super) async fn close(&mut self, end: End) -> Result<(), HostError> {
        let attempts = end.attempts;
        self.ending = Some(self.end(end));
        let Some((open, close)) = &self.ending else { return Ok(()) };
        if failpoint::skips("skip.close") {
            return Ok(());
        }
        let done =
            self.tried(Persistence::Always, || self.recording.log().close(open.clone(), close.clone()));
        done.await.map_err(|error| match attempts {
            0 => unavailable(error),
            _ => unknown(error),
        })?;
        failpoint::pass("close.durable");
        Ok(())
    }

    /// Writes the end of a call that did nothing, with a single try.
    ///
    /// # Errors
    /// `audit_unavailable`: the write failed.
    pub(super) async fn close_once(&mut self, end: End) -> Result<(), HostError> {
        if matches!(self.beginning, Beginning::Lost) {
            return Ok(());
        }
        let (open, close) = self.end(end);
        self.recording.log().close(open, close).await.map_err(|error| {
            tracing::info!(target: "cofferdam::audit", audit_id = self.audit_id.as_str(), %error, "a call that was not taken up is not on record");
            unavailable(error)
        })
    }

    /// Submits the end without waiting for it: this end, unless one was submitted already.
    pub(super) fn abandon(&mut self, end: End) {
        if matches!(self.beginning, Beginning::Lost) {
            return;
        }
        let (open, close) = match self.ending.take() {
            Some(ending) => ending,
            None => self.end(end),
        };
        drop(self.recording.log().close(open, close));
    }

    fn end(&mut self, end: End) -> (Option<Box<OpenCall>>, CloseCall) {
        let taken = self.clock.now().saturating_duration_since(self.since);
        let (open, entry) = match std::mem::replace(&mut self.beginning, Beginning::Written) {
            Beginning::Written | Beginning::Lost => (None, self.entry()),
            // Another call may have claimed the key first. This call is over, so it claims none.
            Beginning::Asked(open) => {
                (Some(Box::new(OpenCall { key: None, resumes: None, ..*open })), self.entry())
            }
            // A call that was never opened is opened and closed in one write.
            Beginning::Unwritten => {
                let last = self.lines.pop();
                let begun = self.entry();
                (Some(Box::new(self.open(begun))), Entry::new(&self.audit_id, last.as_slice()))
            }
        };
        let End { attempts, verdict, key, outcome } = end;
        let close = CloseCall {
            audit_id: self.audit_id.clone(),
            at: self.clock.timestamp(),
            duration_us: u64::try_from(taken.as_micros()).unwrap_or(u64::MAX),
            attempts,
            verdict,
            key,
            entry,
            outcome,
        };
        (open, close)
    }

    fn open(&self, entry: Entry) -> OpenCall {
        OpenCall {
            audit_id: self.audit_id.clone(),
            at: self.at,
            route: self.route.clone(),
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

    fn entry(&mut self) -> Entry {
        Entry::new(&self.audit_id, &std::mem::take(&mut self.lines))
    }

    async fn tried<T>(
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
                    self.recording.note_unwritable(false);
                    return Ok(answer);
                }
                Err(error) if is_tried_again(error.kind()) => error,
                Err(error) => return Err(error),
            };
            let waits_again = persistence == Persistence::Always || !self.recording.is_unwritable();
            let Some(wait) = waits.next().filter(|_| waits_again) else {
                self.recording.note_unwritable(true);
                return Err(error);
            };
            // The writer has logged a warning about it.
            tracing::info!(target: "cofferdam::audit", audit_id = self.audit_id.as_str(), %error, "the audit log is tried again in {} s", wait.as_secs());
            self.clock.sleep_until(self.clock.now() + wait).await;
        }
    }
}

/// True if a write that failed for this reason is retried. A damaged log counts, too: an operator may be repairing
/// it.
const fn is_tried_again(kind: AuditErrorKind) -> bool {
    // The next call is written to whichever file is there then. This one is not.
    !matches!(
        kind,
        AuditErrorKind::Replaced | AuditErrorKind::TooNew | AuditErrorKind::Lost | AuditErrorKind::Decided
    )
}

/// Returns the verdict of a call that has no failure.
pub(super) fn verdict(status: CallStatus) -> CallOutcome {
    CallOutcome { status, class: None, code: None }
}

/// Returns the error of a call that was not run.
pub(super) fn unavailable(error: AuditError) -> HostError {
    let message = format!("The call was not run, since it could not be recorded: {}.", error.says());
    HostError::new(HostErrorKind::AuditUnavailable, message).with_hint(error.kind().fix()).with_source(error)
}

fn unknown(error: AuditError) -> HostError {
    let message = format!(
        "The call was run, and its outcome is unknown, since it could not be recorded: {}.",
        error.says()
    );
    HostError::new(HostErrorKind::OutcomeUnknown, message)
        .with_hint("Look at the service before it is called again; `cofferdam recover list` has it.")
        .with_source(error)
}
