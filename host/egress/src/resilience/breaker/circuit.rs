//! The state machine of one circuit: closed, open, half-open, and permanently open. No clock, no files.
//!
//! To use it, call [`Circuit::admission`] before a request. [`Admission::Probe`] is valid for one request at
//! a time: the caller takes a slot that it manages itself (here a lock that processes share), and a request
//! that finds the slot taken is rejected as half-open. After the request, pass the observation to
//! [`Circuit::count`], with whether the request was the probe. A request without an observation is not
//! counted; its slot is released.

use std::time::Duration;

use cofferdam_core::failure::{AuditId, FailureCause};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::call_scope;
use super::policy::{BreakerPolicy, FailureSignal};

/// The number of credentials for which one circuit can be permanently open; one more replaces the oldest.
pub(super) const MAX_PERMANENT_TRIPS: usize = 16;

/// The maximum number of failures that open a circuit.
pub(super) const MAX_FAILURES: usize = 1000;

/// The tolerance for clocks that two threads read in the other order. A clock that went back further was set
/// back.
const SLACK: Duration = Duration::from_secs(1);

/// The state of one circuit, which is serialized for other processes. The default is closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circuit {
    /// The failures that count towards opening, oldest first; empty while it is open.
    pub(super) failures: Vec<Timestamp>,
    /// The reason why it is open for all requests, if it is.
    pub(super) open: Option<CircuitTrip>,
    /// The credentials for which it is permanently open.
    pub(super) permanent_trips: Vec<PermanentTrip>,
}

/// The cause of an open circuit, and its times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CircuitTrip {
    /// The observation that opened it.
    pub why: TripCause,
    /// The maximum time that it stays open.
    pub cooldown: Duration,
    /// The time after opening at which one request is let through.
    pub probe_after: Duration,
}

/// A permanent trip for requests with the same credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermanentTrip {
    /// The observation that caused it.
    pub why: TripCause,
    /// The names and versions of the bindings that were carried, without any secret; `None` if there were
    /// none.
    pub credential: Option<String>,
}

/// The observation that a host has a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TripCause {
    /// The time.
    pub at: Timestamp,
    /// The observed cause.
    #[serde(serialize_with = "serialize_cause", deserialize_with = "deserialize_cause")]
    pub cause: FailureCause,
    /// The response's status, if there was a response.
    pub status: Option<u16>,
    /// The call in the audit log.
    pub audit_id: String,
}

/// The last observation of one request, or of several that count as one.
#[derive(Debug, Clone, Copy)]
pub struct CircuitObservation<'s> {
    /// The failure; `None` if the response was good.
    pub cause: Option<FailureCause>,
    /// The response's status, if it was an error.
    pub status: Option<u16>,
    /// The wait that the host asked for.
    pub retry_after: Option<Duration>,
    /// The names and versions of the bindings that were carried.
    pub credential: Option<&'s str>,
    /// The call in the audit log.
    pub audit_id: &'s str,
}

/// The answer to whether a request may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerAdmission<'c> {
    /// Yes.
    Pass,
    /// Yes, if no other request is probing the host.
    Probe(&'c CircuitTrip),
    /// No; waiting helps.
    Open {
        /// The cause.
        opening: &'c CircuitTrip,
        /// The time until one request is let through.
        retry_after: Duration,
    },
    /// No; waiting does not help.
    PermanentlyOpen(&'c PermanentTrip),
}

/// The three states, in the terms of the audit log and of `cofferdam breaker status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CircuitState {
    /// Requests pass.
    Closed,
    /// Nothing is sent.
    Open,
    /// One request is let through, and decides.
    HalfOpen,
}

impl CircuitState {
    /// Returns the stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

impl Circuit {
    /// Decides whether a request with these credentials may be sent now.
    #[must_use]
    pub fn admission(&self, credential: Option<&str>, now: Timestamp) -> BreakerAdmission<'_> {
        if let Some(shut) = self.permanent_trips.iter().find(|shut| shut.credential.as_deref() == credential)
        {
            return BreakerAdmission::PermanentlyOpen(shut);
        }
        let Some(opening) = &self.open else { return BreakerAdmission::Pass };
        match opening.left(now) {
            Some(retry_after) => BreakerAdmission::Open { opening, retry_after },
            None => BreakerAdmission::Probe(opening),
        }
    }

    /// Returns its state for requests with these credentials. It is half-open as soon as a probe would be let
    /// through.
    #[must_use]
    pub fn state(&self, credential: Option<&str>, now: Timestamp) -> CircuitState {
        match self.admission(credential, now) {
            BreakerAdmission::Pass => CircuitState::Closed,
            BreakerAdmission::Probe(_) => CircuitState::HalfOpen,
            BreakerAdmission::Open { .. } | BreakerAdmission::PermanentlyOpen(_) => CircuitState::Open,
        }
    }

    /// Returns the observation for which requests with these credentials are blocked or probing, if any.
    #[must_use]
    pub fn trip_cause(&self, credential: Option<&str>, now: Timestamp) -> Option<&TripCause> {
        match self.admission(credential, now) {
            BreakerAdmission::Pass => None,
            BreakerAdmission::Probe(opening) | BreakerAdmission::Open { opening, .. } => Some(&opening.why),
            BreakerAdmission::PermanentlyOpen(shut) => Some(&shut.why),
        }
    }

    /// Returns whether the circuit is in its initial state: no failures, not open for any request.
    #[must_use]
    pub fn is_pristine(&self) -> bool {
        self.failures.is_empty() && self.open.is_none() && self.permanent_trips.is_empty()
    }

    /// Returns whether a circuit that was read can be one of this program's. Its audit ids are copied into
    /// failures verbatim.
    pub(super) fn is_valid(&self) -> bool {
        let mut causes =
            self.permanent_trips.iter().map(|trip| &trip.why).chain(self.open.as_ref().map(|trip| &trip.why));
        self.failures.len() <= MAX_FAILURES
            && self.permanent_trips.len() <= MAX_PERMANENT_TRIPS
            && self.open.as_ref().is_none_or(|trip| trip.probe_after <= trip.cooldown)
            && causes.all(|why| AuditId::parse(&why.audit_id).is_some())
    }

    /// Counts an observation; `probed` is whether the request was the probe. Returns the states before and
    /// after if they differ, or if a probe was decided.
    ///
    /// A request that was sent before the circuit opened and fails afterwards changes nothing: one outage
    /// opens it once.
    pub fn count(
        &mut self,
        policy: &BreakerPolicy,
        seen: &CircuitObservation<'_>,
        probed: bool,
        now: Timestamp,
    ) -> Option<(CircuitState, CircuitState)> {
        let why =
            |cause| TripCause { at: now, cause, status: seen.status, audit_id: seen.audit_id.to_owned() };
        let before = match (probed && self.open.is_some(), self.state(seen.credential, now)) {
            (true, _) => CircuitState::HalfOpen,
            (false, CircuitState::HalfOpen) => CircuitState::Open,
            (false, state) => state,
        };
        let after = match (policy.signal(seen.cause, seen.retry_after), seen.cause) {
            (FailureSignal::Permanent, Some(cause)) => {
                // The host responds, so every earlier reason to be open is gone.
                if probed {
                    self.close();
                }
                self.trip_permanently(PermanentTrip {
                    why: why(cause),
                    credential: seen.credential.map(str::to_owned),
                });
                CircuitState::Open
            }
            (FailureSignal::Trouble(own), Some(cause)) => match (&self.open, probed) {
                (Some(opening), true) => {
                    let cooldown = policy.extended(own, opening.cooldown);
                    self.open_for(policy, cooldown, why(cause));
                    CircuitState::Open
                }
                (Some(_), false) => before,
                (None, _) => {
                    self.failures.retain(|at| policy.window.is_none_or(|window| is_within(*at, window, now)));
                    self.failures.push(now);
                    if self.failures.len() < usize::try_from(policy.threshold()).unwrap_or(usize::MAX) {
                        before
                    } else {
                        self.open_for(policy, own, why(cause));
                        CircuitState::Open
                    }
                }
            },
            _ => {
                let in_a_row = policy.window.is_none();
                if probed || (self.open.is_none() && in_a_row) {
                    self.close();
                }
                if self.open.is_some() { before } else { self.state(seen.credential, now) }
            }
        };
        // Other requests saw the circuit as open; replacing the credential ends that.
        let before = match self.heal(seen.credential) && after == CircuitState::Closed {
            true => CircuitState::Open,
            false => before,
        };
        (before != after).then_some((before, after))
    }

    /// Removes the permanent trips of earlier versions of the same bindings: they were replaced, and are not
    /// sent again. Returns whether there were any.
    fn heal(&mut self, credential: Option<&str>) -> bool {
        let before = self.permanent_trips.len();
        let is_old = |shut: &PermanentTrip| match (credential, shut.credential.as_deref()) {
            (Some(new), Some(old)) => call_scope::supersedes(new, old),
            _ => false,
        };
        self.permanent_trips.retain(|shut| !is_old(shut));
        self.permanent_trips.len() < before
    }

    fn close(&mut self) {
        self.failures.clear();
        self.open = None;
    }

    fn open_for(&mut self, policy: &BreakerPolicy, cooldown: Duration, why: TripCause) {
        self.failures.clear();
        self.open = Some(CircuitTrip { why, cooldown, probe_after: policy.probe_after(cooldown) });
    }

    fn trip_permanently(&mut self, shut: PermanentTrip) {
        self.permanent_trips.retain(|other| other.credential != shut.credential);
        if self.permanent_trips.len() >= MAX_PERMANENT_TRIPS {
            self.permanent_trips.remove(0);
        }
        self.permanent_trips.push(shut);
    }
}

impl PermanentTrip {
    /// Returns the names of the bindings; none if no credential was carried.
    pub(super) fn bindings(&self) -> Vec<String> {
        self.credential.as_deref().map(call_scope::bindings).unwrap_or_default()
    }
}

impl CircuitTrip {
    /// Returns the time until one request is let through; `None` if that is now. If the clock was set back,
    /// one is let through at once: the real time is unknown, and the circuit must not stay open longer than
    /// intended.
    #[must_use]
    pub fn left(&self, now: Timestamp) -> Option<Duration> {
        let passed = passed(self.why.at, now)?;
        self.probe_after.checked_sub(passed).filter(|left| !left.is_zero())
    }
}

fn serialize_cause<S: Serializer>(cause: &FailureCause, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(cause.name())
}

fn deserialize_cause<'de, D: Deserializer<'de>>(from: D) -> Result<FailureCause, D::Error> {
    let name = String::deserialize(from)?;
    let cause = FailureCause::ALL.into_iter().find(|cause| cause.name() == name);
    cause.ok_or_else(|| serde::de::Error::custom("an unknown cause"))
}

fn is_within(at: Timestamp, window: Duration, now: Timestamp) -> bool {
    passed(at, now).is_some_and(|passed| passed < window)
}

/// Returns the time from `then` to `now`; `None` if the clock was set back in between.
fn passed(then: Timestamp, now: Timestamp) -> Option<Duration> {
    let passed = now.duration_since(then);
    match Duration::try_from(passed) {
        Ok(passed) => Some(passed),
        Err(_) if passed.unsigned_abs() <= SLACK => Some(Duration::ZERO),
        Err(_) => None,
    }
}
