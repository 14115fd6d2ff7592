//! The scheduler of rate-limited requests: each request gets its send time when it asks, in the order of
//! arrival.
//!
//! The arithmetic is governor's (GCRA), with a clock that is set explicitly: a request that comes too early
//! asks once more, for the first moment that is possible, and so reserves that moment. The next request finds
//! it taken. No request is woken only to find that another was faster, and one that cannot wait long enough
//! is rejected at once.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::clock::{Clock, Reference as _};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

use super::limit::RateLimit;

/// The number of connector and host pairs above which the idle ones are dropped. There are no more than the
/// manifests of installed connectors name.
const KEPT: usize = 1_024;

/// The reserved send times of all connectors. They are in memory: another process has its own.
#[derive(Debug, Default)]
pub struct RateLimits(Mutex<GrantedTurn>);

#[derive(Debug, Default)]
struct GrantedTurn {
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

impl RateLimits {
    /// Reserves the time at which a request of `connector` to `host` may be sent: at once, or after a wait.
    /// The reservation is kept even if the request does not use it.
    ///
    /// # Errors
    /// The wait would not end before `deadline`. Nothing is reserved.
    pub fn turn(
        &self,
        connector: &Arc<str>,
        host: &str,
        limit: RateLimit,
        now: Instant,
        deadline: Instant,
    ) -> Result<Option<Duration>, RateRefused> {
        // The state is consistent after every statement, so a panic elsewhere leaves nothing half-done.
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let origin = *given.origin.get_or_insert(now);
        let now = nanos(now.saturating_duration_since(origin));
        let deadline = nanos(deadline.saturating_duration_since(origin));
        let meter = given.meter(connector, host, limit, now);
        let at = meter.turn(now, deadline).map_err(|at| RateRefused {
            retry_after: at.duration_since(now).into(),
            configured: u64::from(limit.requests()),
        })?;
        Ok((at > now).then(|| at.duration_since(now).into()))
    }
}

impl GrantedTurn {
    fn meter(&mut self, connector: &Arc<str>, host: &str, limit: RateLimit, now: Nanos) -> &mut RateMeter {
        let key = (Arc::clone(connector), Arc::from(host));
        if self.meters.len() >= KEPT && !self.meters.contains_key(&key) {
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
    limiter: RateLimiter<NotKeyed, InMemoryState, TurnRequest, NoOpMiddleware<Nanos>>,
    /// The time after which an unused limiter is as good as new.
    rest: Nanos,
    /// The time at which it is as good as new.
    rested_at: Nanos,
}

impl RateMeter {
    fn new(limit: RateLimit) -> Self {
        // The ranges of a limit exclude a zero period and a zero amount. Rounded up: rounded down, one more
        // request would fit into a period.
        let requests = limit.requests().max(1);
        let every = limit.per().as_nanos().div_ceil(u128::from(requests));
        let every = Duration::from_nanos(u64::try_from(every).unwrap_or(u64::MAX));
        let at_once = NonZeroU32::new(limit.burst()).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::with_period(every).unwrap_or(Quota::per_second(NonZeroU32::MIN));
        let limiter = RateLimiter::direct_with_clock(quota.allow_burst(at_once), TurnRequest::default());
        Self { limit, limiter, rest: nanos(every.saturating_mul(requests)), rested_at: Nanos::default() }
    }

    /// Reserves the first time from `now` on. If that is not before `deadline`, reserves nothing and returns
    /// that time as the error.
    fn turn(&mut self, now: Nanos, deadline: Nanos) -> Result<Nanos, Nanos> {
        let mut at = now;
        loop {
            self.limiter.clock().0.store(at.as_u64(), Ordering::Relaxed);
            match self.limiter.check() {
                Ok(()) => {
                    self.rested_at = self.rested_at.max(at + self.rest);
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
struct TurnRequest(AtomicU64);

impl Clock for TurnRequest {
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

    const MINUTE: Duration = Duration::from_secs(60);
    const LONG: Duration = Duration::from_secs(3_600);

    fn limit(requests: u32, burst: u32) -> RateLimit {
        RateLimit::new(requests, MINUTE).unwrap().with_burst(burst).unwrap()
    }

    fn name(text: &str) -> Arc<str> {
        text.into()
    }

    #[test]
    fn p18_thirty_at_once_and_the_next_after_its_share_of_the_minute() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let turn = |connector: &str, at| {
            limits.turn(&name(connector), "a.example:443", limit(30, 30), start + at, start + LONG)
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
    fn who_cannot_wait_takes_no_turn_and_knows_how_long_it_would_be() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let turn = |deadline| limits.turn(&name("a"), "a.example:443", limit(2, 1), start, start + deadline);
        assert_eq!(turn(MINUTE), Ok(None));
        let refused = RateRefused { retry_after: Duration::from_secs(30), configured: 2 };
        assert_eq!(turn(Duration::from_secs(30)), Err(refused), "it would be over when its turn came");
        assert_eq!(turn(Duration::from_secs(29)), Err(refused));
        assert_eq!(turn(Duration::from_secs(31)), Ok(Some(Duration::from_secs(30))));
        assert_eq!(turn(MINUTE), Err(RateRefused { retry_after: MINUTE, configured: 2 }));
    }

    #[test]
    fn even_pacing_never_sends_more_in_a_period_than_the_limit_says() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let mut sent = Vec::new();
        for ms in (0..300_000_u64).step_by(170) {
            let at = Duration::from_millis(ms);
            let turn = limits.turn(&name("a"), "h:1", limit(7, 1), start + at, start + at + MINUTE);
            sent.extend(turn.ok().map(|wait| at + wait.unwrap_or_default()));
        }
        for first in &sent {
            let in_a_minute = sent.iter().filter(|at| *at >= first && **at < *first + MINUTE).count();
            assert!(in_a_minute <= 7, "{in_a_minute} from {first:?}");
        }
        assert!(sent.len() >= 35, "{}", sent.len());
    }

    #[test]
    fn many_at_once_get_as_many_turns_and_each_its_own() {
        let (limits, start) = (Arc::new(RateLimits::default()), Instant::now());
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let limits = Arc::clone(&limits);
                std::thread::spawn(move || {
                    let turn = || limits.turn(&name("a"), "h:1", limit(60, 1), start, start + LONG);
                    (0..50).map(|_| turn().unwrap().unwrap_or_default().as_secs()).collect::<Vec<_>>()
                })
            })
            .collect();
        let mut turns: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        turns.sort_unstable();
        assert_eq!(turns, (0..400).collect::<Vec<_>>(), "one a second, and no two at once");
    }

    #[test]
    fn what_has_rested_is_forgotten_and_nothing_else() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let turn = |host: usize, at| {
            limits.turn(
                &name("a"),
                &format!("{host}.example:443"),
                limit(1, 1),
                start + at,
                start + LONG * 24,
            )
        };
        let kept = || limits.0.lock().unwrap().meters.len();
        for host in 0..=KEPT {
            assert_eq!(turn(host, Duration::ZERO), Ok(None));
        }
        assert_eq!(kept(), KEPT + 1, "none has rested");
        assert_eq!(turn(0, Duration::ZERO), Ok(Some(MINUTE)));
        assert_eq!(turn(KEPT + 1, MINUTE * 3 / 2), Ok(None));
        assert_eq!(kept(), 2, "the first has not, and the last is new");
        assert_eq!(turn(0, MINUTE * 3 / 2), Ok(Some(MINUTE / 2)));
    }
}
