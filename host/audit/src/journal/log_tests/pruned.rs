//! Pruning removes the oldest segments, and the rest can still be verified.

use std::sync::atomic::AtomicBool;

use cofferdam_core::event::operator::{OperatorAction, OperatorEvent};

use super::*;
use crate::command::{PruneBlocker, Pruned};
use crate::journal::JournalCut;
use crate::log_calls::ending;
use crate::verify::FindingKind;

fn day(number: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + number * 86_400).unwrap()
}

fn prune(home: &Path, before: Timestamp, dry_run: bool) -> Result<Pruned, AuditError> {
    wait_for(small_log(home).prune(before, dry_run, "ada".into()))
}

/// Checks that the log holds, and that the home does not miss what was pruned.
fn check(home: &Path) {
    assert_eq!(findings(home), []);
    assert_eq!(log(home).loss().unwrap(), None);
}

/// A key in a state that stays until an operator decides, and then for good.
fn undetermined(log: &JournalLog, key: &str, at: Timestamp) -> OpenCall {
    let call = call_at(Some(key), false, at);
    assert!(matches!(open(log, &call), OpenOutcome::Started));
    close(log, end(&call, CallStatus::Cancelled, KeyDisposition::Undetermined));
    call
}

#[test]
fn calls_by_a_clock_that_was_behind_stay_their_time() {
    let home = tempfile::tempdir().unwrap();
    let calls: Vec<_> = [2, 0].into_iter().flat_map(|number| fill_at(home.path(), 20, day(number))).collect();
    let pruned = prune(home.path(), day(1), false).unwrap();
    assert_eq!((pruned.calls, pruned.stopped.is_none()), (0, true), "{pruned:?}");
    assert!(calls.iter().all(|id| text_of(home.path()).contains(id.as_str())));
    assert!(prune(home.path(), day(3), false).unwrap().calls > 25);
    check(home.path());
}

/// Even if the segment is not the newest one any more.
#[test]
fn entries_after_the_cut_stay() {
    let home = tempfile::tempdir().unwrap();
    let log = small_log(home.path());
    let runs = || run_call(&log, call(None, false));
    runs();
    let own = log.0.own_journal().unwrap();
    let mut cut = JournalCut::after(own.committer.with_journal(|journal| journal.head()));
    cut.entries = cut.base.n;
    while segment_files(home.path()).len() < 2 {
        runs();
    }
    log.0.begin_next_segment(&own.writer, &mut cut).unwrap();
    assert_eq!(cut.entries, 0);
}

#[test]
fn old_segments_are_pruned_and_the_rest_verifies() {
    let home = tempfile::tempdir().unwrap();
    let days: Vec<_> = (0..4).map(|number| fill_at(home.path(), 20, day(number))).collect();
    let before = files_below(&home.path().join("audit"));
    let would = prune(home.path(), day(2), true).unwrap();
    assert!(would.calls > 25 && would.calls <= 40 && would.stopped.is_none(), "{would:?}");
    assert_eq!((would.since, would.until), (Some(day(0)), Some(day(1))));
    let is_of_journal =
        |(path, _): &(&PathBuf, &Vec<u8>)| path.extension().is_some_and(|ending| ending == "jsonl");
    let after = files_below(&home.path().join("audit"));
    assert!(
        before.iter().filter(is_of_journal).eq(after.iter().filter(is_of_journal)),
        "a dry run removes nothing"
    );
    let files = segment_files(home.path()).len();
    assert_eq!(prune(home.path(), day(2), false).unwrap(), would);
    assert!(segment_files(home.path()).len() < files);
    let text = text_of(home.path());
    // The end of a call may stay, in the next segment.
    let begun: String = text.lines().filter(|line| line.contains("\"received\"")).collect();
    let left = days.concat().iter().filter(|id| begun.contains(id.as_str())).count() as u64;
    assert_eq!(left, 80 - would.calls);
    assert!(days[2].iter().chain(&days[3]).all(|id| text.contains(id.as_str())));
    assert!(text.contains("\"type\":\"pruned\""));
    let prunes = changes(home.path());
    let after = prunes[0].after.as_ref().unwrap();
    assert_eq!((prunes[0].action, &*prunes[0].user, prunes.len()), (OperatorAction::Prune, "ada", 1));
    assert_eq!((after.calls, after.entries), (Some(would.calls), Some(would.entries)));
    assert_eq!(after.until.as_deref(), Some("2023-11-16T22:13:20.000000Z"));
    let oldest = prunes[0].before.as_ref().and_then(|state| state.until.as_deref());
    assert_eq!(oldest, Some("2023-11-14T22:13:20.000000Z"));
    check(home.path());
    // And again, from there.
    assert!(prune(home.path(), day(3), false).unwrap().calls > 10);
    check(home.path());
    assert_eq!(prune(home.path(), day(3), false).unwrap().entries, 0);
    fill_at(home.path(), 10, day(4));
    check(home.path());
    let outcome = verified(home.path());
    assert!(outcome.journals[0].from > 1, "{:?}", outcome.journals);
}

#[test]
fn young_operator_changes_keep_their_segment() {
    let home = tempfile::tempdir().unwrap();
    {
        let log = small_log(home.path());
        let trust = OperatorEvent { action: OperatorAction::Trust, ..OperatorEvent::default() };
        wait_for(log.record(day(5), trust)).unwrap();
    }
    (0..2).for_each(|number| drop(fill_at(home.path(), 20, day(number))));
    assert_eq!(prune(home.path(), day(5), false).unwrap().entries, 0);
    assert!(text_of(home.path()).contains("\"type\":\"operator\""));
    assert!(prune(home.path(), day(6), false).unwrap().calls > 30);
    assert!(changes(home.path()).iter().all(|change| change.action == OperatorAction::Prune));
    check(home.path());
}

#[test]
fn a_missing_beginning_that_was_not_pruned_is_found() {
    let home = tempfile::tempdir().unwrap();
    (0..3).for_each(|number| drop(fill_at(home.path(), 20, day(number))));
    prune(home.path(), day(1), false).unwrap();
    fs::remove_file(&segment_files(home.path())[0]).unwrap();
    assert!(findings(home.path()).iter().any(|found| found.flaw == FindingKind::Missing));
}

/// A crash leaves them as they were.
#[test]
fn pruned_segments_that_are_changed_are_found() {
    let home = tempfile::tempdir().unwrap();
    (0..3).for_each(|number| drop(fill_at(home.path(), 20, day(number))));
    let before = files_below(&home.path().join("audit"));
    assert!(prune(home.path(), day(1), false).unwrap().calls > 10);
    let is_removed = |path: &Path| path.extension().is_some_and(|ending| ending == "jsonl") && !path.exists();
    let removed: Files = before.into_iter().filter(|(path, _)| is_removed(path)).collect();
    removed.iter().for_each(|(path, bytes)| write_private(path, bytes));
    check(home.path());
    let text = |path: &PathBuf| String::from_utf8(removed[path].clone()).unwrap();
    for path in removed.keys() {
        fs::write(path, text(path).replacen("\"op\":\"b\"", "\"op\":\"c\"", 1)).unwrap();
        assert!(findings(home.path()).iter().any(|found| found.flaw == FindingKind::Disordered));
        fs::write(path, text(path)).unwrap();
    }
    check(home.path());
}

#[test]
fn pruned_data_is_gone_from_every_file() {
    let home = tempfile::tempdir().unwrap();
    let canary = b"the request";
    fill_at(home.path(), 40, day(0));
    fill_at(home.path(), 1, day(5));
    let count = || {
        let files = files_below(home.path()).into_values();
        files.map(|bytes| bytes.windows(canary.len()).filter(|part| part == canary).count()).sum::<usize>()
    };
    let before = count();
    let pruned = prune(home.path(), day(3), false).unwrap();
    assert!(pruned.calls > 30);
    assert_eq!(count() as u64, before as u64 - pruned.calls);
}

/// A call may begin in a segment that goes, and end in one that stays.
#[test]
fn calls_across_segments_are_pruned() {
    let home = tempfile::tempdir().unwrap();
    let long = call_at(None, false, day(0));
    {
        let log = small_log(home.path());
        open(&log, &long);
        for _ in 0..20 {
            run_call(&log, call_at(None, false, day(0)));
        }
        let running = wait_for(log.prune(day(1), false, "ada".into())).unwrap();
        let stopped = running.stopped.unwrap();
        assert_eq!((running.calls, stopped.why), (0, PruneBlocker::Running));
        assert_eq!(stopped.audit_id.as_ref(), Some(&long.audit_id));
        close(&log, value(&long));
    }
    fill_at(home.path(), 1, day(2));
    assert!(text_of(home.path()).contains(&format!("\"{}\":", long.audit_id)), "a segment begins with it");
    let pruned = prune(home.path(), day(1), false).unwrap();
    assert!(pruned.calls > 10 && pruned.stopped.is_none(), "{pruned:?}");
    check(home.path());
    assert!(text_of(home.path()).contains(long.audit_id.as_str()), "its end stays");
}

#[test]
fn prune_blockers_are_named_until_they_are_gone() {
    let fill_more = |home: &Path| drop(fill_at(home, 12, day(0)));
    let stopped = |home: &Path| {
        let dry = prune(home, day(9), true).unwrap();
        let pruned = prune(home, day(9), false).unwrap();
        assert_eq!(dry, pruned);
        check(home);
        pruned.stopped.map(|stop| (stop.why, stop.audit_id.unwrap(), stop.decide.is_some()))
    };
    // Incomplete.
    let home = tempfile::tempdir().unwrap();
    let interrupted = call_at(None, false, day(0));
    let killed = small_log(home.path());
    open(&killed, &interrupted);
    (0..12).for_each(|_| drop(run_call(&killed, call_at(None, false, day(0)))));
    kill(killed);
    fill_more(home.path());
    assert_eq!(stopped(home.path()), Some((PruneBlocker::Incomplete, interrupted.audit_id.clone(), true)));
    assert!(skip(&small_log(home.path()), &interrupted, false));
    assert_eq!(stopped(home.path()), None);
    // A key of which it is unknown what was done under it.
    let home = tempfile::tempdir().unwrap();
    let unknown = undetermined(&small_log(home.path()), "k", day(0));
    fill_more(home.path());
    assert_eq!(stopped(home.path()), Some((PruneBlocker::KeyUndecided, unknown.audit_id.clone(), true)));
    assert!(skip(&small_log(home.path()), &unknown, true));
    assert_eq!(stopped(home.path()), None);
    // A key whose outcome stands.
    let home = tempfile::tempdir().unwrap();
    let kept = call_at(Some("k"), false, day(0));
    run_call(&small_log(home.path()), kept.clone());
    fill_more(home.path());
    assert_eq!(stopped(home.path()), Some((PruneBlocker::KeyStands, kept.audit_id, false)));
    assert!(matches!(state(&log(home.path()), "k"), KeyState::Done { outcome: Some(_), .. }));
}

#[test]
fn entries_ahead_of_the_log_are_named() {
    let ahead = Timestamp::now() + jiff::SignedDuration::from_hours(72);
    let later = ahead + jiff::SignedDuration::from_hours(1);
    for is_call in [true, false] {
        let home = tempfile::tempdir().unwrap();
        let id = match is_call {
            true => fill_at(home.path(), 1, ahead).pop(),
            false => {
                let trust = OperatorEvent { action: OperatorAction::Trust, ..OperatorEvent::default() };
                wait_for(small_log(home.path()).record(ahead, trust)).unwrap();
                None
            }
        };
        fill_at(home.path(), 20, day(0));
        let pruned = prune(home.path(), day(1), false).unwrap();
        let stop = pruned.stopped.unwrap();
        assert_eq!((pruned.calls, &stop.audit_id, stop.why), (0, &id, PruneBlocker::Ahead));
        assert_eq!(stop.decide.as_deref(), Some("cofferdam audit clock"));
        // An operator who names a later time removes it.
        let pruned = prune(home.path(), later, false).unwrap();
        assert!(pruned.calls > 10 && pruned.stopped.is_none(), "{pruned:?}");
        check(home.path());
    }
}

#[test]
fn an_expired_key_goes_with_its_call() {
    let home = tempfile::tempdir().unwrap();
    let expired = call_at(Some("k"), false, day(0));
    {
        let log = small_log(home.path());
        open(&log, &expired);
        close(&log, end(&expired, CallStatus::Value, KeyDisposition::Retain(day(1))));
    }
    fill_at(home.path(), 12, day(0));
    fill_at(home.path(), 12, day(3));
    assert!(prune(home.path(), day(2), false).unwrap().calls > 0);
    check(home.path());
    assert!(!text_of(home.path()).contains(expired.audit_id.as_str()));
    assert!(matches!(open(&log(home.path()), &call(Some("k"), false)), OpenOutcome::Started));
    check(home.path());
}

/// The run that goes on with it is younger than the steps that are done.
#[test]
fn an_action_that_goes_on_keeps_its_older_steps() {
    for is_interrupted in [true, false] {
        let home = tempfile::tempdir().unwrap();
        let begun = run_at(day(0));
        let step = step_of(&begun);
        let killed = small_log(home.path());
        for call in [&begun, &step] {
            assert!(matches!(open(&killed, call), OpenOutcome::Started));
        }
        close(&killed, end(&step, CallStatus::Value, KeyDisposition::Retain(day(1))));
        if !is_interrupted {
            close(&killed, end(&begun, CallStatus::Failure, KeyDisposition::Release));
        }
        (0..12).for_each(|_| drop(run_call(&killed, call_at(None, false, day(0)))));
        kill(killed);
        let (killed, again) = (small_log(home.path()), run_at(Timestamp::now()));
        assert!(matches!(open(&killed, &again), OpenOutcome::Started));
        kill(killed);
        for is_lost in [false, true] {
            if is_lost {
                fs::remove_file(home.path().join("audit/keys.db")).unwrap();
            }
            let stop = prune(home.path(), day(2), false).unwrap().stopped.unwrap();
            assert_eq!((stop.why, stop.audit_id), (PruneBlocker::KeyStands, Some(step.audit_id.clone())));
        }
    }
}

/// They are in a segment that stays, and would be taken for those of a run that failed.
#[test]
fn steps_of_a_pruned_action_are_not_done() {
    for (runs_anew, is_lost) in [(true, false), (true, true), (false, false)] {
        let home = tempfile::tempdir().unwrap();
        let begun = run_at(day(0));
        let step = step_of(&begun);
        {
            let log = small_log(home.path());
            assert!(matches!(open(&log, &begun), OpenOutcome::Started));
            (0..12).for_each(|_| drop(run_call(&log, call_at(None, false, day(0)))));
            run_call(&log, call_at(None, false, day(5)));
            assert!(matches!(open(&log, &step), OpenOutcome::Started));
            for call in [&step, &begun] {
                close(&log, end(call, CallStatus::Value, KeyDisposition::Retain(day(1))));
            }
            // What the pruning writes is in a later segment.
            (0..12).for_each(|_| drop(run_call(&log, call_at(None, false, day(0)))));
        }
        assert!(prune(home.path(), day(2), false).unwrap().calls > 0);
        check(home.path());
        if is_lost {
            fs::remove_file(home.path().join("audit/keys.db")).unwrap();
        }
        let log = small_log(home.path());
        let key = |key: &str| log.0.keys().unwrap().table.get(&key_digest(key)).unwrap();
        assert!(key("k/one").is_some());
        if runs_anew {
            let again = run_at(Timestamp::now());
            for call in [&again, &step_of(&again)] {
                assert!(matches!(open(&log, call), OpenOutcome::Started));
            }
        } else {
            prune(home.path(), day(9), false).unwrap();
            assert_eq!((key("k/one"), key("k")), (None, None));
        }
    }
}

/// A journal that an interrupted call keeps has a step that a later run used, which is in another journal.
#[test]
fn the_end_of_an_action_outlives_its_steps() {
    for is_key_used in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let (first, second) = (small_log(home.path()), small_log(home.path()));
        for log in [&first, &second] {
            log.0.own_journal().unwrap();
        }
        let (begun, again) = (run_at(day(0)), run_at(day(1)));
        let step = step_of(&begun);
        for call in [&call_at(None, false, day(0)), &begun, &step] {
            assert!(matches!(open(&first, call), OpenOutcome::Started));
        }
        close(&first, end(&step, CallStatus::Value, KeyDisposition::Retain(day(1))));
        close(&first, end(&begun, CallStatus::Failure, KeyDisposition::Release));
        kill(first);
        assert!(matches!(open(&second, &again), OpenOutcome::Started));
        close(&second, ending(&again, CallStatus::Value, KeyDisposition::Retain(day(2)), day(1)));
        if is_key_used {
            // Another run has the expired key, and gives it back.
            let other = run_at(day(3));
            assert!(matches!(open(&second, &other), OpenOutcome::Started));
            close(&second, end(&other, CallStatus::Failure, KeyDisposition::Release));
        }
        (0..12).for_each(|_| drop(run_call(&second, call_at(None, false, day(1)))));
        drop(second);
        assert!(prune(home.path(), day(9), false).unwrap().stopped.is_some());
        assert!(text_of(home.path()).contains(again.audit_id.as_str()));
        fs::remove_file(home.path().join("audit/keys.db")).unwrap();
        let (log, anew) = (small_log(home.path()), run_at(Timestamp::now()));
        for call in [&anew, &step_of(&anew)] {
            let opened = open(&log, call);
            assert!(matches!(opened, OpenOutcome::Started), "{opened:?}");
        }
    }
}

/// Each of two journals has a step of an action that ended in the other one.
#[test]
fn journals_that_need_each_other_go_together() {
    let home = tempfile::tempdir().unwrap();
    let (first, second) = (small_log(home.path()), small_log(home.path()));
    for log in [&first, &second] {
        log.0.own_journal().unwrap();
    }
    for (key, fails, ends) in [("k", &first, &second), ("m", &second, &first)] {
        let (begun, again) = (run_under(key, day(0)), run_under(key, day(1)));
        let step = step_of(&begun);
        for call in [&begun, &step] {
            assert!(matches!(open(fails, call), OpenOutcome::Started));
        }
        close(fails, end(&step, CallStatus::Value, KeyDisposition::Retain(day(1))));
        close(fails, end(&begun, CallStatus::Failure, KeyDisposition::Release));
        assert!(matches!(open(ends, &again), OpenOutcome::Started));
        close(ends, ending(&again, CallStatus::Value, KeyDisposition::Retain(day(2)), day(1)));
    }
    drop((first, second));
    let pruned = prune(home.path(), day(9), false).unwrap();
    assert!(pruned.calls == 6 && pruned.stopped.is_none(), "{pruned:?}");
    check(home.path());
}

/// Also when the key table is lost, and after the entry about the key was itself pruned.
#[test]
fn a_resolved_key_outlives_its_call() {
    let home = tempfile::tempdir().unwrap();
    let (blocked, freed) = {
        let log = small_log(home.path());
        let calls = (undetermined(&log, "blocked", day(0)), undetermined(&log, "freed", day(0)));
        assert!(skip(&log, &calls.0, false) && skip(&log, &calls.1, true));
        calls
    };
    for number in 0..4 {
        fill_at(home.path(), 12, day(number));
    }
    for before in [1, 2, 9] {
        let pruned = prune(home.path(), day(before), false).unwrap();
        assert!(pruned.calls > 0 && pruned.stopped.is_none(), "{pruned:?}");
        check(home.path());
        fs::remove_file(home.path().join("audit/keys.db")).unwrap();
        let log = log(home.path());
        let found = state(&log, "blocked");
        assert!(
            matches!(&found, KeyState::Unknown { audit_id } if *audit_id == blocked.audit_id),
            "{found:?}"
        );
        assert!(matches!(state(&log, "freed"), KeyState::Free));
        drop(log);
        check(home.path());
        fill_at(home.path(), 12, day(before));
    }
    let text = text_of(home.path());
    assert!(!text.contains(&format!("{{\"audit_id\":\"{}", freed.audit_id)));
    // A second review frees it, for good.
    assert!(skip(&small_log(home.path()), &blocked, true));
    fill_at(home.path(), 12, day(9));
    prune(home.path(), day(10), false).unwrap();
    fs::remove_file(home.path().join("audit/keys.db")).unwrap();
    assert!(matches!(state(&log(home.path()), "blocked"), KeyState::Free));
    check(home.path());
}

/// The entry that keeps a key is pruned before the one about the decision that frees it.
#[test]
fn a_freed_key_is_not_kept_again() {
    let home = tempfile::tempdir().unwrap();
    let blocked = undetermined(&small_log(home.path()), "k", day(0));
    assert!(skip(&small_log(home.path()), &blocked, false));
    fill_at(home.path(), 12, day(0));
    assert!(prune(home.path(), day(1), false).unwrap().calls > 0);
    assert!(text_of(home.path()).contains("\"type\":\"keys_kept\""));
    let [before, ahead] = [1, 2].map(|hours| Timestamp::now() + jiff::SignedDuration::from_hours(hours));
    fill_at(home.path(), 12, day(1));
    fill_at(home.path(), 1, ahead);
    assert!(skip(&small_log(home.path()), &blocked, true));
    let log = small_log(home.path());
    assert!(wait_for(log.prune(before, false, "ada".into())).unwrap().calls > 0);
    // The next process reads what this one has written.
    kill(log);
    assert!(!text_of(home.path()).contains("\"type\":\"keys_kept\""));
    assert!(matches!(state(&super::log(home.path()), "k"), KeyState::Free));
    check(home.path());
}

/// The next pruning removes files that a crash left, and nothing reads them.
#[test]
fn a_crash_while_files_are_removed_is_no_finding() {
    let home = tempfile::tempdir().unwrap();
    (0..3).for_each(|number| drop(fill_at(home.path(), 20, day(number))));
    let before = files_below(&home.path().join("audit"));
    assert!(prune(home.path(), day(1), false).unwrap().calls > 10);
    let removed: Files = before.into_iter().filter(|(path, _)| !path.exists()).collect();
    assert!(removed.len() >= 4);
    let mut paths: Vec<_> = removed.keys().cloned().collect();
    // In the order in which they are removed.
    paths.sort_by_key(|path| {
        (path.file_stem().map(ToOwned::to_owned), path.extension() == Some("jsonl".as_ref()))
    });
    for left in [0..paths.len(), 1..paths.len(), 3..paths.len()] {
        paths[left].iter().for_each(|path| write_private(path, &removed[path]));
        check(home.path());
        fill_at(home.path(), 1, day(3));
        assert!(matches!(open(&log(home.path()), &call(Some("k"), true)), OpenOutcome::Started));
        check(home.path());
        prune(home.path(), day(1), true).unwrap();
        assert!(paths.iter().any(|path| path.exists()), "a dry run removes nothing");
        assert_eq!(prune(home.path(), day(1), false).unwrap().calls, 0);
        assert!(!paths.iter().any(|path| path.exists()));
        check(home.path());
    }
}

/// A process may be killed, or the disk be full, before a segment has its first line.
#[test]
fn a_segment_without_a_line_hides_no_call() {
    let home = tempfile::tempdir().unwrap();
    let (killed, call) = (log(home.path()), call_at(None, false, day(0)));
    assert!(matches!(open(&killed, &call), OpenOutcome::Started));
    kill(killed);
    add_empty_segment(home.path());
    let incomplete =
        crate::Filter { status: Some(crate::CallStatus::Incomplete), ..crate::Filter::default() };
    let rows = log(home.path()).reader().unwrap().list(&incomplete).unwrap();
    assert_eq!(rows.iter().map(|row| &row.audit_id).collect::<Vec<_>>(), [&call.audit_id]);
    let pruned = prune(home.path(), day(9), false).unwrap();
    assert_eq!(pruned.stopped.map(|stop| stop.why), Some(PruneBlocker::Incomplete));
    assert!(text_of(home.path()).contains(call.audit_id.as_str()));
    check(home.path());
}

/// The process that prunes takes the journal itself.
#[test]
fn a_journal_is_pruned_before_an_empty_segment() {
    let home = tempfile::tempdir().unwrap();
    run_call(&log(home.path()), call_at(None, false, day(0)));
    add_empty_segment(home.path());
    assert_eq!(wait_for(log(home.path()).prune(day(9), false, "ada".into())).unwrap().calls, 1);
    check(home.path());
    assert!(text_of(home.path()).contains("\"type\":\"pruned\""));
    fill_at(home.path(), 1, day(9));
    assert_eq!(journals(home.path()).len(), 1, "it is continued");
    check(home.path());
}

/// Adds the file of a next segment to the only journal, as a process leaves it that was killed before its first line.
fn add_empty_segment(home: &Path) {
    let newest = segment_files(home).pop().unwrap();
    let first: usize = newest.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let next = first + fs::read_to_string(&newest).unwrap().lines().count();
    write_private(&newest.with_file_name(format!("{next:012}.jsonl")), b"");
}

/// Verification does not report it either.
#[test]
fn a_line_without_its_end_stops_no_pruning() {
    let home = tempfile::tempdir().unwrap();
    fill_at(home.path(), 20, day(0));
    let newest = segment_files(home.path()).pop().unwrap();
    let killed = [fs::read(&newest).unwrap(), b"{\"audit_id\":".to_vec()].concat();
    fs::write(&newest, killed).unwrap();
    let pruned = prune(home.path(), day(9), false).unwrap();
    assert!(pruned.calls > 10 && pruned.stopped.is_none(), "{pruned:?}");
    check(home.path());
}

#[test]
fn a_damaged_journal_is_not_pruned() {
    let home = tempfile::tempdir().unwrap();
    (0..3).for_each(|number| drop(fill_at(home.path(), 20, day(number))));
    let whole = files_below(home.path());
    let path = segment_files(home.path()).remove(0);
    let text = fs::read_to_string(&path).unwrap();
    for changed in [
        text.replacen("\"op\":\"b\"", "\"op\":\"c\"", 1),
        text.replacen("2023", "2001", 1),
        text.replacen('\n', "\n\n", 1),
    ] {
        fs::write(&path, &changed).unwrap();
        let error = prune(home.path(), day(2), false).unwrap_err();
        assert_eq!(error.kind(), AuditErrorKind::Tampered, "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), changed);
    }
    put_back(home.path(), &whole);
    for lost in ["audit/checkpoint", "home.state"] {
        fs::remove_file(home.path().join(lost)).unwrap();
        let error = prune(home.path(), day(2), false).unwrap_err();
        assert!(matches!(error.kind(), AuditErrorKind::Lost | AuditErrorKind::Tampered), "{lost}: {error}");
        put_back(home.path(), &whole);
    }
    let files = segment_files(home.path()).len();
    assert!(prune(home.path(), day(2), false).unwrap().calls > 20);
    assert!(segment_files(home.path()).len() < files);
    check(home.path());
}

#[test]
fn accepted_findings_outlive_their_segment() {
    let home = tempfile::tempdir().unwrap();
    fill_at(home.path(), 20, day(0));
    // A journal that is gone, and another one with the operator's word about it.
    let gone = journals(home.path()).remove(0);
    fs::remove_dir_all(&gone).unwrap();
    let found = findings(home.path());
    assert_ne!(found, []);
    wait_for(small_log(home.path()).accept(found.iter().map(Into::into).collect(), "ada".into())).unwrap();
    fill_at(home.path(), 30, day(0));
    // After the change by the operator, which is of today.
    assert!(prune(home.path(), Timestamp::now(), false).unwrap().calls > 10);
    check(home.path());
    assert!(text_of(home.path()).contains("loss_accepted"));
}

#[test]
fn journals_are_pruned_while_others_write_and_verify() {
    let home = tempfile::tempdir().unwrap();
    (0..4).for_each(|number| drop(fill_at(home.path(), 20, day(number))));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for key in ["a", "b"] {
            let (home, is_over) = (home.path(), &is_over);
            scope.spawn(move || {
                let log = small_log(home);
                let mut round = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let key = format!("{key}{round}");
                    let call = call_at((round % 4 == 0).then_some(key.as_str()), true, day(10));
                    assert!(matches!(open(&log, &call), OpenOutcome::Started));
                    close(&log, end(&call, CallStatus::Value, KeyDisposition::Release));
                    round += 1;
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        let verifies = scope.spawn(|| {
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(findings(home.path()), []);
                rounds += 1;
            }
            rounds
        });
        let mut calls = 0;
        for number in 1..5 {
            calls += prune(home.path(), day(number), false).unwrap().calls;
            std::thread::sleep(Duration::from_millis(200));
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(calls > 60, "{calls}");
        assert!(verifies.join().unwrap() > 0);
    });
    check(home.path());
}

#[test]
fn two_processes_do_not_prune_at_once() {
    let home = tempfile::tempdir().unwrap();
    fill_at(home.path(), 2, day(0));
    let lock = home.path().join("audit/prune.lock");
    let _held = cofferdam_core::private_file::FileLock::try_acquire(&lock).unwrap().unwrap();
    assert_eq!(prune(home.path(), day(1), false).unwrap_err().kind(), AuditErrorKind::Locked);
    let nothing = tempfile::tempdir().unwrap();
    assert_eq!(prune(nothing.path(), day(1), false).unwrap(), Pruned::default());
}

#[test]
fn short_processes_prune_beyond_their_retention_once_an_hour() {
    let home = tempfile::tempdir().unwrap();
    fill_at(home.path(), 40, day(0));
    let files = segment_files(home.path()).len();
    let short = || {
        let retention = Some(Duration::from_secs(86_400));
        let settings = LogSettings { retention, ..LogSettings::default() };
        let log = JournalLog::new(home.path(), settings, Arc::new(SystemClock));
        run_call(&log, call_at(None, true, Timestamp::now()));
    };
    short();
    assert_eq!(segment_files(home.path()).len(), files, "it was looked at just now");
    fs::remove_file(home.path().join("audit/retained")).unwrap();
    short();
    assert!(segment_files(home.path()).len() < files);
    assert!(home.path().join("audit/index.db").exists());
    check(home.path());
}

#[tokio::test]
async fn a_host_prunes_beyond_its_retention() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().to_owned();
    tokio::task::spawn_blocking(move || fill_at(&path, 40, day(0))).await.unwrap();
    fs::remove_file(home.path().join("audit/retained")).unwrap();
    let files = segment_files(home.path()).len();
    let retention = Some(Duration::from_secs(86_400));
    let log = JournalLog::new(
        home.path(),
        LogSettings { retention, ..LogSettings::default() },
        Arc::new(SystemClock),
    );
    log.open(call_at(None, true, Timestamp::now())).await.unwrap();
    let mut tries = 0..200;
    while segment_files(home.path()).len() >= files {
        assert!(tries.next().is_some(), "nothing is pruned");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
