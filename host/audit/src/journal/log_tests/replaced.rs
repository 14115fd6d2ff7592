//! Changes that a living host detects: its journal removed or replaced, or its lock removed.

use std::collections::BTreeSet;

use super::*;
use crate::verify::FindingKind;

fn is_replaced<T>(result: Result<T, AuditError>) -> bool {
    result.is_err_and(|error| error.kind() == AuditErrorKind::Replaced)
}

/// A call with an outcome that is the same each time.
fn begun(log: &JournalLog) -> (OpenCall, CloseCall) {
    let call = call(None, false);
    assert!(matches!(open(log, &call), OpenOutcome::Started));
    let end = value(&call);
    (call, end)
}

#[test]
fn a_removed_journal_accepts_no_entry() {
    for what in ["the log", "the journal", "the segment"] {
        let home = tempfile::tempdir().unwrap();
        let log = log(home.path());
        let (_, end) = begun(&log);
        sign(&log);
        let segment = segment_files(home.path()).remove(0);
        match what {
            "the log" => fs::remove_dir_all(home.path().join("audit")).unwrap(),
            "the journal" => fs::remove_dir_all(segment.parent().unwrap()).unwrap(),
            _ => fs::remove_file(&segment).unwrap(),
        }
        assert!(is_replaced(wait_for(log.open(call(None, false)))), "{what}");
        // Its end has no beginning any more, however often it is tried.
        for _ in 0..3 {
            assert!(is_replaced(wait_for(log.close(None, end.clone()))), "{what}");
        }
        // Others are not held up, in another journal.
        let (next, end) = begun(&log);
        close(&log, end);
        drop(log);
        assert!(text_of(home.path()).contains(next.audit_id.as_str()), "{what}");
        assert_ne!(findings(home.path()), [], "{what}");
        assert!(super::log(home.path()).loss().unwrap().is_some(), "{what}");
    }
}

#[test]
fn an_outcome_is_kept_in_a_restored_journal() {
    for is_durable in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let durability = if is_durable { crate::Durability::Power } else { crate::Durability::Process };
        let settings = LogSettings { durability, ..LogSettings::default() };
        let log = JournalLog::new(home.path(), settings, Arc::new(SystemClock));
        let (call, end) = begun(&log);
        let path = segment_files(home.path()).remove(0);
        let before = fs::read(&path).unwrap();
        fs::rename(&path, home.path().join("moved")).unwrap();
        assert!(is_replaced(wait_for(log.close(None, end))));
        assert_eq!(fs::read(home.path().join("moved")).unwrap(), before, "nothing is left of it");
        fs::rename(home.path().join("moved"), &path).unwrap();
        begun(&log);
        wait_for(log.flush()).unwrap();
        assert_eq!(text_of(home.path()).matches("\"type\":\"final\"").count(), 1, "{}", call.audit_id);
        drop(log);
        assert_eq!(findings(home.path()), []);
        assert_eq!(super::log(home.path()).loss().unwrap(), None);
    }
}

/// No other call resumes it meanwhile.
#[test]
fn a_call_runs_on_without_its_journal() {
    let home = tempfile::tempdir().unwrap();
    let (one, two) = (log(home.path()), log(home.path()));
    let (running, again) = (call(Some("k"), true), call(Some("k"), true));
    assert!(matches!(open(&one, &running), OpenOutcome::Started));
    let path = segment_files(home.path()).remove(0);
    fs::rename(&path, home.path().join("moved")).unwrap();
    assert!(is_replaced(wait_for(one.open(call(None, false)))));
    fs::rename(home.path().join("moved"), &path).unwrap();
    let opened = open(&two, &again);
    assert!(matches!(opened, OpenOutcome::KeyInUse(KeyState::Running { .. })), "{opened:?}");
    // Its end has no beginning, so it is interrupted from then on.
    assert!(is_replaced(wait_for(one.close(None, value(&running)))));
    assert!(matches!(open(&two, &again), OpenOutcome::Started));
}

#[test]
fn a_removed_lock_does_not_mean_death() {
    let home = tempfile::tempdir().unwrap();
    let (one, two) = (log(home.path()), log(home.path()));
    let running = call(Some("k"), false);
    assert!(matches!(open(&one, &running), OpenOutcome::Started));
    let lock = journals(home.path())[0].join("lock");
    fs::remove_file(&lock).unwrap();
    let again = open(&two, &call(Some("k"), false));
    assert!(matches!(again, OpenOutcome::KeyInUse(KeyState::Running { .. })), "{again:?}");
    assert!(!skip(&two, &running, true));
    let (_, end) = begun(&two);
    close(&two, end);
    assert_eq!(journals(home.path()).len(), 2);
    close(&one, value(&running));
    drop((one, two));
    assert_eq!(findings(home.path()), []);
    // The operator puts it back.
    write_private(&lock, b"");
    assert!(matches!(state(&log(home.path()), "k"), KeyState::Done { .. }));
}

#[test]
fn entries_of_two_writers_in_a_journal_are_found() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    begun(&log);
    sign(&log);
    let path = segment_files(home.path()).remove(0);
    let text = fs::read_to_string(&path).unwrap();
    let last = text.lines().next_back().unwrap();
    fs::write(&path, format!("{text}{last}\n")).unwrap();
    assert!(is_replaced(wait_for(log.open(call(None, false)))));
    begun(&log);
    drop(log);
    assert!(findings(home.path()).iter().any(|found| found.flaw == FindingKind::Disordered));
}

#[test]
fn a_removed_statement_is_not_made_again() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    begun(&log);
    fs::remove_file(home.path().join("audit/checkpoint")).unwrap();
    begun(&log);
    assert_eq!(wait_for(log.sign()).unwrap_err().kind(), AuditErrorKind::Tampered);
    drop(log);
    fill(home.path(), 2);
    assert!(!home.path().join("audit/checkpoint").exists());
    assert!(findings(home.path()).iter().any(|found| found.flaw == FindingKind::Signature));
    // Until the operator accepts that.
    let found = findings(home.path()).iter().map(Into::into).collect();
    wait_for(super::log(home.path()).accept(found, "ada".into())).unwrap();
    assert!(findings(home.path()).iter().all(|found| found.accepted));
    assert_eq!(super::log(home.path()).loss().unwrap(), None);
}

/// A process may be killed as soon as its first entry is acknowledged, or before it.
#[test]
fn a_statement_precedes_the_first_entry() {
    let home = tempfile::tempdir().unwrap();
    let killed = log(home.path());
    killed.0.own_journal().unwrap();
    assert!(home.path().join("audit/checkpoint").exists());
    kill(killed);
    assert_eq!(findings(home.path()), []);
    assert_eq!(log(home.path()).loss().unwrap(), None);
    let killed = log(home.path());
    begun(&killed);
    kill(killed);
    assert_eq!(findings(home.path()), []);
    assert!(matches!(open(&log(home.path()), &call(Some("k"), false)), OpenOutcome::Started));
    // Killed while the first statement was made: the state is there, and remembers nothing.
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 1);
    fs::remove_dir_all(home.path().join("audit")).unwrap();
    fs::remove_file(home.path().join("home.state")).unwrap();
    cofferdam_core::home_state::HomeState::new(home.path()).create(None).unwrap();
    assert!(matches!(open(&log(home.path()), &call(Some("k"), false)), OpenOutcome::Started));
    assert_eq!(findings(home.path()), []);
}

#[test]
fn a_changed_journal_is_asked_again_for_unended_calls() {
    let home = tempfile::tempdir().unwrap();
    let calls = [call(None, false), call(None, false)];
    interrupted(home.path(), &[&calls[0], &calls[1]]);
    let path = segment_files(home.path()).remove(0);
    let mut cache = UnendedCache::default();
    let mut unended = || cache.read(path.parent().unwrap()).unwrap().ids().collect::<BTreeSet<_>>();
    let both: BTreeSet<_> = calls.iter().map(|call| call.audit_id.bytes()).collect();
    assert_eq!(unended(), both);
    // The file has settled, so the second reading fills the cache and the third one uses it.
    std::thread::sleep(std::time::Duration::from_millis(150));
    assert_eq!((unended(), unended()), (both.clone(), both.clone()));
    // The size and the modification time are the same as before; the change time is not.
    let (text, modified) = (fs::read_to_string(&path).unwrap(), path.metadata().unwrap().modified().unwrap());
    let other = call(None, false).audit_id;
    fs::write(&path, text.replace(calls[0].audit_id.as_str(), other.as_str())).unwrap();
    fs::File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();
    assert_eq!(unended(), BTreeSet::from([other.bytes(), calls[1].audit_id.bytes()]));
    fs::write(&path, text).unwrap();
    assert_eq!(unended(), both);
    assert!(skip(&log(home.path()), &calls[0], false));
    assert_eq!(unended(), BTreeSet::from([calls[1].audit_id.bytes()]));
}
