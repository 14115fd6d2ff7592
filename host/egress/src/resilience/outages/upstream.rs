//! An upstream service that fails for a while, counts what it is asked, and has effects.

use std::ops::Range;
use std::time::Duration;

use cofferdam_core::chance::Chance;
use cofferdam_core::failure::Cause;

/// How long one bucket of the load is.
pub(super) const BUCKET: Duration = Duration::from_millis(100);

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    /// Nobody listens: nothing was sent.
    Refused,
    /// An error status with no effect, and how long it asks to wait.
    Status(u16, Option<Duration>),
    /// The status 503 with the date at which the service expects to be back.
    BackAt(Duration),
    /// The request has its effect, and its answer is lost after a second.
    AnswerLost,
    /// Nothing ever comes back; it may have had its effect.
    Hangs,
}

/// What one request comes to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    /// How long it takes; none: for ever.
    pub(super) after: Option<Duration>,
    /// How it failed; none where it is answered well.
    pub(super) cause: Option<Cause>,
    /// How long it asks to wait.
    pub(super) retry_after: Option<Duration>,
    /// Whether it had its effect.
    pub(super) effect: bool,
}

/// The service.
#[derive(Debug, Clone)]
pub(super) struct Upstream {
    /// When it fails.
    pub(super) outages: Vec<Range<Duration>>,
    /// How, all equally likely.
    pub(super) faults: Vec<Fault>,
    /// The requests that it answers in a second; more get a 503.
    pub(super) capacity: u32,
    /// The requests that came, for each [`BUCKET`] since the start.
    pub(super) load: Vec<u32>,
}

impl Upstream {
    pub(super) fn new(outages: Vec<Range<Duration>>, faults: Vec<Fault>, capacity: u32) -> Self {
        Self { outages, faults, capacity, load: Vec::new() }
    }

    /// One request at `now`.
    pub(super) fn asked(&mut self, now: Duration, chance: &dyn Chance) -> Answer {
        let bucket = usize::try_from(now.as_millis() / BUCKET.as_millis()).unwrap_or(usize::MAX);
        if self.load.len() <= bucket {
            self.load.resize(bucket + 1, 0);
        }
        self.load[bucket] += 1;
        let second: u32 = self.load[bucket.saturating_sub(9)..=bucket].iter().sum();
        let soon = Duration::from_millis(20);
        let failed = |cause, after| Answer { after, cause: Some(cause), retry_after: None, effect: false };
        if !self.outages.iter().any(|outage| outage.contains(&now)) {
            return match second > self.capacity {
                true => failed(Cause::Unavailable, Some(soon)),
                false => Answer { after: Some(soon * 2), cause: None, retry_after: None, effect: true },
            };
        }
        match self.faults[(chance.unit() * self.faults.len() as f64) as usize] {
            Fault::Refused => failed(Cause::Network, Some(soon / 10)),
            Fault::Status(status, retry_after) => {
                Answer { retry_after, ..failed(Cause::of_status(status), Some(soon)) }
            }
            Fault::BackAt(at) => {
                let retry_after = Some(at.saturating_sub(now));
                Answer { retry_after, ..failed(Cause::Unavailable, Some(soon)) }
            }
            Fault::AnswerLost => {
                Answer { effect: true, ..failed(Cause::Network, Some(Duration::from_secs(1))) }
            }
            Fault::Hangs => Answer { effect: chance.unit() < 0.5, ..failed(Cause::WallTime, None) },
        }
    }
}
