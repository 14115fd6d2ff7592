//! Tracks a running call: its attempts, its waits and its report.
//!
//! The log's targets are `cofferdam::event` (each step) and `cofferdam::record` (the end). They contain details
//! that the envelope must not have (operator notes), but neither arguments nor results.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::{CallOutcome, KeyDisposition, KeyState, OpenOutcome};
use cofferdam_core::clock::{micros, millis};
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::event::EventKind;
use cofferdam_core::event::recorded::{
    CanonicalJson, RecordedEvent, RecordedLimits, RecordedPhases, Replayed,
};
use cofferdam_core::failure::{AuditId, Failure, REPEAT_WITH_KEY, RepeatRule, sanitize_line};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_egress::resilience::RetryPlan;
use cofferdam_sandbox::{AttemptEnd, KeyWatch, RateDelay, ResultFormat, SuppressedError};
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::admit::AdmittedCall;
use super::fallback::CallCandidate;
use super::idempotency::{self, KeyContext};
use super::pipeline::{CallPipeline, CallState};
use super::recorder::{CallEnd, CallRecorder};
use super::report::{self, AttemptOutcome, AttemptReport, Report};
use super::request::Call;
use super::sealed_payload;
use super::spans;

/// The state of a running call. If it is dropped without an outcome, a cancellation is recorded.
pub(super) struct CallProgress {
    pub(super) recorder: CallRecorder,
    connector: Arc<str>,
    op: Arc<str>,
    hash: Option<Arc<str>>,
    signer: Option<Arc<str>>,
    report: Report,
    /// The start of the current wait, and its planned length.
    wait: Option<(Instant, Duration)>,
    /// True if any request of any attempt may have left.
    sent: bool,
    /// The repeat rule of the last attempt's operation.
    repeat: RepeatRule,
    /// The watch over the last attempt's requests that may take effect each time they arrive.
    key_watch: Option<Arc<KeyWatch>>,
    /// True if the last attempt's guest returned while a request was pending that may have changed something.
    left_unsafe: bool,
    /// True if another call took the call's key just before the first attempt.
    is_key_lost: bool,
    /// The phases before the next attempt.
    phases: RecordedPhases,
}

impl CallProgress {
    /// Records that a call was requested.
    pub(super) fn open(pipeline: &CallPipeline, call: &Call, audit_id: AuditId) -> Self {
        let target = call.route();
        let (connector, op) = (Arc::clone(&target.connector), Arc::clone(&target.op));
        let actor = call.actor.as_ref().unwrap_or(&pipeline.audit.settings().actor);
        let parent = call.action_context.as_ref().map(|action| &action.audit_id);
        let span = spans::call(&audit_id, &connector, &op);
        let mut report = Report::new(audit_id.clone());
        report.attempts.reserve_exact(1);
        let mut recorder = CallRecorder::open(pipeline, audit_id, target, Arc::clone(actor), parent, span);
        recorder.resumes.clone_from(&call.resumes);
        Self {
            recorder,
            connector,
            op,
            hash: None,
            signer: None,
            report,
            wait: None,
            sent: false,
            repeat: RepeatRule::Always,
            key_watch: None,
            left_unsafe: false,
            is_key_lost: false,
            phases: RecordedPhases::default(),
        }
    }

    /// Returns true if another call took the call's key just before the first attempt, and forgets that.
    pub(super) fn take_key_loss(&mut self) -> bool {
        std::mem::take(&mut self.is_key_lost)
    }

    /// Notes that another call has the key of this one, which has not begun, and returns the error. The key is then
    /// looked at again.
    pub(super) fn lose_key(&mut self) -> HostError {
        self.is_key_lost = true;
        HostError::new(HostErrorKind::InProgress, "The idempotency key is taken.")
    }

    /// Sets the recorded outcome of the call `of` as this call's outcome.
    pub(super) fn replay(&mut self, of: AuditId, idempotent: bool, partial: Option<u64>) {
        self.recorder.idempotent = idempotent;
        let replayed = Replayed { idempotent: Some(idempotent), of: of.as_str().into() };
        self.recorder.write(RecordedEvent::Replayed(replayed));
        self.recorder.notify(EventKind::Replayed { of: &of });
        spans::replayed(&self.recorder.span, &of);
        (self.report.replayed, self.report.partial) = (Some(of), partial);
    }

    /// Sets how long the admission of the next attempt took.
    pub(super) fn set_admission_time(&mut self, time: Duration) {
        self.phases.admit_us = micros(time);
    }

    /// Sets how long it took to record the beginning of the next attempt.
    pub(super) fn set_recording_time(&mut self, time: Duration) {
        self.phases.record_us = micros(time);
    }

    /// Records that a candidate was admitted.
    ///
    /// # Errors
    /// The request cannot be sealed.
    pub(super) fn admitted(
        &mut self,
        call: &Call,
        candidate: &CallCandidate<'_>,
        plan: &RetryPlan,
        admitted: &AdmittedCall<'_>,
        state: &CallState<'_>,
    ) -> Result<(), HostError> {
        let AdmittedCall { loaded, operation, credentials, limits, context, .. } = admitted;
        let recorder = &mut self.recorder;
        if let Some(credentials) = credentials {
            recorder.redactor.add_scanner(credentials.scanner());
        }
        let step = EventKind::Admitted {
            connector: candidate.connector.text(),
            hash: &loaded.hash,
            signer: loaded.signer.as_deref(),
            candidate: candidate.index,
            repeat: context.repeat_rule().max(state.strictest),
            profile: plan.profile.name(),
        };
        // The request contains the fallbacks, so it is recorded once.
        let request = (candidate.index == 0)
            .then(|| sealed_payload::request(call, &recorder.actor, &state.idempotency_key));
        let mut event = RecordedEvent::from(step);
        if let RecordedEvent::Admitted(facts) = &mut event {
            facts.arguments = request.as_ref().map(|request| recorder.redactor.recorded(request.payload()));
            let bindings = credentials.iter().flat_map(|credentials| credentials.bindings());
            facts.bindings = bindings.map(Into::into).collect();
            facts.claim = recorder.recorded_claim();
            if **candidate.connector.text() == *self.connector {
                facts.connector = None;
            }
            let key = Some(&state.idempotency_key).filter(|key| *key != recorder.audit_id.text());
            facts.idempotency_key = key.map(|key| recorder.redactor.text(key).into());
            facts.key = Some(if call.idempotency_key.is_some() { "given" } else { "minted" }.into());
            facts.limits = RecordedLimits {
                attempt_ms: Some(millis(limits.attempt_time())),
                fuel: Some(limits.fuel()),
                memory_bytes: Some(limits.memory()),
                wall_ms: millis(limits.wall_time()),
            };
            facts.op = Some(&**operation.name()).filter(|op| *op != &*self.op).map(Into::into);
        }
        if let Some(request) = request {
            recorder.seal_request(request.text)?;
        }
        recorder.write(event);
        recorder.notify(step);
        Ok(())
    }

    /// Sets the package of the current candidate.
    pub(super) fn set_package(&mut self, hash: Arc<str>, signer: Option<Arc<str>>) {
        self.hash = Some(hash);
        self.signer = signer;
    }

    /// Sets the key that the attempts carry.
    pub(super) fn set_key(&mut self, key: &Arc<str>) {
        self.report.idempotency_key = Some(Arc::clone(key));
    }

    /// Sets the watch over the attempt's requests.
    pub(super) fn set_key_watch(&mut self, key_watch: &Arc<KeyWatch>) {
        self.key_watch = Some(Arc::clone(key_watch));
    }

    /// Returns the number of attempts that were begun.
    pub(super) fn attempts(&self) -> u32 {
        u32::try_from(self.report.attempts.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of attempts of this candidate, and whether any byte of their requests may have left.
    pub(super) fn attempts_of(&self, candidate: u32) -> (usize, bool) {
        let own = self.report.attempts.iter().filter(|attempt| attempt.candidate == candidate);
        // For an attempt that ended without a failure it is unknown.
        own.fold((0, false), |(attempts, sent), attempt| match &attempt.outcome {
            Some(AttemptOutcome::Failure { request_sent, .. }) => (attempts + 1, sent || *request_sent),
            _ => (attempts + 1, true),
        })
    }

    /// Returns the number of retries of this candidate.
    pub(super) fn retries_of(&self, candidate: u32) -> u32 {
        u32::try_from(self.attempts_of(candidate).0).unwrap_or(u32::MAX).saturating_sub(1)
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
        let attempt = self.attempts().saturating_add(1);
        let step = EventKind::AttemptStarted { connector, op, candidate, attempt };
        // The requests of an interrupted attempt are unknown. So only an operation that may always be repeated
        // counts as idempotent.
        self.recorder.idempotent = repeat.max(strictest) == RepeatRule::Always;
        (self.repeat, self.key_watch) = (repeat, None);
        self.recorder.write(step.into());
        match self.recorder.commit().await? {
            OpenOutcome::Started => {}
            // The interrupted call was one that may be repeated, and this one is not.
            OpenOutcome::KeyInUse(KeyState::Unknown { audit_id }) => {
                return Err(idempotency::unknown(&audit_id));
            }
            OpenOutcome::KeyInUse(_) => return Err(self.lose_key()),
            OpenOutcome::AlreadyResolved => {
                let message =
                    "The call that was to be done again was decided about meanwhile. Nothing was run.";
                return Err(HostError::new(HostErrorKind::Conflict, message));
            }
        }
        self.recorder.notify(step);
        self.report.attempts.push(AttemptReport {
            connector: Arc::clone(connector),
            op: Arc::clone(op),
            candidate,
            profile: Arc::clone(profile),
            outcome: None,
            usage: None,
            aborted_on_return: Vec::new(),
            waited_ms: None,
            unkeyed: None,
            relies_on_key: false,
        });
        Ok(())
    }

    /// Runs an attempt to its end, and records the delays of its requests as they begin.
    pub(super) async fn record_delays<E>(
        &mut self,
        mut attempt: Pin<&mut impl Future<Output = E>>,
        delays: Option<mpsc::UnboundedReceiver<RateDelay>>,
    ) -> E {
        let Some(mut delays) = delays else { return attempt.await };
        loop {
            tokio::select! {
                biased;
                Some(RateDelay { host, delay }) = delays.recv() => {
                    self.recorder.step(EventKind::RateDelayed { host: &host, delay });
                }
                ended = &mut attempt => return ended,
            }
        }
    }

    /// Records that the attempt is over.
    pub(super) fn attempt_ended<A>(&mut self, connector: &str, ended: &AttemptEnd<A>) {
        let error = ended.outcome.as_ref().err();
        let (failure, refused) = match error {
            Some(Error::Failure(failure)) => (Some(failure), None),
            Some(Error::Host(error)) => (None, Some(error.kind().code())),
            None => (None, None),
        };
        if let Some(attempt) = self.report.attempts.last_mut() {
            attempt.usage = Some(ended.usage);
            attempt.unkeyed.clone_from(&ended.effects.unkeyed);
            attempt.relies_on_key = ended.effects.relies_on_key;
            attempt.aborted_on_return.clone_from(&ended.aborted_on_return);
            attempt.outcome = Some(match error {
                None => AttemptOutcome::Value,
                Some(Error::Failure(failure)) => AttemptOutcome::Failure {
                    class: failure.class(),
                    code: failure.code().to_owned(),
                    cause: failure.cause(),
                    request_sent: ended.request_sent,
                },
                Some(Error::Host(error)) => AttemptOutcome::Refused { code: error.kind().code() },
            });
        }
        for SuppressedError { at, by, reason, cause } in &ended.suppressed {
            self.recorder.step(EventKind::Suppressed { at: *at, by: *by, reason, cause });
        }
        self.report.partial = ended.missing();
        self.sent |= ended.request_sent;
        self.left_unsafe = ended.aborted_on_return.iter().any(|request| request.unsafe_sent);
        let (attempt, usage) = (self.attempts(), &ended.usage);
        let step = EventKind::AttemptEnded { connector, attempt, failure, refused, usage };
        let view = error.map(|error| report::error_view(error, &self.recorder.redactor));
        let view = view.map(|view| report::recorded_view(view, None));
        let mut event = RecordedEvent::from(step);
        if let RecordedEvent::AttemptEnded(facts) = &mut event {
            facts.aborted_on_return.clone_from(&ended.aborted_on_return);
            if *connector == *self.connector {
                facts.connector = None;
            }
            facts.failure = view.as_ref().and_then(CanonicalJson::new);
            facts.phases = RecordedPhases {
                guest_us: micros(usage.wall_time.saturating_sub(ended.instantiated_after)),
                instantiate_us: micros(ended.instantiated_after),
                ..std::mem::take(&mut self.phases)
            };
            facts.request_sent = Some(ended.request_sent);
            (facts.log, facts.log_omitted) = self.recorder.redactor.log(&ended.log);
            facts.requests = ended.requests.iter().map(|it| self.recorder.redactor.request(it)).collect();
            facts.unkeyed.clone_from(&ended.effects.unkeyed);
        }
        self.recorder.write(event);
        self.recorder.attempt_failure = view.map(|view| (attempt, view));
        self.recorder.notify(step);
    }

    /// Records that the call waits for this long after its last attempt, unless it is cancelled. The earlier events
    /// are submitted first, so that they are recorded whatever happens during the wait.
    pub(super) fn wait_starts(
        &mut self,
        now: Instant,
        delay: Duration,
        step: EventKind<'_>,
        candidate: u32,
        jitter: i64,
    ) {
        self.wait = Some((now, delay));
        let mut event = RecordedEvent::from(step);
        if let RecordedEvent::RetryScheduled(facts) = &mut event {
            (facts.candidate, facts.jitter_us) = (candidate, jitter);
        }
        self.recorder.write(event);
        self.recorder.notify(step);
        self.recorder.submit();
    }

    /// Records that the wait is over, if there is one.
    pub(super) fn wait_ended(&mut self, now: Instant) {
        let Some((since, delay)) = self.wait.take() else { return };
        let waited = now.saturating_duration_since(since).min(delay);
        if let Some(attempt) = self.report.attempts.last_mut() {
            attempt.waited_ms = Some(millis(waited));
        }
    }

    /// Writes the end, and returns the outcome with the report once that is durable.
    pub(super) async fn close<A: ResultFormat>(
        &mut self,
        call: &Call,
        outcome: Result<A, Error>,
    ) -> (Result<A, Error>, Report) {
        let outcome = outcome.map_err(|error| match error {
            Error::Failure(failure) if self.attempts() > 0 => self.of_whole_call(call, failure).into(),
            Error::Host(error) if error.kind() == HostErrorKind::Cancelled => {
                self.of_cancelled_call(call, error).into()
            }
            error => error,
        });
        let key = self.key_context().key(&outcome);
        let is_kept = call.idempotency_key.is_some() && matches!(key, KeyDisposition::Retain(_));
        let outcome = outcome.map_err(|error| match error {
            Error::Failure(failure) if is_kept && is_called_again(&failure) => failure.with_kept_key().into(),
            error => error,
        });
        let retried = Some(self.report.retried());
        let (mut end, operator) = self.recorder.end(&outcome, self.attempts(), key, retried);
        match &self.report.replayed {
            // The outcome is recorded with the call that it belongs to.
            Some(of) => end.facts.replayed = Some(of.to_string().into()),
            None => {
                let payload = sealed_payload::outcome(&outcome, self.report.partial, BTreeMap::new());
                self.recorder.add_result(&mut end, payload);
            }
        }
        if matches!(&outcome, Err(Error::Host(error)) if error.kind() == HostErrorKind::OpNotFound) {
            self.recorder.clear_operation();
        }
        self.report.operator = operator;
        let span = self.recorder.span.clone();
        let (closed, notified) = self.recorder.close(end).instrument(span).await;
        self.notify_end(&notified, outcome.as_ref().err().filter(|_| closed.is_ok()));
        self.report.secrets = self.recorder.redactor.known();
        let report = std::mem::replace(&mut self.report, Report::new(self.recorder.audit_id.clone()));
        (closed.map_err(Error::from).and(outcome), report)
    }

    /// Returns the failure as the envelope of the whole call: an earlier attempt may have sent a request even if the
    /// last one did not.
    fn of_whole_call(&mut self, call: &Call, failure: Failure) -> Failure {
        let failure = failure.with_request_sent(self.sent);
        if call.idempotency_key.is_some() || !self.sent || !idempotency::may_end_otherwise(&failure) {
            return failure;
        }
        match self.may_be_repeated() {
            true if !self.report.relies_on_key() => failure,
            true => failure.with_minted_key(self.minted_key(call)),
            false => failure.with_minted_key(None),
        }
    }

    /// Returns the error of a cancelled call with the key under which the call may be made again, if its effect relies
    /// on that key.
    fn of_cancelled_call(&mut self, call: &Call, error: HostError) -> HostError {
        // This ends the watch over an attempt that was cancelled.
        let may_be_repeated = self.may_be_repeated();
        match self.minted_key(call).filter(|_| may_be_repeated && self.report.relies_on_key()) {
            Some(key) => error.detail(REPEAT_WITH_KEY, key).with_hint(format!(
                "Look at the service before it is called again, or make the same call under the idempotency key {key} \
                 alone."
            )),
            None => error,
        }
    }

    /// Returns the key that the host made for the call. None if no other call can be made under it.
    fn minted_key(&self, call: &Call) -> Option<&str> {
        // The key is checked against the sealed request. A step is not called alone, and a call that resumes another
        // one carries the key of that.
        let is_alone = call.action_context.is_none() && call.resumes.is_none();
        let may_be_given = call.idempotency_key.is_none() && is_alone && self.recorder.keeps_request();
        may_be_given.then(|| self.recorder.audit_id.as_str())
    }

    /// True if the operation may be repeated after its last attempt, which is over. Earlier attempts were followed
    /// by another one, so they sent no unkeyed request.
    fn may_be_repeated(&mut self) -> bool {
        if let (Some(watch), Some(attempt)) = (&self.key_watch, self.report.attempts.last_mut()) {
            let effects = watch.close();
            (attempt.unkeyed, attempt.relies_on_key) = (effects.unkeyed, effects.relies_on_key);
        }
        match self.repeat {
            RepeatRule::Always => true,
            RepeatRule::UnlessUnkeyed => {
                self.report.attempts.last().is_none_or(|attempt| attempt.unkeyed.is_none())
            }
            RepeatRule::Never => false,
        }
    }

    /// Returns the facts that decide about the call's key.
    fn key_context(&mut self) -> KeyContext {
        KeyContext {
            idempotent: self.may_be_repeated(),
            attempts: self.report.attempts.len(),
            all_ended: self.report.attempts.iter().all(|attempt| attempt.outcome.is_some()),
            sent: self.sent,
            left_unsafe: self.left_unsafe,
            until: self.recorder.key_expiry(),
        }
    }

    /// Notifies the log, which gets one line, and the listener of the end.
    fn notify_end(&mut self, outcome: &CallOutcome, error: Option<&Error>) {
        self.recorder.notify_end(outcome, error.and_then(Error::prompt));
        let failure = error.and_then(Error::failure);
        let notes = match error {
            Some(Error::Failure(failure)) => failure.operator_notes().to_vec(),
            Some(Error::Host(error)) => {
                error.source().map(|source| format!("cause: {source}")).into_iter().collect()
            }
            None => Vec::new(),
        };
        let (report, usage) = (&self.report, self.report.last_usage());
        let detail = |key: &str| failure.and_then(|failure| failure.details().get(key));
        tracing::info!(
            target: "cofferdam::record",
            audit_id = report.audit_id.as_str(),
            connector = &*self.connector,
            hash = self.hash.as_deref(),
            signer = self.signer.as_deref(),
            unsigned = self.hash.is_some() && self.signer.is_none(),
            op = &*self.op,
            profile = report.attempts.last().map(|attempt| &*attempt.profile),
            attempts = report.attempts.len(),
            retried = report.retried(),
            answered_by = report.answered_instead().map(|attempt| &*attempt.connector),
            outcome = outcome.status.name(),
            class = outcome.class,
            code = outcome.code.as_deref(),
            partial = report.partial,
            retry_stopped = detail("retry_stopped").and_then(|word| word.as_str()),
            limit = detail("limit").and_then(|limit| limit.as_str()),
            configured = detail("configured").and_then(|amount| amount.as_u64()),
            used = detail("used").and_then(|amount| amount.as_u64()),
            fuel = usage.map(|usage| usage.fuel),
            fuel_limit = usage.map(|usage| usage.limits.fuel()),
            memory_bytes = usage.map(|usage| usage.memory),
            memory_limit_bytes = usage.map(|usage| usage.limits.memory()),
            host_memory_bytes = usage.map(|usage| usage.host_memory),
            memory_grows = usage.map(|usage| usage.memory_grows),
            wall_us = usage.map(|usage| usage.wall_us()),
            wall_limit_ms = usage.map(|usage| usage.wall_limit_ms()),
            requests = usage.map(|usage| usage.requests),
            bytes_out = usage.map(|usage| usage.bytes_out),
            bytes_in = usage.map(|usage| usage.bytes_in),
            log_lines = usage.map(|usage| usage.log_lines),
            log_lines_dropped = usage.map(|usage| usage.log_lines_dropped),
            stdio_bytes = usage.map(|usage| usage.stdio_bytes),
            stdio_bytes_dropped = usage.map(|usage| usage.stdio_bytes_dropped),
            // One call is one line, whatever a guest wrote.
            notes = (!notes.is_empty()).then(|| sanitize_line(&notes.join("; "), usize::MAX)),
            "call"
        );
    }
}

impl Drop for CallProgress {
    fn drop(&mut self) {
        if self.recorder.is_over {
            return;
        }
        let key = self.key_context().key_without_outcome();
        let mut end = CallEnd::cancelled(self.attempts(), key, Some(self.report.retried()));
        self.recorder.cancel(&mut end);
        self.notify_end(&end.outcome, None);
        self.recorder.abandon(end);
    }
}

/// True if the failure seems to say that another call may end otherwise.
fn is_called_again(failure: &Failure) -> bool {
    idempotency::may_end_otherwise(failure) || failure.details().contains_key("retry_after_ms")
}
