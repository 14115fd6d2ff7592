//! The breaker's table, row by row, and its invariants.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::time::Duration;

use cofferdam_core::failure::FailureCause;
use jiff::Timestamp;
use proptest::prelude::*;

use super::policy::BreakerPolicy;
use super::*;

const NONE: Option<&str> = None;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn seen(cause: Option<FailureCause>) -> CircuitObservation<'static> {
    CircuitObservation { cause, status: None, retry_after: None, credential: None, audit_id: "audit-1" }
}

fn status(status: u16) -> CircuitObservation<'static> {
    CircuitObservation { status: Some(status), ..seen(Some(FailureCause::from_status(status))) }
}

/// A circuit with the observations that a test feeds it.
struct Driven {
    policy: BreakerPolicy,
    circuit: Circuit,
}

impl Driven {
    fn new(policy: BreakerPolicy) -> Self {
        Self { policy, circuit: Circuit::default() }
    }

    fn sees(&mut self, second: i64, seen: CircuitObservation<'_>) -> Option<(&'static str, &'static str)> {
        let probed =
            matches!(self.circuit.admission(seen.credential, at(second)), BreakerAdmission::Probe(_));
        let change = self.circuit.count(&self.policy, &seen, probed, at(second));
        change.map(|(from, to)| (from.name(), to.name()))
    }

    fn state(&self, second: i64) -> &'static str {
        self.circuit.state(NONE, at(second)).name()
    }
}

/// Every category has its cooldown and the time of its probe.
#[test]
fn every_category_has_its_cooldown_and_its_probe() {
    let retry_after = |seconds| CircuitObservation { retry_after: Some(secs(seconds)), ..status(429) };
    let network = seen(Some(FailureCause::Network));
    for (what, seen, cooldown, probe_after) in [
        ("401", status(401), None, None),
        ("402", status(402), None, None),
        ("429", status(429), Some(60), Some(30)),
        ("429, Retry-After: 7", retry_after(7), Some(7), Some(7)),
        ("429, Retry-After: 45", retry_after(45), Some(45), Some(15)),
        ("429, Retry-After: a day", retry_after(86_400), Some(300), Some(270)),
        ("408: 30 s is not above 30 s", status(408), Some(30), Some(30)),
        ("425", status(425), Some(30), Some(30)),
        ("no answer", network, Some(30), Some(30)),
        ("500", status(500), Some(60), Some(30)),
        ("503", status(503), Some(60), Some(30)),
        ("529", status(529), Some(60), Some(30)),
    ] {
        let mut driven = Driven::new(BreakerPolicy::at_once());
        assert_eq!(driven.sees(0, seen), Some(("closed", "open")), "{what}");
        match (driven.circuit.admission(NONE, at(0)), cooldown, probe_after) {
            (BreakerAdmission::PermanentlyOpen(_), None, None) => {
                assert_eq!(driven.state(10 * 365 * 86_400), "open", "{what}: ten years later");
            }
            (BreakerAdmission::Open { opening, retry_after }, Some(cooldown), Some(probe_after)) => {
                assert_eq!(opening.cooldown, secs(cooldown), "{what}");
                assert_eq!(retry_after, secs(probe_after), "{what}");
                let probe: i64 = probe_after.try_into().unwrap();
                assert_eq!(driven.state(probe - 1), "open", "{what}");
                assert_eq!(driven.state(probe), "half_open", "{what}");
            }
            (other, ..) => panic!("{what}: {other:?}"),
        }
    }
}

/// An unclassified failure changes nothing; a missing resource and a rejection tell nothing about the host.
#[test]
fn unknown_failures_leave_the_circuit_closed() {
    for cause in FailureCause::ALL {
        let mut driven = Driven::new(BreakerPolicy::at_once());
        let opens = driven.sees(0, seen(Some(cause))).is_some();
        let expected = matches!(
            cause,
            FailureCause::Network
                | FailureCause::Timeout
                | FailureCause::RateLimited
                | FailureCause::Unavailable
                | FailureCause::Auth
                | FailureCause::PaymentRequired
        );
        assert_eq!(opens, expected, "{cause:?}");
        assert_eq!(driven.circuit.is_pristine(), !expected, "{cause:?}");
    }
}

/// Replacing a binding ends only the trip of its earlier version.
#[test]
fn a_rebound_credential_closes_its_own_entry() {
    let mark = |name: &str, day: u32| format!("bearer/acme/{name} 2026-11-0{day}T10:00:00Z");
    let (old, new, other) = (mark("work", 1), mark("work", 2), mark("home", 3));
    let mut driven = Driven::new(BreakerPolicy::at_once());
    fn with(credential: &str, status: u16) -> CircuitObservation<'_> {
        let cause = (status >= 400).then(|| FailureCause::from_status(status));
        CircuitObservation {
            credential: Some(credential),
            cause,
            status: cause.map(|_| status),
            ..seen(None)
        }
    }
    assert_eq!(driven.sees(0, with(&old, 401)), Some(("closed", "open")));
    assert_eq!(driven.sees(1, with(&other, 200)), None, "another identity heals nothing");
    assert_eq!(driven.sees(2, seen(None)), None, "nor does who carries none");
    assert_eq!(driven.circuit.permanent_trips.len(), 1);
    assert_eq!(driven.sees(3, with(&new, 200)), Some(("open", "closed")));
    assert!(driven.circuit.is_pristine());
    // A late request with the old one trips it for the old one; the new one, rejected too, replaces that
    // entry.
    assert_eq!(driven.sees(4, with(&old, 401)), Some(("closed", "open")));
    assert_eq!(driven.sees(5, with(&new, 401)), Some(("closed", "open")));
    assert_eq!(driven.circuit.permanent_trips.len(), 1);
    assert_eq!(driven.circuit.permanent_trips[0].credential.as_deref(), Some(&*new));
}

/// The threshold counts consecutive failures; 401 opens at once, whatever the threshold.
#[test]
fn the_threshold_counts_consecutive_failures() {
    let three = BreakerPolicy { threshold: 3.try_into().unwrap(), ..BreakerPolicy::at_once() };
    let mut driven = Driven::new(three.clone());
    assert_eq!(driven.sees(0, status(503)), None);
    assert_eq!(driven.sees(1, status(503)), None);
    assert_eq!(driven.state(1), "closed");
    assert_eq!(driven.sees(100_000, status(429)), Some(("closed", "open")));

    let mut driven = Driven::new(three.clone());
    driven.sees(0, status(503));
    driven.sees(1, status(503));
    driven.sees(2, seen(None));
    assert!(driven.circuit.is_pristine(), "a good answer begins the row anew");
    assert_eq!(driven.sees(3, status(503)), None);

    let mut driven = Driven::new(three);
    assert_eq!(driven.sees(0, status(401)), Some(("closed", "open")));
}

/// The first request after the time of the probe decides; success clears all failures.
#[test]
fn a_good_probe_closes_and_clears() {
    let mut driven = Driven::new(BreakerPolicy::at_once());
    driven.sees(0, status(503));
    assert!(matches!(driven.circuit.admission(NONE, at(29)), BreakerAdmission::Open { .. }));
    assert!(matches!(driven.circuit.admission(NONE, at(30)), BreakerAdmission::Probe(_)));
    assert_eq!(driven.sees(30, seen(None)), Some(("half_open", "closed")));
    assert!(driven.circuit.is_pristine());
    // A response that tells nothing about the host still shows that it responds.
    driven.sees(40, status(503));
    assert_eq!(driven.sees(70, status(404)), Some(("half_open", "closed")));
}

/// A failed probe opens it again, for the cooldown of its own category.
#[test]
fn a_failed_probe_reopens() {
    let mut driven = Driven::new(BreakerPolicy::at_once());
    driven.sees(0, CircuitObservation { retry_after: Some(secs(300)), ..status(429) });
    assert_eq!(driven.sees(270, seen(Some(FailureCause::Network))), Some(("half_open", "open")));
    assert_eq!(driven.state(299), "open");
    assert_eq!(driven.state(300), "half_open");
    // 401 for the probe: the host responds and rejects the credentials.
    assert_eq!(driven.sees(300, status(401)), Some(("half_open", "open")));
    assert!(driven.circuit.open.is_none());
    assert_eq!(driven.circuit.state(Some("another"), at(300)), CircuitState::Closed);
}

/// Three failures within a minute; 120 s, 30 s without a response, `Retry-After` from 1 to 5 minutes; half as
/// long again after each failed probe.
#[test]
fn the_windowed_breaker() {
    let mut driven = Driven::new(BreakerPolicy::windowed());
    assert_eq!(driven.sees(0, status(503)), None);
    assert_eq!(driven.sees(59, status(503)), None);
    assert_eq!(driven.sees(60, status(503)), None, "the first is out of the window");
    assert_eq!(driven.sees(61, seen(None)), None, "a good answer takes nothing out of it");
    assert_eq!(driven.sees(70, status(503)), Some(("closed", "open")));
    assert_eq!(driven.state(159), "open");
    assert_eq!(driven.state(160), "half_open", "30 s before 120 s are over");
    assert_eq!(driven.sees(160, status(503)), Some(("half_open", "open")));
    let cooldown = |driven: &Driven| driven.circuit.open.as_ref().unwrap().cooldown;
    assert_eq!(cooldown(&driven), secs(180), "half as long again");
    for expected in [270, 300, 300] {
        driven.sees(100_000 * expected, status(503));
        assert_eq!(cooldown(&driven), secs(expected.unsigned_abs()), "and never above 5 minutes");
    }
    for (asked, expected) in [(1, 60), (61, 61), (100_000, 300)] {
        let mut driven = Driven::new(BreakerPolicy::windowed());
        for second in 0..3 {
            driven.sees(second, CircuitObservation { retry_after: Some(secs(asked)), ..status(429) });
        }
        assert_eq!(cooldown(&driven), secs(expected));
    }
    let mut driven = Driven::new(BreakerPolicy::windowed());
    for second in 0..3 {
        driven.sees(second, seen(Some(FailureCause::Network)));
    }
    assert_eq!(driven.state(31), "open");
    assert_eq!(driven.state(32), "half_open", "30 s without a probe before");
}

/// A permanent trip applies to requests with the same credentials.
#[test]
fn a_permanent_trip_covers_one_credential_state() {
    let mut driven = Driven::new(BreakerPolicy::at_once());
    let mine = Some("api_key/acme/mine 2026-01-01T00:00:00Z");
    assert_eq!(
        driven.sees(0, CircuitObservation { credential: mine, ..status(401) }),
        Some(("closed", "open"))
    );
    for (credential, expected) in [
        (mine, CircuitState::Open),
        (Some("api_key/acme/mine 2026-01-02T00:00:00Z"), CircuitState::Closed),
        (Some("api_key/acme/other 2026-01-01T00:00:00Z"), CircuitState::Closed),
        (None, CircuitState::Closed),
    ] {
        assert_eq!(driven.circuit.state(credential, at(1)), expected, "{credential:?}");
    }
    // The number of stored trips is bounded, however many credentials are rejected.
    for number in 0..100 {
        driven.sees(
            1,
            CircuitObservation { credential: Some(&format!("api_key/acme/{number} x")), ..status(401) },
        );
    }
    assert_eq!(driven.circuit.permanent_trips.len(), circuit::MAX_PERMANENT_TRIPS);
}

/// One outage opens a circuit once: a request that was sent before it opened neither extends nor ends it.
#[test]
fn late_observations_change_nothing() {
    let mut driven = Driven::new(BreakerPolicy::at_once());
    driven.sees(0, status(503));
    let open = driven.circuit.clone();
    for late in [status(503), seen(Some(FailureCause::Network)), seen(None), status(404)] {
        assert_eq!(driven.circuit.count(&driven.policy, &late, false, at(5)), None);
        assert_eq!(driven.circuit, open);
        // This holds even when a probe would be let through: late requests are not probes.
        assert_eq!(driven.circuit.count(&driven.policy, &late, false, at(50)), None);
        assert_eq!(driven.circuit, open);
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Asks,
    Sees(usize, Option<u64>),
    Vanishes,
    Waits(i64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => Just(Event::Asks),
        3 => (0..FailureCause::ALL.len() + 1, prop::option::of(0_u64..1_000_000)).prop_map(|(c, r)| Event::Sees(c, r)),
        1 => Just(Event::Vanishes),
        2 => (-400_i64..400).prop_map(Event::Waits),
    ];
    prop::collection::vec(event, 1..60)
}

proptest! {
    /// For any events and any clock there are never two probes, and no wait exceeds the policy's maximum.
    #[test]
    fn probes_are_single_and_bounded_in_time(events in events(), windowed: bool) {
        let policy = if windowed { BreakerPolicy::windowed() } else { BreakerPolicy::at_once() };
        let mut circuit = Circuit::default();
        let (mut now, mut slot, mut out) = (0_i64, false, Vec::new());
        let mut failures = 0;
        for event in events {
            match event {
                Event::Waits(seconds) => now += seconds,
                Event::Asks => match circuit.admission(NONE, at(now)) {
                    BreakerAdmission::Pass => out.push(false),
                    BreakerAdmission::Probe(_) if !slot => {
                        slot = true;
                        out.push(true);
                    }
                    BreakerAdmission::Probe(_) | BreakerAdmission::PermanentlyOpen(_) => {}
                    BreakerAdmission::Open { opening, retry_after } => {
                        prop_assert!(retry_after <= opening.probe_after);
                        prop_assert!(opening.probe_after <= opening.cooldown);
                        prop_assert!(opening.cooldown <= secs(300));
                        // If the clock is set back by more than a moment, the next request is let through.
                        prop_assert!(opening.why.at <= at(now) + secs(1));
                    }
                },
                Event::Sees(cause, retry_after) => {
                    let Some(probed) = out.pop() else { continue };
                    let cause = FailureCause::ALL.get(cause).copied();
                    let retry_after = retry_after.map(Duration::from_secs);
                    let was_open = circuit.state(NONE, at(now)) != CircuitState::Closed;
                    let sight = CircuitObservation { retry_after, ..seen(cause) };
                    let change = circuit.count(&policy, &sight, probed, at(now));
                    slot &= !probed;
                    failures += u32::from(cause.is_some_and(|cause| policy.cooldown(cause, None).is_some()));
                    if let Some((CircuitState::Closed, CircuitState::Open)) = change {
                        prop_assert!(!was_open);
                        let shut = cause.is_some_and(|cause| policy.is_permanent(cause));
                        prop_assert!(shut || failures >= policy.threshold());
                    }
                    if let Some((_, CircuitState::Closed)) = change {
                        prop_assert!(probed, "only a probe closes");
                    }
                }
                Event::Vanishes => {
                    let Some(probed) = out.pop() else { continue };
                    slot &= !probed;
                }
            }
            prop_assert!(out.iter().filter(|probe| **probe).count() <= 1);
            prop_assert!(circuit.failures.len() < usize::try_from(policy.threshold()).unwrap());
        }
    }

    /// Time alone never opens or closes a circuit. It makes an open one half-open, and it stays so.
    #[test]
    fn time_alone_leads_to_half_open(windowed: bool, cause in 0_usize..4, retry in prop::option::of(0_u64..1_000)) {
        let policy = if windowed { BreakerPolicy::windowed() } else { BreakerPolicy::at_once() };
        let mut circuit = Circuit::default();
        let sight = CircuitObservation { retry_after: retry.map(Duration::from_secs), ..seen(Some(FailureCause::ALL[cause])) };
        for _ in 0..policy.threshold() {
            circuit.count(&policy, &sight, false, at(0));
        }
        let turn = circuit.open.as_ref().unwrap().probe_after;
        for second in 0..400 {
            let open = Duration::from_secs(second) < turn;
            let expected = if open { CircuitState::Open } else { CircuitState::HalfOpen };
            prop_assert_eq!(circuit.state(NONE, at(second.try_into().unwrap())), expected);
        }
    }
}
