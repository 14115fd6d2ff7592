//! The metrics of jobs, with the name of the host as a label.

use std::fmt;
use std::sync::Arc;

use cofferdam_server::http_api::JobState;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::message::ForeignMessage;

/// Bounds of the time that a job waits for its first run, in seconds.
const SECONDS: [f64; 14] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0, 3_600.0, 86_400.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HostLabel {
    host: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    host: Arc<str>,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    host: Arc<str>,
    reason: &'static str,
}

/// The metrics of the jobs that one host submits and runs.
pub struct JobMetrics {
    registry: Registry,
    host: Arc<str>,
    submitted: Family<HostLabel, Counter>,
    ended: Family<StateLabels, Counter>,
    retries: Family<HostLabel, Counter>,
    redeliveries: Family<HostLabel, Counter>,
    rejected: Family<ReasonLabels, Counter>,
    in_flight: Family<HostLabel, Gauge>,
    wait_seconds: Family<HostLabel, Histogram, fn() -> Histogram>,
}

impl fmt::Debug for JobMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobMetrics").field("host", &self.host).finish_non_exhaustive()
    }
}

impl JobMetrics {
    /// Creates metrics, all zero, of the host of this name.
    #[must_use]
    pub fn new(host: &str) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("cofferdam"),
            host: host.into(),
            submitted: Family::default(),
            ended: Family::default(),
            retries: Family::default(),
            redeliveries: Family::default(),
            rejected: Family::default(),
            in_flight: Family::default(),
            wait_seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        };
        let registry = &mut metrics.registry;
        registry.register("jobs_submitted", "Jobs that were put on the queue", metrics.submitted.clone());
        registry.register("jobs", "Jobs that are over", metrics.ended.clone());
        registry.register(
            "job_retries",
            "Runs of jobs that are followed by another one",
            metrics.retries.clone(),
        );
        registry.register(
            "job_redeliveries",
            "Jobs that were delivered again because a worker was gone",
            metrics.redeliveries.clone(),
        );
        registry.register(
            "job_messages_rejected",
            "Messages on the queue that are not the cluster's own",
            metrics.rejected.clone(),
        );
        registry.register("jobs_in_flight", "Jobs that run", metrics.in_flight.clone());
        registry.register_with_unit(
            "job_wait",
            "From a job's submission to its first run",
            Unit::Seconds,
            metrics.wait_seconds.clone(),
        );
        let own = metrics.host_label();
        // Series that are there from the beginning, with zero.
        drop(metrics.submitted.get_or_create(&own));
        drop(metrics.in_flight.get_or_create(&own));
        metrics
    }

    fn host_label(&self) -> HostLabel {
        HostLabel { host: Arc::clone(&self.host) }
    }

    /// Returns everything counted so far, as OpenMetrics text.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut encoded = String::new();
        // Writing to memory does not fail.
        match text::encode(&mut encoded, &self.registry) {
            Ok(()) => encoded,
            Err(_) => String::new(),
        }
    }

    pub(super) fn submitted(&self) {
        self.submitted.get_or_create(&self.host_label()).inc();
    }

    pub(super) fn ended(&self, state: JobState) {
        let labels = StateLabels { host: Arc::clone(&self.host), state: state.name() };
        self.ended.get_or_create(&labels).inc();
    }

    pub(super) fn retried(&self) {
        self.retries.get_or_create(&self.host_label()).inc();
    }

    pub(super) fn redelivered(&self) {
        self.redeliveries.get_or_create(&self.host_label()).inc();
    }

    pub(super) fn rejected(&self, reason: ForeignMessage) {
        let labels = ReasonLabels { host: Arc::clone(&self.host), reason: reason.name() };
        self.rejected.get_or_create(&labels).inc();
    }

    pub(super) fn waited(&self, seconds: f64) {
        self.wait_seconds.get_or_create(&self.host_label()).observe(seconds.max(0.0));
    }

    /// Counts a job as running until the guard is dropped.
    pub(super) fn begin(&self) -> InFlightJob {
        let gauge = self.in_flight.get_or_create_owned(&self.host_label());
        gauge.inc();
        InFlightJob(gauge)
    }
}

/// A job that runs.
pub(super) struct InFlightJob(Gauge);

impl Drop for InFlightJob {
    fn drop(&mut self) {
        self.0.dec();
    }
}
