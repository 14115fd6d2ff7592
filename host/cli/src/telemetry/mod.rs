//! Spans for an OpenTelemetry collector, if the environment names one and the feature `otlp` is built in.
//!
//! A fault of telemetry is a warning and never changes the command's result. Its only wait is bounded and at the very
//! end, after the output.

#[cfg(feature = "otlp")]
mod collector;
#[cfg(feature = "otlp")]
mod environment;
#[cfg(feature = "otlp")]
mod export;
#[cfg(all(feature = "otlp", feature = "cluster"))]
mod propagation;

use tracing_subscriber::{Layer, Registry};

/// Returns the link of jobs to their traces; none if this program was built without the feature `otlp`.
#[cfg(feature = "cluster")]
pub(super) fn job_trace() -> Option<std::sync::Arc<dyn cofferdam_cluster::jobs::JobTrace>> {
    #[cfg(feature = "otlp")]
    return Some(std::sync::Arc::new(propagation::TraceContextLink));
    #[cfg(not(feature = "otlp"))]
    None
}

/// A layer of the log's subscriber that receives spans.
pub(super) type SpanLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// The export of spans to a collector. Does nothing unless the environment configures it.
#[derive(Default)]
pub(super) struct Telemetry {
    #[cfg(feature = "otlp")]
    export: Option<export::SpanExport>,
}

/// The result of starting telemetry together with the log.
#[derive(Default)]
pub(super) struct TelemetryStart {
    pub(super) telemetry: Telemetry,
    pub(super) spans: Option<SpanLayer>,
    /// The reason why no spans are sent although the environment configures it.
    pub(super) warning: Option<String>,
}

impl Telemetry {
    /// Starts the export that the environment configures.
    #[cfg(feature = "otlp")]
    pub(super) fn from_environment() -> TelemetryStart {
        let begun = environment::OtlpVariables::read()
            .and_then(|asked| asked.map(export::SpanExport::begin).transpose());
        match begun {
            Ok(None) => TelemetryStart::default(),
            Ok(Some((export, spans))) => {
                let telemetry = Self { export: Some(export) };
                TelemetryStart { telemetry, spans: Some(spans), warning: None }
            }
            Err(warning) => TelemetryStart { warning: Some(warning), ..TelemetryStart::default() },
        }
    }

    /// Starts nothing: this program was built without the feature `otlp`.
    #[cfg(not(feature = "otlp"))]
    pub(super) fn from_environment() -> TelemetryStart {
        TelemetryStart::default()
    }

    /// Sends the remaining spans, and waits at most for the timeout that the environment sets.
    #[cfg(feature = "otlp")]
    pub(super) fn end(self) {
        if let Some(export) = self.export {
            export.end();
        }
    }

    /// Does nothing.
    #[cfg(not(feature = "otlp"))]
    pub(super) fn end(self) {}
}
