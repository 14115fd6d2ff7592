//! One attempt: a fresh store and instance, run under every limit, and dropped whatever happens.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use cofferdam_core::clock::Clock;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::event::EventSource;
use cofferdam_core::event::recorded::RecordedRequest;
use cofferdam_core::failure::{
    AbortedRequest, DeadlineScope, Failure, FailureContext, LimitHit, LimitKind, RuntimeFault, sanitize_line,
};
use cofferdam_core::limits::{self, Limits, Usage};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_core::trace::TraceCollector;
use cofferdam_egress::egress::Authorize;
use cofferdam_model::action::ActionScope;
use jiff::Timestamp;
use tracing::Dispatch;
use wasmtime::Store;

use super::attempt_trace::AttemptTracer;
use super::hostcalls::attempt_log::AttemptLog;
use super::hostcalls::connector::CallInfo;
use super::hostcalls::guards::AttemptGuards;
use super::hostcalls::http::HttpGate;
use super::hostcalls::log::{RecordedLog, SuppressedError};
use super::hostcalls::request_observer::SentEffects;
use super::load::{ExportedOperation, LoadedConnector};
use super::stdio::StdioCapture;
use super::store_data;
use super::store_data::StoreData;
use super::values::{DecodeError, DecodedResult, EncodedArguments, ResultFormat};
use super::yield_hook::{PollStart, YieldHook};
use super::{guest_frames, outcome, traps};

/// The fuel between two checks of the clock: about 0.1 ms of computing.
const YIELD_FUEL: u64 = 1_000_000;

/// The longest tail of stderr that the audit log keeps for the operator, in characters.
const STDERR_CHARS: usize = 2_000;

/// The inputs of an attempt.
pub struct Attempt<'a> {
    /// The call, for failures.
    pub context: &'a FailureContext,
    /// The limits of the call.
    pub limits: &'a Limits,
    /// Its deadlines.
    pub time: AttemptTime,
    /// Its number within the call, from 1.
    pub number: u32,
    /// The clock that the guest sees.
    pub clock: Arc<dyn Clock>,
    /// The declarations about the connector of the action that the attempt runs in.
    pub scope: Option<Arc<ActionScope>>,
    /// The credentials that its requests may carry; none if its manifest asks for none.
    pub credentials: Option<Arc<dyn Authorize>>,
    /// The circuits and rate limits that apply to its hosts in addition to the grants.
    pub guards: AttemptGuards,
    /// The collector of its trace.
    pub trace: Option<TraceCollector>,
}

/// The time that an attempt may take: the call's remaining time or the limit of one attempt, whichever is
/// less.
#[derive(Debug, Clone, Copy)]
pub struct AttemptTime {
    /// The time at which it ends, by the attempt's clock.
    pub deadline: Instant,
    /// The configured time for the attempt or for the whole call, as reported in failures.
    pub allowed: Duration,
    /// The time from which `allowed` counts.
    pub since: Instant,
    /// The scope of the deadline.
    pub of: DeadlineScope,
}

/// A finished attempt.
pub struct AttemptEnd<A> {
    /// Its value, its failure, or (as the host's own error) that the pool had no room to start it.
    pub outcome: Result<A, Error>,
    /// The resources that it used.
    pub usage: Usage,
    /// The time from the start of the attempt until its instance existed.
    pub instantiated_after: Duration,
    /// True if any byte of any request may have left.
    pub request_sent: bool,
    /// The requests that may take effect each time they arrive, as far as anything of them may have left.
    pub effects: SentEffects,
    /// Suppressed errors, in order.
    pub suppressed: Vec<SuppressedError>,
    /// Items of the value that failed, where its type has a list of them.
    pub(crate) failed_items: Option<u64>,
    /// Requests that were still running when the guest returned.
    pub aborted_on_return: Vec<AbortedRequest>,
    /// All its requests, in the order in which the guest sent them.
    pub requests: Vec<RecordedRequest<'static>>,
    /// The guest's log lines.
    pub log: RecordedLog,
}

impl<A> AttemptEnd<A> {
    /// Returns the number of failed items and aborted requests that the value lacks; none if it is complete.
    pub fn missing(&self) -> Option<u64> {
        let aborted = if self.outcome.is_ok() { self.aborted_on_return.len() as u64 } else { 0 };
        Some(self.failed_items.unwrap_or(0).saturating_add(aborted)).filter(|missing| *missing > 0)
    }
}

/// The way in which the guest's future stopped.
enum AttemptStop<A> {
    Done(wasmtime::Result<Result<DecodedResult<A>, DecodeError>>),
    Terminated,
    Deadline,
    /// A panic in a gate, with its message.
    Panicked(String),
}

/// Runs the operation once. Dropping the future ends the guest and its requests.
pub async fn run<A: ResultFormat>(
    connector: &LoadedConnector,
    operation: &ExportedOperation,
    args: &EncodedArguments,
    attempt: Attempt<'_>,
) -> AttemptEnd<A> {
    let Attempt { context, limits, time, number, clock, scope, credentials, guards, trace } = attempt;
    let deadline = time.deadline;
    let started = clock.now();
    let ledger = Arc::new(AttemptLog::new(limits.memory()));
    let key_watch = Arc::clone(&guards.key_watch);
    let mut tracer = trace.map(|collector| {
        let (times, facts) = ((&clock, started), (number, limits.fuel()));
        AttemptTracer::new(collector, times, facts, &ledger, credentials.as_ref())
    });
    let recorder = tracer.as_ref().map(|tracer| Arc::clone(tracer.recorder()));
    // Without circuits nothing is counted against hosts.
    let counted = guards.circuits.is_some().then(|| guards.clone());
    let gate = HttpGate::new(connector.egress().clone(), Arc::clone(&ledger), scope, credentials, guards);
    let gate = gate.with_read_only(operation.read_only());
    let facts = CallInfo { key_watch: Arc::clone(&key_watch), attempt: number, deadline };
    let mut state = StoreData::new(gate, facts, context.audit_id().clone(), Arc::clone(&clock));
    state.recorder.clone_from(&recorder);
    let mut store = Store::new(operation.engine(), state);

    let poll_start = PollStart::new(started);
    store.call_hook_async(YieldHook::new(Arc::clone(&clock), poll_start.clone(), recorder));
    let instantiated = OnceLock::new();
    let stop = match prepare(&mut store, limits, connector) {
        Ok(()) => {
            // Pinned where it is made: passing it on by value would copy kilobytes.
            let work = instantiate_and_call(&mut store, operation, args, (&*clock, &ledger), &instantiated);
            let work = pin!(work);
            let at_deadline = || counted.iter().for_each(|guards| guards.record_timeout(started));
            let work = within(tracer.as_ref().map(AttemptTracer::dispatch), work);
            watch((&*clock, &poll_start), deadline, &ledger, at_deadline, work).await
        }
        Err(error) => AttemptStop::Done(Err(error)),
    };

    // From here on nothing is sent that would change the judgement of the attempt.
    ledger.close();
    let effects = key_watch.close();
    let having_sent =
        effects.unkeyed.clone().map(|unkeyed| context.clone().with_unkeyed_request(Some(unkeyed)));
    let context = having_sent.as_ref().unwrap_or(context);

    let fuel = limits.fuel().saturating_sub(store.get_fuel().unwrap_or(0));
    let stopped = clock.now();
    let wall_time = stopped.saturating_duration_since(started);
    let usage = store_data::attempt_usage(store.data(), &ledger, limits, fuel, wall_time);
    let instantiated_after =
        instantiated.get().map_or(wall_time, |at: &Instant| at.saturating_duration_since(started));
    let guest_log = &mut store.data_mut().log;
    let (suppressed, log) = (guest_log.take_suppressed(), guest_log.take_recorded());
    // Every other ending of an attempt is reported as an interruption.
    let returned = matches!(stop, AttemptStop::Done(Ok(_)));
    let aborted_on_return = if returned { ledger.request_log.pending() } else { Vec::new() };
    if let Some(tracer) = &mut tracer {
        tracer.used(usage, instantiated_after);
        let (data, scanner) = (store.data(), store.data().scanner());
        let tail = |output: &StdioCapture| output.tail(STDERR_CHARS, scanner.as_deref());
        tracer.wrote(tail(&data.stdout), tail(&data.stderr));
        if let AttemptStop::Done(Err(error)) = &stop {
            tracer.frames(guest_frames::frames(error));
        }
    }
    let ended = |outcome: Result<A, Error>| {
        if let Some(mut tracer) = tracer {
            tracer.ended(&log, outcome.as_ref().err());
        }
        let value = outcome.as_ref().ok();
        AttemptEnd {
            suppressed: suppressed_errors(suppressed, value.is_some(), &ledger, clock.timestamp()),
            failed_items: value.filter(|_| operation.operation().lists_errors()).map(A::failed_items),
            request_sent: ledger.anything_sent(),
            effects,
            outcome,
            usage,
            instantiated_after,
            aborted_on_return,
            requests: ledger.request_log.recorded(stopped),
            log,
        }
    };
    let outcome = match stop {
        // A verdict may come between the guest's last step and this line: it still outranks the guest.
        _ if ledger.is_over() => Err(match ledger.termination() {
            Some(verdict) => match outcome::from_termination(context, verdict, &ledger) {
                Ok(failure) => failure,
                Err(trouble) => return ended(Err(trouble.into())),
            },
            None => Failure::connector_runtime_error(context, RuntimeFault::Internal),
        }),
        AttemptStop::Done(Ok(result)) => {
            outcome::from_result(context, result, &ledger, store.data().scanner().as_deref())
        }
        AttemptStop::Done(Err(error)) if error.is::<wasmtime::PoolConcurrencyLimitError>() => {
            // Calls wait for room before they get here (`room`). If there is none all the same, it is the
            // host's fault and not the connector's.
            let busy = HostError::new(HostErrorKind::Busy, "The host has no room for another instance now.");
            return ended(Err(busy.with_hint("Try again later.").into()));
        }
        AttemptStop::Done(Err(error)) => {
            let ending = traps::classify(&error, ledger.memory(), limits, fuel);
            // From the outermost cause to the root, each as its own note.
            let causes = guest_frames::causes(&error).into_iter().map(|cause| format!("cause: {cause}"));
            let frames = guest_frames::frames(&error).into_iter().map(|frame| format!("frame: {frame}"));
            let notes = causes.chain(frames).map(|note| sanitize_line(&note, STDERR_CHARS));
            Err(notes.fold(outcome::from_call_ending(context, ending), Failure::with_operator_note))
        }
        AttemptStop::Deadline => {
            let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            let used = clock.now().saturating_duration_since(time.since);
            let hit =
                LimitHit::new(LimitKind::WallTime, millis(time.allowed), millis(used)).with_scope(time.of);
            Err(Failure::resource_limit_exceeded(context, hit))
        }
        AttemptStop::Panicked(message) => {
            let failure = Failure::connector_runtime_error(context, RuntimeFault::Internal);
            Err(failure.with_operator_note(format!("panic: {message}")))
        }
        AttemptStop::Terminated => Err(Failure::connector_runtime_error(context, RuntimeFault::Internal)),
    };
    let outcome = outcome.map_err(|failure| {
        let scanner = store.data().scanner();
        let failure = match store.data().stderr.tail(STDERR_CHARS, scanner.as_deref()) {
            Some(tail) => failure.with_operator_note(format!("stderr: {tail}")),
            None => failure,
        };
        match scanner {
            Some(scanner) => failure.with_notes_rewritten(|note| scanner.redact(note, false).into_owned()),
            None => failure,
        }
    });
    ended(outcome.map_err(Error::from))
}

/// Returns the errors that the guest reported as suppressed and, if it returned a value, the failures that
/// the gate saw.
fn suppressed_errors(
    mut said: Vec<SuppressedError>,
    value: bool,
    ledger: &AttemptLog,
    at: Timestamp,
) -> Vec<SuppressedError> {
    if value {
        let reason = "the connector returned a value all the same";
        let seen = ledger.transient_failures().into_iter().map(|cause| SuppressedError {
            at,
            by: EventSource::Host,
            reason: reason.to_owned(),
            cause,
        });
        said.extend(seen);
    }
    said
}

fn prepare(
    store: &mut Store<StoreData>,
    limits: &Limits,
    connector: &LoadedConnector,
) -> wasmtime::Result<()> {
    connector.fits()?;
    store.limiter(|state| &mut state.limiter);
    store.set_fuel(limits.fuel())?;
    store.fuel_async_yield_interval(Some(YIELD_FUEL))?;
    store.set_max_component_handles(limits::HANDLES);
    Ok(())
}

async fn instantiate_and_call<A: ResultFormat>(
    store: &mut Store<StoreData>,
    operation: &ExportedOperation,
    args: &EncodedArguments,
    (clock, ledger): (&dyn Clock, &AttemptLog),
    instantiated: &OnceLock<Instant>,
) -> wasmtime::Result<Result<DecodedResult<A>, DecodeError>> {
    let instance = operation.pre().instantiate_async(&mut *store).await?;
    let _ = instantiated.set(clock.now());
    operation.entry().call(store, &instance, args, ledger.memory()).await
}

/// Polls `work` in the scope of a subscriber, if there is one.
async fn within<T>(subscriber: Option<Dispatch>, mut work: Pin<&mut impl Future<Output = T>>) -> T {
    poll_fn(|cx| match &subscriber {
        Some(subscriber) => tracing::dispatcher::with_default(subscriber, || work.as_mut().poll(cx)),
        None => work.as_mut().poll(cx),
    })
    .await
}

/// Returns the message of a panic, as one line for the operator.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    cofferdam_core::failure::sanitize_line(text.unwrap_or("without a message"), STDERR_CHARS)
}

/// Drives the guest, and checks the clock and the ledger each time it yields: a busy runtime's timers fire
/// late, and a gate's verdict must not wait for the guest.
async fn watch<A>(
    (clock, poll_start): (&dyn Clock, &PollStart),
    deadline: Instant,
    ledger: &AttemptLog,
    at_deadline: impl FnOnce(),
    work: impl Future<Output = wasmtime::Result<Result<DecodedResult<A>, DecodeError>>>,
) -> AttemptStop<A> {
    let mut work = pin!(work);
    let mut verdict = pin!(ledger.ended());
    // Created at the first wait: most calls never wait.
    let mut timer = None;
    let stop = poll_fn(|cx| {
        if ledger.is_over() {
            return Poll::Ready(AttemptStop::Terminated);
        }
        let now = clock.now();
        if now >= deadline {
            return Poll::Ready(AttemptStop::Deadline);
        }
        poll_start.set(now);
        // A panic in a gate is the host's fault; it ends this attempt and not the process.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            // A result after the deadline is too late, even a value: a limit with exceptions is no limit.
            Ok(Poll::Ready(_)) if clock.now() >= deadline => return Poll::Ready(AttemptStop::Deadline),
            Ok(Poll::Ready(result)) => return Poll::Ready(AttemptStop::Done(result)),
            Ok(Poll::Pending) => {}
            Err(panic) => return Poll::Ready(AttemptStop::Panicked(message_of(&*panic))),
        }
        if verdict.as_mut().poll(cx).is_ready() {
            return Poll::Ready(AttemptStop::Terminated);
        }
        let timer = timer.get_or_insert_with(|| clock.sleep_until(deadline));
        timer.as_mut().poll(cx).map(|()| AttemptStop::Deadline)
    })
    .await;
    // Before `work` is dropped, and its requests with it.
    if matches!(stop, AttemptStop::Deadline) {
        at_deadline();
    }
    stop
}
