//! Spans for an OpenTelemetry collector, where the environment names one and the feature `otlp` is built in.
//!
//! Telemetry never decides anything: what is wrong with it is a warning, and the command goes on. The one wait that it
//! may cost is at the very end, after everything was printed, and it is bounded.

#[cfg(feature = "otlp")]
mod collector;
#[cfg(feature = "otlp")]
mod environment;
#[cfg(feature = "otlp")]
mod export;
#[cfg(feature = "otlp")]
mod tls;

use tracing_subscriber::{Layer, Registry};

/// What spans are told to, as a layer of the log's subscriber.
pub(super) type SpanLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// What the command sends to a collector; nothing, unless the environment asks for it.
#[derive(Default)]
pub(super) struct Telemetry {
    #[cfg(feature = "otlp")]
    export: Option<export::SpanExport>,
}

/// What begins with the log.
#[derive(Default)]
pub(super) struct TelemetryStart {
    pub(super) telemetry: Telemetry,
    pub(super) spans: Option<SpanLayer>,
    /// Why no spans are sent, although they were asked for.
    pub(super) warning: Option<String>,
}

impl Telemetry {
    /// What the environment asks for.
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

    /// Nothing: this program was built without the feature `otlp`.
    #[cfg(not(feature = "otlp"))]
    pub(super) fn from_environment() -> TelemetryStart {
        TelemetryStart::default()
    }

    /// Sends what is left, and waits for it no longer than the time that the environment allows.
    #[cfg(feature = "otlp")]
    pub(super) fn end(self) {
        if let Some(export) = self.export {
            export.end();
        }
    }

    /// Nothing is left.
    #[cfg(not(feature = "otlp"))]
    pub(super) fn end(self) {}
}
