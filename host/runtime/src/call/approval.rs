//! Makes a candidate wait for the approval of a person, if the policy says so, before its first attempt is recorded.

use cofferdam_audit::KeyState;
use cofferdam_audit::approvals::{Approval, ApprovalBinding, ApprovalVerdict, ShownArguments};
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::event::recorded::{ApprovalRequested, ApprovalUsed, RecordedEvent, RecordedPayload};
use cofferdam_core::failpoint;
use cofferdam_model::manifest::{Manifest, OperationEffect};

use super::admit::AdmittedCall;
use super::call_progress::CallProgress;
use super::fallback::CallCandidate;
use super::idempotency::call_fingerprint;
use super::pipeline::CallPipeline;
use super::recorder::CallRecorder;
use super::request::{Call, CallArgs};
use crate::approvals::{CallFacts, denied, full, required};

impl CallPipeline {
    /// Returns true if a person has to approve the candidate.
    pub(super) fn needs_approval(
        &self,
        call: &Call,
        candidate: &CallCandidate<'_>,
        manifest: &Manifest,
        actor: &str,
    ) -> bool {
        // The person who approved the action approved its steps. What an operator resumes had begun, and so was approved
        // if it had to be; its fallbacks may not have been.
        if !self.approvals.policy.may_ask(call.is_by_agent) {
            return false;
        }
        if call.is_approved || (call.resumes.is_some() && candidate.index == 0) {
            return false;
        }
        self.approvals.policy.asks(CallFacts {
            connector: candidate.connector.name(),
            op: candidate.op,
            effect: effect(candidate, manifest),
            actor,
            is_agent: call.is_by_agent,
        })
    }

    /// Uses the approval of a person for the candidate, and adds that to the events that are written before the attempt
    /// begins.
    ///
    /// # Errors
    /// `approval_required`: a person is asked; `approval_denied`; or the approvals cannot be read or written. The
    /// candidate must not run.
    pub(super) async fn require_approval(
        &self,
        call: &Call,
        candidate: &CallCandidate<'_>,
        admitted: &AdmittedCall<'_>,
        progress: &mut CallProgress,
    ) -> Result<(), Error> {
        let (recorder, hash) = (&progress.recorder, &admitted.loaded.hash);
        let Some(fingerprint) = call_fingerprint(call, &recorder.actor) else {
            let message = "The call needs the approval of a person, and its arguments are no JSON object.";
            return Err(HostError::new(HostErrorKind::Validation, message).into());
        };
        let key = call.idempotency_key.as_deref();
        let binding = ApprovalBinding::new(&fingerprint, &[hash.as_ref()], candidate.index, key);
        let args = candidate.args(call)?;
        let payload = match &*args {
            CallArgs::Value(value) => recorder.redactor.recorded(value.to_string().as_bytes()),
            CallArgs::Text(text) => recorder.redactor.recorded(text.as_bytes()),
        };
        let (action, step) = call.action_and_step();
        let manifest = admitted.loaded.checked.package.manifest();
        let (connector, op) = (candidate.connector.text(), admitted.operation.name());
        let approval = Approval {
            agent: call.is_by_agent,
            candidate: candidate.index,
            action: action.map(|action| recorder.redactor.text(action)),
            step: step.map(|step| recorder.redactor.text(step)),
            effect: effect(candidate, manifest).map(|effect| effect.name().to_owned()),
            hash: hash.to_string(),
            idempotency_key: key.map(|key| recorder.redactor.text(key)),
            arguments: shown(payload),
            ..Approval::new(connector, op, &recorder.actor, &recorder.audit_id)
        };
        let asked = approval.clone();
        let verdict = self.approvals.request(approval, binding, &recorder.audit_id).await?;
        let has_begun = progress.attempts() > 0;
        if !progress.recorder.apply_verdict(verdict, &asked, has_begun).await? {
            return Err(progress.lose_key().into());
        }
        failpoint::pass("approval.used");
        Ok(())
    }
}

/// Returns the effect of the candidate's operation, as far as it is known, as the check of an action has it.
fn effect(candidate: &CallCandidate<'_>, manifest: &Manifest) -> Option<OperationEffect> {
    manifest.effect(candidate.op).or_else(|| {
        let hosts = candidate.scope.map_or(manifest.hosts(), |scope| scope.hosts());
        hosts.is_empty().then_some(OperationEffect::ReadOnly)
    })
}

/// Returns the arguments as a person may see them: as the audit log has them.
pub(super) fn shown(payload: RecordedPayload) -> ShownArguments {
    ShownArguments::new(payload.bytes, payload.sha256, payload.text)
}

impl CallRecorder {
    /// Adds the verdict about the request `asked`, and returns true if the candidate, or the action, may run with it.
    /// Returns false if another call has the key of this one. That is not looked at if the call `has_begun`.
    ///
    /// # Errors
    /// It must not run: `approval_required`, `approval_denied` or `busy`; or the state of the key cannot be read.
    pub(super) async fn apply_verdict(
        &mut self,
        verdict: ApprovalVerdict,
        asked: &Approval,
        has_begun: bool,
    ) -> Result<bool, HostError> {
        let candidate = asked.candidate;
        match verdict {
            ApprovalVerdict::Approved { id, by, same_arguments } => {
                let approval = id.to_string().into();
                let used = ApprovalUsed { approval, candidate, person: by.into(), same_arguments };
                self.write(RecordedEvent::ApprovalUsed(used));
                Ok(true)
            }
            ApprovalVerdict::Waiting(waiting) => {
                // Another call with the key may have used the approval meanwhile: then its outcome is this one's.
                if !has_begun && !matches!(self.key_state().await?, KeyState::Free) {
                    return Ok(false);
                }
                // The call that asked first has the request in full.
                if waiting.call != self.audit_id.as_str() {
                    self.forget_request();
                }
                self.write(RecordedEvent::ApprovalRequested(ApprovalRequested {
                    approval: waiting.id.as_str().into(),
                    candidate,
                    until: format!("{:.6}", waiting.waits_until).into(),
                }));
                Err(required(&waiting, asked.idempotency_key.is_some()))
            }
            ApprovalVerdict::Denied(id) => {
                self.forget_request();
                Err(denied(asked, &id))
            }
            ApprovalVerdict::Full => Err(full()),
        }
    }
}
