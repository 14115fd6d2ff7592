//! The sessions: their ids in use, their stored answers, and their expiry. The SDK's session manager does the protocol;
//! this one, around it, bounds it.
//!
//! A session ends when its client closes it, when it was idle too long, or when another needs its slot; never
//! for one of the two latter reasons while one of its calls is running.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream::empty;
use futures_util::{Stream, StreamExt as _};
use http::request::Parts;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, GetExtensions as _, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionTransport,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId};
use serde_json::Value;
use tokio::time::Instant;

use super::jsonrpc::RpcError;
use super::replay_buffer::{EventId, ReplayBuffer, is_answer};

/// The most requests of one session that run at once.
const UNDER_WAY: usize = 256;

/// The cancelled requests whose ids stay reserved: late output of one would pass for that of a new request.
const CANCELLED: usize = 256;

/// The most stored answers of one session.
const MAX_REPLAY_BUFFERS: usize = 64;

/// The most bytes of those; the last answer is stored even if it is larger.
const MAX_REPLAY_BYTES: usize = 16 << 20;

/// The most bytes of the stored answers of all sessions.
const MAX_TOTAL_REPLAY_BYTES: usize = 64 << 20;

/// The time for which each is stored.
const REPLAY_TTL: Duration = Duration::from_secs(300);

/// The limits on the number of sessions and their idle time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// The most sessions at once, 1,024 unless set.
    pub sessions: usize,
    /// The longest idle time, 5 minutes unless set.
    pub idle: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { sessions: 1_024, idle: Duration::from_secs(300) }
    }
}

/// All sessions.
pub(super) struct McpSessions {
    /// Itself: a request is handled in a task that does not depend on its connection.
    this: Weak<Self>,
    by_name: Mutex<HashMap<SessionId, Arc<McpSession>>>,
    manager: LocalSessionManager,
    limits: SessionLimits,
}

/// One session.
pub(super) struct McpSession(Mutex<SessionState>);

struct SessionState {
    heard: Instant,
    /// True if its client has completed the initialization.
    initialized: bool,
    /// The ids of the running requests as JSON, and whether each is a call.
    under_way: HashMap<String, bool>,
    cancelled: VecDeque<String>,
    /// The number of streams that wait for any event.
    open: usize,
    /// The stored events of requests, by the number of their stream; the oldest first.
    replies: VecDeque<(u64, Arc<ReplayBuffer>)>,
    /// The bytes of the stored events.
    kept: usize,
}

impl McpSession {
    fn new() -> Self {
        Self(Mutex::new(SessionState {
            heard: Instant::now(),
            initialized: false,
            under_way: HashMap::new(),
            cancelled: VecDeque::new(),
            open: 0,
            replies: VecDeque::new(),
            kept: 0,
        }))
    }

    fn now(&self) -> MutexGuard<'_, SessionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the id for a request until its handler has stopped.
    pub(super) fn take(self: &Arc<Self>, id: &Value, is_call: bool) -> Result<Arc<RequestIdLease>, RpcError> {
        let text = id.to_string();
        let mut now = self.now();
        if now.under_way.contains_key(&text) {
            return Err(RpcError::request("A request with this id is under way."));
        }
        if now.cancelled.contains(&text) {
            return Err(RpcError::request("A request with this id was cancelled."));
        }
        if now.under_way.len() >= UNDER_WAY {
            return Err(RpcError::busy(id.clone()));
        }
        now.under_way.insert(text.clone(), is_call);
        Ok(Arc::new(RequestIdLease { session: Arc::clone(self), id: text }))
    }

    /// Records that the client does not want an answer any more.
    fn cancel(&self, id: &RequestId) {
        let text = id.clone().into_json_value().to_string();
        let mut now = self.now();
        if now.under_way.contains_key(&text) {
            now.cancelled.truncate(CANCELLED - 1);
            now.cancelled.push_front(text);
        }
    }

    /// Records that its client has completed the initialization.
    fn initialized(&self) {
        self.now().initialized = true;
    }

    /// Opens a waiting stream, until the result is dropped.
    fn open(self: &Arc<Self>) -> OpenStream {
        self.now().open += 1;
        OpenStream(Arc::clone(self))
    }

    fn keep(&self, stream: u64, reply: &Arc<ReplayBuffer>) {
        self.now().replies.push_back((stream, Arc::clone(reply)));
    }

    fn reply(&self, stream: u64) -> Option<Arc<ReplayBuffer>> {
        let now = self.now();
        now.replies.iter().find(|(number, _)| *number == stream).map(|(_, reply)| Arc::clone(reply))
    }

    /// Drops the oldest answers beyond the limits.
    fn bound(&self) {
        let mut now = self.now();
        now.replies.retain(|(_, reply)| reply.ended().is_none_or(|(at, _)| at.elapsed() < REPLAY_TTL));
        let (mut count, mut bytes) = (0, 0);
        let mut kept: Vec<bool> = Vec::with_capacity(now.replies.len());
        for (_, reply) in now.replies.iter().rev() {
            let Some((_, more)) = reply.ended() else {
                kept.push(true);
                continue;
            };
            let keep = count == 0 || (count < MAX_REPLAY_BUFFERS && bytes + more <= MAX_REPLAY_BYTES);
            if keep {
                (count, bytes) = (count + 1, bytes + more);
            }
            kept.push(keep);
        }
        let mut kept = kept.into_iter().rev();
        now.replies.retain(|_| kept.next().unwrap_or(true));
        now.kept = bytes;
    }

    /// Drops the oldest answer.
    fn evict_oldest(&self) {
        let mut now = self.now();
        if let Some(oldest) = now.replies.iter().position(|(_, reply)| reply.ended().is_some()) {
            now.replies.remove(oldest);
        }
        drop(now);
        self.bound();
    }

    /// Returns the time of the last activity; none while a call is running. Sessions without a listening
    /// client sort first.
    fn idle_since(&self) -> Option<(bool, bool, Instant)> {
        let now = self.now();
        let calls = now.under_way.values().any(|is_call| *is_call);
        (!calls).then_some((now.open > 0, now.initialized, now.heard))
    }
}

/// A running request.
pub(super) struct RequestIdLease {
    session: Arc<McpSession>,
    id: String,
}

impl RequestIdLease {
    fn is_cancelled(&self) -> bool {
        self.session.now().cancelled.contains(&self.id)
    }
}

impl Drop for RequestIdLease {
    fn drop(&mut self) {
        let mut now = self.session.now();
        now.under_way.remove(&self.id);
        now.heard = Instant::now();
    }
}

/// A waiting stream.
struct OpenStream(Arc<McpSession>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut now = self.0.now();
        now.open = now.open.saturating_sub(1);
        now.heard = Instant::now();
    }
}

impl McpSessions {
    pub(super) fn new(limits: SessionLimits) -> Arc<Self> {
        let mut manager = LocalSessionManager::default();
        // The SDK does not know of running calls, and would end their sessions.
        manager.session_config.keep_alive = None;
        let make =
            |this: &Weak<Self>| Self { this: this.clone(), by_name: Mutex::default(), manager, limits };
        let sessions = Arc::new_cyclic(make);
        tokio::spawn(expire_idle(Arc::downgrade(&sessions), limits.idle));
        sessions
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<McpSession>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session of that name, and marks it as active.
    pub(super) fn get(&self, name: &str) -> Option<Arc<McpSession>> {
        let session = self.all().get(name).cloned()?;
        session.now().heard = Instant::now();
        Some(session)
    }

    /// Returns true if there is room for another session, if necessary after ending the one that is idle
    /// longest.
    pub(super) fn make_room(self: &Arc<Self>) -> bool {
        let evicted = {
            let mut all = self.all();
            if all.len() < self.limits.sessions {
                return true;
            }
            let silent = all.iter().filter_map(|(name, session)| Some((session.idle_since()?, name)));
            let Some(name) = silent.min().map(|(_, name)| name.clone()) else { return false };
            all.remove(&name);
            name
        };
        tracing::debug!(target: "cofferdam::mcp", "a session ended: another needed its place");
        self.close(evicted);
        true
    }

    /// Ends a session in the background.
    fn close(self: &Arc<Self>, name: SessionId) {
        let sessions = Arc::clone(self);
        tokio::spawn(async move { sessions.close_session(&name).await });
    }

    /// Drops answers beyond the limits: the oldest of this session, and beyond the total, of the session with
    /// the most bytes.
    fn bound(&self, session: &McpSession) {
        session.bound();
        let mut by_bytes: Vec<_> = {
            let all = self.all();
            all.values().map(|session| (session.now().kept, Arc::clone(session))).collect()
        };
        while by_bytes.iter().map(|(bytes, _)| bytes).sum::<usize>() > MAX_TOTAL_REPLAY_BYTES {
            let Some((bytes, most)) = by_bytes.iter_mut().max_by_key(|(bytes, _)| *bytes) else { return };
            most.evict_oldest();
            let left = most.now().kept;
            // Another answer arrived meanwhile, and the task that stores it applies the limit.
            if left >= *bytes {
                return;
            }
            *bytes = left;
        }
    }
}

/// Stores the events of a request until the last one. A request whose session ended gets its answer, too.
async fn store_events(
    events: impl Stream<Item = ServerSseMessage>,
    id: RequestId,
    session: &McpSession,
    reply: &Arc<ReplayBuffer>,
    lease: Option<Arc<RequestIdLease>>,
) {
    let mut events = pin!(events);
    let mut lease = lease;
    let mut stream = None;
    while let Some(event) = events.next().await {
        if let (None, Some(place)) = (stream, event.event_id.as_deref().and_then(EventId::parse)) {
            stream = Some(place.stream);
            session.keep(place.stream, reply);
        }
        if is_answer(&event) {
            // A client that has the answer may reuse the id.
            lease = None;
        }
        reply.push(event);
    }
    if lease.is_some_and(|lease| !lease.is_cancelled()) {
        reply.push_lost(id, stream.unwrap_or_default());
    }
    reply.end();
}

/// Ends idle sessions, for as long as the server runs.
async fn expire_idle(sessions: Weak<McpSessions>, idle: Duration) {
    let pause = (idle / 8).clamp(Duration::from_millis(20), Duration::from_secs(30));
    loop {
        tokio::time::sleep(pause).await;
        let Some(sessions) = sessions.upgrade() else { return };
        let mut ended = Vec::new();
        sessions.all().retain(|name, session| {
            let over = matches!(session.idle_since(), Some((false, _, since)) if since.elapsed() > idle);
            if over {
                ended.push(SessionId::clone(name));
            }
            !over
        });
        let all: Vec<_> = sessions.all().values().map(Arc::clone).collect();
        all.iter().for_each(|session| session.bound());
        ended.into_iter().for_each(|name| sessions.close(name));
    }
}

/// The part of a session in the SDK's service: what it does there with the protocol's messages, and what is kept of
/// them.
impl SessionManager for McpSessions {
    type Error = LocalSessionManagerError;
    type Transport = SessionTransport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (name, transport) = self.manager.create_session().await?;
        self.all().insert(name.clone(), Arc::new(McpSession::new()));
        Ok((name, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.manager.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.manager.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.all().remove(id);
        self.manager.close_session(id).await
    }

    /// Returns the events of a request. They are stored, whether or not a client reads them.
    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let unknown = || LocalSessionManagerError::SessionNotFound(id.clone());
        let sessions = self.this.upgrade().ok_or_else(unknown)?;
        let session = self.get(id).ok_or_else(unknown)?;
        let JsonRpcMessage::Request(request) = &message else { return Err(unknown()) };
        let request_id = request.id.clone();
        // The SDK passes it on to the handler, too, and drops it when the handler has stopped.
        let lease = request.request.extensions().get::<Parts>();
        let lease = lease.and_then(|parts| parts.extensions.get::<Arc<RequestIdLease>>().cloned());
        let reply = Arc::<ReplayBuffer>::default();
        let stored = reply.read(None);
        let id = id.clone();
        let begun = tokio::spawn(async move {
            let events = sessions.manager.create_stream(&id, message).await?;
            tokio::spawn(async move {
                store_events(events, request_id, &session, &reply, lease).await;
                sessions.bound(&session);
            });
            Ok(())
        });
        begun.await.map_err(|_| unknown())?.map(|()| stored)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        if let (JsonRpcMessage::Notification(sent), Some(session)) = (&message, self.get(id)) {
            match &sent.notification {
                ClientNotification::InitializedNotification(_) => session.initialized(),
                ClientNotification::CancelledNotification(cancelled) => {
                    cancelled.params.request_id.iter().for_each(|id| session.cancel(id));
                }
                _ => {}
            }
        }
        self.manager.accept_message(id, message).await
    }

    /// Returns the stream of a client that waits for any event.
    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let open = self.get(id).map(|session| session.open());
        let events = self.manager.create_standalone_stream(id).await?;
        Ok(events.inspect(move |_| {
            let _ = &open;
        }))
    }

    /// Returns the events that a client missed. A dropped answer gets an empty stream: an error would be retried again
    /// and again.
    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let Some(place) = EventId::parse(&last_event_id) else {
            return Ok(self.manager.resume(id, last_event_id).await?.left_stream());
        };
        let reply = self.get(id).and_then(|session| session.reply(place.stream));
        let missed = match reply {
            Some(reply) => reply.read(Some(place.index)).left_stream(),
            None => empty().right_stream(),
        };
        Ok(missed.right_stream())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use std::sync::Arc;

    use rmcp::model::{ErrorCode, ErrorData, ServerJsonRpcMessage};
    use rmcp::transport::streamable_http_server::session::ServerSseMessage;

    use super::{
        MAX_REPLAY_BUFFERS, MAX_REPLAY_BYTES, MAX_TOTAL_REPLAY_BYTES, McpSession, McpSessions, ReplayBuffer,
        SessionLimits,
    };
    use crate::mcp::replay_buffer::host_bytes;

    fn message(text: String) -> ServerJsonRpcMessage {
        ServerJsonRpcMessage::error(ErrorData::new(ErrorCode(0), text, None), None)
    }

    fn add(sessions: &McpSessions, name: &str) {
        sessions.all().insert(name.into(), Arc::new(McpSession::new()));
    }

    fn said(session: &McpSession, stream: u64, bytes: usize) {
        let reply = Arc::<ReplayBuffer>::default();
        session.keep(stream, &reply);
        let text = "x".repeat(bytes - host_bytes(&message(String::new())));
        reply.push(ServerSseMessage::from_message(message(text)));
        reply.end();
        session.bound();
    }

    #[tokio::test]
    async fn the_oldest_finished_responses_are_dropped_first() {
        let session = McpSession::new();
        let under_way = Arc::<ReplayBuffer>::default();
        session.keep(1_000, &under_way);
        for stream in 0..100 {
            said(&session, stream, 1_000);
        }
        let there = |stream| session.reply(stream).is_some();
        let oldest = 100 - MAX_REPLAY_BUFFERS as u64;
        assert!(there(1_000) && there(99) && there(oldest) && !there(oldest - 1));
        said(&session, 100, MAX_REPLAY_BYTES - 2_500);
        assert!(there(100) && there(99) && there(98) && !there(97));
        said(&session, 101, MAX_REPLAY_BYTES + 1);
        assert!(there(101) && !there(100) && there(1_000), "the last is kept, whatever it has");
    }

    #[tokio::test]
    async fn the_session_that_keeps_most_is_trimmed_first() {
        let sessions = McpSessions::new(SessionLimits::default());
        let each = MAX_REPLAY_BYTES / 2 - 1;
        let names: Vec<String> = (0..6).map(|number| number.to_string()).collect();
        for name in &names {
            add(&sessions, name);
            let session = sessions.get(name).unwrap();
            for stream in 0..if name == "0" { 1 } else { 2 } {
                said(&session, stream, each);
            }
            sessions.bound(&session);
        }
        let kept = |name: &String| sessions.get(name).unwrap().now().kept;
        let all: usize = names.iter().map(kept).sum();
        assert!(all <= MAX_TOTAL_REPLAY_BYTES && all > MAX_TOTAL_REPLAY_BYTES - 2 * each, "{all}");
        assert_eq!(kept(&names[0]), each, "who keeps little keeps it");
    }

    #[tokio::test]
    async fn the_longest_idle_session_is_evicted() {
        let limits = SessionLimits { sessions: 3, ..SessionLimits::default() };
        let sessions = McpSessions::new(limits);
        for name in ["calls", "listens", "silent"] {
            assert!(sessions.make_room());
            add(&sessions, name);
            sessions.get(name).unwrap().initialized();
        }
        let call = sessions.get("calls").unwrap().take(&1.into(), true).map_err(drop).unwrap();
        let open = sessions.get("listens").unwrap().open();
        assert!(sessions.make_room() && sessions.get("silent").is_none());
        add(&sessions, "new");
        assert!(sessions.make_room() && sessions.get("new").is_none(), "it has not greeted to the end");
        add(&sessions, "calls too");
        let other = sessions.get("calls too").unwrap().take(&1.into(), true).map_err(drop).unwrap();
        assert!(sessions.make_room() && sessions.get("listens").is_none());
        add(&sessions, "calls as well");
        let third = sessions.get("calls as well").unwrap().take(&1.into(), true).map_err(drop).unwrap();
        assert!(!sessions.make_room());
        drop((call, open, other, third));
        assert!(sessions.make_room());
    }
}
