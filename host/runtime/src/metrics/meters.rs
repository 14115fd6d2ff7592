//! Every metric: its name, its unit, its help and its buckets.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::labels::{CauseLabels, ChangeLabels, EndLabels, HostLabels, LimitLabels, OperationLabels};

/// Bounds of durations, in seconds: from a warm call that computes little to the longest possible call.
const SECONDS: [f64; 18] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0, 60.0,
];

/// Bounds of a guest's memory, in bytes: 64 KiB (one page) to 1 GiB.
const BYTES: [f64; 8] = [
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
    1_073_741_824.0,
];

type Histograms = Family<OperationLabels, Histogram, fn() -> Histogram>;

/// The metrics of one host.
pub(super) struct MetricFamilies {
    pub(super) calls: Family<EndLabels, Counter>,
    pub(super) call_seconds: Histograms,
    pub(super) calls_in_flight: Gauge,
    pub(super) attempts: Family<EndLabels, Counter>,
    pub(super) attempt_seconds: Histograms,
    pub(super) retries: Family<CauseLabels, Counter>,
    pub(super) retry_wait_seconds: Family<OperationLabels, Counter<f64, AtomicU64>>,
    pub(super) fallbacks: Family<CauseLabels, Counter>,
    pub(super) replays: Family<OperationLabels, Counter>,
    pub(super) fuel: Family<OperationLabels, Counter>,
    pub(super) memory_peak: Histograms,
    pub(super) requests: Family<OperationLabels, Counter>,
    pub(super) sent: Family<OperationLabels, Counter>,
    pub(super) received: Family<OperationLabels, Counter>,
    pub(super) circuit_changes: Family<ChangeLabels, Counter>,
    pub(super) rate_delays: Family<HostLabels, Counter>,
    pub(super) rate_delay_seconds: Family<HostLabels, Counter<f64, AtomicU64>>,
    pub(super) suppressed: Family<LimitLabels, Counter>,
}

impl MetricFamilies {
    /// Creates the metrics, all zero, in `registry`.
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let meters = Self {
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            calls_in_flight: Gauge::default(),
            attempts: Family::default(),
            attempt_seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            retries: Family::default(),
            retry_wait_seconds: Family::default(),
            fallbacks: Family::default(),
            replays: Family::default(),
            fuel: Family::default(),
            memory_peak: Family::new_with_constructor(|| Histogram::new(BYTES)),
            requests: Family::default(),
            sent: Family::default(),
            received: Family::default(),
            circuit_changes: Family::default(),
            rate_delays: Family::default(),
            rate_delay_seconds: Family::default(),
            suppressed: Family::default(),
        };
        registry.register("calls", "Calls that are over", meters.calls.clone());
        let (seconds, bytes) = (|| Unit::Seconds, || Unit::Bytes);
        registry.register_with_unit(
            "call_duration",
            "From a call's receipt to its outcome, waits included",
            seconds(),
            meters.call_seconds.clone(),
        );
        registry.register("calls_in_flight", "Calls that are not over", meters.calls_in_flight.clone());
        registry.register("attempts", "Attempts that are over", meters.attempts.clone());
        registry.register_with_unit(
            "attempt_duration",
            "From an attempt's start in the sandbox to its end",
            seconds(),
            meters.attempt_seconds.clone(),
        );
        registry.register(
            "retries",
            "Attempts that were scheduled after another one",
            meters.retries.clone(),
        );
        registry.register_with_unit(
            "retry_wait",
            "Waits that were scheduled between attempts",
            seconds(),
            meters.retry_wait_seconds.clone(),
        );
        registry.register("fallbacks", "Hops to the next candidate of a chain", meters.fallbacks.clone());
        registry.register(
            "replays",
            "Calls that had the recorded outcome of another one",
            meters.replays.clone(),
        );
        registry.register("fuel", "Fuel burnt by guests", meters.fuel.clone());
        registry.register_with_unit(
            "memory_peak",
            "The most memory that an attempt's guest had",
            bytes(),
            meters.memory_peak.clone(),
        );
        registry.register("requests", "Outgoing requests, refused ones included", meters.requests.clone());
        registry.register_with_unit("sent", "Bytes of request bodies", bytes(), meters.sent.clone());
        registry.register_with_unit("received", "Bytes of response bodies", bytes(), meters.received.clone());
        registry.register("circuit_changes", "Changes of circuits", meters.circuit_changes.clone());
        registry.register("rate_delays", "Requests that waited for their turn", meters.rate_delays.clone());
        registry.register_with_unit(
            "rate_delay",
            "Waits of requests for their turn",
            seconds(),
            meters.rate_delay_seconds.clone(),
        );
        registry.register("suppressed_errors", "Errors that were passed over", meters.suppressed.clone());
        meters
    }
}
