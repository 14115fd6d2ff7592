//! The circuits of a home directory: one small file each, shared by every process, read again only when it changed.
//!
//! A circuit without a file is closed, so that a healthy host costs one `stat`. What cannot be read or written is
//! told to the operator and counts as closed: a breaker spares a host that is in trouble, and must not be trouble
//! itself.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_core::failure::AuditId;
use cofferdam_core::private_file::{self, FileLock};
use cofferdam_core::stamp::FileStamp;
use cofferdam_core::warnings::Warnings;
use cofferdam_model::manifest::ConnectorName;
use sha2::{Digest as _, Sha256};

use super::circuit::Circuit;
use super::disk;
use super::kept::{self, Record};
use super::policy::BreakerPolicy;
use super::turn::{Turn, Writers};
use super::visit::Visiting;

/// Circuits that are kept in memory; a host has fewer that are not closed.
const KEPT: usize = 1024;

/// The circuits of a host.
#[derive(Debug)]
pub struct Circuits {
    dir: PathBuf,
    known: Mutex<HashMap<PathBuf, Known>>,
    writers: Writers,
    warnings: Warnings,
}

/// What a file said when it had this stamp.
#[derive(Debug)]
struct Known {
    stamp: FileStamp,
    circuit: Arc<Circuit>,
}

/// Whether a change may be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// No: a call depends on this thread.
    Never,
    /// Up to a second, where others do not wait in vain already.
    ForTurn,
}

/// What came of a change.
#[derive(Debug)]
pub(super) enum Changed<T> {
    /// It was made.
    Done(T),
    /// Another process is writing; it was not made.
    NoTurn,
    /// It could not be made, which the operator was told.
    Failed,
}

/// What is wrong with a file that holds no circuit.
const UNREADABLE: &str = "cannot be read, and counts as closed";

/// What the operator is warned of.
fn subject(place: &Place, what: &str) -> String {
    format!("{} {what}", place.file.display())
}

/// One circuit's place.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) connector: ConnectorName,
    /// The host:port.
    pub(super) host: String,
    file: PathBuf,
}

impl Circuits {
    /// The circuits that are kept in `dir`, which is made when the first one opens.
    #[must_use]
    pub fn new(dir: PathBuf) -> Arc<Self> {
        let (known, warnings) = (Mutex::default(), Warnings::default());
        Arc::new(Self { dir, known, writers: Writers::default(), warnings })
    }

    /// One candidate's visit, from its first attempt to its last.
    #[must_use]
    pub fn visit(
        self: &Arc<Self>,
        connector: &ConnectorName,
        policy: &Arc<BreakerPolicy>,
        audit_id: &AuditId,
    ) -> Visiting {
        Visiting::new(Arc::clone(self), connector.clone(), Arc::clone(policy), audit_id.clone())
    }

    /// Where the circuit of `connector` at `host` is. The file's name is a hash: what a host is called is not
    /// written into a directory.
    pub(super) fn place(&self, connector: &ConnectorName, host: &str) -> Place {
        let mut hash = Sha256::new();
        hash.update(connector.as_str().as_bytes());
        hash.update([0]);
        hash.update(host.as_bytes());
        let digits = hash.finalize().into_iter().take(16).flat_map(|byte| [byte >> 4, byte & 15]);
        let name: String = digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect();
        let file = self.dir.join(name).with_extension("json");
        Place { connector: connector.clone(), host: host.to_owned(), file }
    }

    /// The circuit as it is now; none where there is nothing to remember.
    pub(super) fn look(&self, place: &Place) -> Option<Arc<Circuit>> {
        let stamp = private_file::stamp_of(&place.file)?;
        if let Some(known) = self.known().get(&place.file).filter(|known| known.stamp == stamp) {
            return Some(Arc::clone(&known.circuit));
        }
        let (stamp, circuit) = match read(&place.file) {
            Ok(None) => return None,
            Ok(Some((stamp, record))) if record.is_of(place) => {
                self.warnings.is_over(&subject(place, UNREADABLE));
                (stamp, Arc::new(record.circuit))
            }
            Ok(Some((stamp, _))) => (stamp, self.unusable(place, "it is about another host")),
            Err(error) => (stamp, self.unusable(place, &error.to_string())),
        };
        let mut known = self.known();
        if known.len() >= KEPT {
            known.clear();
        }
        if stamp.is_settled() {
            known.insert(place.file.clone(), Known { stamp, circuit: Arc::clone(&circuit) });
        } else {
            known.remove(&place.file);
        }
        Some(circuit)
    }

    /// Changes the circuit, as it is now, in one step for all processes.
    pub(super) fn change<T>(
        &self,
        place: &Place,
        wait: Wait,
        change: impl FnOnce(&mut Circuit) -> T,
    ) -> Changed<T> {
        let turn = match wait {
            Wait::Never => self.writers.at_once(&self.dir),
            Wait::ForTurn => self.writers.if_it_comes(&self.dir).map(Some),
        };
        let changed = match turn {
            Ok(Some(turn)) => self.change_now(place, &turn, change),
            Ok(None) => return Changed::NoTurn,
            Err(error) => Err(error),
        };
        match changed {
            Ok(outcome) => Changed::Done(outcome),
            Err(error) => {
                self.warn(place, "cannot be written", &error);
                Changed::Failed
            }
        }
    }

    fn change_now<T>(
        &self,
        place: &Place,
        turn: &Turn<'_>,
        change: impl FnOnce(&mut Circuit) -> T,
    ) -> io::Result<T> {
        let before = self.look(place).unwrap_or_default();
        let mut circuit = Circuit::clone(&before);
        let outcome = change(&mut circuit);
        if circuit.is_pristine() {
            disk::remove(&place.file)?;
        } else if circuit != *before {
            let (connector, host) = (place.connector.to_string(), place.host.clone());
            let record = kept::write(&Record { connector, host, circuit })?;
            disk::replace(&place.file, &record, turn.lock())?;
        }
        Ok(outcome)
    }

    /// The slot of the one request that tries the host; none while another has it.
    pub(super) fn probe(&self, place: &Place) -> io::Result<Option<FileLock>> {
        Ok(FileLock::try_acquire(&place.probe())?)
    }

    /// Whether a call has the slot now. Looking takes a shared lock for an instant, in which who wants the slot is
    /// told that it is taken: an operator's look may cost one call a second, and never sends two.
    pub(super) fn is_probed(&self, place: &Place) -> bool {
        FileLock::is_held(&place.probe())
    }

    /// Removes the slot's file, which nobody needs while the circuit is closed. The slot must be held.
    pub(super) fn forget_probe(&self, place: &Place) {
        // Left behind it is an empty file.
        drop(disk::remove(&place.probe()));
    }

    /// Every circuit that is not closed, or has failures to remember; and how many files are none.
    pub(super) fn records(&self) -> io::Result<(Vec<Record>, Vec<PathBuf>)> {
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
                // Closed since the directory was read.
                Ok(None) => {}
                Err(_) => unusable.push(file),
            }
        }
        records.sort_by(|a, b| (&a.connector, &a.host).cmp(&(&b.connector, &b.host)));
        Ok((records, unusable))
    }

    /// Closes these, whatever opened them.
    pub(super) fn close(&self, records: &[Record], unusable: &[PathBuf]) -> io::Result<()> {
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

    fn unusable(&self, place: &Place, why: &str) -> Arc<Circuit> {
        self.warn(place, UNREADABLE, &why);
        Arc::default()
    }

    pub(super) fn warn(&self, place: &Place, what: &str, why: &dyn std::fmt::Display) {
        // A call looks at a circuit several times.
        if !self.warnings.is_news(&subject(place, what), why) {
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

    /// Tells the operator of a change that its call was over before.
    pub(super) fn tell(&self, place: &Place, from: &str, to: &str) {
        let (connector, host) = (place.connector.as_str(), place.host.as_str());
        tracing::info!(target: "cofferdam::breaker", connector, host, "the circuit was {from} and is {to}");
    }

    fn known(&self) -> MutexGuard<'_, HashMap<PathBuf, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn probe(&self) -> PathBuf {
        self.file.with_extension("probe")
    }
}

impl Record {
    fn is_of(&self, place: &Place) -> bool {
        self.connector == place.connector.as_str() && self.host == place.host
    }
}

fn read(file: &Path) -> io::Result<Option<(FileStamp, Record)>> {
    let Some((stamp, text)) = disk::read(file)? else { return Ok(None) };
    let record = kept::read(&text).ok_or_else(|| io::Error::other("it is damaged"))?;
    Ok(Some((stamp, record)))
}
