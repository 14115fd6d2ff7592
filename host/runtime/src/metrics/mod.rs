//! Metrics: counts and histograms of calls, as OpenMetrics text that Prometheus reads; feature `prometheus`.
//!
//! A [`Metrics`] is a listener: it observes calls and decides nothing. Labels are names of connectors and
//! operations that have run, hosts, and words of closed sets. No label contains arguments or results, and neither a
//! guest nor a caller can create an unlimited number of labels (`names.rs`). `docs/guides/telemetry.md` lists every
//! metric.

mod families;
mod listener;

pub use listener::Metrics;
