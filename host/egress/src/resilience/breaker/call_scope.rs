//! The circuit breaker's state for one candidate of a call, from its first attempt to its last.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_core::failure::{AuditId, CircuitOpen, FailureCause};
use cofferdam_model::manifest::ConnectorName;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::circuit::{BreakerAdmission, Circuit, CircuitObservation, CircuitState, TripCause};
use super::circuit_replica::CircuitUpdate;
use super::circuit_store::{CircuitStore, ProbeSlot, TableBusy, UNWRITABLE};
use super::circuit_table::{CircuitKey, TableError};
use super::policy::{BreakerPolicy, FailureSignal};

/// The retry delay while another request probes the host: the end of the probe is unknown, and checking again
/// soon is worthwhile.
const PROBE_RETRY_AFTER: Duration = Duration::from_secs(1);

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

/// The owner of a scope. Dropping it releases everything that the scope holds. Its observations count only if
/// [`BreakerScope::finish`] was called before.
#[derive(Debug)]
pub struct BreakerGuard(Arc<BreakerScope>);

/// The scope of one candidate, which the gates of its attempts share.
#[derive(Debug)]
pub struct BreakerScope {
    circuits: Arc<CircuitStore>,
    connector: ConnectorName,
    policy: Arc<BreakerPolicy>,
    audit_id: AuditId,
    state: Mutex<ScopeState>,
}

#[derive(Debug, Default)]
struct ScopeState {
    hosts: Vec<HostEntry>,
    /// The number of the current attempt.
    attempt: u32,
    changes: Vec<CircuitChange>,
    over: bool,
}

/// A host that the scope was admitted to.
#[derive(Debug)]
struct HostEntry {
    key: CircuitKey,
    /// The last attempt that was admitted to it.
    attempt: u32,
    credential: Option<String>,
    /// True if its circuit was in its initial state.
    was_pristine: bool,
    /// The slot, if this scope is the probe, and the cause that had opened the circuit.
    probe: Option<(ProbeSlot, FailureCause)>,
    last: Option<HostObservation>,
}

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
        let credential = credential.map(bounded);
        let mut state = self.state();
        let (attempt, over) = (state.attempt, state.over);
        let known = state.hosts.iter().position(|at| at.key.host == host);
        if let Some(at) = known.and_then(|known| state.hosts.get_mut(known))
            && (at.attempt == attempt || at.probe.is_some())
        {
            at.credential = credential;
            return Ok(());
        }
        let key = CircuitKey { connector: self.connector.clone(), host: host.to_owned() };
        let mut slot = None;
        let (probe, was_pristine) = loop {
            let Some(circuit) = self.circuits.load(&key) else { break (None, true) };
            // A failure that an earlier candidate of this call observed blocks other calls, not its
            // fallbacks.
            if circuit.trip_cause(credential.as_deref(), now).is_some_and(|why| self.is_own(why)) {
                break (None, false);
            }
            let (why, retry_after, bindings) = match circuit.admission(credential.as_deref(), now) {
                BreakerAdmission::Pass => break (None, circuit.is_pristine()),
                BreakerAdmission::PermanentlyOpen(shut) => (&shut.why, None, shut.bindings()),
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
                    match self.circuits.probe(&key) {
                        Ok(Some(lock)) if !state.over => {
                            slot = Some(lock);
                            continue;
                        }
                        Ok(_) => {
                            let (state, wait) = (CircuitState::HalfOpen, Some(PROBE_RETRY_AFTER));
                            return Err(refusal(&key, state, &opening.why, wait, Vec::new()));
                        }
                        Err(error) => {
                            self.circuits.warn(&key, "cannot be locked, and lets requests pass", &error);
                            break (None, false);
                        }
                    }
                }
            };
            if retry_after.is_some() {
                self.circuits.want_probe(&key);
            }
            return Err(refusal(&key, CircuitState::Open, why, retry_after, bindings));
        };
        match known.and_then(|known| state.hosts.get_mut(known)) {
            Some(at) => {
                at.was_pristine &= was_pristine;
                (at.attempt, at.credential, at.probe) = (attempt, credential, probe);
            }
            None if over => {}
            None => state.hosts.push(HostEntry { key, attempt, credential, was_pristine, probe, last: None }),
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
    pub fn observe(
        &self,
        host: &str,
        cause: Option<FailureCause>,
        status: Option<u16>,
        retry_after: Option<Duration>,
    ) {
        if let Some(at) = self.state().hosts.iter_mut().find(|at| at.key.host == host) {
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
                let circuit = self.circuits.load(&at.key);
                let why =
                    circuit.as_ref().and_then(|circuit| circuit.trip_cause(at.credential.as_deref(), now));
                why.is_some_and(|why| !self.is_own(why))
            };
            at.probe.is_some() || (failed && is_open())
        })
    }

    /// Ends the scope: counts the last observation at each host, and then releases everything that the scope
    /// holds. The call does not wait for that: if another process is writing, a separate thread counts it a
    /// little later, holds the slot until then, and reports the changes only to the operator.
    pub fn finish(self: &Arc<Self>, now: Timestamp) {
        let mut state = self.state();
        state.over = true;
        let mut later = Vec::new();
        for at in std::mem::take(&mut state.hosts) {
            match self.close(&at, now, false) {
                Ok(change) => state.changes.extend(change),
                Err(TableBusy) => later.push(at),
            }
        }
        drop(state);
        if later.is_empty() {
            return;
        }
        // Without a permit the threads of this process would all wait for a process that never goes on.
        let Ok(permit) = Arc::clone(&self.circuits.waiters).try_acquire_owned() else {
            later.iter().for_each(|at| self.circuits.warn(&at.key, UNWRITABLE, &TableError::Busy));
            return;
        };
        let visit = Arc::clone(self);
        let count = move || {
            for at in later {
                if let Ok(Some(change)) = visit.close(&at, now, true) {
                    let (connector, host) = (visit.connector.as_str(), change.host);
                    tracing::info!(target: "cofferdam::breaker", connector, host, "the circuit was {} and is {}", change.from, change.to);
                }
            }
            drop(permit);
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(count)),
            Err(_) => count(),
        }
    }

    /// Counts the last observation at one host.
    fn close(
        &self,
        at: &HostEntry,
        now: Timestamp,
        may_wait: bool,
    ) -> Result<Option<CircuitChange>, TableBusy> {
        let change = match at.last {
            Some(last) => self.count(at, last, now, may_wait)?,
            // The probe ended without an observation: the circuit is as open as before.
            None => {
                at.probe.as_ref().map(|(_, cause)| (CircuitState::HalfOpen, CircuitState::Open, Some(*cause)))
            }
        };
        Ok(change.map(|(from, to, cause)| {
            if at.probe.is_some() && to == CircuitState::Closed {
                self.circuits.forget_probe(&at.key);
            }
            CircuitChange { host: at.key.host.clone(), from: from.name(), to: to.name(), cause }
        }))
    }

    /// Returns the circuits that changed since the last call of this function, in order.
    #[must_use]
    pub fn take_changes(&self) -> Vec<CircuitChange> {
        std::mem::take(&mut self.state().changes)
    }

    fn count(
        &self,
        at: &HostEntry,
        last: HostObservation,
        now: Timestamp,
        may_wait: bool,
    ) -> Result<Option<(CircuitState, CircuitState, Option<FailureCause>)>, TableBusy> {
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
        let before = self.circuits.load(&at.key).unwrap_or_default();
        let mut foreseen = (*before).clone();
        if foreseen.count(&self.policy, &seen, probed, now).is_none() && foreseen == *before {
            return Ok(None);
        }
        if let Some(replica) = &self.circuits.shared {
            let update = CircuitUpdate::new(&at.key, &self.policy, &seen, &self.audit_id, probed);
            let change = replica.observe(&at.key, update, now);
            return Ok(change.map(|(from, to)| (from, to, last.cause.filter(|_| to != CircuitState::Closed))));
        }
        let count = |circuit: &mut Circuit| circuit.count(&self.policy, &seen, probed, now);
        let change = self.circuits.change(&at.key, may_wait, count)?.flatten();
        Ok(change.map(|(from, to)| (from, to, last.cause.filter(|_| to != CircuitState::Closed))))
    }

    /// Returns whether an earlier candidate of the same call made this observation.
    fn is_own(&self, why: &TripCause) -> bool {
        why.audit_id == self.audit_id.as_str()
    }

    fn is_good(&self, last: HostObservation) -> bool {
        self.policy.signal(last.cause, last.retry_after) == FailureSignal::Good
    }

    fn state(&self) -> MutexGuard<'_, ScopeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(
    key: &CircuitKey,
    state: CircuitState,
    why: &TripCause,
    retry_after: Option<Duration>,
    bindings: Vec<String>,
) -> Box<CircuitOpen> {
    Box::new(CircuitOpen {
        connector: key.connector.to_string(),
        host: key.host.clone(),
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

/// The longest mark that is stored verbatim, in bytes: enough for a few bindings.
const BYTES: usize = 1024;

/// The longest name of a binding that is shown, in bytes.
const NAME_BYTES: usize = 160;

/// Returns the mark, or a hash of it if the bindings are many.
pub(super) fn bounded(mark: String) -> String {
    if mark.len() <= BYTES {
        return mark;
    }
    let digits = Sha256::digest(mark.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("sha256:{digits}")
}

/// Returns the names of the bindings; none if only a hash was stored.
pub(super) fn bindings(mark: &str) -> Vec<String> {
    mark.lines().filter_map(line).map(|(name, _)| name.to_owned()).collect()
}

/// Returns whether `new` has the same bindings as `old`, and one of them was replaced since. After a clock
/// was set back this is false: a version that is not known to be newer closes nothing.
pub(super) fn supersedes(new: &str, old: &str) -> bool {
    if new.lines().count() != old.lines().count() {
        return false;
    }
    let pairs: Option<Vec<_>> =
        new.lines().zip(old.lines()).map(|(new, old)| line(new).zip(line(old))).collect();
    pairs.is_some_and(|pairs| {
        pairs.iter().all(|(new, old)| new.0 == old.0 && new.1 >= old.1)
            && pairs.iter().any(|(new, old)| new.1 > old.1)
    })
}

/// Parses a binding's name and the time at which it was bound. The name is copied into failures and commands,
/// so nothing else is accepted.
fn line(text: &str) -> Option<(&str, Timestamp)> {
    let (name, at) = text.split_once(' ')?;
    let is_name = name.len() <= NAME_BYTES
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-'));
    Some((name, at.parse().ok()?)).filter(|_| is_name)
}

#[cfg(test)]
mod tests {

    use super::{bindings, bounded, supersedes};

    const OLD: &str = "bearer/acme/work 2026-11-21T10:00:00Z";
    const NEW: &str = "bearer/acme/work 2026-11-21T10:00:00.5Z";
    const OTHER: &str = "bearer/acme/home 2026-11-22T10:00:00Z";

    #[test]
    fn only_the_same_bindings_bound_later_supersede() {
        assert!(supersedes(NEW, OLD));
        for (new, old) in
            [(OLD, NEW), (OLD, OLD), (OTHER, OLD), ("", OLD), (NEW, ""), ("sha256:1", "sha256:2")]
        {
            assert!(!supersedes(new, old), "{new:?} {old:?}");
        }
        let two = |one: &str| format!("{one}\n{OTHER}");
        assert!(supersedes(&two(NEW), &two(OLD)) && !supersedes(&two(NEW), OLD));
    }

    #[test]
    fn only_binding_names_are_shown() {
        assert_eq!(bindings(OLD), ["bearer/acme/work"]);
        assert_eq!(bindings(&format!("{OLD}\n{OTHER}")), ["bearer/acme/work", "bearer/acme/home"]);
        let many = OLD.repeat(100);
        for none in ["", "$(reboot) 2026-11-21T10:00:00Z", "bearer/acme/work", &bounded(many)] {
            assert!(bindings(none).is_empty(), "{none}");
        }
    }
}
