//! The audit log in PostgreSQL, which all hosts of a cluster share.
//!
//! Each process writes a journal of its own, as in a home directory: lines of canonical JSON, each with the hash of the one
//! before it. So no host waits for another one, and verification, exports and their readers are the same. Entries of many
//! calls are written in one transaction, together with the idempotency keys that they claim and end.

mod alone;
mod approvals;
mod batch;
mod calls;
mod checkpoint;
mod engine;
mod evidence;
mod keys;
mod maintenance;
mod process;
mod prune;
mod reader;
mod session;
#[cfg(test)]
mod tests;
mod time;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use cofferdam_audit::store::{EntryDraft, QuotaOutcome, accepted_time_in};
use cofferdam_audit::{
    AcknowledgedFinding, AuditError, AuditErrorKind, AuditEvidence, AuditLog, AuditReader, CloseCall, Entry,
    KeyClaim, KeyState, LogFuture, LogPosition, LogSettings, LogTime, OpenCall, OpenOutcome, Pruned,
    ResolveCall,
};
use cofferdam_core::clock::Clock;
use cofferdam_core::event::operator::OperatorEvent;
use cofferdam_core::event::recorded::RecordedEvent;
use cofferdam_core::failure::AuditId;
use cofferdam_core::home_state::StateLoss;
use cofferdam_core::warnings::WarningLog;
use jiff::Timestamp;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_postgres::Client;

use self::checkpoint::Checkpoints;
use self::engine::{Command, Engine, Holdings, Reply};
use self::evidence::PostgresEvidence;
use self::prune::PruneRequest;
use self::reader::PostgresReader;
use crate::database::{Database, Pool};

/// The sessions of readers and of the work that no call waits for.
const SESSIONS: usize = 4;

/// The threads for them.
const THREADS: usize = 2;

/// The settings of an audit log in PostgreSQL.
#[derive(Debug, Clone)]
pub struct PostgresSettings {
    /// The name of this host, which no other host of the cluster has.
    pub host: String,
    /// The time for which a process that was cut off still counts as alive. Default: 10 seconds.
    pub lease: Duration,
    /// True if the log goes by the clock of the process in the place of the database's. For tests alone.
    pub follows_clock: bool,
    /// The settings that every audit log has. What is committed is always as durable as the database makes it.
    pub log: LogSettings,
}

impl PostgresSettings {
    /// Creates the settings of the host with this name.
    #[must_use]
    pub fn new(host: &str) -> Self {
        let (host, lease) = (host.to_owned(), Duration::from_secs(10));
        Self { host, lease, follows_clock: false, log: LogSettings::default() }
    }
}

/// The audit log of a cluster, as one process writes and reads it. Nothing is connected before the first command.
pub struct PostgresLog {
    shared: Arc<LogShared>,
    /// None before the first command.
    running: Mutex<Option<Arc<Running>>>,
}

/// The state that the tasks of a log share.
struct LogShared {
    database: Database,
    pool: Pool,
    home: PathBuf,
    settings: PostgresSettings,
    clock: Arc<dyn Clock>,
    checkpoints: Checkpoints,
    warnings: WarningLog,
    /// The clients for which no more is sealed, since their quota is used up.
    quota: RwLock<QuotaOutcome>,
    /// Notified of new entries, which are signed for and indexed soon.
    has_new: Notify,
}

/// The threads of a log.
struct Running {
    shared: Arc<LogShared>,
    /// For readers, and for the work that no call waits for. None once it ends.
    runtime: Option<Runtime>,
    writer: Mutex<Writer>,
    has_writer: AtomicBool,
}

/// The thread that writes.
#[derive(Default)]
struct Writer {
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
    is_over: bool,
}

impl LogShared {
    /// Returns the time that takes the place of the database's, in tests.
    fn given_time(&self) -> Option<SystemTime> {
        self.settings.follows_clock.then(|| self.clock.timestamp().into())
    }

    fn is_full(&self, client: &str) -> bool {
        self.quota.read().unwrap_or_else(PoisonError::into_inner).is_full(client)
    }
}

fn ended() -> AuditError {
    AuditError::new(AuditErrorKind::Other, "the audit log has ended")
}

impl Running {
    fn new(shared: Arc<LogShared>) -> Result<Arc<Self>, AuditError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("cofferdam-audit")
            .enable_all()
            .build()
            .map_err(|error| AuditError::new(AuditErrorKind::Other, error))?;
        let (writer, has_writer) = (Mutex::default(), AtomicBool::new(false));
        Ok(Arc::new(Self { shared, runtime: Some(runtime), writer, has_writer }))
    }

    /// Returns true if this process writes to the log.
    fn has_commands(&self) -> bool {
        self.has_writer.load(Ordering::SeqCst)
    }

    /// Submits a command.
    fn submit<T: Send + 'static>(
        self: &Arc<Self>,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> LogFuture<T> {
        let (reply, result) = oneshot::channel();
        if let Err(error) = self.send(command(reply)) {
            return Box::pin(async { Err(error) });
        }
        Box::pin(async { result.await.unwrap_or_else(|_| Err(ended())) })
    }

    fn send(self: &Arc<Self>, command: Command) -> Result<(), AuditError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.commands.is_none() && !writer.is_over {
            let (commands, receiver) = mpsc::unbounded_channel();
            // A runtime of its own: what waits for a commit is not held up by readers.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| AuditError::new(AuditErrorKind::Other, error))?;
            let engine = Engine::new(Arc::clone(&self.shared), self.handle()?);
            let thread = std::thread::Builder::new().name("cofferdam-log".to_owned()).spawn(move || {
                runtime.block_on(engine.run(receiver));
            });
            writer.thread = Some(thread.map_err(|error| AuditError::new(AuditErrorKind::Other, error))?);
            writer.commands = Some(commands);
            self.has_writer.store(true, Ordering::SeqCst);
            maintenance::begin(self);
        }
        writer.commands.as_ref().ok_or_else(ended)?.send(command).map_err(|_| ended())
    }

    fn handle(&self) -> Result<tokio::runtime::Handle, AuditError> {
        self.runtime.as_ref().map(|runtime| runtime.handle().clone()).ok_or_else(ended)
    }

    /// Runs work in this log's runtime, also if the returned future is dropped.
    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, AuditError>> + Send + 'static,
    ) -> LogFuture<T> {
        match self.handle() {
            Ok(runtime) => {
                let task = runtime.spawn(work);
                let lost =
                    |_| Err(AuditError::new(AuditErrorKind::Other, "a task of the audit log panicked"));
                Box::pin(async move { task.await.unwrap_or_else(lost) })
            }
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    /// Runs work in a session, whose traffic this log's runtime carries, and waits for it on this thread.
    fn in_session<T, E: Into<AuditError>>(
        &self,
        work: impl AsyncFnOnce(&mut Client, &LogShared) -> Result<T, E>,
    ) -> Result<T, AuditError> {
        let runtime = self.handle()?;
        let _entered = runtime.enter();
        cofferdam_audit::wait(async {
            let mut session = self.shared.pool.get().await?;
            let result = work(session.client(), &self.shared).await.map_err(Into::into)?;
            session.give_back();
            Ok(result)
        })
    }

    /// Returns what this process holds.
    fn holdings(self: &Arc<Self>) -> LogFuture<Holdings> {
        self.submit(Command::Holdings)
    }

    /// Signs for the journals of this process as they are, and returns the note.
    async fn sign(self: &Arc<Self>) -> Result<String, AuditError> {
        let holdings = self.holdings().await?;
        cofferdam_core::failpoint::pass("checkpoint.before");
        let note = self.shared.checkpoints.sign(&self.shared, &holdings.chains).await?;
        cofferdam_core::failpoint::pass("checkpoint.after");
        Ok(note)
    }

    /// Waits until everything that was asked for is written.
    fn finish(&self) {
        let thread = {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            writer.commands = None;
            writer.is_over = true;
            writer.thread.take()
        };
        drop(thread.map(JoinHandle::join));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The last user may be a task of another runtime, which must not block.
            runtime.shutdown_background();
        }
    }
}

impl PostgresLog {
    /// Creates the audit log of a process in this home directory.
    pub fn new(database: Database, home: &Path, settings: PostgresSettings, clock: Arc<dyn Clock>) -> Self {
        let shared = Arc::new(LogShared {
            pool: Pool::new(database.clone(), SESSIONS),
            database,
            home: home.to_owned(),
            settings,
            clock,
            checkpoints: Checkpoints::new(home),
            warnings: WarningLog::default(),
            quota: RwLock::default(),
            has_new: Notify::new(),
        });
        Self { shared, running: Mutex::default() }
    }

    fn running(&self) -> Result<Arc<Running>, AuditError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match &*running {
            Some(running) => Ok(Arc::clone(running)),
            None => Ok(Arc::clone(running.insert(Running::new(Arc::clone(&self.shared))?))),
        }
    }

    fn submit<T: Send + 'static>(&self, command: impl FnOnce(Reply<T>) -> Command) -> LogFuture<T> {
        match self.running() {
            Ok(running) => running.submit(command),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn spawn<T: Send + 'static, W>(&self, work: impl FnOnce(Arc<Running>) -> W) -> LogFuture<T>
    where
        W: Future<Output = Result<T, AuditError>> + Send + 'static,
    {
        match self.running() {
            Ok(running) => running.spawn(work(Arc::clone(&running))),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}

impl Drop for PostgresLog {
    /// Waits until all that was asked for is written.
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            maintenance::end(&running);
            running.finish();
        }
    }
}

impl AuditLog for PostgresLog {
    fn open(&self, call: OpenCall) -> LogFuture<OpenOutcome> {
        self.submit(|reply| Command::Open(Box::new(call), reply))
    }

    fn append(&self, audit_id: &AuditId, entry: Entry) -> LogFuture<()> {
        let audit_id = audit_id.clone();
        self.submit(|reply| Command::Append(audit_id, entry, reply))
    }

    fn close(&self, begin: Option<Box<OpenCall>>, end: CloseCall) -> LogFuture<()> {
        self.submit(|reply| Command::Close(begin, Box::new(end), Some(reply)))
    }

    fn key_state(&self, claim: KeyClaim) -> LogFuture<KeyState> {
        self.submit(|reply| Command::KeyState(claim, reply))
    }

    fn resolve(&self, audit_id: &AuditId, decision: ResolveCall) -> LogFuture<bool> {
        let audit_id = audit_id.clone();
        self.submit(|reply| Command::Resolve(audit_id, Box::new(decision), reply))
    }

    fn record(&self, at: Timestamp, event: OperatorEvent<'static>) -> LogFuture<()> {
        self.spawn(|running| async move {
            let write = |event| {
                let draft = EntryDraft::of_log(at, &RecordedEvent::Operator(Box::new(event)));
                running.submit(|reply| Command::Entries(vec![draft], reply))
            };
            write(event.clone()).await?;
            let Some(time) = accepted_time_in(&event) else { return Ok(()) };
            let accepted = async {
                let mut session = running.shared.pool.get().await?;
                time::accept(session.client(), time).await?;
                session.give_back();
                Ok::<_, AuditError>(())
            };
            if let Err(error) = accepted.await {
                // If this fails as well, the caller learns what failed first.
                let _ = write(OperatorEvent { failed: true, ..event }).await;
                return Err(error);
            }
            running.submit(Command::Forget).await
        })
    }

    fn time(&self) -> LogFuture<LogTime> {
        self.submit(Command::Time)
    }

    fn sign(&self) -> LogFuture<String> {
        self.spawn(|running| async move {
            // Even of a process that has written nothing: it begins a journal.
            running.submit(Command::Begin).await?;
            running.sign().await
        })
    }

    fn accept(&self, findings: Vec<AcknowledgedFinding>, user: Arc<str>) -> LogFuture<String> {
        self.spawn(|running| async move { evidence::accept(&running, &findings, &user).await })
    }

    fn prune(&self, before: Timestamp, dry_run: bool, user: Arc<str>) -> LogFuture<Pruned> {
        self.spawn(move |running| async move {
            prune::prune(&running, PruneRequest { before, dry_run, user: Some(&user) }).await
        })
    }

    fn ready(&self) -> LogFuture<()> {
        self.submit(Command::Begin)
    }

    fn flush(&self) -> LogFuture<()> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match running.filter(|running| running.has_commands()) {
            Some(running) => running.submit(|reply| Command::Entries(Vec::new(), reply)),
            None => Box::pin(async { Ok(()) }),
        }
    }

    fn reader(&self) -> Result<Box<dyn AuditReader>, AuditError> {
        Ok(Box::new(PostgresReader::open(self.running()?)?))
    }

    fn reindex(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<u64, AuditError> {
        let running = self.running()?;
        let (sender, receiver) = std::sync::mpsc::channel();
        let shared = Arc::clone(&running.shared);
        let work = running.spawn(async move {
            let mut session = shared.pool.get().await?;
            let all = calls::entries(session.client()).await?;
            calls::forget(session.client()).await?;
            let told = sender.clone();
            calls::fill(session.client(), &mut |done| _ = told.send((done, all))).await?;
            session.give_back();
            Ok(all)
        });
        while let Ok((done, all)) = receiver.recv() {
            progress(done, all);
        }
        cofferdam_audit::wait(work)
    }

    fn retention(&self) -> Option<Duration> {
        self.shared.settings.log.retention
    }

    fn loss(&self) -> Result<Option<StateLoss>, AuditError> {
        self.running()?.in_session(async |client, shared| shared.checkpoints.loss(client).await)
    }

    fn end(&self) -> Result<LogPosition, AuditError> {
        let select = "SELECT name, n FROM cofferdam.writers";
        self.running()?.in_session(async |client, _| calls::position(client, select).await)
    }

    fn evidence(&self) -> Result<Box<dyn AuditEvidence>, AuditError> {
        Ok(Box::new(PostgresEvidence::new(self.running()?)))
    }
}
