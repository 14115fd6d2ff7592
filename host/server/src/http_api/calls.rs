//! `POST /v1/calls`, and the path of each operation: runs one call and returns its outcome.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_runtime::agent;
use cofferdam_runtime::call::{Call, CallResult, Cancellation};
use cofferdam_runtime::flow::ActionResult;
use http::HeaderMap;

use super::HttpApi;
use super::connectors;
use super::request::{self, ActionRequest, CallRequest, OperationRequest, idempotency_key, is_json};
use super::response::{self, CallMetadata};
use crate::server::BudgetCharge;

/// Runs an operation that the path names. Its body is that of a call without the target.
pub(super) async fn operation(
    State(api): State<HttpApi>,
    target: Result<Path<(String, String, String, String)>, PathRejection>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let target = target
        .ok()
        .and_then(|Path((scheme, owner, name, op))| Some((connectors::named(&scheme, &owner, &name)?, op)));
    let Some((connector, op)) = target else { return response::no_such_path() };
    run_call(&api, &headers, move || OperationRequest::read(&body).map(|request| request.of(connector, op)))
        .await
}

/// Runs the call. If the client disconnects, this future is dropped, which cancels the call; the audit log
/// says so.
pub(super) async fn create(State(api): State<HttpApi>, headers: HeaderMap, body: Bytes) -> Response {
    run_call(&api, &headers, move || CallRequest::read(&body)).await
}

/// Runs the call that `request` reads from a body.
async fn run_call(
    api: &HttpApi,
    headers: &HeaderMap,
    request: impl FnOnce() -> Result<CallRequest, HostError> + Send + 'static,
) -> Response {
    if !is_json(headers) {
        return response::not_json();
    }
    let asked = match idempotency_key(headers) {
        Ok(key) => call(api, key, request).await,
        Err(error) => Err(error),
    };
    let call = match asked {
        Ok(call) => call,
        Err(error) => return response::host_error(error),
    };
    let cancellation = Cancellation::new();
    let running = api.host.run_text(call.cancelled_by(&cancellation));
    let CallResult { outcome, report } = run_until_shutdown(api, &cancellation, running).await;
    match outcome {
        Ok(text) => response::value(&text, &CallMetadata::from_report(&report)),
        Err(error) => response::call_error(&error, &report),
    }
}

/// Returns the result of `running`, and triggers `cancellation` when the server ends and its grace period is
/// over.
pub(super) async fn run_until_shutdown<T>(
    api: &HttpApi,
    cancellation: &Cancellation,
    running: impl Future<Output = T>,
) -> T {
    let mut running = std::pin::pin!(running);
    tokio::select! {
        biased;
        done = &mut running => done,
        () = api.shutdown.cancelled() => {
            cancellation.cancel();
            running.await
        }
    }
}

/// Reads the requested call.
async fn call(
    api: &HttpApi,
    key: Option<String>,
    request: impl FnOnce() -> Result<CallRequest, HostError> + Send + 'static,
) -> Result<Call, HostError> {
    let (host, actor) = (api.host.clone(), api.actor.clone());
    let read = read_queued(api, move || {
        let call = request()?.call(&host)?.actor(&actor);
        Ok(match key {
            Some(key) => call.idempotency_key(key),
            None => call,
        })
    });
    read.await
}

/// Reads a body with `read`, off the executor's threads: it parses megabytes and reads files.
pub(super) async fn read_queued<T: Send + 'static, E: From<HostError> + Send + 'static>(
    api: &HttpApi,
    read: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    let failed = || HostError::new(HostErrorKind::Internal, "The request could not be read.");
    let turn = Arc::clone(&api.reading).acquire_owned().await;
    let turn = turn.map_err(|error| failed().with_source(error))?;
    let read = tokio::task::spawn_blocking(move || {
        // Held even if the client is gone: the body is still read to its end.
        let _turn = turn;
        read()
    });
    read.await.unwrap_or_else(|error| Err(failed().with_source(error).into()))
}

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
    let read = read_queued(&api, move || {
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
    let ActionResult { outcome, report } = run_until_shutdown(&api, &cancellation, running).await;
    match outcome {
        Ok(value) => response::action(&value, &report),
        Err(error) => {
            let told = agent::action_error(&name, &error, &report);
            response::action_error(&error, told.structured(), &report)
        }
    }
}
