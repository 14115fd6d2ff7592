//! W3C trace context: the text by which another process continues a trace.

use cofferdam_cluster::jobs::JobTrace;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The link between spans and `traceparent`.
pub(super) struct TraceContextLink;

impl JobTrace for TraceContextLink {
    fn traceparent(&self, span: &Span) -> Option<String> {
        let context = span.context();
        let context = context.span().span_context().clone();
        let flags = context.trace_flags().to_u8() & TraceFlags::SAMPLED.to_u8();
        context.is_valid().then(|| format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id()))
    }

    fn follow(&self, span: &Span, traceparent: &str) {
        if let Some(context) = parse(traceparent) {
            // It fails if nothing is traced.
            let _ = span.set_parent(Context::new().with_remote_span_context(context));
        }
    }
}

fn parse(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(parts.next()?, 16).ok()?);
    let context = SpanContext::new(trace, span, flags, true, TraceState::NONE);
    context.is_valid().then_some(context)
}
