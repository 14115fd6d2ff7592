//! `POST /v1/calls`: runs one call and returns its outcome.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_runtime::call::{Call, Cancellation};
use http::HeaderMap;

use super::HttpApi;
use super::request::{CallRequest, idempotency_key, is_json};
use super::response::{self, CallMetadata};

/// Runs the call. If the client disconnects, this future is dropped, which cancels the call; the audit log
/// says so.
pub(super) async fn made(State(api): State<HttpApi>, headers: HeaderMap, body: Bytes) -> Response {
    if !is_json(&headers) {
        return response::not_json();
    }
    let asked = match idempotency_key(&headers) {
        Ok(key) => call(&api, key, body).await,
        Err(error) => Err(error),
    };
    let call = match asked {
        Ok(call) => call,
        Err(error) => return response::host_error(error),
    };
    let cancellation = Cancellation::new();
    let running = api.host.run_text_reported(call.cancelled_by(&cancellation));
    let (outcome, report) = ended(&api, &cancellation, running).await;
    match outcome {
        Ok(text) => response::value(&text, &CallMetadata::from_report(&report)),
        Err(error) => response::call_error(&error, &report),
    }
}

/// Returns the result of `running`, and triggers `cancellation` when the server ends and its grace period is
/// over.
pub(super) async fn ended<T>(
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
async fn call(api: &HttpApi, key: Option<String>, body: Bytes) -> Result<Call, HostError> {
    let (host, actor) = (api.host.clone(), api.actor.clone());
    let read = in_turn(api, move || {
        let call = CallRequest::read(&body)?.call(&host)?.actor(&actor);
        Ok(match key {
            Some(key) => call.idempotency_key(key),
            None => call,
        })
    });
    read.await
}

/// Reads a body with `read`, off the executor's threads: it parses megabytes and reads files.
pub(super) async fn in_turn<T: Send + 'static>(
    api: &HttpApi,
    read: impl FnOnce() -> Result<T, HostError> + Send + 'static,
) -> Result<T, HostError> {
    let failed = || HostError::new(HostErrorKind::Internal, "The request could not be read.");
    let turn = Arc::clone(&api.reading).acquire_owned().await;
    let turn = turn.map_err(|error| failed().with_source(error))?;
    let read = tokio::task::spawn_blocking(move || {
        // Held even if the client is gone: the body is still read to its end.
        let _turn = turn;
        read()
    });
    read.await.unwrap_or_else(|error| Err(failed().with_source(error)))
}
