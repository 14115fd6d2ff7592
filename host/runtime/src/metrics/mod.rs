//! Metrics: counts and histograms of calls, as OpenMetrics text that Prometheus reads; feature `prometheus`.
//!
//! A [`Metrics`] is a listener: it watches calls and decides nothing. Labels are names of connectors and operations
//! that have run, hosts, and words of closed sets: nothing of arguments or results, and nothing that a guest or a
//! caller could make new ones of without end (`names.rs`). `docs/telemetry.md` has every metric.

mod flights;
mod labels;
mod listener;
mod meters;
mod names;

pub use listener::Metrics;
