//! Collects the trace of an attempt: the host calls by the hook around them, everything else when the attempt has ended.
//!
//! The hook knows when the guest enters the host and leaves it, but not where. The names of WASI's functions come from
//! the spans of their bindings, which a subscriber of the attempt's own sees; the contract's functions tell theirs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::clock::Clock;
use cofferdam_core::error::Error;
use cofferdam_core::event::recorded::RecordedLogLine;
use cofferdam_core::limits::Usage;
use cofferdam_core::secret::Scanner;
use cofferdam_core::trace::{AttemptTrace, HOST_CALLS, TraceCollector, TracedHostCall, TracedLogLine};
use cofferdam_egress::egress::Authorize;
use jiff::Timestamp;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Metadata, Subscriber};

use super::hostcalls::attempt_log::AttemptLog;
use super::hostcalls::log::RecordedLog;

/// The host calls of one attempt.
pub(super) struct HostCallRecorder {
    clock: Arc<dyn Clock>,
    started: Instant,
    fuel_limit: u64,
    calls: Mutex<HostCalls>,
}

#[derive(Debug, Default)]
struct HostCalls {
    /// The call that the guest is in.
    running: Option<TracedHostCall>,
    ended: Vec<TracedHostCall>,
    omitted: u64,
}

impl HostCallRecorder {
    fn new(clock: Arc<dyn Clock>, started: Instant, fuel_limit: u64) -> Self {
        Self { clock, started, fuel_limit, calls: Mutex::default() }
    }

    /// Records that the guest calls the host, with this fuel left.
    pub(super) fn enter(&self, fuel_left: u64) {
        let fuel = self.fuel_limit.saturating_sub(fuel_left);
        let call = TracedHostCall { function: String::new(), at: self.now(), took: Duration::ZERO, fuel };
        self.lock().running = Some(call);
    }

    /// Names the running call.
    pub(super) fn name(&self, function: impl Into<String>) {
        if let Some(call) = &mut self.lock().running {
            call.function = function.into();
        }
    }

    /// Records the end of the running call.
    pub(super) fn exit(&self) {
        let now = self.now();
        let mut calls = self.lock();
        // Drops of resources have no name, and neither has a guest's yield after a share of its fuel.
        let Some(mut call) = calls.running.take().filter(|call| !call.function.is_empty()) else { return };
        if calls.ended.len() == HOST_CALLS {
            calls.omitted = calls.omitted.saturating_add(1);
            return;
        }
        call.took = now.saturating_sub(call.at);
        calls.ended.push(call);
    }

    fn now(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.started)
    }

    fn lock(&self) -> MutexGuard<'_, HostCalls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The trace of one attempt, which is collected however the attempt ends.
pub(super) struct AttemptTracer {
    collector: TraceCollector,
    recorder: Arc<HostCallRecorder>,
    ledger: Arc<AttemptLog>,
    credentials: Option<Arc<dyn Authorize>>,
    trace: AttemptTrace,
}

impl AttemptTracer {
    pub(super) fn new(
        collector: TraceCollector,
        (clock, started): (&Arc<dyn Clock>, Instant),
        (number, fuel_limit): (u32, u64),
        ledger: &Arc<AttemptLog>,
        credentials: Option<&Arc<dyn Authorize>>,
    ) -> Self {
        ledger.request_log.keep_contents();
        Self {
            collector,
            recorder: Arc::new(HostCallRecorder::new(Arc::clone(clock), started, fuel_limit)),
            ledger: Arc::clone(ledger),
            credentials: credentials.cloned(),
            trace: AttemptTrace::new(number, clock.timestamp()),
        }
    }

    /// Returns the recorder of host calls.
    pub(super) fn recorder(&self) -> &Arc<HostCallRecorder> {
        &self.recorder
    }

    /// Returns the subscriber in whose scope the guest is polled.
    pub(super) fn dispatch(&self) -> Dispatch {
        let outer = tracing::dispatcher::get_default(Dispatch::clone);
        Dispatch::new(HostCallNames { outer, recorder: Arc::clone(&self.recorder) })
    }

    /// Adds the functions that the guest was in when it was ended.
    pub(super) fn frames(&mut self, frames: Vec<String>) {
        self.trace.frames = frames;
    }

    /// Adds what the guest wrote on standard output and standard error.
    pub(super) fn wrote(&mut self, stdout: Option<String>, stderr: Option<String>) {
        (self.trace.stdout, self.trace.stderr) = (stdout, stderr);
    }

    /// Adds what is known at the end of the attempt.
    pub(super) fn ended(&mut self, log: &RecordedLog, failure: Option<&Error>) {
        let started = self.trace.started;
        let at = |time: &str| {
            let time: Option<Timestamp> = time.parse().ok();
            time.and_then(|time| Duration::try_from(time.duration_since(started)).ok()).unwrap_or_default()
        };
        let line = |line: &RecordedLogLine<'_>| TracedLogLine {
            at: at(&line.at),
            level: line.level.to_string(),
            text: line.text.clone(),
        };
        self.trace.log = log.lines.iter().map(line).collect();
        self.trace.failure = failure.map(|error| match error {
            Error::Failure(failure) => format!("{}.{}", failure.class().name(), failure.code()),
            Error::Host(error) => error.kind().code().to_owned(),
        });
    }

    /// Adds what the attempt used.
    pub(super) fn used(&mut self, usage: Usage, instantiated_after: Duration) {
        (self.trace.usage, self.trace.instantiated_after) = (Some(usage), instantiated_after);
    }
}

impl Drop for AttemptTracer {
    /// Collects the trace, of a cancelled call, too.
    fn drop(&mut self) {
        self.recorder.exit();
        let HostCalls { ended, omitted, .. } = std::mem::take(&mut *self.recorder.lock());
        let (clock, started) = (&self.recorder.clock, self.recorder.started);
        // Sending may have obtained a new token.
        let scanner = self.credentials.as_ref().map_or_else(|| Arc::new(Scanner::new([])), |it| it.scanner());
        let mut trace = std::mem::replace(&mut self.trace, AttemptTrace::new(0, Timestamp::UNIX_EPOCH));
        (trace.host_calls, trace.omitted_host_calls) = (ended, omitted);
        trace.requests = self.ledger.request_log.traced(started, clock.now(), &scanner);
        self.collector.add(trace);
    }
}

/// The spans of the bindings of WASI's functions.
const IMPORT_SPAN: &str = "wit-bindgen import";

/// The id of all such spans: nothing but their beginning is of interest.
const IMPORT_ID: u64 = u64::MAX;

/// Names host calls by the spans of their bindings, and passes everything else on.
struct HostCallNames {
    outer: Dispatch,
    recorder: Arc<HostCallRecorder>,
}

fn is_import(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.name() == IMPORT_SPAN
}

impl Subscriber for HostCallNames {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_import(metadata) || self.outer.enabled(metadata)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        if !is_import(span.metadata()) {
            return self.outer.new_span(span);
        }
        let mut name = ImportName::default();
        span.record(&mut name);
        self.recorder.name(format!("{}.{}", name.module, name.function));
        Id::from_u64(IMPORT_ID)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.passed_on(span, || self.outer.record(span, values));
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.passed_on(span, || self.passed_on(follows, || self.outer.record_follows_from(span, follows)));
    }

    fn event(&self, event: &Event<'_>) {
        self.outer.event(event);
    }

    fn enter(&self, span: &Id) {
        self.passed_on(span, || self.outer.enter(span));
    }

    fn exit(&self, span: &Id) {
        self.passed_on(span, || self.outer.exit(span));
    }

    fn clone_span(&self, id: &Id) -> Id {
        if id.into_u64() == IMPORT_ID { id.clone() } else { self.outer.clone_span(id) }
    }

    fn try_close(&self, id: Id) -> bool {
        id.into_u64() != IMPORT_ID && self.outer.try_close(id)
    }
}

impl HostCallNames {
    fn passed_on(&self, span: &Id, pass: impl FnOnce()) {
        if span.into_u64() != IMPORT_ID {
            pass();
        }
    }
}

/// The fields of a binding's span.
#[derive(Default)]
struct ImportName {
    module: String,
    function: String,
}

impl Visit for ImportName {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "module" => value.clone_into(&mut self.module),
            "function" => value.clone_into(&mut self.function),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}
