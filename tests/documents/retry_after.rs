//! The `Retry-After` of services: waited for if it fits, and reported if it does not.

use std::ops::RangeInclusive;
use std::time::Duration;

use cofferdam_core::limits::LimitRequest;
use cofferdam_test_support::ScriptedReply;
use serde_json::json;

use super::fixture::{Stage, fetch, order, profile, script, within};
use crate::shared_host::shared_host;

/// The requested wait, and up to a fifth more: all clients got the same value.
fn spread(asked: u64) -> RangeInclusive<u64> {
    asked..=asked + asked / 5
}

/// Never earlier than requested, and with the jitter of the profile's own waits.
#[test]
fn a_fitting_retry_after_is_waited_with_jitter() {
    let (stage, upstream) = (Stage::new(), &shared_host().upstream);
    let mut all = Vec::new();
    for name in ["standard", "patient", "deterministic"] {
        for (asked, ms) in [("7", 7_000), ("0", 0), ("007", 7_000)] {
            let turns = [
                ScriptedReply::after(429, asked),
                ScriptedReply::after(503, asked),
                ScriptedReply::status(200),
            ];
            let (url, path) = script(upstream, turns);
            let told = stage.call(fetch(&url).retry(profile(name)));
            assert_eq!(told.outcome.as_ref().unwrap()["status"], 200, "{name} {asked}");
            let range = if name == "deterministic" { ms..=ms } else { spread(ms) };
            assert_eq!(told.waits().len(), 2, "{name} {asked}");
            within(&told.waits(), &[range.clone(), range], &format!("{name} {asked}"));
            all.extend(told.waits());
            assert_eq!(upstream.seen(&path).len(), 3, "{name} {asked}");
            let from = told.steps.iter().filter_map(|step| step.facts.get("from")).collect::<Vec<_>>();
            assert_eq!(from, ["retry_after", "retry_after"], "{name} {asked}");
        }
    }
    let varied: std::collections::BTreeSet<_> = all.into_iter().filter(|wait| *wait > 7_000).collect();
    assert!(varied.len() > 5, "they come back one after the other: {varied:?}");
}

/// An HTTP date, by the host's own clock. A date has whole seconds.
#[test]
fn an_http_date_is_waited_for() {
    let (stage, upstream) = (Stage::new(), &shared_host().upstream);
    use cofferdam_core::clock::Clock as _;
    let then = stage.clock.timestamp() + Duration::from_secs(9);
    let date = then.to_zoned(jiff::tz::TimeZone::UTC).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let (url, _) = script(upstream, [ScriptedReply::after(503, date), ScriptedReply::status(200)]);
    let told = stage.call(fetch(&url));
    assert!(told.outcome.is_ok());
    assert!((1_000..=10_800).contains(&told.waits()[0]), "{:?}", told.waits());
    // A date in the past means now.
    let (url, _) = script(
        upstream,
        [ScriptedReply::after(503, "Sat, 01 Jan 2000 00:00:00 GMT"), ScriptedReply::status(200)],
    );
    assert_eq!(stage.call(fetch(&url)).waits(), [0]);
}

/// A wait that cannot end before the deadline is not started; the failure is unchanged.
#[test]
fn an_unfitting_retry_after_ends_the_call() {
    let (stage, upstream) = (Stage::new(), &shared_host().upstream);
    let week = 7 * 24 * 60 * 60 * 1_000_u64;
    let cases = [
        ("60", 60_000, 429),
        ("1000000000", week, 503),
        ("99999999999999999999999999", week, 503),
        ("Thu, 01 Jan 2099 00:00:00 GMT", week, 429),
    ];
    for (asked, told_ms, status) in cases {
        let (url, path) = script(upstream, [ScriptedReply::after(status, asked)]);
        let told = stage.call(fetch(&url));
        let details = told.failure().details();
        assert_eq!(told.failure().class().name(), "external_api_error", "{asked}");
        assert!(told.failure().retriable(), "{asked}: later it may be repeated");
        assert_eq!(details["retry_after_ms"], told_ms, "{asked}");
        assert_eq!(
            (&details["retry_stopped"], &details["retried"]),
            (&json!("wall_time"), &json!(0)),
            "{asked}"
        );
        assert_eq!((told.waits(), upstream.seen(&path).len()), (vec![], 1), "{asked}");
    }
    // The same wait within a longer time.
    let (url, _) = script(upstream, [ScriptedReply::after(429, "60"), ScriptedReply::status(200)]);
    let limits = LimitRequest::parse(None, Some("2m"), None).unwrap();
    let told = stage.call(fetch(&url).limits(limits));
    assert!(told.outcome.is_ok());
    within(&told.waits(), &[spread(60_000)], "60 s");
}

/// An unreadable value counts as missing, and an operation that is not repeated only reports it.
#[test]
fn an_unreadable_retry_after_is_ignored() {
    let (stage, upstream) = (Stage::new(), &shared_host().upstream);
    for nonsense in ["soon", "-5", "+7", "1e3", "", "7 seconds"] {
        let (url, _) = script(upstream, [ScriptedReply::after(503, nonsense), ScriptedReply::status(200)]);
        let waits = stage.call(fetch(&url)).waits();
        assert!((1_000..1_200).contains(&waits[0]), "{nonsense:?}: {waits:?}");
    }
    let (url, path) = script(upstream, [ScriptedReply::after(503, "7"), ScriptedReply::status(200)]);
    let told = stage.call(order("order_once", &url));
    assert_eq!(told.failure().details()["retry_after_ms"], 7_000);
    assert!(!told.failure().retriable());
    assert_eq!(upstream.seen(&path).len(), 1);
}

/// The deadline bounds the sum of all waits, also of those that would have fitted separately.
#[test]
fn retry_after_waits_share_one_deadline() {
    let (stage, upstream) = (Stage::new(), &shared_host().upstream);
    let (url, path) = script(upstream, [ScriptedReply::after(503, "12")]);
    let told = stage.call(fetch(&url));
    let details = told.failure().details();
    within(&told.waits(), &[spread(12_000), spread(12_000)], "a third would end after 30 s");
    assert_eq!((&details["retry_stopped"], &details["retried"]), (&json!("wall_time"), &json!(2)));
    assert_eq!(details["retry_after_ms"], 12_000);
    assert_eq!(upstream.seen(&path).len(), 3);
}
