//! What a service asks for in `Retry-After`: waited at least where it fits, said where it does not (C8, C9, S13).

use std::ops::RangeInclusive;
use std::time::Duration;

use cofferdam_core::limits::LimitRequest;
use cofferdam_test_support::Turn;
use serde_json::json;

use super::stage::{Stage, fetch, order, profile, script, within};
use crate::world::world;

/// What was asked for, and up to a fifth more: everybody was told the same.
fn spread(asked: u64) -> RangeInclusive<u64> {
    asked..=asked + asked / 5
}

/// C8: never earlier than asked for, and spread as the profile spreads its own waits.
#[test]
fn c8_and_s13_what_fits_is_waited_and_spread() {
    let (stage, upstream) = (Stage::new(), &world().upstream);
    let mut all = Vec::new();
    for name in ["standard", "patient", "deterministic"] {
        for (asked, ms) in [("7", 7_000), ("0", 0), ("007", 7_000)] {
            let turns = [Turn::after(429, asked), Turn::after(503, asked), Turn::status(200)];
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

/// C8: an HTTP date, by the host's own clock. A date has whole seconds.
#[test]
fn c8_a_date_is_waited_for() {
    let (stage, upstream) = (Stage::new(), &world().upstream);
    use cofferdam_core::clock::Clock as _;
    let then = stage.clock.timestamp() + Duration::from_secs(9);
    let date = then.to_zoned(jiff::tz::TimeZone::UTC).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let (url, _) = script(upstream, [Turn::after(503, date), Turn::status(200)]);
    let told = stage.call(fetch(&url));
    assert!(told.outcome.is_ok());
    assert!((1_000..=10_800).contains(&told.waits()[0]), "{:?}", told.waits());
    // What is past is now.
    let (url, _) = script(upstream, [Turn::after(503, "Sat, 01 Jan 2000 00:00:00 GMT"), Turn::status(200)]);
    assert_eq!(stage.call(fetch(&url)).waits(), [0]);
}

/// C8 and C9: what cannot end before the deadline is not begun; the failure stays what it was.
#[test]
fn c8_what_does_not_fit_ends_the_call_and_is_said() {
    let (stage, upstream) = (Stage::new(), &world().upstream);
    let week = 7 * 24 * 60 * 60 * 1_000_u64;
    let cases = [
        ("60", 60_000, 429),
        ("1000000000", week, 503),
        ("99999999999999999999999999", week, 503),
        ("Thu, 01 Jan 2099 00:00:00 GMT", week, 429),
    ];
    for (asked, told_ms, status) in cases {
        let (url, path) = script(upstream, [Turn::after(status, asked)]);
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
    let (url, _) = script(upstream, [Turn::after(429, "60"), Turn::status(200)]);
    let limits = LimitRequest::parse(None, Some("2m"), None).unwrap();
    let told = stage.call(fetch(&url).limits(limits));
    assert!(told.outcome.is_ok());
    within(&told.waits(), &[spread(60_000)], "60 s");
}

/// What cannot be read is not there, and what is not repeated is only told.
#[test]
fn c8_nonsense_is_not_there_and_what_is_not_repeated_only_tells() {
    let (stage, upstream) = (Stage::new(), &world().upstream);
    for nonsense in ["soon", "-5", "+7", "1e3", "", "7 seconds"] {
        let (url, _) = script(upstream, [Turn::after(503, nonsense), Turn::status(200)]);
        let waits = stage.call(fetch(&url)).waits();
        assert!((1_000..1_200).contains(&waits[0]), "{nonsense:?}: {waits:?}");
    }
    let (url, path) = script(upstream, [Turn::after(503, "7"), Turn::status(200)]);
    let told = stage.call(order("order_once", &url));
    assert_eq!(told.failure().details()["retry_after_ms"], 7_000);
    assert!(!told.failure().retriable());
    assert_eq!(upstream.seen(&path).len(), 1);
}

/// C8: the deadline stands over all waits together, also over those that each would have fitted.
#[test]
fn c9_waits_add_up_under_one_deadline() {
    let (stage, upstream) = (Stage::new(), &world().upstream);
    let (url, path) = script(upstream, [Turn::after(503, "12")]);
    let told = stage.call(fetch(&url));
    let details = told.failure().details();
    within(&told.waits(), &[spread(12_000), spread(12_000)], "a third would end after 30 s");
    assert_eq!((&details["retry_stopped"], &details["retried"]), (&json!("wall_time"), &json!(2)));
    assert_eq!(details["retry_after_ms"], 12_000);
    assert_eq!(upstream.seen(&path).len(), 3);
}
