//! The circuits of a home directory: one small file each, shared by every process, and read again only when
//! it changed.
//!
//! A circuit without a file is closed, so that a healthy host costs one `stat`. A file that cannot be read or
//! written is reported to the operator and counts as closed: a breaker protects a host that has a problem,
//! and must not become a problem itself.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_core::failure::AuditId;
use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_core::private_file::{self, FileLock};
use cofferdam_core::warnings::WarningLog;
use cofferdam_model::manifest::ConnectorName;
use sha2::{Digest as _, Sha256};

use super::circuit::Circuit;
use super::disk;
use super::kept::{self, StoredCircuit};
use super::policy::BreakerPolicy;
use super::turn::{BreakerWriters, WriteLock};
use super::visit::BreakerGuard;

/// The number of circuits that are cached in memory. A host has fewer that are not closed.
const KEPT: usize = 1024;

/// The circuits of a host.
#[derive(Debug)]
pub struct CircuitStore {
    dir: PathBuf,
    known: Mutex<HashMap<PathBuf, KnownCircuit>>,
    writers: BreakerWriters,
    warnings: WarningLog,
}

/// The content of a file when it had this fingerprint.
#[derive(Debug)]
struct KnownCircuit {
    stamp: FileFingerprint,
    circuit: Arc<Circuit>,
}

/// The mode of waiting for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockWait {
    /// Does not wait: a call depends on this thread.
    Never,
    /// Waits up to a second, unless other threads are already waiting in vain.
    ForTurn,
}

/// The result of a change.
#[derive(Debug)]
pub(super) enum CircuitUpdate<T> {
    /// It was made.
    Done(T),
    /// Another process is writing; the change was not made.
    NoTurn,
    /// The change failed, which was reported to the operator.
    Failed,
}

/// The problem of a file that holds no circuit.
const UNREADABLE: &str = "cannot be read, and counts as closed";

/// Returns the subject of a warning to the operator.
fn subject(place: &CircuitPlace, what: &str) -> String {
    format!("{} {what}", place.file.display())
}

/// The identity of one circuit and its file.
#[derive(Debug, Clone)]
pub(super) struct CircuitPlace {
    pub(super) connector: ConnectorName,
    /// The `host:port`.
    pub(super) host: String,
    file: PathBuf,
}

impl CircuitStore {
    /// Creates the circuits stored in `dir`, which is created when the first one opens.
    #[must_use]
    pub fn new(dir: PathBuf) -> Arc<Self> {
        let (known, warnings) = (Mutex::default(), WarningLog::default());
        Arc::new(Self { dir, known, writers: BreakerWriters::default(), warnings })
    }

    /// Begins one candidate's visit, which lasts from its first attempt to its last.
    #[must_use]
    pub fn visit(
        self: &Arc<Self>,
        connector: &ConnectorName,
        policy: &Arc<BreakerPolicy>,
        audit_id: &AuditId,
    ) -> BreakerGuard {
        BreakerGuard::new(Arc::clone(self), connector.clone(), Arc::clone(policy), audit_id.clone())
    }

    /// Returns the place of the circuit of `connector` at `host`. The file's name is a hash, so that host
    /// names do not appear in the directory.
    pub(super) fn place(&self, connector: &ConnectorName, host: &str) -> CircuitPlace {
        let mut hash = Sha256::new();
        hash.update(connector.as_str().as_bytes());
        hash.update([0]);
        hash.update(host.as_bytes());
        let digits = hash.finalize().into_iter().take(16).flat_map(|byte| [byte >> 4, byte & 15]);
        let name: String = digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect();
        let file = self.dir.join(name).with_extension("json");
        CircuitPlace { connector: connector.clone(), host: host.to_owned(), file }
    }

    /// Returns the current circuit; `None` if it is in its initial state.
    pub(super) fn look(&self, place: &CircuitPlace) -> Option<Arc<Circuit>> {
        let stamp = private_file::fingerprint_of(&place.file)?;
        if let Some(known) = self.known().get(&place.file).filter(|known| known.stamp == stamp) {
            return Some(Arc::clone(&known.circuit));
        }
        let (stamp, circuit) = match read(&place.file) {
            Ok(None) => return None,
            Ok(Some((stamp, record))) if record.is_of(place) => {
                self.warnings.resolve(&subject(place, UNREADABLE));
                (stamp, Arc::new(record.circuit))
            }
            Ok(Some((stamp, _))) => (stamp, self.unusable(place, "it is about another host")),
            Err(error) => (stamp, self.unusable(place, &error.to_string())),
        };
        let mut known = self.known();
        if known.len() >= KEPT {
            known.clear();
        }
        if stamp.is_stable() {
            known.insert(place.file.clone(), KnownCircuit { stamp, circuit: Arc::clone(&circuit) });
        } else {
            known.remove(&place.file);
        }
        Some(circuit)
    }

    /// Changes the current circuit atomically among all processes.
    pub(super) fn change<T>(
        &self,
        place: &CircuitPlace,
        wait: LockWait,
        change: impl FnOnce(&mut Circuit) -> T,
    ) -> CircuitUpdate<T> {
        let turn = match wait {
            LockWait::Never => self.writers.at_once(&self.dir),
            LockWait::ForTurn => self.writers.if_it_comes(&self.dir).map(Some),
        };
        let changed = match turn {
            Ok(Some(turn)) => self.change_now(place, &turn, change),
            Ok(None) => return CircuitUpdate::NoTurn,
            Err(error) => Err(error),
        };
        match changed {
            Ok(outcome) => CircuitUpdate::Done(outcome),
            Err(error) => {
                self.warn(place, "cannot be written", &error);
                CircuitUpdate::Failed
            }
        }
    }

    fn change_now<T>(
        &self,
        place: &CircuitPlace,
        turn: &WriteLock<'_>,
        change: impl FnOnce(&mut Circuit) -> T,
    ) -> io::Result<T> {
        let before = self.look(place).unwrap_or_default();
        let mut circuit = Circuit::clone(&before);
        let outcome = change(&mut circuit);
        if circuit.is_pristine() {
            disk::remove(&place.file)?;
        } else if circuit != *before {
            let (connector, host) = (place.connector.to_string(), place.host.clone());
            let record = kept::write(&StoredCircuit { connector, host, circuit })?;
            disk::replace(&place.file, &record, turn.lock())?;
        }
        Ok(outcome)
    }

    /// Takes the probe slot; returns `None` while another request has it.
    pub(super) fn probe(&self, place: &CircuitPlace) -> io::Result<Option<FileLock>> {
        Ok(FileLock::try_acquire(&place.probe())?)
    }

    /// Returns whether a call has the slot now. The check takes a shared lock for an instant, during which a
    /// call that wants the slot finds it taken: an operator's check may delay one call by a second, and never
    /// lets two probes through.
    pub(super) fn is_probed(&self, place: &CircuitPlace) -> bool {
        FileLock::is_held(&place.probe())
    }

    /// Removes the slot's file, which is not needed while the circuit is closed. The slot must be held.
    pub(super) fn forget_probe(&self, place: &CircuitPlace) {
        // If this fails, an empty file is left behind.
        drop(disk::remove(&place.probe()));
    }

    /// Returns every circuit that is not in its initial state, and the files that hold no circuit.
    pub(super) fn records(&self) -> io::Result<(Vec<StoredCircuit>, Vec<PathBuf>)> {
        let (mut records, mut unusable) = (Vec::new(), Vec::new());
        let files = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((records, unusable)),
            files => files?,
        };
        for file in files {
            let file = file?.path();
            if file.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match read(&file) {
                Ok(Some((_, record))) => records.push(record),
                // The circuit was closed since the directory was read.
                Ok(None) => {}
                Err(_) => unusable.push(file),
            }
        }
        records.sort_by(|a, b| (&a.connector, &a.host).cmp(&(&b.connector, &b.host)));
        Ok((records, unusable))
    }

    /// Closes these circuits, whatever opened them.
    pub(super) fn close(&self, records: &[StoredCircuit], unusable: &[PathBuf]) -> io::Result<()> {
        if records.is_empty() && unusable.is_empty() {
            return Ok(());
        }
        let _turn = self.writers.in_time(&self.dir)?;
        unusable.iter().try_for_each(|file| disk::remove(file))?;
        let names = records
            .iter()
            .filter_map(|record| Some((ConnectorName::parse(&record.connector).ok()?, record.host.as_str())));
        names.map(|(connector, host)| self.place(&connector, host)).try_for_each(|place| {
            disk::remove(&place.file)?;
            if let Ok(Some(_slot)) = self.probe(&place) {
                self.forget_probe(&place);
            }
            Ok(())
        })
    }

    fn unusable(&self, place: &CircuitPlace, why: &str) -> Arc<Circuit> {
        self.warn(place, UNREADABLE, &why);
        Arc::default()
    }

    pub(super) fn warn(&self, place: &CircuitPlace, what: &str, why: &dyn std::fmt::Display) {
        // A call reads a circuit several times and must not repeat the warning.
        if !self.warnings.is_new(&subject(place, what), why) {
            return;
        }
        let file = place.file.file_name().unwrap_or_default().to_string_lossy();
        tracing::warn!(
            target: "cofferdam::breaker",
            connector = place.connector.as_str(),
            host = place.host,
            file = &*file,
            "the circuit {what}: {why}"
        );
    }

    /// Reports a change to the operator that was made after its call had ended.
    pub(super) fn tell(&self, place: &CircuitPlace, from: &str, to: &str) {
        let (connector, host) = (place.connector.as_str(), place.host.as_str());
        tracing::info!(target: "cofferdam::breaker", connector, host, "the circuit was {from} and is {to}");
    }

    fn known(&self) -> MutexGuard<'_, HashMap<PathBuf, KnownCircuit>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CircuitPlace {
    fn probe(&self) -> PathBuf {
        self.file.with_extension("probe")
    }
}

impl StoredCircuit {
    fn is_of(&self, place: &CircuitPlace) -> bool {
        self.connector == place.connector.as_str() && self.host == place.host
    }
}

fn read(file: &Path) -> io::Result<Option<(FileFingerprint, StoredCircuit)>> {
    let Some((stamp, text)) = disk::read(file)? else { return Ok(None) };
    let record = kept::read(&text).ok_or_else(|| io::Error::other("it is damaged"))?;
    Ok(Some((stamp, record)))
}
