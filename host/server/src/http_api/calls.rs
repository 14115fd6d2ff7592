//! `POST /v1/calls`: one call, its outcome.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_runtime::call::{Call, Cancellation};
use http::HeaderMap;

use super::HttpApi;
use super::answer::{self, About};
use super::request::{CallRequest, idempotency_key, is_json};

/// Makes the call. Who goes away meanwhile drops this, which cancels the call: the record says so.
pub(super) async fn made(State(api): State<HttpApi>, headers: HeaderMap, body: Bytes) -> Response {
    if !is_json(&headers) {
        return answer::not_json();
    }
    let asked = match idempotency_key(&headers) {
        Ok(key) => call(&api, key, body).await,
        Err(error) => Err(error),
    };
    let call = match asked {
        Ok(call) => call,
        Err(error) => return answer::host_error(error),
    };
    let cancellation = Cancellation::new();
    let running = api.host.run_text_reported(call.cancelled_by(&cancellation));
    let (outcome, report) = ended(&api, &cancellation, running).await;
    match outcome {
        Ok(text) => answer::value(&text, &About::of(&report)),
        Err(error) => answer::call_error(&error, &report),
    }
}

/// What comes of `running`, which `cancellation` ends when the server is to end and its time of grace is over.
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

/// The call that is asked for.
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

/// Reads a body with `read`, not on the executor's threads: megabytes are read, and files looked at.
pub(super) async fn in_turn<T: Send + 'static>(
    api: &HttpApi,
    read: impl FnOnce() -> Result<T, HostError> + Send + 'static,
) -> Result<T, HostError> {
    let failed = || HostError::new(HostErrorKind::Internal, "The request could not be read.");
    let turn = Arc::clone(&api.reading).acquire_owned().await;
    let turn = turn.map_err(|error| failed().because(error))?;
    let read = tokio::task::spawn_blocking(move || {
        // Also where whoever asked is gone: it is read to its end all the same.
        let _turn = turn;
        read()
    });
    read.await.unwrap_or_else(|error| Err(failed().because(error)))
}
