//! Asks for approvals and uses them: the policy, the store, and the time that both go by.

use std::sync::Arc;

use cofferdam_audit::approvals::{
    Approval, ApprovalBinding, ApprovalId, ApprovalStore, ApprovalVerdict, MAX_WAITING, StoredApproval,
};
use cofferdam_audit::{AuditError, AuditLog};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, sanitize_line};

use super::policy::ApprovalPolicy;

/// The approvals of a host.
pub(crate) struct ApprovalGate {
    pub(crate) policy: ApprovalPolicy,
    pub(crate) store: Arc<dyn ApprovalStore>,
    pub(crate) log: Arc<dyn AuditLog>,
}

impl ApprovalGate {
    /// Uses the approval of a person for this call, or asks for one. `approval` has the facts for the person.
    ///
    /// # Errors
    /// `audit_unavailable`: the approvals cannot be read or written, so the call must not run.
    pub(crate) async fn request(
        &self,
        approval: Approval,
        binding: ApprovalBinding,
        call: &AuditId,
    ) -> Result<ApprovalVerdict, HostError> {
        let now = self.log.time().await.map_err(unavailable)?;
        let request = StoredApproval::new(approval, binding, self.policy.request_lifetime(), now);
        self.store.request(request, call.clone(), now).await.map_err(unavailable)
    }
}

/// Returns the error for a call that waits for a person. An agent is told how to go on, and not how to approve.
pub(crate) fn required(approval: &Approval, is_keyed: bool) -> HostError {
    let (what, id, until) = (described(approval), &approval.id, approval.waits_until);
    let message =
        format!("{what} waits for the approval of a person until {until:.0}, as {id}. It was not run.");
    let hint = match is_keyed {
        true => {
            "Once a person has approved it, repeat the call with the same arguments and the same idempotency key."
        }
        false => "Once a person has approved it, repeat the call with the same arguments.",
    };
    HostError::new(HostErrorKind::ApprovalRequired, message)
        .with_hint(hint)
        .detail("approval", id.as_str())
        .detail("until", format!("{until:.0}"))
}

/// Returns the error for a call that a person denied.
pub(crate) fn denied(approval: &Approval, id: &ApprovalId) -> HostError {
    let message = format!("{} was denied by a person, as {id}. It was not run.", described(approval));
    HostError::new(HostErrorKind::ApprovalDenied, message).detail("approval", id.as_str())
}

fn described(approval: &Approval) -> String {
    match approval.operations.is_empty() {
        true => format!("`{}` of {}", sanitize_line(&approval.op, 100), approval.connector),
        false => format!("The action {}", sanitize_line(&approval.connector, 200)),
    }
}

/// Returns the error for a call that needs an approval while as many calls wait for one as the host keeps.
pub(crate) fn full() -> HostError {
    let message = format!(
        "The call needs the approval of a person, and as many calls wait for one as the host keeps: up to {MAX_WAITING}. \
         It was not run."
    );
    HostError::new(HostErrorKind::Busy, message)
        .with_hint("Try again later, when some of them have an answer.")
}

/// Returns the error for approvals that cannot be read or written.
pub(crate) fn unavailable(error: AuditError) -> HostError {
    let message = format!("The store of approvals cannot be used: {}. Nothing was run.", error.says());
    HostError::new(HostErrorKind::AuditUnavailable, message)
        .with_hint(error.fix().to_owned())
        .with_source(error)
}
