//! `GET /v1/live`: an event each time that the audit log has new entries, for pages and programs that show the present.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use cofferdam_audit::LogPosition;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::HostError;
use cofferdam_runtime::host::unreadable;
use futures_util::stream;
use http::{HeaderMap, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use super::calls::read_queued;
use super::{HttpApi, response};

/// The most streams at once. Each holds a connection, and reads the end of the audit log every [`PAUSE`].
pub(super) const STREAMS: usize = 16;

/// The time between two readings of the end of the audit log.
const PAUSE: Duration = Duration::from_secs(2);

/// An open stream.
struct LiveStream<F> {
    api: HttpApi,
    is_allowed: F,
    /// The end of the audit log that the client knows; none if it knows none.
    known: Option<String>,
    is_begun: bool,
    _place: OwnedSemaphorePermit,
}

impl<F: Fn() -> bool> LiveStream<F> {
    /// Waits for an end that the client does not know, and returns it. None if the stream ends: with the server, with its
    /// permission, or if the log cannot be read.
    async fn next(&mut self) -> Option<String> {
        loop {
            if std::mem::replace(&mut self.is_begun, true) {
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    () = self.api.shutdown.begun() => return None,
                }
            }
            let end = self.api.log_end().await;
            if !(self.is_allowed)() {
                return None;
            }
            let end = end.ok()?;
            if self.known.as_ref() != Some(&end) {
                self.known = Some(end.clone());
                return Some(end);
            }
        }
    }
}

impl HttpApi {
    /// Returns a text that changes whenever the audit log gets an entry.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be read.
    pub async fn log_end(&self) -> Result<String, HostError> {
        let host = self.host.clone();
        read_queued(self, move || {
            let end = match host.audit().existing()? {
                Some(mut reader) => reader.end().map_err(unreadable)?,
                None => LogPosition::default(),
            };
            let text: String = end.0.iter().map(|(writer, n)| format!("{writer} {n}\n")).collect();
            Ok(Digest::sha256(text.as_bytes()).to_string())
        })
        .await
    }

    /// Returns a response that has an event each time that the audit log has new entries, every two seconds at most, for as
    /// long as `is_allowed`. The first one comes at once, unless the log still ends where the client knows: at the id of the
    /// last event of an earlier stream, or at `since`.
    pub fn live(
        &self,
        since: Option<String>,
        headers: &HeaderMap,
        is_allowed: impl Fn() -> bool + Send + 'static,
    ) -> Response {
        let Ok(place) = Arc::clone(&self.live).try_acquire_owned() else {
            return response::rejection(
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                &format!("{STREAMS} programs follow this host already, which is the most."),
                "Close one of them, or ask again from time to time instead.",
            );
        };
        let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        let stream = LiveStream {
            api: self.clone(),
            is_allowed,
            known: last.or(since),
            is_begun: false,
            _place: place,
        };
        let events = stream::unfold(stream, |mut stream| async move {
            let end = stream.next().await?;
            let event = Event::default().event("changed").id(end).data("{}");
            Some((Ok::<_, Infallible>(event), stream))
        });
        Sse::new(events).keep_alive(KeepAlive::default()).into_response()
    }
}

/// Returns the events.
pub(super) async fn follow(State(api): State<HttpApi>, headers: HeaderMap) -> Response {
    api.live(None, &headers, || true)
}
