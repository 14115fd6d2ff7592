//! Calls that wait for a person: nothing runs without an approval of exactly it, and nothing runs twice with one.
//!
//! The effect is a request that a real server counts.

pub(crate) mod actions;
mod command;
mod gate;
mod grants;
mod interleavings;
mod kills;

use std::sync::Arc;

use cofferdam::{Call, Host, HostBuilder, HostError, HostErrorKind};
use cofferdam_audit::LoggedEvent;
use cofferdam_audit::approvals::{Approval, ApprovalState};
use cofferdam_runtime::approvals::ApprovalPolicy;
use cofferdam_runtime::call::CallResult;
use cofferdam_runtime::host::{ApprovalAnswer, ApprovalDecision};
use cofferdam_test_support::{Home, ManualClock, Signer, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::shared_host::{example, refused, run, shared_host};

/// A home with the guest `probe`, whose `post` is declared destructive.
pub(crate) struct Desk {
    pub(crate) home: Home,
    signer: Signer,
    clock: Arc<ManualClock>,
}

/// The rule by which every post waits for a person, whoever calls.
const POSTS_ASK: &str = "[[approvals.rules]]\noperations = [\"post\"]\nask = true\n";

impl Desk {
    pub(crate) fn new() -> Self {
        let desk = Self { home: Home::new(COFFERDAM), signer: Signer::new(), clock: ManualClock::new() };
        desk.home.trust(&desk.signer.public(), "github://cofferdam/*");
        desk.install("destructive");
        desk
    }

    /// Installs the guest with this effect of `post`.
    fn install(&self, effect: &str) {
        let manifest =
            package::with_hosts(&package::guest_manifest("probe"), &[shared_host().upstream.grant()]);
        let effects =
            format!("[connector.effects.operations]\npost = \"{effect}\"\n\n[connector.idempotency");
        let manifest = manifest.replacen("[connector.idempotency", &effects, 1);
        drop(self.home.host().remove(&example("probe")));
        run(self.home.install(&package::pack(&package::guest("probe"), &manifest), &self.signer)).unwrap();
    }

    fn builder(&self) -> HostBuilder {
        self.home.builder_at(&self.clock).allow_private(shared_host().upstream.host_port())
    }

    /// A separate host over the home.
    pub(crate) fn host(&self) -> Host {
        self.builder().build().unwrap()
    }

    /// The same with this block `[approvals]`.
    fn host_with(&self, rules: &str) -> Host {
        let policy = ApprovalPolicy::parse("config.toml", rules).unwrap();
        self.builder().approval_policy(policy).build().unwrap()
    }
}

/// An agent's post to a path of the server, which must not be repeated.
fn post(path: &str) -> Call {
    let args = json!({"url": shared_host().upstream.url(path), "body": "b"});
    Call::new(example("probe"), "post", args).actor("mcp:agent").by_agent()
}

/// The number of effects.
fn count(path: &str) -> usize {
    shared_host().upstream.seen(path).len()
}

fn outcome(host: &Host, call: Call) -> Result<Value, cofferdam::Error> {
    let CallResult { outcome, report } = run(host.run(call));
    if let Err(cofferdam::Error::Host(error)) = &outcome {
        let kind = error.kind();
        let is_of_approval = [HostErrorKind::ApprovalRequired, HostErrorKind::ApprovalDenied].contains(&kind);
        assert!(!is_of_approval || report.attempts.is_empty(), "{error}");
    }
    outcome
}

/// The approval that the call waits for.
#[track_caller]
fn asked(host: &Host, call: Call) -> String {
    let error = refused(outcome(host, call));
    assert_eq!(error.kind(), HostErrorKind::ApprovalRequired, "{error}");
    error.details()["approval"].as_str().unwrap().to_owned()
}

#[track_caller]
fn denied(host: &Host, call: Call) -> HostError {
    let error = refused(outcome(host, call));
    assert_eq!(error.kind(), HostErrorKind::ApprovalDenied, "{error}");
    error
}

fn answer(host: &Host, id: &str, decision: ApprovalDecision) -> Result<Approval, HostError> {
    host.answer_approval(id, ApprovalAnswer { decision, reason: Some("fine".to_owned()), by: None })
}

#[track_caller]
fn approve(host: &Host, id: &str) {
    let approved = answer(host, id, ApprovalDecision::Approve).unwrap();
    assert_eq!(approved.state, ApprovalState::Approved);
}

/// Denies what waits.
#[track_caller]
fn denied_id(host: &Host, id: &str) {
    let denied = answer(host, id, ApprovalDecision::Deny).unwrap();
    assert_eq!(denied.state, ApprovalState::Denied);
}

/// The events of a call in the audit log, by their types.
fn events(host: &Host, audit_id: &cofferdam::AuditId) -> Vec<Value> {
    let entries = host.audit().reader().unwrap().entries_of(audit_id).unwrap();
    let events = entries.iter().flat_map(|entry| entry.events().unwrap());
    let facts = |event: &LoggedEvent| serde_json::from_str::<Value>(event.payload.get()).unwrap();
    events.map(|event| json!({"type": event.name, "payload": facts(&event)})).collect()
}
