//! The checks of a host in addition to grants: its circuit may be open, its rate limit used up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use cofferdam_core::clock::Clock;
use cofferdam_core::failure::{CircuitOpen, FailureCause, LimitHit, LimitKind};
use cofferdam_egress::egress::RequestTarget;
use cofferdam_egress::egress::code;
use cofferdam_egress::resilience::{BreakerScope, RateLimit, RateLimits};
use tokio::sync::mpsc::UnboundedSender;

use super::request_observer::KeyWatch;

/// The least wait that counts against a host: callers choose the time of a call, and a very short one must
/// not open the circuit of a healthy host.
const MIN_HOST_WAIT: Duration = Duration::from_secs(1);

/// The guards of one attempt.
#[derive(Clone)]
pub struct AttemptGuards {
    /// The connector's name, without its version.
    pub connector: Arc<str>,
    /// The view of its candidate on the circuits, if it has a breaker.
    pub circuits: Option<Arc<BreakerScope>>,
    /// Its rate limit, if it has one.
    pub rate: Option<RateGuard>,
    /// Measures waits.
    pub clock: Arc<dyn Clock>,
    /// When the attempt ends: no wait goes beyond it.
    pub deadline: Instant,
    /// The watch for requests that forbid repeating the operation, or repeating it under another key.
    pub key_watch: Arc<KeyWatch>,
    /// The waits of requests for their hosts.
    pub waits: Arc<HostWaits>,
}

/// A rate limit, and the receiver of the delays it causes, before they begin.
#[derive(Clone)]
pub struct RateGuard {
    /// The rate limiter of all calls of the host.
    pub limits: Arc<RateLimits>,
    /// The limit of this call.
    pub limit: RateLimit,
    /// Receives each delay before it begins.
    pub delays: UnboundedSender<RateDelay>,
}

/// The delay of a request to `host` until its turn.
#[derive(Debug)]
pub struct RateDelay {
    /// The host that the request goes to.
    pub host: String,
    /// The time until its turn.
    pub delay: Duration,
}

impl AttemptGuards {
    /// Checks that the circuit to `host` admits a request that carries these credentials.
    pub(super) fn admit(
        &self,
        host: &RequestTarget,
        credential: impl FnOnce() -> Option<String>,
    ) -> Result<(), Box<CircuitOpen>> {
        match &self.circuits {
            Some(breaker) => breaker.admit(&host.to_string(), credential(), self.clock.timestamp()),
            None => Ok(()),
        }
    }

    /// Records an answer from `host`, an error status or a success. `mends` is true if the host itself
    /// repairs the rejection, by a new token for the next attempt.
    pub(super) fn saw_answer(&self, host: &str, status: u16, retry_after_ms: Option<u64>, mends: bool) {
        let Some(breaker) = &self.circuits else { return };
        let cause = (status >= 400 && !mends).then(|| FailureCause::from_status(status));
        breaker.observe(host, cause, cause.map(|_| status), retry_after_ms.map(Duration::from_millis));
    }

    /// Records that `host` did not answer or broke off its answer. A request whose own body failed says
    /// nothing about the host.
    pub(super) fn saw_fault(&self, host: &str, word: &str) {
        if let Some(breaker) = self.circuits.as_ref().filter(|_| word != code::REQUEST_BODY) {
            breaker.observe(host, Some(FailureCause::Network), None, None);
        }
    }

    /// Records that a request to `host` is about to be sent; returns none if nothing is counted against
    /// hosts.
    pub(super) fn begin_wait(&self, host: &str) -> Option<Arc<HostWait>> {
        self.circuits.is_some().then(|| self.waits.begin(host, &self.clock))
    }

    /// Records that the time of an attempt that began at `began` is over. A host that the attempt was waiting
    /// for during most of that time fails like a host that exceeds its response timeout.
    pub(crate) fn record_timeout(&self, began: Instant) {
        for host in self.waits.hung_hosts(began, self.clock.now()) {
            self.saw_fault(&host, code::TIMEOUT);
        }
    }

    /// Waits for the request's turn under the rate limit.
    pub(super) async fn turn(&self, host: &str) -> Result<(), LimitHit> {
        let Some(RateGuard { limits, limit, delays }) = &self.rate else { return Ok(()) };
        let patience = self.deadline.saturating_duration_since(self.clock.now());
        let shared = limits.reserve_shared(&self.connector, host, *limit, patience).await;
        let now = self.clock.now();
        match shared.unwrap_or_else(|| limits.reserve(&self.connector, host, *limit, now, self.deadline)) {
            Ok(None) => Ok(()),
            Ok(Some(delay)) => {
                // The receiver is gone once the attempt is over, and this future is dropped with it.
                drop(delays.send(RateDelay { host: host.to_owned(), delay }));
                self.clock.sleep_until(now + delay).await;
                Ok(())
            }
            Err(refused) => {
                // The whole rate is used up; this request is not counted in it.
                let hit = LimitHit::new(LimitKind::Rate, refused.configured, refused.configured);
                Err(hit.with_period(limit.per()).with_retry_after(refused.retry_after))
            }
        }
    }
}

/// The waits of an attempt's requests for their hosts: a host that hangs until the attempt's time is over fails
/// like a host that exceeds its response timeout.
#[derive(Debug, Default)]
pub struct HostWaits(Mutex<Vec<Weak<HostWait>>>);

/// One request, from its sending until the end of its response.
pub(super) struct HostWait {
    host: String,
    clock: Arc<dyn Clock>,
    /// The start of the wait for its host; none while the host waits for the guest.
    since: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for HostWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostWait").field("host", &self.host).finish_non_exhaustive()
    }
}

impl HostWaits {
    /// Records that a request to `host` is about to be sent.
    pub(super) fn begin(&self, host: &str, clock: &Arc<dyn Clock>) -> Arc<HostWait> {
        let since = Mutex::new(Some(clock.now()));
        let wait = Arc::new(HostWait { host: host.to_owned(), clock: Arc::clone(clock), since });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&wait));
        wait
    }

    /// Returns the hosts that the attempt was waiting for, without a pause, during at least half of the time
    /// from `began` until `now`.
    pub(super) fn hung_hosts(&self, began: Instant, now: Instant) -> Vec<String> {
        let share = (now.saturating_duration_since(began) / 2).max(MIN_HOST_WAIT);
        let waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hangs = |wait: &Arc<HostWait>| {
            wait.since().is_some_and(|since| now.saturating_duration_since(since) >= share)
        };
        waits.iter().filter_map(Weak::upgrade).filter(hangs).map(|wait| wait.host.clone()).collect()
    }
}

impl HostWait {
    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the next part of the request's body was polled: while the guest has not written it, the
    /// host cannot answer.
    pub(super) fn polled_upload(&self, is_ready: bool) {
        *self.since() = is_ready.then(|| self.clock.now());
    }

    /// Records that the next part of the response's body was polled: the host is waited for while the guest
    /// asks for it.
    pub(super) fn polled_download(&self, is_ready: bool) {
        if is_ready {
            self.pause();
        } else {
            self.since().get_or_insert_with(|| self.clock.now());
        }
    }

    /// Stops the wait for the host.
    pub(super) fn pause(&self) {
        *self.since() = None;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use cofferdam_core::clock::SystemClock;

    #[test]
    fn half_of_the_attempt_counts_and_a_second_at_least() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let waits = HostWaits::default();
        let began = clock.now();
        let wait = waits.begin("a.example:443", &clock);
        let since = wait.since().unwrap();
        let at = |secs: f64| since + Duration::from_secs_f64(secs);
        assert_eq!(waits.hung_hosts(began, at(2.1)), ["a.example:443"]);
        assert!(waits.hung_hosts(began, at(0.9)).is_empty(), "next to nothing");
        let earlier = began.checked_sub(Duration::from_secs(10)).unwrap();
        assert!(waits.hung_hosts(earlier, at(5.0)).is_empty(), "most of it was the guest's own");
        assert_eq!(waits.hung_hosts(earlier, at(11.0)), ["a.example:443"]);
        wait.pause();
        assert!(waits.hung_hosts(began, at(60.0)).is_empty(), "it was answered");
        wait.polled_upload(true);
        drop(wait);
        assert!(waits.hung_hosts(began, at(60.0)).is_empty(), "the guest gave it up");
    }

    #[test]
    fn a_guest_that_does_not_write_is_not_its_host() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let wait = HostWaits::default().begin("a.example:443", &clock);
        let upload = |is_ready| {
            wait.polled_upload(is_ready);
            wait.since().is_some()
        };
        assert!(!upload(false), "the guest is waited for");
        assert!(upload(true), "the host has it");
        assert!(!upload(false));
        assert!(upload(true), "that was all");
    }

    #[test]
    fn a_response_is_waited_for_while_the_guest_reads() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let wait = HostWaits::default().begin("a.example:443", &clock);
        wait.pause();
        wait.polled_download(false);
        let since = wait.since().unwrap();
        wait.polled_download(false);
        assert_eq!(*wait.since(), Some(since), "it goes on");
        wait.polled_download(true);
        assert_eq!(*wait.since(), None, "the guest has it");
    }
}
