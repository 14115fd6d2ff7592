//! Every metric: its name, its unit, its help and its buckets.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

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

type HistogramFamily = Family<OperationLabels, Histogram, fn() -> Histogram>;

/// The metrics of one host.
pub(super) struct MetricFamilies {
    pub(super) calls: Family<EndLabels, Counter>,
    pub(super) call_seconds: HistogramFamily,
    pub(super) calls_in_flight: Gauge,
    pub(super) attempts: Family<EndLabels, Counter>,
    pub(super) attempt_seconds: HistogramFamily,
    pub(super) retries: Family<CauseLabels, Counter>,
    pub(super) retry_wait_seconds: Family<OperationLabels, Counter<f64, AtomicU64>>,
    pub(super) fallbacks: Family<CauseLabels, Counter>,
    pub(super) replays: Family<OperationLabels, Counter>,
    pub(super) fuel: Family<OperationLabels, Counter>,
    pub(super) memory_peak: HistogramFamily,
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

/// An operation of a connector, in any version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OperationLabels {
    pub(super) connector: Arc<str>,
    pub(super) op: Arc<str>,
}

/// The outcome of a call or an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EndLabels {
    #[prometheus(flatten)]
    pub(super) of: OperationLabels,
    pub outcome: &'static str,
    /// The failure's class, or `none`.
    pub(super) class: &'static str,
}

/// The reason for a reaction to a failure.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CauseLabels {
    #[prometheus(flatten)]
    pub(super) of: OperationLabels,
    pub(super) class: &'static str,
}

/// A circuit, and the state that it changed to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ChangeLabels {
    pub(super) connector: Arc<str>,
    pub(super) host: Arc<str>,
    pub(super) to: &'static str,
}

/// A `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct HostLabels {
    pub(super) host: Arc<str>,
}

/// The source of a statement.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LimitLabels {
    pub(super) by: &'static str,
}

/// The most operations, over all connectors, that have labels of their own.
const OPERATIONS: usize = 1_000;

/// The most hosts that have labels of their own.
const HOSTS: usize = 500;

/// The label for all names that have none of their own.
const OTHER: &str = "other";

/// The names in use.
pub(super) struct LabelNames {
    /// The operations of each connector.
    operations: RwLock<HashMap<Arc<str>, HashSet<Arc<str>>>>,
    hosts: RwLock<HashSet<Arc<str>>>,
    other: Arc<str>,
}

impl Default for LabelNames {
    fn default() -> Self {
        Self { operations: RwLock::default(), hosts: RwLock::default(), other: OTHER.into() }
    }
}

impl LabelNames {
    /// Returns the labels of an operation that may never have run. `connector` is a name, or `name@version`.
    pub(super) fn known_labels(&self, connector: &str, op: &str) -> OperationLabels {
        let operations = self.operations.read().unwrap_or_else(PoisonError::into_inner);
        let Some((connector, ops)) = operations.get_key_value(name(connector)) else {
            return OperationLabels { connector: Arc::clone(&self.other), op: Arc::clone(&self.other) };
        };
        let op = ops.get(op).unwrap_or(&self.other);
        OperationLabels { connector: Arc::clone(connector), op: Arc::clone(op) }
    }

    /// Returns the labels of an operation that runs now.
    pub(super) fn running(&self, connector: &str, op: &str) -> OperationLabels {
        let known = self.known_labels(connector, op);
        if *known.op != *OTHER {
            return known;
        }
        let mut operations = self.operations.write().unwrap_or_else(PoisonError::into_inner);
        if operations.values().map(HashSet::len).sum::<usize>() < OPERATIONS {
            operations.entry(name(connector).into()).or_default().insert(op.into());
        }
        drop(operations);
        self.known_labels(connector, op)
    }

    /// Returns the label of a connector that may never have run.
    pub(super) fn connector(&self, connector: &str) -> Arc<str> {
        self.known_labels(connector, OTHER).connector
    }

    /// Returns the label of a host that a request was sent to.
    pub(super) fn host(&self, host: &str) -> Arc<str> {
        if let Some(host) = self.hosts.read().unwrap_or_else(PoisonError::into_inner).get(host) {
            return Arc::clone(host);
        }
        let mut hosts = self.hosts.write().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= HOSTS {
            return Arc::clone(&self.other);
        }
        let host: Arc<str> = host.into();
        hosts.insert(Arc::clone(&host));
        host
    }
}

/// Returns the name of a connector without its version, so that an update continues its series.
fn name(connector: &str) -> &str {
    connector.split('@').next().unwrap_or(connector)
}

#[cfg(test)]
mod tests {

    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::{HOSTS, LabelNames, OPERATIONS};

    fn shown(names: &LabelNames, connector: &str, op: &str) -> String {
        let of = names.known_labels(connector, op);
        format!("{} {}", of.connector, of.op)
    }

    #[test]
    fn unknown_names_are_labelled_other() {
        let names = LabelNames::default();
        assert_eq!(shown(&names, "github://acme/a@1.0.0", "get"), "other other");
        names.running("github://acme/a@1.0.0", "get");
        assert_eq!(shown(&names, "github://acme/a@2.0.0", "get"), "github://acme/a get");
        assert_eq!(shown(&names, "github://acme/a@1.0.0", "'; drop"), "github://acme/a other");
        assert_eq!(shown(&names, "github://acme/b@1.0.0", "get"), "other other");
        assert_eq!(&*names.connector("github://acme/a"), "github://acme/a");
    }

    #[test]
    fn new_names_beyond_the_bound_are_labelled_other() {
        let names = LabelNames::default();
        for number in 0..OPERATIONS * 2 {
            names.running(&format!("github://acme/c{}@1.0.0", number / 10), &format!("op{}", number % 10));
        }
        assert_eq!(shown(&names, "github://acme/c0@1.0.0", "op9"), "github://acme/c0 op9");
        let last = format!("github://acme/c{}@1.0.0", OPERATIONS / 10 - 1);
        assert_eq!(shown(&names, &last, "op9"), format!("{} op9", last.trim_end_matches("@1.0.0")));
        assert_eq!(shown(&names, &format!("github://acme/c{}@1.0.0", OPERATIONS / 10), "op0"), "other other");
        let hosts: Vec<_> = (0..HOSTS + 1).map(|number| names.host(&format!("h{number}:443"))).collect();
        assert_eq!(&**hosts.last().unwrap(), "other");
        assert_eq!(&*names.host("h7:443"), "h7:443");
    }
}
