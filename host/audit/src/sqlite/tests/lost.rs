//! A log or a vault that is deleted or put back from an older copy: no key is free until the operator accepts it.

use std::collections::BTreeMap;
use std::fs;

use super::*;
use cofferdam_core::home_state::StateLoss;

use crate::command::{KeyClaim, KeyScope};
use crate::error::AuditErrorKind;
use crate::{Checkpoint, Statement};

/// Opens a call under this key.
fn keyed(log: &SqliteLog, key: &str) -> Result<OpenOutcome, AuditError> {
    let id = AuditId::mint();
    let at = Timestamp::now();
    let claim = KeyClaim { key: key.into(), fingerprint: [7; 32], at, of: KeyScope::Call };
    let call = OpenCall { key: Some(claim), ..opening(&id, at) };
    let opened = log.open(call);
    let opened = done(opened)?;
    if matches!(opened, OpenOutcome::Started) {
        let end = CloseCall {
            key: KeyDisposition::Retain(at + std::time::Duration::from_secs(3_600)),
            ..closing(&id, at)
        };
        done(log.close(None, end))?;
    }
    Ok(opened)
}

fn is_lost(log: &SqliteLog) -> bool {
    match keyed(log, "k") {
        Err(error) => error.kind() == AuditErrorKind::Lost,
        Ok(_) => false,
    }
}

fn accept(log: &SqliteLog) {
    done(log.accept(Vec::new())).unwrap();
}

/// The files of the log.
fn files(home: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let files = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("audit."));
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn put_back(home: &Path, copy: &BTreeMap<std::path::PathBuf, Vec<u8>>) {
    files(home).keys().for_each(|path| fs::remove_file(path).unwrap());
    for (path, bytes) in copy {
        fs::write(path, bytes).unwrap();
        let own = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
        fs::set_permissions(path, own).unwrap();
    }
}

/// The key was used, and is not free after any change to the home.
fn refused_until_accepted(home: &Path) {
    for _ in 0..2 {
        let log = log(home);
        assert!(is_lost(&log));
        // Calls without a key go on, and do not change what is remembered.
        assert!(matches!(open(&log, &AuditId::mint()), Ok(OpenOutcome::Started)));
        sign(&log).unwrap();
        assert!(is_lost(&log));
    }
    let living = log(home);
    assert!(is_lost(&living));
    accept(&log(home));
    assert!(keyed(&living, "k").is_ok(), "a living host sees that it is accepted");
    assert!(keyed(&log(home), "other").is_ok());
}

#[test]
fn a_deleted_log_frees_no_key() {
    let home = tempfile::tempdir().unwrap();
    assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::Started)));
    assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::KeyInUse(_))));
    put_back(home.path(), &BTreeMap::new());
    refused_until_accepted(home.path());
}

#[test]
fn a_checkpoint_reveals_a_lost_log_and_state() {
    let checkpoint = |path: &std::path::PathBuf| path.ends_with("audit.checkpoint");
    for older in [false, true] {
        let home = tempfile::tempdir().unwrap();
        fill(home.path(), 3);
        let state = home.path().join("home.state");
        let (mut copy, old_state) = (files(home.path()), fs::read(&state).unwrap());
        assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::Started)));
        let newest = files(home.path()).into_iter().find(|(path, _)| checkpoint(path)).unwrap();
        match older {
            true => fs::write(&state, old_state).unwrap(),
            false => {
                copy.clear();
                fs::remove_file(&state).unwrap();
            }
        }
        copy.insert(newest.0, newest.1);
        put_back(home.path(), &copy);
        refused_until_accepted(home.path());
    }
}

#[test]
fn a_reader_finds_every_loss() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 3);
    let copy = files(home.path());
    assert!(keyed(&log(home.path()), "k").is_ok());
    assert_eq!(log(home.path()).loss().unwrap(), None);
    put_back(home.path(), &copy);
    assert!(matches!(log(home.path()).loss(), Ok(Some(StateLoss::LogOlder { .. }))));
    fill(home.path(), 20);
    assert!(matches!(log(home.path()).loss(), Ok(Some(StateLoss::LogOther(_)))));
    put_back(home.path(), &BTreeMap::new());
    assert!(matches!(log(home.path()).loss(), Ok(Some(StateLoss::LogOlder { found: 0, .. }))));
    fs::remove_file(home.path().join("home.state")).unwrap();
    put_back(home.path(), &copy);
    assert_eq!(log(home.path()).loss().unwrap(), Some(StateLoss::StateMissing));
}

#[test]
fn an_older_log_with_its_checkpoint_frees_no_key() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 3);
    let copy = files(home.path());
    assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::Started)));
    put_back(home.path(), &copy);
    refused_until_accepted(home.path());
}

#[test]
fn an_older_log_that_grew_past_the_loss_is_detected() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 3);
    let copy = files(home.path());
    assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::Started)));
    put_back(home.path(), &copy);
    fill(home.path(), 20);
    assert!(is_lost(&log(home.path())));
}

#[test]
fn a_missing_or_changed_state_frees_no_key() {
    for change in [None, Some("cofferdam home state 1\n")] {
        let home = tempfile::tempdir().unwrap();
        assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::Started)));
        let state = home.path().join("home.state");
        match change {
            None => fs::remove_file(&state).unwrap(),
            Some(text) => fs::write(&state, text).unwrap(),
        }
        let log = log(home.path());
        assert!(is_lost(&log));
        accept(&log);
        assert!(matches!(keyed(&log, "k"), Ok(OpenOutcome::KeyInUse(_))), "the log itself was not touched");
    }
}

#[test]
fn a_missing_vault_stops_keyed_calls() {
    let home = tempfile::tempdir().unwrap();
    assert!(keyed(&log(home.path()), "k").is_ok());
    cofferdam_core::home_state::HomeState::new(home.path()).advance_vault(3).unwrap();
    refused_until_accepted(home.path());
}

#[test]
fn a_vault_reveals_a_lost_log_and_state() {
    let home = tempfile::tempdir().unwrap();
    let vault = BTreeMap::from([(home.path().join("vault"), cofferdam_core::home_state::vault_header(1, 0))]);
    let state = cofferdam_core::home_state::HomeState::new(home.path());
    state.create(None).unwrap();
    put_back(home.path(), &vault);
    state.advance_vault(1).unwrap();
    assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::Started)));
    put_back(home.path(), &BTreeMap::new());
    fs::remove_file(home.path().join("home.state")).unwrap();
    let vault = home.path().join("vault");
    put_back_vault(&vault, 1);
    fs::set_permissions(&vault, <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o644))
        .unwrap();
    assert!(is_lost(&log(home.path())), "it may remember more");
    put_back_vault(&vault, 1);
    refused_until_accepted(home.path());
}

#[test]
fn a_home_without_a_state_gets_one() {
    let home = tempfile::tempdir().unwrap();
    assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::Started)));
    let host_key = host_key::read(&home.path().join("host.key")).unwrap();
    let signer = NoteSigner::new(&host_key);
    let anchor = Anchor::of(home.path());
    let newest = Checkpoint::read(&anchor.read().unwrap().unwrap(), &signer.key()).unwrap();
    assert_eq!((newest.vault, &newest.statement), (Some(0), &Statement::Head));
    let old = Checkpoint { vault: None, ..newest }.sign(&signer);
    anchor.write(&old, false).unwrap();
    file(home.path()).execute("UPDATE checkpoints SET note = ?1", [&old]).unwrap();
    fs::remove_file(home.path().join("home.state")).unwrap();
    assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::KeyInUse(_))));
    put_back(home.path(), &BTreeMap::new());
    refused_until_accepted(home.path());
}

#[test]
fn an_older_checkpoint_put_back_leaves_an_entry() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 2);
    let anchor = Anchor::of(home.path());
    let old = anchor.read().unwrap().unwrap();
    fill(home.path(), 2);
    anchor.write(&old, false).unwrap();
    fill(home.path(), 1);
    let said = "SELECT body FROM entries WHERE body LIKE '%checkpoint_replaced%'";
    let said: String = file(home.path()).query_row(said, [], |row| row.get(0)).unwrap();
    assert!(said.contains(&old.replace('\n', "\\n")), "{said}");
    assert_ne!(anchor.read().unwrap().unwrap(), old);
    assert_eq!(findings(home.path()), []);
}

#[test]
fn a_state_older_than_the_pruning_is_no_loss() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("home.state");
    let old = || fill_at(home.path(), 5, "2026-01-01T00:00:00Z".parse().unwrap());
    old();
    let behind = fs::read(&state).unwrap();
    old();
    let writer = log(home.path());
    open(&writer, &AuditId::mint()).unwrap();
    let before = "2026-06-01T00:00:00Z".parse().unwrap();
    assert_eq!(done(writer.prune(before, false)).unwrap().calls, 10);
    drop(writer);
    fs::write(&state, behind).unwrap();
    assert!(keyed(&log(home.path()), "k").is_ok());
    assert_eq!(findings(home.path()), []);
}

#[test]
fn a_loss_can_be_accepted_again() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("home.state");
    assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::Started)));
    put_back(home.path(), &BTreeMap::new());
    fill(home.path(), 20);
    let before = fs::read(&state).unwrap();
    accept(&log(home.path()));
    // The process ended before the home remembered it.
    fs::write(&state, before).unwrap();
    assert!(is_lost(&log(home.path())));
    accept(&log(home.path()));
    assert!(matches!(keyed(&log(home.path()), "k"), Ok(OpenOutcome::Started)));
    let entries = count(home.path(), "entries");
    accept(&log(home.path()));
    assert_eq!(count(home.path(), "entries"), entries, "there is no loss to accept");
}

#[test]
fn an_exposed_vault_must_be_repaired_first() {
    let home = tempfile::tempdir().unwrap();
    assert!(keyed(&log(home.path()), "k").is_ok());
    let vault = home.path().join("vault");
    put_back_vault(&vault, 2);
    cofferdam_core::home_state::HomeState::new(home.path()).advance_vault(2).unwrap();
    fs::set_permissions(&vault, <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o644))
        .unwrap();
    assert!(is_lost(&log(home.path())));
    assert!(
        done(log(home.path()).accept(Vec::new()))
            .unwrap_err()
            .to_string()
            .contains("the vault can be read by others")
    );
    put_back_vault(&vault, 1);
    assert!(is_lost(&log(home.path())), "an older vault is found once it can be read");
    put_back_vault(&vault, 2);
    assert!(keyed(&log(home.path()), "k").is_ok());
}

/// Puts a vault that has come so far in its place.
fn put_back_vault(path: &Path, counter: u64) {
    fs::write(path, cofferdam_core::home_state::vault_header(counter, 0)).unwrap();
    fs::set_permissions(path, <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600))
        .unwrap();
}

#[test]
fn pruning_keeps_pace_with_the_state() {
    let home = tempfile::tempdir().unwrap();
    fill_at(home.path(), 5, "2026-01-01T00:00:00Z".parse().unwrap());
    let log = log(home.path());
    assert!(keyed(&log, "k").is_ok());
    assert_eq!(done(log.prune("2026-02-01T00:00:00Z".parse().unwrap(), false)).unwrap().calls, 5);
    drop(log);
    assert!(matches!(keyed(&super::log(home.path()), "k"), Ok(OpenOutcome::KeyInUse(_))));
}
