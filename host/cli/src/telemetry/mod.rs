//! Spans for an OpenTelemetry collector, where the environment names one and the feature `otlp` is built in.
//!
//! Telemetry never decides anything: what is wrong with it is a warning, and the command goes on. The one wait that it
//! may cost is at the very end, after everything was printed, and it is bounded.

#[cfg(feature = "otlp")]
mod collector;
#[cfg(feature = "otlp")]
mod export;
#[cfg(feature = "otlp")]
mod tls;
#[cfg(feature = "otlp")]
mod variables;

use tracing_subscriber::{Layer, Registry};

/// What spans are told to, as a layer of the log's subscriber.
pub(super) type SpanLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// What the command sends to a collector; nothing, unless the environment asks for it.
#[derive(Default)]
pub(super) struct Telemetry {
    #[cfg(feature = "otlp")]
    export: Option<export::Export>,
}

/// What begins with the log.
#[derive(Default)]
pub(super) struct Started {
    pub(super) telemetry: Telemetry,
    pub(super) spans: Option<SpanLayer>,
    /// Why no spans are sent, although they were asked for.
    pub(super) warning: Option<String>,
}

impl Telemetry {
    /// What the environment asks for.
    #[cfg(feature = "otlp")]
    pub(super) fn from_environment() -> Started {
        let begun =
            variables::Variables::read().and_then(|asked| asked.map(export::Export::begin).transpose());
        match begun {
            Ok(None) => Started::default(),
            Ok(Some((export, spans))) => {
                let telemetry = Self { export: Some(export) };
                Started { telemetry, spans: Some(spans), warning: None }
            }
            Err(warning) => Started { warning: Some(warning), ..Started::default() },
        }
    }

    /// Nothing: this program was built without the feature `otlp`.
    #[cfg(not(feature = "otlp"))]
    pub(super) fn from_environment() -> Started {
        Started::default()
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
