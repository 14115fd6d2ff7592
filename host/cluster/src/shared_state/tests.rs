//! Circuits, rate limits and renewals of several hosts over one real PostgreSQL.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cofferdam_core::clock::SystemClock;
use cofferdam_core::failure::{AuditId, FailureCause};
use cofferdam_egress::credentials::{
    BrokerSettings, CredentialBroker, RenewalError, RenewalStore, StoredRenewal,
};
use cofferdam_egress::egress::{PrivateGrant, SystemResolver, default_tls};
use cofferdam_egress::resilience::{BreakerPolicy, CircuitStore, RateLimit};
use cofferdam_egress::vault::{BindingName, ExternalVault, SecretDirectory};
use cofferdam_model::manifest::ConnectorName;
use cofferdam_runtime::host::SharedState;
use cofferdam_test_support::services::Postgres;
use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

use super::*;
use crate::database::DatabaseSettings;

const HOST: &str = "api.example:443";

fn connector() -> ConnectorName {
    ConnectorName::parse("github://acme/a").unwrap()
}

/// So many hosts of one cluster over one database.
fn hosts(url: &str, home: &TempDir, count: usize) -> Vec<SharedState> {
    let database = || {
        let settings = DatabaseSettings::parse(url, false).unwrap();
        Database::new(settings, default_tls([]).unwrap(), home.path())
    };
    (0..count).map(|_| start(&database(), home.path()).unwrap()).collect()
}

fn store(host: &SharedState, home: &TempDir) -> Arc<CircuitStore> {
    CircuitStore::shared(home.path().join("circuits"), Arc::clone(&host.circuits))
}

fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One request of a host whose clock says `now`: refused by the circuit, or sent with this result.
fn request(circuits: &Arc<CircuitStore>, cause: Option<FailureCause>, now: Timestamp) -> bool {
    let policy = Arc::new(BreakerPolicy::windowed());
    let scope = circuits.call_scope(&connector(), &policy, &AuditId::mint());
    if scope.admit(HOST, None, now).is_err() {
        return false;
    }
    scope.observe(HOST, cause, cause.map(|_| 503), None);
    scope.finish(now);
    true
}

#[test]
fn failures_of_all_hosts_open_one_circuit() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, home) = (postgres.database(), tempfile::tempdir().unwrap());
    let hosts = hosts(&url, &home, 3);
    let stores: Vec<_> = hosts.iter().map(|host| store(host, &home)).collect();
    let seen = |host: usize| {
        let views = stores.get(host).unwrap().views(Timestamp::now()).unwrap();
        views.first().map(|view| (view.state, view.failures))
    };
    // The third failure within a minute opens it, whichever host sees it.
    for (host, circuits) in stores.iter().enumerate() {
        assert!(request(circuits, Some(FailureCause::Unavailable), Timestamp::now()));
        if host < 2 {
            until("the failure is not seen by others", || {
                (0..3).all(|it| seen(it).is_some_and(|it| it.1 == host + 1))
            });
        }
    }
    until("it does not open everywhere", || (0..3).all(|host| seen(host).is_some_and(|it| it.0 == "open")));
    assert!(stores.iter().all(|circuits| !request(circuits, None, Timestamp::now())));
    // A host that comes later knows it, and a reset by one host holds for all.
    let later = super::start(
        &Database::new(DatabaseSettings::parse(&url, false).unwrap(), default_tls([]).unwrap(), home.path()),
        home.path(),
    );
    assert!(!request(&store(&later.unwrap(), &home), None, Timestamp::now()));
    stores.first().unwrap().reset(None, None, Timestamp::now()).unwrap();
    until("it does not close everywhere", || (0..3).all(|host| seen(host).is_none()));
}

#[test]
fn one_host_probes_an_open_circuit() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, home) = (postgres.database(), tempfile::tempdir().unwrap());
    let hosts = hosts(&url, &home, 3);
    let stores: Vec<_> = hosts.iter().map(|host| store(host, &home)).collect();
    for _ in 0..3 {
        request(stores.first().unwrap(), Some(FailureCause::Unavailable), Timestamp::now());
    }
    until("it does not open", || {
        stores.iter().all(|circuits| !circuits.views(Timestamp::now()).unwrap().is_empty())
    });
    let refused = stores.iter().all(|circuits| !request(circuits, None, Timestamp::now()));
    assert!(refused, "it is open");
    // Ten minutes later on the database's clock.
    let name = url.rsplit('/').next().unwrap();
    let shift = "UPDATE cofferdam.circuits SET state = replace(state, to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-'), \
                 to_char((clock_timestamp() - interval '1 year') AT TIME ZONE 'UTC', 'YYYY-'))";
    postgres.psql(name, shift);
    let policy = Arc::new(BreakerPolicy::windowed());
    let begun = Instant::now();
    let mut probes = Vec::new();
    while begun.elapsed() < Duration::from_secs(3) {
        for circuits in &stores {
            let scope = circuits.call_scope(&connector(), &policy, &AuditId::mint());
            if scope.admit(HOST, None, Timestamp::now()).is_ok() {
                probes.push(scope);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(probes.len(), 1, "one call of one host");
    let probe = probes.pop().unwrap();
    probe.observe(HOST, None, None, None);
    probe.finish(Timestamp::now());
    until("it does not close", || {
        stores.iter().all(|circuits| circuits.views(Timestamp::now()).unwrap().is_empty())
    });
}

#[test]
fn hosts_with_other_clocks_share_a_cooldown() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, home) = (postgres.database(), tempfile::tempdir().unwrap());
    let hosts = hosts(&url, &home, 1);
    let circuits = store(hosts.first().unwrap(), &home);
    // A host whose clock is ten minutes ahead writes what it saw: the time in the database is the database's.
    let ahead = Timestamp::now().checked_add(SignedDuration::from_mins(10)).unwrap();
    for _ in 0..3 {
        request(&circuits, Some(FailureCause::Unavailable), ahead);
    }
    let name = url.rsplit('/').next().unwrap();
    until("it is not written", || {
        postgres.psql(name, "SELECT count(*) FROM cofferdam.circuits WHERE state LIKE '%cooldown%'") == "1"
    });
    let open = |now: Timestamp| circuits.views(now).unwrap().first().and_then(|view| view.open.clone());
    until("it is not read", || {
        open(Timestamp::now())
            .is_some_and(|open| (1..=120_000).contains(&open.retry_after_ms) && open.opened_at() < ahead)
    });
}

trait OpenedAt {
    fn opened_at(&self) -> Timestamp;
}

impl OpenedAt for cofferdam_egress::resilience::OpenView {
    fn opened_at(&self) -> Timestamp {
        self.cause.opened_at.parse().unwrap()
    }
}

/// Sends as fast as the limit allows from three hosts, and returns the times.
async fn sent(hosts: &[SharedState], limit: RateLimit, time: Duration) -> Vec<Duration> {
    let begun = Instant::now();
    let mut senders = Vec::new();
    for number in 0..12 {
        let rates = Arc::clone(&hosts.get(number % hosts.len()).unwrap().rates);
        senders.push(tokio::spawn(async move {
            let mut times = Vec::new();
            while begun.elapsed() < time {
                let reserved = rates.reserve("github://acme/a", HOST, limit, Duration::from_secs(5)).await;
                match reserved.unwrap() {
                    Ok(wait) => {
                        tokio::time::sleep(wait.unwrap_or_default()).await;
                        times.push(begun.elapsed());
                    }
                    Err(refused) => panic!("{refused:?}"),
                }
            }
            times
        }));
    }
    let mut times = Vec::new();
    for sender in senders {
        times.extend(sender.await.unwrap());
    }
    times.sort_unstable();
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_limit_holds_over_three_hosts() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, home) = (postgres.database(), tempfile::tempdir().unwrap());
    let hosts = hosts(&url, &home, 3);
    let limit = RateLimit::new(50, Duration::from_secs(1)).unwrap();
    for burst in [1, 50] {
        postgres.psql(url.rsplit('/').next().unwrap(), "DELETE FROM cofferdam.rate_limits");
        let limit = limit.with_burst(burst).unwrap();
        let times = sent(&hosts, limit, Duration::from_secs(4)).await;
        let in_a_second = |from: &Duration| {
            let until = *from + Duration::from_secs(1);
            times.iter().filter(|at| *at >= from && **at < until).count()
        };
        let most = times.iter().map(in_a_second).max().unwrap();
        // Two requests may wake a little late or early, which the limit itself does not.
        assert!(most <= 50 + burst as usize + 2, "{most} in a second with a burst of {burst}");
        assert!(times.len() >= 150, "{} in four seconds", times.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_below_the_limit_rarely_ask() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, home) = (postgres.database(), tempfile::tempdir().unwrap());
    let hosts = hosts(&url, &home, 1);
    let rates = Arc::clone(&hosts.first().unwrap().rates);
    let limit = RateLimit::new(10_000, Duration::from_secs(1)).unwrap();
    for _ in 0..2_000 {
        assert_eq!(
            rates.reserve("github://acme/a", HOST, limit, Duration::from_secs(1)).await.unwrap(),
            Ok(None)
        );
    }
    drop((rates, hosts));
    // Statistics are written a little later.
    let name = url.rsplit('/').next().unwrap();
    let updates = || {
        postgres
            .psql(name, "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'rate_limits'")
            .parse()
            .unwrap_or(0)
    };
    until("no statistics", || updates() > 0);
    assert!(updates() < 200, "{} updates", updates());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_takes_no_turn_of_others() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, home) = (postgres.database(), tempfile::tempdir().unwrap());
    let hosts = hosts(&url, &home, 2);
    let limit = RateLimit::new(2, Duration::from_secs(60)).unwrap().with_burst(1).unwrap();
    let turn = async |host: usize, patience: u64| {
        let rates = Arc::clone(&hosts.get(host).unwrap().rates);
        rates.reserve("github://acme/a", HOST, limit, Duration::from_secs(patience)).await.unwrap()
    };
    assert_eq!(turn(0, 60).await, Ok(None));
    for host in [0, 1, 0, 1] {
        let refused = turn(host, 20).await.unwrap_err();
        assert!((28..=30).contains(&refused.retry_after.as_secs()) && refused.configured == 2, "{refused:?}");
    }
    let wait = turn(1, 40).await.unwrap().unwrap();
    assert!((28..=30).contains(&wait.as_secs()), "{wait:?}");
    assert!(turn(0, 40).await.is_err(), "that turn is taken");
}

#[test]
fn a_host_goes_on_alone_without_the_database() {
    let Some(mut postgres) = Postgres::start_or_skip() else { return };
    let (url, home) = (postgres.database(), tempfile::tempdir().unwrap());
    let hosts = hosts(&url, &home, 2);
    let circuits = store(hosts.first().unwrap(), &home);
    assert_eq!(circuits.away(), None);
    postgres.kill();
    until("the loss is not noticed", || circuits.away().is_some());
    assert!(circuits.reset(None, None, Timestamp::now()).is_err(), "a reset that other hosts do not see");
    let begun = Instant::now();
    for _ in 0..3 {
        assert!(request(&circuits, Some(FailureCause::Unavailable), Timestamp::now()));
    }
    assert!(!request(&circuits, None, Timestamp::now()), "its own circuit opens");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rates = Arc::clone(&hosts.first().unwrap().rates);
    let limit = RateLimit::new(50, Duration::from_secs(1)).unwrap();
    runtime.block_on(async {
        assert!(rates.reserve("github://acme/a", HOST, limit, Duration::from_secs(1)).await.is_err());
    });
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    postgres.start_again();
    until("it does not come back", || circuits.away().is_none());
    // What it saw meanwhile was queued.
    let other = store(hosts.last().unwrap(), &home);
    until("the other host does not see it", || !other.views(Timestamp::now()).unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_host_at_a_time_renews() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, home) = (postgres.database(), tempfile::tempdir().unwrap());
    let hosts = hosts(&url, &home, 3);
    let stores: Vec<Arc<DatabaseRenewals>> = (0..3)
        .map(|_| {
            let database = Database::new(
                DatabaseSettings::parse(&url, false).unwrap(),
                default_tls([]).unwrap(),
                home.path(),
            );
            Arc::new(DatabaseRenewals::over(database))
        })
        .collect();
    let (inside, renewed) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = Vec::new();
    for number in 0..9 {
        let store = Arc::clone(stores.get(number % 3).unwrap());
        let (inside, renewed) = (Arc::clone(&inside), Arc::clone(&renewed));
        tasks.push(tokio::spawn(async move {
            let mut right = store.lock("oauth2/a/default", Duration::from_secs(20)).await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            if right.load().await.unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(50)).await;
                renewed.fetch_add(1, Ordering::SeqCst);
                let renewal =
                    StoredRenewal { sealed: vec![7; 40], expires_in: Some(Duration::from_secs(3600)) };
                right.store(renewal).await.unwrap();
            }
            inside.fetch_sub(1, Ordering::SeqCst);
            let left = right.load().await.unwrap().unwrap().expires_in.unwrap();
            assert!((3_500..=3_600).contains(&left.as_secs()), "{left:?}");
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(renewed.load(Ordering::SeqCst), 1);
    let held = stores.first().unwrap().lock("oauth2/b/default", Duration::from_secs(5)).await.unwrap();
    let busy = stores.last().unwrap().lock("oauth2/b/default", Duration::from_millis(200)).await.err();
    assert_eq!(busy, Some(RenewalError::Busy));
    drop((held, hosts));
}

/// A token endpoint that replaces the refresh token each time, and refuses one that was used before.
struct Issuer {
    port: u16,
    granted: Arc<AtomicU32>,
    refused: Arc<AtomicU32>,
}

impl Issuer {
    /// Its access tokens expire after so many seconds.
    fn start(seconds: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (granted, refused) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (counts, refusals) = (Arc::clone(&granted), Arc::clone(&refused));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                let mut buffer = [0; 4096];
                loop {
                    let read = stream.read(&mut buffer).unwrap();
                    request.extend(buffer.iter().take(read));
                    let text = String::from_utf8_lossy(&request).to_lowercase();
                    let length = text.split("content-length: ").nth(1).and_then(|it| it.split('\r').next());
                    let length: usize = length.and_then(|it| it.parse().ok()).unwrap_or(0);
                    let body = text.split_once("\r\n\r\n").map(|it| it.1.len());
                    if read == 0 || body.is_some_and(|body| body >= length) {
                        break;
                    }
                }
                // Slow enough that hosts meet.
                std::thread::sleep(Duration::from_millis(100));
                let number = counts.load(Ordering::SeqCst);
                let is_current = String::from_utf8_lossy(&request)
                    .contains(&format!("refresh-token-{number}&"))
                    || String::from_utf8_lossy(&request).ends_with(&format!("refresh-token-{number}"));
                let (status, body) = if is_current {
                    let next = counts.fetch_add(1, Ordering::SeqCst) + 1;
                    let body = format!(
                        "{{\"access_token\":\"access-token-{next}\",\"token_type\":\"Bearer\",\
                         \"expires_in\":{seconds},\"refresh_token\":\"refresh-token-{next}\"}}"
                    );
                    ("200 OK", body)
                } else {
                    refusals.fetch_add(1, Ordering::SeqCst);
                    ("400 Bad Request", "{\"error\":\"invalid_grant\"}".to_owned())
                };
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                drop(stream.write_all(answer.as_bytes()));
            }
        });
        Self { port, granted, refused }
    }
}

/// The broker of a host whose secrets are in a directory that it cannot write.
fn broker(host: &SharedState, issuer: &Issuer, dir: &TempDir) -> Arc<CredentialBroker> {
    let secret = dir.path().join("crm");
    std::fs::write(&secret, "refresh-token-0").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let bindings = dir.path().join("bindings.toml");
    let text = format!(
        "[[binding]]\nname = \"oauth2/crm\"\nsecret = \"crm\"\ntoken_url = \"http://localhost:{}/token\"\n\
         client_id = \"me\"\nhosts = [\"api.example:443\"]\nconnectors = [\"github://acme/a\"]\n",
        issuer.port
    );
    std::fs::write(&bindings, text).unwrap();
    CredentialBroker::new(BrokerSettings {
        vault: Arc::new(ExternalVault::directory(bindings, SecretDirectory::new(dir.path()))),
        clock: Arc::new(SystemClock),
        tls: default_tls([]).unwrap(),
        resolver: Arc::new(SystemResolver::default()),
        allow_private: [PrivateGrant::parse(&format!("localhost:{}", issuer.port)).unwrap()].into(),
        locks: dir.path().join("locks"),
        renewals: Some(host.renewals.clone()),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_refresh_token_reaches_every_host() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, home) = (postgres.database(), tempfile::tempdir().unwrap());
    let hosts = hosts(&url, &home, 3);
    // A token is not sent in its last minute: these count for two seconds.
    let issuer = Issuer::start(62);
    let dirs: Vec<_> = hosts.iter().map(|_| tempfile::tempdir().unwrap()).collect();
    let brokers: Vec<_> = hosts.iter().zip(&dirs).map(|(host, dir)| broker(host, &issuer, dir)).collect();
    let name = BindingName::parse("oauth2/crm").unwrap();
    for round in 1..=3 {
        let checks = brokers.iter().map(|broker| broker.check(&name));
        for checked in futures_util::future::join_all(checks).await {
            assert!(checked.is_ok(), "round {round}");
        }
        assert_eq!(
            (issuer.granted.load(Ordering::SeqCst), issuer.refused.load(Ordering::SeqCst)),
            (round, 0)
        );
        tokio::time::sleep(Duration::from_millis(2_200)).await;
    }
    // A host that starts has the first token, and goes on with the newest.
    let dir = tempfile::tempdir().unwrap();
    let late = broker(hosts.first().unwrap(), &issuer, &dir);
    assert!(late.check(&name).await.is_ok());
    assert_eq!((issuer.granted.load(Ordering::SeqCst), issuer.refused.load(Ordering::SeqCst)), (4, 0));
    // The database has no secret in the clear.
    let database = url.rsplit('/').next().unwrap();
    let stored = postgres.psql(database, "SELECT encode(sealed, 'escape') FROM cofferdam.token_renewals");
    assert!(!stored.is_empty() && !stored.contains("token-"), "{stored}");
}
