//! Hosts with homes of their own on one PostgreSQL, and workers on one NATS, each behind a proxy that cuts connections.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_test_support::Home;
use cofferdam_test_support::services::{Nats, Postgres, Tools};
use serde_json::json;
use tempfile::TempDir;

use super::faults::{Restarts, Targets};
use super::fleet::Member;
use super::plan::{Fault, Parts, Plan, Size};
use super::proxy::CuttingProxy;
use super::run::{HOSTS, Outcome, clients, directory, drive, hosts_agree, journal_lines, judge, prepare};
use super::upstream::Upstream;

/// The workers of a cluster with jobs.
const WORKERS: usize = 2;

/// What a cluster is made of.
#[derive(Debug, Clone, Default)]
pub(super) struct Setup {
    /// True if hosts have homes of their own on one PostgreSQL; else they share a home.
    pub(super) has_database: bool,
    /// True if there are NATS and workers.
    pub(super) has_jobs: bool,
    /// Settings of PostgreSQL, as `name=value`.
    pub(super) postgres: Vec<&'static str>,
    /// More of `config.toml`.
    pub(super) config: String,
    /// Failpoints of all hosts and workers.
    pub(super) failpoints: &'static str,
    /// Failpoints of the first host until its first end.
    pub(super) first_failpoints: &'static str,
}

/// The servers and processes of a cluster.
pub(super) struct Cluster {
    pub(super) upstream: Upstream,
    pub(super) hosts: Vec<Arc<Member>>,
    pub(super) workers: Vec<Arc<Member>>,
    /// The home that all others are copies of, or that all processes share.
    base: Home,
    database: Option<SharedDatabase>,
    nats: Option<(Arc<Mutex<Nats>>, CuttingProxy)>,
    dir: PathBuf,
    _homes: TempDir,
}

/// The database that all hosts share.
struct SharedDatabase {
    server: Arc<Mutex<Postgres>>,
    name: String,
    proxy: CuttingProxy,
    /// Its URL through the proxy.
    url: String,
}

impl SharedDatabase {
    async fn start(tools: &Tools, settings: &[&str]) -> Self {
        let server = Postgres::start_with(tools, settings);
        let url = server.database();
        let (address, name) = url.rsplit_once('/').unwrap();
        let (role, _) = address.rsplit_once('@').unwrap();
        let proxy = CuttingProxy::start(server.port()).await;
        let url = format!("{role}@127.0.0.1:{}/{name}", proxy.port());
        Self { name: name.to_owned(), server: Arc::new(Mutex::new(server)), proxy, url }
    }

    /// The lines of the journals, straight from the table, in the form of an export.
    fn lines(&self) -> Vec<u8> {
        let select = "SELECT writer, line FROM cofferdam.entries ORDER BY writer, n";
        let rows = self.server.lock().unwrap_or_else(PoisonError::into_inner).psql(&self.name, select);
        let (mut text, mut before) = (String::new(), "");
        for row in rows.lines() {
            let (writer, line) = row.split_once('|').unwrap();
            if writer != before {
                let header = json!({"journal": writer, "after": {"n": 0, "hash": "0".repeat(64)}});
                text.push_str(&format!("{header}\n"));
                before = writer;
            }
            text.push_str(&format!("{line}\n"));
        }
        text.into_bytes()
    }
}

impl Restarts for Mutex<Postgres> {
    fn restart(&self, is_immediate: bool, after: Duration) {
        let mut server = self.lock().unwrap_or_else(PoisonError::into_inner);
        if is_immediate {
            server.kill();
        } else {
            server.stop();
        }
        std::thread::sleep(after);
        server.start_again();
    }
}

impl Restarts for Mutex<Nats> {
    fn restart(&self, _is_immediate: bool, after: Duration) {
        let mut server = self.lock().unwrap_or_else(PoisonError::into_inner);
        server.kill();
        std::thread::sleep(after);
        server.restart();
    }
}

impl Cluster {
    /// Starts a cluster.
    pub(super) async fn start(name: &str, seed: Option<u64>, begun: Instant, setup: &Setup) -> Self {
        let (dir, upstream) = (directory(name), Upstream::start(seed, begun).await);
        let tools = Tools::find();
        let nats = match setup.has_jobs {
            true => {
                let nats = Nats::start(&tools.clone().unwrap());
                let proxy = CuttingProxy::start(nats.address().port()).await;
                Some((Arc::new(Mutex::new(nats)), proxy))
            }
            false => None,
        };
        let base = Home::new(crate::COFFERDAM);
        prepare(&base, &upstream, &setup.config).await;
        let homes = tempfile::Builder::new().prefix("cofferdam-homes-").tempdir().unwrap();
        let mut config = String::new();
        if let Some((_, proxy)) = &nats {
            config.push_str(&format!("nats = \"nats://127.0.0.1:{}\"\n", proxy.port()));
        }
        let database = match setup.has_database {
            true => Some(SharedDatabase::start(&tools.unwrap(), &setup.postgres).await),
            false => None,
        };
        // All hosts of a cluster have the same key.
        cofferdam_core::host_key::load_or_create(&base.path().join("host.key")).unwrap();
        let home = |name: &str| {
            let Some(database) = &database else { return base.path().to_owned() };
            let home = homes.path().join(name);
            copy(base.path(), &home);
            append_config(
                &home,
                &format!("[audit]\nurl = \"{}\"\n[cluster]\nhost = \"{name}\"\n{config}", database.url),
            );
            home
        };
        if database.is_none() {
            append_config(base.path(), &format!("[cluster]\n{config}"));
        }
        let serve = ["serve", "--listen", "127.0.0.1:0", "--format", "json"];
        let work = ["worker", "--concurrency", "8", "--format", "json"];
        let member =
            |name: String, args: &[&str]| Member::new(&name, &home(&name), args, setup.failpoints, &dir);
        let mut hosts: Vec<_> = (0..HOSTS).map(|n| member(format!("host-{n}"), &serve)).collect();
        hosts[0].begins_with(setup.first_failpoints);
        let workers = if setup.has_jobs { WORKERS } else { 0 };
        let workers: Vec<_> = (0..workers).map(|n| Arc::new(member(format!("worker-{n}"), &work))).collect();
        let hosts: Vec<_> = hosts.into_iter().map(Arc::new).collect();
        hosts.iter().chain(&workers).for_each(|member| member.start());
        Self { upstream, hosts, workers, base, database, nats, dir, _homes: homes }
    }

    /// What faults may hit.
    fn parts(&self) -> Parts {
        Parts {
            hosts: self.hosts.len(),
            workers: self.workers.len(),
            has_database: self.database.is_some(),
            has_nats: self.nats.is_some(),
        }
    }

    fn targets(&self) -> Targets {
        let mut targets = Targets::new(self.hosts.clone(), self.workers.clone());
        targets.database = self.database.as_ref().map(|database| {
            let server: Arc<dyn Restarts> = Arc::clone(&database.server) as _;
            (server, database.proxy.clone())
        });
        targets.nats = self.nats.as_ref().map(|(nats, proxy)| (Arc::clone(nats) as _, proxy.clone()));
        targets
    }

    /// The lines of the journals, straight from the store, in the form of an export.
    fn lines(&self) -> Vec<u8> {
        self.database.as_ref().map_or_else(|| journal_lines(&self.base), SharedDatabase::lines)
    }

    /// Does what the plan of this size says, and judges the histories.
    pub(super) async fn run(&self, size: &Size, begun: Instant) -> Outcome {
        self.run_plan(size, Plan::new(size, self.parts()), begun).await
    }

    /// Does the same with these faults instead of those of the seed.
    pub(super) async fn run_with(&self, size: &Size, faults: Vec<Fault>, begun: Instant) -> Outcome {
        let plan = Plan { faults, ..Plan::new(size, self.parts()) };
        self.run_plan(size, plan, begun).await
    }

    async fn run_plan(&self, size: &Size, plan: Plan, begun: Instant) -> Outcome {
        let plan = Arc::new(plan);
        let clients = clients(begun, &self.hosts, &self.upstream);
        let hits = drive(size, &plan, &clients, &self.targets()).await;
        // A call whose client left may still be about to end.
        tokio::time::sleep(Duration::from_secs(3)).await;
        for member in self.hosts.iter().chain(&self.workers) {
            assert!(member.is_up(), "a process is down: {}", member.said());
        }
        let verdict = judge(&self.dir, &plan, &clients, &self.upstream, &self.lines());
        Outcome { verdict, hits, dir: self.dir.clone() }
    }

    /// Checks that every host gives the same answers, and that an export has the entries that the store has.
    pub(super) fn agrees(&self) {
        hosts_agree(&self.hosts);
        let entries = |text: &str| {
            let heads = ["{\"export\":", "{\"journal\":", "{\"after\":", "{\"checkpoint\":"];
            let is_entry = |line: &&str| !heads.iter().any(|head| line.starts_with(head));
            let mut entries: Vec<_> = text.lines().filter(is_entry).map(str::to_owned).collect();
            entries.sort_unstable();
            entries
        };
        let stored = entries(&String::from_utf8(self.lines()).unwrap());
        for host in &self.hosts {
            let exported = entries(&host.run(&["audit", "export", "-"]).ok());
            assert!(
                exported == stored,
                "an export has {} entries, the store {}",
                exported.len(),
                stored.len()
            );
        }
    }
}

/// Adds to the configuration of a home.
fn append_config(home: &Path, text: &str) {
    let path = home.join("config.toml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(path, config + text).unwrap();
}

/// Copies a home with its permissions.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(status.success(), "{} is not copied", from.display());
}
