//! Helpers of the tests of the log: clusters in databases of their own, calls, and what verification finds.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cofferdam_audit::{
    AuditLog as _, CallStatus, CallTarget, CloseCall, ExpectedState, Finding, KeyClaim, KeyDisposition,
    KeyScope, KeyState, LogFuture, LogPosition, LogSettings, NoteSigner, OpenCall, OpenOutcome, SealedQuota,
    verify_log, wait,
};
use cofferdam_core::clock::{Clock, SystemClock};
use cofferdam_core::event::operator::{OperatorAction, OperatorEvent, OperatorState};
use cofferdam_core::event::recorded::Received;
use cofferdam_core::host_key;
use cofferdam_egress::egress::default_tls;
pub(super) use cofferdam_test_support::log_calls::claim;
use cofferdam_test_support::log_calls::{DateClock, ending, opening, skipped};
use cofferdam_test_support::services::Postgres;
use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

use super::super::{PostgresLog, PostgresSettings};
use crate::database::{Database, DatabaseSettings};

/// The lease of hosts in tests.
pub(super) const LEASE: Duration = Duration::from_secs(1);

/// A cluster with a database of its own: homes with one key.
pub(super) struct Cluster {
    pub(super) postgres: Server,
    pub(super) url: String,
    key: PathBuf,
    homes: TempDir,
}

/// The server of a cluster.
pub(super) enum Server {
    Shared(&'static Postgres),
    Own(Postgres),
}

impl std::ops::Deref for Server {
    type Target = Postgres;

    fn deref(&self) -> &Postgres {
        match self {
            Self::Shared(server) => server,
            Self::Own(server) => server,
        }
    }
}

impl Cluster {
    /// A cluster on the server that all tests share; none, visibly, where there is none.
    pub(super) fn start() -> Option<Self> {
        Postgres::shared_or_skip().map(|server| Self::on(Server::Shared(server)))
    }

    /// A cluster on a server of its own, which may be stopped.
    pub(super) fn alone() -> Option<Self> {
        Postgres::start_or_skip().map(|server| Self::on(Server::Own(server)))
    }

    fn on(postgres: Server) -> Self {
        let homes = tempfile::tempdir().unwrap();
        let key = homes.path().join("host.key");
        host_key::load_or_create(&key).unwrap();
        let url = postgres.database();
        Self { postgres, url, key, homes }
    }

    pub(super) fn server(&mut self) -> &mut Postgres {
        match &mut self.postgres {
            Server::Own(server) => server,
            Server::Shared(_) => panic!("others use it"),
        }
    }

    /// The home of a host, which is made if there is none.
    pub(super) fn home(&self, name: &str) -> PathBuf {
        let home = self.homes.path().join(name);
        if !home.exists() {
            std::fs::create_dir_all(&home).unwrap();
            std::fs::copy(&self.key, home.join("host.key")).unwrap();
        }
        home
    }

    /// A process of a host in a home of its own.
    pub(super) fn host(&self, name: &str) -> PostgresLog {
        log(&self.url, &self.home(name), name, Arc::new(SystemClock), LogSettings::default(), false)
    }

    /// A process of a host of this name in another home.
    pub(super) fn other_home(&self, name: &str) -> PostgresLog {
        let home = self.home(&format!("other-{name}"));
        log(&self.url, &home, name, Arc::new(SystemClock), LogSettings::default(), false)
    }

    /// A process of a host whose clock is off by this many seconds.
    pub(super) fn host_at(&self, name: &str, off: i64) -> PostgresLog {
        let clock = Arc::new(DateClock(move || Timestamp::now() + SignedDuration::from_secs(off)));
        log(&self.url, &self.home(name), name, clock, LogSettings::default(), false)
    }

    /// The time of such a host.
    pub(super) fn clock_of(log: &PostgresLog) -> Timestamp {
        log.shared.clock.timestamp()
    }

    pub(super) fn manual_clock(&self) -> Arc<HandClock> {
        Arc::new(HandClock(Mutex::new(Timestamp::now())))
    }

    /// A process of a host whose log goes by this clock.
    pub(super) fn host_with_clock(&self, name: &str, clock: &Arc<HandClock>) -> PostgresLog {
        let hand = Arc::clone(clock);
        let clock = Arc::new(DateClock(move || hand.now()));
        log(&self.url, &self.home(name), name, clock, LogSettings::default(), true)
    }

    pub(super) fn host_with_quota(&self, name: &str, per_client: u64) -> PostgresLog {
        let sealed = SealedQuota { per_client, ..SealedQuota::default() };
        let settings = LogSettings { sealed, ..LogSettings::default() };
        log(&self.url, &self.home(name), name, Arc::new(SystemClock), settings, false)
    }

    /// The name of the database.
    pub(super) fn database(&self) -> &str {
        self.url.rsplit('/').next().unwrap()
    }

    pub(super) fn psql(&self, statements: &str) -> String {
        self.postgres.psql(self.database(), statements)
    }

    /// The number of rows of a table.
    pub(super) fn count(&self, table: &str) -> u64 {
        self.psql(&format!("SELECT count(*) FROM cofferdam.{table}")).parse().unwrap()
    }

    /// Signs for what a process has written, and verifies the log.
    pub(super) fn findings(&self, log: &PostgresLog) -> Vec<Finding> {
        wait(log.sign()).unwrap();
        self.findings_unsigned(log)
    }

    pub(super) fn findings_unsigned(&self, log: &PostgresLog) -> Vec<Finding> {
        let key = NoteSigner::new(&host_key::read(&self.key).unwrap()).key();
        let mut evidence = log.evidence().unwrap();
        let expected = ExpectedState { is_log_expected: true, ..ExpectedState::default() };
        verify_log(&mut *evidence, &key, &expected, &mut |_, _| ()).unwrap().findings
    }

    /// The numbers of the entries up to which journals with entries are signed for.
    pub(super) fn signed(log: &PostgresLog) -> LogPosition {
        let running = log.running().unwrap();
        let journals =
            running.in_session(async |client, shared| shared.checkpoints.journals(client).await).unwrap();
        let signed = journals.unwrap().into_iter().map(|(writer, journal)| (writer, journal.head.n));
        LogPosition(signed.filter(|(_, n)| *n > 0).collect())
    }

    /// Cuts all connections to the database.
    pub(super) fn cut(&self) {
        let database = self.database();
        let cut = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}'"
        );
        self.postgres.psql("postgres", &cut);
    }
}

pub(super) fn log(
    url: &str,
    home: &Path,
    name: &str,
    clock: Arc<dyn Clock>,
    settings: LogSettings,
    follows_clock: bool,
) -> PostgresLog {
    let url = DatabaseSettings::parse(url, false).unwrap();
    let database = Database::new(url, default_tls([]).unwrap(), home);
    let own = PostgresSettings { lease: LEASE, follows_clock, log: settings, ..PostgresSettings::new(name) };
    PostgresLog::new(database, home, own, clock)
}

/// A clock that is set by hand.
pub(super) struct HandClock(Mutex<Timestamp>);

impl HandClock {
    pub(super) fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    pub(super) fn set(&self, at: Timestamp) {
        *self.0.lock().unwrap() = at;
    }

    pub(super) fn advance(&self, by: SignedDuration) {
        let mut now = self.0.lock().unwrap();
        *now += by;
    }
}

pub(super) fn action_scope(action: &str, steps: &[&str]) -> KeyScope {
    KeyScope::Action { action: action.into(), steps: steps.iter().map(|step| (*step).into()).collect() }
}

pub(super) fn call(key: Option<&str>, idempotent: bool) -> OpenCall {
    call_at(key, idempotent, Timestamp::now())
}

/// A call that was received then.
pub(super) fn call_at(key: Option<&str>, idempotent: bool, at: Timestamp) -> OpenCall {
    received_at(Received::default(), key, idempotent, at)
}

fn received_at(received: Received<'_>, key: Option<&str>, idempotent: bool, at: Timestamp) -> OpenCall {
    let (actor, connector) = ("ada".into(), "github://acme/a@1.0.0".into());
    opening(Received { actor, connector, op: "b".into(), ..received }, key, idempotent, at)
}

/// A run of the action `act` under the key `k`, with the step `one`, that was received then.
pub(super) fn run_at(at: Timestamp) -> OpenCall {
    let of = action_scope("act@1", &["k/one"]);
    let received = Received { action: Some("act@1".into()), ..Received::default() };
    OpenCall { key: Some(KeyClaim { of, ..claim("k") }), ..received_at(received, Some("k"), true, at) }
}

/// The step of such a run.
pub(super) fn step_at(at: Timestamp) -> OpenCall {
    let (action, step) = ("act@1", "one");
    let received = Received { action: Some(action.into()), step: Some(step.into()), ..Received::default() };
    let call = received_at(received, Some("k/one"), false, at);
    let route = CallTarget { action: Some(action.into()), step: Some(step.into()), ..call.route };
    OpenCall { route, ..call }
}

pub(super) fn resuming(before: &OpenCall) -> OpenCall {
    OpenCall { resumes: Some((before.audit_id.clone(), "bob".into())), ..call(None, before.idempotent) }
}

pub(super) fn end(call: &OpenCall, status: CallStatus, key: KeyDisposition) -> CloseCall {
    ending(call, status, key, call.at)
}

pub(super) fn value(call: &OpenCall) -> CloseCall {
    end(call, CallStatus::Value, KeyDisposition::Retain(Timestamp::now() + SignedDuration::from_hours(1)))
}

pub(super) fn open(log: &PostgresLog, call: &OpenCall) -> OpenOutcome {
    wait(log.open(call.clone())).unwrap()
}

pub(super) fn close(log: &PostgresLog, end: CloseCall) {
    wait(log.close(None, end)).unwrap();
}

/// Begins and ends a call.
#[track_caller]
pub(super) fn run_call(log: &PostgresLog, call: &OpenCall) {
    assert!(matches!(open(log, call), OpenOutcome::Started));
    close(log, value(call));
}

pub(super) fn state(log: &PostgresLog, key: &str) -> KeyState {
    wait(log.key_state(claim(key))).unwrap()
}

pub(super) fn skip(log: &PostgresLog, call: &OpenCall, frees_key: bool) -> bool {
    wait(log.resolve(&call.audit_id, skipped(frees_key))).unwrap()
}

pub(super) fn accept_clock(log: &PostgresLog, time: Timestamp) {
    let after = OperatorState { time: Some(format!("{time:.6}").into()), ..OperatorState::default() };
    let event = OperatorEvent {
        action: OperatorAction::Clock,
        after: Some(after),
        before: None,
        failed: false,
        subject: "audit".into(),
        user: "ada".into(),
    };
    wait(log.record(time, event)).unwrap();
}

/// Tries again what fails since the database was away, as a host does.
pub(super) fn retried<T>(command: impl Fn() -> LogFuture<T>) -> T {
    let begun = Instant::now();
    loop {
        match wait(command()) {
            Ok(done) => return done,
            Err(error) if error.kind().may_pass() && begun.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until it is so.
#[track_caller]
pub(super) fn until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not come to that");
        std::thread::sleep(Duration::from_millis(50));
    }
}
