//! An approval as programs read it.

use jiff::Timestamp;
use serde::Serialize;

use super::Approval;

/// A call that waits for a person, or waited not long ago.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename = "Approval")]
pub struct ApprovalView {
    /// Its id.
    pub id: String,
    /// `waiting`, `approved`, `used`, `denied` or `expired`.
    pub state: String,
    /// The caller.
    pub actor: String,
    /// True if the caller is an agent.
    pub agent: bool,
    /// The connector, as `name@version`; of an action, `action://name@version`.
    pub connector: String,
    /// The operation; of an action, `run`.
    pub op: String,
    /// The position of the candidate among the fallbacks of the call, from 0.
    pub candidate: u32,
    /// The operations of an action that need the approval, each as `name@version operation`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<String>,
    /// The action that the call is a step of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The declared effect of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// The SHA-256 of the package, or of the action's file.
    pub hash: String,
    /// The idempotency key that the caller gave, redacted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The arguments.
    pub arguments: ApprovalArguments,
    /// The audit id of the call that asked first.
    pub call: String,
    /// The time at which it was asked for, as RFC 3339.
    pub asked_at: String,
    /// The time until which it waits for an answer.
    pub waits_until: String,
    /// The time of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<String>,
    /// The person who answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// The reason that the person gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The time until which the approval can be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usable_until: Option<String>,
    /// True if it is for all calls with the same arguments.
    pub same_arguments: bool,
    /// The audit id of the call that used it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
}

/// The arguments of a call that waits for a person.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ApprovalArguments {
    /// Their length in bytes.
    pub bytes: u64,
    /// Their SHA-256.
    pub sha256: String,
    /// The arguments as the audit log has them: without secrets, and cut if they are long. The HTTP API has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// True if `text` is only their beginning.
    pub cut: bool,
}

impl From<Approval> for ApprovalView {
    fn from(approval: Approval) -> Self {
        let time = |time: Timestamp| format!("{time:.6}");
        let cut = approval.arguments.is_cut();
        let arguments = approval.arguments;
        Self {
            id: approval.id.to_string(),
            state: approval.state.name().to_owned(),
            actor: approval.actor,
            agent: approval.agent,
            connector: approval.connector,
            op: approval.op,
            candidate: approval.candidate,
            operations: approval.operations,
            action: approval.action,
            step: approval.step,
            effect: approval.effect,
            hash: approval.hash,
            idempotency_key: approval.idempotency_key,
            arguments: ApprovalArguments {
                bytes: arguments.bytes,
                sha256: arguments.sha256,
                text: arguments.text,
                cut,
            },
            call: approval.call,
            asked_at: time(approval.asked_at),
            waits_until: time(approval.waits_until),
            answered_at: approval.answered_at.map(time),
            answered_by: approval.answered_by,
            reason: approval.reason,
            usable_until: approval.usable_until.map(time),
            same_arguments: approval.same_arguments,
            used_by: approval.used_by,
        }
    }
}
