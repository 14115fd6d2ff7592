//! Changes of the tables by anything but a host: verification finds each of them.

use std::time::Duration;

use cofferdam_audit::{
    AuditErrorKind, AuditLog as _, CallStatus, ExportRange, Finding, FindingKind, KeyDisposition, NoteSigner,
    OpenOutcome, export, verify_export, wait,
};
use cofferdam_core::home_state::StateLoss;
use cofferdam_core::host_key;
use jiff::Timestamp;

use super::super::PostgresLog;
use super::support::*;

/// A log with calls of two hosts, of which the first is there.
fn filled(cluster: &Cluster) -> PostgresLog {
    let other = cluster.host("b");
    for log in [&other, &cluster.host("c")] {
        run(log, None);
    }
    drop(other);
    let log = cluster.host("a");
    (0..4).for_each(|n| run(&log, Some(&format!("key-{n}"))));
    assert!(cluster.findings(&log).is_empty());
    log
}

fn run(log: &PostgresLog, key: Option<&str>) {
    run_call(log, &call(key, false));
}

/// The statement leads to findings of this kind.
#[track_caller]
fn finds(change: &str, kind: FindingKind) {
    let Some(cluster) = Cluster::start() else { return };
    let log = filled(&cluster);
    cluster.psql(change);
    let found = cluster.findings_unsigned(&log);
    assert!(found.iter().any(|finding| finding.flaw == kind), "{change}: {found:#?}");
}

const OWN: &str = "(SELECT writer FROM cofferdam.entries GROUP BY writer ORDER BY count(*) DESC LIMIT 1)";

#[test]
fn an_edited_entry_is_found() {
    finds(
        &format!(
            "UPDATE cofferdam.entries SET line = replace(line, 'ada', 'eve') WHERE writer = {OWN} \
             AND n = (SELECT min(n) FROM cofferdam.entries WHERE writer = {OWN} AND line LIKE '%ada%')"
        ),
        FindingKind::Edited,
    );
}

#[test]
fn a_removed_entry_is_found() {
    finds(&format!("DELETE FROM cofferdam.entries WHERE n = 6 AND writer = {OWN}"), FindingKind::Missing);
}

#[test]
fn an_inserted_entry_is_found() {
    finds(
        &format!(
            "INSERT INTO cofferdam.entries SELECT at + interval '1 microsecond', writer, n, line FROM cofferdam.entries \
             WHERE n = 6 AND writer = {OWN}"
        ),
        FindingKind::Disordered,
    );
}

#[test]
fn swapped_entries_are_found() {
    finds(
        &format!("UPDATE cofferdam.entries SET n = 11 - n WHERE n IN (5, 6) AND writer = {OWN}"),
        FindingKind::Missing,
    );
}

#[test]
fn a_missing_end_is_found() {
    finds(&format!("DELETE FROM cofferdam.entries WHERE n > 7 AND writer = {OWN}"), FindingKind::Truncated);
}

#[test]
fn a_missing_journal_is_found() {
    finds(
        &format!(
            "WITH own AS {OWN} DELETE FROM cofferdam.entries WHERE writer = (SELECT writer FROM own); \
             DELETE FROM cofferdam.writers w WHERE NOT EXISTS (SELECT FROM cofferdam.entries e WHERE e.writer = w.name)"
        ),
        FindingKind::Truncated,
    );
}

#[test]
fn a_changed_sealed_part_is_found() {
    finds("UPDATE cofferdam.sealed SET part = 'the request!' WHERE place = 0", FindingKind::Sealed);
}

#[test]
fn a_forged_statement_is_found() {
    finds("UPDATE cofferdam.checkpoint SET note = replace(note, 'writer', 'Writer')", FindingKind::Signature);
    finds("DELETE FROM cofferdam.checkpoint", FindingKind::Signature);
}

#[test]
fn keys_that_differ_from_the_entries_are_found() {
    finds(
        "DELETE FROM cofferdam.keys WHERE key = (SELECT key FROM cofferdam.keys ORDER BY key LIMIT 1)",
        FindingKind::Keys,
    );
    finds("UPDATE cofferdam.keys SET state = 3", FindingKind::Keys);
    finds("UPDATE cofferdam.keys SET fingerprint = sha256('x')", FindingKind::Keys);
    finds(
        "INSERT INTO cofferdam.keys SELECT sha256('x'), call, fingerprint, at, state, until, expires, writer, \
         is_idempotent FROM cofferdam.keys LIMIT 1",
        FindingKind::Keys,
    );
}

/// Without its action, the outcome of a step would expire, and the action would repeat the step.
#[test]
fn a_step_without_its_action_is_found() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    let (begun, step) = (run_at(Timestamp::now()), step_at(Timestamp::now()));
    for call in [&begun, &step] {
        assert!(matches!(open(&log, call), OpenOutcome::Started));
    }
    close(&log, value(&step));
    close(&log, end(&begun, CallStatus::Failure, KeyDisposition::Release));
    assert_eq!(cluster.findings(&log), []);
    cluster.psql("UPDATE cofferdam.keys SET action_key = NULL");
    let found = cluster.findings(&log);
    assert!(found.iter().any(|finding| finding.flaw == FindingKind::Keys), "{found:#?}");
}

#[test]
fn a_changed_table_of_calls_changes_no_entry() {
    let Some(cluster) = Cluster::start() else { return };
    let log = filled(&cluster);
    let rows = log.reader().unwrap().list(&cofferdam_audit::Filter::default()).unwrap();
    cluster.psql(
        "UPDATE cofferdam.calls SET status = 2, actor = 'eve'; DELETE FROM cofferdam.calls WHERE first_n < 6",
    );
    log.reindex(&mut |_, _| ()).unwrap();
    assert_eq!(log.reader().unwrap().list(&cofferdam_audit::Filter::default()).unwrap(), rows);
    // An entry that is read alone is checked, too.
    cluster.psql("UPDATE cofferdam.entries SET line = replace(line, 'ada', 'eve')");
    let read = log.reader().unwrap().entries_of(&rows[0].audit_id).unwrap_err();
    assert_eq!(read.kind(), AuditErrorKind::Tampered);
}

#[test]
fn an_export_is_verified_without_the_database() {
    let Some(cluster) = Cluster::start() else { return };
    let log = filled(&cluster);
    let signer = NoteSigner::new(&host_key::read(&cluster.home("a").join("host.key")).unwrap());
    let mut exported = Vec::new();
    let evidence = log.evidence().unwrap();
    let lines =
        export(&*evidence, &signer, ExportRange::default(), true, &mut exported, &mut |_| ()).unwrap();
    assert_eq!(lines, cluster.count("entries"));
    let checked = verify_export(&mut &exported[..], Some(&signer.key()), &[], &mut |_| ()).unwrap();
    assert!(checked.outcome.findings.is_empty(), "{:?}", checked.outcome.findings);
    assert_eq!(checked.outcome.stats.entries, lines);
}

/// Has the cluster go on with a copy of its database, in which a call under the key `since` is missing that host `a` has
/// signed for.
fn restored(cluster: &mut Cluster) {
    let name = cluster.database().to_owned();
    drop(filled(cluster));
    cluster.postgres.psql("postgres", &format!("CREATE DATABASE backup TEMPLATE {name} OWNER cofferdam"));
    let log = cluster.host("a");
    run(&log, Some("since"));
    wait(log.sign()).unwrap();
    drop(log);
    cluster.url = cluster.postgres.url("backup");
}

/// Asserts that no call runs under a key.
fn is_refused(log: &PostgresLog) {
    let refused = wait(log.key_state(claim("since"))).unwrap_err();
    assert_eq!(refused.kind(), AuditErrorKind::Lost);
    let refused = wait(log.open(call(Some("since"), false))).unwrap_err();
    assert_eq!(refused.kind(), AuditErrorKind::Lost);
}

#[test]
fn a_restored_backup_is_a_loss() {
    let Some(mut cluster) = Cluster::alone() else { return };
    restored(&mut cluster);
    // Also for hosts that remember nothing of what is missing.
    for name in ["b", "new", "a"] {
        let log = cluster.host(name);
        is_refused(&log);
        assert!(log.loss().unwrap().is_some());
    }
    let log = cluster.host("a");
    wait(log.accept(Vec::new(), "ada".into())).unwrap();
    assert!(log.loss().unwrap().is_none());
    run(&log, Some("since"));
    run(&cluster.host("b"), Some("other"));
    assert!(cluster.findings(&log).is_empty());
    cluster.server().stop();
}

/// The host that wrote it remembers it also before it has signed for it, and what the host has found lasts.
#[test]
fn a_commit_that_is_gone_stops_all_hosts() {
    let Some(mut cluster) = Cluster::alone() else { return };
    let log = filled(&cluster);
    cluster.server().save();
    run(&log, Some("since"));
    cluster.server().put_back();
    loop {
        match wait(log.open(call(Some("since"), false))) {
            Err(error) if error.kind() == AuditErrorKind::Lost => break,
            Err(error) => assert!(error.kind().may_pass(), "{error}"),
            Ok(outcome) => panic!("{outcome:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    is_refused(&cluster.host("b"));
    drop(log);
    let log = cluster.host("a");
    is_refused(&log);
    wait(log.accept(Vec::new(), "ada".into())).unwrap();
    run(&log, Some("since"));
    cluster.server().stop();
}

/// A session may go on with a database that is older than what it has written. A loss of as many entries was accepted
/// before.
#[test]
fn entries_that_an_append_misses_are_a_loss() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    run(&log, Some("since"));
    cluster.psql(
        "INSERT INTO cofferdam.losses SELECT h.home, w.n, true FROM cofferdam.hosts h, cofferdam.writers w; \
         UPDATE cofferdam.writers w SET n = e.n, hash = sha256(convert_to(e.line, 'UTF8')) FROM cofferdam.entries e \
         WHERE e.writer = w.name AND e.n = w.n - 1; \
         DELETE FROM cofferdam.entries e USING cofferdam.writers w WHERE e.writer = w.name AND e.n > w.n; \
         DELETE FROM cofferdam.keys",
    );
    assert!(matches!(open(&log, &call(None, true)), OpenOutcome::Started), "calls without a key go on");
    is_refused(&log);
    is_refused(&cluster.host("b"));
}

#[test]
fn a_key_that_was_freed_too_early_is_found() {
    let Some(cluster) = Cluster::start() else { return };
    let log = filled(&cluster);
    for change in
        ["DELETE FROM cofferdam.keys", "UPDATE cofferdam.keys SET expires = now() - interval '1 day'"]
    {
        cluster.psql(change);
        run(&log, Some("key-1"));
        let found = cluster.findings(&log);
        let is_early = |finding: &Finding| finding.what.contains("an earlier call still held");
        assert!(found.iter().any(is_early), "{change}: {found:#?}");
    }
}

/// A trigger is beyond what a host may be asked to live with: nothing is acknowledged.
#[test]
fn what_the_database_does_not_keep_is_refused() {
    let Some(cluster) = Cluster::start() else { return };
    let log = filled(&cluster);
    cluster.psql(
        "CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER nothing BEFORE INSERT ON cofferdam.keys FOR EACH ROW EXECUTE FUNCTION public.nothing()",
    );
    let refused = wait(log.open(call(Some("new"), false))).unwrap_err();
    assert!(refused.to_string().contains("did not keep the keys"), "{refused}");
    run(&log, None);
}

/// A copy of the files of a server, put back, has the numbers of the server.
#[test]
fn what_one_home_misses_is_missing_for_all() {
    let Some(mut cluster) = Cluster::alone() else { return };
    restored(&mut cluster);
    cluster.psql("UPDATE cofferdam.cluster SET incarnation = cofferdam.incarnation()");
    let (a, b) = (cluster.host("a"), cluster.host("b"));
    assert_eq!(b.loss().unwrap(), None);
    // It finds out as it registers, before any call.
    wait(a.ready()).unwrap();
    until(|| b.loss().unwrap() == Some(StateLoss::LogLossFound));
    is_refused(&b);
    wait(a.accept(Vec::new(), "ada".into())).unwrap();
    assert_eq!(b.loss().unwrap(), None);
    run(&b, Some("since"));
    cluster.server().stop();
}
