//! The events of one request of a session, stored apart from the connection that carried it, so that a client
//! can reconnect.
//!
//! The SDK drops an answer together with its stream, and a write to a connection does not prove that it
//! arrived. So a task of its own collects the events, and every connected client reads them from here.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::Stream;
use futures_util::stream::unfold;
use rmcp::model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The most stored events of one request: beyond it the oldest progress notifications are dropped, never the
/// answer.
const EVENTS: usize = 64;

/// An event of a stream: its position, its message, and the host's memory that it takes, in bytes.
struct StreamEvent {
    index: u64,
    message: ServerSseMessage,
    bytes: usize,
}

/// The stored events of one request.
#[derive(Default)]
pub(super) struct ReplayBuffer {
    state: Mutex<ReplayState>,
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
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (index, stream) = text.split_once('/')?;
        Some(Self { index: index.parse().ok()?, stream: stream.parse().ok()? })
    }
}

/// Returns true if the event ends a request: an answer or an error.
pub(super) fn is_answer(event: &ServerSseMessage) -> bool {
    matches!(event.message.as_deref(), Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)))
}

impl ReplayBuffer {
    fn state(&self) -> MutexGuard<'_, ReplayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an event.
    pub(super) fn push(&self, message: ServerSseMessage) {
        let bytes = message.message.as_deref().map_or(0, host_bytes);
        let mut state = self.state();
        let place = message.event_id.as_deref().and_then(EventId::parse);
        let index = match (place, state.events.back()) {
            (Some(place), _) => place.index,
            (None, Some(last)) => last.index + 1,
            (None, None) => 0,
        };
        if state.events.len() >= EVENTS {
            state.events.pop_front();
        }
        state.events.push_back(StreamEvent { index, message, bytes });
        drop(state);
        self.more.notify_waiters();
    }

    /// Appends the answer to a request that got none: its handler is gone.
    pub(super) fn push_lost(&self, id: RequestId, stream: u64) {
        let index = self.state().events.back().map_or(0, |last| last.index + 1);
        let message = "The session ended before the call did. The audit log has its outcome.";
        let error = ErrorData::new(ErrorCode(-32000), message, None);
        let error = ServerJsonRpcMessage::error(error, Some(id));
        self.push(ServerSseMessage::new(format!("{index}/{stream}"), error));
    }

    /// Marks the end: no further event follows.
    pub(super) fn end(&self) {
        self.state().over = Some(Instant::now());
        self.more.notify_waiters();
    }

    /// Returns the time of the last event, and the bytes of all stored events.
    pub(super) fn ended(&self) -> Option<(Instant, usize)> {
        let state = self.state();
        Some((state.over?, state.events.iter().map(|event| event.bytes).sum()))
    }

    /// Returns stored and future events: all, or those after a position.
    pub(super) fn read(
        self: &Arc<Self>,
        after: Option<u64>,
    ) -> impl Stream<Item = ServerSseMessage> + Send + Sync + use<> {
        unfold((Arc::clone(self), after), |(buffer, after)| async move {
            let (index, event) = buffer.next(after).await?;
            Some((event, (buffer, Some(index))))
        })
    }

    /// Returns the next event after that position, with its own; none after the last.
    async fn next(&self, after: Option<u64>) -> Option<(u64, ServerSseMessage)> {
        loop {
            let mut more = std::pin::pin!(self.more.notified());
            more.as_mut().enable();
            {
                let state = self.state();
                let unread = state.events.iter().find(|event| after.is_none_or(|after| event.index > after));
                if let Some(StreamEvent { index, message, .. }) = unread {
                    return Some((*index, message.clone()));
                }
                if state.over.is_some() {
                    return None;
                }
            }
            more.await;
        }
    }
}

/// Returns the bytes of the host's memory that a message takes, about: its text, and a value for each part of it.
pub(super) fn host_bytes(message: &ServerJsonRpcMessage) -> usize {
    /// A writer that counts bytes and values, and keeps nothing.
    #[derive(Default)]
    struct SizeCounter(usize);

    impl io::Write for SizeCounter {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let values = text.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
            self.0 =
                self.0.saturating_add(text.len()).saturating_add(values.saturating_mul(size_of::<Value>()));
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut counter = SizeCounter::default();
    // Neither the writer nor a message of the SDK has an error.
    let _ = serde_json::to_writer(&mut counter, message);
    counter.0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::sync::Arc;

    use futures_util::StreamExt as _;
    use rmcp::model::{
        EmptyResult, NumberOrString, ProgressNotificationParam, ProgressToken, ServerNotification,
    };
    use rmcp::model::{ServerJsonRpcMessage, ServerResult};
    use rmcp::transport::streamable_http_server::session::ServerSseMessage;

    use super::{EVENTS, EventId, ReplayBuffer, is_answer};

    fn progress(index: usize) -> ServerSseMessage {
        let token = ProgressToken(NumberOrString::Number(1));
        let notification = ServerNotification::ProgressNotification(rmcp::model::Notification::new(
            ProgressNotificationParam::new(token, 1.0),
        ));
        ServerSseMessage::new(format!("{index}/7"), ServerJsonRpcMessage::notification(notification))
    }

    #[tokio::test]
    async fn events_are_replayed_and_the_answer_is_kept() {
        let buffer = Arc::<ReplayBuffer>::default();
        let early = buffer.read(None);
        for index in 0..3 * EVENTS {
            buffer.push(progress(index));
        }
        let last = 3 * EVENTS;
        let answer = ServerJsonRpcMessage::response(
            ServerResult::EmptyResult(EmptyResult {}),
            NumberOrString::Number(1),
        );
        buffer.push(ServerSseMessage::new(format!("{last}/7"), answer));
        assert!(buffer.ended().is_none());
        buffer.end();
        let ids = |events: Vec<ServerSseMessage>| -> Vec<String> {
            events.into_iter().map(|event| event.event_id.unwrap()).collect()
        };
        let early: Vec<_> = early.collect().await;
        assert!(is_answer(early.last().unwrap()) && !is_answer(early.first().unwrap()));
        let (early, late) = (ids(early), ids(buffer.read(Some(last as u64 - 2)).collect().await));
        assert!(early.ends_with(&late) && early.len() == EVENTS, "{early:?}");
        assert_eq!(late, [format!("{}/7", last - 1), format!("{last}/7")]);
        assert!(buffer.read(Some(last as u64)).collect::<Vec<_>>().await.is_empty());
        assert!(buffer.ended().unwrap().1 > EVENTS * 50);
    }

    #[test]
    fn an_event_id_has_a_place_and_a_stream() {
        assert_eq!(EventId::parse("2/0"), Some(EventId { index: 2, stream: 0 }));
        assert_eq!(EventId::parse("7"), None);
    }
}
