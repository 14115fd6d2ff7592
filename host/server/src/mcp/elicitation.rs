//! Asks a person, in the client of a call, about a call that waits for approval.
//!
//! In a session the server sends the client a request, and the call waits for its answer: as a task that holds neither
//! a permit nor the call's time, which has ended. Without a session the call ends with a result that asks, and the
//! client repeats it with the answer and the ticket that it got. Either way the answer is recorded first, and the call
//! is made again: whether it runs is decided where it is for all calls, by the approval that it uses up.
//!
//! A client is asked only if the operator believes the answers of clients (`[approvals] elicit`), and if it declared
//! that it shows forms. Whatever goes wrong, the call goes on waiting, and the agent gets the same as without a form.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_audit::approvals::{Approval, ApprovalId, ApprovalState};
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_runtime::agent;
use cofferdam_runtime::host::{ApprovalAnswer, Host};
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, ClientCapabilities, ClientResult, ElicitRequest, ErrorData, InputRequest,
    InputRequiredResult, InputResponses, ProtocolVersion, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext, RequestHandle};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::approval_form::{FormAnswer, form};
use super::server::{McpServer, ToolCall, ToolRun, actor, has_sessions};
use crate::server::CallArguments;

/// The most forms that a server has open in sessions. Further calls wait without one.
const OPEN_FORMS: usize = 64;

/// The name of the form among the inputs that a result asks for.
const FORM: &str = "approval";

/// The longest time for the message that a form is not needed any more.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns true if a client with these capabilities shows forms. One that names no kind of elicitation does.
pub(super) fn shows_forms(capabilities: &ClientCapabilities) -> bool {
    let elicitation = capabilities.elicitation.as_ref();
    elicitation.is_some_and(|kinds| kinds.form.is_some() || kinds.url.is_none())
}

/// The way of a form to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormChannel {
    /// A request of the server, in a session.
    Request,
    /// A result that asks for input, without a session.
    Result,
}

/// The answer to an earlier result that asked for input, as the client sent it with a call. Nothing in it is believed.
#[derive(Debug, Default)]
pub(super) struct InputAnswer {
    pub(super) responses: Option<InputResponses>,
    pub(super) state: Option<String>,
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
    /// Returns the way of a form to the client of the request. None if no form is shown: the operator does not believe
    /// its answer, or the client shows none.
    pub(super) fn form_channel(&self, context: &RequestContext<RoleServer>) -> Option<FormChannel> {
        if !self.shared.settings.host.approval_policy().elicits() {
            return None;
        }
        if !has_sessions(context) {
            let capabilities = context.meta.client_capabilities();
            return capabilities.is_some_and(|own| shows_forms(&own)).then_some(FormChannel::Result);
        }
        let is_known =
            context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2025_06_18);
        let client = context.peer.peer_info().filter(|_| is_known)?;
        shows_forms(&client.capabilities).then_some(FormChannel::Request)
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

    /// Runs a tool without a session. If its call waits for a person, the result asks for the answer; `given` has the
    /// answer to an earlier result.
    ///
    /// # Errors
    /// The client returned a ticket that it did not get for this tool.
    pub(super) async fn run_or_ask(
        &self,
        call: ToolCall<'_>,
        args: Option<Arc<CallArguments>>,
        given: InputAnswer,
    ) -> Result<CallToolResponse, ErrorData> {
        let asked = match given.state {
            None => None,
            // Without a ticket, an answer is one to no question.
            Some(ticket) => match self.check_ticket(ticket, call).await {
                Ok(Some(id)) => Some(id),
                Ok(None) => {
                    let message = "The requestState is none that this client got for this tool.";
                    return Err(ErrorData::invalid_params(message, None));
                }
                Err(error) => return Ok(self.shown(&not_recorded(call.name, error), call.context)),
            },
        };
        let response = given.responses.as_ref().and_then(|responses| responses.get(FORM));
        let answer = asked.zip(response);
        if let Some((id, Some(answer))) =
            answer.as_ref().map(|(id, answer)| (id.clone(), FormAnswer::read_value(answer)))
            && let Err(error) = self.record(id, answer, call.context).await
        {
            return Ok(self.shown(&not_recorded(call.name, error), call.context));
        }
        let run = self.run(call, args).await;
        // A person who was asked is not asked again for the same request.
        if let (Some(id), None) = (&run.waits_for, answer)
            && let Some(question) = self.question(id, call).await
        {
            return Ok(question.into());
        }
        Ok(self.shown(&run, call.context))
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

    /// Returns a result that asks for the answer of a person. None if nothing waits any more, or it cannot be read.
    async fn question(&self, id: &ApprovalId, call: ToolCall<'_>) -> Option<InputRequiredResult> {
        let approval = self.waiting(id).await?;
        let request = InputRequest::Elicitation(ElicitRequest::new(form(&approval)));
        let (id, asker) = (id.clone(), asker(call));
        let ticket = self.on_host(move |host| host.approval_ticket(&id, &asker)).await.ok()?;
        let requests = BTreeMap::from([(FORM.to_owned(), request)]);
        Some(InputRequiredResult::new(Some(requests), Some(ticket)))
    }

    /// Returns the approval with its arguments, if it waits.
    async fn waiting(&self, id: &ApprovalId) -> Option<Approval> {
        let id = id.clone();
        let approval = self.on_host(move |host| host.approval(id.as_str())).await.ok()?;
        (approval.state == ApprovalState::Waiting).then_some(approval)
    }

    /// Returns the approval that the client was asked about for this tool, if it was.
    async fn check_ticket(
        &self,
        ticket: String,
        call: ToolCall<'_>,
    ) -> Result<Option<ApprovalId>, HostError> {
        let asker = asker(call);
        self.on_host(move |host| host.check_approval_ticket(&ticket, &asker)).await
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

/// Returns the asker that a ticket is for: the client by its name, and the tool.
fn asker(call: ToolCall<'_>) -> String {
    format!("{}\n{}", actor(call.context), call.name)
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
