//! Asks a person, in the client of a call, about a call that waits for approval.
//!
//! The server sends the client a request, and the call waits for its answer: as a task that holds neither a permit nor
//! the call's time, which has ended. The answer is recorded first, and the call is made again: whether it runs is decided
//! where it is for all calls, by the approval that it uses up.
//!
//! A client is asked only if the operator believes the answers of clients (`[approvals] elicit`), and if it declared
//! that it shows forms. Whatever goes wrong, the call goes on waiting, and the agent gets the same as without a form.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_audit::approvals::{Approval, ApprovalId, ApprovalState};
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_runtime::agent;
use cofferdam_runtime::host::{ApprovalAnswer, Host};
use rmcp::RoleServer;
use rmcp::model::{ClientCapabilities, ClientResult, ElicitRequest, ProtocolVersion, ServerRequest};
use rmcp::service::{PeerRequestOptions, RequestContext, RequestHandle};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::approval_form::{FormAnswer, form};
use super::server::{McpServer, ToolCall, ToolRun, actor, has_sessions};
use crate::server::CallArguments;

/// The most forms that a server has open in sessions. Further calls wait without one.
const OPEN_FORMS: usize = 64;

/// The longest time for the message that a form is not needed any more.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns true if a client with these capabilities shows forms. One that names no kind of elicitation does.
pub(super) fn shows_forms(capabilities: &ClientCapabilities) -> bool {
    let elicitation = capabilities.elicitation.as_ref();
    elicitation.is_some_and(|kinds| kinds.form.is_some() || kinds.url.is_none())
}

/// The approvals that persons are asked about in sessions, each by one form.
#[derive(Debug, Default)]
pub(super) struct OpenForms(Mutex<HashSet<ApprovalId>>);

/// A form that is open until this is dropped.
struct OpenForm<'f> {
    all: &'f OpenForms,
    id: ApprovalId,
}

impl OpenForms {
    fn all(&self) -> MutexGuard<'_, HashSet<ApprovalId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the form about an approval. None if it is open already, or if as many are open as may be.
    fn open(&self, id: &ApprovalId) -> Option<OpenForm<'_>> {
        let mut all = self.all();
        let is_new = all.len() < OPEN_FORMS && all.insert(id.clone());
        is_new.then(|| OpenForm { all: self, id: id.clone() })
    }
}

impl Drop for OpenForm<'_> {
    fn drop(&mut self) {
        self.all.all().remove(&self.id);
    }
}

impl McpServer {
    /// Returns true if the client of the request is shown a form: the operator believes its answer, it shows forms, and it
    /// has a session.
    pub(super) fn shows_form(&self, context: &RequestContext<RoleServer>) -> bool {
        let is_known = has_sessions(context)
            && context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2025_06_18);
        let client = context.peer.peer_info().filter(|_| is_known);
        self.shared.settings.host.approval_policy().elicits()
            && client.is_some_and(|client| shows_forms(&client.capabilities))
    }

    /// Runs a tool in a session. If its call waits for a person, asks the client, and runs it again after an answer.
    pub(super) async fn run_and_ask(&self, call: ToolCall<'_>, args: Option<Arc<CallArguments>>) -> ToolRun {
        let copy = args.as_ref().map(|args| args.copy().map(Arc::new));
        let first = self.run(call, args).await;
        let Some(id) = &first.waits_for else { return first };
        // Without memory for the arguments of a second run, the agent repeats the call.
        let again = match copy {
            Some(None) => return first,
            copy => copy.flatten(),
        };
        let Some(answer) = self.ask(id, call.context).await else { return first };
        if let Err(error) = self.record(id.clone(), answer, call.context).await {
            return not_recorded(call.name, error);
        }
        self.run(call, again).await
    }

    /// Asks the client for the answer of a person. None if there is none: the person dismissed the form, the time is
    /// over, the request was cancelled, the server ends, or the client's answer is not one to this form.
    async fn ask(&self, id: &ApprovalId, context: &RequestContext<RoleServer>) -> Option<FormAnswer> {
        let _open = self.shared.forms.open(id)?;
        let approval = self.waiting(id).await?;
        let deadline = Instant::now() + self.shared.settings.host.approval_policy().elicit_timeout();
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(form(&approval)));
        let sent = context.peer.send_request_with_option(request, PeerRequestOptions::no_options());
        let mut asked = timeout_at(deadline, sent).await.ok()?.ok()?;
        let answer = tokio::select! {
            biased;
            answer = &mut asked.rx => answer.ok(),
            () = context.ct.cancelled() => None,
            () = self.shared.settings.shutdown.begun() => None,
            () = sleep_until(deadline) => None,
        };
        match answer {
            Some(Ok(ClientResult::ElicitResult(result))) => FormAnswer::read(result),
            Some(_) => None,
            None => {
                withdraw(asked);
                None
            }
        }
    }

    /// Returns the approval with its arguments, if it waits.
    async fn waiting(&self, id: &ApprovalId) -> Option<Approval> {
        let id = id.clone();
        let approval = self.on_host(move |host| host.approval(id.as_str())).await.ok()?;
        (approval.state == ApprovalState::Waiting).then_some(approval)
    }

    /// Records the answer of a person, who answered in this client. If the approval was answered elsewhere, or has
    /// ended, the call that is made next finds that out.
    async fn record(
        &self,
        id: ApprovalId,
        answer: FormAnswer,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), HostError> {
        let FormAnswer { decision, reason } = answer;
        let by = Some(format!("{} elicitation", actor(context)));
        let answer = ApprovalAnswer { decision, reason, by };
        match self.on_host(move |host| host.answer_approval(id.as_str(), answer)).await {
            Err(error) if !matches!(error.kind(), HostErrorKind::Conflict | HostErrorKind::AuditNotFound) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Runs work that blocks, to its end, even if the request is cancelled.
    async fn on_host<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Host) -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        let host = self.shared.settings.host.clone();
        let done = tokio::task::spawn_blocking(move || work(&host)).await;
        done.unwrap_or_else(|_| {
            Err(HostError::new(HostErrorKind::AuditUnavailable, "The approval could not be worked on."))
        })
    }
}

/// Returns the end of a call whose approval could not be recorded or read, and which was not made.
fn not_recorded(name: &str, error: HostError) -> ToolRun {
    let audit_id = error.request_id().clone();
    ToolRun { answer: agent::error(name, &Error::Host(error)), audit_id, waits_for: None }
}

/// Tells the client that the form is not needed any more. A client that reads nothing does not delay the call.
fn withdraw(asked: RequestHandle<RoleServer>) {
    tokio::spawn(timeout(WITHDRAW_TIMEOUT, asked.cancel(Some("the call does not wait any more".to_owned()))));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_clients_with_forms_are_asked() {
        let shows = |capabilities: Value| shows_forms(&serde_json::from_value(capabilities).unwrap());
        for with in [json!({}), json!({"form": {}}), json!({"form": {}, "url": {}})] {
            assert!(shows(json!({"elicitation": with})), "{with}");
        }
        assert!(!shows(json!({"elicitation": {"url": {}}})) && !shows(json!({"sampling": {}})));
    }

    #[test]
    fn forms_are_few_and_one_for_each_approval() {
        let forms = OpenForms::default();
        let (id, first) = (ApprovalId::mint(), ApprovalId::mint());
        let open = forms.open(&id).unwrap();
        assert!(forms.open(&id).is_none());
        let others: Vec<_> = (1..OPEN_FORMS).map(|_| forms.open(&ApprovalId::mint()).unwrap()).collect();
        assert!(forms.open(&first).is_none());
        drop(open);
        assert!(forms.open(&first).is_some() && forms.open(&id).is_some());
        drop(others);
        assert!(forms.all().is_empty());
    }
}
