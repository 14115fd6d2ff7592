//! The requests to a collector, decoded with types generated from the protocol's own definition.

use std::collections::BTreeMap;

use cofferdam_test_support::Upstream;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message as _;

use super::fixture::TRACES;

/// Names and values, as text.
pub(crate) type Attributes = BTreeMap<String, String>;

/// One span.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) id: Vec<u8>,
    pub(crate) parent: Vec<u8>,
    pub(crate) trace: Vec<u8>,
    /// Nanoseconds since 1970.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// `2` is an error.
    pub(crate) status: i32,
    pub(crate) attributes: Attributes,
    /// Of the process that sent it.
    pub(crate) resource: Attributes,
}

impl Span {
    /// An attribute; empty where there is none.
    pub(crate) fn at(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

/// All spans received until now, in the order of their ends.
pub(crate) fn spans(collector: &Upstream) -> Vec<Span> {
    let requests = collector.seen(TRACES);
    let requests = requests.iter().map(|seen| {
        assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", TRACES));
        assert_eq!(seen.header("content-type"), Some("application/x-protobuf"));
        ExportTraceServiceRequest::decode(&*seen.body).unwrap()
    });
    let mut spans = Vec::new();
    for of_resource in requests.flat_map(|request| request.resource_spans) {
        let resource = attributes(&of_resource.resource.unwrap().attributes);
        for of_scope in of_resource.scope_spans {
            assert_eq!(of_scope.scope.unwrap().name, "cofferdam");
            for span in of_scope.spans {
                assert!(span.events.is_empty() && span.links.is_empty(), "{span:?}");
                spans.push(Span {
                    start: span.start_time_unix_nano,
                    end: span.end_time_unix_nano,
                    status: span.status.map_or(0, |status| status.code),
                    attributes: attributes(&span.attributes),
                    name: span.name,
                    id: span.span_id,
                    parent: span.parent_span_id,
                    trace: span.trace_id,
                    resource: resource.clone(),
                });
            }
        }
    }
    spans
}

fn attributes(all: &[KeyValue]) -> Attributes {
    all.iter().map(|attribute| (attribute.key.clone(), text(attribute.value.as_ref()))).collect()
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(is)) => is.to_string(),
        other => format!("{other:?}"),
    }
}
