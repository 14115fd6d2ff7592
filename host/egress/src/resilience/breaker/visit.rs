//! The circuit breaker's state for one candidate of a call, from its first attempt to its last.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_core::failure::{AuditId, CircuitOpen, FailureCause};
use cofferdam_core::private_file::FileLock;
use cofferdam_model::manifest::ConnectorName;
use jiff::Timestamp;

use super::circuit::{BreakerAdmission, Circuit, CircuitObservation, CircuitState, TripCause};
use super::circuits::{CircuitPlace, CircuitStore, CircuitUpdate, LockWait};
use super::mark;
use super::policy::{BreakerPolicy, FailureSignal};

/// The retry delay while another request probes the host: the end of the probe is unknown, and checking again
/// soon is worthwhile.
const WHILE_PROBED: Duration = Duration::from_secs(1);

/// A circuit that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CircuitChange {
    /// The `host:port`.
    pub host: String,
    /// The state before.
    pub from: &'static str,
    /// The state after.
    pub to: &'static str,
    /// The failure that was observed, or that had opened it; `None` if replacing a credential closed it.
    pub cause: Option<FailureCause>,
}

/// The owner of a visit. Dropping it releases everything that the visit holds. Its observations count only if
/// [`BreakerScope::settle`] was called before.
#[derive(Debug)]
pub struct BreakerGuard(Arc<BreakerScope>);

/// A candidate's visit, which the gates of its attempts share.
#[derive(Debug)]
pub struct BreakerScope {
    circuits: Arc<CircuitStore>,
    connector: ConnectorName,
    policy: Arc<BreakerPolicy>,
    audit_id: AuditId,
    state: Mutex<HostEntries>,
}

#[derive(Debug, Default)]
struct HostEntries {
    hosts: Vec<AtHost>,
    /// The number of the current attempt.
    attempt: u32,
    changes: Vec<CircuitChange>,
    over: bool,
}

/// A host that the visit was admitted to.
#[derive(Debug)]
struct AtHost {
    place: CircuitPlace,
    /// The last attempt that was admitted to it.
    attempt: u32,
    credential: Option<String>,
    /// True if its circuit was in its initial state.
    was_pristine: bool,
    /// The slot, if this visit is the probe, and the cause that had opened the circuit.
    probe: Option<(FileLock, FailureCause)>,
    last: Option<HostObservation>,
}

/// Another process is writing circuits, so that the observation cannot be counted at once.
#[derive(Debug)]
struct NoTurn;

/// The last observation.
#[derive(Debug, Clone, Copy)]
struct HostObservation {
    cause: Option<FailureCause>,
    status: Option<u16>,
    retry_after: Option<Duration>,
}

impl BreakerGuard {
    pub(super) fn new(
        circuits: Arc<CircuitStore>,
        connector: ConnectorName,
        policy: Arc<BreakerPolicy>,
        audit_id: AuditId,
    ) -> Self {
        Self(Arc::new(BreakerScope { circuits, connector, policy, audit_id, state: Mutex::default() }))
    }
}

impl Deref for BreakerGuard {
    type Target = Arc<BreakerScope>;

    fn deref(&self) -> &Arc<BreakerScope> {
        &self.0
    }
}

impl Drop for BreakerGuard {
    fn drop(&mut self) {
        // The gates' own tasks may end a little later than the call.
        let mut state = self.0.state();
        state.over = true;
        state.hosts.clear();
    }
}

impl BreakerScope {
    /// Decides whether a request may go to `host` now. `credential` names the bindings that it carries and
    /// their versions, without any secret. The decision for an attempt's first request holds for the whole
    /// attempt: all its requests to a host that it probes are one probe. A circuit that an earlier candidate
    /// of the same call opened lets the request pass, but not as the probe: a smaller model behind the same
    /// host is the fallback that the caller asked for.
    ///
    /// # Errors
    /// The circuit is open, or another call is probing the host.
    pub fn admit(
        &self,
        host: &str,
        credential: Option<String>,
        now: Timestamp,
    ) -> Result<(), Box<CircuitOpen>> {
        let credential = credential.map(mark::bounded);
        let mut state = self.state();
        let (attempt, over) = (state.attempt, state.over);
        let known = state.hosts.iter().position(|at| at.place.host == host);
        if let Some(at) = known.and_then(|known| state.hosts.get_mut(known))
            && (at.attempt == attempt || at.probe.is_some())
        {
            at.credential = credential;
            return Ok(());
        }
        let place = self.circuits.place(&self.connector, host);
        let mut slot = None;
        let (probe, was_pristine) = loop {
            let Some(circuit) = self.circuits.look(&place) else { break (None, true) };
            // A failure that an earlier candidate of this call observed blocks other calls, not its
            // fallbacks.
            if circuit.why(credential.as_deref(), now).is_some_and(|why| self.is_own(why)) {
                break (None, false);
            }
            let (why, retry_after, bindings) = match circuit.admission(credential.as_deref(), now) {
                BreakerAdmission::Pass => break (None, circuit.is_pristine()),
                BreakerAdmission::Shut(shut) => (&shut.why, None, shut.bindings()),
                BreakerAdmission::Open { opening, retry_after } => {
                    (&opening.why, Some(retry_after), Vec::new())
                }
                BreakerAdmission::Probe(opening) => {
                    let cause = opening.why.cause;
                    // The previous holder of the slot may have decided: the circuit must be read again while
                    // holding it.
                    if let Some(lock) = slot.take() {
                        let (from, to) = (CircuitState::Open.name(), CircuitState::HalfOpen.name());
                        state.changes.push(CircuitChange {
                            host: host.to_owned(),
                            from,
                            to,
                            cause: Some(cause),
                        });
                        break (Some((lock, cause)), false);
                    }
                    match self.circuits.probe(&place) {
                        Ok(Some(lock)) if !state.over => {
                            slot = Some(lock);
                            continue;
                        }
                        Ok(_) => {
                            let (state, wait) = (CircuitState::HalfOpen, Some(WHILE_PROBED));
                            return Err(refusal(&place, state, &opening.why, wait, Vec::new()));
                        }
                        Err(error) => {
                            self.circuits.warn(&place, "cannot be locked, and lets requests pass", &error);
                            break (None, false);
                        }
                    }
                }
            };
            return Err(refusal(&place, CircuitState::Open, why, retry_after, bindings));
        };
        match known.and_then(|known| state.hosts.get_mut(known)) {
            Some(at) => {
                at.was_pristine &= was_pristine;
                (at.attempt, at.credential, at.probe) = (attempt, credential, probe);
            }
            None if over => {}
            None => state.hosts.push(AtHost { place, attempt, credential, was_pristine, probe, last: None }),
        }
        Ok(())
    }

    /// Begins another attempt of the candidate. It is admitted to every host again, since other calls may
    /// have opened circuits while it waited.
    pub fn begin_attempt(&self) {
        let mut state = self.state();
        state.attempt = state.attempt.saturating_add(1);
    }

    /// Records the result of a request to `host`; `cause` is `None` if the response was good. The last one
    /// counts.
    pub fn saw(
        &self,
        host: &str,
        cause: Option<FailureCause>,
        status: Option<u16>,
        retry_after: Option<Duration>,
    ) {
        if let Some(at) = self.state().hosts.iter_mut().find(|at| at.place.host == host) {
            // The host responds and asks for a credential that was not sent: another call's credential may be
            // valid.
            let asks = matches!(cause, Some(FailureCause::Auth | FailureCause::PaymentRequired))
                && at.credential.is_none();
            at.last = Some(match asks {
                true => HostObservation { cause: None, status: None, retry_after: None },
                false => HostObservation { cause, status, retry_after },
            });
        }
    }

    /// Returns, after a failed attempt, whether the candidate must not be attempted again: it was the probe
    /// of a host, or another call has opened the circuit of a host at which it failed.
    #[must_use]
    pub fn forbids_retry(&self, now: Timestamp) -> bool {
        self.state().hosts.iter().any(|at| {
            let failed = at.last.is_some_and(|last| !self.is_good(last));
            let is_open = || {
                let circuit = self.circuits.look(&at.place);
                let why = circuit.as_ref().and_then(|circuit| circuit.why(at.credential.as_deref(), now));
                why.is_some_and(|why| !self.is_own(why))
            };
            at.probe.is_some() || (failed && is_open())
        })
    }

    /// Ends the visit: counts the last observation at each host, and then releases everything that the visit
    /// holds. The call does not wait for that: if another process is writing, a separate thread counts it a
    /// little later, holds the slot until then, and reports the changes only to the operator.
    pub fn settle(self: &Arc<Self>, now: Timestamp) {
        let mut state = self.state();
        state.over = true;
        let mut later = Vec::new();
        for at in std::mem::take(&mut state.hosts) {
            match self.close(&at, now, LockWait::Never) {
                Ok(change) => state.changes.extend(change),
                Err(NoTurn) => later.push(at),
            }
        }
        drop(state);
        if later.is_empty() {
            return;
        }
        let visit = Arc::clone(self);
        let count = move || {
            for at in later {
                if let Ok(Some(change)) = visit.close(&at, now, LockWait::ForTurn) {
                    visit.circuits.tell(&at.place, change.from, change.to);
                }
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(count)),
            Err(_) => count(),
        }
    }

    /// Counts the last observation at one host.
    fn close(&self, at: &AtHost, now: Timestamp, wait: LockWait) -> Result<Option<CircuitChange>, NoTurn> {
        let change = match at.last {
            Some(last) => self.count(at, last, now, wait)?,
            // The probe ended without an observation: the circuit is as open as before.
            None => {
                at.probe.as_ref().map(|(_, cause)| (CircuitState::HalfOpen, CircuitState::Open, Some(*cause)))
            }
        };
        Ok(change.map(|(from, to, cause)| {
            if at.probe.is_some() && to == CircuitState::Closed {
                self.circuits.forget_probe(&at.place);
            }
            CircuitChange { host: at.place.host.clone(), from: from.name(), to: to.name(), cause }
        }))
    }

    /// Returns the circuits that changed since the last call of this function, in order.
    #[must_use]
    pub fn take_changes(&self) -> Vec<CircuitChange> {
        std::mem::take(&mut self.state().changes)
    }

    fn count(
        &self,
        at: &AtHost,
        last: HostObservation,
        now: Timestamp,
        wait: LockWait,
    ) -> Result<Option<(CircuitState, CircuitState, Option<FailureCause>)>, NoTurn> {
        if at.was_pristine && self.is_good(last) {
            return Ok(None);
        }
        let seen = CircuitObservation {
            cause: last.cause,
            status: last.status,
            retry_after: last.retry_after,
            credential: at.credential.as_deref(),
            audit_id: self.audit_id.as_str(),
        };
        let probed = at.probe.is_some();
        // Most observations at an open circuit change nothing, and then the lock is not needed.
        let before = self.circuits.look(&at.place).unwrap_or_default();
        let mut foreseen = (*before).clone();
        if foreseen.count(&self.policy, &seen, probed, now).is_none() && foreseen == *before {
            return Ok(None);
        }
        let count = |circuit: &mut Circuit| circuit.count(&self.policy, &seen, probed, now);
        match self.circuits.change(&at.place, wait, count) {
            CircuitUpdate::Done(Some((from, to))) => {
                Ok(Some((from, to, last.cause.filter(|_| to != CircuitState::Closed))))
            }
            CircuitUpdate::Done(None) | CircuitUpdate::Failed => Ok(None),
            CircuitUpdate::NoTurn => Err(NoTurn),
        }
    }

    /// Returns whether an earlier candidate of the same call made this observation.
    fn is_own(&self, why: &TripCause) -> bool {
        why.audit_id == self.audit_id.as_str()
    }

    fn is_good(&self, last: HostObservation) -> bool {
        self.policy.weight(last.cause, last.retry_after) == FailureSignal::Good
    }

    fn state(&self) -> MutexGuard<'_, HostEntries> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(
    place: &CircuitPlace,
    state: CircuitState,
    why: &TripCause,
    retry_after: Option<Duration>,
    bindings: Vec<String>,
) -> Box<CircuitOpen> {
    Box::new(CircuitOpen {
        connector: place.connector.to_string(),
        host: place.host.clone(),
        state: state.name(),
        opened_at: why.at,
        retry_after_ms: retry_after
            .map(|wait| u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)),
        cause: why.cause,
        status: why.status,
        cause_audit_id: why.audit_id.clone(),
        bindings,
    })
}
