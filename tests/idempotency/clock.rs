//! Clocks that leap: `audit clock` shows it, and after `audit clock --accept` keys expire, and calls under keys go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cofferdam_test_support::log_calls::DateClock;
use cofferdam_test_support::{Cli, Home, ManualClock};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::command::{desk, post};
use super::{count, key};
use crate::shared_host::{run, shared_host};

/// Makes a call under a key of the path's own, by a host whose clock is so many hours ahead of the machine's.
fn call_at(home: &Home, path: &str, hours: i64) {
    let clock = ManualClock::starting_at(Timestamp::now() + SignedDuration::from_hours(hours));
    let host = home.builder_at(&clock).allow_private(shared_host().upstream.host_port()).build().unwrap();
    run(host.run(super::post(path))).outcome.unwrap();
}

/// True if the audit log goes by the clock of the machine, according to `audit clock`.
fn is_believed(cli: &Cli, more: &[&str]) -> bool {
    let time = cli.run(&[&["audit", "clock", "--format", "json"], more].concat()).json();
    time["believed"].as_bool().unwrap_or_else(|| panic!("{time}"))
}

#[test]
fn an_accepted_clock_that_is_ahead_frees_keys() {
    let (home, cli) = desk();
    let path = "/text/clock?ahead";
    call_at(&home, path, -72);
    let under_its_key = post(path, &["--idempotency-key", &key(path)]);
    assert!(!is_believed(&cli, &[]));
    cli.run(&["audit", "clock"]).said("cofferdam audit clock --accept");
    // The command is another caller, and the outcome of three days ago still has the key.
    cli.run(&under_its_key).fails(67).said("another call");
    assert!(is_believed(&cli, &["--accept"]));
    assert!(is_believed(&cli, &[]), "also in the next process");
    cli.run(&under_its_key).ok();
    assert_eq!(count(path), 2);
    cli.run(&["audit", "verify"]).ok();
}

#[test]
fn an_accepted_clock_that_is_behind_admits_keys() {
    let (home, cli) = desk();
    call_at(&home, "/text/clock?first", 72);
    let path = "/text/clock?behind";
    let under_a_key = post(path, &["--idempotency-key", &key(path), "--format", "json"]);
    assert!(!is_believed(&cli, &[]));
    let refused = cli.run(&under_a_key).fails(84).envelope();
    assert_eq!((&refused["error"]["code"], count(path)), (&json!("audit_unavailable"), 0));
    assert!(is_believed(&cli, &["--accept"]));
    assert!(is_believed(&cli, &[]), "also in the next process");
    cli.run(&under_a_key).ok();
    assert_eq!(count(path), 1);
    cli.run(&["audit", "verify"]).ok();
}

#[test]
fn a_clock_set_back_during_a_call_frees_no_key() {
    let (home, _) = desk();
    let path = "/text/clock?set-back";
    let is_right = Arc::new(AtomicBool::new(false));
    let is_set = Arc::clone(&is_right);
    let date = move || {
        let is_behind = count(path) > 0 && !is_set.load(Ordering::SeqCst);
        Timestamp::now() - SignedDuration::from_hours(if is_behind { 48 } else { 0 })
    };
    let builder = home.builder_alone().clock(Arc::new(DateClock(date)));
    let host = builder.allow_private(shared_host().upstream.host_port()).build().unwrap();
    run(host.run(super::post(path))).outcome.unwrap();
    is_right.store(true, Ordering::SeqCst);
    assert!(super::reported(&host, super::post(path)).1.replayed.is_some());
    assert_eq!(count(path), 1);
}
