//! A collector that is not there, does not answer or does not want: the call is as it is without one.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use cofferdam_test_support::Upstream;
use cofferdam_test_support::upstream::ScriptedReply;

use super::fixture::{TRACES, collector, command, fetch, ran, words};
use crate::shared_host::shared_host;

#[test]
fn a_broken_collector_costs_only_one_warning() {
    let refusing = Upstream::start();
    refusing.script(TRACES, [ScriptedReply::status(503)]);
    let hanging = Upstream::start();
    hanging.script(TRACES, [ScriptedReply::hang()]);
    let leaving = Upstream::start();
    leaving.script(TRACES, [ScriptedReply::hang_up()]);
    let closed = format!("http://localhost:{}", shared_host().closed_port);
    let secure = format!("https://{}", collector().host_port());
    for (path, code) in [("/text/whatever", 0), ("/status/404", 76)] {
        let args = fetch(path);
        let usual = ran(&words(&args), "", &[]);
        assert_eq!(usual.code, Some(code));
        for (endpoint, why) in [
            (closed.as_str(), "refused"),
            (&secure, ""),
            ("http://no-such-host.invalid:4318", ""),
            (&format!("http://{}", refusing.host_port()), "it answered with status 503"),
            (&format!("http://{}", leaving.host_port()), ""),
            (&format!("http://{}", hanging.host_port()), "no answer within 400 ms"),
        ] {
            let ran = ran(&words(&args), endpoint, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "400")]);
            assert_eq!((ran.code, &ran.stdout), (usual.code, &usual.stdout), "{endpoint}");
            let warnings: Vec<_> = ran.stderr.lines().filter(|line| line.contains("WARN")).collect();
            assert_eq!(warnings.len(), 1, "{endpoint}: {}", ran.stderr);
            assert!(
                warnings[0].contains("spans could not be sent: ") && warnings[0].contains(why),
                "{warnings:?}"
            );
        }
    }
    assert_eq!(refusing.seen(TRACES).len(), 2, "once for each command, and not again");
}

#[test]
fn the_value_is_printed_before_spans_are_sent() {
    let hanging = Upstream::start();
    hanging.script(TRACES, [ScriptedReply::hang()]);
    let args = fetch("/text/before");
    let endpoint = format!("http://{}", hanging.host_port());
    let mut child = command(&words(&args), &endpoint, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with('{'), "{line}");
    // It waits for the collector, for an hour if it is not stopped.
    while hanging.seen(TRACES).is_empty() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}
