//! The circuits of a home directory, as calls see them: cached, and read again only when the table changed.
//!
//! A circuit without a row is closed. A table that cannot be read or written is reported to the operator,
//! and what it cannot tell counts as closed: a breaker protects a host that has a problem, and must not
//! become a problem itself.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, io};

use cofferdam_core::digest::Digest;
use cofferdam_core::failure::{AuditId, FailureCause};
use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_core::private_file::FileLock;
use cofferdam_core::warnings::WarningLog;
use cofferdam_model::manifest::ConnectorName;
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::Semaphore;

use super::call_scope::BreakerGuard;
use super::circuit::{Circuit, CircuitState, CircuitTrip, PermanentTrip, TripCause};
use super::circuit_replica::{CircuitReplica, SharedProbe};
use super::circuit_table::{CircuitKey, CircuitTable, TableError};
use super::policy::BreakerPolicy;

/// The number of circuits that are cached in memory.
const MAX_CACHED: usize = 1024;

/// The longest wait of a call for another process. A change takes less than a millisecond, but a process that
/// is suspended while it writes must not block calls.
const CALL_PATIENCE: Duration = Duration::from_millis(2);

/// The longest wait of a thread that runs no call.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The number of threads that may wait; the observation of one more is lost.
const MAX_WAITERS: usize = 64;

/// The problem of a circuit whose row holds none.
const UNREADABLE: &str = "cannot be read, and counts as closed";

/// The problem of a change that was not made.
pub(super) const UNWRITABLE: &str = "cannot be written";

/// The circuits of a host.
#[derive(Debug)]
pub struct CircuitStore {
    dir: PathBuf,
    /// The longest wait of a call for another process.
    call_patience: Duration,
    pub(super) table: CircuitTable,
    known: Mutex<HashMap<CircuitKey, CachedCircuit>>,
    /// A permit for each thread that may wait for another process.
    pub(super) waiters: Arc<Semaphore>,
    warnings: WarningLog,
    /// The copy of the circuits of a cluster, in the place of the table.
    pub(super) shared: Option<Arc<CircuitReplica>>,
}

/// The slot of the one request that probes a host. Dropping it frees the slot.
#[derive(Debug)]
pub(super) enum ProbeSlot {
    /// Among the processes of this machine.
    File { _lock: FileLock },
    /// Among the hosts of a cluster.
    Shared { _probe: SharedProbe },
}

/// The circuit when the table had this fingerprint.
#[derive(Debug, Clone)]
struct CachedCircuit {
    /// `None` if the table could change without a change of its fingerprint.
    stamp: Option<FileFingerprint>,
    /// `None` if it was in its initial state.
    circuit: Option<Arc<Circuit>>,
}

/// Another process is writing, so that the change was not made.
#[derive(Debug)]
pub(super) struct TableBusy;

impl CircuitStore {
    /// Creates the circuits stored in `dir`, which is created when the first one opens.
    #[must_use]
    pub fn new(dir: PathBuf) -> Arc<Self> {
        Self::with_patience(dir, CALL_PATIENCE)
    }

    /// Creates the circuits that the hosts of a cluster share. `dir` is not used.
    #[must_use]
    pub fn shared(dir: PathBuf, replica: Arc<CircuitReplica>) -> Arc<Self> {
        Arc::new(Self { shared: Some(replica), ..Self::at(dir, CALL_PATIENCE) })
    }

    /// Creates the circuits with another wait of calls for another process.
    pub(super) fn with_patience(dir: PathBuf, call_patience: Duration) -> Arc<Self> {
        Arc::new(Self::at(dir, call_patience))
    }

    fn at(dir: PathBuf, call_patience: Duration) -> Self {
        Self {
            table: CircuitTable::new(dir.join("circuits.db")),
            dir,
            call_patience,
            known: Mutex::default(),
            waiters: Arc::new(Semaphore::new(MAX_WAITERS)),
            warnings: WarningLog::default(),
            shared: None,
        }
    }

    /// Begins the scope of one candidate, which lasts from its first attempt to its last.
    #[must_use]
    pub fn call_scope(
        self: &Arc<Self>,
        connector: &ConnectorName,
        policy: &Arc<BreakerPolicy>,
        audit_id: &AuditId,
    ) -> BreakerGuard {
        BreakerGuard::new(Arc::clone(self), connector.clone(), Arc::clone(policy), audit_id.clone())
    }

    /// Returns the current circuit; `None` if it is in its initial state.
    ///
    /// The file's fingerprint decides whether the table is read again: one `stat` for each request, also in a
    /// home without a circuit. `PRAGMA data_version` would need a connection, a lock in the file and a lock
    /// among threads for each request, and would not notice that another file is in its place.
    pub(super) fn load(&self, key: &CircuitKey) -> Option<Arc<Circuit>> {
        if let Some(replica) = &self.shared {
            return replica.load(key);
        }
        let stamp = self.table.fingerprint()?;
        let known = self.known().get(key).cloned();
        if let Some(known) = known.as_ref().filter(|known| known.stamp == Some(stamp)) {
            return known.circuit.clone();
        }
        let circuit = match self.table.get(key, self.call_patience) {
            Ok(circuit) => {
                self.warnings.resolve(&subject(key, UNREADABLE));
                circuit.map(Arc::new)
            }
            // A process was suspended while it wrote.
            Err(TableError::Busy) => return known.and_then(|known| known.circuit),
            Err(error) => {
                self.warn(key, UNREADABLE, &error);
                None
            }
        };
        let mut known = self.known();
        if known.len() >= MAX_CACHED {
            known.clear();
        }
        let stamp = stamp.is_stable().then_some(stamp);
        known.insert(key.clone(), CachedCircuit { stamp, circuit: circuit.clone() });
        circuit
    }

    /// Changes the current circuit atomically among all processes; returns `None` if that failed, which was
    /// reported to the operator. A call does not wait for another process. A thread that `may_wait` does, up
    /// to a second.
    pub(super) fn change<T>(
        &self,
        key: &CircuitKey,
        may_wait: bool,
        change: impl Fn(&mut Circuit) -> T,
    ) -> Result<Option<T>, TableBusy> {
        let patience = if may_wait { PATIENCE } else { self.call_patience };
        match self.table.change(key, patience, change) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(TableError::Busy) if !may_wait => Err(TableBusy),
            Err(error) => {
                self.warn(key, UNWRITABLE, &error);
                Ok(None)
            }
        }
    }

    /// Takes the probe slot; returns `None` while another request has it. It is a lock on a file and not a
    /// row: the system releases it when a process ends, however it ends.
    pub(super) fn probe(&self, key: &CircuitKey) -> io::Result<Option<ProbeSlot>> {
        if let Some(replica) = &self.shared {
            return Ok(replica.probe(key).map(|probe| ProbeSlot::Shared { _probe: probe }));
        }
        Ok(FileLock::try_acquire(&self.slot(key))?.map(|lock| ProbeSlot::File { _lock: lock }))
    }

    /// Notes that a call was refused by an open circuit.
    pub(super) fn want_probe(&self, key: &CircuitKey) {
        if let Some(replica) = &self.shared {
            replica.want_probe(key);
        }
    }

    /// Returns whether a call has the slot now. The check takes a shared lock for an instant, during which a
    /// call that wants the slot finds it taken: an operator's check may delay one call by a second, and never
    /// lets two probes through.
    pub(super) fn is_probed(&self, key: &CircuitKey) -> bool {
        if let Some(replica) = &self.shared {
            return replica.is_probed(key);
        }
        FileLock::is_held(&self.slot(key))
    }

    /// Removes the slot's file, which is not needed while the circuit is closed. The slot must be held.
    pub(super) fn forget_probe(&self, key: &CircuitKey) {
        if self.shared.is_some() {
            return;
        }
        // If this fails, an empty file is left behind.
        drop(fs::remove_file(self.slot(key)));
    }

    /// Returns the slot's file. Its name is a hash, so that host names do not appear in the directory.
    fn slot(&self, key: &CircuitKey) -> PathBuf {
        let name = Digest::sha256(format!("{}\0{}", key.connector, key.host).as_bytes());
        self.dir.join(format!("{name}.probe"))
    }

    pub(super) fn warn(&self, key: &CircuitKey, what: &str, why: &dyn Display) {
        // A call reads a circuit several times and must not repeat the warning.
        if !self.warnings.is_new(&subject(key, what), why) {
            return;
        }
        let (connector, host) = (key.connector.as_str(), &key.host);
        tracing::warn!(target: "cofferdam::breaker", connector, host, "the circuit {what}: {why}");
    }

    fn known(&self) -> MutexGuard<'_, HashMap<CircuitKey, CachedCircuit>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the subject of a warning to the operator.
fn subject(key: &CircuitKey, what: &str) -> String {
    format!("{} {} {what}", key.connector, key.host)
}

/// A circuit that is not in its initial state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CircuitView {
    /// The connector, without a version.
    pub connector: String,
    /// The `host:port`.
    pub host: String,
    /// `open`, `half_open` as soon as one request is let through, `closed` if it only has failures. A circuit
    /// that is open for some credentials counts as open.
    pub state: &'static str,
    /// The failures that count towards opening it.
    pub failures: usize,
    /// The reason why it is open for all requests, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenView>,
    /// The credentials for which it is permanently open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub open_for_good: Vec<PermanentTripView>,
}

/// The result of a reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ResetView {
    /// The circuits that were closed, in their former state.
    pub closed: Vec<CircuitView>,
    /// The number of entries that were removed since they held no circuit: damaged rows, or
    /// the database.
    pub damaged_removed: usize,
}

/// The cause of an open circuit, and its times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OpenView {
    /// The observation that opened it.
    #[serde(flatten)]
    pub cause: CauseView,
    /// The time that it stays open, in milliseconds.
    pub cooldown_ms: u64,
    /// The time until one request is let through, in milliseconds; 0 if that is now.
    pub retry_after_ms: u64,
    /// True if a call is probing the host now: until it ends, all others are rejected.
    pub probe_is_out: bool,
}

/// The credentials for which a circuit is open until they are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PermanentTripView {
    /// The observation that caused it.
    #[serde(flatten)]
    pub cause: CauseView,
    /// The names of the bindings; none if the request carried no credential.
    pub bindings: Vec<String>,
}

/// The observation that opened a circuit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CauseView {
    /// The time.
    pub opened_at: String,
    /// The observed cause.
    pub cause_code: &'static str,
    /// The response's status, if there was a response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The audit id of the call that observed it.
    pub cause_audit_id: String,
}

impl CircuitStore {
    /// Returns every circuit that is not in its initial state, by connector and host.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn views(&self, now: Timestamp) -> io::Result<Vec<CircuitView>> {
        let (circuits, damaged) = match &self.shared {
            Some(replica) => (replica.all(), 0),
            None => self.table.rows(PATIENCE)?,
        };
        if damaged > 0 {
            tracing::warn!(target: "cofferdam::breaker", damaged, "circuits are damaged, and count as closed");
        }
        Ok(circuits.iter().map(|(key, circuit)| self.view(key, circuit, now)).collect())
    }

    /// Returns the reason why the circuits are not those of the cluster at the moment.
    #[must_use]
    pub fn away(&self) -> Option<String> {
        self.shared.as_ref().and_then(|replica| replica.away())
    }

    /// Closes the circuits of this connector at this host, and removes the damaged ones among them. Without a
    /// connector and host it closes all circuits. A damaged database is removed.
    ///
    /// # Errors
    /// The table cannot be read or written.
    pub fn reset(
        &self,
        connector: Option<&ConnectorName>,
        host: Option<&str>,
        now: Timestamp,
    ) -> io::Result<ResetView> {
        if let Some(reason) = self.away() {
            return Err(io::Error::new(io::ErrorKind::NotConnected, reason));
        }
        let (circuits, damaged_removed) = match &self.shared {
            Some(replica) => (replica.remove(connector.map(ConnectorName::as_str), host), 0),
            None => self.table.remove(connector.map(ConnectorName::as_str), host, PATIENCE)?,
        };
        let closed = circuits.iter().map(|(key, circuit)| self.view(key, circuit, now)).collect();
        for (key, _) in &circuits {
            if let Ok(Some(_slot)) = self.probe(key) {
                self.forget_probe(key);
            }
        }
        Ok(ResetView { closed, damaged_removed })
    }

    fn view(&self, key: &CircuitKey, circuit: &Circuit, now: Timestamp) -> CircuitView {
        let state = match &circuit.open {
            Some(opening) if opening.left(now).is_none() => CircuitState::HalfOpen,
            Some(_) => CircuitState::Open,
            None if circuit.permanent_trips.is_empty() => CircuitState::Closed,
            None => CircuitState::Open,
        };
        let is_probed = state == CircuitState::HalfOpen && self.is_probed(key);
        CircuitView {
            connector: key.connector.to_string(),
            host: key.host.clone(),
            state: state.name(),
            failures: circuit.failures.len(),
            open: circuit.open.as_ref().map(|opening| open(opening, now, is_probed)),
            open_for_good: circuit.permanent_trips.iter().map(shut).collect(),
        }
    }
}

fn open(opening: &CircuitTrip, now: Timestamp, probe_is_out: bool) -> OpenView {
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    OpenView {
        cause: cause(&opening.why),
        cooldown_ms: millis(opening.cooldown),
        retry_after_ms: opening.left(now).map_or(0, millis),
        probe_is_out,
    }
}

fn shut(shut: &PermanentTrip) -> PermanentTripView {
    PermanentTripView { cause: cause(&shut.why), bindings: shut.bindings() }
}

fn cause(why: &TripCause) -> CauseView {
    CauseView {
        opened_at: why.at.to_string(),
        cause_code: FailureCause::name(why.cause),
        status: why.status,
        cause_audit_id: why.audit_id.clone(),
    }
}
