//! `POST /v1/actions/{name}/run`: runs one action and returns its outcome.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use cofferdam_runtime::agent;
use cofferdam_runtime::call::Cancellation;
use http::HeaderMap;

use super::request::{self, ActionRequest};
use super::response;
use super::{HttpApi, calls};
use crate::server::BudgetCharge;

/// Runs the action. If the client disconnects, this future is dropped, which cancels the action and its
/// running call; the audit log says so.
pub(super) async fn run(
    State(api): State<HttpApi>,
    name: Result<Path<String>, PathRejection>,
    charge: Option<Extension<Arc<BudgetCharge>>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Ok(Path(name)) = name else { return response::no_such_path() };
    if !request::is_json(&headers) {
        return response::not_json();
    }
    let key = match request::idempotency_key(&headers) {
        Ok(key) => key,
        Err(error) => return response::host_error(error),
    };
    let actor = api.actor.clone();
    let read = calls::in_turn(&api, move || {
        let charge = charge.map(|Extension(charge)| charge);
        let run = ActionRequest::read(&body)?.run(charge)?.actor(&*actor);
        Ok(match key {
            Some(key) => run.idempotency_key(key),
            None => run,
        })
    });
    let run = match read.await {
        Ok(run) => run,
        Err(error) => return response::host_error(error),
    };
    let runnable = match api.host.runnable(&name).await {
        Ok(runnable) => runnable,
        Err(error) => return response::not_runnable(error),
    };
    let cancellation = Cancellation::new();
    let running = api.host.run_checked_action(&runnable, run.cancelled_by(&cancellation));
    let (outcome, report) = calls::ended(&api, &cancellation, running).await;
    match outcome {
        Ok(value) => response::action(&value, &report),
        Err(error) => {
            let told = agent::action_error(&name, &error, &report);
            response::action_error(&error, told.structured(), &report)
        }
    }
}
