//! A call as a trace: its spans, their parents and contents; and the settings that turn them off.

use super::decode::{Span, spans};
use super::fixture::{collector, fetch, ran, words};
use crate::shared_host::shared_host;

fn named<'s>(spans: &'s [Span], name: &str) -> Vec<&'s Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

#[test]
fn every_phase_is_a_child_span_of_its_call() {
    let collector = collector();
    let args = [fetch("/flaky/1/traced"), vec!["--format".into(), "json".into(), "--usage".into()]].concat();
    let endpoint = format!("http://{}", collector.host_port());
    let answer = ran(&words(&args), &endpoint, &[]).json();
    let spans = spans(&collector);
    let call = named(&spans, "call")[0];
    assert_eq!(call.at("audit_id"), answer["report"]["audit_id"]);
    assert_eq!((call.at("connector"), call.at("op")), ("github://cofferdam/probe@0.1.0", "fetch"));
    assert_eq!((call.at("outcome"), call.at("attempts"), call.at("class")), ("value", "2", ""));
    assert_eq!((call.status, call.parent.len()), (0, 0), "a trace of its own");

    let (admits, attempts) = (named(&spans, "admit"), named(&spans, "attempt"));
    assert_eq!((spans.len(), admits.len(), attempts.len()), (9, 2, 2), "{spans:?}");
    let records = named(&spans, "record");
    assert_eq!(records.len(), 3, "before each attempt, and before the outcome is told");
    assert!(records.iter().all(|span| span.at("outcome") == "written"));
    for span in spans.iter().filter(|span| span.name != "call") {
        assert_eq!((&span.parent, &span.trace), (&call.id, &call.trace), "{span:?}");
        assert!(call.start <= span.start && span.start <= span.end && span.end <= call.end, "{span:?}");
    }
    assert!(admits.iter().all(|span| span.at("outcome") == "admitted"));
    let told = |span: &Span| ["attempt", "outcome", "class", "code"].map(|name| span.at(name).to_owned());
    assert_eq!(told(attempts[0]), ["1", "failure", "external_api_error", "unavailable"]);
    assert_eq!(told(attempts[1]), ["2", "value", "", ""]);
    assert_eq!((attempts[0].status, attempts[1].status), (2, 0));
    let used = &answer["report"]["attempts"][1]["usage"];
    for (name, told) in [("fuel", "fuel"), ("memory_bytes", "memory_bytes"), ("bytes_in", "bytes_in")] {
        assert_eq!(attempts[1].at(name), used[told].to_string(), "{name}");
    }
    let sleep = named(&spans, "sleep")[0];
    assert_eq!((sleep.at("retry"), sleep.at("delay_ms")), ("1", "5"));
    assert!(attempts[0].end <= sleep.start && sleep.end <= attempts[1].start, "{spans:?}");

    // The attributes that each of them may have, and no others.
    let known = [
        "audit_id",
        "connector",
        "op",
        "attempts",
        "attempt",
        "candidate",
        "outcome",
        "class",
        "code",
        "fuel",
        "memory_bytes",
        "requests",
        "bytes_out",
        "bytes_in",
        "retry",
        "of",
        "delay_ms",
    ];
    for name in spans.iter().flat_map(|span| span.attributes.keys()) {
        assert!(known.contains(&name.as_str()), "{name}");
    }
    let who: Vec<_> = call.resource.keys().map(String::as_str).collect();
    let sdk = ["telemetry.sdk.language", "telemetry.sdk.name", "telemetry.sdk.version"];
    assert_eq!(who, [&["service.name", "service.version"][..], &sdk].concat());
    assert_eq!(call.resource["service.name"], "cofferdam");
}

#[test]
fn refusal_and_failure_spans_have_class_and_code() {
    let collector = collector();
    let endpoint = format!("http://{}", collector.host_port());
    let url = format!("url={}", shared_host().elsewhere.url("/text/a"));
    for (args, code) in [
        (&["call", "github://cofferdam/probe", "fetch", "--arg", &url][..], 77),
        (&["call", "github://cofferdam/probe", "no_such_op"], 66),
    ] {
        let ran = ran(args, &endpoint, &[]);
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
    }
    let spans = spans(&collector);
    let told: Vec<_> = named(&spans, "call")
        .iter()
        .map(|span| (span.at("outcome"), span.at("class"), span.at("code"), span.status))
        .collect();
    assert_eq!(told[0], ("failure", "capability_denied", "host_not_granted", 2));
    assert_eq!((told[1].0, told[1].1, told[1].3), ("refused", "", 2));
    let refused = named(&spans, "admit")[1];
    assert_eq!((refused.at("outcome"), refused.at("code")), ("refused", told[1].2));
    assert_eq!(named(&spans, "attempt").len(), 1);
}

#[test]
fn environment_variables_configure_the_exporter() {
    let collector = collector();
    let endpoint = format!("http://{}", collector.host_port());
    let args = fetch("/text/as-said");
    let secret = "collector-key-5hGq2";
    let header = format!("x-api-key={secret},x-other=a%20b");
    let said = ran(
        &words(&args),
        &endpoint,
        &[
            ("OTEL_SERVICE_NAME", "desk"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.version=9"),
            ("OTEL_EXPORTER_OTLP_HEADERS", &header),
            ("RUST_LOG", "trace"),
        ],
    );
    assert!(said.stderr.contains("cofferdam::record") && !said.stderr.contains(secret), "{}", said.stderr);
    said.ok();
    let sent = spans(&collector);
    assert_eq!(sent[0].resource["service.name"], "desk");
    assert_eq!(sent[0].resource["service.version"], "9");
    assert_eq!(sent[0].resource["deployment.environment.name"], "test");
    let request = &collector.seen("/v1/traces")[0];
    assert_eq!((request.header("x-api-key"), request.header("x-other")), (Some(secret), Some("a b")));
    assert_eq!(request.header("host"), Some(collector.host_port().as_str()));

    let before = collector.connections();
    for off in [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", ""),
    ] {
        assert_eq!(ran(&words(&args), &endpoint, &[off]).stderr, "", "{off:?}");
    }
    // A command that calls nothing has nothing to tell.
    ran(&["list"], &endpoint, &[]).ok();
    assert_eq!(collector.connections(), before);
    let grpc = ran(&words(&args), &endpoint, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    assert!(grpc.stderr.contains("no spans are sent: OTEL_EXPORTER_OTLP_PROTOCOL asks"), "{}", grpc.stderr);
    grpc.ok();
    assert_eq!(collector.connections(), before);
}
