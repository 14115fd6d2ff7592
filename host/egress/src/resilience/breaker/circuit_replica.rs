//! The circuits that the hosts of a cluster share, as one host knows them: a copy in memory, and a queue of
//! observations for the database.
//!
//! Calls read and change the copy and never wait. A task of the host's applies the observations to the database, under
//! the row's lock and with the database's clock, and replaces the copy by what the database has. Until then, and while
//! the database is away, the copy is the truth of this host.
//!
//! All times in the copy are those of this host's clock; the task translates.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_core::failure::{AuditId, FailureCause};
use cofferdam_model::manifest::ConnectorName;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use super::circuit::{Circuit, CircuitObservation, CircuitState};
use super::circuit_table::CircuitKey;
use super::policy::BreakerPolicy;

/// The number of observations that may wait for the database; more are only counted by this host.
const MAX_QUEUED: usize = 4096;

/// The number of circuits in the copy. There are no more than the manifests of installed connectors name hosts.
const MAX_CIRCUITS: usize = 65_536;

/// One observation, as it is applied to the circuit in the database.
#[derive(Debug, Clone)]
pub struct CircuitUpdate {
    connector: ConnectorName,
    host: String,
    policy: Arc<BreakerPolicy>,
    cause: Option<FailureCause>,
    status: Option<u16>,
    retry_after: Option<Duration>,
    credential: Option<String>,
    audit_id: AuditId,
    probed: bool,
}

/// A change of the circuits in the database.
#[derive(Debug, Clone)]
pub enum SharedCircuitChange {
    /// Counts an observation.
    Observe(CircuitUpdate),
    /// Closes circuits: those of a connector at a host, or of all.
    Remove {
        /// The connector, if it is one.
        connector: Option<String>,
        /// The `host:port`, if it is one.
        host: Option<String>,
    },
}

/// The change of a circuit's state: before and after.
pub(super) type StateChange = (CircuitState, CircuitState);

/// The copy of the shared circuits.
#[derive(Debug)]
pub struct CircuitReplica {
    state: Mutex<ReplicaState>,
    updates: mpsc::Sender<SharedCircuitChange>,
}

#[derive(Debug, Default)]
struct ReplicaState {
    circuits: HashMap<CircuitKey, Arc<Circuit>>,
    probes: HashMap<CircuitKey, ProbeState>,
    /// The reason why the database is not used, if it is away.
    away: Option<String>,
}

/// The right of this host to probe one circuit.
#[derive(Debug, Clone, Copy, Default)]
struct ProbeState {
    /// True if a call wanted to probe and this host may not.
    is_wanted: bool,
    /// True if this host alone may probe.
    is_held: bool,
    /// True if a call of this host is the probe.
    is_out: bool,
}

/// The probe of a circuit by one call of this host. Dropping it ends the probe.
#[derive(Debug)]
pub(super) struct SharedProbe {
    replica: Arc<CircuitReplica>,
    key: CircuitKey,
}

impl Drop for SharedProbe {
    fn drop(&mut self) {
        let mut state = self.replica.state();
        if let Some(probe) = state.probes.get_mut(&self.key) {
            probe.is_out = false;
        }
    }
}

/// A circuit of the database, for the task that keeps the copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedCircuit {
    /// The connector, without a version.
    pub connector: ConnectorName,
    /// The `host:port`.
    pub host: String,
    /// The circuit, with the times of the database's clock.
    pub circuit: Circuit,
}

impl CircuitUpdate {
    pub(super) fn new(
        key: &CircuitKey,
        policy: &Arc<BreakerPolicy>,
        seen: &CircuitObservation<'_>,
        audit_id: &AuditId,
        probed: bool,
    ) -> Self {
        Self {
            connector: key.connector.clone(),
            host: key.host.clone(),
            policy: Arc::clone(policy),
            cause: seen.cause,
            status: seen.status,
            retry_after: seen.retry_after,
            credential: seen.credential.map(str::to_owned),
            audit_id: audit_id.clone(),
            probed,
        }
    }

    /// Returns the connector.
    #[must_use]
    pub fn connector(&self) -> &ConnectorName {
        &self.connector
    }

    /// Returns the `host:port`.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns whether the request was the probe of an open circuit.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.probed
    }

    /// Applies the observation at `now`, by the clock that the circuit's times are of.
    pub fn apply(&self, circuit: &mut Circuit, now: Timestamp) {
        let _ = self.count(circuit, now);
    }

    fn count(&self, circuit: &mut Circuit, now: Timestamp) -> Option<StateChange> {
        let seen = CircuitObservation {
            cause: self.cause,
            status: self.status,
            retry_after: self.retry_after,
            credential: self.credential.as_deref(),
            audit_id: self.audit_id.as_str(),
        };
        circuit.count(&self.policy, &seen, self.probed, now)
    }
}

impl CircuitReplica {
    /// Creates an empty copy, and the queue of observations for the database.
    #[must_use]
    pub fn new() -> (Arc<Self>, mpsc::Receiver<SharedCircuitChange>) {
        let (updates, queue) = mpsc::channel(MAX_QUEUED);
        (Arc::new(Self { state: Mutex::default(), updates }), queue)
    }

    /// Replaces the copy by the circuits of the database, whose clock is `ahead` of this host's.
    pub fn replace(&self, circuits: Vec<SharedCircuit>, ahead: SignedDuration) {
        let circuits = circuits.into_iter().take(MAX_CIRCUITS).map(|shared| {
            let key = CircuitKey { connector: shared.connector, host: shared.host };
            (key, Arc::new(shared.circuit.shifted(-ahead)))
        });
        let mut state = self.state();
        state.circuits = circuits.collect();
        let ReplicaState { circuits, probes, .. } = &mut *state;
        probes.retain(|key, probe| probe.is_out || circuits.contains_key(key));
    }

    /// Returns the circuits that this host wants to probe at `now` and may not yet.
    #[must_use]
    pub fn wanted_probes(&self, now: Timestamp) -> Vec<(ConnectorName, String)> {
        let state = self.state();
        let is_due = |key: &CircuitKey| {
            state
                .circuits
                .get(key)
                .and_then(|it| it.open.as_ref())
                .is_some_and(|open| open.left(now).is_none())
        };
        let wanted =
            state.probes.iter().filter(|(key, probe)| probe.is_wanted && !probe.is_held && is_due(key));
        wanted.map(|(key, _)| (key.connector.clone(), key.host.clone())).collect()
    }

    /// Returns the circuits that this host may probe, and whether a call does.
    #[must_use]
    pub fn held_probes(&self) -> Vec<(ConnectorName, String, bool)> {
        let state = self.state();
        let held = state.probes.iter().filter(|(_, probe)| probe.is_held);
        held.map(|(key, probe)| (key.connector.clone(), key.host.clone(), probe.is_out)).collect()
    }

    /// Sets whether this host alone may probe a circuit.
    pub fn set_probe(&self, connector: &ConnectorName, host: &str, is_held: bool) {
        let key = CircuitKey { connector: connector.clone(), host: host.to_owned() };
        let mut state = self.state();
        let probe = state.probes.entry(key).or_default();
        probe.is_held = is_held;
        probe.is_wanted &= !is_held;
    }

    /// Sets the reason why the database is not used; `None` if it is. Returns whether that is new.
    pub fn set_away(&self, reason: Option<String>) -> bool {
        let mut state = self.state();
        let is_new = state.away.is_some() != reason.is_some();
        state.away = reason;
        is_new
    }

    /// Returns the reason why the database is not used, if it is away.
    #[must_use]
    pub fn away(&self) -> Option<String> {
        self.state().away.clone()
    }

    pub(super) fn load(&self, key: &CircuitKey) -> Option<Arc<Circuit>> {
        self.state().circuits.get(key).cloned()
    }

    /// Applies an observation to the copy, and queues it for the database.
    pub(super) fn observe(
        &self,
        key: &CircuitKey,
        update: CircuitUpdate,
        now: Timestamp,
    ) -> Option<StateChange> {
        let mut state = self.state();
        let mut circuit = state.circuits.get(key).map(|it| (**it).clone()).unwrap_or_default();
        let change = update.count(&mut circuit, now);
        if circuit.is_pristine() {
            state.circuits.remove(key);
        } else if state.circuits.len() < MAX_CIRCUITS || state.circuits.contains_key(key) {
            state.circuits.insert(key.clone(), Arc::new(circuit));
        }
        drop(state);
        // A full queue: the database is away or slow, and this host's copy counts.
        drop(self.updates.try_send(SharedCircuitChange::Observe(update)));
        change
    }

    /// Takes the probe of a circuit. While the database is away, each host probes for itself.
    pub(super) fn probe(self: &Arc<Self>, key: &CircuitKey) -> Option<SharedProbe> {
        let mut state = self.state();
        let is_away = state.away.is_some();
        let probe = state.probes.entry(key.clone()).or_default();
        if probe.is_out || !(probe.is_held || is_away) {
            probe.is_wanted = true;
            return None;
        }
        probe.is_out = true;
        Some(SharedProbe { replica: Arc::clone(self), key: key.clone() })
    }

    /// Notes that a call was refused, so that this host asks to probe as soon as that is possible.
    pub(super) fn want_probe(&self, key: &CircuitKey) {
        self.state().probes.entry(key.clone()).or_default().is_wanted = true;
    }

    /// Returns whether a call of this host is the probe.
    pub(super) fn is_probed(&self, key: &CircuitKey) -> bool {
        self.state().probes.get(key).is_some_and(|probe| probe.is_out)
    }

    /// Returns every circuit of the copy, by connector and host.
    pub(super) fn all(&self) -> Vec<(CircuitKey, Circuit)> {
        let state = self.state();
        let mut all: Vec<_> =
            state.circuits.iter().map(|(key, circuit)| (key.clone(), (**circuit).clone())).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// Removes circuits from the copy, and queues the same for the database.
    pub(super) fn remove(&self, connector: Option<&str>, host: Option<&str>) -> Vec<(CircuitKey, Circuit)> {
        let is_meant = |key: &CircuitKey| {
            connector.is_none_or(|it| key.connector.as_str() == it) && host.is_none_or(|it| key.host == it)
        };
        let removed = self.all().into_iter().filter(|(key, _)| is_meant(key)).collect();
        self.state().circuits.retain(|key, _| !is_meant(key));
        let (connector, host) = (connector.map(str::to_owned), host.map(str::to_owned));
        drop(self.updates.try_send(SharedCircuitChange::Remove { connector, host }));
        removed
    }

    fn state(&self) -> MutexGuard<'_, ReplicaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Circuit {
    /// Returns the circuit with all its times moved by `by`: those of another clock.
    #[must_use]
    pub fn shifted(mut self, by: SignedDuration) -> Self {
        let moved = |at: Timestamp| at.checked_add(by).unwrap_or(at);
        self.failures.iter_mut().for_each(|at| *at = moved(*at));
        if let Some(open) = &mut self.open {
            open.why.at = moved(open.why.at);
        }
        self.permanent_trips.iter_mut().for_each(|trip| trip.why.at = moved(trip.why.at));
        self
    }

    /// Parses the stored state of a circuit; `None` if no program of this version wrote it.
    #[must_use]
    pub fn parse_stored(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(Self::is_valid)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn key() -> CircuitKey {
        CircuitKey {
            connector: ConnectorName::parse("github://acme/a").unwrap(),
            host: "a.example:443".into(),
        }
    }

    fn update(probed: bool, cause: Option<FailureCause>) -> CircuitUpdate {
        let seen =
            CircuitObservation { cause, status: None, retry_after: None, credential: None, audit_id: "" };
        let policy = Arc::new(BreakerPolicy::at_once());
        CircuitUpdate::new(&key(), &policy, &seen, &AuditId::mint(), probed)
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn another_clock_does_not_move_the_cooldown() {
        let (replica, mut queue) = CircuitReplica::new();
        // The database is ten minutes ahead of this host.
        let ahead = SignedDuration::from_mins(10);
        let mut circuit = Circuit::default();
        for _ in 0..100 {
            update(false, Some(FailureCause::Network)).apply(&mut circuit, at(600));
        }
        let left = circuit.open.as_ref().unwrap().left(at(600)).unwrap();
        let shared = SharedCircuit { connector: key().connector, host: key().host, circuit };
        replica.replace(vec![shared], ahead);
        let here = replica.load(&key()).unwrap();
        assert_eq!(here.open.as_ref().unwrap().left(at(0)), Some(left));
        assert!(queue.try_recv().is_err(), "what the database has is not sent to it");
        assert!(replica.observe(&key(), update(false, None), at(1)).is_none());
        assert!(queue.try_recv().is_ok(), "an observation is");
    }

    #[test]
    fn only_the_host_with_the_right_probes() {
        let (replica, _queue) = CircuitReplica::new();
        for _ in 0..100 {
            replica.observe(&key(), update(false, Some(FailureCause::Network)), at(0));
        }
        let later = at(100_000);
        assert!(replica.probe(&key()).is_none());
        assert!(replica.wanted_probes(at(0)).is_empty(), "not before the cooldown is over");
        assert_eq!(replica.wanted_probes(later).len(), 1);
        replica.set_probe(&key().connector, &key().host, true);
        let probe = replica.probe(&key()).unwrap();
        assert!(replica.probe(&key()).is_none(), "one call is out");
        assert_eq!(replica.held_probes().len(), 1);
        drop(probe);
        replica.set_probe(&key().connector, &key().host, false);
        assert!(replica.probe(&key()).is_none());
        assert!(replica.set_away(Some("gone".into())) && !replica.set_away(Some("still".into())));
        assert!(replica.probe(&key()).is_some(), "each host probes for itself");
    }
}
