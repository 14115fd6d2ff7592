//! The file of approvals: its answers under concurrency, its bounds, and what changes to it from outside do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::Path;
use std::time::Duration;

use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use rusqlite::{Connection, params};
use tempfile::TempDir;

use super::{
    AnswerOutcome, Approval, ApprovalBinding, ApprovalFile, ApprovalId, ApprovalState, ApprovalStore,
    ApprovalVerdict, Decision, MAX_WAITING, PersonAnswer, ShownArguments, StoredApproval,
};
use crate::command::LogTime;
use crate::log::wait;

const HOUR: Duration = Duration::from_secs(3600);

fn at(seconds: i64) -> LogTime {
    let time = Timestamp::from_second(1_700_000_000 + seconds).unwrap();
    LogTime { time, clock: time, is_believed: true }
}

fn home() -> (TempDir, ApprovalFile) {
    let home = tempfile::tempdir().unwrap();
    let file = ApprovalFile::new(home.path());
    (home, file)
}

fn database(home: &Path) -> Connection {
    Connection::open(home.join("audit/approvals.db")).unwrap()
}

fn request(n: u32, now: LogTime) -> StoredApproval {
    let arguments = ShownArguments::new(9, "a".repeat(64), Some(format!("{{\"n\":{n}}}")));
    let call = AuditId::mint();
    let approval =
        Approval { arguments, ..Approval::new("github://acme/files@1.0.0", "delete", "mcp:a", &call) };
    let fingerprint = [n.to_be_bytes(); 8].concat().try_into().unwrap();
    let binding = ApprovalBinding::new(&fingerprint, &["p"], 0, None);
    StoredApproval::new(approval, binding, HOUR, now)
}

fn ask(file: &ApprovalFile, n: u32, now: LogTime) -> ApprovalVerdict {
    wait(file.request(request(n, now), AuditId::mint(), now)).unwrap()
}

fn waiting(file: &ApprovalFile, n: u32, now: LogTime) -> ApprovalId {
    match ask(file, n, now) {
        ApprovalVerdict::Waiting(approval) => approval.id,
        other => panic!("{other:?}"),
    }
}

fn answer(file: &ApprovalFile, id: &ApprovalId, decision: Decision, now: LogTime) -> AnswerOutcome {
    let answer = PersonAnswer { decision, by: "ada".to_owned(), reason: Some("fine".to_owned()) };
    wait(file.answer(id.clone(), answer, now)).unwrap()
}

const ONCE: Decision = Decision::ApproveOnce(Duration::from_secs(600));

#[test]
fn a_request_is_asked_once_answered_and_used_once() {
    let (home, file) = home();
    assert_eq!(wait(file.list()).unwrap(), []);
    assert!(!home.path().join("audit").exists(), "reading creates nothing");
    let id = waiting(&file, 1, at(0));
    assert_eq!(waiting(&file, 1, at(1)), id, "the same request waits already");
    assert_eq!(wait(file.get(id.clone())).unwrap().unwrap().approval.arguments.text.unwrap(), "{\"n\":1}");
    let AnswerOutcome::Taken(taken) = answer(&file, &id, ONCE, at(2)) else { panic!("not taken") };
    assert_eq!((taken.state, taken.answered_by.as_deref()), (ApprovalState::Approved, Some("ada")));
    // Another process of the home.
    let other = ApprovalFile::new(home.path());
    assert!(matches!(answer(&other, &id, Decision::Deny, at(602)), AnswerOutcome::TooLate(_)));
    assert!(matches!(ask(&other, 2, at(3)), ApprovalVerdict::Waiting(_)), "another call");
    assert!(matches!(ask(&other, 1, at(3)), ApprovalVerdict::Approved { same_arguments: false, .. }));
    assert_ne!(waiting(&file, 1, at(4)), id, "it is used up");
    assert_eq!(answer(&file, &ApprovalId::mint(), ONCE, at(4)), AnswerOutcome::Missing);
    assert!(matches!(ask(&file, 1, at(3605)), ApprovalVerdict::Waiting(_)));
    let left: Vec<_> = wait(file.list()).unwrap().iter().map(|it| it.state(at(3605))).collect();
    assert_eq!(left, [ApprovalState::Waiting], "those that have ended are removed");
}

#[test]
fn one_of_many_calls_gets_an_approval() {
    let (home, file) = home();
    let id = waiting(&file, 1, at(0));
    answer(&file, &id, ONCE, at(0));
    let verdicts: Vec<_> = std::thread::scope(|scope| {
        let ask_for = || scope.spawn(|| ask(&ApprovalFile::new(home.path()), 1, at(1)));
        let calls: Vec<_> = (0..8).map(|_| ask_for()).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let approved = verdicts.iter().filter(|it| matches!(it, ApprovalVerdict::Approved { .. })).count();
    let waiting = verdicts.iter().filter(|it| matches!(it, ApprovalVerdict::Waiting(_))).count();
    assert_eq!((approved, waiting), (1, 7));
}

#[test]
fn one_of_two_answers_takes_effect() {
    let (home, file) = home();
    for n in 0..4 {
        let id = waiting(&file, n, at(0));
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let answers = [ONCE, ONCE].map(|it| {
                let (id, path) = (id.clone(), home.path());
                scope.spawn(move || answer(&ApprovalFile::new(path), &id, it, at(1)))
            });
            answers.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let taken = outcomes.iter().filter(|it| matches!(it, AnswerOutcome::Taken(_))).count();
        assert_eq!(taken, 1, "{outcomes:?}");
    }
}

#[test]
fn a_changed_row_approves_nothing() {
    let change = |sql: &str| {
        let (home, file) = home();
        let approved = waiting(&file, 1, at(0));
        answer(&file, &approved, ONCE, at(0));
        waiting(&file, 2, at(0));
        assert!(database(home.path()).execute(sql, []).unwrap() > 0, "{sql}");
        for n in [1, 2] {
            let verdict = ask(&file, n, at(1));
            let is_approved = matches!(verdict, ApprovalVerdict::Approved { .. });
            // What decides nothing may be changed, and the row of the other call.
            let is_intact = sql.contains("bytes") || sql.ends_with("WHERE is_waiting = 1");
            assert!(!is_approved || (n == 1 && is_intact), "{sql}: {n}: {verdict:?}");
        }
    };
    change("UPDATE approvals SET bytes = 7");
    change("UPDATE approvals SET value = replace(value, 'delete', 'remove')");
    change("UPDATE approvals SET value = replace(value, '\"waiting\"', '\"approved\"'), mac = zeroblob(32)");
    change("UPDATE approvals SET mac = zeroblob(32)");
    change("UPDATE approvals SET mac = x'00'");
    // The approval of another call.
    change(
        "UPDATE approvals SET value = (SELECT value FROM approvals WHERE is_waiting = 0), \
         mac = (SELECT mac FROM approvals WHERE is_waiting = 0) WHERE is_waiting = 1",
    );
    change("DELETE FROM approvals");
    let swap = "UPDATE approvals SET exact = (SELECT exact FROM approvals WHERE is_waiting = 1), \
                same_arguments = (SELECT same_arguments FROM approvals WHERE is_waiting = 1) WHERE is_waiting = 0";
    change(swap);
}

#[test]
fn an_approval_whose_use_is_not_stored_is_not_used() {
    let (home, file) = home();
    let id = waiting(&file, 1, at(0));
    answer(&file, &id, ONCE, at(0));
    // An update replaces its own row only, and a row of the same number is in the way of another number.
    let ignore = "CREATE TABLE other AS SELECT * FROM approvals; DROP TABLE approvals; \
                  CREATE TABLE approvals (id, exact, same_arguments, is_waiting UNIQUE ON CONFLICT IGNORE, ends, \
                  bytes, value, arguments, mac); \
                  INSERT INTO approvals SELECT id, exact, same_arguments, 7, ends, bytes, value, arguments, mac \
                  FROM other; \
                  INSERT INTO approvals (id, is_waiting, ends) VALUES ('x', 0, 9223372036854775807);";
    database(home.path()).execute_batch(ignore).unwrap();
    let asked = wait(file.request(request(1, at(1)), AuditId::mint(), at(1)));
    assert!(asked.is_err(), "{asked:?}");
}

#[test]
fn triggers_of_the_file_do_nothing() {
    for trigger in [
        "BEFORE UPDATE ON approvals BEGIN SELECT raise(IGNORE); END",
        // One that undoes a change leaves the number of changed rows as it was.
        "AFTER UPDATE ON approvals BEGIN UPDATE approvals SET value = old.value, mac = old.mac WHERE id = old.id; END",
    ] {
        let (home, file) = home();
        let id = waiting(&file, 1, at(0));
        answer(&file, &id, ONCE, at(0));
        database(home.path()).execute_batch(&format!("CREATE TRIGGER t {trigger}")).unwrap();
        assert!(matches!(ask(&file, 1, at(1)), ApprovalVerdict::Approved { .. }), "{trigger}");
        assert!(matches!(ask(&file, 1, at(2)), ApprovalVerdict::Waiting(_)), "{trigger}");
    }
}

#[test]
fn arguments_that_were_changed_are_not_shown() {
    let (home, file) = home();
    let id = waiting(&file, 1, at(0));
    let changed = database(home.path()).execute("UPDATE approvals SET arguments = '{\"n\":7}'", []).unwrap();
    assert_eq!((changed, wait(file.get(id)).unwrap()), (1, None));
}

#[test]
fn another_host_key_or_a_lost_file_approves_nothing() {
    let (home, file) = home();
    let id = waiting(&file, 1, at(0));
    answer(&file, &id, ONCE, at(0));
    std::fs::remove_file(home.path().join("host.key")).unwrap();
    assert!(matches!(ask(&file, 1, at(1)), ApprovalVerdict::Waiting(_)));
    let path = home.path().join("audit/approvals.db");
    std::fs::remove_file(&path).unwrap();
    let id = waiting(&file, 1, at(2));
    answer(&file, &id, ONCE, at(2));
    std::fs::write(&path, vec![b'x'; 8192]).unwrap();
    assert!(matches!(ask(&file, 1, at(3)), ApprovalVerdict::Waiting(_)));
    assert!(path.with_extension("db.damaged").exists());
}

#[test]
fn ten_thousand_requests_wait_and_no_more() {
    let (home, file) = home();
    let first = waiting(&file, 0, at(0));
    let mut database = database(home.path());
    let copies = database.transaction().unwrap();
    for n in 1..MAX_WAITING {
        let copy = "INSERT INTO approvals SELECT ?1, exact, zeroblob(32), 1, ends, bytes, value, arguments, mac \
                    FROM approvals WHERE id = ?2";
        copies.execute(copy, params![format!("copy-{n}"), first.as_str()]).unwrap();
    }
    copies.commit().unwrap();
    assert_eq!(ask(&file, 1, at(1)), ApprovalVerdict::Full);
    assert_eq!(waiting(&file, 0, at(1)), first, "one that waits already is found");
    answer(&file, &first, Decision::Deny, at(1));
    assert!(matches!(ask(&file, 1, at(1)), ApprovalVerdict::Waiting(_)), "an answer makes room");
    assert_eq!(ask(&file, 2, at(2)), ApprovalVerdict::Full);
    assert!(matches!(ask(&file, 2, at(3600)), ApprovalVerdict::Waiting(_)), "so does time");
}
