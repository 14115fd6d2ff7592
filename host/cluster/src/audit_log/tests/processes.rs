//! Real processes: many at once, some that are killed, and one that is cut off for longer than its lease.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use cofferdam_audit::store::{ChainHead, key_decided};
use cofferdam_audit::{
    AuditErrorKind, AuditLog as _, CallStatus, Filter, KeyDisposition, KeyState, LogSettings, OpenCall,
    OpenOutcome, hex, unhex, wait,
};
use cofferdam_core::clock::SystemClock;
use cofferdam_core::failure::AuditId;
use cofferdam_test_support::log_calls::skipped;
use jiff::Timestamp;

use super::support::*;

const URL: &str = "COFFERDAM_TEST_URL";
const HOME: &str = "COFFERDAM_TEST_HOME";
const CALLS: &str = "COFFERDAM_TEST_CALLS";

/// Begins or runs calls, and says so. It ends its last call when a line comes, and says how that went. Then it waits
/// for another line, or the end of its input.
#[test]
#[ignore = "a process that other tests start"]
fn calls_of_a_process() {
    let text = |name: &str| std::env::var(name).unwrap();
    let home = PathBuf::from(text(HOME));
    let name = home.file_name().unwrap().to_str().unwrap().to_owned();
    let log = log(&text(URL), &home, &name, Arc::new(SystemClock), LogSettings::default(), false);
    let calls = text(CALLS);
    if let Some(count) = calls.strip_prefix("run ") {
        for n in 0..count.parse().unwrap() {
            let key = format!("{}-{n}", std::process::id());
            run_call(&log, &call((n % 3 == 0).then_some(&*key), false));
        }
        return;
    }
    let mut last = None;
    for key in calls.split(' ') {
        let (key, idempotent) = key.split_once(':').unwrap();
        let call = call(Some(key).filter(|key| !key.is_empty()), idempotent == "again");
        assert!(matches!(open(&log, &call), OpenOutcome::Started));
        println!("\nbegun {}", call.audit_id);
        last = Some(call);
    }
    println!("\nready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let ended = wait(log.close(None, value(&last.unwrap())));
    println!("\nended {:?}", ended.map_err(|error| error.kind()));
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// A process with calls of its own, and the calls that it has begun.
struct Process {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    begun: Vec<AuditId>,
}

impl Process {
    fn start(cluster: &Cluster, home: &str, calls: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "audit_log::tests::processes::calls_of_a_process", "--ignored", "--nocapture"])
            .env(HOME, cluster.home(home))
            .env(URL, &cluster.url)
            .env(CALLS, calls)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output, begun: Vec::new() }
    }

    /// Starts one that begins these calls, and waits until they are begun.
    fn begin(cluster: &Cluster, home: &str, calls: &str) -> Self {
        let mut own = Self::start(cluster, home, calls);
        own.read("ready");
        own
    }

    /// Reads up to a line that begins so, and returns the rest of it.
    fn read(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the process ended before `{word}`");
            if let Some(id) = line.strip_prefix("begun ") {
                self.begun.push(AuditId::parse(id.trim()).unwrap());
            }
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    fn kill(mut self) -> Vec<AuditId> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.begun
    }

    fn signal(&self, signal: &str) {
        let done = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status().unwrap();
        assert!(done.success());
    }
}

fn as_call(id: &AuditId, key: Option<&str>, idempotent: bool) -> OpenCall {
    OpenCall { audit_id: id.clone(), ..call(key, idempotent) }
}

/// The host of a killed process knows at once, and others when its lease has expired.
#[test]
fn calls_of_a_killed_process_are_interrupted() {
    let Some(cluster) = Cluster::start() else { return };
    let process = Process::begin(&cluster, "a", "once:once again:again :once");
    let (same, other) = (cluster.host("a"), cluster.host("b"));
    for log in [&same, &other] {
        assert!(matches!(state(log, "once"), KeyState::Running { .. }));
        assert!(!skip(log, &as_call(&process.begun[0], None, false), true), "its process lives");
        let rows = log.reader().unwrap().list(&Filter::default()).unwrap();
        assert!(rows.iter().all(|row| row.status == CallStatus::Running) && rows.len() == 3);
    }
    let begun = process.kill();
    // The server may take a moment to see that the connection has ended.
    until(|| matches!(state(&same, "once"), KeyState::Unknown { .. }));
    until(|| matches!(state(&other, "once"), KeyState::Unknown { .. }));
    assert!(matches!(state(&other, "again"), KeyState::Free), "it may be repeated");
    let rows = other
        .reader()
        .unwrap()
        .list(&Filter { status: Some(CallStatus::Incomplete), ..Filter::default() })
        .unwrap();
    assert_eq!(rows.len(), 3);
    // A call under the key does the interrupted one again.
    let again = call(Some("again"), true);
    assert!(matches!(open(&other, &again), OpenOutcome::Started));
    assert!(matches!(state(&same, "again"), KeyState::Running { .. }));
    close(&other, value(&again));
    assert!(matches!(state(&same, "again"), KeyState::Done { .. }));
    // The journal is given back with the end of that call: the others in it do not look as if they were running there.
    until(|| matches!(state(&same, "once"), KeyState::Unknown { .. }));
    assert!(
        skip(&same, &as_call(&begun[0], None, false), true)
            || skip(&other, &as_call(&begun[0], None, false), true)
    );
    assert!(matches!(state(&same, "once"), KeyState::Free));
    let statuses: Vec<_> =
        begun.iter().map(|id| same.reader().unwrap().call(id).unwrap().unwrap().status).collect();
    assert_eq!(statuses, [CallStatus::Skipped, CallStatus::Resumed, CallStatus::Incomplete]);
    assert!(cluster.findings(&other).is_empty());
    assert!(cluster.findings(&same).is_empty());
}

/// After a crash or a failover, a server begins with all locks free and all leases expired.
#[test]
fn processes_have_time_to_find_a_new_server() {
    let Some(cluster) = Cluster::start() else { return };
    let (first, second) = (cluster.host("a"), cluster.host("b"));
    assert!(matches!(open(&first, &call(Some("k"), true)), OpenOutcome::Started));
    cluster.psql(
        "WITH away AS (INSERT INTO cofferdam.processes (id, host, lock, lease, lease_until) \
         VALUES (gen_random_uuid(), 'away', 1, '1 hour', clock_timestamp() - interval '1 day') RETURNING id) \
         UPDATE cofferdam.writers SET holder = away.id, epoch = epoch + 1 FROM away",
    );
    let since = "UPDATE cofferdam.server_run SET since = clock_timestamp() - interval '2 hours'";
    cluster.psql(since);
    assert!(matches!(state(&second, "k"), KeyState::Free));
    cluster.psql("UPDATE cofferdam.server_run SET run = 'the one before'");
    assert!(matches!(state(&second, "k"), KeyState::Running { .. }));
    cluster.psql(since);
    assert!(matches!(state(&second, "k"), KeyState::Free));
}

#[test]
fn an_interrupted_call_is_resumed_once() {
    let Some(cluster) = Cluster::start() else { return };
    for _ in 0..5 {
        let begun = Process::begin(&cluster, "a", ":again").kill();
        let hosts = [cluster.host("b"), cluster.host("c"), cluster.host("d")];
        let interrupted = as_call(&begun[0], None, true);
        until(|| {
            hosts[0].reader().unwrap().call(&begun[0]).unwrap().unwrap().status == CallStatus::Incomplete
        });
        let started: Vec<_> = std::thread::scope(|scope| {
            let resume = |log| matches!(open(log, &resuming(&interrupted)), OpenOutcome::Started);
            let threads: Vec<_> = hosts.iter().map(|log| scope.spawn(move || resume(log))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(started.iter().filter(|started| **started).count(), 1, "{started:?}");
        assert!(cluster.findings(&hosts[0]).is_empty());
    }
}

/// The process of the interrupted call has ended. Others know only what the database has.
#[test]
fn what_is_written_in_a_taken_journal_is_signed() {
    let Some(cluster) = Cluster::start() else { return };
    let begun = Process::begin(&cluster, "a", ":again :once").kill();
    let log = cluster.host("a");
    until(|| log.reader().unwrap().call(&begun[0]).unwrap().unwrap().status == CallStatus::Incomplete);
    run_call(&log, &resuming(&as_call(&begun[0], None, true)));
    assert!(skip(&log, &as_call(&begun[1], None, false), false));
    wait(log.sign()).unwrap();
    assert_eq!(Cluster::signed(&log), log.end().unwrap());
}

/// They go as others do, although no process signs for them: anything that can write to the database could have added
/// them. So nothing that they say outlives them.
#[test]
fn the_last_entries_of_a_killed_process_are_pruned() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    let mut process = Process::begin(&cluster, "a", ":again");
    run_call(&log, &call(None, true));
    until(|| Cluster::signed(&log) == log.end().unwrap());
    let mut input = process.child.stdin.take().unwrap();
    input.write_all(b"\n").unwrap();
    assert_eq!(process.read("ended"), "Ok(())");
    let begun = process.kill();
    let signed = Cluster::signed(&log).0;
    let (writer, n) =
        log.end().unwrap().0.into_iter().find(|(writer, n)| signed.get(writer) != Some(n)).unwrap();

    let hash =
        cluster.psql(&format!("SELECT encode(hash, 'hex') FROM cofferdam.writers WHERE name = '{writer}'"));
    let (end, mut line) = (ChainHead { n, hash: unhex(&hash).unwrap() }, Vec::new());
    let forged = key_decided(&begun[0], &skipped(true)).append_to(&mut line, end, None);
    let line = String::from_utf8(line).unwrap();
    cluster.psql(&format!(
        "INSERT INTO cofferdam.entries (at, writer, n, line) VALUES (now(), '{writer}', {}, '{}'); \
         UPDATE cofferdam.writers SET n = {}, hash = '\\x{}' WHERE name = '{writer}'",
        forged.n,
        line.trim_end(),
        forged.n,
        hex(&forged.hash),
    ));
    // The server may take a moment to see that the connection has ended.
    let is_held = "SELECT cofferdam.is_held(p.lock) FROM cofferdam.processes p \
                   JOIN cofferdam.writers w ON w.holder = p.id";
    until(|| cluster.psql(&format!("{is_held} WHERE w.name = '{writer}'")) == "f");
    assert_eq!(wait(log.prune(Timestamp::now(), false, "ada".into())).unwrap().calls, 2);
    let first = cluster.psql(&format!("SELECT min(n) FROM cofferdam.entries WHERE writer = '{writer}'"));
    assert_eq!(first, forged.n.to_string());
    assert_eq!(Cluster::signed(&log).0.get(&writer), Some(&n));
    let decided = "SELECT count(*) FROM cofferdam.entries WHERE line LIKE '%key_decided%'";
    assert_eq!(cluster.psql(decided), "1", "no host has written it again");
    assert!(cluster.findings(&log).is_empty());
}

/// A process that is cut off for longer than its lease, and whose journal another one takes, can acknowledge nothing more.
#[test]
fn a_fenced_process_acknowledges_nothing() {
    let Some(cluster) = Cluster::start() else { return };
    let mut process = Process::begin(&cluster, "a", "k:again");
    process.signal("STOP");
    let other = cluster.host("b");
    assert!(matches!(state(&other, "k"), KeyState::Running { .. }));
    cluster.cut();
    until(|| matches!(retried(|| other.key_state(claim("k"))), KeyState::Free));
    let again = call(Some("k"), true);
    assert!(matches!(retried(|| other.open(again.clone())), OpenOutcome::Started));
    process.signal("CONT");
    process.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(process.read("ended"), format!("Err({:?})", AuditErrorKind::Replaced));
    process.child.wait().unwrap();
    close(&other, value(&again));
    let KeyState::Done { audit_id, .. } = state(&other, "k") else { panic!() };
    assert_eq!(audit_id, again.audit_id);
    assert!(cluster.findings(&other).is_empty());
}

#[test]
fn many_processes_write_at_once() {
    let Some(cluster) = Cluster::start() else { return };
    let processes: Vec<_> =
        (0..20).map(|n| Process::start(&cluster, &format!("host-{}", n % 5), "run 12")).collect();
    for mut process in processes {
        assert!(process.child.wait().unwrap().success());
    }
    let log = cluster.host("a");
    let rows = log.reader().unwrap().list(&Filter::default()).unwrap();
    assert_eq!(rows.len(), 20 * 12);
    assert!(rows.iter().all(|row| row.status == CallStatus::Value));
    assert_eq!(cluster.count("keys"), 20 * 4);
    assert!(cluster.findings(&log).is_empty());
    // Journals of ended processes are gone on with.
    let before = cluster.count("writers");
    let call = call(None, true);
    assert!(matches!(open(&log, &call), OpenOutcome::Started));
    close(&log, end(&call, CallStatus::Value, KeyDisposition::Release));
    assert_eq!(cluster.count("writers"), before);
}

#[test]
fn killed_processes_lose_and_double_nothing() {
    let Some(cluster) = Cluster::start() else { return };
    for n in 0..6 {
        let process = Process::start(&cluster, &format!("host-{}", n % 2), "run 1000");
        std::thread::sleep(std::time::Duration::from_millis(300 + 70 * n));
        process.kill();
    }
    let log = cluster.host("a");
    // Signed for by its own process alone: entries since the last signature are there and follow each other.
    let found = cluster.findings(&log);
    assert!(found.is_empty(), "{found:#?}");
    let rows = log.reader().unwrap().list(&Filter::default()).unwrap();
    assert!(rows.iter().filter(|row| !row.status.has_end()).count() <= 6, "one for each process");
    assert!(rows.len() > 6);
}
