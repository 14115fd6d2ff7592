//! `POST /v1/calls`: one call, its outcome.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;

use super::HttpApi;
use super::answer::{self, About};
use super::request::{CallRequest, idempotency_key, is_json};
use crate::call::{Call, Cancellation};
use crate::error::{HostError, HostErrorKind};

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
        Err(error) => answer::error(&error),
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
    // Megabytes are read, and files looked at.
    let read = tokio::task::spawn_blocking(move || {
        let call = CallRequest::read(&body)?.call(&host)?.actor(&actor);
        Ok(match key {
            Some(key) => call.idempotency_key(key),
            None => call,
        })
    });
    read.await.unwrap_or_else(|error| {
        Err(HostError::new(HostErrorKind::Internal, "The request could not be read.").because(error))
    })
}
