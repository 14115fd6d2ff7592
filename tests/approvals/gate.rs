//! The gate of one host: what asks, what an approval is for, and how long it stands.

use std::time::Duration;

use cofferdam::{Call, Fallback, Host, HostErrorKind};
use cofferdam_audit::approvals::ApprovalState;
use cofferdam_core::event::operator::{OperatorAction, OperatorEvent};
use cofferdam_runtime::call::CallResult;
use cofferdam_runtime::host::ApprovalDecision;
use cofferdam_test_support::package;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::{Desk, POSTS_ASK, answer, approve, asked, count, denied, denied_id, events, outcome, post};
use crate::shared_host::{begin, example, failed, refused, run, shared_host};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn an_agents_destructive_call_waits_for_a_person() {
    let (desk, path) = (Desk::new(), "/text/approval-waits?approval");
    let host = desk.host();
    let CallResult { outcome, report } = run(host.run(post(path)));
    let error = refused(outcome);
    let id = error.details()["approval"].as_str().unwrap();
    assert_eq!((error.kind(), error.request_id()), (HostErrorKind::ApprovalRequired, &report.audit_id));
    for words in ["waits for the approval of a person until", id, "It was not run."] {
        assert!(error.message().contains(words), "{error}");
    }
    assert_eq!(
        error.hint().unwrap(),
        "Once a person has approved it, repeat the call with the same arguments."
    );
    assert!(report.attempts.is_empty());
    let seen = events(&host, &report.audit_id);
    let types: Vec<_> = seen.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["received", "admitted", "approval_requested", "final"]);
    let requested = &seen[2]["payload"];
    assert_eq!((requested["approval"].as_str(), &requested["candidate"]), (Some(id), &json!(0)));
    assert_eq!(seen[3]["payload"]["code"], "approval_required");
    let waiting = host.approval(id).unwrap();
    assert_eq!(
        (waiting.state, waiting.actor.as_str(), waiting.agent),
        (ApprovalState::Waiting, "mcp:agent", true)
    );
    assert_eq!((waiting.op.as_str(), waiting.effect.as_deref()), ("post", Some("destructive")));
    assert!(waiting.arguments.text.unwrap().contains(path) && waiting.call == report.audit_id.as_str());
    // No other caller, no other effect, and no host whose operator wants that.
    super::outcome(&host, Call::new(example("probe"), "env", json!({})).by_agent()).unwrap();
    let own = json!({"url": shared_host().upstream.url(path), "body": "b"});
    super::outcome(&host, Call::new(example("probe"), "post", own)).unwrap();
    assert_eq!((count(path), host.approvals().unwrap().len()), (1, 1));
}

/// The newest approval in the audit log.
fn approval_on_record(host: &Host) -> OperatorEvent<'static> {
    let changes = host.audit().reader().unwrap().operator_events(&Default::default()).unwrap();
    changes
        .into_iter()
        .map(|change| change.event)
        .find(|event| event.action == OperatorAction::Approve)
        .unwrap()
}

#[test]
fn an_approval_is_used_up_by_one_call() {
    let (desk, path) = (Desk::new(), "/text/approval-once?approval");
    let id = asked(&desk.host(), post(path));
    assert_eq!(asked(&desk.host(), post(path)), id, "the same request");
    approve(&desk.host(), &id);
    assert_eq!(count(path), 0);
    let host = desk.host();
    let CallResult { outcome, report } = run(host.run(post(path)));
    assert_eq!((outcome.unwrap()["status"].clone(), count(path)), (json!(200), 1));
    let seen = events(&host, &report.audit_id);
    let types: Vec<_> = seen.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["received", "admitted", "approval_used", "attempt_started", "attempt_ended", "final"]);
    assert_eq!(seen[2]["payload"], json!({"approval": id, "candidate": 0, "person": "host"}));
    assert_eq!(host.approval(&id).unwrap().used_by.as_deref(), Some(report.audit_id.as_str()));
    assert_ne!(asked(&desk.host(), post(path)), id);
    assert_eq!(count(path), 1);
    let answer = approval_on_record(&host);
    let after = answer.after.unwrap();
    assert_eq!(
        (&*answer.subject, &*answer.user, after.reason.as_deref()),
        (id.as_str(), "host", Some("fine"))
    );
    assert_eq!((&*after.details["op"], &*after.details["actor"]), ("post", "mcp:agent"));
}

#[test]
fn an_approval_is_for_exactly_one_call() {
    let (desk, path) = (Desk::new(), "/text/approval-exact?approval");
    let host = desk.host();
    let id = asked(&host, post(path));
    approve(&host, &id);
    let with = |body: &str| {
        let args = json!({"url": shared_host().upstream.url(path), "body": body});
        Call::new(example("probe"), "post", args).by_agent()
    };
    let others = [
        with("c").actor("mcp:agent"),
        with("b").actor("mcp:other"),
        with("b"),
        post(path).idempotency_key("key-1"),
        post(path).step_of("act@1.0.0", "one"),
    ];
    let ids: Vec<_> = others.into_iter().map(|call| asked(&host, call)).collect();
    assert!(!ids.contains(&id));
    // Another package of the same version, for which it was not given.
    let manifest = package::with_hosts(&package::guest_manifest("probe"), &[shared_host().upstream.grant()]);
    let manifest = manifest.replace("publisher = \"cofferdam\"", "publisher = \"other\"");
    let effects = "[connector.effects.operations]\npost = \"destructive\"\n\n[connector.idempotency";
    let manifest = manifest.replacen("[connector.idempotency", effects, 1);
    drop(desk.home.host().remove(&example("probe")));
    run(desk.home.install(&package::pack(&package::guest("probe"), &manifest), &desk.signer)).unwrap();
    assert_ne!(asked(&desk.host(), post(path)), id);
    assert_eq!(count(path), 0);
    // The same arguments, written down in another way.
    desk.install("destructive");
    let text = format!("{{\"body\": \"\\u0062\", \"url\": {}}}", json!(shared_host().upstream.url(path)));
    outcome(&desk.host(), Call::from_text(example("probe"), "post", text).actor("mcp:agent").by_agent())
        .unwrap();
    assert_eq!(count(path), 1);
}

#[test]
fn a_denied_call_is_refused_until_its_request_ends() {
    let (desk, path) = (Desk::new(), "/text/approval-denied?approval");
    let host = desk.host();
    let id = asked(&host, post(path));
    answer(&host, &id, ApprovalDecision::Deny).unwrap();
    let error = denied(&host, post(path));
    assert_eq!((error.hint(), error.details()["approval"].as_str()), (None, Some(id.as_str())));
    assert!(!error.message().contains("cofferdam approvals"), "{error}");
    let late = answer(&host, &id, ApprovalDecision::Approve).unwrap_err();
    assert_eq!((late.kind(), late.details()["state"].as_str()), (HostErrorKind::Conflict, Some("denied")));
    desk.clock.skip(59 * MINUTE);
    denied(&host, post(path));
    desk.clock.skip(2 * MINUTE);
    assert_ne!(asked(&host, post(path)), id);
    assert_eq!(count(path), 0);
}

#[test]
fn requests_and_approvals_end_with_their_time() {
    let (desk, path) = (Desk::new(), "/text/approval-ends?approval");
    let host = desk.host();
    let id = asked(&host, post(path));
    desk.clock.skip(61 * MINUTE);
    let error = answer(&host, &id, ApprovalDecision::Approve).unwrap_err();
    assert_eq!(error.kind(), HostErrorKind::Conflict);
    let id = asked(&host, post(path));
    approve(&host, &id);
    desk.clock.skip(11 * MINUTE);
    assert_eq!(host.approval(&id).unwrap().state, ApprovalState::Expired);
    let third = asked(&host, post(path));
    assert_ne!(third, id);
    approve(&host, &third);
    // An approval that was withdrawn, and one by a clock that leapt since.
    answer(&host, &third, ApprovalDecision::Deny).unwrap();
    denied(&host, post(path));
    assert_eq!(count(path), 0);
}

#[test]
fn a_clock_that_leaps_ends_an_approval() {
    let (desk, path) = (Desk::new(), "/text/approval-leaps?approval");
    let id = asked(&desk.host(), post(path));
    approve(&desk.host(), &id);
    // The log does not believe it, and the approval is not used by it either.
    desk.clock.skip(Duration::from_secs(3 * 24 * 3600));
    assert_ne!(asked(&desk.host(), post(path)), id);
    assert_eq!(count(path), 0);
}

#[test]
fn a_window_is_for_further_calls_with_the_same_arguments() {
    let (desk, path) = (Desk::new(), "/text/approval-window?approval");
    let host = desk.host();
    let id = asked(&host, post(path).idempotency_key("window-1"));
    answer(&host, &id, ApprovalDecision::ApproveSameArguments(10 * MINUTE)).unwrap();
    for key in ["window-1", "window-2", "window-3"] {
        outcome(&host, post(path).idempotency_key(key)).unwrap();
    }
    outcome(&host, post(path)).unwrap();
    assert_eq!(count(path), 4);
    let other = json!({"url": shared_host().upstream.url(path), "body": "c"});
    asked(&host, Call::new(example("probe"), "post", other).actor("mcp:agent").by_agent());
    desk.clock.skip(10 * MINUTE);
    asked(&host, post(path));
    assert_eq!(count(path), 4);
}

#[test]
fn a_key_replays_an_approved_call_without_asking() {
    let (desk, path) = (Desk::new(), "/text/approval-keyed?approval");
    let call = || post(path).idempotency_key("keyed-1");
    let error = refused(outcome(&desk.host(), call()));
    assert!(error.hint().unwrap().ends_with("the same arguments and the same idempotency key."), "{error}");
    approve(&desk.host(), error.details()["approval"].as_str().unwrap());
    let details = approval_on_record(&desk.host()).after.unwrap().details;
    assert_eq!(details.get("idempotency_key").map(|key| &**key), Some("keyed-1"));
    let value = outcome(&desk.host(), call()).unwrap();
    assert_eq!(outcome(&desk.host(), call()).unwrap(), value, "it is replayed");
    assert_eq!((count(path), desk.host().approvals().unwrap().len()), (1, 1));
}

#[test]
fn retries_need_no_second_approval() {
    let (desk, path) = (Desk::new(), "/flaky/2/approval");
    let rules = POSTS_ASK.replace("post", "fetch");
    let args = json!({"url": shared_host().upstream.url(path)});
    let call = || Call::new(example("probe"), "fetch", args.clone());
    let id = asked(&desk.host_with(&rules), call());
    approve(&desk.host_with(&rules), &id);
    let host = desk.host_with(&rules);
    let CallResult { outcome, report } = run(host.run(call()));
    outcome.unwrap();
    assert_eq!((report.attempts.len(), count(path)), (3, 3));
}

#[test]
fn a_fallback_waits_for_a_person_too() {
    let (desk, path) = (Desk::new(), "/text/approval-fallback?approval");
    let host = desk.host_with("[[approvals.rules]]\noperations = [\"order\"]\nask = true\n");
    let call = || {
        let first =
            json!({"url": shared_host().upstream.url("/status/503/first"), "body": "b", "labels": ["one"]});
        let other = json!({"url": shared_host().upstream.url(path)}).as_object().unwrap().clone();
        let fallback = Fallback::new(example("probe"), "order").with_args(other);
        Call::new(example("probe"), "order", first).single_attempt().or_else(fallback)
    };
    let first = asked(&host, call());
    approve(&host, &first);
    let failure = failed(outcome(&host, call()));
    let chain = failure.details()["chain"].as_array().unwrap();
    assert_eq!((&chain[0]["attempts"], &chain[1]["code"]), (&json!(1), &json!("approval_required")));
    let waiting =
        host.approvals().unwrap().into_iter().find(|it| it.state == ApprovalState::Waiting).unwrap();
    assert_eq!(waiting.candidate, 1);
    assert!(chain[1]["message"].as_str().unwrap().contains(waiting.id.as_str()), "{chain:?}");
    approve(&host, waiting.id.as_str());
    assert_ne!(asked(&host, call()), first, "the first candidate has to be approved again");
    assert_eq!(count(path), 0);
    let again = host.approvals().unwrap().into_iter().find(|it| it.state == ApprovalState::Waiting).unwrap();
    approve(&host, again.id.as_str());
    outcome(&host, call()).unwrap();
    assert_eq!((count(path), count("/status/503/first")), (1, 2));
}

#[test]
fn arguments_of_four_mebibytes_can_be_approved() {
    let (desk, path) = (Desk::new(), "/text/approval-large?approval");
    let url = shared_host().upstream.url(path);
    let args = format!("{{\"url\": {}, \"body\": \"{}\"}}", json!(url), "x".repeat((4 << 20) - 1024));
    let call = |args: &str| Call::from_text(example("probe"), "post", args).actor("mcp:agent").by_agent();
    let host = desk.host();
    let id = asked(&host, call(&args));
    let shown = host.approval(&id).unwrap().arguments;
    assert_eq!(shown.bytes, args.len() as u64);
    let text = shown.text.unwrap();
    assert!(
        text.len() < 70_000 && text.ends_with(&format!("…[truncated, {} bytes]", args.len())),
        "{}",
        text.len()
    );
    approve(&host, &id);
    let changed = args.replacen("x\"}", "y\"}", 1);
    assert_ne!(asked(&host, call(&changed)), id, "the last of them differs");
    outcome(&host, call(&args)).unwrap();
    assert_eq!(count(path), 1);
}

#[test]
fn more_than_ten_thousand_requests_are_refused() {
    let (desk, path) = (Desk::new(), "/text/approval-many?approval");
    let host = desk.host();
    let id = asked(&host, post(path));
    let mut file = Connection::open(desk.home.path().join("audit/approvals.db")).unwrap();
    let copies = file.transaction().unwrap();
    for n in 1..10_000 {
        let copy = "INSERT INTO approvals SELECT ?1, exact, zeroblob(32), 1, ends, bytes, value, arguments, mac \
                    FROM approvals WHERE id = ?2";
        copies.execute(copy, params![format!("copy-{n}"), id]).unwrap();
    }
    copies.commit().unwrap();
    assert_eq!(asked(&host, post(path)), id);
    let other = json!({"url": shared_host().upstream.url(path), "body": "c"});
    let other = Call::new(example("probe"), "post", other).by_agent();
    let error = refused(outcome(&host, other.clone()));
    assert_eq!(error.kind(), HostErrorKind::Busy, "{error}");
    answer(&host, &id, ApprovalDecision::Deny).unwrap();
    asked(&host, other);
    assert_eq!(count(path), 0);
}

#[test]
fn eight_calls_at_once_share_no_approval() {
    let (desk, path) = (Desk::new(), "/text/approval-eight?approval");
    let id = asked(&desk.host(), post(path));
    approve(&desk.host(), &id);
    // Two hosts, each with a connection of its own.
    let hosts = [desk.home.builder(), desk.home.builder()]
        .map(|builder| builder.allow_private(shared_host().upstream.host_port()).build().unwrap());
    let calls: Vec<_> = (0..8)
        .map(|n| {
            let host = hosts[n % 2].clone();
            begin(async move { host.run(post(path)).await })
        })
        .collect();
    let outcomes: Vec<_> = calls.into_iter().map(|call| run(call).unwrap()).collect();
    let values = outcomes.iter().filter(|it| it.outcome.is_ok()).count();
    assert_eq!((values, count(path)), (1, 1));
}

#[test]
fn a_restored_file_gives_back_no_approval() {
    let (desk, path) = (Desk::new(), "/text/approval-restored?approval");
    let file = desk.home.path().join("audit/approvals.db");
    let id = asked(&desk.host(), post(path));
    approve(&desk.host(), &id);
    let older = std::fs::read(&file).unwrap();
    outcome(&desk.host(), post(path)).unwrap();
    std::fs::write(&file, &older).unwrap();
    let window = asked(&desk.host(), post(path));
    assert_ne!(window, id);
    let decision = ApprovalDecision::ApproveSameArguments(Duration::from_secs(600));
    answer(&desk.host(), &window, decision).unwrap();
    let older = std::fs::read(&file).unwrap();
    outcome(&desk.host(), post(path)).unwrap();
    denied_id(&desk.host(), &window);
    std::fs::write(&file, &older).unwrap();
    denied(&desk.host(), post(path));
    assert_eq!(count(path), 2);
}

#[test]
fn secrets_in_arguments_are_not_shown() {
    let (desk, path) = (Desk::new(), "/text/approval-secret?approval");
    let token = format!("ghp_{}", "Z9".repeat(18));
    let args = json!({"url": shared_host().upstream.url(path), "body": token});
    let host = desk.host();
    let id = asked(&host, Call::new(example("probe"), "post", args).by_agent());
    let text = host.approval(&id).unwrap().arguments.text.unwrap();
    assert!(!text.contains(&token) && text.contains(path), "{text}");
}

#[test]
fn a_host_without_rules_asks_for_nothing() {
    let (desk, path) = (Desk::new(), "/text/approval-never?approval");
    let host = desk.host_with("[[approvals.rules]]\nask = false\n");
    outcome(&host, post(path)).unwrap();
    assert_eq!(count(path), 1);
    assert!(
        !desk.home.path().join("audit/approvals.db").exists(),
        "nothing is written for calls that need none"
    );
    assert_eq!(host.approvals().unwrap(), []);
    let value: Value = outcome(&host, post(path).idempotency_key("never-1")).unwrap();
    assert_eq!(value["status"], 200);
}
