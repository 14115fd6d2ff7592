//! The approvals of a host: lists and shows them, and records and takes the answers of persons.

use std::time::Duration;

use cofferdam_audit::approvals::{
    AnswerOutcome, Approval, ApprovalId, ApprovalState, ApprovalTickets, Decision, PersonAnswer,
};
use cofferdam_audit::wait;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::event::operator::{OperatorAction, OperatorState};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::secret::redact_likely_secrets;

use super::Host;
use super::operator::{ChangeRecorder, OperatorChange};
use crate::approvals::{ApprovalPolicy, unavailable};

/// The longest reason that is stored, in characters.
const REASON_CHARS: usize = 500;

/// The answer of a person to a call that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalAnswer {
    /// The decision.
    pub decision: ApprovalDecision,
    /// The reason, for the audit log.
    pub reason: Option<String>,
    /// The person. None: the user of the host.
    pub by: Option<String>,
}

/// The decision of a person about a call that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// One call may run, within the time that the policy gives it.
    Approve,
    /// All calls with the same arguments may run, within this time.
    ApproveSameArguments(Duration),
    /// The call is not to be run; or an approval that was not used up is withdrawn.
    Deny,
}

impl Host {
    /// Returns the policy: which calls wait for a person, and whether one may answer in the MCP client of the call.
    #[must_use]
    pub fn approval_policy(&self) -> &ApprovalPolicy {
        &self.pipeline.approvals.policy
    }

    /// Returns the approvals that wait, or that were answered not long ago, the oldest first, without their arguments. It
    /// blocks: not for an executor's threads.
    ///
    /// # Errors
    /// `audit_unavailable`: they cannot be read.
    pub fn approvals(&self) -> Result<Vec<Approval>, HostError> {
        let gate = &self.pipeline.approvals;
        let stored = wait(gate.store.list()).map_err(unavailable)?;
        if stored.is_empty() {
            return Ok(Vec::new());
        }
        let now = wait(gate.log.time()).map_err(unavailable)?;
        Ok(stored.iter().map(|stored| stored.at(now)).collect())
    }

    /// Returns the approval that `text` names, by its id or by the beginning of it, with its arguments. It blocks.
    ///
    /// # Errors
    /// `audit_not_found`: there is none; `validation`: several begin so; `audit_unavailable`: they cannot be read.
    pub fn approval(&self, text: &str) -> Result<Approval, HostError> {
        let id = self.find_approval(text)?;
        let gate = &self.pipeline.approvals;
        let stored = wait(gate.store.get(id)).map_err(unavailable)?.ok_or_else(|| missing(text))?;
        Ok(stored.at(wait(gate.log.time()).map_err(unavailable)?))
    }

    /// Returns the user of the host, as the audit log names the one who changes something.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.audit.user
    }

    /// Answers a call that waits for a person, or withdraws an approval that is not used up. The answer is in the audit
    /// log before it takes effect. Of several answers one takes effect. It blocks.
    ///
    /// # Errors
    /// `conflict`: it was answered before, or it has ended; `audit_unavailable`: the answer cannot be recorded, so it has
    /// no effect, unless it denies; otherwise as [`approval`](Self::approval).
    pub fn answer_approval(&self, text: &str, answer: ApprovalAnswer) -> Result<Approval, HostError> {
        let approval = self.approval(text)?;
        let is_denial = answer.decision == ApprovalDecision::Deny;
        let is_open = match approval.state {
            ApprovalState::Waiting => true,
            ApprovalState::Approved => is_denial,
            _ => false,
        };
        if !is_open {
            return Err(too_late(&approval));
        }
        let reason = answer
            .reason
            .map(|reason| redact_likely_secrets(&sanitize_line(&reason, REASON_CHARS), false).into_owned());
        let by = answer.by.map_or_else(|| self.user().to_owned(), |by| sanitize_line(&by, REASON_CHARS));
        let gate = &self.pipeline.approvals;
        let decision = match answer.decision {
            ApprovalDecision::Approve => Decision::ApproveOnce(gate.policy.approval_lifetime()),
            ApprovalDecision::ApproveSameArguments(time) => Decision::ApproveSameArguments(time),
            ApprovalDecision::Deny => Decision::Deny,
        };
        let mut recorder = ChangeRecorder::new(&self.audit);
        let change = change(&approval, answer.decision, reason.as_deref());
        recorder.intend_by(&by, change)?;
        let answered = || {
            let now = wait(gate.log.time()).map_err(unavailable)?;
            let answer = PersonAnswer { decision, by, reason };
            match wait(gate.store.answer(approval.id.clone(), answer, now)).map_err(unavailable)? {
                AnswerOutcome::Taken(approval) => Ok(*approval),
                AnswerOutcome::TooLate(approval) => Err(too_late(&approval)),
                AnswerOutcome::Missing => Err(missing(approval.id.as_str())),
            }
        };
        recorder.conclude(answered())
    }

    /// Returns a ticket for a question to a person that goes through the client of a call: the client returns it with
    /// the answer. `asker` is the caller and its tool. It blocks.
    ///
    /// # Errors
    /// `audit_unavailable`: `host.key` cannot be read.
    pub fn approval_ticket(&self, id: &ApprovalId, asker: &str) -> Result<String, HostError> {
        Ok(ApprovalTickets::new(&self.audit.host_key()?).issue(id, asker))
    }

    /// Returns the approval of a ticket. None if no host of this home issued the ticket for `asker`. It blocks.
    ///
    /// # Errors
    /// `audit_unavailable`: `host.key` cannot be read.
    pub fn check_approval_ticket(&self, ticket: &str, asker: &str) -> Result<Option<ApprovalId>, HostError> {
        Ok(ApprovalTickets::new(&self.audit.host_key()?).check(ticket, asker))
    }

    /// Returns the id of the approval that `text` names.
    fn find_approval(&self, text: &str) -> Result<ApprovalId, HostError> {
        if let Some(id) = ApprovalId::parse(text) {
            return Ok(id);
        }
        let is_prefix = text.chars().filter(char::is_ascii_hexdigit).count() >= PREFIX_DIGITS;
        let stored = wait(self.pipeline.approvals.store.list()).map_err(unavailable)?;
        let ids = stored.into_iter().map(|stored| stored.approval.id);
        let found: Vec<_> = ids.filter(|id| is_prefix && id.begins_with(text)).take(4).collect();
        match found.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(missing(text)),
            several => {
                let message = format!("Several approvals begin with `{}`.", sanitize_line(text, 100));
                let ids: Vec<_> = several.iter().take(3).map(ApprovalId::as_str).collect();
                let more = if several.len() > 3 { " or another" } else { "" };
                let hint = format!("Give more of it: {}{more}.", ids.join(", "));
                Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint))
            }
        }
    }
}

/// The fewest digits of the beginning of an id.
const PREFIX_DIGITS: usize = 6;

/// Returns the change for the audit log: the answer, and what it is about.
fn change(approval: &Approval, decision: ApprovalDecision, reason: Option<&str>) -> OperatorChange {
    let (action, until) = match decision {
        ApprovalDecision::Approve => (OperatorAction::Approve, None),
        ApprovalDecision::ApproveSameArguments(time) => (OperatorAction::Approve, Some(time)),
        ApprovalDecision::Deny => (OperatorAction::Deny, None),
    };
    let own = |text: &str| text.to_owned().into();
    let details = [
        ("actor", Some(approval.actor.clone())),
        ("arguments_sha256", Some(approval.arguments.sha256.clone())),
        ("call", Some(approval.call.clone())),
        ("connector", Some(approval.connector.clone())),
        ("idempotency_key", approval.idempotency_key.clone()),
        ("op", Some(approval.op.clone())),
        ("same_arguments_for_s", until.map(|time| time.as_secs().to_string())),
    ];
    let details = details.into_iter().filter_map(|(name, text)| Some((own(name), text?.into()))).collect();
    let before = OperatorState { status: Some(own(approval.state.name())), ..OperatorState::default() };
    let after = OperatorState {
        details,
        hash: Some(own(&approval.hash)),
        reason: reason.map(own),
        status: Some(if action == OperatorAction::Deny { "denied" } else { "approved" }.into()),
        ..OperatorState::default()
    };
    OperatorChange {
        action,
        subject: approval.id.to_string(),
        before: Some(before),
        after: Some(after),
        is_restriction: action == OperatorAction::Deny,
    }
}

fn missing(text: &str) -> HostError {
    let message = format!("There is no approval `{}`.", sanitize_line(text, 100));
    HostError::new(HostErrorKind::AuditNotFound, message).with_hint(
        "`cofferdam approvals list` shows those there are; six digits of an id may do. One that ended is not kept: the \
         audit log has it.",
    )
}

fn too_late(approval: &Approval) -> HostError {
    let by = approval.answered_by.as_deref().map(|by| format!(" by {}", sanitize_line(by, 200)));
    let id = &approval.id;
    let next = match approval.state {
        ApprovalState::Approved => "The same call runs when it is repeated.",
        ApprovalState::Denied => "The same call is refused until its request would have ended.",
        _ => "The same call asks again when it is repeated.",
    };
    let message = match approval.state {
        ApprovalState::Waiting => format!("{id} waits for an answer."),
        ApprovalState::Approved => format!("{id} was approved already{}.", by.unwrap_or_default()),
        ApprovalState::Used => format!("{id} was approved{} and used already.", by.unwrap_or_default()),
        ApprovalState::Denied => format!("{id} was denied already{}.", by.unwrap_or_default()),
        _ => format!("{id} has ended."),
    };
    HostError::new(HostErrorKind::Conflict, format!("{message} This answer has no effect."))
        .with_hint(format!("`cofferdam approvals show` has its state. {next}"))
        .detail("approval", id.as_str())
        .detail("state", approval.state.name())
}
