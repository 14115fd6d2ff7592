//! Spans at a third-party collector.

use std::time::{Duration, Instant};

use cofferdam_test_support::services::rotel;

use super::fixture::{fetch, ran, words};
use crate::services::tools;

#[test]
fn rotel_receives_the_spans_unchanged() {
    let Some(tools) = tools() else { return };
    let rotel = rotel(&tools);
    let args = [fetch("/flaky/1/rotel"), vec!["--format".into(), "json".into(), "--usage".into()]].concat();
    let ran =
        ran(&words(&args), &format!("http://{}", rotel.host_port()), &[("OTEL_SERVICE_NAME", "desk-rotel")]);
    assert_eq!(ran.stderr, "", "it took them");
    let answer = ran.json();
    let audit_id = answer["report"]["audit_id"].as_str().unwrap();
    // It prints what it took a little after it took it.
    let begun = Instant::now();
    while !rotel.log().contains(audit_id) && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = rotel.log();
    for told in
        [audit_id, "desk-rotel", "github://cofferdam/probe@0.1.0", "external_api_error", "unavailable"]
    {
        assert!(log.contains(told), "{told}: {log}");
    }
    for (span, times) in [("call", 1), ("admit", 2), ("attempt", 2), ("sleep", 1), ("record", 3)] {
        let name = |line: &&str| line.contains("Name") && line.trim_end().ends_with(&format!(": {span}"));
        assert_eq!(log.lines().filter(name).count(), times, "{span}: {log}");
    }
}
