//! Tracks a running call: its events for the audit log, the log and the listeners, and its report.
//!
//! The log's targets are `cofferdam::event` (each step) and `cofferdam::record` (the end). They contain details
//! that the envelope must not have (operator notes), but neither arguments nor results.

mod repeats;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::{CallOutcome, CallStatus, KeyDisposition, KeyState, OpenOutcome, Part};
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::event::recorded::{
    CanonicalJson, Ended, Received, RecordedEvent, RecordedLimits, RecordedPhases, Replayed,
};
use cofferdam_core::event::{EventKind, Listener};
use cofferdam_core::failure::{AuditId, RecoveryPrompt, RepeatRule};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_sandbox::{AttemptEnd, ResultFormat, SuppressedError, UnkeyedWatch};
use tracing::{Instrument as _, Span};

use super::idempotency;
use super::kept;
use super::on_record::{End, OnRecord, verdict};
use super::redact::FieldRedactor;
use super::report;
use super::report::{AttemptOutcome, AttemptReport, Report};
use super::spans;
use super::tell::{self, Who, tell};
use super::told::AdmittedFacts;

/// The state of a running call. If it is dropped without an outcome, it records a cancellation.
pub(super) struct Record {
    connector: Arc<str>,
    op: Arc<str>,
    on_record: OnRecord,
    hash: Option<Arc<str>>,
    signer: Option<Arc<str>>,
    listener: Option<Arc<dyn Listener>>,
    seq: u32,
    /// The start of the current wait, and its planned length.
    wait: Option<(Instant, Duration)>,
    report: Option<Report>,
    /// The span of the whole call.
    span: Span,
    /// True if any request of any attempt may have left.
    sent: bool,
    /// The repeat rule of the last attempt's operation, and the watch over that attempt's unkeyed requests.
    repeat: (RepeatRule, Option<Arc<UnkeyedWatch>>),
    /// True if the last attempt's guest returned while a request was pending that may have changed something.
    left_unsafe: bool,
    redactor: FieldRedactor,
    /// The state of the call's key, if another call took it first.
    taken: Option<KeyState>,
    /// The verdict, once the end is written.
    ended: Option<CallOutcome>,
    /// The phases before the next attempt.
    phases: RecordedPhases,
}

impl Record {
    pub(super) fn open(
        audit_id: AuditId,
        (connector, op): (Arc<str>, Arc<str>),
        parent: Option<&AuditId>,
        on_record: OnRecord,
        listener: Option<Arc<dyn Listener>>,
    ) -> Self {
        let span = spans::call(&audit_id, &connector, &op);
        let (own, report) = ((Arc::clone(&connector), Arc::clone(&op)), Report::new(audit_id));
        let redactor = FieldRedactor::new(on_record.recording().settings().field_bytes);
        let mut record = Self {
            connector,
            op,
            on_record,
            hash: None,
            signer: None,
            listener,
            seq: 0,
            wait: None,
            report: Some(report),
            span,
            sent: false,
            repeat: (RepeatRule::Always, None),
            left_unsafe: false,
            redactor,
            taken: None,
            ended: None,
            phases: RecordedPhases::default(),
        };
        let route = record.on_record.route();
        let (action, step) = (route.action.clone(), route.step.clone());
        let actor = Arc::clone(record.on_record.actor());
        let received = Received {
            action: action.as_deref().map(Cow::from),
            actor: (&*actor).into(),
            connector: (&*own.0).into(),
            op: (&*own.1).into(),
            parent: parent.map(|action| action.as_str().into()),
            step: step.as_deref().map(Cow::from),
        };
        record.write_down(RecordedEvent::Received(received));
        record.tell(EventKind::Received { connector: &own.0, op: &own.1 });
        record
    }

    /// Returns the part of the call that is written to the audit log.
    pub(super) fn on_record(&mut self) -> &mut OnRecord {
        &mut self.on_record
    }

    /// Returns the redactor for the call's audit entries.
    pub(super) fn redactor(&mut self) -> &mut FieldRedactor {
        &mut self.redactor
    }

    /// Returns the state of the call's key, if another call took it just before the first attempt.
    pub(super) fn taken(&mut self) -> Option<KeyState> {
        self.taken.take()
    }

    /// Sets the recorded outcome of the call `of` as this call's outcome.
    pub(super) fn replays(&mut self, of: AuditId, idempotent: bool, partial: Option<u64>) {
        self.on_record.idempotent(idempotent);
        let replayed = Replayed { idempotent: Some(idempotent), of: of.as_str().into() };
        self.write_down(RecordedEvent::Replayed(replayed));
        self.tell(EventKind::Replayed { of: &of });
        spans::replayed(&self.span, &of);
        if let Some(report) = &mut self.report {
            (report.replayed, report.partial) = (Some(of), partial);
        }
    }

    /// Sets how long the admission of the next attempt took.
    pub(super) fn admission_took(&mut self, time: Duration) {
        self.phases.admit_us = micros(time);
    }

    /// Sets how long it took to record the beginning of the next attempt.
    pub(super) fn recording_took(&mut self, time: Duration) {
        self.phases.record_us = micros(time);
    }

    /// Records that a candidate was admitted.
    ///
    /// # Errors
    /// The request cannot be sealed.
    pub(super) fn admitted(
        &mut self,
        step: EventKind<'_>,
        facts: AdmittedFacts<'_>,
    ) -> Result<(), HostError> {
        let AdmittedFacts { bindings, limits, key, key_given, request } = facts;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut event = RecordedEvent::from(step);
        if let RecordedEvent::Admitted(admitted) = &mut event {
            admitted.arguments = request.as_ref().map(|request| self.redactor.recorded(request.payload()));
            admitted.bindings = bindings.into_iter().map(Cow::from).collect();
            admitted.claim = self.on_record.claimed();
            admitted.idempotency_key = Some(self.redactor.text(key).into());
            admitted.key = Some(if key_given { "given" } else { "minted" }.into());
            admitted.limits = RecordedLimits {
                attempt_ms: Some(millis(limits.attempt_time())),
                fuel: Some(limits.fuel()),
                memory_bytes: Some(limits.memory()),
                wall_ms: millis(limits.wall_time()),
            };
        }
        if let Some(request) = request {
            self.on_record.keeps(request.text)?;
        }
        self.write_down(event);
        self.tell(step);
        Ok(())
    }

    /// Returns the span of the whole call.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(super) fn identified(&mut self, hash: Arc<str>, signer: Option<Arc<str>>) {
        self.hash = Some(hash);
        self.signer = signer;
    }

    pub(super) fn keyed(&mut self, key: &Arc<str>) {
        if let Some(report) = &mut self.report {
            report.idempotency_key = Some(Arc::clone(key));
        }
    }

    /// Returns the number of attempts that were begun.
    pub(super) fn attempts(&self) -> usize {
        self.report.as_ref().map_or(0, |report| report.attempts.len())
    }

    /// Returns the number of attempts of this candidate, and whether any byte of their requests may have left.
    pub(super) fn attempts_of(&self, candidate: u32) -> (usize, bool) {
        let all = self.report.iter().flat_map(|report| &report.attempts);
        let own = all.filter(|attempt| attempt.candidate == candidate);
        // For an attempt that ended without a failure it is unknown.
        own.fold((0, false), |(attempts, sent), attempt| match &attempt.outcome {
            Some(AttemptOutcome::Failure { request_sent, .. }) => (attempts + 1, sent || *request_sent),
            _ => (attempts + 1, true),
        })
    }

    /// Records that an attempt begins. The attempt may be made once this returns.
    ///
    /// # Errors
    /// It could not be written, so the attempt must not be made.
    pub(super) async fn attempt_starts(
        &mut self,
        connector: &Arc<str>,
        op: &Arc<str>,
        candidate: u32,
        profile: &Arc<str>,
        (repeat, strictest): (RepeatRule, RepeatRule),
    ) -> Result<(), HostError> {
        let attempt = self.number().saturating_add(1);
        let step = EventKind::AttemptStarted { connector, op, candidate, attempt };
        // The requests of an interrupted attempt are unknown. So only an operation that may always be repeated
        // counts as idempotent.
        self.on_record.idempotent(repeat.max(strictest) == RepeatRule::Always);
        self.repeat = (repeat, None);
        self.write_down(step.into());
        let durable = spans::recording(self.on_record.durable()).await;
        if durable.is_err() {
            self.seq = self.seq.saturating_sub(1);
        }
        match durable? {
            OpenOutcome::Started => {}
            OpenOutcome::KeyInUse(standing) => {
                self.seq = self.seq.saturating_sub(1);
                self.taken = Some(standing);
                return Err(HostError::new(HostErrorKind::InProgress, "The idempotency key is taken."));
            }
            OpenOutcome::AlreadyResolved => {
                self.seq = self.seq.saturating_sub(1);
                let message =
                    "The call that was to be done again was decided about meanwhile. Nothing was run.";
                return Err(HostError::new(HostErrorKind::Conflict, message));
            }
        }
        self.tell(step);
        if let Some(report) = &mut self.report {
            report.attempts.push(AttemptReport {
                connector: Arc::clone(connector),
                op: Arc::clone(op),
                candidate,
                profile: Arc::clone(profile),
                outcome: None,
                usage: None,
                aborted_on_return: Vec::new(),
                waited_ms: None,
                unkeyed: None,
            });
        }
        Ok(())
    }

    pub(super) fn attempt_ended<A>(&mut self, connector: &str, ended: &AttemptEnd<A>) {
        let failure = match &ended.outcome {
            Err(Error::Failure(failure)) => Some(failure),
            _ => None,
        };
        if let Some(attempt) = self.report.as_mut().and_then(|report| report.attempts.last_mut()) {
            attempt.usage = Some(ended.usage);
            attempt.unkeyed.clone_from(&ended.unkeyed);
            attempt.aborted_on_return.clone_from(&ended.aborted_on_return);
            attempt.outcome = Some(match &ended.outcome {
                Ok(_) => AttemptOutcome::Value,
                Err(Error::Failure(failure)) => AttemptOutcome::Failure {
                    class: failure.class(),
                    code: failure.code().to_owned(),
                    cause: failure.cause(),
                    request_sent: ended.request_sent,
                },
                Err(Error::Host(error)) => AttemptOutcome::Refused { code: error.kind().code() },
            });
        }
        for SuppressedError { at, by, reason, cause } in &ended.suppressed {
            self.step(EventKind::Suppressed { at: *at, by: *by, reason, cause });
        }
        if let Some(report) = &mut self.report {
            report.partial = ended.missing();
        }
        self.sent |= ended.request_sent;
        self.left_unsafe = ended.aborted_on_return.iter().any(|request| request.unsafe_sent);
        let attempt = self.number();
        let refused = match &ended.outcome {
            Err(Error::Host(error)) => Some(error.kind().code()),
            _ => None,
        };
        let usage = &ended.usage;
        let step = EventKind::AttemptEnded { connector, attempt, failure, refused, usage };
        let mut event = RecordedEvent::from(step);
        if let RecordedEvent::AttemptEnded(facts) = &mut event {
            facts.aborted_on_return.clone_from(&ended.aborted_on_return);
            let error = ended.outcome.as_ref().err();
            facts.failure =
                error.and_then(|error| CanonicalJson::new(&report::error_view(error, &self.redactor)));
            facts.phases = RecordedPhases {
                guest_us: micros(usage.wall_time.saturating_sub(ended.instantiated_after)),
                instantiate_us: micros(ended.instantiated_after),
                ..std::mem::take(&mut self.phases)
            };
            facts.request_sent = Some(ended.request_sent);
            facts.unkeyed.clone_from(&ended.unkeyed);
        }
        self.write_down(event);
        self.tell(step);
    }

    /// Records that the call waits for this long after its last attempt, unless it is cancelled. The earlier events
    /// are submitted first, so that they are recorded whatever happens during the wait.
    pub(super) fn waits(
        &mut self,
        now: Instant,
        delay: Duration,
        step: EventKind<'_>,
        of_candidate: u32,
        jitter: i64,
    ) {
        self.wait = Some((now, delay));
        let mut event = RecordedEvent::from(step);
        if let RecordedEvent::RetryScheduled(facts) = &mut event {
            (facts.candidate, facts.jitter_us) = (of_candidate, jitter);
        }
        self.write_down(event);
        self.tell(step);
        self.on_record.soon();
    }

    /// Records that the wait is over, if there is one.
    pub(super) fn waited(&mut self, now: Instant) {
        let Some((since, delay)) = self.wait.take() else { return };
        let waited = now.saturating_duration_since(since).min(delay);
        if let Some(attempt) = self.report.as_mut().and_then(|report| report.attempts.last_mut()) {
            attempt.waited_ms = Some(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        }
    }

    /// Records one step.
    pub(super) fn step(&mut self, step: EventKind<'_>) {
        let mut event = RecordedEvent::from(step);
        if let RecordedEvent::Suppressed(facts) = &mut event {
            facts.cause = self.redactor.text(&facts.cause).into();
            facts.reason = self.redactor.text(&facts.reason).into();
        }
        self.write_down(event);
        self.tell(step);
    }

    fn write_down(&mut self, event: RecordedEvent<'_>) {
        self.seq = self.seq.saturating_add(1);
        self.on_record.event(self.seq, event);
    }

    fn tell(&self, step: EventKind<'_>) {
        if let Some(report) = &self.report {
            tell(&report.audit_id, self.seq, self.listener.as_deref(), step);
        }
    }

    /// Writes the end, and returns the outcome with the report once that is durable.
    pub(super) async fn close<A: ResultFormat>(
        mut self,
        outcome: Result<A, Error>,
    ) -> (Result<A, Error>, Report) {
        // An envelope describes the whole call: an earlier attempt may have sent a request even if the last one did
        // not.
        let outcome = outcome.map_err(|error| match error {
            Error::Failure(failure) if self.attempts() > 0 => failure.with_request_sent(self.sent).into(),
            error => error,
        });
        let (partial, replayed) =
            self.report.as_ref().map_or((None, None), |report| (report.partial, report.replayed.clone()));
        let (mut end, mut sealed) = (Ended::default(), None);
        match &replayed {
            // The outcome is recorded with the call that it belongs to.
            Some(of) => end.replayed = Some(of.as_str().into()),
            None => {
                let whole = kept::outcome(&outcome, partial);
                end.result = Some(self.redactor.recorded_outcome(whole.payload(), outcome.is_ok()));
                // The caller of a call that was not admitted gets its error even if it cannot be sealed.
                sealed = self.on_record.sealed(Part::Outcome, whole.text).ok().flatten();
            }
        }
        let (attempts, key) = (self.number(), self.done().key(&outcome));
        let verdict = match &outcome {
            Ok(_) => self.write(CallStatus::Value, None, None, None, key, end),
            Err(error) => {
                let mut view = report::error_view(error, &self.redactor);
                let retried = self.report.as_ref().map_or(0, Report::retried);
                view.insert("retried".to_owned(), retried.into());
                view.insert("actor".to_owned(), (**self.on_record.actor()).into());
                view.insert("at".to_owned(), self.on_record.now().to_string().into());
                if let Some(report) = &mut self.report {
                    report.operator = Some(view.clone());
                }
                end.failure = CanonicalJson::new(&view);
                self.write_error(error, key, end)
            }
        };
        let told = verdict.clone();
        let end = End { attempts, verdict, key, outcome: sealed };
        let span = self.span.clone();
        let closed = match &outcome {
            // Nothing was done, so the error is returned even if it cannot be recorded.
            Err(_) if attempts == 0 => {
                let told = spans::recording(self.on_record.close_once(end)).instrument(span).await;
                told.or(Ok(()))
            }
            _ => spans::recording(self.on_record.close(end)).instrument(span).await,
        };
        spans::called(&self.span, attempts, &told, closed.as_ref().err());
        // Listeners are notified of the caller's result, and only after it is durable.
        match &closed {
            Ok(()) => self.told(&told, outcome.as_ref().err()),
            Err(error) => {
                let refused = CallOutcome {
                    code: Some(error.kind().code().into()),
                    ..super::on_record::verdict(CallStatus::Refused)
                };
                self.told(&refused, None);
            }
        }
        let mut report = self.report.take().unwrap_or_else(|| Report::new(AuditId::mint()));
        report.secrets = self.redactor.known();
        // An outcome that is not recorded is not returned.
        (closed.map_err(Error::from).and(outcome), report)
    }

    fn write_error(&mut self, error: &Error, key: KeyDisposition, end: Ended<'_>) -> CallOutcome {
        let prompt = error.prompt();
        match error {
            Error::Failure(failure) => {
                let class = Some(failure.class().name());
                self.write(CallStatus::Failure, class, Some(failure.code()), prompt, key, end)
            }
            Error::Host(error) => {
                if error.kind() == HostErrorKind::OpNotFound {
                    self.on_record.has_no_operation();
                }
                let status = match error.kind() {
                    HostErrorKind::Cancelled => CallStatus::Cancelled,
                    _ => CallStatus::Refused,
                };
                self.write(status, None, Some(error.kind().code()), prompt, key, end)
            }
        }
    }

    fn number(&self) -> u32 {
        u32::try_from(self.attempts()).unwrap_or(u32::MAX)
    }

    /// Writes the events of the end.
    fn write(
        &mut self,
        status: CallStatus,
        class: Option<&'static str>,
        code: Option<&str>,
        prompt: Option<RecoveryPrompt>,
        key: KeyDisposition,
        end: Ended<'_>,
    ) -> CallOutcome {
        self.write_down(RecordedEvent::Final(Ended {
            attempts: self.report.is_some().then(|| self.number()),
            class: class.map(Cow::from),
            code: code.map(Cow::from),
            key_end: self.on_record.claimed().map(|_| idempotency::recorded_key_end(key)),
            prompt: prompt.map(|prompt| prompt.name().into()),
            retried: self.report.as_ref().map(Report::retried),
            status: status.name().into(),
            ..end
        }));
        let verdict = CallOutcome { class, code: code.map(Arc::from), ..verdict(status) };
        self.ended = Some(verdict.clone());
        verdict
    }

    /// Notifies the log and the listener of the end.
    fn told(&self, verdict: &CallOutcome, error: Option<&Error>) {
        let (outcome, class, prompt) = (verdict.status.name(), verdict.class, error.and_then(Error::prompt));
        self.tell(EventKind::Final { outcome, class, code: verdict.code.as_deref(), prompt });
        let Some(report) = &self.report else { return };
        let who = Who {
            connector: &self.connector,
            op: &self.op,
            hash: self.hash.as_deref(),
            signer: self.signer.as_deref(),
        };
        tell::end(report, who, verdict, error);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.report.is_some() {
            let (attempts, key) = (self.number(), self.done().key_without_outcome());
            // There is only one end. If it is written already, its waiter was dropped.
            let verdict = match self.ended.take() {
                Some(verdict) => verdict,
                None => self.write(CallStatus::Cancelled, None, None, None, key, Ended::default()),
            };
            self.told(&verdict, None);
            spans::called(&self.span, attempts, &verdict, None);
            self.on_record.abandon(End { attempts, verdict, key, outcome: None });
        }
    }
}
