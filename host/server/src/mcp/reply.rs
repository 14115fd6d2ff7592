//! What is said to one request of a session, kept apart from the connection that it came by: who reads it may come back.
//!
//! The SDK forgets an answer with the stream that it went into, and nobody can know whether what went into a
//! connection arrived. So a task of its own takes what there is to say, and whoever is connected reads it from here.

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

/// Events of one request that are kept: of more the oldest notes of its progress go, never its answer.
const EVENTS: usize = 64;

/// How often who waits is told that the connection lives.
const LIVES: Duration = Duration::from_secs(15);

/// An event of a stream: its place in it, and its bytes.
struct Event(u64, Bytes);

/// What was said to one request.
#[derive(Default)]
pub(super) struct Reply {
    told: Mutex<Told>,
    more: Notify,
}

#[derive(Default)]
struct Told {
    events: VecDeque<Event>,
    /// When the last was said.
    over: Option<Instant>,
}

/// Where an event stands: its place, and the number of its stream in the session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    pub(super) index: u64,
    pub(super) stream: u64,
}

impl Place {
    /// As the SDK writes it, and clients give it back; none for what is of no request.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (index, stream) = text.split_once('/')?;
        Some(Self { index: index.parse().ok()?, stream: stream.parse().ok()? })
    }

    /// The place of the event with these bytes: its last line but for what to do when the connection goes.
    pub(super) fn of(event: &[u8]) -> Option<Self> {
        // What was said is one line, and before it.
        let line = event.split(|byte| *byte == b'\n').rfind(|line| line.starts_with(b"id: "))?;
        Self::read(std::str::from_utf8(line.get(4..)?).ok()?)
    }
}

/// Whether the event is what ends a request: an answer or an error.
pub(super) fn is_answer(event: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Head {
        id: Option<IgnoredAny>,
        method: Option<IgnoredAny>,
    }
    let data = event.strip_prefix(b"data: ").and_then(|data| data.split(|byte| *byte == b'\n').next());
    data.and_then(|data| serde_json::from_slice::<Head>(data).ok())
        .is_some_and(|head| head.id.is_some() && head.method.is_none())
}

impl Reply {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more event.
    pub(super) fn tell(&self, event: Bytes) {
        let mut told = self.told();
        let index = match (Place::of(&event), told.events.back()) {
            (Some(place), _) => place.index,
            (None, Some(last)) => last.0 + 1,
            (None, None) => 0,
        };
        if told.events.len() >= EVENTS {
            told.events.pop_front();
        }
        told.events.push_back(Event(index, event));
        drop(told);
        self.more.notify_waiters();
    }

    /// The answer to a request that got none: nobody is left who could give it.
    pub(super) fn tell_lost(&self, id: &Value, stream: u64) {
        let index = self.told().events.back().map_or(0, |last| last.0 + 1);
        let message = "The session ended before the call did. The record says what became of it.";
        let error =
            serde_json::json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": message}});
        self.tell(format!("data: {error}\nid: {index}/{stream}\n\n").into());
    }

    /// Nothing more is said.
    pub(super) fn end(&self) {
        self.told().over = Some(Instant::now());
        self.more.notify_waiters();
    }

    /// When the last was said, and how many bytes all have that is kept.
    pub(super) fn ended(&self) -> Option<(Instant, usize)> {
        let told = self.told();
        Some((told.over?, told.events.iter().map(|event| event.1.len()).sum()))
    }

    /// What was said, and what is going to be, as the body of an answer: all, or what stands after a place.
    pub(super) fn read(self: &Arc<Self>, after: Option<u64>) -> Body {
        let next = Box::pin(next(Arc::clone(self), after));
        Body::new(Reading { reply: Arc::clone(self), next: Some(next) })
    }
}

/// The next event after that place, with its own; none after the last.
async fn next(reply: Arc<Reply>, after: Option<u64>) -> Option<(Option<u64>, Bytes)> {
    loop {
        let mut more = std::pin::pin!(reply.more.notified());
        more.as_mut().enable();
        {
            let told = reply.told();
            let unread = told.events.iter().find(|event| after.is_none_or(|after| event.0 > after));
            if let Some(Event(index, event)) = unread {
                return Some((Some(*index), event.clone()));
            }
            if told.over.is_some() {
                return None;
            }
        }
        if tokio::time::timeout(LIVES, more).await.is_err() {
            return Some((after, Bytes::from_static(b":\n\n")));
        }
    }
}

type Next = Pin<Box<dyn Future<Output = Option<(Option<u64>, Bytes)>> + Send>>;

/// The body of who reads.
struct Reading {
    reply: Arc<Reply>,
    next: Option<Next>,
}

impl http_body::Body for Reading {
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

    use super::{EVENTS, Place, Reply, is_answer};

    #[tokio::test]
    async fn what_was_said_can_be_read_again_from_any_place_and_the_answer_is_never_what_goes() {
        let reply = Arc::<Reply>::default();
        let early = reply.read(None);
        for index in 0..3 * EVENTS {
            reply.tell(format!("data: {{\"method\":\"x\"}}\nid: {index}/7\n\n").into());
        }
        let last = 3 * EVENTS;
        reply.tell(format!("data: {{\"id\":1}}\nid: {last}/7\n\n").into());
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
        assert_eq!(Place::of(event), Some(Place { index: 2, stream: 0 }));
        assert!(is_answer(event) && !is_answer(b"data: {\"id\":1,\"method\":\"x\"}\n\n"));
        assert!(!is_answer(b"data: \nid: 0/0\n\n"));
        assert_eq!(Place::read("7"), None);
    }
}
