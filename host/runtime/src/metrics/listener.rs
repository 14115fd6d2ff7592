//! The listener that counts the steps of calls.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::clock::{Clock, SystemClock};
use cofferdam_core::event::{Event, EventKind, Listener, attempt_status, is_action};
use cofferdam_core::failure::{AuditId, Failure, FailureClass};
use cofferdam_core::limits::Usage;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use super::families::{
    CauseLabels, ChangeLabels, EndLabels, HostLabels, LabelNames, LimitLabels, MetricFamilies,
    OperationLabels,
};

/// The label for a missing class.
const NONE: &str = "none";

/// The metrics of one or several hosts, counted from their creation on. It is a listener for
/// [`HostBuilder::listener`](crate::host::HostBuilder::listener), and encodes the text that Prometheus reads.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use cofferdam::{Compiler, Host, Metrics};
/// let metrics = Arc::new(Metrics::new());
/// let host = Host::builder().home("/var/lib/cofferdam").listener(metrics.clone());
/// // In the program's own HTTP server, at /metrics:
/// let (content_type, body) = (Metrics::CONTENT_TYPE, metrics.encode());
/// ```
pub struct Metrics {
    registry: Registry,
    families: MetricFamilies,
    names: LabelNames,
    in_flight: InFlightCalls,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// The HTTP content type of the text of [`Metrics::encode`].
    pub const CONTENT_TYPE: &'static str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// Creates metrics that have counted nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// Creates metrics that take the time of calls from `clock`.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let mut registry = Registry::with_prefix("cofferdam");
        let meters = MetricFamilies::registered(&mut registry);
        Self {
            registry,
            families: meters,
            names: LabelNames::default(),
            in_flight: InFlightCalls::default(),
            clock,
        }
    }

    /// Returns everything counted so far, as OpenMetrics text.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to memory does not fail.
        match text::encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(_) => String::new(),
        }
    }

    fn received(&self, event: &Event<'_>, connector: &str, op: &str) {
        let called = self.names.known_labels(connector, op);
        let flight = CallFlight { began: self.clock.now(), called, attempted: None };
        self.in_flight.begin(event.audit_id, flight);
        self.families.calls_in_flight.inc();
    }

    fn attempt_started(&self, event: &Event<'_>, connector: &str, op: &str, candidate: u32) {
        let running = self.names.running(connector, op);
        self.in_flight.at(event.audit_id, |flight| {
            // The attempt shows that the operation exists, which was not known when the call was received.
            if candidate == 0 {
                flight.called = running.clone();
            }
            flight.attempted = Some(running);
        });
    }

    fn attempt_ended(
        &self,
        event: &Event<'_>,
        failure: Option<&Failure>,
        outcome: &'static str,
        usage: &Usage,
    ) {
        let Some(of) = self.attempted(event) else { return };
        let meters = &self.families;
        meters.attempt_seconds.get_or_create(&of).observe(usage.wall_time.as_secs_f64());
        meters.memory_peak.get_or_create(&of).observe(float(usage.memory));
        meters.fuel.get_or_create(&of).inc_by(usage.fuel);
        meters.requests.get_or_create(&of).inc_by(usage.requests);
        meters.sent.get_or_create(&of).inc_by(usage.bytes_out);
        meters.received.get_or_create(&of).inc_by(usage.bytes_in);
        let class = failure.map_or(NONE, |failure| failure.class().name());
        meters.attempts.get_or_create(&EndLabels { of, outcome, class }).inc();
    }

    fn retry_scheduled(&self, event: &Event<'_>, failure: &Failure, delay: Duration) {
        let Some(of) = self.attempted(event) else { return };
        self.families.retry_wait_seconds.get_or_create(&of).inc_by(delay.as_secs_f64());
        self.families.retries.get_or_create(&CauseLabels { of, class: failure.class().name() }).inc();
    }

    fn fell_back(&self, event: &Event<'_>, failure: &Failure) {
        let Some(of) = self.attempted(event) else { return };
        self.families.fallbacks.get_or_create(&CauseLabels { of, class: failure.class().name() }).inc();
    }

    fn replayed(&self, event: &Event<'_>) {
        if let Some(of) = self.in_flight.at(event.audit_id, |flight| flight.called.clone()) {
            self.families.replays.get_or_create(&of).inc();
        }
    }

    fn circuit_changed(&self, connector: &str, host: &str, to: &'static str) {
        let (connector, host) = (self.names.connector(connector), self.names.host(host));
        self.families.circuit_changes.get_or_create(&ChangeLabels { connector, host, to }).inc();
    }

    fn rate_delayed(&self, host: &str, delay: Duration) {
        let at = HostLabels { host: self.names.host(host) };
        self.families.rate_delays.get_or_create(&at).inc();
        self.families.rate_delay_seconds.get_or_create(&at).inc_by(delay.as_secs_f64());
    }

    fn ended(&self, event: &Event<'_>, outcome: &'static str, class: Option<&str>) {
        let Some(flight) = self.in_flight.end(event.audit_id) else { return };
        self.families.calls_in_flight.dec();
        let took = self.clock.now().saturating_duration_since(flight.began);
        self.families.call_seconds.get_or_create(&flight.called).observe(took.as_secs_f64());
        let class = class.and_then(|class| FailureClass::ALL.iter().find(|known| known.name() == class));
        let class = class.map_or(NONE, |class| class.name());
        self.families.calls.get_or_create(&EndLabels { of: flight.called, outcome, class }).inc();
    }

    /// Returns the operation that the call attempted last.
    fn attempted(&self, event: &Event<'_>) -> Option<OperationLabels> {
        self.in_flight.at(event.audit_id, |flight| flight.attempted.clone()).flatten()
    }
}

impl Listener for Metrics {
    fn event(&self, event: &Event<'_>) {
        match event.kind {
            // The calls of an action are counted, so the action is not counted again.
            EventKind::Received { connector, .. } if is_action(connector) => {}
            EventKind::Received { connector, op } => self.received(event, connector, op),
            EventKind::AttemptStarted { connector, op, candidate, .. } => {
                self.attempt_started(event, connector, op, candidate);
            }
            EventKind::AttemptEnded { failure, refused, usage, .. } => {
                self.attempt_ended(event, failure, attempt_status(failure, refused), usage);
            }
            EventKind::RetryScheduled { failure, delay, .. } => self.retry_scheduled(event, failure, delay),
            EventKind::FallbackTriggered { failure, .. } => self.fell_back(event, failure),
            EventKind::CircuitChanged { connector, host, to, .. } => {
                self.circuit_changed(connector, host, to)
            }
            EventKind::RateDelayed { host, delay } => self.rate_delayed(host, delay),
            EventKind::Suppressed { by, .. } => {
                self.families.suppressed.get_or_create(&LimitLabels { by: by.name() }).inc();
            }
            EventKind::Replayed { .. } => self.replayed(event),
            EventKind::Final { outcome, class, .. } => self.ended(event, outcome, class),
            _ => {}
        }
    }
}

/// Converts an amount for a histogram. Beyond 2^53 it is rounded.
#[allow(clippy::cast_precision_loss, reason = "what is rounded is more memory than a machine has")]
fn float(amount: u64) -> f64 {
    amount as f64
}

/// The most calls that are tracked at once. A host runs and queues fewer.
const MAX_TRACKED_CALLS: usize = 1_000_000;

/// A call in flight.
pub(super) struct CallFlight {
    pub(super) began: Instant,
    /// The called operation.
    pub(super) called: OperationLabels,
    /// The operation of the last attempt.
    pub(super) attempted: Option<OperationLabels>,
}

/// All calls in flight.
#[derive(Default)]
pub(super) struct InFlightCalls(Mutex<HashMap<AuditId, CallFlight>>);

impl InFlightCalls {
    /// Adds a call.
    pub(super) fn begin(&self, audit_id: &AuditId, flight: CallFlight) {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if flights.len() < MAX_TRACKED_CALLS {
            flights.insert(audit_id.clone(), flight);
        }
    }

    /// Reads or changes the state of a call.
    pub(super) fn at<T>(&self, audit_id: &AuditId, look: impl FnOnce(&mut CallFlight) -> T) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(audit_id).map(look)
    }

    /// Removes a call that is over.
    pub(super) fn end(&self, audit_id: &AuditId) -> Option<CallFlight> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(audit_id)
    }
}
