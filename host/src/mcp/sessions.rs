//! The sessions there are: which ids are taken in each, what is kept of its answers, and which one ends.
//!
//! A session ends when its client says so, when it was not heard of for a while, or when another needs its place; never
//! for one of the two latter reasons while a call of it is under way.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rmcp::transport::streamable_http_server::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::Value;
use tokio::time::Instant;

use super::jsonrpc::Refused;
use super::reply::Reply;

/// Requests of one session that are under way at once.
const UNDER_WAY: usize = 256;

/// Requests that were cancelled and whose ids are not taken again: what is left of one would pass for the next one's.
const CANCELLED: usize = 256;

/// Answers of one session that are kept.
const KEPT: usize = 64;

/// Their bytes; the last answer is kept even if it alone has more.
const KEPT_BYTES: usize = 16 << 20;

/// The bytes of those of all sessions.
const ALL_KEPT_BYTES: usize = 64 << 20;

/// How long each is kept.
const KEPT_FOR: Duration = Duration::from_secs(300);

/// A session that was heard of so lately may have begun while others were looked at.
const NEW: Duration = Duration::from_secs(5);

/// How many sessions there are, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Sessions at once, 1,024 unless set.
    pub sessions: usize,
    /// How long one may be silent, 5 minutes unless set.
    pub idle: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { sessions: 1_024, idle: Duration::from_secs(300) }
    }
}

/// All of them.
pub(super) struct Sessions {
    by_name: Mutex<HashMap<String, Arc<Session>>>,
    manager: Arc<LocalSessionManager>,
    limits: SessionLimits,
}

/// One of them.
pub(super) struct Session(Mutex<Now>);

struct Now {
    heard: Instant,
    /// Whether its client has greeted to the end.
    initialized: bool,
    /// The ids of the requests under way as JSON, and whether each is a call.
    under_way: HashMap<String, bool>,
    cancelled: VecDeque<String>,
    /// Streams that wait for whatever there is.
    open: usize,
    /// What was said to requests, by the number of its stream; the oldest first.
    replies: VecDeque<(u64, Arc<Reply>)>,
}

impl Session {
    fn new() -> Self {
        Self(Mutex::new(Now {
            heard: Instant::now(),
            initialized: false,
            under_way: HashMap::new(),
            cancelled: VecDeque::new(),
            open: 0,
            replies: VecDeque::new(),
        }))
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the id for a request until nobody is at work for it any more.
    pub(super) fn take(self: &Arc<Self>, id: &Value, is_call: bool) -> Result<Arc<Taken>, Refused> {
        let text = id.to_string();
        let mut now = self.now();
        if now.under_way.contains_key(&text) {
            return Err(Refused::request("A request with this id is under way."));
        }
        if now.cancelled.contains(&text) {
            return Err(Refused::request("A request with this id was cancelled."));
        }
        if now.under_way.len() >= UNDER_WAY {
            return Err(Refused::busy(id.clone()));
        }
        now.under_way.insert(text.clone(), is_call);
        Ok(Arc::new(Taken { session: Arc::clone(self), id: text }))
    }

    /// The client wants no answer any more.
    pub(super) fn cancel(&self, id: &Value) {
        let text = id.to_string();
        let mut now = self.now();
        if now.under_way.contains_key(&text) {
            now.cancelled.truncate(CANCELLED - 1);
            now.cancelled.push_front(text);
        }
    }

    /// Its client has greeted to the end.
    pub(super) fn initialized(&self) {
        self.now().initialized = true;
    }

    pub(super) fn is_cancelled(&self, id: &Value) -> bool {
        self.now().cancelled.contains(&id.to_string())
    }

    /// A stream that waits, until this is dropped.
    pub(super) fn open(self: &Arc<Self>) -> Open {
        self.now().open += 1;
        Open(Arc::clone(self))
    }

    pub(super) fn keep(&self, stream: u64, reply: &Arc<Reply>) {
        self.now().replies.push_back((stream, Arc::clone(reply)));
    }

    pub(super) fn reply(&self, stream: u64) -> Option<Arc<Reply>> {
        let now = self.now();
        now.replies.iter().find(|(number, _)| *number == stream).map(|(_, reply)| Arc::clone(reply))
    }

    /// Gives up the oldest answers beyond what is kept; the bytes of the others.
    fn bound(&self) -> usize {
        let mut now = self.now();
        now.replies.retain(|(_, reply)| reply.ended().is_none_or(|(at, _)| at.elapsed() < KEPT_FOR));
        let (mut count, mut bytes) = (0, 0);
        let mut kept: Vec<bool> = Vec::with_capacity(now.replies.len());
        for (_, reply) in now.replies.iter().rev() {
            let Some((_, more)) = reply.ended() else {
                kept.push(true);
                continue;
            };
            let keep = count == 0 || (count < KEPT && bytes + more <= KEPT_BYTES);
            if keep {
                (count, bytes) = (count + 1, bytes + more);
            }
            kept.push(keep);
        }
        let mut kept = kept.into_iter().rev();
        now.replies.retain(|_| kept.next().unwrap_or(true));
        bytes
    }

    /// Gives up the oldest answer.
    fn forget_one(&self) {
        let mut now = self.now();
        if let Some(oldest) = now.replies.iter().position(|(_, reply)| reply.ended().is_some()) {
            now.replies.remove(oldest);
        }
    }

    /// Since when nothing was heard of it; none while a call is under way. Those that nobody listens to come first.
    fn silent(&self) -> Option<(bool, bool, Instant)> {
        let now = self.now();
        let calls = now.under_way.values().any(|is_call| *is_call);
        (!calls).then_some((now.open > 0, now.initialized, now.heard))
    }
}

/// A request under way.
pub(super) struct Taken {
    session: Arc<Session>,
    id: String,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut now = self.session.now();
        now.under_way.remove(&self.id);
        now.heard = Instant::now();
    }
}

/// A stream that waits.
pub(super) struct Open(Arc<Session>);

impl Drop for Open {
    fn drop(&mut self) {
        let mut now = self.0.now();
        now.open = now.open.saturating_sub(1);
        now.heard = Instant::now();
    }
}

impl Sessions {
    pub(super) fn new(manager: Arc<LocalSessionManager>, limits: SessionLimits) -> Arc<Self> {
        let sessions = Arc::new(Self { by_name: Mutex::default(), manager, limits });
        tokio::spawn(end_silent(Arc::downgrade(&sessions), limits.idle));
        sessions
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of that name, which was heard of now.
    pub(super) fn get(&self, name: &str) -> Option<Arc<Session>> {
        let session = self.all().get(name).cloned()?;
        session.now().heard = Instant::now();
        Some(session)
    }

    /// Whether there is room for another, if need be by the end of the one that is silent longest.
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

    /// A session that began.
    pub(super) fn add(&self, name: &str) {
        self.all().insert(name.to_owned(), Arc::new(Session::new()));
    }

    /// A session that ended.
    pub(super) fn remove(&self, name: &str) {
        self.all().remove(name);
    }

    /// Gives up answers beyond what is kept: a session's oldest, and beyond the bound of all, of the one with most.
    pub(super) fn bound(&self) {
        let mut by_bytes: Vec<_> =
            self.all().values().map(Arc::clone).map(|session| (session.bound(), session)).collect();
        while by_bytes.iter().map(|(bytes, _)| bytes).sum::<usize>() > ALL_KEPT_BYTES {
            let Some((bytes, session)) = by_bytes.iter_mut().max_by_key(|(bytes, _)| *bytes) else { return };
            session.forget_one();
            let left = session.bound();
            if left == *bytes {
                return;
            }
            *bytes = left;
        }
    }
}

/// Ends the sessions of which nothing was heard, for as long as there are any to come.
async fn end_silent(sessions: Weak<Sessions>, idle: Duration) {
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
            // One that the SDK ended is gone, too; one that began meanwhile is not.
            let new = silent.is_none_or(|(_, _, since)| since.elapsed() < NEW);
            !over && (there.contains(name) || new)
        });
        sessions.bound();
        for name in ended {
            let manager = Arc::clone(&sessions.manager);
            tokio::spawn(async move { manager.close_session(&name.into()).await });
        }
    }
}
