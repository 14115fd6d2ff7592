//! A world in virtual time: calls that come, a service that fails for a while, and between them the host's own
//! decisions, in the order in which the pipeline makes them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use cofferdam_core::chance::SeededChance;
use cofferdam_core::clock::{Clock as _, SystemClock};
use cofferdam_core::failure::Cause;

use super::circuit::Gate;
use super::upstream::{Answer, Upstream};
use crate::resilience::{BreakerPolicy, Moment, Next, Profile, decide};

/// What is simulated.
pub(super) struct Scenario<'s> {
    pub(super) seed: u64,
    pub(super) profile: &'s Profile,
    pub(super) breaker: Option<&'s BreakerPolicy>,
    pub(super) idempotent: bool,
    pub(super) upstream: Upstream,
    /// When calls come, in order.
    pub(super) arrivals: Vec<Duration>,
}

/// How one call went.
#[derive(Debug, Clone)]
pub(super) struct Went {
    pub(super) begun: Duration,
    pub(super) ended: Duration,
    /// Whether it got its value.
    pub(super) value: bool,
    /// The requests that were sent for it.
    pub(super) requests: u32,
    /// How often it took effect at the service, were keys not looked at there.
    pub(super) effects: u32,
    /// The longest that it can have taken.
    pub(super) allowed: Duration,
    /// The attempts, also those that a circuit refused.
    attempts: u32,
    answer: Option<Answer>,
}

/// What came of it all.
pub(super) struct Run {
    pub(super) calls: Vec<Went>,
    /// The requests that came to the service, by bucket.
    pub(super) load: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Attempt(usize),
    Ends(usize),
}

struct World<'s> {
    scenario: Scenario<'s>,
    chance: SeededChance,
    gate: Option<Gate<'s>>,
    /// Where virtual time begins; what it is does not matter.
    origin: Instant,
    events: BinaryHeap<Reverse<(Duration, Event)>>,
    calls: Vec<Went>,
}

/// Runs the scenario to its end.
pub(super) fn run(scenario: Scenario<'_>) -> Run {
    let allowed = scenario.profile.times().wall_time.unwrap_or(Duration::from_secs(30));
    let call = |begun: &Duration| Went {
        begun: *begun,
        ended: Duration::MAX,
        value: false,
        requests: 0,
        effects: 0,
        allowed,
        attempts: 0,
        answer: None,
    };
    let calls: Vec<Went> = scenario.arrivals.iter().map(call).collect();
    let events = calls.iter().enumerate().map(|(at, call)| Reverse((call.begun, Event::Attempt(at))));
    let mut world = World {
        chance: SeededChance::new(scenario.seed),
        gate: scenario.breaker.map(Gate::new),
        origin: SystemClock.now(),
        events: events.collect(),
        calls,
        scenario,
    };
    while let Some(Reverse((now, event))) = world.events.pop() {
        match event {
            Event::Attempt(call) => world.attempt(call, now),
            Event::Ends(call) => world.ends(call, now),
        }
    }
    Run { calls: world.calls, load: world.scenario.upstream.load }
}

impl World<'_> {
    fn attempt(&mut self, at: usize, now: Duration) {
        let call = &mut self.calls[at];
        if call.attempts > 0 && self.gate.as_ref().is_some_and(|gate| gate.forbids_retry(at, now)) {
            return self.over(at, now, false);
        }
        call.attempts += 1;
        if let Some(gate) = &mut self.gate
            && !gate.admit(at, now)
        {
            call.answer = None;
            return self.ends(at, now);
        }
        let answer = self.scenario.upstream.asked(now, &self.chance);
        call.requests += 1;
        call.effects += u32::from(answer.effect);
        let deadline = call.begun + call.allowed;
        let timeout = self.scenario.profile.times().attempt_timeout.map_or(deadline, |time| now + time);
        let end = answer.after.map_or(Duration::MAX, |after| now + after).min(timeout).min(deadline);
        call.answer = Some(answer);
        self.events.push(Reverse((end, Event::Ends(at))));
    }

    /// The attempt is over: what the pipeline does then.
    fn ends(&mut self, at: usize, now: Duration) {
        let call = &mut self.calls[at];
        let (cause, retry_after) = match call.answer {
            None => (Cause::CircuitOpen, None),
            Some(Answer { cause: None, .. }) => {
                if let Some(gate) = &mut self.gate {
                    gate.saw(at, None, None);
                }
                return self.over(at, now, true);
            }
            Some(Answer { cause: Some(cause), retry_after, .. }) => (cause, retry_after),
        };
        // What took too long was not seen to fail by the gate: it does not count for a circuit.
        if let Some(gate) = self.gate.as_mut().filter(|_| call.answer.is_some() && cause != Cause::WallTime) {
            gate.saw(at, Some(cause), retry_after);
        }
        let moment = Moment {
            cause,
            retriable: self.scenario.idempotent && cause.is_retriable() && cause != Cause::WallTime,
            idempotent: self.scenario.idempotent,
            sent_unkeyed: false,
            retry_after,
            attempts: call.attempts,
            candidate: 0,
            now: self.origin + now,
            deadline: self.origin + call.begun + call.allowed,
        };
        match decide(self.scenario.profile, &moment, &self.chance) {
            Next::Retry { delay, .. }
                if !self.gate.as_ref().is_some_and(|gate| gate.forbids_retry(at, now)) =>
            {
                self.events.push(Reverse((now + delay, Event::Attempt(at))));
            }
            _ => self.over(at, now, false),
        }
    }

    fn over(&mut self, at: usize, now: Duration, value: bool) {
        if let Some(gate) = &mut self.gate {
            gate.settle(at, now);
        }
        let call = &mut self.calls[at];
        (call.value, call.ended) = (value, now);
    }
}
