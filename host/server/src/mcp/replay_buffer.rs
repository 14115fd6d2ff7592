//! The events of one request of a session, stored apart from the connection that carried it, so that a client
//! can reconnect.
//!
//! The SDK drops an answer together with its stream, and a write to a connection does not prove that it
//! arrived. So a task of its own collects the events, and every connected client reads them from here.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::Frame;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The most stored events of one request: beyond it the oldest progress notifications are dropped, never the
/// answer.
const EVENTS: usize = 64;

/// The interval of keep-alive comments for waiting readers.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// An event of a stream: its position, and its bytes.
struct StreamEvent(u64, Bytes);

/// The stored events of one request.
#[derive(Default)]
pub(super) struct ReplayBuffer {
    told: Mutex<ReplayState>,
    more: Notify,
}

#[derive(Default)]
struct ReplayState {
    events: VecDeque<StreamEvent>,
    /// The time of the last event, once it is complete.
    over: Option<Instant>,
}

/// The id of an event: its position, and the number of its stream in the session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct EventId {
    pub(super) index: u64,
    pub(super) stream: u64,
}

impl EventId {
    /// Parses the id as the SDK writes it and clients return it; none for an event of no request.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (index, stream) = text.split_once('/')?;
        Some(Self { index: index.parse().ok()?, stream: stream.parse().ok()? })
    }

    /// Returns the id of the event with these bytes: on its last line except the `retry` line.
    pub(super) fn from_event(event: &[u8]) -> Option<Self> {
        // The content is one line, and precedes the id.
        let line = event.split(|byte| *byte == b'\n').rfind(|line| line.starts_with(b"id: "))?;
        Self::read(std::str::from_utf8(line.get(4..)?).ok()?)
    }
}

/// Returns true if the event ends a request: an answer or an error.
pub(super) fn is_answer(event: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct AnswerMembers {
        id: Option<IgnoredAny>,
        method: Option<IgnoredAny>,
    }
    let data = event.strip_prefix(b"data: ").and_then(|data| data.split(|byte| *byte == b'\n').next());
    data.and_then(|data| serde_json::from_slice::<AnswerMembers>(data).ok())
        .is_some_and(|head| head.id.is_some() && head.method.is_none())
}

impl ReplayBuffer {
    fn state(&self) -> MutexGuard<'_, ReplayState> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an event.
    pub(super) fn push(&self, event: Bytes) {
        let mut told = self.state();
        let index = match (EventId::from_event(&event), told.events.back()) {
            (Some(place), _) => place.index,
            (None, Some(last)) => last.0 + 1,
            (None, None) => 0,
        };
        if told.events.len() >= EVENTS {
            told.events.pop_front();
        }
        told.events.push_back(StreamEvent(index, event));
        drop(told);
        self.more.notify_waiters();
    }

    /// Appends the answer to a request that got none: its handler is gone.
    pub(super) fn push_lost(&self, id: &Value, stream: u64) {
        let index = self.state().events.back().map_or(0, |last| last.0 + 1);
        let message = "The session ended before the call did. The record says what became of it.";
        let error =
            serde_json::json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": message}});
        self.push(format!("data: {error}\nid: {index}/{stream}\n\n").into());
    }

    /// Marks the end: no further event follows.
    pub(super) fn end(&self) {
        self.state().over = Some(Instant::now());
        self.more.notify_waiters();
    }

    /// Returns the time of the last event, and the bytes of all stored events.
    pub(super) fn ended(&self) -> Option<(Instant, usize)> {
        let told = self.state();
        Some((told.over?, told.events.iter().map(|event| event.1.len()).sum()))
    }

    /// Returns stored and future events as the body of an answer: all, or those after a position.
    pub(super) fn read(self: &Arc<Self>, after: Option<u64>) -> Body {
        let next = Box::pin(next(Arc::clone(self), after));
        Body::new(ReplayBody { reply: Arc::clone(self), next: Some(next) })
    }
}

/// Returns the next event after that position, with its own; none after the last.
async fn next(reply: Arc<ReplayBuffer>, after: Option<u64>) -> Option<(Option<u64>, Bytes)> {
    loop {
        let mut more = std::pin::pin!(reply.more.notified());
        more.as_mut().enable();
        {
            let told = reply.state();
            let unread = told.events.iter().find(|event| after.is_none_or(|after| event.0 > after));
            if let Some(StreamEvent(index, event)) = unread {
                return Some((Some(*index), event.clone()));
            }
            if told.over.is_some() {
                return None;
            }
        }
        if tokio::time::timeout(KEEP_ALIVE_INTERVAL, more).await.is_err() {
            return Some((after, Bytes::from_static(b":\n\n")));
        }
    }
}

type NextEvent = Pin<Box<dyn Future<Output = Option<(Option<u64>, Bytes)>> + Send>>;

/// The body for one reader.
struct ReplayBody {
    reply: Arc<ReplayBuffer>,
    next: Option<NextEvent>,
}

impl http_body::Body for ReplayBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let Some(reading) = &mut this.next else { return Poll::Ready(None) };
        let Poll::Ready(read) = reading.as_mut().poll(context) else { return Poll::Pending };
        let (place, event) = match read {
            Some((place, event)) => (place, event),
            None => {
                this.next = None;
                return Poll::Ready(None);
            }
        };
        this.next = Some(Box::pin(next(Arc::clone(&this.reply), place)));
        Poll::Ready(Some(Ok(Frame::data(event))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::sync::Arc;

    use axum::body::to_bytes;

    use super::{EVENTS, EventId, ReplayBuffer, is_answer};

    #[tokio::test]
    async fn what_was_said_can_be_read_again_from_any_place_and_the_answer_is_never_what_goes() {
        let reply = Arc::<ReplayBuffer>::default();
        let early = reply.read(None);
        for index in 0..3 * EVENTS {
            reply.push(format!("data: {{\"method\":\"x\"}}\nid: {index}/7\n\n").into());
        }
        let last = 3 * EVENTS;
        reply.push(format!("data: {{\"id\":1}}\nid: {last}/7\n\n").into());
        assert!(reply.ended().is_none());
        reply.end();
        let read = async |body| String::from_utf8(to_bytes(body, 1 << 20).await.unwrap().to_vec()).unwrap();
        let (early, late) = (read(early).await, read(reply.read(Some(last as u64 - 2))).await);
        assert!(early.ends_with(&late) && early.matches("data").count() == EVENTS, "{early}");
        assert_eq!(late.matches("data").count(), 2, "{late}");
        assert_eq!(read(reply.read(Some(last as u64))).await, "");
        assert_eq!(reply.ended().unwrap().1, early.len());
    }

    #[test]
    fn an_event_says_where_it_stands_and_whether_it_is_the_answer() {
        let event = b"data: {\"id\":1,\"result\":\"\\nid: 4/4\"}\nid: 2/0\nretry: 3000\n\n";
        assert_eq!(EventId::from_event(event), Some(EventId { index: 2, stream: 0 }));
        assert!(is_answer(event) && !is_answer(b"data: {\"id\":1,\"method\":\"x\"}\n\n"));
        assert!(!is_answer(b"data: \nid: 0/0\n\n"));
        assert_eq!(EventId::read("7"), None);
    }
}
