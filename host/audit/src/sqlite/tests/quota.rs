//! The quota of sealed bytes: the deleted and the kept ones, and that the sums match.

use super::*;
use crate::command::{KeyClaim, KeyScope, KeyState};
use crate::sqlite::SealedQuota;
use crate::{Part, SealedUsage};

const OUTCOME: usize = 3_000;

fn limited(home: &Path, per_client: u64, in_all: u64) -> SqliteLog {
    let sealed = SealedQuota { per_client, in_all };
    SqliteLog::new(home, LogSettings { sealed, ..LogSettings::default() }).unwrap()
}

fn seal(home: &Path, id: &AuditId, part: Part, bytes: usize) -> crate::Sealed {
    let sealer = Sealer::new(&host_key::load_or_create(&home.join("host.key")).unwrap());
    sealer.seal(id, part, vec![b'x'; bytes]).unwrap()
}

fn claim(key: &str) -> KeyClaim {
    KeyClaim { key: key.into(), fingerprint: [7; 32], at: Timestamp::now(), of: KeyScope::Call }
}

/// Begins a keyed call of a client, with a request of so many bytes.
fn begin(home: &Path, log: &SqliteLog, client: &str, key: &str, request: usize) -> AuditId {
    let (id, at) = (AuditId::mint(), Timestamp::now());
    let received = json!({"connector": "github://acme/hello@0.1.0", "op": "greet", "actor": client});
    let lines = [
        line(1, "received", at, received),
        line(2, "admitted", at, json!({"idempotent": true})),
        line(3, "attempt_started", at, json!({"attempt": 1})),
    ];
    let request = (request > 0).then(|| seal(home, &id, Part::Request, request));
    let (actor, entry) = (Arc::from(client), Entry::new(&id, &lines));
    let call = OpenCall { actor, entry, request, key: Some(claim(key)), ..opening(&id, at) };
    assert!(matches!(done(log.open(call)).unwrap(), OpenOutcome::Started), "{key}");
    id
}

fn end(home: &Path, log: &SqliteLog, id: &AuditId, outcome: usize) {
    let at = Timestamp::now();
    let until = KeyDisposition::Retain(at + std::time::Duration::from_secs(3_600));
    let outcome = Some(seal(home, id, Part::Outcome, outcome));
    let call = CloseCall { key: until, outcome, ..closing(id, at) };
    done(log.close(None, call)).unwrap();
}

fn finished(home: &Path, log: &SqliteLog, client: &str, key: &str) -> AuditId {
    let id = begin(home, log, client, key, 0);
    end(home, log, &id, OUTCOME);
    id
}

/// Returns whether the outcome of the key is kept. The key itself is always taken.
#[track_caller]
fn is_kept(log: &SqliteLog, key: &str) -> bool {
    match done(log.key_state(claim(key))).unwrap() {
        KeyState::Done { outcome, .. } => outcome.is_some(),
        other => unreachable!("{key} is free or running: {other:?}"),
    }
}

/// The usage, which is the sum of what is there.
#[track_caller]
fn usage(home: &Path, log: &SqliteLog) -> Vec<SealedUsage> {
    let usage = log.reader().unwrap().sealed_usage().unwrap();
    let there = "SELECT ifnull(sum(length(sealed)), 0), (SELECT bytes FROM sealed_in_all) FROM entries";
    let there: (u64, u64) = file(home).query_row(there, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let sum = usage.iter().map(|usage| usage.bytes).sum();
    assert_eq!(there, (sum, sum));
    usage
}

#[test]
fn a_clients_oldest_outcomes_go_first() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let log = limited(home, 20_000, 1 << 30);
    finished(home, &log, "quiet", "q");
    for n in 0..10 {
        finished(home, &log, "loud", &format!("k{n}"));
        assert!(usage(home, &log).iter().all(|usage| usage.bytes <= 20_000));
    }
    let kept: Vec<_> = (0..10).map(|n| is_kept(&log, &format!("k{n}"))).collect();
    assert!(!kept[0] && kept[9] && kept.is_sorted(), "{kept:?}");
    assert!(is_kept(&log, "q"));
    assert_eq!(usage(home, &log).len(), 2);
    assert_eq!(findings(home), []);
}

#[test]
fn a_running_call_keeps_its_request_at_the_quota() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let log = limited(home, 10_000, 1 << 30);
    let running = begin(home, &log, "a", "running", 12_000);
    let other = begin(home, &log, "a", "other", 4_000);
    let (request, _) = log.reader().unwrap().sealed(&running).unwrap();
    assert!(request.is_some());
    assert_eq!(log.reader().unwrap().sealed(&other).unwrap(), (None, None), "there is no room for it");
    end(home, &log, &other, OUTCOME);
    assert!(!is_kept(&log, "other"));
    end(home, &log, &running, OUTCOME);
    finished(home, &log, "a", "later");
    finished(home, &log, "a", "last");
    assert!(is_kept(&log, "last"), "there is room again");
    assert!(usage(home, &log).iter().all(|usage| usage.bytes <= 10_000));
    assert_eq!(findings(home), []);
}

#[test]
fn the_largest_client_loses_outcomes_first() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let log = limited(home, 1 << 20, 30_000);
    finished(home, &log, "quiet", "q");
    for n in 0..20 {
        finished(home, &log, "loud", &format!("k{n}"));
    }
    assert!(is_kept(&log, "q") && is_kept(&log, "k19") && !is_kept(&log, "k0"));
    assert!(usage(home, &log).iter().map(|usage| usage.bytes).sum::<u64>() <= 30_000);
}

#[test]
fn step_outcomes_are_dropped_last() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let log = limited(home, 20_000, 1 << 30);
    let step = finished(home, &log, "a", "step");
    let route = "INSERT INTO routes (connector, op, action, step) VALUES ('c', 'o', 'ship', 'first'); \
                 UPDATE calls SET route = (SELECT max(id) FROM routes) WHERE id = ";
    let id: String = step.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    file(home).execute_batch(&format!("{route}x'{id}'")).unwrap();
    for n in 0..10 {
        finished(home, &log, "a", &format!("k{n}"));
    }
    assert!(is_kept(&log, "step") && !is_kept(&log, "k0"));
}

#[test]
fn pruned_outcomes_free_their_quota() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let log = limited(home, 1 << 20, 1 << 30);
    finished(home, &log, "a", "k");
    open(&log, &AuditId::mint()).unwrap();
    file(home).execute("UPDATE keys SET until = 0", []).unwrap();
    let before = Timestamp::now() + std::time::Duration::from_secs(60);
    assert_eq!(done(log.prune(before, false)).unwrap().calls, 1);
    assert_eq!(usage(home, &log), []);
}

#[test]
fn a_first_version_log_is_counted_when_opened() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let id = finished(home, &limited(home, 1 << 20, 1 << 30), "a", "k");
    let back = "DROP TABLE sealed_by_client; DROP TABLE sealed_in_all; DROP INDEX calls_sealed; \
                CREATE TABLE copy AS SELECT * FROM calls; DROP TABLE calls;";
    let v1 = include_str!("../v1.sql");
    let calls = v1.split("CREATE TABLE calls (").nth(1).and_then(|rest| rest.split(";\n\n").next()).unwrap();
    let columns = "id, at, route, actor, idempotent, owner, first, last, verdict, duration, attempts, key";
    let again = format!(
        "{back} CREATE TABLE calls ({calls}; INSERT INTO calls SELECT {columns} FROM copy; DROP TABLE copy; \
         PRAGMA user_version = 1"
    );
    file(home).execute_batch(&again).unwrap();
    let log = limited(home, 1 << 20, 1 << 30);
    assert_eq!(log.reader().unwrap().sealed_usage().unwrap(), [], "not counted yet");
    assert!(is_kept(&log, "k"));
    assert_eq!(usage(home, &log).len(), 1);
    assert!(log.reader().unwrap().sealed(&id).unwrap().1.is_some());
    assert_eq!(findings(home), []);
}
