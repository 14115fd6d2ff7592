//! What stands before a host beside its grants: a circuit that may be open, a rate that may be used up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use crate::clock::Clock;
use crate::failure::{CircuitOpen, LimitHit, LimitKind};
use crate::resilience::{RateLimit, RateLimits, Visit};

/// The guards of one attempt.
#[derive(Clone)]
pub(crate) struct Guards {
    /// The connector's name, without its version.
    pub(crate) connector: Arc<str>,
    /// What its candidate has to do with circuits, where it has a breaker.
    pub(crate) circuits: Option<Arc<Visit>>,
    /// Its rate limit, where it has one.
    pub(crate) rate: Option<RateGuard>,
    pub(crate) clock: Arc<dyn Clock>,
    /// When the attempt ends: no wait goes beyond it.
    pub(crate) deadline: Instant,
}

/// A rate limit, and who is told of the waits it causes, before they begin.
#[derive(Clone)]
pub(crate) struct RateGuard {
    pub(crate) limits: Arc<RateLimits>,
    pub(crate) limit: RateLimit,
    pub(crate) delays: UnboundedSender<RateDelay>,
}

/// A request to `host` waits so long for its turn.
#[derive(Debug)]
pub(crate) struct RateDelay {
    pub(crate) host: String,
    pub(crate) delay: Duration,
}

impl Guards {
    /// Whether the circuit to `host` lets a request pass.
    pub(super) fn admit(&self, host: &str, credential: Option<&str>) -> Result<(), CircuitOpen> {
        match &self.circuits {
            Some(visit) => visit.admit(host, credential, self.clock.timestamp()),
            None => Ok(()),
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
                let hit = LimitHit::at_least_one_over(LimitKind::Rate, refused.configured);
                Err(hit.after(refused.retry_after))
            }
        }
    }
}
