//! The pipeline of one call, top to bottom: candidates, attempts, waits, and one outcome.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::{AuditLog, KeyState};
use cofferdam_core::clock::Clock;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::event::{EventKind, Listener};
use cofferdam_core::failpoint;
use cofferdam_core::failure::{AuditId, Failure, RepeatRule, RetryStopped};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_core::rng::RandomSource;
use cofferdam_core::trace::TraceCollector;
use cofferdam_egress::credentials::CredentialBroker;
use cofferdam_egress::resilience::{
    BreakerScope, CircuitStore, RateLimit, RateLimits, ResilienceSettings, RetryContext, RetryDecision,
    RetryPlan, decide,
};
use cofferdam_sandbox::{Attempt, AttemptGuards, KeyWatch, RateDelay, RateGuard, ResultFormat};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tracing::Instrument as _;

use super::admit::AdmittedCall;
use super::audit_context::AuditContext;
use super::call_progress::CallProgress;
use super::fallback::{CallCandidate, FallbackTrace, allows_fallback, error_summary};
use super::idempotency::KeyDecision;
use super::loader::PackageLoader;
use super::recorder::unavailable;
use super::report::CallResult;
use super::request::{ActionContext, Call, CallTime, Cancellation, cancelled, idempotency_key};
use super::spans;
use crate::approvals::ApprovalGate;

/// Runs calls, as many at once as there are permits.
pub(crate) struct CallPipeline {
    pub(crate) loader: PackageLoader,
    pub(crate) broker: Arc<CredentialBroker>,
    pub(crate) settings: ResilienceSettings,
    pub(crate) circuits: Arc<CircuitStore>,
    pub(super) permits: Semaphore,
    pub(crate) rates: Arc<RateLimits>,
    rng: Arc<dyn RandomSource>,
    pub(super) listener: Option<Arc<dyn Listener>>,
    pub(crate) audit: Arc<AuditContext>,
    pub(crate) approvals: ApprovalGate,
    queue: Semaphore,
    pub(super) backoff_slots: Semaphore,
}

/// The parts of a pipeline.
pub(crate) struct PipelineParts {
    pub(crate) loader: PackageLoader,
    pub(crate) broker: Arc<CredentialBroker>,
    pub(crate) settings: ResilienceSettings,
    pub(crate) circuits: Arc<CircuitStore>,
    pub(crate) rates: RateLimits,
    pub(crate) rng: Arc<dyn RandomSource>,
    pub(crate) listener: Option<Arc<dyn Listener>>,
    pub(crate) audit: AuditContext,
    pub(crate) approvals: ApprovalGate,
    pub(crate) concurrency: u32,
}

/// The number of calls that may wait for a permit, for each permit. Any further call is refused as busy.
const QUEUED_PER_PERMIT: usize = 64;

/// Returns the number of calls that may run or wait at once, for this concurrency.
pub(crate) fn waiting_calls(concurrency: u32) -> usize {
    (concurrency as usize).saturating_mul(QUEUED_PER_PERMIT.saturating_add(1))
}

/// The number of calls that may wait between two attempts, for each permit. Any further call is not retried.
const BACKOFFS_PER_PERMIT: usize = 256;

/// The end of an attempt.
enum AttemptEnd<A> {
    Value(A),
    Failed(Failure),
    /// It was not admitted, or the host could not make it.
    Refused(Error),
}

/// The state that all attempts of a call share.
pub(super) struct CallState<'p> {
    /// The queue slot of a call that runs or waits for a permit. None during the delay before a retry.
    queue_permit: Option<SemaphorePermit<'p>>,
    pub(super) audit_id: AuditId,
    pub(super) idempotency_key: Arc<str>,
    /// The time of the call. None before its first attempt was admitted.
    pub(super) time: Option<CallTime>,
    action_context: Option<ActionContext>,
    /// The strictest repeat rule of the candidates, if there are several.
    pub(super) strictest: RepeatRule,
    /// The collector of its attempts' traces.
    trace: Option<TraceCollector>,
}

impl<'p> CallState<'p> {
    /// Gives the queue slot back, for a wait that is not for a permit.
    pub(super) fn release_queue_permit(&mut self) {
        self.queue_permit = None;
    }

    /// Takes a queue slot again.
    pub(super) fn acquire_queue_permit(&mut self, pipeline: &'p CallPipeline) -> Result<(), HostError> {
        self.queue_permit = Some(pipeline.queue.try_acquire().map_err(|_| super::admit::busy())?);
        Ok(())
    }
}

impl CallPipeline {
    pub(crate) fn new(parts: PipelineParts) -> Self {
        let permits = parts.concurrency as usize;
        Self {
            loader: parts.loader,
            broker: parts.broker,
            settings: parts.settings,
            circuits: parts.circuits,
            permits: Semaphore::new(permits),
            rates: Arc::new(parts.rates),
            rng: parts.rng,
            listener: parts.listener,
            audit: Arc::new(parts.audit),
            approvals: parts.approvals,
            queue: Semaphore::new(waiting_calls(parts.concurrency)),
            backoff_slots: Semaphore::new(permits.saturating_mul(BACKOFFS_PER_PERMIT)),
        }
    }

    /// Returns the audit log that calls are recorded in.
    pub(crate) fn log(&self) -> &Arc<dyn AuditLog> {
        self.audit.log()
    }

    /// Returns the current time for audit entries.
    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.loader.clock.timestamp()
    }

    /// Runs one call. Returns its value, its failure or the error that it was refused with, and a report of its
    /// attempts. Dropping the future cancels the call.
    pub(crate) async fn run<A: ResultFormat>(&self, call: Call) -> CallResult<A> {
        let audit_id = call.audit_id.clone().unwrap_or_else(AuditId::mint);
        let mut progress = CallProgress::open(self, &call, audit_id.clone());
        failpoint::pass("received");
        let span = progress.recorder.span.clone();
        let outcome = {
            // Pinned where it is made: passing it on by value would copy kilobytes.
            let running = pin!(self.with_idempotency(&call, &audit_id, &mut progress).instrument(span));
            match &call.cancellation {
                None => Some(running.await),
                Some(cancellation) => tokio::select! {
                    biased;
                    () = cancellation.cancelled() => None,
                    outcome = running => Some(outcome),
                },
            }
        };
        let outcome = outcome.unwrap_or_else(|| {
            progress.wait_ended(self.loader.clock.now());
            Err(cancelled(progress.attempts()).into())
        });
        let of_request = |error| match error {
            Error::Host(error) => Error::Host(error.with_request_id(&audit_id)),
            failure @ Error::Failure(_) => failure,
        };
        let (outcome, report) = progress.close(&call, outcome.map_err(of_request)).await;
        CallResult { outcome, report }
    }

    /// Runs the call, unless an earlier call has its key.
    async fn with_idempotency<A: ResultFormat>(
        &self,
        call: &Call,
        audit_id: &AuditId,
        progress: &mut CallProgress,
    ) -> Result<A, Error> {
        let busy = |_| super::admit::busy();
        let mut queue_permit = Some(self.queue.try_acquire().map_err(busy)?);
        let minted = call.attempt_key.as_ref().unwrap_or(audit_id.text());
        let repeated = call.key_given().and_then(AuditId::parse);
        let key = match &repeated {
            Some(failed) => Arc::clone(failed.text()),
            None => idempotency_key(call.key_given(), minted)?,
        };
        progress.set_key(&key);
        self.audit.ready().map_err(unavailable)?;
        // A call that is resumed was checked when it was made.
        if let Some(failed) = repeated.filter(|_| call.resumes.is_none()) {
            // Boxed: such calls are rare, and the others do not carry the room for it.
            Box::pin(self.check_repeats(call, failed, &progress.recorder.actor)).await?;
        }
        let claim = self.claim(call, &key, &progress.recorder.actor);
        let Some(claim) = claim else {
            return self.chain(call, audit_id, &key, queue_permit, progress).await;
        };
        progress.recorder.claim = Some(claim);
        let mut backoff = self.poll_backoff(call);
        loop {
            let state = progress.recorder.key_state().await?;
            // A call that waits for another call's outcome gives its queue slot back.
            let own = queue_permit.take().filter(|_| matches!(state, KeyState::Free));
            match self.decide_for_key(call.if_running, state, &mut backoff).await? {
                KeyDecision::Recorded { of, idempotent, recorded } => {
                    progress.replay(of, idempotent, recorded.partial);
                    return recorded.outcome;
                }
                KeyDecision::PollAgain => {}
                KeyDecision::Own => {
                    let outcome = self.chain(call, audit_id, &key, own, progress).await;
                    if !progress.take_key_loss() {
                        return outcome;
                    }
                }
            }
            // Another call took the key first. Its outcome shows at the next check.
            queue_permit = Some(self.queue.try_acquire().map_err(busy)?);
        }
    }

    /// Tries the candidates one after the other, until one has a final outcome.
    async fn chain<'p, A: ResultFormat>(
        &'p self,
        call: &Call,
        audit_id: &AuditId,
        key: &Arc<str>,
        queue_permit: Option<SemaphorePermit<'p>>,
        progress: &mut CallProgress,
    ) -> Result<A, Error> {
        let mut candidate = CallCandidate::first(call);
        let mut fallbacks = CallCandidate::fallbacks(call)?.into_iter();
        let strictest = self.preflight(call, &candidate, fallbacks.as_slice(), audit_id).await?;
        let mut state = CallState {
            queue_permit,
            audit_id: audit_id.clone(),
            idempotency_key: Arc::clone(key),
            time: None,
            action_context: call.action_context.clone(),
            strictest,
            trace: call.trace.clone(),
        };
        let mut trace = FallbackTrace::default();
        loop {
            let failure = match self.attempts(call, &candidate, &mut state, progress).await {
                Ok(value) => return Ok(value),
                Err(Error::Failure(failure)) if progress.attempts_of(candidate.index).0 > 0 => failure,
                Err(error) => return Err(trace.finish_with_error(&candidate, error, progress)),
            };
            let clock = &*self.loader.clock;
            let in_time = state.time.is_none_or(|time| clock.now() < time.deadline);
            let may_go_on = in_time && allows_fallback(&failure, call.rotate_on_permanent);
            let next = fallbacks.next().filter(|_| may_go_on);
            // If this candidate has had its effect, a fallback would repeat it.
            if next.is_some() && failure.unrepeatable().is_some() {
                let retried = progress.retries_of(candidate.index);
                let stopped = Some(RetryStopped::NotDeclaredIdempotent);
                let failure = failure.with_retries(retried, stopped, None);
                return Err(trace.ended(&candidate, failure, progress).into());
            }
            let Some(next) = next else {
                return Err(trace.ended(&candidate, failure, progress).into());
            };
            let (from, to) = (candidate.connector.text(), next.connector.text());
            progress.recorder.step(EventKind::FallbackTriggered { from, to, failure: &failure });
            trace.failed(&candidate, failure, progress);
            // A listener may cancel the call when it is notified of the fallback. Check here: a cancellation that
            // races the next attempt might come after its request was sent.
            if call.cancellation.as_ref().is_some_and(Cancellation::is_cancelled) {
                return Err(cancelled(progress.attempts()).into());
            }
            state.idempotency_key = next.idempotency_key(key);
            candidate = next;
        }
    }

    /// Makes the attempts of one candidate.
    async fn attempts<'p, A: ResultFormat>(
        &'p self,
        call: &Call,
        candidate: &CallCandidate<'_>,
        state: &mut CallState<'p>,
        progress: &mut CallProgress,
    ) -> Result<A, Error> {
        let clock = &*self.loader.clock;
        let name = candidate.connector.name();
        let plan = self.settings.plan(name, call.retry.as_ref());
        // Its guard releases everything it holds when it is dropped, however the attempts end.
        let breaker_guard =
            plan.breaker.as_ref().map(|policy| self.circuits.call_scope(name, policy, &state.audit_id));
        let breaker: Option<&Arc<BreakerScope>> = breaker_guard.as_deref();
        let mut package: Option<Arc<str>> = None;
        let mut last: Option<Failure> = None;
        let mut idempotent = false;
        let mut attempts: u32 = 0;
        loop {
            let asked = clock.now();
            let span = spans::admit(candidate);
            let admitted = self.admit(call, candidate, &plan, state, progress).instrument(span.clone()).await;
            spans::admitted(span, &admitted);
            progress.set_admission_time(clock.now().saturating_duration_since(asked));
            let end = match admitted {
                Ok(admitted)
                    if package.get_or_insert_with(|| Arc::clone(&admitted.loaded.hash))
                        != &admitted.loaded.hash =>
                {
                    AttemptEnd::Refused(replaced(candidate.connector.text()).into())
                }
                Ok(admitted) => {
                    if attempts == 0 {
                        progress.admitted(call, candidate, &plan, &admitted, state)?;
                        let manifest = admitted.loaded.checked.package.manifest();
                        if self.needs_approval(call, candidate, manifest, &progress.recorder.actor) {
                            // Few calls wait for a person: the others do not carry the room for it.
                            Box::pin(self.require_approval(call, candidate, &admitted, progress)).await?;
                        }
                    }
                    idempotent = admitted.context.idempotent();
                    attempts = attempts.saturating_add(1);
                    match self.attempt(&admitted, candidate, &plan, breaker, state, progress).await {
                        Ok(value) => AttemptEnd::Value(value),
                        Err(Error::Failure(failure)) => AttemptEnd::Failed(failure),
                        Err(error @ Error::Host(_)) => AttemptEnd::Refused(error),
                    }
                }
                Err(error) => AttemptEnd::Refused(error),
            };
            let failure = match (end, last.take()) {
                (AttemptEnd::Value(value), _) => {
                    record_results(breaker, clock, name.as_str(), progress);
                    return Ok(value);
                }
                (AttemptEnd::Failed(failure), _) => failure,
                // This attempt was not admitted, so the previous attempt's failure is the outcome.
                (AttemptEnd::Refused(error), before) => {
                    record_results(breaker, clock, name.as_str(), progress);
                    let Some(before) = before else { return Err(error) };
                    let late = state.time.is_some_and(|time| clock.now() >= time.deadline);
                    let stopped = if late { RetryStopped::WallTime } else { RetryStopped::NotAdmitted };
                    let note = format!("not attempted again: {error}");
                    let mut before = before.with_retries(attempts.saturating_sub(1), Some(stopped), None);
                    if stopped == RetryStopped::NotAdmitted {
                        before = before.with_refusal(error_summary(&error));
                    }
                    return Err(before.with_operator_note(note).into());
                }
            };
            let now = clock.now();
            let deadline = state.time.map_or(now, |time| time.deadline);
            let context =
                RetryContext::from_failure(&failure, idempotent, attempts, candidate.index, now, deadline);
            let retried = attempts.saturating_sub(1);
            let decision = match call.single_attempt {
                true => RetryDecision::Stop { stopped: None, retry_after: None },
                false => decide(&plan.profile, &context, &*self.rng),
            };
            let next = match decision {
                // The circuit's probe time is not the retry time of the policy. So the call stops, and the next
                // call gets the retry advice.
                RetryDecision::Retry { .. } if forbids_retry(breaker, clock) => {
                    RetryDecision::Stop { stopped: Some(RetryStopped::CircuitOpen), retry_after: None }
                }
                next => next,
            };
            match next {
                RetryDecision::Stop { stopped, retry_after } => {
                    record_results(breaker, clock, name.as_str(), progress);
                    return Err(failure.with_retries(retried, stopped, retry_after).into());
                }
                RetryDecision::Retry { delay, wait, of, planned } => {
                    let profile = plan.profile.name();
                    let step = EventKind::RetryScheduled {
                        failure: &failure,
                        retry: attempts,
                        of,
                        delay,
                        wait,
                        profile,
                    };
                    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
                    let jitter = micros(delay).saturating_sub(micros(planned));
                    progress.wait_starts(now, delay, step, candidate.index, jitter);
                    let sleeping = spans::sleep(attempts, of, delay.as_millis());
                    let slept = self.sleep(now + delay, breaker, state).instrument(sleeping).await;
                    progress.wait_ended(clock.now());
                    if let Err(stopped) = slept {
                        record_results(breaker, clock, name.as_str(), progress);
                        return Err(failure.with_retries(retried, Some(stopped), None).into());
                    }
                    last = Some(failure);
                }
            }
        }
    }

    /// Waits before a retry. The call occupies a slot of a separate queue meanwhile, so that an upstream that
    /// demands long delays does not fill the queue of the calls that could run.
    async fn sleep<'p>(
        &'p self,
        until: Instant,
        breaker: Option<&Arc<BreakerScope>>,
        state: &mut CallState<'p>,
    ) -> Result<(), RetryStopped> {
        let asleep = self.backoff_slots.try_acquire().map_err(|_| RetryStopped::Busy)?;
        state.release_queue_permit();
        self.loader.clock.sleep_until(until).await;
        drop(asleep);
        if forbids_retry(breaker, &*self.loader.clock) {
            return Err(RetryStopped::CircuitOpen);
        }
        state.acquire_queue_permit(self).map_err(|_| RetryStopped::Busy)
    }

    /// Makes one attempt, in a sandbox of its own.
    async fn attempt<A: ResultFormat>(
        &self,
        admitted: &AdmittedCall<'_>,
        candidate: &CallCandidate<'_>,
        plan: &RetryPlan,
        breaker: Option<&Arc<BreakerScope>>,
        state: &mut CallState<'_>,
        progress: &mut CallProgress,
    ) -> Result<A, Error> {
        let clock = Arc::clone(&self.loader.clock);
        let now = clock.now();
        let limits = &admitted.limits;
        if let Some(action) = state.action_context.as_ref().filter(|action| now >= action.deadline()) {
            return Err(action.out_of_time(&admitted.context, now).into());
        }
        let part_of = state.action_context.as_ref();
        let begin = || CallTime::begin(part_of, limits.wall_time(), now);
        let time = state.time.get_or_insert_with(begin).attempt(limits.attempt_time(), now);
        let (connector, operation) = (candidate.connector.text(), &*admitted.operation);
        let (op, repeat) = (operation.name(), (admitted.context.repeat_rule(), state.strictest));
        failpoint::pass("admitted");
        progress.attempt_starts(connector, op, candidate.index, plan.profile.name(), repeat).await?;
        progress.set_recording_time(clock.now().saturating_duration_since(now));
        let key_watch = Arc::new(KeyWatch::new(Arc::clone(&state.idempotency_key)));
        progress.set_key_watch(&key_watch);
        let credentials = admitted.credentials.as_ref().map(|credentials| credentials.attempt());
        let (rate, delays) = plan.rate.map(|limit| self.rated(limit)).unzip();
        let attempt = Attempt {
            context: &admitted.context,
            limits,
            time,
            number: progress.attempts(),
            clock: Arc::clone(&clock),
            scope: candidate.scope.cloned(),
            credentials: credentials.clone(),
            guards: AttemptGuards {
                connector: Arc::clone(candidate.connector.name().text()),
                circuits: breaker.cloned(),
                rate,
                clock,
                deadline: time.deadline,
                key_watch,
                waits: Arc::default(),
            },
            trace: state.trace.clone(),
        };
        if let Some(breaker) = breaker {
            breaker.begin_attempt();
        }
        failpoint::pass("attempt.begins");
        let running = cofferdam_sandbox::run(&admitted.loaded.connector, operation, &admitted.args, attempt);
        let span = spans::attempt(candidate, operation.name(), progress.attempts());
        let running = pin!(running.instrument(span.clone()));
        let ended = progress.record_delays(running, delays).instrument(span.clone()).await;
        spans::attempted(&span, &ended);
        failpoint::pass("attempt.ended");
        if let Some(breaker) = breaker {
            report_changes(breaker, candidate.connector.name().as_str(), progress);
        }
        // These include the tokens that were renewed during the attempt.
        if let Some(credentials) = credentials {
            progress.recorder.redactor.add_scanner(credentials.scanner());
        }
        progress.attempt_ended(connector, &ended);
        ended.outcome
    }

    /// Returns a guard for this rate limit, and the receiver for the delays that it causes.
    fn rated(&self, limit: RateLimit) -> (RateGuard, mpsc::UnboundedReceiver<RateDelay>) {
        let (delays, told) = mpsc::unbounded_channel();
        (RateGuard { limits: Arc::clone(&self.rates), limit, delays }, told)
    }
}

/// Returns the error for a package that was replaced. All attempts of a call use the same package, because the
/// decision about repeating its operation was made for that one.
fn replaced(connector: &str) -> HostError {
    HostError::new(HostErrorKind::Conflict, format!("{connector} was replaced while a call of it waited."))
        .with_hint("Call it again.")
}

/// True if the circuits forbid another attempt now.
pub(super) fn forbids_retry(breaker: Option<&Arc<BreakerScope>>, clock: &dyn Clock) -> bool {
    breaker.is_some_and(|breaker| breaker.forbids_retry(clock.timestamp()))
}

/// Counts the results of the candidate's attempts, and reports the circuit changes that follow.
pub(super) fn record_results(
    breaker: Option<&Arc<BreakerScope>>,
    clock: &dyn Clock,
    connector: &str,
    progress: &mut CallProgress,
) {
    if let Some(breaker) = breaker {
        breaker.finish(clock.timestamp());
        report_changes(breaker, connector, progress);
    }
}

/// Reports the circuit changes.
pub(super) fn report_changes(breaker: &BreakerScope, connector: &str, progress: &mut CallProgress) {
    for change in breaker.take_changes() {
        let (host, from, to) = (change.host.as_str(), change.from, change.to);
        progress.recorder.step(EventKind::CircuitChanged { connector, host, from, to, cause: change.cause });
    }
}
