//! One circuit between all calls and the service, with its probe slot: the real state machine without files.

use std::collections::HashMap;
use std::time::Duration;

use cofferdam_core::failure::FailureCause;
use jiff::Timestamp;

use crate::resilience::BreakerPolicy;
use crate::resilience::breaker::{BreakerAdmission, Circuit, CircuitObservation, CircuitState};

/// The last observation of a call.
type Last = (Option<FailureCause>, Option<Duration>);

/// A circuit and the calls that use it, by their numbers.
pub(super) struct CircuitGate<'p> {
    policy: &'p BreakerPolicy,
    circuit: Circuit,
    /// The call that is the probe.
    probe: Option<usize>,
    /// The last observations of the running calls.
    seen: HashMap<usize, Last>,
}

impl<'p> CircuitGate<'p> {
    pub(super) fn new(policy: &'p BreakerPolicy) -> Self {
        Self { policy, circuit: Circuit::default(), probe: None, seen: HashMap::new() }
    }

    /// Decides whether a request of `call` may be sent.
    pub(super) fn admit(&mut self, call: usize, now: Duration) -> bool {
        match self.circuit.admission(None, at(now)) {
            BreakerAdmission::Pass => true,
            BreakerAdmission::Probe(_) if self.probe.is_none() => {
                self.probe = Some(call);
                true
            }
            BreakerAdmission::Probe(_) => self.probe == Some(call),
            BreakerAdmission::Open { .. } | BreakerAdmission::PermanentlyOpen(_) => false,
        }
    }

    /// Records the result of a request of `call`.
    pub(super) fn saw(&mut self, call: usize, cause: Option<FailureCause>, retry_after: Option<Duration>) {
        self.seen.insert(call, (cause, retry_after));
    }

    /// Returns whether `call` must not be attempted again.
    pub(super) fn forbids_retry(&self, call: usize, now: Duration) -> bool {
        self.probe == Some(call) || self.circuit.state(None, at(now)) != CircuitState::Closed
    }

    /// Ends `call`: its last observation counts.
    pub(super) fn settle(&mut self, call: usize, now: Duration) {
        let probed = self.probe == Some(call);
        if probed {
            self.probe = None;
        }
        let Some((cause, retry_after)) = self.seen.remove(&call) else { return };
        let seen =
            CircuitObservation { cause, status: None, retry_after, credential: None, audit_id: "simulated" };
        self.circuit.count(self.policy, &seen, probed, at(now));
    }
}

fn at(now: Duration) -> Timestamp {
    Timestamp::UNIX_EPOCH + now
}
