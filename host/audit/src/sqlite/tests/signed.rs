//! Signed statements: their time, their storage, and those that are never overwritten.

use std::fs;

use super::*;
use crate::{Accepted, Checkpoint, Flaw};

fn anchored(home: &Path) -> Option<Checkpoint> {
    let key = NoteSigner::new(&host_key::load_or_create(&home.join("host.key")).unwrap()).key();
    Anchor::of(home).read().unwrap().map(|note| Checkpoint::read(&note, &key).unwrap())
}

#[test]
fn a_host_signs_at_shutdown_and_on_request() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 2);
    assert_eq!(anchored(home.path()).unwrap().n, 4);
    let log = log(home.path());
    open(&log, &AuditId::mint()).unwrap();
    let note = sign(&log).unwrap();
    assert_eq!(Anchor::of(home.path()).read().unwrap(), Some(note.clone()));
    assert_eq!(sign(&log).unwrap(), note, "nothing new, nothing new signed");
    assert_eq!(count(home.path(), "checkpoints"), 1, "of one stretch the newest is kept");
}

#[test]
fn a_host_signs_at_intervals_and_when_idle() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    for _ in 0..1_100 {
        drop(log.open(opening(&AuditId::mint(), Timestamp::now())));
    }
    done(log.flush()).unwrap();
    while anchored(home.path()).is_none_or(|signed| signed.n < 1_100) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let proof = proof(home.path());
    assert!(proof.findings.is_empty() && proof.tally.checkpoints >= 2, "{:?}", proof.findings);
}

#[test]
fn a_newer_checkpoint_is_never_overwritten() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 5);
    let signed = Anchor::of(home.path()).read().unwrap();
    let connection = file(home.path());
    connection
        .execute_batch(
            "DELETE FROM entries WHERE n > 6; DELETE FROM calls WHERE last > 6; DELETE FROM checkpoints",
        )
        .unwrap();
    drop(connection);
    fill(home.path(), 1);
    assert_eq!(Anchor::of(home.path()).read().unwrap(), signed);
    let found = findings(home.path());
    assert_eq!(
        found.iter().map(|finding| (finding.n, finding.flaw)).collect::<Vec<_>>(),
        [(9, Flaw::Truncated), (8, Flaw::Signature)]
    );
    // Grown past it, it is another record than was signed.
    fill(home.path(), 3);
    assert_eq!(Anchor::of(home.path()).read().unwrap(), signed);
    let found = findings(home.path());
    assert_eq!(
        found.iter().map(|finding| (finding.n, finding.flaw)).collect::<Vec<_>>(),
        [(10, Flaw::Rewritten), (14, Flaw::Signature)]
    );
}

#[test]
fn truncation_under_a_running_host_stops_signing() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    for _ in 0..3 {
        open(&log, &AuditId::mint()).unwrap();
    }
    file(home.path())
        .execute_batch("DELETE FROM entries WHERE n = 3; DELETE FROM calls WHERE last = 3")
        .unwrap();
    assert!(sign(&log).is_err());
    drop(log);
    let found = findings(home.path());
    assert_eq!(
        found.iter().map(|finding| (finding.n, finding.flaw)).collect::<Vec<_>>(),
        [(3, Flaw::Truncated)]
    );
}

#[test]
fn accepted_findings_are_logged_and_signed() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 5);
    file(home.path())
        .execute_batch("UPDATE entries SET body = replace(body, 'greet', 'other') WHERE n = 3; DELETE FROM entries WHERE n > 8; DELETE FROM calls WHERE last > 8")
        .unwrap();
    let found = findings(home.path());
    let flaws: Vec<_> = found.iter().map(|finding| (finding.n, finding.flaw)).collect();
    assert_eq!(flaws, [(3, Flaw::Edited), (9, Flaw::Truncated), (4, Flaw::Calls)]);
    {
        let log = log(home.path());
        done(log.accept(found.iter().map(Accepted::from).collect())).unwrap();
    }
    assert!(findings(home.path()).iter().all(|finding| finding.accepted));
    // A further change there is a new finding: the entry, its hash, the row of a call.
    for (change, flaw) in [
        ("UPDATE entries SET body = replace(body, 'other', 'third') WHERE n = 3", Flaw::Edited),
        ("UPDATE calls SET actor = 'other' WHERE last = 4", Flaw::Calls),
    ] {
        file(home.path()).execute_batch(change).unwrap();
        let found = findings(home.path());
        assert!(found.iter().any(|found| found.flaw == flaw && !found.accepted), "{change}: {found:?}");
        let log = log(home.path());
        done(log.accept(found.iter().map(Accepted::from).collect())).unwrap();
        drop(log);
        assert!(findings(home.path()).iter().all(|finding| finding.accepted), "{change}");
    }
    assert!(fs::read_to_string(home.path().join("audit.checkpoint")).unwrap().contains("\n11\n"));
    // A statement of an attacker without a key accepts nothing.
    file(home.path())
        .execute_batch("UPDATE entries SET body = replace(body, 'greet', 'other') WHERE n = 5")
        .unwrap();
    let found = findings(home.path());
    assert!(found.iter().any(|finding| finding.n == 5 && !finding.accepted), "{found:?}");
}

#[test]
fn a_checkpoint_precedes_the_first_entry() {
    let home = tempfile::tempdir().unwrap();
    let host = log(home.path());
    // The process may be killed as soon as the first entry is acknowledged.
    open(&host, &AuditId::mint()).unwrap();
    assert!(anchored(home.path()).is_some());
    assert!(count(home.path(), "checkpoints") > 0);
    assert!(findings(home.path()).is_empty());
}

#[test]
fn a_history_without_checkpoints_is_a_finding() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 20);
    file(home.path())
        .execute_batch(
            "DELETE FROM entries WHERE n > 10; DELETE FROM calls WHERE last > 10; \
        DELETE FROM rollup; UPDATE rolled SET upto = zeroblob(16); UPDATE calls SET actor = 'nobody'",
        )
        .unwrap();
    rewritten(home.path(), "tester", "nobody", "DELETE FROM checkpoints");
    fs::remove_file(home.path().join("audit.checkpoint")).unwrap();
    let signatures = || findings(home.path()).iter().filter(|found| found.flaw == Flaw::Signature).count();
    assert_eq!(signatures(), 2, "{:?}", findings(home.path()));
    // And no host that comes by signs for it.
    fill(home.path(), 5);
    assert_eq!(signatures(), 2, "{:?}", findings(home.path()));
    assert_eq!(anchored(home.path()), None);
    assert!(sign(&log(home.path())).is_err());
}

#[test]
fn a_removed_checkpoint_file_is_not_recreated() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 5);
    fs::remove_file(home.path().join("audit.checkpoint")).unwrap();
    fill(home.path(), 5);
    assert_eq!(findings(home.path()).iter().map(|found| found.flaw).collect::<Vec<_>>(), [Flaw::Signature]);
    // Until the operator says that it may be.
    let host = log(home.path());
    done(host.accept(vec![Accepted { n: 20, flaw: Flaw::Signature, of: None }])).unwrap();
    drop(host);
    assert!(findings(home.path()).is_empty());
}

#[test]
fn a_host_killed_at_creation_leaves_no_finding() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 1);
    // The file was there, and the transaction was not.
    file(home.path())
        .execute_batch(
            "DELETE FROM entries; DELETE FROM calls; DELETE FROM checkpoints; \
        DELETE FROM rollup; UPDATE rolled SET upto = zeroblob(16)",
        )
        .unwrap();
    let key = host_key::load_or_create(&home.path().join("host.key")).unwrap();
    let genesis = Checkpoint {
        n: 0,
        hash: GENESIS,
        at: Timestamp::now(),
        vault: None,
        statement: crate::Statement::Head,
    };
    fs::write(home.path().join("audit.checkpoint"), genesis.sign(&NoteSigner::new(&key))).unwrap();
    assert!(findings(home.path()).is_empty());
    fill(home.path(), 2);
    assert!(findings(home.path()).is_empty());
}
