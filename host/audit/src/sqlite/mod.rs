//! The audit log in a SQLite file: one writer thread a host, many commits in one, several hosts at once.

mod at_rest;
mod caught;
mod evidence;
mod find;
mod head;
mod idle;
mod kept;
mod loss;
mod names;
mod orders;
mod owners;
mod place;
mod prune;
#[cfg(test)]
mod queries;
mod read;
mod rollup;
mod schema;
mod sealed;
mod settled;
mod signing;
mod step_keys;
mod write_command;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cofferdam_core::event::operator::OperatorEvent;
use cofferdam_core::failure::AuditId;
use cofferdam_core::home_state::{HomeState, StateLoss};
use cofferdam_core::host_key;
use jiff::Timestamp;
use tokio::sync::oneshot;

use super::anchor::Anchor;
use super::command::{CloseCall, KeyClaim, KeyState, OpenCall, OpenOutcome, Pruned, ResolveCall};
use super::entry::Entry;
use super::error::{AuditError, AuditErrorKind};
use super::evidence::AuditEvidence;
use super::log::{AuditLog, AuditReader, LogFuture};
use super::note::NoteSigner;
use super::verify::Accepted;
use write_command::{Reply, WriteCommand};

/// The events that an audit log survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The end of the process, at any instant and however hard. After a power cut the last moments may be missing.
    #[default]
    Process,
    /// A power cut: every commit is on the disk before it is reported.
    Power,
}

impl Durability {
    /// The stable word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Power => "power",
        }
    }

    const fn synchronous(self) -> &'static str {
        match self {
            Self::Process => "normal",
            Self::Power => "full",
        }
    }
}

/// The most bytes of sealed requests and outcomes that are kept, to be done or given again. Above it those of the oldest
/// calls that have ended are dropped; the calls stay in the log, and their idempotency keys stay taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedQuota {
    /// Of one client: of the calls of one actor. Default: 256 MiB.
    pub per_client: u64,
    /// Of all clients. Above it, the client with the most bytes loses its oldest. Default: 1 GiB.
    pub in_all: u64,
}

impl Default for SealedQuota {
    fn default() -> Self {
        Self { per_client: 256 << 20, in_all: 1 << 30 }
    }
}

/// The settings of an audit log.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// The durability. Default: [`Durability::Process`].
    pub durability: Durability,
    /// The maximum wait for another process that holds the file, before an error is returned. Default: 2
    /// seconds.
    pub busy_timeout: Duration,
    /// The retention of calls; none to store them until they are pruned by hand. Default: none.
    pub retention: Option<Duration>,
    /// The most sealed bytes that it keeps. Default: 256 MiB for one client, 1 GiB in all.
    pub sealed: SealedQuota,
    /// The file system that SQLite goes through, by its name. Default: the machine's.
    #[cfg(test)]
    pub(crate) vfs: Option<&'static str>,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            durability: Durability::Process,
            busy_timeout: Duration::from_secs(2),
            retention: None,
            sealed: SealedQuota::default(),
            #[cfg(test)]
            vfs: None,
        }
    }
}

/// The file's name in the home directory.
const FILE: &str = "audit.db";

/// The audit log of a host in `audit.db` of its home directory.
pub struct SqliteLog {
    path: PathBuf,
    lives: PathBuf,
    // None once the writer is stopping.
    orders: Option<Sender<WriteCommand>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    // Held here as well: a writer that fails does not make its calls look as if their host were gone.
    _life: Arc<Mutex<Option<owners::Life>>>,
}

impl SqliteLog {
    /// An audit log in this directory. Nothing is opened or created before the first command; the first call
    /// gets the errors of the file.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(home: &Path, settings: LogSettings) -> Result<Self, AuditError> {
        let (orders, received) = channel();
        let path = home.join(FILE);
        let lives = home.join("running");
        let life = Arc::default();
        let writer = writer::Writer::new(home.to_owned(), lives.clone(), settings, Arc::clone(&life));
        let thread = std::thread::Builder::new().name("cofferdam-audit".into());
        let thread = thread.spawn(move || writer.run(&received));
        let thread = thread.map_err(|error| AuditError::new(AuditErrorKind::Other, error))?;
        Ok(Self { path, lives, orders: Some(orders), writer: Mutex::new(Some(thread)), _life: life })
    }

    /// Submits a command. The future only waits for the reply.
    fn submit<T: Send + 'static>(&self, command: impl FnOnce(Reply<T>) -> WriteCommand) -> LogFuture<T> {
        let (reply, answer) = oneshot::channel();
        // If the writer is gone, the command is dropped with its reply channel.
        if let Some(orders) = &self.orders {
            let _ = orders.send(command(reply));
        }
        Box::pin(async {
            let gone = |_| Err(AuditError::new(AuditErrorKind::Other, "the record's writer is gone"));
            answer.await.unwrap_or_else(gone)
        })
    }
}

impl AuditLog for SqliteLog {
    fn open(&self, call: OpenCall) -> LogFuture<OpenOutcome> {
        self.submit(|reply| WriteCommand::Open { call: Box::new(call), reply })
    }

    fn append(&self, audit_id: &AuditId, entry: Entry) -> LogFuture<()> {
        let audit_id = audit_id.clone();
        self.submit(|reply| WriteCommand::Append { audit_id, entry, reply: Some(reply) })
    }

    fn close(&self, begin: Option<Box<OpenCall>>, end: CloseCall) -> LogFuture<()> {
        let call = Box::new(end);
        self.submit(|reply| WriteCommand::Close { open: begin, call, reply: Some(reply) })
    }

    fn key_state(&self, claim: KeyClaim) -> LogFuture<KeyState> {
        self.submit(|reply| WriteCommand::KeyState { claim, reply })
    }

    fn resolve(&self, audit_id: &AuditId, decision: ResolveCall) -> LogFuture<bool> {
        let (audit_id, decision) = (audit_id.clone(), Box::new(decision));
        self.submit(|reply| WriteCommand::Resolve { audit_id, decision, reply })
    }

    fn record(&self, at: Timestamp, event: OperatorEvent<'static>) -> LogFuture<()> {
        self.submit(|reply| WriteCommand::Record { at, event: Box::new(event), reply })
    }

    fn sign(&self) -> LogFuture<String> {
        self.submit(|reply| WriteCommand::Sign { reply })
    }

    fn accept(&self, flaws: Vec<Accepted>) -> LogFuture<String> {
        self.submit(|reply| WriteCommand::Accept { flaws, reply })
    }

    fn prune(&self, before: Timestamp, dry_run: bool) -> LogFuture<Pruned> {
        self.submit(|reply| WriteCommand::Prune { before, dry_run, reply })
    }

    fn flush(&self) -> LogFuture<()> {
        self.submit(|reply| WriteCommand::Flush { reply })
    }

    fn reader(&self) -> Result<Box<dyn AuditReader>, AuditError> {
        Ok(Box::new(read::Reader::open(&self.path, self.lives.clone())?))
    }

    fn loss(&self) -> Result<Option<StateLoss>, AuditError> {
        let home = self.path.parent().unwrap_or(Path::new(""));
        let key = host_key::read(&home.join("host.key")).ok().map(|key| NoteSigner::new(&key).key());
        let (state, anchor) = (HomeState::new(home), Anchor::of(home));
        let witnesses = loss::Witnesses { state: &state, anchor: &anchor, key: key.as_ref() };
        let log = match schema::open_to_read(&self.path) {
            Err(error) if error.kind() == AuditErrorKind::Absent => None,
            log => Some(log?),
        };
        Ok(witnesses.compare(log.as_ref())?.loss())
    }

    fn evidence(&self) -> Result<Box<dyn AuditEvidence>, AuditError> {
        Ok(Box::new(evidence::Evidence::open(&self.path)?))
    }
}

impl Drop for SqliteLog {
    /// Waits until all that was asked for is written.
    fn drop(&mut self) {
        self.orders = None;
        let thread = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
