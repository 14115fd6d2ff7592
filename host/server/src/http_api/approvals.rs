//! `GET /v1/approvals` and `GET /v1/approvals/{id}`: the calls that wait for a person, and the answers.
//!
//! No path answers one: who has the token of a program could approve what that program wants to do. The arguments of a
//! call are shown to those who may answer, and not here.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use cofferdam_audit::approvals::{Approval, ApprovalState};
use cofferdam_core::error::HostError;
use cofferdam_runtime::host::{ApprovalAnswer, ApprovalDecision};
use schemars::JsonSchema;
use serde::Serialize;

use super::audit::{Parameters, parameters};
use super::calls::read_queued;
use super::query::{self, QueryParameters};
use super::{HttpApi, response};

/// The calls that wait for a person.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ApprovalList {
    /// The approvals, the oldest first.
    pub approvals: Vec<Approval>,
    /// The number of calls that wait, listed here or not.
    pub waiting: usize,
    /// The number of approvals that are selected and beyond the limit of this list.
    pub more: usize,
}

impl HttpApi {
    /// Returns the approvals that the parameters of `GET /v1/approvals` select.
    ///
    /// # Errors
    /// `validation`: a parameter is not acceptable. `audit_unavailable`: they cannot be read.
    pub async fn approvals(&self, parameters: Vec<(String, String)>) -> Result<ApprovalList, HostError> {
        let query = query::approvals(QueryParameters::new(parameters)?)?;
        let host = self.host.clone();
        read_queued(self, move || {
            let mut found = host.approvals()?;
            let is_waiting = |approval: &Approval| approval.state == ApprovalState::Waiting;
            let waiting = found.iter().filter(|approval| is_waiting(approval)).count();
            found.retain(|approval| query.all || is_waiting(approval));
            let more = found.len().saturating_sub(query.limit);
            found.truncate(query.limit);
            Ok(ApprovalList { approvals: found, waiting, more })
        })
        .await
    }

    /// Returns the approval with this id, without its arguments.
    ///
    /// # Errors
    /// `audit_not_found`: there is none. `audit_unavailable`: it cannot be read.
    pub async fn approval(&self, id: &str) -> Result<Approval, HostError> {
        let mut view = self.approval_with_arguments(id).await?;
        view.arguments.text = None;
        view.arguments.cut = false;
        Ok(view)
    }

    /// Returns the approval with this id, with its arguments: for a person who may answer it.
    ///
    /// # Errors
    /// As [`approval`](Self::approval).
    pub async fn approval_with_arguments(&self, id: &str) -> Result<Approval, HostError> {
        let (host, id) = (self.host.clone(), id.to_owned());
        read_queued(self, move || host.approval(&id)).await
    }

    /// Answers the approval with this id, for a server that has made sure that a person asks for it. In the audit log the
    /// user of the host gives the answer `through` this server. No path of the API answers.
    ///
    /// # Errors
    /// As [`Host::answer_approval`](cofferdam_runtime::host::Host::answer_approval).
    pub async fn answer_approval(
        &self,
        id: &str,
        decision: ApprovalDecision,
        reason: Option<String>,
        through: &str,
    ) -> Result<Approval, HostError> {
        let (host, id) = (self.host.clone(), id.to_owned());
        let answer = ApprovalAnswer { decision, reason, by: Some(format!("{} ({through})", host.user())) };
        read_queued(self, move || host.answer_approval(&id, answer)).await
    }
}

/// Returns the list.
pub(super) async fn list(State(api): State<HttpApi>, query: Parameters) -> Response {
    let list = async { api.approvals(parameters(query)?).await };
    list.await.map_or_else(response::host_error, |list| response::view(&list))
}

/// Returns one.
pub(super) async fn show(State(api): State<HttpApi>, id: Result<Path<String>, PathRejection>) -> Response {
    let Ok(Path(id)) = id else { return response::no_such_path() };
    api.approval(&id).await.map_or_else(response::host_error, |view| response::view(&view))
}
