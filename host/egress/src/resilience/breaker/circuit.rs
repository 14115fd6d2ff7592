//! One circuit as a state and its transitions: closed, open, half-open, and open for good. No clock, no files.
//!
//! How to drive it: ask [`Circuit::admission`] before a request. [`Admission::Probe`] is good for one request at a
//! time: who gets it takes a slot that the caller keeps (here it is a lock that processes share), and whoever comes
//! while it is taken is refused as half-open. When the request is over, [`Circuit::count`] takes what was seen and
//! whether it was the probe. A request of which nothing was seen is not counted; its slot is let go.

use std::time::Duration;

use cofferdam_core::failure::Cause;
use jiff::Timestamp;

use super::mark;
use super::policy::{BreakerPolicy, Weight};

/// Credentials for which one circuit can be open for good; the oldest is forgotten for one more.
pub(super) const SHUT: usize = 16;

/// Clocks of two threads may have been read in the other order; a clock that went back further was set back.
const SLACK: Duration = Duration::from_secs(1);

/// The state of one circuit. The default is closed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Circuit {
    /// The failures that count towards opening, oldest first; empty while it is open.
    pub(super) failures: Vec<Timestamp>,
    /// Why it is open for everybody, if it is.
    pub(super) open: Option<Opening>,
    /// For which credentials it is open for good.
    pub(super) shut: Vec<Shut>,
}

/// What opened a circuit, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// Who found out, and what.
    pub why: Why,
    /// How long it stays open, at most.
    pub cooldown: Duration,
    /// How long after it opened one request is let through.
    pub probe_after: Duration,
}

/// Open for good, for those who carry the same credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shut {
    /// Who found out, and what.
    pub why: Why,
    /// Which state of which bindings was carried, without any secret; none where nothing was.
    pub credential: Option<String>,
}

/// Who found out that a host is in trouble, and what they saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// When.
    pub at: Timestamp,
    /// What was seen.
    pub cause: Cause,
    /// The answer's status, if it was an answer.
    pub status: Option<u16>,
    /// The record of the call.
    pub audit_id: String,
}

/// What came of one request, or of several that count as one: the last thing that was seen.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'s> {
    /// What was wrong; none where the answer was good.
    pub cause: Option<Cause>,
    /// The answer's status, if it was an error.
    pub status: Option<u16>,
    /// How long the host asked to wait.
    pub retry_after: Option<Duration>,
    /// Which state of which bindings was carried.
    pub credential: Option<&'s str>,
    /// The record of the call.
    pub audit_id: &'s str,
}

/// Whether a request may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission<'c> {
    /// Yes.
    Pass,
    /// Yes, if no other is out to try the host.
    Probe(&'c Opening),
    /// No; waiting helps.
    Open {
        /// What opened it.
        opening: &'c Opening,
        /// How long until one request is let through.
        retry_after: Duration,
    },
    /// No; and waiting does not help.
    Shut(&'c Shut),
}

/// The three states, in the words of records and of `cofferdam breaker status`.
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
    /// The stable word.
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
    /// Whether a request with these credentials may be sent now.
    #[must_use]
    pub fn admission(&self, credential: Option<&str>, now: Timestamp) -> Admission<'_> {
        if let Some(shut) = self.shut.iter().find(|shut| shut.credential.as_deref() == credential) {
            return Admission::Shut(shut);
        }
        let Some(opening) = &self.open else { return Admission::Pass };
        match opening.left(now) {
            Some(retry_after) => Admission::Open { opening, retry_after },
            None => Admission::Probe(opening),
        }
    }

    /// Its state for requests with these credentials. Half-open is from when one would be let through.
    #[must_use]
    pub fn state(&self, credential: Option<&str>, now: Timestamp) -> CircuitState {
        match self.admission(credential, now) {
            Admission::Pass => CircuitState::Closed,
            Admission::Probe(_) => CircuitState::HalfOpen,
            Admission::Open { .. } | Admission::Shut(_) => CircuitState::Open,
        }
    }

    /// What requests with these credentials are not simply let through for, where they are not.
    #[must_use]
    pub fn why(&self, credential: Option<&str>, now: Timestamp) -> Option<&Why> {
        match self.admission(credential, now) {
            Admission::Pass => None,
            Admission::Probe(opening) | Admission::Open { opening, .. } => Some(&opening.why),
            Admission::Shut(shut) => Some(&shut.why),
        }
    }

    /// Whether there is nothing to remember: no failures, not open for anybody.
    #[must_use]
    pub fn is_pristine(&self) -> bool {
        self.failures.is_empty() && self.open.is_none() && self.shut.is_empty()
    }

    /// Counts what was seen; `probed` is whether it was the one request that was let through. Gives the states
    /// before and after where they differ, or where a probe was decided.
    ///
    /// Who was sent before the circuit opened, and fails after it did, changes nothing: one outage opens it once.
    pub fn count(
        &mut self,
        policy: &BreakerPolicy,
        seen: &Seen<'_>,
        probed: bool,
        now: Timestamp,
    ) -> Option<(CircuitState, CircuitState)> {
        let why = |cause| Why { at: now, cause, status: seen.status, audit_id: seen.audit_id.to_owned() };
        let before = match (probed && self.open.is_some(), self.state(seen.credential, now)) {
            (true, _) => CircuitState::HalfOpen,
            (false, CircuitState::HalfOpen) => CircuitState::Open,
            (false, state) => state,
        };
        let after = match (policy.weight(seen.cause, seen.retry_after), seen.cause) {
            (Weight::Permanent, Some(cause)) => {
                // It answers: whatever it was open for before is over.
                if probed {
                    self.close();
                }
                self.shut(Shut { why: why(cause), credential: seen.credential.map(str::to_owned) });
                CircuitState::Open
            }
            (Weight::Trouble(own), Some(cause)) => match (&self.open, probed) {
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
        // What others were told is that it was open: a credential that was bound anew is where that ends.
        let before = match self.heal(seen.credential) && after == CircuitState::Closed {
            true => CircuitState::Open,
            false => before,
        };
        (before != after).then_some((before, after))
    }

    /// Forgets for which earlier states of the same bindings it was open for good: they were bound anew, and are not
    /// sent again. Whether there were any.
    fn heal(&mut self, credential: Option<&str>) -> bool {
        let before = self.shut.len();
        let is_old = |shut: &Shut| match (credential, shut.credential.as_deref()) {
            (Some(new), Some(old)) => mark::supersedes(new, old),
            _ => false,
        };
        self.shut.retain(|shut| !is_old(shut));
        self.shut.len() < before
    }

    fn close(&mut self) {
        self.failures.clear();
        self.open = None;
    }

    fn open_for(&mut self, policy: &BreakerPolicy, cooldown: Duration, why: Why) {
        self.failures.clear();
        self.open = Some(Opening { why, cooldown, probe_after: policy.probe_after(cooldown) });
    }

    fn shut(&mut self, shut: Shut) {
        self.shut.retain(|other| other.credential != shut.credential);
        if self.shut.len() >= SHUT {
            self.shut.remove(0);
        }
        self.shut.push(shut);
    }
}

impl Shut {
    /// The names of the bindings; none where nothing was carried.
    pub(super) fn bindings(&self) -> Vec<String> {
        self.credential.as_deref().map(mark::bindings).unwrap_or_default()
    }
}

impl Opening {
    /// How long until one request is let through; none where that is now. A clock that was set back lets one
    /// through at once: nobody knows how long it has been, and longer than it was meant it must not be.
    #[must_use]
    pub fn left(&self, now: Timestamp) -> Option<Duration> {
        let passed = passed(self.why.at, now)?;
        self.probe_after.checked_sub(passed).filter(|left| !left.is_zero())
    }
}

fn is_within(at: Timestamp, window: Duration, now: Timestamp) -> bool {
    passed(at, now).is_some_and(|passed| passed < window)
}

/// The time from `then` to `now`; none where the clock was set back between.
fn passed(then: Timestamp, now: Timestamp) -> Option<Duration> {
    let passed = now.duration_since(then);
    match Duration::try_from(passed) {
        Ok(passed) => Some(passed),
        Err(_) if passed.unsigned_abs() <= SLACK => Some(Duration::ZERO),
        Err(_) => None,
    }
}
