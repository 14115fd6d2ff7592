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
    /// The bytes of those that are kept.
    kept: usize,
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
            kept: 0,
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

    /// Gives up the oldest answers beyond what is kept.
    fn bound(&self) {
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
        now.kept = bytes;
    }

    /// Gives up the oldest answer.
    fn forget_one(&self) {
        let mut now = self.now();
        if let Some(oldest) = now.replies.iter().position(|(_, reply)| reply.ended().is_some()) {
            now.replies.remove(oldest);
        }
        drop(now);
        self.bound();
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

    /// Gives up answers beyond what is kept: the oldest of this session, and beyond the bound of all, of the one that
    /// has most.
    pub(super) fn bound(&self, session: &Session) {
        session.bound();
        let mut by_bytes: Vec<_> = {
            let all = self.all();
            all.values().map(|session| (session.now().kept, Arc::clone(session))).collect()
        };
        while by_bytes.iter().map(|(bytes, _)| bytes).sum::<usize>() > ALL_KEPT_BYTES {
            let Some((bytes, most)) = by_bytes.iter_mut().max_by_key(|(bytes, _)| *bytes) else { return };
            most.forget_one();
            let left = most.now().kept;
            // Another answer came meanwhile, and who keeps it bounds it.
            if left >= *bytes {
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
        ALL_KEPT_BYTES, KEPT, KEPT_BYTES, LocalSessionManager, Reply, Session, SessionLimits, Sessions,
    };

    fn said(session: &Session, stream: u64, bytes: usize) {
        let reply = Arc::<Reply>::default();
        session.keep(stream, &reply);
        reply.tell(Bytes::from(vec![b'x'; bytes]));
        reply.end();
        session.bound();
    }

    #[tokio::test]
    async fn of_the_answers_that_wait_the_oldest_go_beyond_the_bounds_and_none_that_is_under_way() {
        let session = Session::new();
        let under_way = Arc::<Reply>::default();
        session.keep(1_000, &under_way);
        for stream in 0..100 {
            said(&session, stream, 1_000);
        }
        let there = |stream| session.reply(stream).is_some();
        let oldest = 100 - KEPT as u64;
        assert!(there(1_000) && there(99) && there(oldest) && !there(oldest - 1));
        said(&session, 100, KEPT_BYTES - 2_500);
        assert!(there(100) && there(99) && there(98) && !there(97));
        said(&session, 101, KEPT_BYTES + 1);
        assert!(there(101) && !there(100) && there(1_000), "the last is kept, whatever it has");
    }

    #[tokio::test]
    async fn of_all_sessions_the_one_that_keeps_most_gives_up_first() {
        let sessions = Sessions::new(Arc::<LocalSessionManager>::default(), SessionLimits::default());
        let each = KEPT_BYTES / 2 - 1;
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
        assert!(all <= ALL_KEPT_BYTES && all > ALL_KEPT_BYTES - 2 * each, "{all}");
        assert_eq!(kept(&names[0]), each, "who keeps little keeps it");
    }

    #[tokio::test]
    async fn who_makes_room_has_no_call_and_is_silent_longest() {
        let limits = SessionLimits { sessions: 3, ..SessionLimits::default() };
        let sessions = Sessions::new(Arc::<LocalSessionManager>::default(), limits);
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
