//! Actions: a person approves the whole run, before its first step.

use cofferdam::{Error, HostErrorKind, RunRequest};
use cofferdam_audit::approvals::ApprovalState;
use cofferdam_core::digest::Digest;
use cofferdam_runtime::flow::ActionResult;
use serde_json::{Value, json};

use super::{Desk, approve, count, denied_id, events};
use crate::actions_run::fixture::write;
use crate::shared_host::{refused, run, shared_host};

/// An action that fetches, and then posts twice.
pub(crate) fn action(desk: &Desk, path: &str) {
    let host = desk.host();
    let hash: Digest = host.list().unwrap()[0].digest;
    let (grant, url) = (shared_host().upstream.grant(), shared_host().upstream.url(path));
    let step = |id: &str, op: &str, more: &str| {
        format!(
            "[[execute]]\nid = \"{id}\"\nconnector = \"github://cofferdam/probe\"\nop = \"{op}\"\n\
             inputs = {{ url = \"{url}\"{more} }}\n"
        )
    };
    let steps = step("look", "fetch", "")
        + &step("first", "post", ", body = \"${args.text}\"")
        + &step("second", "post", ", body = \"b\"");
    let text = format!(
        "+++\nname = \"post-twice\"\nversion = \"1.0.0\"\n[[requires.connectors]]\n\
         name = \"github://cofferdam/probe\"\nversion = \"0.1.0\"\nhash = \"sha256:{hash}\"\n\
         capabilities = {{ operations = [\"fetch\", \"post\"], hosts = [\"{grant}\"] }}\n\
         [[inputs]]\nname = \"text\"\ntype = \"string\"\ndescription = \"A text.\"\n{steps}+++\nA test.\n"
    );
    write(desk.home.path(), "post-twice", &text);
}

fn request(text: &str) -> RunRequest {
    RunRequest::new(json!({"text": text})).actor("mcp:agent").by_agent()
}

fn attempt(desk: &Desk, request: RunRequest) -> ActionResult {
    run(desk.host().run_action("post-twice", request))
}

#[track_caller]
fn asked(desk: &Desk, request: RunRequest) -> String {
    let ActionResult { outcome, report } = attempt(desk, request);
    let Err(Error::Host(error)) = outcome else { panic!("it was run") };
    assert_eq!((error.kind(), report.done().count()), (HostErrorKind::ApprovalRequired, 0), "{error}");
    assert!(error.message().starts_with("The action action://post-twice@1.0.0 waits for"), "{error}");
    error.details()["approval"].as_str().unwrap().to_owned()
}

#[test]
fn an_action_asks_once_before_its_first_step() {
    let (desk, path) = (Desk::new(), "/text/approval-action?approval");
    action(&desk, path);
    let id = asked(&desk, request("a"));
    assert_eq!(count(path), 0, "not even its first step ran");
    let shown = desk.host().approval(&id).unwrap();
    assert_eq!(
        shown.operations,
        ["github://cofferdam/probe@0.1.0 post", "github://cofferdam/probe@0.1.0 post"]
    );
    assert_eq!((shown.op.as_str(), shown.arguments.text.as_deref()), ("run", Some("{\"text\":\"a\"}")));
    approve(&desk.host(), &id);
    assert_ne!(asked(&desk, request("other")), id, "other arguments");
    assert_ne!(asked(&desk, request("a").idempotency_key("action-1")), id, "another key");
    let ActionResult { outcome, report } = attempt(&desk, request("a"));
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(count(path), 3);
    let types: Vec<_> = events(&desk.host(), &report.audit_id).iter().map(|it| it["type"].clone()).collect();
    assert_eq!(types[..4], ["received", "approval_used", "admitted", "step_started"].map(Value::from));
    asked(&desk, request("a"));
    // A caller that is no agent.
    attempt(&desk, RunRequest::new(json!({"text": "a"}))).outcome.unwrap();
    assert_eq!(count(path), 6);
    let waiting = desk.host().approvals().unwrap();
    assert_eq!(waiting.iter().filter(|it| it.state == ApprovalState::Waiting).count(), 3);
}

#[test]
fn another_file_or_a_denial_stops_an_action() {
    let (desk, path) = (Desk::new(), "/text/approval-action-file?approval");
    action(&desk, path);
    let id = asked(&desk, request("a"));
    approve(&desk.host(), &id);
    action(&desk, "/text/approval-action-other?approval");
    let other = asked(&desk, request("a"));
    assert_ne!(other, id);
    denied_id(&desk.host(), &other);
    let error = refused(attempt(&desk, request("a")).outcome.map(|_| Value::Null));
    assert_eq!((error.kind(), error.hint()), (HostErrorKind::ApprovalDenied, None), "{error}");
    action(&desk, path);
    attempt(&desk, request("a")).outcome.unwrap();
    assert_eq!((count(path), count("/text/approval-action-other?approval")), (3, 0));
}

#[test]
fn an_approved_action_is_replayed_by_its_key() {
    let (desk, path) = (Desk::new(), "/text/approval-action-key?approval");
    action(&desk, path);
    let keyed = || request("a").idempotency_key("action-key");
    approve(&desk.host(), &asked(&desk, keyed()));
    for _ in 0..2 {
        attempt(&desk, keyed()).outcome.unwrap();
    }
    assert_eq!((count(path), desk.host().approvals().unwrap().len()), (3, 1));
}
