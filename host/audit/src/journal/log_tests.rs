//! Calls and keys in journals: by one process, by several, and after processes that were killed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use cofferdam_core::clock::SystemClock;
use cofferdam_core::event::operator::{OperatorAction, OperatorEvent};
use cofferdam_core::event::recorded::{AttemptStarted, EventLine};
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

use super::*;
use crate::command::{KeyDisposition, KeyScope};
use crate::journal::writer_dir::{self, WriterDir};
use crate::log::{ActionSet, OperatorEventFilter};
use crate::settings::SealedQuota;

#[path = "log_tests/clock.rs"]
mod clock;
#[path = "log_tests/disk.rs"]
mod disk;
#[path = "log_tests/exported.rs"]
mod exported;
#[path = "log_tests/flipped.rs"]
mod flipped;
#[path = "log_tests/lost.rs"]
mod lost;
#[path = "log_tests/power.rs"]
mod power;
#[path = "log_tests/processes.rs"]
mod processes;
#[path = "log_tests/pruned.rs"]
mod pruned;
#[path = "log_tests/replaced.rs"]
mod replaced;
#[path = "log_tests/support.rs"]
mod support;
#[path = "log_tests/verified.rs"]
mod verified;

use support::*;

impl JournalLog {
    /// Has segments that are followed by the next one at this length.
    fn with_segment_bytes(mut self, segment_bytes: u64) -> Self {
        Arc::get_mut(&mut self.0).unwrap().journal_settings.segment_bytes = segment_bytes;
        self
    }
}

#[test]
fn a_call_without_a_key_makes_no_key_table() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    for _ in 0..3 {
        let call = call(None, true);
        assert!(matches!(open(&log, &call), OpenOutcome::Started));
        assert!(matches!(open(&log, &call), OpenOutcome::Started), "it is open already");
        drop(log.append(&call.audit_id, Entry::new(Vec::new())));
        close(&log, value(&call));
    }
    drop(log);
    let text = text_of(home.path());
    assert_eq!(text.matches("\"received\"").count(), 3);
    assert_eq!(text.matches("\"final\"").count(), 3);
    assert!(text.ends_with('\n') && text.contains("writer_released"), "{text}");
    assert!(!home.path().join("audit/keys.db").exists());
}

#[test]
fn a_key_is_claimed_once_and_keeps_its_outcome() {
    let home = tempfile::tempdir().unwrap();
    let (one, other) = (log(home.path()), log(home.path()));
    let first = call(Some("k"), false);
    assert!(matches!(state(&one, "k"), KeyState::Free));
    assert!(matches!(open(&one, &first), OpenOutcome::Started));
    for log in [&one, &other] {
        assert!(matches!(state(log, "k"), KeyState::Running { .. }));
        let opened = open(log, &call(Some("k"), false));
        assert!(matches!(opened, OpenOutcome::KeyInUse(KeyState::Running { .. })), "{opened:?}");
    }
    close(&one, value(&first));
    for log in [&one, &other] {
        let KeyState::Done { audit_id, outcome, .. } = state(log, "k") else { panic!() };
        assert_eq!((audit_id, outcome.unwrap().bytes()), (first.audit_id.clone(), &b"the outcome"[..]));
        let different = KeyClaim { fingerprint: [8; 32], ..claim("k") };
        assert!(matches!(wait_for(log.key_state(different)).unwrap(), KeyState::Different { .. }));
        let later = Timestamp::now() + jiff::SignedDuration::from_hours(2);
        let expired = KeyClaim { at: later, ..claim("k") };
        assert!(matches!(wait_for(log.key_state(expired)).unwrap(), KeyState::Free));
    }
}

#[test]
fn a_released_key_is_free() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    for _ in 0..2 {
        let call = call(Some("k"), false);
        assert!(matches!(open(&log, &call), OpenOutcome::Started));
        close(&log, end(&call, CallStatus::Failure, KeyDisposition::Release));
    }
}

/// The next process knows the state of a key, at whatever write the kill was.
#[test]
fn the_key_table_follows_the_journal_after_a_kill() {
    let home = tempfile::tempdir().unwrap();
    let killed = log(home.path());
    let [only_claimed, ended] = ["claimed", "ended"].map(|key| call(Some(key), false));
    let keys = killed.0.keys().unwrap();
    let pending = PendingOpen::new(&killed.0, &only_claimed.audit_id);
    let journal = killed.0.own_journal().unwrap();
    killed.0.claim(&keys, &only_claimed, only_claimed.key.as_ref().unwrap(), &journal).unwrap();
    drop(journal);
    drop(keys);
    assert!(matches!(state(&killed, "claimed"), KeyState::Running { .. }));
    drop(pending);
    assert!(matches!(open(&killed, &ended), OpenOutcome::Started));
    // The end is in the journal, and not yet in the table.
    wait_for(killed.0.end(None, &value(&ended), None).unwrap()).unwrap();
    kill(killed);
    let next = log(home.path());
    assert!(matches!(state(&next, "claimed"), KeyState::Free), "nothing of it ran");
    assert!(matches!(state(&next, "ended"), KeyState::Done { outcome: Some(_), .. }));
}

#[test]
fn a_lost_or_damaged_key_table_is_made_again() {
    let home = tempfile::tempdir().unwrap();
    let first = log(home.path());
    let keys = ["value", "unknown", "free", "interrupted", "skipped", "decided", "decided elsewhere"];
    let calls = keys.map(|key| call(Some(key), false));
    calls.iter().for_each(|call| drop(open(&first, call)));
    close(&first, value(&calls[0]));
    close(&first, end(&calls[1], CallStatus::Cancelled, KeyDisposition::Undetermined));
    close(&first, end(&calls[2], CallStatus::Failure, KeyDisposition::Release));
    close(&first, end(&calls[5], CallStatus::Cancelled, KeyDisposition::Undetermined));
    close(&first, end(&calls[6], CallStatus::Cancelled, KeyDisposition::Undetermined));
    assert!(skip(&first, &calls[5], true));
    // Decided by another process, whose journal may be read first.
    let other = log(home.path());
    assert!(skip(&other, &calls[6], true));
    drop(other);
    kill(first);
    assert!(skip(&log(home.path()), &calls[4], false));
    let states = |log: &JournalLog| keys.map(|key| format!("{:?}", state(log, key)));
    let before = states(&log(home.path()));
    let path = home.path().join("audit/keys.db");
    let whole = fs::read(&path).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..200 {
        let mut bytes = whole.clone();
        match round {
            0 => bytes.clear(),
            _ => bytes[rng.usize(..whole.len())] ^= 1 << rng.u8(..8),
        }
        fs::write(&path, bytes).unwrap();
        assert_eq!(states(&log(home.path())), before, "{round}");
    }
    // Also while a process uses it.
    let log = log(home.path());
    assert_eq!(states(&log), before);
    let rows = before.iter().filter(|state| *state != "Free").count();
    for n in 0..rows {
        let other = rusqlite::Connection::open(&path).unwrap();
        let remove = "DELETE FROM keys WHERE key IN (SELECT key FROM keys LIMIT 1 OFFSET ?1)";
        let removed = other.execute(remove, [n]).unwrap();
        drop(other);
        assert_eq!(removed, 1);
        assert_eq!(states(&log), before, "row {n} is gone");
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(states(&log), before);
}

/// An older copy of the table lacks keys that the journals have.
#[test]
fn an_older_key_table_is_brought_up_to_date() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("audit/keys.db");
    let run = |key: &str| run_call(&log(home.path()), call(Some(key), false));
    run("a");
    let older = fs::read(&path).unwrap();
    run("b");
    fs::write(&path, older).unwrap();
    let log = log(home.path());
    assert!(matches!(state(&log, "a"), KeyState::Done { .. }));
    assert!(matches!(state(&log, "b"), KeyState::Done { .. }));
}

/// A journal with more facts than are read at once.
#[test]
fn many_keys_are_brought_up_to_date() {
    let home = tempfile::tempdir().unwrap();
    let keys: Vec<_> = (0..150).map(|number| format!("k{number}")).collect();
    let first = log(home.path());
    keys.iter().for_each(|key| drop(run_call(&first, call(Some(key), false))));
    drop(first);
    fs::remove_file(home.path().join("audit/keys.db")).unwrap();
    let log = log(home.path());
    assert!(keys.iter().all(|key| matches!(state(&log, key), KeyState::Done { .. })));
}

#[test]
fn an_interrupted_call_is_resumed_by_one_other_call() {
    let home = tempfile::tempdir().unwrap();
    let before = call(None, true);
    interrupted(home.path(), &[&before]);
    let logs = [log(home.path()), log(home.path())];
    let is_resumed = |log: &JournalLog| matches!(open(log, &resuming(&before)), OpenOutcome::Started);
    let is_resumed = &is_resumed;
    let resumed: usize = std::thread::scope(|scope| {
        let threads =
            [0, 1, 0, 1].map(|of| (of, &logs)).map(|(of, logs)| scope.spawn(move || is_resumed(&logs[of])));
        threads.map(|thread| usize::from(thread.join().unwrap())).iter().sum()
    });
    assert_eq!(resumed, 1);
    assert!(!skip(&logs[0], &before, true), "it is resolved");
    let text = text_of(home.path());
    assert_eq!(text.matches("\"type\":\"resumed\"").count(), 1, "{text}");
    assert!(text.contains("\"actor\":\"bob\"") && text.contains("\"seq\":4,\"type\":\"resumed\""), "{text}");
}

#[test]
fn calls_beside_one_that_is_resumed_stay_interrupted() {
    let home = tempfile::tempdir().unwrap();
    let [first, second] = [call(None, true), call(None, true)];
    interrupted(home.path(), &[&first, &second]);
    let log = log(home.path());
    let again = resuming(&first);
    assert!(matches!(open(&log, &again), OpenOutcome::Started));
    let status = |call: &OpenCall| log.reader().unwrap().call(&call.audit_id).unwrap().unwrap().status;
    let is_incomplete = |call: &OpenCall| status(call) == CallStatus::Incomplete;
    assert!(is_incomplete(&second) && !is_incomplete(&first) && !is_incomplete(&again));
    assert!(matches!(open(&log, &resuming(&second)), OpenOutcome::Started));
}

#[test]
fn concurrent_calls_under_one_key_run_in_turn() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let home = tempfile::tempdir().unwrap();
    let log = Arc::new(log(home.path()));
    for round in 0..20 {
        let (key, failures) = (format!("k{round}"), Arc::new(AtomicUsize::new(3)));
        let (running, ran) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let calls = (0..12).map(|_| {
            let (log, key, failures) = (Arc::clone(&log), key.clone(), Arc::clone(&failures));
            let (running, ran) = (Arc::clone(&running), Arc::clone(&ran));
            runtime.spawn(async move {
                let call = call(Some(&key), true);
                loop {
                    match log.open(call.clone()).await.unwrap() {
                        OpenOutcome::Started => {}
                        OpenOutcome::KeyInUse(KeyState::Done { .. }) => return,
                        _ => {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                            continue;
                        }
                    }
                    assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two calls run at once");
                    ran.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let fails =
                        failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
                    running.fetch_sub(1, Ordering::SeqCst);
                    let end = match fails {
                        Ok(_) => end(&call, CallStatus::Failure, KeyDisposition::Release),
                        Err(_) => value(&call),
                    };
                    return log.close(None, end).await.unwrap();
                }
            })
        });
        let calls: Vec<_> = calls.collect();
        calls.into_iter().for_each(|call| runtime.block_on(call).unwrap());
        assert_eq!(ran.load(Ordering::SeqCst), 4, "round {round}");
    }
    runtime.shutdown_background();
}

#[test]
fn a_call_that_did_not_get_its_key_claims_none_in_the_journal() {
    let home = tempfile::tempdir().unwrap();
    let (acts, waits) = (call(Some("k"), true), call(Some("k"), true));
    let first = log(home.path());
    assert!(matches!(open(&first, &acts), OpenOutcome::Started));
    assert!(matches!(open(&first, &waits), OpenOutcome::KeyInUse(KeyState::Running { .. })));
    close(&first, value(&acts));
    // It gets the outcome of the other one.
    let begin = Some(Box::new(OpenCall { key: None, ..waits.clone() }));
    wait_for(first.close(begin, end(&waits, CallStatus::Value, KeyDisposition::Release))).unwrap();
    drop(first);
    for is_lost in [false, true] {
        if is_lost {
            fs::remove_file(home.path().join("audit/keys.db")).unwrap();
        }
        let next = log(home.path());
        next.0
            .read_journal_keys(&next.0.keys().unwrap().table, &writer_dir::names(next.0.root()).unwrap())
            .unwrap();
        let found = state(&next, "k");
        assert!(matches!(&found, KeyState::Done { audit_id, .. } if *audit_id == acts.audit_id), "{found:?}");
    }
}

/// The table is brought up to date from the journal while a call has claimed the key, and has no entry yet.
#[test]
fn a_claim_stands_while_earlier_calls_are_read() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    for _ in 0..2 {
        let failed = call(Some("k"), true);
        assert!(matches!(open(&log, &failed), OpenOutcome::Started));
        close(&log, end(&failed, CallStatus::Failure, KeyDisposition::Release));
    }
    let (keys, journal) = (log.0.keys().unwrap(), log.0.own_journal().unwrap());
    let next = call(Some("k"), true);
    let _pending = PendingOpen::new(&log.0, &next.audit_id);
    let claimed = log.0.claim(&keys, &next, next.key.as_ref().unwrap(), &journal).unwrap();
    assert!(matches!(claimed, ClaimOutcome::Claimed { .. }));
    log.0.read_journal_keys(&keys.table, std::slice::from_ref(&journal.writer)).unwrap();
    assert!(matches!(state(&log, "k"), KeyState::Running { audit_id } if audit_id == next.audit_id));
}

/// A call under the key `k` that was received so many seconds ago.
fn received_ago(seconds: i64) -> OpenCall {
    let at = Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
    OpenCall { at, ..call_at(Some("k"), false, at) }
}

/// The call that is received first gets the key last, in another process. A third one reads both journals.
#[test]
fn a_returned_key_is_not_taken_from_a_later_call() {
    let home = tempfile::tempdir().unwrap();
    let (waits, fails) = (received_ago(20), received_ago(10));
    let (first, second) = (log(home.path()), log(home.path()));
    for log in [&first, &second] {
        // In this order the journals are read.
        log.0.own_journal().unwrap();
        assert!(matches!(state(log, "k"), KeyState::Free));
    }
    assert!(matches!(open(&second, &fails), OpenOutcome::Started));
    assert!(matches!(open(&first, &waits), OpenOutcome::KeyInUse(KeyState::Running { .. })));
    close(&second, end(&fails, CallStatus::Failure, KeyDisposition::Release));
    assert!(matches!(open(&first, &waits), OpenOutcome::Started));
    let third = log(home.path());
    let opened = open(&third, &received_ago(0));
    assert!(matches!(opened, OpenOutcome::KeyInUse(KeyState::Running { .. })), "{opened:?}");
    close(&first, value(&waits));
    drop((first, second, third));
    for is_lost in [false, true] {
        if is_lost {
            fs::remove_file(home.path().join("audit/keys.db")).unwrap();
        }
        let found = state(&log(home.path()), "k");
        assert!(
            matches!(&found, KeyState::Done { audit_id, .. } if *audit_id == waits.audit_id),
            "{found:?}"
        );
    }
}

/// An action, as `name@version`, with the step `one`, under the key `k`.
fn action(name: &str) -> OpenCall {
    let of = KeyScope::Action { action: name.into(), steps: vec!["k/one".into()] };
    OpenCall { key: Some(KeyClaim { of, ..claim("k") }), ..call(Some("k"), true) }
}

/// An outcome that was kept until a second ago.
fn expired() -> KeyDisposition {
    KeyDisposition::Retain(Timestamp::now() - jiff::SignedDuration::from_secs(1))
}

/// An action that ended in a later step goes on under its key. Another one would end half done there.
#[test]
fn done_steps_keep_other_actions_from_a_key() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    for has_value in [false, true] {
        let (begun, step) = (action("act@1.0.0"), step_call("k/one"));
        assert!(matches!(open(&log, &begun), OpenOutcome::Started));
        if !has_value {
            assert!(matches!(open(&log, &step), OpenOutcome::Started));
            close(&log, end(&step, CallStatus::Value, expired()));
        }
        let (status, key) = match has_value {
            true => (CallStatus::Value, expired()),
            false => (CallStatus::Failure, KeyDisposition::Release),
        };
        close(&log, end(&begun, status, key));
        match (has_value, open(&log, &action("other@1.0.0"))) {
            (false, OpenOutcome::KeyInUse(KeyState::Different { audit_id })) => {
                assert_eq!(audit_id, step.audit_id);
            }
            (true, OpenOutcome::Started) => {}
            (_, other) => panic!("{has_value}: {other:?}"),
        }
    }
}

/// A power cut, or a copy that is put back, may leave a table from the time when the other call had the key.
#[test]
fn an_older_table_frees_no_key_that_is_taken() {
    let home = tempfile::tempdir().unwrap();
    let (waits, fails) = (received_ago(20), received_ago(10));
    let (first, second) = (log(home.path()), log(home.path()));
    for log in [&first, &second] {
        // In this order the journals are read.
        log.0.own_journal().unwrap();
    }
    assert!(matches!(open(&second, &fails), OpenOutcome::Started));
    let table = first.0.keys().unwrap().table;
    let older = table.get(&key_digest("k")).unwrap().unwrap();
    close(&second, end(&fails, CallStatus::Failure, KeyDisposition::Release));
    assert!(matches!(open(&first, &waits), OpenOutcome::Started));
    close(&first, value(&waits));
    let writers = writer_dir::names(first.0.root()).unwrap();
    let restored = table.change(|keys| {
        writers.iter().for_each(|writer| keys.note_read(writer, 0));
        keys.put(&key_digest("k"), &older)
    });
    restored.unwrap();
    let found = state(&log(home.path()), "k");
    assert!(matches!(&found, KeyState::Done { audit_id, .. } if *audit_id == waits.audit_id), "{found:?}");
}

/// An action runs again once its outcome has expired. Another process may read the journal then.
#[test]
fn expired_steps_of_an_action_stay_forgotten() {
    for is_key_used in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let (first, begun, step) = (log(home.path()), action("act@1.0.0"), step_call("k/one"));
        for call in [&begun, &step] {
            assert!(matches!(open(&first, call), OpenOutcome::Started));
        }
        for call in [&step, &begun] {
            close(&first, end(call, CallStatus::Value, expired()));
        }
        if is_key_used {
            // Another call has the expired key, and gives it back.
            let other = call(Some("k"), true);
            assert!(matches!(open(&first, &other), OpenOutcome::Started));
            close(&first, end(&other, CallStatus::Failure, KeyDisposition::Release));
        }
        assert!(matches!(open(&first, &action("act@1.0.0")), OpenOutcome::Started));
        let second = log(home.path());
        assert!(matches!(state(&second, "k"), KeyState::Running { .. }));
        // A step that fails gives its key back. What others read then does not bring the old step back.
        for log in [&second, &first] {
            let again = step_call("k/one");
            let opened = open(log, &again);
            assert!(matches!(opened, OpenOutcome::Started), "{opened:?}");
            close(log, end(&again, CallStatus::Failure, KeyDisposition::Release));
            assert!(matches!(state(&self::log(home.path()), "k/one"), KeyState::Free));
        }
    }
}

/// Their outcomes may have been kept for longer, by another setting or by a clock that was ahead.
#[test]
fn steps_stand_no_longer_than_their_action() {
    for is_lost in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let first = log(home.path());
        let begun = run_at(Timestamp::now() - jiff::SignedDuration::from_secs(20));
        let step = step_of(&begun);
        for call in [&begun, &step] {
            assert!(matches!(open(&first, call), OpenOutcome::Started));
        }
        close(&first, value(&step));
        close(&first, end(&begun, CallStatus::Value, expired()));
        drop(first);
        if is_lost {
            fs::remove_file(home.path().join("audit/keys.db")).unwrap();
        }
        let (log, again) = (log(home.path()), run_at(Timestamp::now()));
        for call in [&again, &step_of(&again)] {
            let opened = open(&log, call);
            assert!(matches!(opened, OpenOutcome::Started), "{is_lost}: {opened:?}");
        }
    }
}

/// The outcome of a step stands until its action has a value, whatever else runs under the keys.
#[test]
fn other_calls_make_no_step_of_an_action_void() {
    let home = tempfile::tempdir().unwrap();
    let (log, begun, step) = (log(home.path()), action("act@1.0.0"), step_call("k/one"));
    for call in [&begun, &step] {
        assert!(matches!(open(&log, call), OpenOutcome::Started));
    }
    close(&log, end(&step, CallStatus::Value, expired()));
    close(&log, end(&begun, CallStatus::Failure, KeyDisposition::Release));
    let other = call(Some("k"), true);
    assert!(matches!(open(&log, &other), OpenOutcome::Started));
    close(&log, end(&other, CallStatus::Value, expired()));
    let opened = open(&log, &call(Some("k/one"), true));
    assert!(matches!(opened, OpenOutcome::KeyInUse(KeyState::Done { .. })), "{opened:?}");
    assert!(matches!(open(&log, &action("act@1.0.0")), OpenOutcome::Started));
    let opened = open(&log, &step_call("k/one"));
    assert!(matches!(opened, OpenOutcome::KeyInUse(KeyState::Done { .. })), "{opened:?}");
}

/// Only the order of the runs in the journal tells which outcomes of steps are void.
#[test]
fn a_new_key_table_has_no_steps_that_are_void() {
    for fails_at_once in [true, false] {
        let home = tempfile::tempdir().unwrap();
        let first = log(home.path());
        let ago = |seconds| Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
        let (begun, again) = (run_at(ago(20)), run_at(ago(10)));
        let old = KeyDisposition::Retain(ago(15));
        for run in [&begun, &again] {
            let step = step_of(run);
            assert!(matches!(open(&first, run), OpenOutcome::Started));
            if run.audit_id == begun.audit_id || !fails_at_once {
                assert!(matches!(open(&first, &step), OpenOutcome::Started));
                close(&first, end(&step, CallStatus::Value, old));
            }
            match run.audit_id == begun.audit_id {
                true => close(&first, end(run, CallStatus::Value, old)),
                false => close(&first, end(run, CallStatus::Failure, KeyDisposition::Release)),
            }
        }
        drop(first);
        fs::remove_file(home.path().join("audit/keys.db")).unwrap();
        let (log, last) = (log(home.path()), run_at(Timestamp::now()));
        assert!(matches!(open(&log, &last), OpenOutcome::Started));
        match (fails_at_once, open(&log, &step_of(&last))) {
            // The run that began anew came to no step.
            (true, OpenOutcome::Started) => {}
            // Its step was done.
            (false, OpenOutcome::KeyInUse(KeyState::Done { .. })) => {}
            (_, other) => panic!("{fails_at_once}: {other:?}"),
        }
    }
}

/// The process of the interrupted call may end between a look at its key and the claim.
#[test]
fn the_key_of_an_interrupted_call_is_not_claimed_past_it() {
    let home = tempfile::tempdir().unwrap();
    interrupted(home.path(), &[&call(Some("k"), true)]);
    let (log, next) = (log(home.path()), call(Some("k"), true));
    let (keys, journal) = (log.0.keys().unwrap(), log.0.own_journal().unwrap());
    let claimed = log.0.claim(&keys, &next, next.key.as_ref().unwrap(), &journal).unwrap();
    assert!(matches!(claimed, ClaimOutcome::Interrupted));
}

#[test]
fn the_outcome_of_a_key_is_that_of_its_interrupted_call() {
    let home = tempfile::tempdir().unwrap();
    let (before, other) = (call(Some("k"), true), call(Some("k"), true));
    interrupted(home.path(), &[&before]);
    let log = log(home.path());
    log.0.keys().unwrap().table.change(|keys| keys.remove(&key_digest("k"))).unwrap();
    run_call(&log, other.clone());
    let resuming = OpenCall { key: Some(claim("k")), ..resuming(&before) };
    assert!(matches!(open(&log, &resuming), OpenOutcome::KeyInUse(KeyState::Done { .. })));
    let row = log.reader().unwrap().call(&before.audit_id).unwrap().unwrap();
    assert_eq!(row.status, CallStatus::Resumed);
}

#[test]
fn the_key_of_an_interrupted_call_resumes_it_if_that_is_safe() {
    // The installed package may say something else than that of the interrupted call.
    for (was_idempotent, is_idempotent) in [(true, true), (true, false), (false, true), (false, false)] {
        let home = tempfile::tempdir().unwrap();
        let before = call(Some("k"), was_idempotent);
        interrupted(home.path(), &[&before]);
        let log = log(home.path());
        match (was_idempotent && is_idempotent, open(&log, &call(Some("k"), is_idempotent))) {
            (true, OpenOutcome::Started) => {
                assert!(matches!(open(&log, &resuming(&before)), OpenOutcome::AlreadyResolved));
                assert!(matches!(state(&log, "k"), KeyState::Running { .. }));
            }
            (false, OpenOutcome::KeyInUse(KeyState::Unknown { audit_id })) => {
                assert_eq!(audit_id, before.audit_id)
            }
            (_, other) => panic!("{other:?}"),
        }
    }
}

/// An operator resumes it with a package that allows that, in a process that is killed before the call is in the journal.
#[test]
fn a_claim_alone_lets_no_call_be_repeated() {
    let home = tempfile::tempdir().unwrap();
    let before = call(Some("k"), false);
    interrupted(home.path(), &[&before]);
    let killed = log(home.path());
    let again = OpenCall { idempotent: true, key: Some(claim("k")), ..resuming(&before) };
    let keys = killed.0.keys().unwrap();
    let writer = keys.table.get(&key_digest("k")).unwrap().unwrap().writer;
    let dir = WriterDir::take_free(killed.0.root(), &writer).unwrap().unwrap();
    let signed = killed.0.signed_heads().unwrap().get(&writer).copied();
    let adopted = Journal::open(dir, killed.0.journal_settings, signed).unwrap().unwrap();
    let adopted = killed.0.held(adopted);
    let claimed = killed.0.claim(&keys, &again, again.key.as_ref().unwrap(), &adopted).unwrap();
    assert!(matches!(claimed, ClaimOutcome::Claimed { .. }));
    drop((claimed, keys, adopted));
    kill(killed);
    let opened = open(&log(home.path()), &call(Some("k"), true));
    let OpenOutcome::KeyInUse(KeyState::Unknown { audit_id }) = opened else { panic!("{opened:?}") };
    assert_eq!(audit_id, before.audit_id);
}

#[test]
fn an_operator_resumes_what_no_key_repeats() {
    let home = tempfile::tempdir().unwrap();
    let before = call(Some("k"), false);
    interrupted(home.path(), &[&before]);
    let log = log(home.path());
    let again = OpenCall { key: Some(claim("k")), ..resuming(&before) };
    assert!(matches!(open(&log, &again), OpenOutcome::Started));
    assert!(matches!(state(&log, "k"), KeyState::Running { .. }));
    let late = OpenCall { key: Some(claim("k")), ..resuming(&before) };
    assert!(matches!(open(&log, &late), OpenOutcome::KeyInUse(KeyState::Running { .. })));
    close(&log, value(&again));
    assert!(matches!(state(&log, "k"), KeyState::Done { audit_id, .. } if audit_id == again.audit_id));
}

#[test]
fn a_resuming_call_without_effect_stays_unresolved() {
    for key in [None, Some("k")] {
        let home = tempfile::tempdir().unwrap();
        let mut before = call(key, true);
        interrupted(home.path(), &[&before]);
        // As often as it is cancelled, by the same process or by another one.
        let mut first = log(home.path());
        for round in 0..4 {
            let again = if key.is_none() { resuming(&before) } else { call(key, true) };
            assert!(matches!(open(&first, &again), OpenOutcome::Started), "{round}");
            close(&first, end(&again, CallStatus::Cancelled, KeyDisposition::Release));
            before = again;
            if round == 1 {
                first = log(home.path());
            }
        }
        let text = text_of(home.path());
        assert_eq!(text.matches("cut_short").count(), 4, "{text}");
        assert_eq!(text.matches("\"final\"").count(), 0);
        assert!(skip(&first, &before, true));
        assert!(!skip(&first, &before, true));
        assert!(matches!(open(&first, &call(key, true)), OpenOutcome::Started));
    }
}

#[test]
fn a_skipped_call_keeps_its_key_unless_it_is_freed() {
    for frees_key in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let before = call(Some("k"), false);
        interrupted(home.path(), &[&before]);
        let log = log(home.path());
        assert!(skip(&log, &before, frees_key));
        let text = text_of(home.path());
        assert!(text.contains("it is there") && text.contains("\"seq\":4,\"type\":\"skipped\""), "{text}");
        match (frees_key, open(&log, &call(Some("k"), false))) {
            (true, OpenOutcome::Started) => {}
            (false, OpenOutcome::KeyInUse(KeyState::Unknown { audit_id })) => {
                assert_eq!(audit_id, before.audit_id);
                assert!(!skip(&log, &before, false), "that was decided");
                assert!(skip(&log, &before, true), "and may be freed");
                assert!(!skip(&log, &before, true), "once");
                assert!(matches!(open(&log, &call(Some("k"), false)), OpenOutcome::Started));
            }
            (_, other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_unknown_key_of_an_ended_call_is_decided_once() {
    for frees_key in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let log = log(home.path());
        let before = call(Some("k"), false);
        assert!(matches!(open(&log, &before), OpenOutcome::Started));
        close(&log, end(&before, CallStatus::Cancelled, KeyDisposition::Undetermined));
        assert!(matches!(open(&log, &resuming(&before)), OpenOutcome::AlreadyResolved));
        assert!(matches!(state(&log, "k"), KeyState::Unknown { .. }));
        assert!(skip(&log, &before, frees_key));
        assert!(!skip(&log, &before, false));
        assert_eq!(text_of(home.path()).matches("key_decided").count(), 1);
        assert_eq!(frees_key, matches!(open(&log, &call(Some("k"), false)), OpenOutcome::Started));
    }
}

/// The process that decides may have opened the key table before the call was made.
#[test]
fn a_decision_outlives_a_later_look_at_the_journal() {
    for frees_key in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let (first, second) = (log(home.path()), log(home.path()));
        assert!(matches!(state(&second, "k"), KeyState::Free));
        let unknown = call(Some("k"), false);
        assert!(matches!(open(&first, &unknown), OpenOutcome::Started));
        close(&first, end(&unknown, CallStatus::Cancelled, KeyDisposition::Undetermined));
        assert!(skip(&second, &unknown, frees_key));
        drop(second);
        let third = log(home.path());
        assert_eq!(matches!(state(&third, "k"), KeyState::Free), frees_key);
        assert!(!skip(&third, &unknown, false), "it is decided");
    }
}

#[test]
fn an_end_that_could_not_be_written_is_written_later() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let [first, second] = [(); 2].map(|()| call(None, false));
    [&first, &second].iter().for_each(|call| drop(open(&log, call)));
    let break_file = || {
        let journal = log.0.own_journal().unwrap();
        journal.committer.with_journal(Journal::break_segment);
    };
    break_file();
    assert!(wait_for(log.close(None, value(&first))).is_err());
    // Its caller tries again.
    close(&log, value(&first));
    break_file();
    assert!(wait_for(log.close(None, value(&second))).is_err());
    // Another call is written, and with it the end; its caller tries again after that.
    assert!(matches!(open(&log, &call(None, false)), OpenOutcome::Started));
    close(&log, value(&second));
    drop(log);
    assert_eq!(text_of(home.path()).matches("\"final\"").count(), 2);
}

/// Otherwise events would be missing before the end, as if they had been removed.
#[test]
fn an_end_has_the_events_that_failed_before_it() {
    let home = tempfile::tempdir().unwrap();
    let settings = LogSettings { durability: Durability::Power, ..LogSettings::default() };
    let log = JournalLog::new(home.path(), settings, Arc::new(SystemClock));
    let call = call(None, false);
    open(&log, &call);
    let event = RecordedEvent::AttemptStarted(AttemptStarted::default());
    let line = EventLine { at: Timestamp::UNIX_EPOCH, seq: 4, event }.to_text();
    let entry = Entry::new([call.entry.events(), std::slice::from_ref(&line)].concat());
    let end = value(&OpenCall { entry, ..call.clone() });
    let journal = log.0.own_journal().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let closed = journal.committer.with_journal(|journal| {
        let _runtime = runtime.enter();
        journal.break_segment();
        // Its caller leaves before it is written, and the call ends.
        drop(log.append(&call.audit_id, Entry::new(vec![line])));
        log.close(None, end.clone())
    });
    // With the events, or after them.
    let closed = runtime.block_on(closed);
    closed.or_else(|_| wait_for(log.close(None, end))).unwrap();
    drop((journal, runtime, log));
    assert_eq!(text_of(home.path()).matches("\"attempt_started\"").count(), 2);
    assert_eq!(findings(home.path()), []);
}

#[test]
fn processes_claim_each_key_once() {
    let home = tempfile::tempdir().unwrap();
    let started: usize = std::thread::scope(|scope| {
        let threads = [(); 6].map(|()| {
            scope.spawn(|| {
                let log = log(home.path());
                let calls = (0..30).map(|key| call(Some(&format!("key {key}")), false));
                let started = calls.filter(|call| {
                    let is_started = matches!(open(&log, call), OpenOutcome::Started);
                    if is_started {
                        close(&log, value(call));
                    }
                    is_started
                });
                started.count()
            })
        });
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(started, 30);
}

/// Runs calls in two processes at once, and returns the directories of their journals.
fn two_journals(home: &Path) -> Vec<PathBuf> {
    let logs = [log(home), log(home)];
    for (log, key) in logs.iter().zip(["a", "b"]) {
        for key in [None, Some(key)] {
            run_call(log, call(key, false));
        }
        sign(log);
    }
    drop(logs);
    journals(home)
}

#[test]
fn statements_cover_every_journal() {
    let home = tempfile::tempdir().unwrap();
    let journals = two_journals(home.path());
    assert_eq!(journals.len(), 2);
    let note = fs::read_to_string(home.path().join("audit/checkpoint")).unwrap();
    assert_eq!(note.matches("\nwriter ").count(), 2, "{note}");
    let log = log(home.path());
    assert_eq!(log.loss().unwrap(), None);
    assert!(matches!(open(&log, &call(Some("c"), false)), OpenOutcome::Started));
}

/// A call without a key goes on; one with a key may be one that was lost, and is refused.
#[test]
fn missing_or_older_parts_are_a_loss() {
    let newest = |journal: &Path| {
        let first = super::super::segment::segments(journal).unwrap().pop().unwrap();
        journal.join(format!("{first:012}.jsonl"))
    };
    let edit = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        fs::write(path, text.replace("writer_released", "writer_releasee")).unwrap();
    };
    type Loss<'l> = (&'l str, Box<dyn Fn(&Path, &[PathBuf]) + 'l>);
    let losses: [Loss<'_>; 7] = [
        ("a journal", Box::new(|_, journals| fs::remove_dir_all(&journals[1]).unwrap())),
        ("a segment", Box::new(|_, journals| fs::remove_file(newest(&journals[0])).unwrap())),
        ("an end", Box::new(|_, journals| cut_lines(&newest(&journals[0]), 1))),
        ("a last line", Box::new(|_, journals| edit(&newest(&journals[0])))),
        ("the statement", Box::new(|home, _| fs::remove_file(home.join("audit/checkpoint")).unwrap())),
        ("the memory", Box::new(|home, _| fs::remove_file(home.join("home.state")).unwrap())),
        ("all journals", Box::new(|home, _| fs::remove_dir_all(home.join("audit")).unwrap())),
    ];
    for (name, lose) in losses {
        let home = tempfile::tempdir().unwrap();
        let journals = two_journals(home.path());
        lose(home.path(), &journals);
        let log = log(home.path());
        assert!(log.loss().unwrap().is_some(), "{name}");
        let refused = wait_for(log.open(call(Some("c"), false))).unwrap_err();
        assert!(
            matches!(refused.kind(), AuditErrorKind::Lost | AuditErrorKind::Tampered),
            "{name}: {refused}"
        );
    }
}

#[tokio::test]
async fn a_statement_is_signed_a_second_after_an_entry() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    log.open(call(None, false)).await.unwrap();
    let file = home.path().join("audit/checkpoint");
    let before = fs::read_to_string(&file).unwrap();
    let mut tries = 0..200;
    while fs::read_to_string(&file).unwrap() == before {
        assert!(tries.next().is_some(), "nothing is signed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_running_host_fills_the_index() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let call = call(None, false);
    log.open(call.clone()).await.unwrap();
    log.close(None, value(&call)).await.unwrap();
    let [path, stamp] = ["index.db", "index.stamp"].map(|name| home.path().join("audit").join(name));
    // A query by a host would fill it, too.
    let ended = || {
        // Until the file is made, another connection could be in the way.
        fs::read_to_string(&stamp).ok().filter(|stamp| stamp != "copying")?;
        let read_only = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let index = rusqlite::Connection::open_with_flags(&path, read_only).ok()?;
        index.query_row("SELECT count(*) FROM calls WHERE outcome <> 0", [], |row| row.get::<_, i64>(0)).ok()
    };
    let mut tries = 0..200;
    while ended() != Some(1) {
        assert!(tries.next().is_some(), "nothing is indexed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The caller of a call may go while its beginning is written.
#[test]
fn the_end_of_a_call_waits_for_its_beginning() {
    let home = tempfile::tempdir().unwrap();
    let settings = LogSettings { durability: crate::Durability::Power, ..LogSettings::default() };
    let log = JournalLog::new(home.path(), settings, Arc::new(SystemClock));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        for _ in 0..20 {
            let call = call(None, false);
            drop(log.open(call.clone()));
            log.close(Some(Box::new(call.clone())), value(&call)).await.unwrap();
        }
        for n in 0..20 {
            let call = call(Some(&n.to_string()), false);
            drop(log.open(call.clone()));
            let begin = OpenCall { key: None, ..call.clone() };
            log.close(Some(Box::new(begin)), end(&call, CallStatus::Cancelled, KeyDisposition::Release))
                .await
                .unwrap();
            assert!(matches!(log.key_state(claim(&n.to_string())).await.unwrap(), KeyState::Free));
        }
    });
    drop((runtime, log));
    let text = text_of(home.path());
    assert_eq!((text.matches("\"received\"").count(), text.matches("\"final\"").count()), (40, 40));
}

#[test]
fn the_key_of_a_late_end_has_its_state() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let call_ = call(Some("k"), false);
    assert!(matches!(open(&log, &call_), OpenOutcome::Started));
    log.0.own_journal().unwrap().committer.with_journal(Journal::break_segment);
    assert!(wait_for(log.close(None, value(&call_))).is_err());
    assert!(matches!(state(&log, "k"), KeyState::Running { .. }));
    assert!(matches!(open(&log, &call(None, false)), OpenOutcome::Started));
    let mut tries = 0..200;
    while !matches!(state(&log, "k"), KeyState::Done { .. }) {
        assert!(tries.next().is_some(), "it stays in use");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The place of an outcome is where it was written, and not where a write failed.
#[test]
fn the_outcome_of_a_repeated_end_is_found() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let call = call(Some("k"), false);
    assert!(matches!(open(&log, &call), OpenOutcome::Started));
    log.0.own_journal().unwrap().committer.with_journal(Journal::break_segment);
    assert!(wait_for(log.close(None, value(&call))).is_err());
    close(&log, value(&call));
    let KeyState::Done { outcome, .. } = state(&log, "k") else { panic!() };
    assert_eq!(outcome.unwrap().bytes(), b"the outcome");
}

#[test]
fn nothing_more_is_sealed_above_the_quota() {
    let home = tempfile::tempdir().unwrap();
    let sealed = SealedQuota { per_client: 5, in_all: 1 << 20 };
    let settings = LogSettings { sealed, ..LogSettings::default() };
    let log = JournalLog::new(home.path(), settings, Arc::new(SystemClock));
    let [running, other] = [call(None, false), OpenCall { actor: "bob".into(), ..call(None, false) }];
    assert!(matches!(open(&log, &running), OpenOutcome::Started));
    // The request of a running call is not dropped.
    log.0.update_index().unwrap();
    close(&log, value(&running));
    assert!(matches!(open(&log, &call(None, false)), OpenOutcome::Started));
    assert_eq!(text_of(home.path()).matches("\"sealed\"").count(), 1);
    run_call(&log, other.clone());
    assert_eq!(text_of(home.path()).matches("\"sealed\"").count(), 3);
}

#[test]
fn an_end_that_is_being_written_is_not_written_again() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let call = call(None, false);
    assert!(matches!(open(&log, &call), OpenOutcome::Started));
    let journal = log.0.own_journal().unwrap();
    std::thread::scope(|scope| {
        let (first, again) = journal.committer.with_journal(|_| {
            let first = scope.spawn(|| wait_for(log.close(None, value(&call))));
            while log.0.state().ending.is_empty() {
                std::thread::yield_now();
            }
            (first, log.close(None, value(&call)))
        });
        assert!(first.join().unwrap().is_ok() && wait_for(again).is_ok());
    });
    assert_eq!(text_of(home.path()).matches("\"final\"").count(), 1);
}

#[test]
fn a_key_is_not_freed_before_the_decision_is_in_the_log() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let call = call(Some("k"), false);
    assert!(matches!(open(&log, &call), OpenOutcome::Started));
    close(&log, end(&call, CallStatus::Cancelled, KeyDisposition::Undetermined));
    log.0.own_journal().unwrap().committer.with_journal(Journal::break_segment);
    assert!(wait_for(log.resolve(&call.audit_id, skipped(true))).is_err());
    assert!(matches!(state(&log, "k"), KeyState::Unknown { .. }));
    assert!(skip(&log, &call, true));
    assert!(matches!(state(&log, "k"), KeyState::Free));
    assert_eq!(text_of(home.path()).matches("key_decided").count(), 1);
}

#[test]
fn a_segment_that_cannot_be_begun_ends_no_other_call() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path()).with_segment_bytes(1);
    let running = call(None, false);
    assert!(matches!(open(&log, &running), OpenOutcome::Started));
    let next = log.0.own_journal().unwrap().committer.with_journal(|journal| journal.head().n + 1);
    let sealed = journals(home.path())[0].join(format!("{next:012}.sealed"));
    fs::create_dir(&sealed).unwrap();
    assert!(wait_for(log.open(call(None, false))).is_err());
    fs::remove_dir(&sealed).unwrap();
    close(&log, value(&running));
}

#[test]
fn a_resolved_call_is_signed_for() {
    let home = tempfile::tempdir().unwrap();
    let before = call(None, true);
    interrupted(home.path(), &[&before, &call(None, true)]);
    run_call(&log(home.path()), resuming(&before));
    let path = segment_files(home.path()).remove(0);
    let text = fs::read_to_string(&path).unwrap();
    let kept: Vec<_> = text.split_inclusive('\n').filter(|line| !line.contains("\"final\"")).collect();
    write_private(&path, kept.concat().as_bytes());
    assert_ne!(findings(home.path()), []);
}

#[test]
fn work_without_a_thread_for_it_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let handle = runtime.handle().clone();
    runtime.shutdown_background();
    let entered = handle.enter();
    let (signed, flushed) = (log.sign(), log.flush());
    drop(entered);
    assert!(wait_for(signed).is_err());
    assert!(wait_for(flushed).is_err());
}

#[test]
fn operator_changes_are_entries_of_no_call() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let change = |user: &'static str| OperatorEvent { user: user.into(), ..OperatorEvent::default() };
    wait_for(log.record(Timestamp::UNIX_EPOCH, change("ada"))).unwrap();
    // Also without a runtime, as the command line does.
    let mut recorded = log.record(Timestamp::UNIX_EPOCH, change("bob"));
    let done = recorded.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(done, Poll::Ready(Ok(()))), "{done:?}");
    let text = text_of(home.path());
    let entry = "{\"log\":{\"at\":\"1970-01-01T00:00:00.000000Z\",\"payload\":{\"action\":\"unknown\",\
                 \"subject\":\"\",\"user\":\"ada\"},\"type\":\"operator\"},";
    assert!(text.contains(entry) && text.contains("\"user\":\"bob\""), "{text}");
    assert_eq!(log.loss().unwrap(), None);
}

#[test]
fn operator_changes_are_selected_by_action_and_time() {
    use OperatorAction::{Approve, Bind, Deny, Trust};
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    for (second, action) in (0..).zip([Trust, Approve, Bind, Approve]) {
        wait_for(log.record(at(second), OperatorEvent { action, ..OperatorEvent::default() })).unwrap();
    }
    let selected = |filter: OperatorEventFilter| -> Vec<OperatorAction> {
        let events = log.reader().unwrap().operator_events(&filter).unwrap();
        events.into_iter().map(|change| change.event.action).collect()
    };
    let all = OperatorEventFilter::default();
    assert_eq!(selected(all.clone()), [Approve, Bind, Approve, Trust]);
    let filter = OperatorEventFilter { since: Some(at(1)), limit: 2, ..all.clone() };
    assert_eq!(selected(filter), [Approve, Bind]);
    let filter = OperatorEventFilter { actions: ActionSet::Only(vec![Trust, Deny]), ..all.clone() };
    assert_eq!(selected(filter), [Trust]);
    // However many approvals are newer.
    let filter = OperatorEventFilter { actions: ActionSet::Except(vec![Approve, Deny]), ..all };
    assert_eq!(selected(OperatorEventFilter { limit: 2, ..filter.clone() }), [Bind, Trust]);
    assert_eq!(selected(OperatorEventFilter { until: Some(at(2)), ..filter }), [Trust]);
}
