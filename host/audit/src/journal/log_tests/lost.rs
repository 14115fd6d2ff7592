//! Parts of a log that are missing or older than they were: no key is free until the operator accepts that.

use cofferdam_core::event::operator::OperatorAction;
use cofferdam_core::home_state::{HomeState, StateLoss, vault_header};

use super::*;
use crate::verify::{AcknowledgedFinding, Finding, FindingKind};

/// Runs a call under this key.
fn keyed(log: &JournalLog, key: &str) -> Result<OpenOutcome, AuditError> {
    let call = call(Some(key), false);
    let opened = wait_for(log.open(call.clone()))?;
    if matches!(opened, OpenOutcome::Started) {
        close(log, value(&call));
    }
    Ok(opened)
}

fn is_lost(log: &JournalLog) -> bool {
    matches!(keyed(log, "k"), Err(error) if error.kind() == AuditErrorKind::Lost)
}

fn accept(log: &JournalLog, findings: &[Finding]) {
    wait_for(log.accept(findings.iter().map(Into::into).collect(), "ada".into())).unwrap();
}

fn audit(home: &Path) -> PathBuf {
    home.join(DIRECTORY)
}

/// Checks that a key that was used is refused until the operator accepts the loss.
fn refused_until_accepted(home: &Path, what: &str) {
    for _ in 0..2 {
        let log = log(home);
        assert!(is_lost(&log), "{what}");
        // Calls without a key go on, and do not change what is remembered.
        let call = call(None, false);
        assert!(matches!(open(&log, &call), OpenOutcome::Started), "{what}");
        close(&log, value(&call));
        drop(wait_for(log.sign()));
        assert!(is_lost(&log), "{what}");
    }
    let living = log(home);
    assert!(is_lost(&living), "{what}");
    let found = findings(home);
    accept(&log(home), &found);
    let accepted = changes(home).remove(0);
    assert_eq!((accepted.action, &*accepted.user), (OperatorAction::Accept, "ada"), "{what}");
    let (before, after) = (accepted.before.unwrap(), accepted.after.unwrap());
    assert!(before.status.as_deref() == Some("open") && before.reason.is_some(), "{what}: {before:?}");
    assert_eq!(after.status.as_deref(), Some("accepted"), "{what}");
    assert_eq!(after.findings, Some(found.len() as u64), "{what}");
    assert!(keyed(&living, "k").is_ok(), "{what}: a living host sees that it is accepted");
    assert!(matches!(keyed(&log(home), "other"), Ok(OpenOutcome::Started)), "{what}");
    assert_eq!(log(home).loss().unwrap(), None, "{what}");
    drop(living);
    let open: Vec<_> = findings(home).into_iter().filter(|found| !found.accepted).collect();
    assert_eq!(open, [], "{what}");
}

/// A home in which a key was used in the newest journal.
fn home_with_key() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 6);
    for key in ["first", "k"] {
        assert!(matches!(keyed(&log(home.path()), key), Ok(OpenOutcome::Started)));
    }
    assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::KeyInUse(_))));
    home
}

#[test]
fn a_lost_log_frees_no_key_until_accepted() {
    type Loss = (&'static str, fn(&Path));
    let losses: [Loss; 9] = [
        ("the log", |home| fs::remove_dir_all(audit(home)).unwrap()),
        ("a journal", |home| fs::remove_dir_all(&journals(home)[0]).unwrap()),
        ("the newest segment", |home| fs::remove_file(segment_files(home).last().unwrap()).unwrap()),
        ("the last line", |home| cut_lines(segment_files(home).last().unwrap(), 1)),
        ("three lines", |home| cut_lines(segment_files(home).last().unwrap(), 3)),
        ("a half line", |home| {
            let path = segment_files(home).pop().unwrap();
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() - 30]).unwrap();
        }),
        ("the statement", |home| fs::remove_file(audit(home).join("checkpoint")).unwrap()),
        ("a changed statement", |home| fs::write(audit(home).join("checkpoint"), "x").unwrap()),
        ("a file in its place", |home| {
            fs::remove_dir_all(&journals(home)[0]).unwrap();
        }),
    ];
    for (what, lose) in losses {
        let home = home_with_key();
        lose(home.path());
        assert!(log(home.path()).loss().unwrap().is_some(), "{what}");
        refused_until_accepted(home.path(), what);
    }
}

#[test]
fn a_truncated_or_older_journal_is_not_continued() {
    for lines in [1, 2, 3] {
        let home = home_with_key();
        let older = files_below(&audit(home.path()));
        fill(home.path(), 3);
        let path = segment_files(home.path()).pop().unwrap();
        cut_lines(&path, lines);
        let cut = fs::read(&path).unwrap();
        fill(home.path(), 1);
        assert_eq!(fs::read(&path).unwrap(), cut, "{lines}");
        assert_eq!(journals(home.path()).len(), 2);
        assert!(findings(home.path()).iter().any(|found| found.flaw == FindingKind::Truncated));
        // An older copy of the same journal, under the newest statement.
        let is_of_journal = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "jsonl");
        fs::remove_dir_all(&journals(home.path())[1]).unwrap();
        older.keys().filter(is_of_journal).for_each(|path| write_private(path, &older[path]));
        let before = files_below(&journals(home.path())[0]);
        fill(home.path(), 1);
        assert_eq!(files_below(&journals(home.path())[0]), before);
        assert!(findings(home.path()).iter().any(|found| found.flaw == FindingKind::Truncated));
    }
}

/// A process that lives takes nothing of a shorter journal for the truth.
#[test]
fn a_shorter_journal_of_a_dead_process_frees_no_key() {
    let home = tempfile::tempdir().unwrap();
    let living = log(home.path());
    assert!(keyed(&living, "other").is_ok());
    let killed = log(home.path());
    let interrupted = call(Some("k"), false);
    open(&killed, &call(None, false));
    open(&killed, &interrupted);
    sign(&killed);
    let writer = killed.0.own_journal().unwrap().writer.clone();
    kill(killed);
    cut_lines(
        segment_files(home.path()).iter().find(|path| path.to_string_lossy().contains(&writer)).unwrap(),
        1,
    );
    let opened = keyed(&living, "k");
    assert!(!matches!(opened, Ok(OpenOutcome::Started)), "{opened:?}");
}

#[test]
fn an_older_log_with_its_statement_frees_no_key() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 3);
    let copy = files_below(&audit(home.path()));
    assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::Started)));
    put_back(&audit(home.path()), &copy);
    assert!(matches!(log(home.path()).loss(), Ok(Some(StateLoss::LogOlder(_)))));
    refused_until_accepted(home.path(), "an older log");
    // Grown past what the home remembers, it is another log.
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 3);
    let copy = files_below(&audit(home.path()));
    assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::Started)));
    put_back(&audit(home.path()), &copy);
    fill(home.path(), 20);
    assert!(is_lost(&log(home.path())));
}

#[test]
fn a_statement_reveals_a_lost_log_and_state() {
    for is_older in [false, true] {
        let home = tempfile::tempdir().unwrap();
        fill(home.path(), 3);
        let (state, mut copy) = (home.path().join("home.state"), files_below(&audit(home.path())));
        let old_state = fs::read(&state).unwrap();
        assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::Started)));
        let newest = fs::read(audit(home.path()).join("checkpoint")).unwrap();
        match is_older {
            true => fs::write(&state, old_state).unwrap(),
            false => {
                copy.clear();
                fs::remove_file(&state).unwrap();
            }
        }
        copy.insert(audit(home.path()).join("checkpoint"), newest);
        put_back(&audit(home.path()), &copy);
        refused_until_accepted(home.path(), if is_older { "older" } else { "missing" });
    }
}

#[test]
fn a_missing_or_changed_state_frees_no_key() {
    for change in [None, Some("cofferdam home state 1\n")] {
        let home = home_with_key();
        let state = home.path().join("home.state");
        match change {
            None => fs::remove_file(&state).unwrap(),
            Some(text) => fs::write(&state, text).unwrap(),
        }
        let log = log(home.path());
        assert!(is_lost(&log));
        accept(&log, &[]);
        assert!(matches!(keyed(&log, "k"), Ok(OpenOutcome::KeyInUse(_))), "the log itself was not touched");
    }
}

#[test]
fn a_missing_vault_stops_keyed_calls() {
    let home = home_with_key();
    HomeState::new(home.path()).advance_vault(3).unwrap();
    let log = log(home.path());
    assert!(is_lost(&log));
    accept(&log, &[]);
    assert!(matches!(keyed(&log, "k"), Ok(OpenOutcome::KeyInUse(_))));
}

#[test]
fn an_exposed_vault_must_be_repaired_first() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = home_with_key();
    let vault = home.path().join("vault");
    write_private(&vault, &vault_header(2, 0));
    HomeState::new(home.path()).advance_vault(2).unwrap();
    fs::set_permissions(&vault, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(is_lost(&log(home.path())));
    let refused = wait_for(log(home.path()).accept(Vec::new(), "ada".into())).unwrap_err().to_string();
    assert!(refused.contains("the vault can be read by others"), "{refused}");
    write_private(&vault, &vault_header(1, 0));
    assert!(is_lost(&log(home.path())), "an older vault is found once it can be read");
    write_private(&vault, &vault_header(2, 0));
    assert!(keyed(&log(home.path()), "k").is_ok());
}

#[test]
fn a_loss_can_be_accepted_again() {
    let home = home_with_key();
    fs::remove_dir_all(audit(home.path())).unwrap();
    fill(home.path(), 1);
    let state = home.path().join("home.state");
    let before = fs::read(&state).unwrap();
    accept(&log(home.path()), &[]);
    // The process ended before the home remembered it.
    fs::write(&state, before).unwrap();
    assert!(is_lost(&log(home.path())));
    accept(&log(home.path()), &[]);
    assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::Started)));
    accept(&log(home.path()), &[]);
    assert_eq!(text_of(home.path()).matches("loss_accepted").count(), 2, "there is no loss to accept");
}

#[test]
fn a_state_behind_the_log_is_no_loss() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("home.state");
    fill(home.path(), 3);
    let behind = fs::read(&state).unwrap();
    fill(home.path(), 20);
    assert!(
        wait_for(small_log(home.path()).prune(Timestamp::now(), false, "ada".into())).unwrap().calls > 10
    );
    fs::write(&state, behind).unwrap();
    assert!(keyed(&log(home.path()), "k").is_ok());
    assert_eq!(findings(home.path()), []);
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from));
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn an_accepted_edit_is_known_until_it_changes() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 12);
    let path = segment_files(home.path()).remove(1);
    edit(&path, "\"op\":\"b\"", "\"op\":\"x\"");
    let found = findings(home.path());
    assert!(
        matches!(&found[..], [found] if found.flaw == FindingKind::Edited && !found.accepted),
        "{found:?}"
    );
    accept(&log(home.path()), &found);
    let accepted = |is_accepted: bool| {
        let found = findings(home.path());
        assert!(!found.is_empty() && found.iter().all(|found| found.accepted == is_accepted), "{found:?}");
        found
    };
    accepted(true);
    // The log goes on.
    fill(home.path(), 2);
    assert!(keyed(&log(home.path()), "k").is_ok());
    accepted(true);
    // Another edit at the same place is a new finding.
    edit(&path, "\"op\":\"x\"", "\"op\":\"y\"");
    accept(&log(home.path()), &accepted(false));
    accepted(true);
    edit(&path, "\"op\":\"y\"", "\"op\":\"x\"");
    accepted(true);
    // And one elsewhere is none that was accepted.
    edit(&segment_files(home.path())[2], "\"op\":\"b\"", "\"op\":\"x\"");
    assert!(findings(home.path()).iter().any(|found| !found.accepted));
    edit(&segment_files(home.path())[2], "\"op\":\"x\"", "\"op\":\"b\"");
    // What was put back is named.
    edit(&path, "\"op\":\"x\"", "\"op\":\"b\"");
    let outcome = verified(home.path());
    assert_eq!(outcome.findings, []);
    assert!(
        matches!(&outcome.put_back[..], [back] if back.flaw == FindingKind::Edited),
        "{:?}",
        outcome.put_back
    );
}

#[test]
fn a_removed_line_is_accepted_and_the_log_goes_on() {
    for segment in [0, 1, 2] {
        let home = tempfile::tempdir().unwrap();
        fill(home.path(), 12);
        let files = segment_files(home.path());
        let path = &files[segment.min(files.len() - 1)];
        let text = fs::read_to_string(path).unwrap();
        let kept: Vec<_> =
            text.split_inclusive('\n').enumerate().filter(|(at, _)| *at != 2).map(|(_, line)| line).collect();
        fs::write(path, kept.concat()).unwrap();
        let found = findings(home.path());
        assert!(found.iter().any(|found| found.flaw == FindingKind::Missing), "{found:?}");
        accept(&log(home.path()), &found);
        assert_eq!(log(home.path()).loss().unwrap(), None);
        assert!(keyed(&log(home.path()), "k").is_ok());
        fill(home.path(), 4);
        assert!(findings(home.path()).iter().all(|found| found.accepted));
        assert_eq!(log(home.path()).loss().unwrap(), None);
    }
}

/// The table may be made again from a journal of which an entry, or a segment, cannot be read.
#[test]
fn damage_hides_no_key_after_it() {
    let damages: [fn(&[PathBuf]); 2] =
        [|segments| edit(&segments[0], "\"events\":[", "\"events\":("), |segments| make_dir(&segments[1])];
    for damage in damages {
        let home = tempfile::tempdir().unwrap();
        {
            let log = small_log(home.path());
            for key in 0..12 {
                assert!(matches!(keyed(&log, &key.to_string()), Ok(OpenOutcome::Started)));
            }
        }
        let segments = segment_files(home.path());
        assert!(segments.len() > 2, "{segments:?}");
        damage(&segments);
        fs::remove_file(audit(home.path()).join("keys.db")).unwrap();
        for key in ["1", "11"] {
            let found = keyed(&log(home.path()), key);
            assert!(matches!(found, Ok(OpenOutcome::KeyInUse(KeyState::Done { .. }))), "{key}: {found:?}");
        }
    }
}

/// An interrupted call of a journal with an accepted change can still be resolved.
#[test]
fn interrupted_calls_outlive_an_accepted_change() {
    let home = tempfile::tempdir().unwrap();
    let interrupted = call(Some("k"), false);
    let killed = log(home.path());
    run_call(&killed, call(None, false));
    open(&killed, &interrupted);
    open(&killed, &call(None, false));
    sign(&killed);
    kill(killed);
    let path = segment_files(home.path()).remove(0);
    edit(&path, "\"op\":\"b\"", "\"op\":\"x\"");
    assert!(matches!(state(&log(home.path()), "k"), KeyState::Unknown { .. }));
    accept(&log(home.path()), &findings(home.path()));
    let log = log(home.path());
    assert!(matches!(state(&log, "k"), KeyState::Unknown { .. }));
    assert!(skip(&log, &interrupted, true));
    assert!(matches!(state(&log, "k"), KeyState::Free));
    drop(log);
    assert!(findings(home.path()).iter().all(|found| found.accepted));
}

/// A statement of an attacker without a key accepts nothing.
#[test]
fn findings_are_accepted_only_with_a_signature() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 4);
    let other = tempfile::tempdir().unwrap();
    let path = segment_files(home.path()).remove(0);
    edit(&path, "\"op\":\"b\"", "\"op\":\"x\"");
    let found = findings(home.path());
    let known: Vec<_> = found.iter().map(AcknowledgedFinding::from).collect();
    // Accepted in another home, and its journal copied here.
    wait_for(log(other.path()).accept(known, "ada".into())).unwrap();
    let foreign = journals(other.path()).remove(0);
    copy_to(&audit(home.path()).join(foreign.file_name().unwrap()), &foreign, &files_below(&foreign));
    let found = findings(home.path());
    assert!(found.iter().any(|found| found.flaw == FindingKind::Edited && !found.accepted), "{found:?}");
    assert!(found.iter().any(|found| found.flaw == FindingKind::Signature), "{found:?}");
}
