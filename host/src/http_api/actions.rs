//! `POST /v1/actions/{name}/run`: one action, its outcome.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;

use super::answer;
use super::request::{self, ActionRequest};
use super::{HttpApi, calls};
use crate::agent;
use crate::call::Cancellation;
use crate::error::HostError;
use crate::flow::Run;

/// Runs the action. Who goes away meanwhile drops this, which cancels it and the call that it is at: the record says
/// so.
pub(super) async fn run(
    State(api): State<HttpApi>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !request::is_json(&headers) {
        return answer::not_json();
    }
    let run = match asked(&api, &headers, &body) {
        Ok(run) => run,
        Err(error) => return answer::host_error(error),
    };
    let cancellation = Cancellation::new();
    let running = api.host.run_action(&name, run.cancelled_by(&cancellation));
    let (outcome, report) = calls::ended(&api, &cancellation, running).await;
    // Of an action that was not taken up there is no record.
    let id = report.steps.first().map(|_| &report.audit_id);
    match outcome {
        Ok(value) => answer::action(&value, id),
        Err(error) => {
            let told = agent::action_error(&name, &error, &report);
            answer::half_done(answer::ended(&error, told.structured(), id), &report)
        }
    }
}

fn asked(api: &HttpApi, headers: &HeaderMap, body: &[u8]) -> Result<Run, HostError> {
    let run = ActionRequest::read(body)?.run()?.actor(&*api.actor);
    Ok(match request::idempotency_key(headers)? {
        Some(key) => run.idempotency_key(key),
        None => run,
    })
}
