//! Telemetry of calls: spans to collectors and metrics, and the data that must not be in them.

pub(crate) mod decode;
mod fixture;
mod metrics;
mod redaction;
mod rotel;
mod spans;
mod tls;
mod unavailable;
