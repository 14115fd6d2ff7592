//! `GET /v1/live`: an event each time that the audit log has new entries, for pages and programs that show the present.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use cofferdam_core::digest::Digest;
use cofferdam_core::error::HostError;
use futures_util::stream;
use http::{HeaderMap, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::calls::read_queued;
use super::{HttpApi, response};

/// The most streams at once. Each holds a connection.
const STREAMS: usize = 16;

/// The shortest pause between two readings of the end of the audit log. It is ten times as long as a reading, if that is
/// longer.
const PAUSE: Duration = Duration::from_secs(2);

/// The time after which a stream ends and its client connects again. A client that is gone holds its permit no longer.
const STREAM_TIME: Duration = Duration::from_secs(5 * 60);

/// The end of the audit log, which is read once for all streams, and only while there are any.
pub(super) struct LiveLog {
    places: Arc<Semaphore>,
    /// None until the first reading.
    end: watch::Sender<Option<String>>,
    /// True while the task that reads it runs.
    is_running: Mutex<bool>,
}

impl LiveLog {
    pub(super) fn new() -> Self {
        Self {
            places: Arc::new(Semaphore::new(STREAMS)),
            end: watch::Sender::new(None),
            is_running: Mutex::new(false),
        }
    }

    /// Returns a receiver of the end, and starts the reading if it is not running.
    fn follow(api: &HttpApi) -> watch::Receiver<Option<String>> {
        let end = api.live.end.subscribe();
        let mut is_running = api.live.is_running.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *is_running, true) {
            tokio::spawn(Self::read(api.clone()));
        }
        end
    }

    /// Reads the end at intervals for as long as it has receivers. A failed reading is tried again after the interval.
    async fn read(api: HttpApi) {
        loop {
            let begun = Instant::now();
            if let Ok(now) = api.log_end().await {
                api.live
                    .end
                    .send_if_modified(|end| end.replace(now.clone()).is_none_or(|before| before != now));
            }
            tokio::select! {
                () = sleep(PAUSE.max(begun.elapsed() * 10)) => {}
                () = api.shutdown.begun() => return,
            }
            let mut is_running = api.live.is_running.lock().unwrap_or_else(PoisonError::into_inner);
            if api.live.end.receiver_count() == 0 {
                *is_running = false;
                api.live.end.send_replace(None);
                return;
            }
        }
    }
}

/// An open stream.
struct LiveStream<F> {
    api: HttpApi,
    is_allowed: F,
    end: watch::Receiver<Option<String>>,
    /// The end of the audit log that the client knows; none if it knows none.
    known: Option<String>,
    until: Instant,
    _place: OwnedSemaphorePermit,
}

impl<F: Fn() -> bool> LiveStream<F> {
    /// Waits for an end that the client does not know, and returns it. None if the stream ends: with the server, with its
    /// permission, or after its time.
    async fn next(&mut self) -> Option<String> {
        while (self.is_allowed)() {
            let end = self.end.borrow_and_update().clone();
            if end.is_some() && end != self.known {
                self.known.clone_from(&end);
                return end;
            }
            tokio::select! {
                changed = self.end.changed() => changed.ok()?,
                () = sleep(PAUSE) => {}
                () = sleep_until(self.until) => return None,
                () = self.api.shutdown.begun() => return None,
            }
        }
        None
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
            let text: String =
                host.audit().end()?.0.iter().map(|(writer, n)| format!("{writer} {n}\n")).collect();
            Ok(Digest::sha256(text.as_bytes()).to_string())
        })
        .await
    }

    /// Returns a response that has an event each time that the audit log has new entries, every two seconds at most, for
    /// five minutes and as long as `is_allowed`. The first one comes at once, unless the log still ends where the client
    /// knows: at the id of the last event of an earlier stream, or at `since`.
    pub fn live(
        &self,
        since: Option<String>,
        headers: &HeaderMap,
        is_allowed: impl Fn() -> bool + Send + 'static,
    ) -> Response {
        let Ok(place) = Arc::clone(&self.live.places).try_acquire_owned() else {
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
            end: LiveLog::follow(self),
            known: last.or(since),
            until: Instant::now() + STREAM_TIME,
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
