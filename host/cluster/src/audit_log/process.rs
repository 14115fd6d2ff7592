//! The processes of a cluster: which host each one is, and whether it lives.
//!
//! A process has an advisory lock on a connection of its own, and a lease that it renews by the clock of the database. It is
//! gone once the lock is free and the lease has expired, or once it has said so. After a start, a crash or a failover
//! of the server, every process has the time of a lease to come back. A process of the same home directory is known
//! sooner: it also locks a file there, as the operating system knows when it ends.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::failure::AuditId;
use cofferdam_core::private_file::{self, FileLock, FilePolicy};
use tokio::sync::watch;
use tokio_postgres::{Client, GenericClient};
use uuid::Uuid;

use super::LogShared;
use super::engine::Holdings;
use super::session::answered;
use crate::database::{Database, DatabaseError, DatabaseErrorKind};

/// The directory of the home for what tells hosts and processes apart.
const DIRECTORY: &str = "cluster";

/// The file with the identity of a home, which no other home has.
const HOME_ID: &str = "home";
const HOME_ID_POLICY: FilePolicy = FilePolicy::secret(64);

/// The pause before a lost connection is opened again.
const PAUSE: Duration = Duration::from_millis(250);

/// The file of a home that remembers the statement in the database.
const MEMBER: &str = "member";

/// A lease is renewed this many times before it would expire.
const RENEWALS: u32 = 4;

/// This process.
pub(super) struct Process {
    pub(super) id: Uuid,
    host: String,
    dir: PathBuf,
    home: HomeIdentity,
    lease: Duration,
    /// Held for as long as the process lives.
    _file: FileLock,
}

/// The identity of a home directory, which no other home has.
pub(super) struct HomeIdentity {
    file: PathBuf,
    member: PathBuf,
}

impl HomeIdentity {
    pub(super) fn of(home: &Path) -> Self {
        let dir = home.join(DIRECTORY);
        Self { file: dir.join(HOME_ID), member: dir.join(MEMBER) }
    }

    /// Returns it; it is made if the home has none.
    fn load_or_create(&self) -> Result<Uuid, DatabaseError> {
        if let Some(id) = self.load()? {
            return Ok(id);
        }
        let id = Uuid::new_v7(uuid::Timestamp::now(uuid::NoContext)).to_string();
        if let Some(dir) = self.file.parent() {
            private_file::create_dir(dir).map_err(|error| Self::unusable(&error))?;
        }
        // Another process may have made one just now.
        let made = private_file::create_new(&self.file, id.as_bytes(), &HOME_ID_POLICY);
        self.load()?.ok_or_else(|| {
            Self::unusable(&made.err().map_or_else(|| "missing".to_owned(), |error| error.to_string()))
        })
    }

    fn load(&self) -> Result<Option<Uuid>, DatabaseError> {
        let stored =
            private_file::read(&self.file, &HOME_ID_POLICY).map_err(|error| Self::unusable(&error))?;
        let Some(stored) = stored else { return Ok(None) };
        let id = std::str::from_utf8(&stored).ok().and_then(|id| Uuid::try_parse(id.trim()).ok());
        id.map(Some).ok_or_else(|| Self::unusable(&"it is not the identity of a home"))
    }

    /// Has this home be a member of the cluster from now on: what it remembers of a log is about the one in the database.
    pub(super) fn join(&self) -> Result<(), DatabaseError> {
        if self.member.exists() {
            return Ok(());
        }
        self.load_or_create()?;
        match private_file::create_new(&self.member, b"", &HOME_ID_POLICY) {
            Ok(()) => Ok(()),
            Err(_) if self.member.exists() => Ok(()),
            Err(error) => Err(Self::unusable(&error)),
        }
    }

    /// Returns the identity of a home that is a member.
    pub(super) fn member(&self) -> Result<Option<Uuid>, DatabaseError> {
        if self.member.exists() { self.load() } else { Ok(None) }
    }

    fn unusable(why: &dyn std::fmt::Display) -> DatabaseError {
        let what = format!("`{DIRECTORY}` in the home directory: {why}");
        let fix = "Make its files this user's alone, or remove it while no host runs in this home.";
        DatabaseError::new(DatabaseErrorKind::Key, what, fix)
    }
}

/// The state of the registration of this process.
#[derive(Debug, Clone)]
pub(super) enum Registration {
    Pending,
    Done,
    Failed(DatabaseError),
}

/// The processes that are gone, as far as they were asked for.
#[derive(Debug, Default)]
pub(super) struct GoneProcesses(HashSet<Uuid>);

impl GoneProcesses {
    pub(super) fn has(&self, id: Uuid) -> bool {
        self.0.contains(&id)
    }
}

/// The state of the processes, which the database does not know alone.
pub(super) struct Lives {
    pub(super) own: Holdings,
    pub(super) gone: GoneProcesses,
}

impl Lives {
    /// Returns true if the process of a call without an end is gone.
    pub(super) fn is_incomplete(&self, call: &AuditId, holder: Option<Uuid>) -> bool {
        let is_gone = |holder: Uuid| holder == self.own.process || self.gone.has(holder);
        !self.own.calls.contains(call) && holder.is_none_or(is_gone)
    }
}

impl Process {
    /// Creates the identity of this process, as the host of this name in this home directory.
    pub(super) fn new(home: &Path, host: &str, lease: Duration) -> Result<Self, DatabaseError> {
        let (id, dir) = (Uuid::now_v7(), home.join(DIRECTORY));
        let failed = |error: &dyn std::fmt::Display| {
            let fix = "Make the home directory writable for this user.";
            DatabaseError::new(
                DatabaseErrorKind::Key,
                format_args!("`{DIRECTORY}` in the home directory: {error}"),
                fix,
            )
        };
        remove_dead(&dir);
        let file = FileLock::try_acquire(&lock_file(&dir, id)).map_err(|error| failed(&error))?;
        let file = file.ok_or_else(|| failed(&"the lock of a new process is held"))?;
        let path = lock_file(&dir, id);
        std::fs::write(&path, mark_of(&path).unwrap_or_default()).map_err(|error| failed(&error))?;
        let home = HomeIdentity::of(home);
        Ok(Self { id, host: host.to_owned(), dir, home, lease, _file: file })
    }

    /// Returns the number of the advisory lock: the end of the id, which is random.
    fn lock(&self) -> i64 {
        let [.., a, b, c, d, e, f, g, h] = *self.id.as_bytes();
        i64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// Registers this process, and keeps its lock and its lease until `ends` is true. `state` tells how it went.
    pub(super) async fn live(
        self: Arc<Self>,
        shared: Arc<LogShared>,
        state: watch::Sender<Registration>,
        mut ends: watch::Receiver<bool>,
    ) {
        let mut renewal = tokio::time::interval(self.lease / RENEWALS);
        renewal.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut session: Option<Client> = None;
        loop {
            let kept = match &session {
                Some(client) if !client.is_closed() => self.renew(client).await,
                _ => match self.join(&shared.database).await {
                    Ok(client) => {
                        session = Some(client);
                        state.send_replace(Registration::Done);
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
            };
            if let (Ok(()), Some(client)) = (&kept, &session) {
                // Of a database that was restored, this home may be the only one that remembers more.
                match shared.checkpoints.loss(client).await {
                    Ok(Some(loss)) if shared.warnings.is_new("loss", &loss) => {
                        tracing::error!(target: "cofferdam::audit", %loss, "no call runs under a key: `cofferdam audit verify` says more");
                    }
                    Ok(None) if shared.warnings.resolve("loss") => {
                        tracing::info!(target: "cofferdam::audit", "calls run under keys again");
                    }
                    _ => {}
                }
            }
            if let Err(error) = kept {
                session = None;
                let is_registered = matches!(*state.borrow(), Registration::Done);
                if !is_registered {
                    if shared.warnings.is_new("registered", &error) {
                        tracing::warn!(target: "cofferdam::audit", %error, fix = error.fix(), "this process cannot record calls");
                    }
                    state.send_replace(Registration::Failed(error));
                } else {
                    tracing::debug!(target: "cofferdam::audit", %error, "the lease of this process is not renewed");
                }
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => continue,
                    _ = ends.wait_for(|ends| *ends) => return,
                }
            }
            tokio::select! {
                _ = renewal.tick() => {}
                _ = ends.wait_for(|ends| *ends) => return,
            }
        }
    }

    /// Takes the lock, and registers the process, unless another host has its name.
    async fn join(&self, database: &Database) -> Result<Client, DatabaseError> {
        let home = self.home.load_or_create()?;
        let mut client = database.connect().await?;
        client.execute("SELECT pg_advisory_lock($1)", &[&self.lock()]).await?;
        note_run(&client).await?;
        let transaction = client.transaction().await?;
        let claim = "INSERT INTO cofferdam.hosts (name, home) VALUES ($1, $2) \
                     ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING home";
        let stored: Uuid = transaction.query_one(claim, &[&self.host, &home]).await?.try_get(0)?;
        if stored != home {
            let lives = "SELECT EXISTS (SELECT FROM cofferdam.processes p WHERE p.host = $1 AND p.id <> $2 \
                         AND NOT cofferdam.has_expired(p))";
            if transaction.query_one(lives, &[&self.host, &self.id]).await?.try_get(0)? {
                let what = format!("another host of the cluster is called {:?}", self.host);
                let fix = "Give each host a name of its own, by `[cluster] host` in its config.toml.";
                return Err(DatabaseError::new(DatabaseErrorKind::Settings, what, fix));
            }
            transaction
                .execute("UPDATE cofferdam.hosts SET home = $2 WHERE name = $1", &[&self.host, &home])
                .await?;
        }
        let insert = "INSERT INTO cofferdam.processes (id, host, lock, lease, lease_until) \
                      VALUES ($1, $2, $3, $4 * interval '1 second', clock_timestamp() + $4 * interval '1 second') \
                      ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until";
        let lease = self.lease.as_secs_f64();
        transaction.execute(insert, &[&self.id, &self.host, &self.lock(), &lease]).await?;
        let forget = "DELETE FROM cofferdam.processes p WHERE p.is_released AND p.id <> $1 \
                      AND NOT EXISTS (SELECT FROM cofferdam.writers w WHERE w.holder = p.id)";
        transaction.execute(forget, &[&self.id]).await?;
        transaction.commit().await?;
        Ok(client)
    }

    async fn renew(&self, client: &Client) -> Result<(), DatabaseError> {
        let renew = "UPDATE cofferdam.processes SET lease_until = clock_timestamp() + lease WHERE id = $1";
        client.execute(renew, &[&self.id]).await?;
        Ok(())
    }
}

/// Notes the run of the server, if it is another one than before: no lease ends before it has lasted as long.
async fn note_run(client: &impl GenericClient) -> Result<(), DatabaseError> {
    let note = "UPDATE cofferdam.server_run SET run = cofferdam.current_run(), since = clock_timestamp() \
                WHERE run <> cofferdam.current_run()";
    answered(client.execute(note, &[])).await.map(drop)
}

/// Returns which of all other processes are gone.
pub(super) async fn gone(client: &impl GenericClient, home: &Path) -> Result<GoneProcesses, DatabaseError> {
    let dir = home.join(DIRECTORY);
    note_run(client).await?;
    let select =
        "SELECT p.id, cofferdam.has_expired(p), cofferdam.is_held(p.lock) FROM cofferdam.processes p";
    let mut gone = HashSet::new();
    for row in client.query(select, &[]).await? {
        let (id, has_expired, is_held): (Uuid, bool, bool) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if has_expired || !is_held && has_ended_here(&dir, id) {
            gone.insert(id);
        }
    }
    // A process that is not registered any more said that it is gone.
    let unregistered = "SELECT DISTINCT w.holder FROM cofferdam.writers w \
                        WHERE NOT EXISTS (SELECT FROM cofferdam.processes p WHERE p.id = w.holder)";
    for row in client.query(unregistered, &[]).await? {
        gone.insert(row.try_get(0)?);
    }
    Ok(GoneProcesses(gone))
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(std::fs::remove_file(lock_file(&self.dir, self.id)));
    }
}

fn lock_file(dir: &Path, id: Uuid) -> PathBuf {
    dir.join(format!("process-{id}"))
}

/// Returns true for a process of this home whose file is there and not locked: it has ended.
fn has_ended_here(dir: &Path, id: Uuid) -> bool {
    let path = lock_file(dir, id);
    // In a copy of a home, no process holds the locks, although the processes of the original may be alive.
    let is_original = std::fs::read_to_string(&path).is_ok_and(|mark| Some(mark) == mark_of(&path));
    is_original && !FileLock::is_held(&path)
}

/// Returns what tells the file of a process from a copy of it.
fn mark_of(path: &Path) -> Option<String> {
    let file = std::fs::metadata(path).ok()?;
    Some(format!("{}:{}", file.dev(), file.ino()))
}

/// Removes the files of processes that ended more than a day ago: by then every lease has expired.
fn remove_dead(dir: &Path) {
    const OLD: Duration = Duration::from_secs(24 * 60 * 60);
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("process-")) {
        let age = entry.metadata().and_then(|it| it.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age > OLD) && !FileLock::is_held(&entry.path()) {
            drop(std::fs::remove_file(entry.path()));
        }
    }
}
