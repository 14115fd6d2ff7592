//! The breaker's table, row by row, and what holds of it whatever happens.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::time::Duration;

use cofferdam_core::failure::Cause;
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

fn seen(cause: Option<Cause>) -> Seen<'static> {
    Seen { cause, status: None, retry_after: None, credential: None, audit_id: "audit-1" }
}

fn status(status: u16) -> Seen<'static> {
    Seen { status: Some(status), ..seen(Some(Cause::of_status(status))) }
}

/// What happened to a circuit, in the order of the test.
struct Driven {
    policy: BreakerPolicy,
    circuit: Circuit,
}

impl Driven {
    fn new(policy: BreakerPolicy) -> Self {
        Self { policy, circuit: Circuit::default() }
    }

    fn sees(&mut self, second: i64, seen: Seen<'_>) -> Option<(&'static str, &'static str)> {
        let probed = matches!(self.circuit.admission(seen.credential, at(second)), Admission::Probe(_));
        let change = self.circuit.count(&self.policy, &seen, probed, at(second));
        change.map(|(from, to)| (from.name(), to.name()))
    }

    fn state(&self, second: i64) -> &'static str {
        self.circuit.state(NONE, at(second)).name()
    }
}

/// P2, P9, P14, C24: every category with its cooldown and the moment of its probe.
#[test]
fn p2_every_category_has_its_cooldown_and_its_probe() {
    let retry_after = |seconds| Seen { retry_after: Some(secs(seconds)), ..status(429) };
    let network = seen(Some(Cause::Network));
    for (what, seen, cooldown, probe_after) in [
        ("401", status(401), None, None),
        ("402", status(402), None, None),
        ("429", status(429), Some(60), Some(30)),
        ("429, Retry-After: 7", retry_after(7), Some(7), Some(7)),
        ("429, Retry-After: 45", retry_after(45), Some(45), Some(15)),
        ("429, Retry-After: a day (C8)", retry_after(86_400), Some(300), Some(270)),
        ("408: 30 s is not above 30 s (C24)", status(408), Some(30), Some(30)),
        ("425", status(425), Some(30), Some(30)),
        ("no answer", network, Some(30), Some(30)),
        ("500", status(500), Some(60), Some(30)),
        ("503", status(503), Some(60), Some(30)),
        ("529", status(529), Some(60), Some(30)),
    ] {
        let mut driven = Driven::new(BreakerPolicy::at_once());
        assert_eq!(driven.sees(0, seen), Some(("closed", "open")), "{what}");
        match (driven.circuit.admission(NONE, at(0)), cooldown, probe_after) {
            (Admission::Shut(_), None, None) => {
                assert_eq!(driven.state(10 * 365 * 86_400), "open", "P9, {what}: ten years later");
            }
            (Admission::Open { opening, retry_after }, Some(cooldown), Some(probe_after)) => {
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

/// P2: what is no category changes nothing; a missing resource and a refusal say nothing about the host.
#[test]
fn p2_unknown_failures_leave_the_circuit_closed() {
    for cause in Cause::ALL {
        let mut driven = Driven::new(BreakerPolicy::at_once());
        let opens = driven.sees(0, seen(Some(cause))).is_some();
        let expected = matches!(
            cause,
            Cause::Network
                | Cause::Timeout
                | Cause::RateLimited
                | Cause::Unavailable
                | Cause::Auth
                | Cause::PaymentRequired
        );
        assert_eq!(opens, expected, "{cause:?}");
        assert_eq!(driven.circuit.is_pristine(), !expected, "{cause:?}");
    }
}

/// C23: binding anew ends what the earlier state was open for, and only that.
#[test]
fn a_credential_that_was_bound_anew_heals_its_own_entry() {
    let mark = |name: &str, day: u32| format!("bearer/acme/{name} 2026-11-0{day}T10:00:00Z");
    let (old, new, other) = (mark("work", 1), mark("work", 2), mark("home", 3));
    let mut driven = Driven::new(BreakerPolicy::at_once());
    fn with(credential: &str, status: u16) -> Seen<'_> {
        let cause = (status >= 400).then(|| Cause::of_status(status));
        Seen { credential: Some(credential), cause, status: cause.map(|_| status), ..seen(None) }
    }
    assert_eq!(driven.sees(0, with(&old, 401)), Some(("closed", "open")));
    assert_eq!(driven.sees(1, with(&other, 200)), None, "another identity heals nothing");
    assert_eq!(driven.sees(2, seen(None)), None, "nor does who carries none");
    assert_eq!(driven.circuit.shut.len(), 1);
    assert_eq!(driven.sees(3, with(&new, 200)), Some(("open", "closed")));
    assert!(driven.circuit.is_pristine());
    // A straggler with the old one opens it for the old one; the new one, refused too, takes its place.
    assert_eq!(driven.sees(4, with(&old, 401)), Some(("closed", "open")));
    assert_eq!(driven.sees(5, with(&new, 401)), Some(("closed", "open")));
    assert_eq!(driven.circuit.shut.len(), 1);
    assert_eq!(driven.circuit.shut[0].credential.as_deref(), Some(&*new));
}

/// P5: so many failures in a row; 401 at once, whatever the number.
#[test]
fn p5_the_threshold_counts_failures_in_a_row_except_for_permanent_ones() {
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

/// P6, P7: the first request after the moment of the probe decides; success forgets everything.
#[test]
fn p7_a_good_probe_closes_and_forgets() {
    let mut driven = Driven::new(BreakerPolicy::at_once());
    driven.sees(0, status(503));
    assert!(matches!(driven.circuit.admission(NONE, at(29)), Admission::Open { .. }));
    assert!(matches!(driven.circuit.admission(NONE, at(30)), Admission::Probe(_)));
    assert_eq!(driven.sees(30, seen(None)), Some(("half_open", "closed")));
    assert!(driven.circuit.is_pristine());
    // An answer that says nothing about the host is an answer.
    driven.sees(40, status(503));
    assert_eq!(driven.sees(70, status(404)), Some(("half_open", "closed")));
}

/// P8: a failed probe opens it again, for as long as its own category says.
#[test]
fn p8_a_failed_probe_opens_anew() {
    let mut driven = Driven::new(BreakerPolicy::at_once());
    driven.sees(0, Seen { retry_after: Some(secs(300)), ..status(429) });
    assert_eq!(driven.sees(270, seen(Some(Cause::Network))), Some(("half_open", "open")));
    assert_eq!(driven.state(299), "open");
    assert_eq!(driven.state(300), "half_open");
    // 401 from the probe: the host is there, and does not want this caller.
    assert_eq!(driven.sees(300, status(401)), Some(("half_open", "open")));
    assert!(driven.circuit.open.is_none());
    assert_eq!(driven.circuit.state(Some("another"), at(300)), CircuitState::Closed);
}

/// P17: three within a minute; 120 s, 30 s without an answer, `Retry-After` from 1 to 5 minutes; half as long again
/// after each failed probe.
#[test]
fn p17_the_windowed_breaker() {
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
            driven.sees(second, Seen { retry_after: Some(secs(asked)), ..status(429) });
        }
        assert_eq!(cooldown(&driven), secs(expected));
    }
    let mut driven = Driven::new(BreakerPolicy::windowed());
    for second in 0..3 {
        driven.sees(second, seen(Some(Cause::Network)));
    }
    assert_eq!(driven.state(31), "open");
    assert_eq!(driven.state(32), "half_open", "30 s without a probe before");
}

/// C23: a permanent trip holds for those who carry the same credentials.
#[test]
fn c23_a_permanent_trip_is_about_one_state_of_one_credential() {
    let mut driven = Driven::new(BreakerPolicy::at_once());
    let mine = Some("api_key/acme/mine 2026-01-01T00:00:00Z");
    assert_eq!(driven.sees(0, Seen { credential: mine, ..status(401) }), Some(("closed", "open")));
    for (credential, expected) in [
        (mine, CircuitState::Open),
        (Some("api_key/acme/mine 2026-01-02T00:00:00Z"), CircuitState::Closed),
        (Some("api_key/acme/other 2026-01-01T00:00:00Z"), CircuitState::Closed),
        (None, CircuitState::Closed),
    ] {
        assert_eq!(driven.circuit.state(credential, at(1)), expected, "{credential:?}");
    }
    // However many credentials are refused, what is kept has a bound.
    for number in 0..100 {
        driven.sees(1, Seen { credential: Some(&format!("api_key/acme/{number} x")), ..status(401) });
    }
    assert_eq!(driven.circuit.shut.len(), circuit::SHUT);
}

/// One outage opens a circuit once: who was sent before it opened neither extends nor ends it.
#[test]
fn late_comers_change_nothing() {
    let mut driven = Driven::new(BreakerPolicy::at_once());
    driven.sees(0, status(503));
    let open = driven.circuit.clone();
    for late in [status(503), seen(Some(Cause::Network)), seen(None), status(404)] {
        assert_eq!(driven.circuit.count(&driven.policy, &late, false, at(5)), None);
        assert_eq!(driven.circuit, open);
        // Also where a probe would be let through by now: they are none.
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
        3 => (0..Cause::ALL.len() + 1, prop::option::of(0_u64..1_000_000)).prop_map(|(c, r)| Event::Sees(c, r)),
        1 => Just(Event::Vanishes),
        2 => (-400_i64..400).prop_map(Event::Waits),
    ];
    prop::collection::vec(event, 1..60)
}

proptest! {
    /// Whatever happens, and whatever the clock does: never two probes, and no wait above what the policy allows.
    #[test]
    fn never_two_probes_and_never_longer_than_it_may(events in events(), windowed: bool) {
        let policy = if windowed { BreakerPolicy::windowed() } else { BreakerPolicy::at_once() };
        let mut circuit = Circuit::default();
        let (mut now, mut slot, mut out) = (0_i64, false, Vec::new());
        let mut failures = 0;
        for event in events {
            match event {
                Event::Waits(seconds) => now += seconds,
                Event::Asks => match circuit.admission(NONE, at(now)) {
                    Admission::Pass => out.push(false),
                    Admission::Probe(_) if !slot => {
                        slot = true;
                        out.push(true);
                    }
                    Admission::Probe(_) | Admission::Shut(_) => {}
                    Admission::Open { opening, retry_after } => {
                        prop_assert!(retry_after <= opening.probe_after);
                        prop_assert!(opening.probe_after <= opening.cooldown);
                        prop_assert!(opening.cooldown <= secs(300));
                        // Set back by more than a moment, the clock lets the next one try.
                        prop_assert!(opening.why.at <= at(now) + secs(1));
                    }
                },
                Event::Sees(cause, retry_after) => {
                    let Some(probed) = out.pop() else { continue };
                    let cause = Cause::ALL.get(cause).copied();
                    let retry_after = retry_after.map(Duration::from_secs);
                    let was_open = circuit.state(NONE, at(now)) != CircuitState::Closed;
                    let sight = Seen { retry_after, ..seen(cause) };
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

    /// Time alone never opens or closes a circuit; it makes it half-open, and it stays so.
    #[test]
    fn time_alone_leads_to_half_open(windowed: bool, cause in 0_usize..4, retry in prop::option::of(0_u64..1_000)) {
        let policy = if windowed { BreakerPolicy::windowed() } else { BreakerPolicy::at_once() };
        let mut circuit = Circuit::default();
        let sight = Seen { retry_after: retry.map(Duration::from_secs), ..seen(Some(Cause::ALL[cause])) };
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
