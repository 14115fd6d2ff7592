//! The checks of a host in addition to grants: its circuit may be open, its rate limit used up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::clock::Clock;
use cofferdam_core::failure::{CircuitOpen, FailureCause, LimitHit, LimitKind};
use cofferdam_egress::egress::RequestTarget;
use cofferdam_egress::egress::code;
use cofferdam_egress::resilience::{BreakerScope, RateLimit, RateLimits};
use tokio::sync::mpsc::UnboundedSender;

use super::host_wait::{HostWait, HostWaits};
use super::unkeyed::UnkeyedWatch;

/// The guards of one attempt.
#[derive(Clone)]
pub struct Guards {
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
    /// The watch for requests that forbid repeating the operation.
    pub unkeyed: Arc<UnkeyedWatch>,
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

impl Guards {
    /// Checks that the circuit to `host` admits a request that carries these credentials.
    pub(super) fn admit(
        &self,
        host: &RequestTarget,
        credential: impl FnOnce() -> Option<String>,
    ) -> Result<(), Box<CircuitOpen>> {
        match &self.circuits {
            Some(visit) => visit.admit(&host.to_string(), credential(), self.clock.timestamp()),
            None => Ok(()),
        }
    }

    /// Records an answer from `host`, an error status or a success. `mends` is true if the host itself
    /// repairs the rejection, by a new token for the next attempt.
    pub(super) fn saw_answer(&self, host: &str, status: u16, retry_after_ms: Option<u64>, mends: bool) {
        let Some(visit) = &self.circuits else { return };
        let cause = (status >= 400 && !mends).then(|| FailureCause::from_status(status));
        visit.saw(host, cause, cause.map(|_| status), retry_after_ms.map(Duration::from_millis));
    }

    /// Records that `host` did not answer or broke off its answer. A request whose own body failed says
    /// nothing about the host.
    pub(super) fn saw_fault(&self, host: &str, word: &str) {
        if let Some(visit) = self.circuits.as_ref().filter(|_| word != code::REQUEST_BODY) {
            visit.saw(host, Some(FailureCause::Network), None, None);
        }
    }

    /// Records that a request to `host` is about to be sent; returns none if nothing is counted against
    /// hosts.
    pub(super) fn waits_for(&self, host: &str) -> Option<Arc<HostWait>> {
        self.circuits.is_some().then(|| self.waits.begin(host, &self.clock))
    }

    /// Records that the time of an attempt that began at `began` is over. A host that the attempt was waiting
    /// for during most of that time fails like a host that exceeds its response timeout.
    pub(crate) fn saw_the_end_of_time(&self, began: Instant) {
        for host in self.waits.hung(began, self.clock.now()) {
            self.saw_fault(&host, code::TIMEOUT);
        }
    }

    /// Waits for the request's turn under the rate limit.
    pub(super) async fn turn(&self, host: &str) -> Result<(), LimitHit> {
        let Some(RateGuard { limits, limit, delays }) = &self.rate else { return Ok(()) };
        let now = self.clock.now();
        match limits.turn(&self.connector, host, *limit, now, self.deadline) {
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
