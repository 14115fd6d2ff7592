//! Metrics of real calls: their counts, their durations, and that other tools can parse the text.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cofferdam::{Call, Host};
use cofferdam_egress::resilience::{BreakerPolicy, RateLimit, ResilienceSettings, RetryProfile};
use cofferdam_runtime::call::{CallResult, Fallback};
use cofferdam_runtime::metrics::Metrics;
use cofferdam_test_support::ManualClock;
use cofferdam_test_support::package::repository;
use serde_json::json;

use crate::services::tools;
use crate::shared_host::{example, run, shared_host};

/// A host whose time passes only through its waits, and the metrics of its calls.
fn host(settings: ResilienceSettings) -> (Host, Arc<Metrics>) {
    let (world, clock) = (shared_host(), ManualClock::new());
    let metrics = Arc::new(Metrics::with_clock(clock.clone()));
    let builder = world.home.builder_at(&clock).resilience(settings).listener(metrics.clone());
    let builder = builder.allow_private(world.upstream.host_port());
    (builder.allow_private(format!("localhost:{}", world.closed_port)).build().unwrap(), metrics)
}

fn fetch(path: &str) -> Call {
    Call::new(example("probe"), "fetch", json!({"url": shared_host().upstream.url(path)}))
}

/// The samples by their names and labels, as they stand in the text.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    assert!(text.ends_with("# EOF\n"), "{text}");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let samples: Vec<_> = samples.map(|line| line.rsplit_once(' ').unwrap()).collect();
    let count = samples.len();
    let samples: BTreeMap<_, _> =
        samples.into_iter().map(|(series, value)| (series, value.parse().unwrap())).collect();
    assert_eq!(samples.len(), count, "no series stands twice:\n{text}");
    samples
}

const FETCH: &str = "connector=\"github://cofferdam/probe\",op=\"fetch\"";

#[track_caller]
fn is(samples: &BTreeMap<&str, f64>, series: &str, value: f64) {
    assert_eq!(samples.get(series), Some(&value), "{series} of {samples:#?}");
}

#[test]
fn calls_attempts_and_usage_are_counted() {
    let (host, metrics) = host(ResilienceSettings::default());
    let outcome = |call: Call| {
        let CallResult { outcome, report } = run(host.run(call));
        (outcome, report)
    };
    outcome(Call::new(example("probe"), "no_such_op", json!({}))).0.unwrap_err();
    let mut used = Vec::new();
    for call in [
        fetch("/text/metered"),
        fetch("/flaky/2/metered"),
        fetch("/status/404?metered"),
        Call::new(example("probe"), "fetch", json!({"url": "http://elsewhere.example/"})),
    ] {
        let (_, report) = outcome(call);
        used.extend(report.attempts.into_iter().map(|attempt| attempt.usage.unwrap()));
    }
    outcome(Call::new(example("probe"), "no_such_op", json!({}))).0.unwrap_err();

    let again = || fetch("/text/metered-once").idempotency_key("metered-once");
    for _ in 0..2 {
        let (value, report) = outcome(again());
        value.unwrap();
        used.extend(report.attempts.into_iter().map(|attempt| attempt.usage.unwrap()));
    }

    let text = metrics.encode();
    let samples = samples(&text);
    let sum = |of: fn(&cofferdam::Usage) -> u64| used.iter().map(of).sum::<u64>() as f64;
    let ended = |name: &str, outcome: &str, class: &str| {
        format!("cofferdam_{name}_total{{{FETCH},outcome=\"{outcome}\",class=\"{class}\"}}")
    };
    is(&samples, &ended("calls", "value", "none"), 4.0);
    is(&samples, &format!("cofferdam_replays_total{{{FETCH}}}"), 1.0);
    is(&samples, &ended("calls", "failure", "external_api_error"), 1.0);
    is(&samples, &ended("calls", "failure", "capability_denied"), 1.0);
    is(&samples, &ended("attempts", "value", "none"), 3.0);
    is(&samples, &ended("attempts", "failure", "external_api_error"), 3.0);
    // An unknown operation has no name in metrics, before its connector has run and after.
    let refused = |connector: &str| {
        let labels = format!("connector=\"{connector}\",op=\"other\",outcome=\"refused\",class=\"none\"");
        format!("cofferdam_calls_total{{{labels}}}")
    };
    is(&samples, &refused("other"), 1.0);
    is(&samples, &refused("github://cofferdam/probe"), 1.0);
    is(&samples, &format!("cofferdam_retries_total{{{FETCH},class=\"external_api_error\"}}"), 2.0);
    is(&samples, "cofferdam_calls_in_flight", 0.0);
    is(&samples, &format!("cofferdam_fuel_total{{{FETCH}}}"), sum(|usage| usage.fuel));
    is(&samples, &format!("cofferdam_requests_total{{{FETCH}}}"), sum(|usage| usage.requests));
    is(&samples, &format!("cofferdam_received_bytes_total{{{FETCH}}}"), sum(|usage| usage.bytes_in));
    is(&samples, &format!("cofferdam_memory_peak_bytes_count{{{FETCH}}}"), 7.0);
    is(&samples, &format!("cofferdam_memory_peak_bytes_sum{{{FETCH}}}"), sum(|usage| usage.memory));
    is(&samples, &format!("cofferdam_attempt_duration_seconds_count{{{FETCH}}}"), 7.0);
    is(&samples, &format!("cofferdam_call_duration_seconds_count{{{FETCH}}}"), 6.0);
    // The clock passes by waits: one call waited, and its whole wait is in the call's duration.
    let waited = samples[format!("cofferdam_retry_wait_seconds_total{{{FETCH}}}").as_str()];
    let took = samples[format!("cofferdam_call_duration_seconds_sum{{{FETCH}}}").as_str()];
    assert!((3.0..=3.6).contains(&waited) && took >= waited, "{waited} of {took}");
    let within =
        |le: &str| samples[format!("cofferdam_call_duration_seconds_bucket{{le=\"{le}\",{FETCH}}}").as_str()];
    assert_eq!((within("2.5"), within("+Inf")), (5.0, 6.0));
}

#[test]
fn fallbacks_circuits_and_rate_delays_are_counted() {
    let settings = ResilienceSettings::default()
        .with_profile(RetryProfile::named("none").unwrap())
        .with_breaker(BreakerPolicy::at_once())
        .with_rate(RateLimit::new(1, Duration::from_secs(1)).unwrap());
    let (host, metrics) = host(settings);
    let closed = format!("http://localhost:{}/", shared_host().closed_port);
    let call = Call::new(example("probe"), "fetch", json!({"url": closed}));
    let instead = json!({"url": shared_host().upstream.url("/text/instead")});
    let fallback = Fallback::new(example("probe"), "fetch").with_args(instead.as_object().unwrap().clone());
    run(host.run(call.or_else(fallback))).outcome.unwrap();
    run(host.run(fetch("/text/turn"))).outcome.unwrap();

    let text = metrics.encode();
    let samples = samples(&text);
    is(&samples, &format!("cofferdam_fallbacks_total{{{FETCH},class=\"network_error\"}}"), 1.0);
    let at = format!("host=\"localhost:{}\"", shared_host().closed_port);
    let probe = "connector=\"github://cofferdam/probe\"";
    is(&samples, &format!("cofferdam_circuit_changes_total{{{probe},{at},to=\"open\"}}"), 1.0);
    let at = format!("host=\"{}\"", shared_host().upstream.host_port());
    is(&samples, &format!("cofferdam_rate_delays_total{{{at}}}"), 1.0);
    let delayed = samples[format!("cofferdam_rate_delay_seconds_total{{{at}}}").as_str()];
    assert!(delayed > 0.0 && delayed <= 1.0, "{delayed}");
}

#[test]
fn prometheus_parses_the_open_metrics_text() {
    let Some(tools) = tools() else { return };
    let (host, metrics) = host(ResilienceSettings::default());
    for path in ["/flaky/1/parsed", "/status/500?parsed"] {
        drop(run(host.run(fetch(path))).outcome);
    }
    let text = metrics.encode();
    let read = |text: &str| {
        let mut child = Command::new(tools.python("python"))
            .arg(repository().join("tests/services/tools/openmetrics.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (fine, said) = read(&text);
    assert!(fine, "{text}");
    for family in [
        "cofferdam_calls counter -",
        "cofferdam_call_duration_seconds histogram seconds",
        "cofferdam_memory_peak_bytes histogram bytes",
        "cofferdam_received_bytes counter bytes",
        "cofferdam_calls_in_flight gauge -",
    ] {
        assert!(said.lines().any(|line| line == family), "{family}: {said}");
    }
    // The control: malformed text is not parsed.
    assert!(!read(&text.replace("# EOF\n", "")).0 && !read(&text.replace("_total{", "{")).0);
}
