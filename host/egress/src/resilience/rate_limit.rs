//! Rate limits: bound the requests of a connector to a host to the operator's limit, over all callers.
//!
//! Each request gets its send time when it asks, in the order of arrival. The arithmetic is governor's (GCRA),
//! with a clock that is set explicitly: a request that comes too early asks once more, for the first moment
//! that is possible, and so reserves that moment. The next request finds it taken. No request is woken only to
//! find that another was faster, and one that cannot wait long enough is rejected at once.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::document::{DocumentTable, InvalidValue};
use cofferdam_core::limits::parse_time;
use governor::clock::{Clock, Reference as _};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

/// The maximum number of requests in a period.
const MOST: u64 = 1_000_000;

/// The shortest and the longest period.
const PERIODS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(24 * 60 * 60)];

/// A number of requests in a period, for each host of a connector.
///
/// Requests are paced: after a pause, `burst` of them may be sent at once, and after that one each time that
/// `per / requests` has passed. In the long run that is `requests` in each period; in the one period that
/// begins with a burst it is fewer than `requests + burst`. A burst of 1 paces evenly, and never sends more
/// than `requests` in any period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    requests: u32,
    per: Duration,
    burst: u32,
}

/// The error for an invalid rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// No requests, or too many.
    #[error("a rate limit allows 1 to 1000000 requests in a period")]
    Requests,
    /// A period that is too short or too long.
    #[error("the period of a rate limit is 1 second to 24 hours")]
    Period,
    /// No requests at once, or more than in the period.
    #[error("a rate limit allows 1 request at once, up to as many as in its period")]
    Burst,
}

impl RateLimit {
    /// The keys of its table in a document.
    pub(crate) const KEYS: [&'static str; 3] = ["requests", "per", "burst"];

    /// Creates a limit of `requests` (1 to 1,000,000) in each period `per` (1 second to 24 hours), with a
    /// burst of all of them.
    ///
    /// # Errors
    /// A value out of its range.
    pub fn new(requests: u32, per: Duration) -> Result<Self, RateError> {
        let [shortest, longest] = PERIODS;
        match requests {
            0 => Err(RateError::Requests),
            _ if u64::from(requests) > MOST => Err(RateError::Requests),
            _ if per < shortest || per > longest => Err(RateError::Period),
            _ => Ok(Self { requests, per, burst: requests }),
        }
    }

    /// Returns the limit with a burst of `burst`, from 1 to all requests.
    ///
    /// # Errors
    /// A value out of its range.
    pub fn with_burst(self, burst: u32) -> Result<Self, RateError> {
        match burst == 0 || burst > self.requests {
            true => Err(RateError::Burst),
            false => Ok(Self { burst, ..self }),
        }
    }

    /// Returns the number of requests in a period.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// Returns the period.
    #[must_use]
    pub fn per(&self) -> Duration {
        self.per
    }

    /// Returns the time between two requests in the long run. Rounded up: rounded down, one more request would fit into
    /// a period.
    #[must_use]
    pub fn interval(&self) -> Duration {
        let every = self.per.as_nanos().div_ceil(u128::from(self.requests.max(1)));
        Duration::from_nanos(u64::try_from(every).unwrap_or(u64::MAX))
    }

    /// Returns the number of requests that may be sent at once.
    #[must_use]
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Reads `{ requests = 30, per = "60s" }` with an optional `burst`; problems are reported with their
    /// place. The caller rejects other keys of the table: [`KEYS`](Self::KEYS) are these.
    pub(crate) fn read(table: &DocumentTable<'_>) -> Option<Self> {
        if !table.has("requests") {
            table.missing("requests", "how many requests are allowed in a period, like requests = 30");
        }
        let requests = table.integer("requests").and_then(|number| number.parse(|number| requests(*number)));
        let per = table.required_text("per", "the period, like per = \"60s\"");
        let per = per.and_then(|text| text.parse(|text| period(text)));
        let burst = table.integer("burst");
        let limit = Self::new(requests?, per?).ok()?;
        match burst {
            None => Some(limit),
            Some(burst) => burst.parse(|burst| {
                let fits = u32::try_from(*burst).ok().and_then(|burst| limit.with_burst(burst).ok());
                fits.ok_or_else(|| refused(RateError::Burst, "write 1 up to the number of `requests`"))
            }),
        }
    }
}

fn requests(number: u64) -> Result<u32, InvalidValue> {
    let fits = u32::try_from(number).ok().filter(|_| (1..=MOST).contains(&number));
    fits.ok_or_else(|| {
        refused(RateError::Requests, "write a number in that range; leave the table out for no limit")
    })
}

fn period(text: &str) -> Result<Duration, InvalidValue> {
    let [shortest, longest] = PERIODS;
    let fits = parse_time(text).filter(|time| (shortest..=longest).contains(time));
    fits.ok_or_else(|| refused(RateError::Period, "write it like \"60s\", \"5m\" or \"1h\""))
}

fn refused(error: RateError, fix: &str) -> InvalidValue {
    InvalidValue::new(error.to_string(), fix)
}

/// The number of connector and host pairs above which the idle ones are dropped. There are no more than the
/// manifests of installed connectors name.
const MAX_METERS: usize = 1_024;

/// The state that the hosts of a cluster share cannot be reached in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the shared state cannot be reached")]
pub struct SharedStateAway;

/// The answer to a request for a send time: the wait until it, or the reason why there is none.
pub type RateReservation<'a> =
    Pin<Box<dyn Future<Output = Result<Result<Option<Duration>, RateRefused>, SharedStateAway>> + Send + 'a>>;

/// The reserved send times of all hosts of a cluster.
pub trait SharedRateLimits: fmt::Debug + Send + Sync {
    /// Reserves the time at which a request of `connector` to `host` may be sent, within `patience` from now.
    fn reserve<'a>(
        &'a self,
        connector: &'a str,
        host: &'a str,
        limit: RateLimit,
        patience: Duration,
    ) -> RateReservation<'a>;
}

/// The reserved send times of all connectors. They are in memory, where another process has its own, unless the hosts
/// of a cluster share them.
#[derive(Debug, Default)]
pub struct RateLimits {
    own: Mutex<RateLimiterState>,
    shared: Option<Arc<dyn SharedRateLimits>>,
}

#[derive(Debug, Default)]
struct RateLimiterState {
    /// The origin of all times: the first that was passed.
    origin: Option<Instant>,
    meters: HashMap<(Arc<str>, Arc<str>), RateMeter>,
}

/// A request that would have to wait longer than its call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateRefused {
    /// The length of the wait.
    pub retry_after: Duration,
    /// The number of requests that are allowed in a period.
    pub configured: u64,
}

/// The use of a rate limit at one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimitUse {
    /// The host and port.
    pub host: Arc<str>,
    /// The requests that count against the limit now: up to its burst they were sent at once; the others wait.
    pub requests: u64,
    /// The time that another request would wait.
    pub wait: Duration,
}

impl RateLimits {
    /// Creates the limits that the hosts of a cluster share. While they cannot be reached, this host keeps its own.
    #[must_use]
    pub fn shared(shared: Arc<dyn SharedRateLimits>) -> Self {
        Self { own: Mutex::default(), shared: Some(shared) }
    }

    /// Reserves the send time with the other hosts of a cluster; `None` if this host keeps its own limits, or the
    /// others cannot be reached.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub async fn reserve_shared(
        &self,
        connector: &Arc<str>,
        host: &str,
        limit: RateLimit,
        patience: Duration,
    ) -> Option<Result<Option<Duration>, RateRefused>> {
        self.shared.as_ref()?.reserve(connector, host, limit, patience).await.ok()
    }

    /// Reserves the time at which a request of `connector` to `host` may be sent: at once, or after a wait.
    /// The reservation is kept even if the request does not use it.
    ///
    /// # Errors
    /// The wait would not end before `deadline`. Nothing is reserved.
    pub fn reserve(
        &self,
        connector: &Arc<str>,
        host: &str,
        limit: RateLimit,
        now: Instant,
        deadline: Instant,
    ) -> Result<Option<Duration>, RateRefused> {
        // The state is consistent after every statement, so a panic elsewhere leaves nothing half-done.
        let mut given = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let origin = *given.origin.get_or_insert(now);
        let now = nanos(now.saturating_duration_since(origin));
        let deadline = nanos(deadline.saturating_duration_since(origin));
        let meter = given.meter(connector, host, limit, now);
        let at = meter.reserve(now, deadline).map_err(|at| RateRefused {
            retry_after: at.duration_since(now).into(),
            configured: u64::from(limit.requests()),
        })?;
        Ok((at > now).then(|| at.duration_since(now).into()))
    }

    /// Returns the hosts at which requests of `connector` count against its limit now, by name; none if the hosts of a
    /// cluster share the limits.
    #[must_use]
    pub fn uses(&self, connector: &str, now: Instant) -> Option<Vec<RateLimitUse>> {
        if self.shared.is_some() {
            return None;
        }
        let given = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let now = nanos(now.saturating_duration_since(given.origin.unwrap_or(now)));
        let own =
            given.meters.iter().filter(|((name, _), meter)| **name == *connector && meter.used_until > now);
        let mut uses: Vec<_> = own.map(|((_, host), meter)| meter.use_at(host, now)).collect();
        uses.sort_by(|a, b| a.host.cmp(&b.host));
        Some(uses)
    }
}

impl RateLimiterState {
    fn meter(&mut self, connector: &Arc<str>, host: &str, limit: RateLimit, now: Nanos) -> &mut RateMeter {
        let key = (Arc::clone(connector), Arc::from(host));
        if self.meters.len() >= MAX_METERS && !self.meters.contains_key(&key) {
            self.meters.retain(|_, meter| meter.rested_at > now);
        }
        let meter = self.meters.entry(key).or_insert_with(|| RateMeter::new(limit));
        if meter.limit != limit {
            *meter = RateMeter::new(limit);
        }
        meter
    }
}

/// The limiter of one connector at one host.
struct RateMeter {
    limit: RateLimit,
    limiter: RateLimiter<NotKeyed, InMemoryState, SteppedClock, NoOpMiddleware<Nanos>>,
    /// The time after which an unused limiter is as good as new.
    rest: Nanos,
    /// The time at which it is as good as new.
    rested_at: Nanos,
    /// The time at which none of its requests counts any more (the theoretical arrival time of GCRA).
    used_until: Nanos,
}

impl RateMeter {
    fn new(limit: RateLimit) -> Self {
        // The ranges of a limit exclude a zero period and a zero amount.
        let requests = limit.requests().max(1);
        let every = limit.interval();
        let at_once = NonZeroU32::new(limit.burst()).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::with_period(every).unwrap_or(Quota::per_second(NonZeroU32::MIN));
        let limiter = RateLimiter::direct_with_clock(quota.allow_burst(at_once), SteppedClock::default());
        let (rested_at, used_until) = (Nanos::default(), Nanos::default());
        Self { limit, limiter, rest: nanos(every.saturating_mul(requests)), rested_at, used_until }
    }

    fn use_at(&self, host: &Arc<str>, now: Nanos) -> RateLimitUse {
        let used = Duration::from(self.used_until.duration_since(now));
        let every = self.limit.interval();
        let requests = used.as_nanos().div_ceil(every.as_nanos().max(1));
        let others = every.saturating_mul(self.limit.burst().saturating_sub(1));
        RateLimitUse {
            host: Arc::clone(host),
            requests: u64::try_from(requests).unwrap_or(u64::MAX),
            wait: used.saturating_sub(others),
        }
    }

    /// Reserves the first time from `now` on. If that is not before `deadline`, reserves nothing and returns
    /// that time as the error.
    fn reserve(&mut self, now: Nanos, deadline: Nanos) -> Result<Nanos, Nanos> {
        let mut at = now;
        loop {
            self.limiter.clock().0.store(at.as_u64(), Ordering::Relaxed);
            match self.limiter.check() {
                Ok(()) => {
                    self.rested_at = self.rested_at.max(at + self.rest);
                    self.used_until = self.used_until.max(at) + nanos(self.limit.interval());
                    return Ok(at);
                }
                // The limiter accepts at the moment that it names: no other request asks meanwhile.
                Err(early) => at = early.earliest_possible().max(at + Nanos::new(1)),
            }
            if at >= deadline {
                return Err(at);
            }
        }
    }
}

impl fmt::Debug for RateMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// The clock of a limiter: the moment that is asked for.
#[derive(Debug, Default)]
struct SteppedClock(AtomicU64);

impl Clock for SteppedClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::new(self.0.load(Ordering::Relaxed))
    }
}

/// Converts to a time since the origin, which saturates after 584 years.
fn nanos(time: Duration) -> Nanos {
    // Half of the range, because periods are added to it.
    Nanos::new(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX / 2))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use cofferdam_core::document::read;

    const MINUTE: Duration = Duration::from_secs(60);
    const LONG: Duration = Duration::from_secs(3_600);

    fn limit(requests: u32, burst: u32) -> RateLimit {
        RateLimit::new(requests, MINUTE).unwrap().with_burst(burst).unwrap()
    }

    fn name(text: &str) -> Arc<str> {
        text.into()
    }

    #[test]
    fn thirty_pass_at_once_and_the_next_waits() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let turn = |connector: &str, at| {
            limits.reserve(&name(connector), "a.example:443", limit(30, 30), start + at, start + LONG)
        };
        for _ in 0..30 {
            assert_eq!(turn("a", Duration::ZERO), Ok(None));
        }
        assert_eq!(turn("a", Duration::ZERO), Ok(Some(Duration::from_secs(2))));
        assert_eq!(turn("a", Duration::ZERO), Ok(Some(Duration::from_secs(4))), "that turn is taken");
        assert_eq!(turn("b", Duration::ZERO), Ok(None), "another connector has its own");
        assert_eq!(turn("a", Duration::from_secs(10)), Ok(None));
        assert_eq!(turn("a", MINUTE * 3), Ok(None));
    }

    #[test]
    fn the_use_of_a_limit_is_what_counts_now() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let host: Arc<str> = name("a.example:443");
        let uses = |seconds| limits.uses("a", start + Duration::from_secs(seconds)).unwrap();
        assert_eq!(uses(0), []);
        // Each request counts for 2 s, and three may be sent at once.
        for (requests, wait) in [(1, 0), (2, 0), (3, 2), (4, 4)] {
            limits.reserve(&name("a"), &host, limit(30, 3), start, start + LONG).unwrap().unwrap_or_default();
            let wait = Duration::from_secs(wait);
            assert_eq!(uses(0), [RateLimitUse { host: Arc::clone(&host), requests, wait }]);
        }
        let at = |seconds| uses(seconds).first().map(|of| (of.requests, of.wait.as_secs()));
        assert_eq!([1, 2, 4, 7].map(at), [Some((4, 3)), Some((3, 2)), Some((2, 0)), Some((1, 0))]);
        assert_eq!(uses(8), []);
        assert_eq!(limits.uses("b", start).unwrap(), [], "another connector has its own");
    }

    #[test]
    fn a_refused_request_takes_no_turn() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let turn =
            |deadline| limits.reserve(&name("a"), "a.example:443", limit(2, 1), start, start + deadline);
        assert_eq!(turn(MINUTE), Ok(None));
        let refused = RateRefused { retry_after: Duration::from_secs(30), configured: 2 };
        assert_eq!(turn(Duration::from_secs(30)), Err(refused), "it would be over when its turn came");
        assert_eq!(turn(Duration::from_secs(29)), Err(refused));
        assert_eq!(turn(Duration::from_secs(31)), Ok(Some(Duration::from_secs(30))));
        assert_eq!(turn(MINUTE), Err(RateRefused { retry_after: MINUTE, configured: 2 }));
    }

    #[test]
    fn even_pacing_never_exceeds_the_limit() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let mut sent = Vec::new();
        for ms in (0..300_000_u64).step_by(170) {
            let at = Duration::from_millis(ms);
            let turn = limits.reserve(&name("a"), "h:1", limit(7, 1), start + at, start + at + MINUTE);
            sent.extend(turn.ok().map(|wait| at + wait.unwrap_or_default()));
        }
        for first in &sent {
            let in_a_minute = sent.iter().filter(|at| *at >= first && **at < *first + MINUTE).count();
            assert!(in_a_minute <= 7, "{in_a_minute} from {first:?}");
        }
        assert!(sent.len() >= 35, "{}", sent.len());
    }

    #[test]
    fn concurrent_reservations_get_distinct_turns() {
        let (limits, start) = (Arc::new(RateLimits::default()), Instant::now());
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let limits = Arc::clone(&limits);
                std::thread::spawn(move || {
                    let turn = || limits.reserve(&name("a"), "h:1", limit(60, 1), start, start + LONG);
                    (0..50).map(|_| turn().unwrap().unwrap_or_default().as_secs()).collect::<Vec<_>>()
                })
            })
            .collect();
        let mut turns: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        turns.sort_unstable();
        assert_eq!(turns, (0..400).collect::<Vec<_>>(), "one a second, and no two at once");
    }

    #[test]
    fn idle_meters_are_dropped() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let turn = |host: usize, at| {
            limits.reserve(
                &name("a"),
                &format!("{host}.example:443"),
                limit(1, 1),
                start + at,
                start + LONG * 24,
            )
        };
        let kept = || limits.own.lock().unwrap().meters.len();
        for host in 0..=MAX_METERS {
            assert_eq!(turn(host, Duration::ZERO), Ok(None));
        }
        assert_eq!(kept(), MAX_METERS + 1, "none has rested");
        assert_eq!(turn(0, Duration::ZERO), Ok(Some(MINUTE)));
        assert_eq!(turn(MAX_METERS + 1, MINUTE * 3 / 2), Ok(None));
        assert_eq!(kept(), 2, "the first has not, and the last is new");
        assert_eq!(turn(0, MINUTE * 3 / 2), Ok(Some(MINUTE / 2)));
    }

    fn parse(text: &str) -> Result<RateLimit, String> {
        let read = read("config.toml", text, |root| {
            let table = root.table("rate_limit")?;
            table.reject_unknown_keys(&RateLimit::KEYS);
            RateLimit::read(&table)
        });
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn a_table_is_a_limit_or_says_where_it_is_wrong() {
        let thirty = RateLimit::new(30, Duration::from_secs(60)).unwrap();
        assert_eq!(parse("rate_limit = { requests = 30, per = \"60s\" }").unwrap(), thirty);
        assert_eq!(parse("[rate_limit]\nrequests = 30\nper = \"1m\"").unwrap(), thirty);
        let even = thirty.with_burst(1).unwrap();
        assert_eq!(parse("[rate_limit]\nrequests = 30\nper = \"60s\"\nburst = 1").unwrap(), even);
        for (text, place) in [
            ("requests = 30", "config.toml:1:1: rate_limit.per: "),
            ("per = \"60s\"", "config.toml:1:1: rate_limit.requests: "),
            ("requests = 0\nper = \"60s\"", "config.toml:2:12: rate_limit.requests: "),
            ("requests = 1000001\nper = \"60s\"", "config.toml:2:12: rate_limit.requests: "),
            ("requests = \"30\"\nper = \"60s\"", "config.toml:2:12: rate_limit.requests: "),
            ("requests = -1\nper = \"60s\"", "config.toml:2:12: rate_limit.requests: "),
            ("requests = 30\nper = 60", "config.toml:3:7: rate_limit.per: "),
            ("requests = 30\nper = \"500ms\"", "config.toml:3:7: rate_limit.per: "),
            ("requests = 30\nper = \"1441m\"", "config.toml:3:7: rate_limit.per: "),
            ("requests = 30\nper = \"60s\"\nburst = 0", "config.toml:4:9: rate_limit.burst: "),
            ("requests = 30\nper = \"60s\"\nburst = 31", "config.toml:4:9: rate_limit.burst: "),
            ("requests = 30\nper = \"60s\"\nbursts = 3", "did you mean `burst`?"),
        ] {
            let error = parse(&format!("[rate_limit]\n{text}")).unwrap_err();
            assert!(error.contains(place), "{text}: {error}");
        }
    }

    #[test]
    fn amounts_out_of_range_are_no_limits() {
        let minute = Duration::from_secs(60);
        assert_eq!(RateLimit::new(0, minute), Err(RateError::Requests));
        assert_eq!(RateLimit::new(u32::MAX, minute), Err(RateError::Requests));
        assert_eq!(RateLimit::new(1, Duration::from_millis(999)), Err(RateError::Period));
        assert_eq!(RateLimit::new(1, Duration::MAX), Err(RateError::Period));
        assert_eq!(RateLimit::new(2, minute).unwrap().with_burst(3), Err(RateError::Burst));
    }
}
