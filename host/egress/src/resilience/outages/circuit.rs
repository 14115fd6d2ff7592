//! One circuit between all calls and the service, with the slot of its probe: the real states, and nothing on disk.

use std::collections::HashMap;
use std::time::Duration;

use cofferdam_core::failure::Cause;
use jiff::Timestamp;

use crate::resilience::BreakerPolicy;
use crate::resilience::breaker::{Admission, Circuit, CircuitState, Seen};

/// What a call saw last.
type Last = (Option<Cause>, Option<Duration>);

/// A circuit and the calls that have to do with it, by their numbers.
pub(super) struct Gate<'p> {
    policy: &'p BreakerPolicy,
    circuit: Circuit,
    /// The call that tries the service.
    probe: Option<usize>,
    /// What the calls that are under way saw last.
    seen: HashMap<usize, Last>,
}

impl<'p> Gate<'p> {
    pub(super) fn new(policy: &'p BreakerPolicy) -> Self {
        Self { policy, circuit: Circuit::default(), probe: None, seen: HashMap::new() }
    }

    /// Whether a request of `call` may be sent.
    pub(super) fn admit(&mut self, call: usize, now: Duration) -> bool {
        match self.circuit.admission(None, at(now)) {
            Admission::Pass => true,
            Admission::Probe(_) if self.probe.is_none() => {
                self.probe = Some(call);
                true
            }
            Admission::Probe(_) => self.probe == Some(call),
            Admission::Open { .. } | Admission::Shut(_) => false,
        }
    }

    /// What came of a request of `call`.
    pub(super) fn saw(&mut self, call: usize, cause: Option<Cause>, retry_after: Option<Duration>) {
        self.seen.insert(call, (cause, retry_after));
    }

    /// Whether `call` must not be attempted again.
    pub(super) fn forbids_retry(&self, call: usize, now: Duration) -> bool {
        self.probe == Some(call) || self.circuit.state(None, at(now)) != CircuitState::Closed
    }

    /// `call` is over: what it saw last counts.
    pub(super) fn settle(&mut self, call: usize, now: Duration) {
        let probed = self.probe == Some(call);
        if probed {
            self.probe = None;
        }
        let Some((cause, retry_after)) = self.seen.remove(&call) else { return };
        let seen = Seen { cause, status: None, retry_after, credential: None, audit_id: "simulated" };
        self.circuit.count(self.policy, &seen, probed, at(now));
    }
}

fn at(now: Duration) -> Timestamp {
    Timestamp::UNIX_EPOCH + now
}
