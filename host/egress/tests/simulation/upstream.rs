//! An upstream service that fails for a while, counts its requests, and has effects.

use std::ops::Range;
use std::time::Duration;

use cofferdam_core::failure::FailureCause;
use cofferdam_core::rng::RandomSource;

/// The length of one bucket of the load.
pub(super) const BUCKET: Duration = Duration::from_millis(100);

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum UpstreamOutage {
    /// The connection is refused: nothing was sent.
    Refused,
    /// An error status with no effect, and the wait that it asks for.
    Status(u16, Option<Duration>),
    /// The status 503 with the date at which the service expects to be back.
    BackAt(Duration),
    /// The request takes effect, and its response is lost after a second.
    AnswerLost,
    /// No response ever arrives; the request may have taken effect.
    Hangs,
}

/// The result of one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct UpstreamAnswer {
    /// The time until the response; `None` if there is none.
    pub(super) after: Option<Duration>,
    /// The failure; `None` if the response is good.
    pub(super) cause: Option<FailureCause>,
    /// The wait that it asks for.
    pub(super) retry_after: Option<Duration>,
    /// True if the request took effect.
    pub(super) effect: bool,
}

/// The service.
#[derive(Debug, Clone)]
pub(super) struct Upstream {
    /// The times at which it fails.
    pub(super) outages: Vec<Range<Duration>>,
    /// The kinds of failures, all equally likely.
    pub(super) faults: Vec<UpstreamOutage>,
    /// The number of requests that it answers in a second; further ones get a 503.
    pub(super) capacity: u32,
    /// The number of requests for each [`BUCKET`] since the start.
    pub(super) load: Vec<u32>,
}

impl Upstream {
    pub(super) fn new(outages: Vec<Range<Duration>>, faults: Vec<UpstreamOutage>, capacity: u32) -> Self {
        Self { outages, faults, capacity, load: Vec::new() }
    }

    /// Handles one request at `now`.
    pub(super) fn asked(&mut self, now: Duration, chance: &dyn RandomSource) -> UpstreamAnswer {
        let bucket = usize::try_from(now.as_millis() / BUCKET.as_millis()).unwrap_or(usize::MAX);
        if self.load.len() <= bucket {
            self.load.resize(bucket + 1, 0);
        }
        self.load[bucket] += 1;
        let second: u32 = self.load[bucket.saturating_sub(9)..=bucket].iter().sum();
        let soon = Duration::from_millis(20);
        let failed =
            |cause, after| UpstreamAnswer { after, cause: Some(cause), retry_after: None, effect: false };
        if !self.outages.iter().any(|outage| outage.contains(&now)) {
            return match second > self.capacity {
                true => failed(FailureCause::Unavailable, Some(soon)),
                false => {
                    UpstreamAnswer { after: Some(soon * 2), cause: None, retry_after: None, effect: true }
                }
            };
        }
        match self.faults[(chance.next_f64() * self.faults.len() as f64) as usize] {
            UpstreamOutage::Refused => failed(FailureCause::Network, Some(soon / 10)),
            UpstreamOutage::Status(status, retry_after) => {
                UpstreamAnswer { retry_after, ..failed(FailureCause::from_status(status), Some(soon)) }
            }
            UpstreamOutage::BackAt(at) => {
                let retry_after = Some(at.saturating_sub(now));
                UpstreamAnswer { retry_after, ..failed(FailureCause::Unavailable, Some(soon)) }
            }
            UpstreamOutage::AnswerLost => {
                UpstreamAnswer { effect: true, ..failed(FailureCause::Network, Some(Duration::from_secs(1))) }
            }
            UpstreamOutage::Hangs => {
                UpstreamAnswer { effect: chance.next_f64() < 0.5, ..failed(FailureCause::WallTime, None) }
            }
        }
    }
}
