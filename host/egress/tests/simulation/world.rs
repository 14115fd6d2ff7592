//! A simulation in virtual time: calls, a service that fails for a while, and the host's own decisions in the
//! order in which the pipeline makes them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use cofferdam_core::clock::{Clock as _, SystemClock};
use cofferdam_core::failure::FailureCause;
use cofferdam_core::rng::SeededRng;

use super::circuit::CircuitGate;
use super::upstream::{Upstream, UpstreamAnswer};
use crate::resilience::{BreakerPolicy, RetryContext, RetryDecision, RetryProfile, decide};

/// The input of a simulation.
pub(super) struct Scenario<'s> {
    pub(super) seed: u64,
    pub(super) profile: &'s RetryProfile,
    pub(super) breaker: Option<&'s BreakerPolicy>,
    pub(super) idempotent: bool,
    pub(super) upstream: Upstream,
    /// The arrival times of calls, in order.
    pub(super) arrivals: Vec<Duration>,
}

/// The history of one call.
#[derive(Debug, Clone)]
pub(super) struct SimulatedOutcome {
    pub(super) begun: Duration,
    pub(super) ended: Duration,
    /// True if it got its value.
    pub(super) value: bool,
    /// The number of requests that were sent for it.
    pub(super) requests: u32,
    /// The number of times it took effect at the service, if the service ignored idempotency keys.
    pub(super) effects: u32,
    /// The longest time that it may take.
    pub(super) allowed: Duration,
    /// The number of attempts, including those that a circuit rejected.
    attempts: u32,
    answer: Option<UpstreamAnswer>,
}

/// The result of a simulation.
pub(super) struct SimulatedRun {
    pub(super) calls: Vec<SimulatedOutcome>,
    /// The number of requests to the service, by bucket.
    pub(super) load: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SimulatedEvent {
    Attempt(usize),
    Ends(usize),
}

struct SimulatedWorld<'s> {
    scenario: Scenario<'s>,
    chance: SeededRng,
    gate: Option<CircuitGate<'s>>,
    /// The start of virtual time; its value does not matter.
    origin: Instant,
    events: BinaryHeap<Reverse<(Duration, SimulatedEvent)>>,
    calls: Vec<SimulatedOutcome>,
}

/// Runs the scenario to its end.
pub(super) fn run(scenario: Scenario<'_>) -> SimulatedRun {
    let allowed = scenario.profile.times().wall_time.unwrap_or(Duration::from_secs(30));
    let call = |begun: &Duration| SimulatedOutcome {
        begun: *begun,
        ended: Duration::MAX,
        value: false,
        requests: 0,
        effects: 0,
        allowed,
        attempts: 0,
        answer: None,
    };
    let calls: Vec<SimulatedOutcome> = scenario.arrivals.iter().map(call).collect();
    let events =
        calls.iter().enumerate().map(|(at, call)| Reverse((call.begun, SimulatedEvent::Attempt(at))));
    let mut world = SimulatedWorld {
        chance: SeededRng::new(scenario.seed),
        gate: scenario.breaker.map(CircuitGate::new),
        origin: SystemClock.now(),
        events: events.collect(),
        calls,
        scenario,
    };
    while let Some(Reverse((now, event))) = world.events.pop() {
        match event {
            SimulatedEvent::Attempt(call) => world.attempt(call, now),
            SimulatedEvent::Ends(call) => world.ends(call, now),
        }
    }
    SimulatedRun { calls: world.calls, load: world.scenario.upstream.load }
}

impl SimulatedWorld<'_> {
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
        self.events.push(Reverse((end, SimulatedEvent::Ends(at))));
    }

    /// Ends the attempt, and does the pipeline's work after it.
    fn ends(&mut self, at: usize, now: Duration) {
        let call = &mut self.calls[at];
        let (cause, retry_after) = match call.answer {
            None => (FailureCause::CircuitOpen, None),
            Some(UpstreamAnswer { cause: None, .. }) => {
                if let Some(gate) = &mut self.gate {
                    gate.saw(at, None, None);
                }
                return self.over(at, now, true);
            }
            Some(UpstreamAnswer { cause: Some(cause), retry_after, .. }) => (cause, retry_after),
        };
        // The gate does not observe a timeout as a failure: it does not count for a circuit.
        if let Some(gate) =
            self.gate.as_mut().filter(|_| call.answer.is_some() && cause != FailureCause::WallTime)
        {
            gate.saw(at, Some(cause), retry_after);
        }
        let moment = RetryContext {
            cause,
            retriable: self.scenario.idempotent && cause.is_retriable() && cause != FailureCause::WallTime,
            idempotent: self.scenario.idempotent,
            sent_unkeyed: false,
            retry_after,
            attempts: call.attempts,
            candidate: 0,
            now: self.origin + now,
            deadline: self.origin + call.begun + call.allowed,
        };
        match decide(self.scenario.profile, &moment, &self.chance) {
            RetryDecision::Retry { delay, .. }
                if !self.gate.as_ref().is_some_and(|gate| gate.forbids_retry(at, now)) =>
            {
                self.events.push(Reverse((now + delay, SimulatedEvent::Attempt(at))));
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
