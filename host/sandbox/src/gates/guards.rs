//! What stands before a host beside its grants: a circuit that may be open, a rate that may be used up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::clock::Clock;
use cofferdam_core::failure::{Cause, CircuitOpen, LimitHit, LimitKind};
use cofferdam_egress::egress::Target;
use cofferdam_egress::egress::code;
use cofferdam_egress::resilience::{RateLimit, RateLimits, Visit};
use tokio::sync::mpsc::UnboundedSender;

use super::host_wait::{HostWait, HostWaits};
use super::unkeyed::UnkeyedWatch;

/// The guards of one attempt.
#[derive(Clone)]
pub struct Guards {
    /// The connector's name, without its version.
    pub connector: Arc<str>,
    /// What its candidate has to do with circuits, where it has a breaker.
    pub circuits: Option<Arc<Visit>>,
    /// Its rate limit, where it has one.
    pub rate: Option<RateGuard>,
    /// Measures waits.
    pub clock: Arc<dyn Clock>,
    /// When the attempt ends: no wait goes beyond it.
    pub deadline: Instant,
    /// Watches for requests for which the operation may not be repeated.
    pub unkeyed: Arc<UnkeyedWatch>,
    /// How long hosts are waited for.
    pub waits: Arc<HostWaits>,
}

/// A rate limit, and who is told of the waits it causes, before they begin.
#[derive(Clone)]
pub struct RateGuard {
    /// The turns of all calls of the host.
    pub limits: Arc<RateLimits>,
    /// The limit of this call.
    pub limit: RateLimit,
    /// Receives each delay before it begins.
    pub delays: UnboundedSender<RateDelay>,
}

/// A request to `host` waits so long for its turn.
#[derive(Debug)]
pub struct RateDelay {
    /// The host that the request goes to.
    pub host: String,
    /// The time until its turn.
    pub delay: Duration,
}

impl Guards {
    /// Whether the circuit to `host` lets a request pass that carries these credentials.
    pub(super) fn admit(
        &self,
        host: &Target,
        credential: impl FnOnce() -> Option<String>,
    ) -> Result<(), Box<CircuitOpen>> {
        match &self.circuits {
            Some(visit) => visit.admit(&host.to_string(), credential(), self.clock.timestamp()),
            None => Ok(()),
        }
    }

    /// An answer with an error status from `host`, or a good one; whether the host itself `mends` what was refused,
    /// by a new token for the next attempt.
    pub(super) fn saw_answer(&self, host: &str, status: u16, retry_after_ms: Option<u64>, mends: bool) {
        let Some(visit) = &self.circuits else { return };
        let cause = (status >= 400 && !mends).then(|| Cause::of_status(status));
        visit.saw(host, cause, cause.map(|_| status), retry_after_ms.map(Duration::from_millis));
    }

    /// No answer from `host`, or one that broke off. A request whose own body failed says nothing about the host.
    pub(super) fn saw_fault(&self, host: &str, word: &str) {
        if let Some(visit) = self.circuits.as_ref().filter(|_| word != code::REQUEST_BODY) {
            visit.saw(host, Some(Cause::Network), None, None);
        }
    }

    /// A request to `host` is about to be sent; none where nothing is counted against hosts.
    pub(super) fn waits_for(&self, host: &str) -> Option<Arc<HostWait>> {
        self.circuits.is_some().then(|| self.waits.begin(host, &self.clock))
    }

    /// The time of an attempt that began then is over. A host that was waited for through most of it fails as if the
    /// time for its answer were over.
    pub(crate) fn saw_the_end_of_time(&self, began: Instant) {
        for host in self.waits.hung(began, self.clock.now()) {
            self.saw_fault(&host, code::TIMEOUT);
        }
    }

    /// Waits for the request's turn.
    pub(super) async fn turn(&self, host: &str) -> Result<(), LimitHit> {
        let Some(RateGuard { limits, limit, delays }) = &self.rate else { return Ok(()) };
        let now = self.clock.now();
        match limits.turn(&self.connector, host, *limit, now, self.deadline) {
            Ok(None) => Ok(()),
            Ok(Some(delay)) => {
                // Nobody listens once the attempt is over, and this is dropped with it.
                drop(delays.send(RateDelay { host: host.to_owned(), delay }));
                self.clock.sleep_until(now + delay).await;
                Ok(())
            }
            Err(refused) => {
                // All that is allowed is taken; this request is not among it.
                let hit = LimitHit::new(LimitKind::Rate, refused.configured, refused.configured);
                Err(hit.per(limit.per()).after(refused.retry_after))
            }
        }
    }
}
