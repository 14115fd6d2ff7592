//! `GET /v1/grant-requests`: the access that calls were denied, and the bindings that they missed.
//!
//! No path grants one: a person installs another version, sets a binding or changes the configuration.

use axum::extract::State;
use axum::response::Response;
use cofferdam_core::error::HostError;
use cofferdam_runtime::host::GrantRequest;
use schemars::JsonSchema;
use serde::Serialize;

use super::calls::read_queued;
use super::{HttpApi, response};

/// The requests for grants.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct GrantRequestList {
    /// The requests, those with the newest calls first: at most 100, and at most 20 of one connector.
    pub requests: Vec<GrantRequestView>,
}

/// An access that calls were denied, or a binding that they missed, and that a call would still be denied or miss now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename = "GrantRequest")]
pub struct GrantRequestView {
    /// The connector, as `name@version`.
    pub connector: String,
    /// The kind of the access: `host`, `method` or `credential`.
    pub kind: String,
    /// The access as `cofferdam why` takes it.
    pub subject: String,
    /// The binding that the calls missed; none if they were denied the access.
    pub binding: Option<String>,
    /// The number of calls that ended with it, of the newest 200 such calls of the last 7 days.
    pub calls: usize,
    /// The time at which the first of them was received, as RFC 3339.
    pub first: String,
    /// The time at which the last of them was received.
    pub last: String,
    /// The audit id of the last of them.
    pub last_call: String,
    /// The caller of the last of them.
    pub actor: String,
    /// The code of the failure that a call would end with now.
    pub code: String,
    /// The reason, as `cofferdam why` gives it now.
    pub reason: String,
    /// The line that would allow it, if there is one.
    pub allow: Option<GrantLineView>,
    /// The command that would fix it, if a binding is missing.
    pub suggestion: Option<String>,
}

/// A line of a document that grants something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename = "GrantLine")]
pub struct GrantLineView {
    /// The name of the document.
    pub file: String,
    /// The header of the table.
    pub table: String,
    /// The line, which is TOML.
    pub line: String,
}

impl From<GrantRequest> for GrantRequestView {
    fn from(request: GrantRequest) -> Self {
        let allow = request.allow.map(|line| GrantLineView {
            file: line.file().to_owned(),
            table: line.table().to_owned(),
            line: line.line().to_owned(),
        });
        Self {
            connector: request.connector,
            kind: request.kind.to_owned(),
            subject: request.subject,
            binding: request.binding,
            calls: request.calls,
            first: request.first,
            last: request.last,
            last_call: request.last_call,
            actor: request.actor,
            code: request.code.to_owned(),
            reason: request.reason,
            allow,
            suggestion: request.suggestion,
        }
    }
}

impl HttpApi {
    /// Returns the requests for grants.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be read.
    pub async fn grant_requests(&self) -> Result<GrantRequestList, HostError> {
        let host = self.host.clone();
        read_queued(self, move || {
            let requests = host.grant_requests()?.into_iter().map(GrantRequestView::from).collect();
            Ok(GrantRequestList { requests })
        })
        .await
    }
}

/// Returns the list.
pub(super) async fn list(State(api): State<HttpApi>) -> Response {
    api.grant_requests().await.map_or_else(response::host_error, |list| response::view(&list))
}
