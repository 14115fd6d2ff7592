//! The sessions: their ids in use, their stored answers, and their expiry.
//!
//! A session ends when its client closes it, when it was idle too long, or when another needs its slot; never
//! for one of the two latter reasons while one of its calls is running.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rmcp::transport::streamable_http_server::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::Value;
use tokio::time::Instant;

use super::jsonrpc::RpcError;
use super::replay_buffer::ReplayBuffer;

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

/// A session that was active this recently may have begun during the check of the others.
const NEW: Duration = Duration::from_secs(5);

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
    by_name: Mutex<HashMap<String, Arc<McpSession>>>,
    manager: Arc<LocalSessionManager>,
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
    pub(super) fn cancel(&self, id: &Value) {
        let text = id.to_string();
        let mut now = self.now();
        if now.under_way.contains_key(&text) {
            now.cancelled.truncate(CANCELLED - 1);
            now.cancelled.push_front(text);
        }
    }

    /// Records that its client has completed the initialization.
    pub(super) fn initialized(&self) {
        self.now().initialized = true;
    }

    pub(super) fn is_cancelled(&self, id: &Value) -> bool {
        self.now().cancelled.contains(&id.to_string())
    }

    /// Opens a waiting stream, until the result is dropped.
    pub(super) fn open(self: &Arc<Self>) -> OpenStream {
        self.now().open += 1;
        OpenStream(Arc::clone(self))
    }

    pub(super) fn keep(&self, stream: u64, reply: &Arc<ReplayBuffer>) {
        self.now().replies.push_back((stream, Arc::clone(reply)));
    }

    pub(super) fn reply(&self, stream: u64) -> Option<Arc<ReplayBuffer>> {
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
    fn forget_one(&self) {
        let mut now = self.now();
        if let Some(oldest) = now.replies.iter().position(|(_, reply)| reply.ended().is_some()) {
            now.replies.remove(oldest);
        }
        drop(now);
        self.bound();
    }

    /// Returns the time of the last activity; none while a call is running. Sessions without a listening
    /// client sort first.
    fn silent(&self) -> Option<(bool, bool, Instant)> {
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

impl Drop for RequestIdLease {
    fn drop(&mut self) {
        let mut now = self.session.now();
        now.under_way.remove(&self.id);
        now.heard = Instant::now();
    }
}

/// A waiting stream.
pub(super) struct OpenStream(Arc<McpSession>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut now = self.0.now();
        now.open = now.open.saturating_sub(1);
        now.heard = Instant::now();
    }
}

impl McpSessions {
    pub(super) fn new(manager: Arc<LocalSessionManager>, limits: SessionLimits) -> Arc<Self> {
        let sessions = Arc::new(Self { by_name: Mutex::default(), manager, limits });
        tokio::spawn(end_silent(Arc::downgrade(&sessions), limits.idle));
        sessions
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<McpSession>>> {
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
    pub(super) fn make_room(&self) -> bool {
        let evicted = {
            let mut all = self.all();
            if all.len() < self.limits.sessions {
                return true;
            }
            let silent = all.iter().filter_map(|(name, session)| Some((session.silent()?, name)));
            let Some(name) = silent.min().map(|(_, name)| name.clone()) else { return false };
            all.remove(&name);
            name
        };
        tracing::debug!(target: "cofferdam::mcp", "a session ended: another needed its place");
        let manager = Arc::clone(&self.manager);
        tokio::spawn(async move { manager.close_session(&evicted.into()).await });
        true
    }

    /// Adds a new session.
    pub(super) fn add(&self, name: &str) {
        self.all().insert(name.to_owned(), Arc::new(McpSession::new()));
    }

    /// Removes a session that ended.
    pub(super) fn remove(&self, name: &str) {
        self.all().remove(name);
    }

    /// Drops answers beyond the limits: the oldest of this session, and beyond the total, of the session with
    /// the most bytes.
    pub(super) fn bound(&self, session: &McpSession) {
        session.bound();
        let mut by_bytes: Vec<_> = {
            let all = self.all();
            all.values().map(|session| (session.now().kept, Arc::clone(session))).collect()
        };
        while by_bytes.iter().map(|(bytes, _)| bytes).sum::<usize>() > MAX_TOTAL_REPLAY_BYTES {
            let Some((bytes, most)) = by_bytes.iter_mut().max_by_key(|(bytes, _)| *bytes) else { return };
            most.forget_one();
            let left = most.now().kept;
            // Another answer arrived meanwhile, and the task that stores it applies the limit.
            if left >= *bytes {
                return;
            }
            *bytes = left;
        }
    }
}

/// Ends idle sessions, for as long as the server runs.
async fn end_silent(sessions: Weak<McpSessions>, idle: Duration) {
    let pause = (idle / 8).clamp(Duration::from_millis(20), Duration::from_secs(30));
    loop {
        tokio::time::sleep(pause).await;
        let Some(sessions) = sessions.upgrade() else { return };
        let there: Vec<String> =
            sessions.manager.sessions.read().await.keys().map(|id| id.to_string()).collect();
        let there: std::collections::HashSet<_> = there.into_iter().collect();
        let mut ended = Vec::new();
        sessions.all().retain(|name, session| {
            let silent = session.silent();
            let over = matches!(silent, Some((false, _, since)) if since.elapsed() > idle);
            if over {
                ended.push(name.clone());
            }
            // Also removes sessions that the SDK ended, but none that began meanwhile.
            let new = silent.is_none_or(|(_, _, since)| since.elapsed() < NEW);
            !over && (there.contains(name) || new)
        });
        let all: Vec<_> = sessions.all().values().map(Arc::clone).collect();
        all.iter().for_each(|session| session.bound());
        for name in ended {
            let manager = Arc::clone(&sessions.manager);
            tokio::spawn(async move { manager.close_session(&name.into()).await });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use std::sync::Arc;

    use bytes::Bytes;

    use super::{
        LocalSessionManager, MAX_REPLAY_BUFFERS, MAX_REPLAY_BYTES, MAX_TOTAL_REPLAY_BYTES, McpSession,
        McpSessions, ReplayBuffer, SessionLimits,
    };

    fn said(session: &McpSession, stream: u64, bytes: usize) {
        let reply = Arc::<ReplayBuffer>::default();
        session.keep(stream, &reply);
        reply.push(Bytes::from(vec![b'x'; bytes]));
        reply.end();
        session.bound();
    }

    #[tokio::test]
    async fn of_the_answers_that_wait_the_oldest_go_beyond_the_bounds_and_none_that_is_under_way() {
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
    async fn of_all_sessions_the_one_that_keeps_most_gives_up_first() {
        let sessions = McpSessions::new(Arc::<LocalSessionManager>::default(), SessionLimits::default());
        let each = MAX_REPLAY_BYTES / 2 - 1;
        let names: Vec<String> = (0..6).map(|number| number.to_string()).collect();
        for name in &names {
            sessions.add(name);
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
    async fn who_makes_room_has_no_call_and_is_silent_longest() {
        let limits = SessionLimits { sessions: 3, ..SessionLimits::default() };
        let sessions = McpSessions::new(Arc::<LocalSessionManager>::default(), limits);
        for name in ["calls", "listens", "silent"] {
            assert!(sessions.make_room());
            sessions.add(name);
            sessions.get(name).unwrap().initialized();
        }
        let call = sessions.get("calls").unwrap().take(&1.into(), true).map_err(drop).unwrap();
        let open = sessions.get("listens").unwrap().open();
        assert!(sessions.make_room() && sessions.get("silent").is_none());
        sessions.add("new");
        assert!(sessions.make_room() && sessions.get("new").is_none(), "it has not greeted to the end");
        sessions.add("calls too");
        let other = sessions.get("calls too").unwrap().take(&1.into(), true).map_err(drop).unwrap();
        assert!(sessions.make_room() && sessions.get("listens").is_none());
        sessions.add("calls as well");
        let third = sessions.get("calls as well").unwrap().take(&1.into(), true).map_err(drop).unwrap();
        assert!(!sessions.make_room());
        drop((call, open, other, third));
        assert!(sessions.make_room());
    }
}
