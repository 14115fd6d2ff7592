//! Approvals that several hosts share: of many calls or answers one is first, and changed rows approve nothing.

use std::time::Duration;

use cofferdam_audit::approvals::{
    AnswerOutcome, Approval, ApprovalBinding, ApprovalId, ApprovalState, ApprovalStore as _, ApprovalVerdict,
    Decision, PersonAnswer, ShownArguments, StoredApproval,
};
use cofferdam_audit::{AuditLog as _, wait};
use cofferdam_core::failure::AuditId;

use super::super::PostgresLog;
use super::support::Cluster;

fn ask(log: &PostgresLog, n: u8) -> ApprovalVerdict {
    let (now, call) = (wait(log.time()).unwrap(), AuditId::mint());
    let arguments = ShownArguments::new(9, "a".repeat(64), Some(format!("{{\"n\":{n}}}")));
    let approval =
        Approval { arguments, ..Approval::new("github://acme/files@1.0.0", "delete", "mcp:a", &call) };
    let binding = ApprovalBinding::new(&[n; 32], &["p"], 0, None);
    let request = StoredApproval::new(approval, binding, Duration::from_secs(3600), now);
    wait(log.request(request, call, now)).unwrap()
}

fn waiting(log: &PostgresLog, n: u8) -> ApprovalId {
    match ask(log, n) {
        ApprovalVerdict::Waiting(approval) => approval.id,
        other => panic!("{other:?}"),
    }
}

fn answer(log: &PostgresLog, id: &ApprovalId, decision: Decision) -> AnswerOutcome {
    let answer = PersonAnswer { decision, by: "ada".to_owned(), reason: None };
    wait(log.answer(id.clone(), answer, wait(log.time()).unwrap())).unwrap()
}

const ONCE: Decision = Decision::ApproveOnce(Duration::from_secs(600));

#[test]
fn hosts_share_requests_and_answers() {
    let Some(cluster) = Cluster::start() else { return };
    let (one, other) = (cluster.host("a"), cluster.host("b"));
    let id = waiting(&one, 1);
    assert_eq!(waiting(&other, 1), id);
    let shown = wait(other.get(id.clone())).unwrap().unwrap();
    assert_eq!(shown.approval.arguments.text.as_deref(), Some("{\"n\":1}"));
    assert!(matches!(answer(&other, &id, ONCE), AnswerOutcome::Taken(_)));
    assert!(matches!(answer(&one, &id, ONCE), AnswerOutcome::TooLate(_)));
    assert!(matches!(ask(&one, 2), ApprovalVerdict::Waiting(_)), "another call");
    let verdicts: Vec<_> = std::thread::scope(|scope| {
        let calls = [&one, &other, &one, &other].map(|log| scope.spawn(|| ask(log, 1)));
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let approved = verdicts.iter().filter(|it| matches!(it, ApprovalVerdict::Approved { .. })).count();
    assert_eq!(approved, 1, "{verdicts:?}");
    let now = wait(one.time()).unwrap();
    let states: Vec<_> = wait(one.list()).unwrap().iter().map(|it| it.state(now)).collect();
    assert_eq!(states.iter().filter(|it| **it == ApprovalState::Waiting).count(), 2, "{states:?}");
    assert_eq!(answer(&one, &ApprovalId::mint(), ONCE), AnswerOutcome::Missing);
}

#[test]
fn a_changed_row_of_approvals_approves_nothing() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    for (n, change) in [
        (1, "mac = '\\x00'"),
        (2, "value = replace(value, 'delete', 'remove')"),
        (3, "exact = same_arguments"),
    ] {
        let id = waiting(&log, n);
        answer(&log, &id, ONCE);
        cluster.psql(&format!("UPDATE cofferdam.approvals SET {change} WHERE id = '{id}'"));
        assert_ne!(waiting(&log, n), id, "{change}");
    }
    let id = waiting(&log, 9);
    cluster.psql(&format!("UPDATE cofferdam.approvals SET arguments = '{{}}' WHERE id = '{id}'"));
    assert_eq!(wait(log.get(id)).unwrap(), None, "other arguments are not shown");
}

#[test]
fn an_approval_survives_a_lost_connection() {
    let Some(cluster) = Cluster::start() else { return };
    let log = cluster.host("a");
    let id = waiting(&log, 1);
    answer(&log, &id, ONCE);
    cluster.cut();
    drop(log);
    assert!(matches!(ask(&cluster.host("b"), 1), ApprovalVerdict::Approved { .. }));
}
