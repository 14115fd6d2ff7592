//! The export of spans from the log's subscriber, in the SDK's batches, to the collector.

use std::time::Duration;

use cofferdam_runtime::call::SPANS;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::filter_fn;

use super::SpanLayer;
use super::collector::CollectorClient;
use super::environment::OtlpVariables;

/// The time that the command waits at its end beyond one export's timeout, so that the export reports its own error.
const GRACE: Duration = Duration::from_millis(100);

/// The running export of spans.
pub(super) struct SpanExport {
    provider: SdkTracerProvider,
    wait: Duration,
}

impl SpanExport {
    /// Starts the export, and returns the layer for it, which receives the spans of calls and nothing else.
    ///
    /// # Errors
    /// The fault in the environment, for the operator.
    pub(super) fn begin(asked: OtlpVariables) -> Result<(Self, SpanLayer), String> {
        let wait = asked.timeout + GRACE;
        let collector = CollectorClient::new(&asked)?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(asked.timeout)
            // A command does not wait after its work to retry.
            .with_retry_policy(RetryPolicy::disabled())
            .with_http_client(collector)
            .build()
            .map_err(|error| error.to_string())?;
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build();
        let layer = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("cofferdam"))
            // Source locations and threads are of no use to a reader, and cost a field each.
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(filter_fn(|metadata| metadata.is_span() && metadata.target() == SPANS))
            .boxed();
        Ok((Self { provider, wait }, layer))
    }

    /// Sends the remaining spans within the timeout. A failure was warned about by then.
    pub(super) fn end(self) {
        if let Err(error) = self.provider.shutdown_with_timeout(self.wait) {
            tracing::debug!(target: "cofferdam::telemetry", %error, "the last spans were not sent");
        }
    }
}

/// Returns the sender from `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, by default this program.
fn resource() -> Resource {
    let named = |resource: &Resource| {
        let name = resource.get(&Key::from_static_str("service.name"));
        name.is_some_and(|name| !name.as_str().starts_with("unknown_service"))
    };
    let found = Resource::builder().build();
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let mut resource = Resource::builder();
    if !named(&found) {
        resource = resource.with_service_name("cofferdam");
    }
    if found.get(&Key::from_static_str("service.version")).is_none() {
        resource = resource.with_attribute(version);
    }
    resource.build()
}
