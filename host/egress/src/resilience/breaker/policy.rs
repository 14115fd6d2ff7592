//! When a circuit opens, for how long, and what opens it for good: numbers, and no state.

use std::num::NonZeroU32;
use std::time::Duration;

use cofferdam_core::failure::Cause;

/// The longest that an upstream service, or failed probes, can keep a circuit open.
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// When a circuit opens, and for how long. Complete and checked: every value makes a breaker that works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerPolicy {
    pub(super) threshold: NonZeroU32,
    /// The time in which so many failures open it; none: so many in a row, however long that takes.
    pub(super) window: Option<Duration>,
    /// How long it stays open after 429 without `Retry-After`,
    pub(super) rate_limited: Duration,
    /// after 5xx,
    pub(super) unavailable: Duration,
    /// after 408 and 425,
    pub(super) timeout: Duration,
    /// and after no answer.
    pub(super) network: Duration,
    /// The least and the most that `Retry-After` makes of it.
    pub(super) retry_after: (Duration, Duration),
    /// How long before the end of a longer cooldown one request is let through.
    pub(super) probe_lead: Duration,
    /// By how many percent of the cooldown before a failed probe makes the next one longer; 0: it begins anew.
    pub(super) extension: u32,
    pub(super) permanent: Vec<Cause>,
}

/// What an observation is to a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    /// The host answered: a good answer, or one that says nothing about the host.
    Good,
    /// The host is in trouble, for so long.
    Trouble(Duration),
    /// It will not get better by itself.
    Permanent,
}

impl BreakerPolicy {
    /// Opens at the first failure: for as long as 429 says (5 minutes at most), else for 60 s; for 60 s after 5xx,
    /// 30 s after 408, 425 and where there is no answer. One request is let through 30 s before a longer cooldown
    /// ends. 401 and 402 open it for good.
    #[must_use]
    pub fn at_once() -> Self {
        let (half, whole) = (Duration::from_secs(30), Duration::from_secs(60));
        Self {
            threshold: NonZeroU32::MIN,
            window: None,
            rate_limited: whole,
            unavailable: whole,
            timeout: half,
            network: half,
            retry_after: (Duration::ZERO, LONGEST),
            probe_lead: half,
            extension: 0,
            permanent: vec![Cause::Auth, Cause::PaymentRequired],
        }
    }

    /// Opens at the third failure within a minute, for 2 minutes; 30 s where there is no answer; as `Retry-After`
    /// says, but 1 minute at least and 5 at most. A failed probe makes the cooldown half as long again.
    #[must_use]
    pub fn windowed() -> Self {
        let cooldown = Duration::from_secs(120);
        Self {
            threshold: NonZeroU32::MIN.saturating_add(2),
            window: Some(Duration::from_secs(60)),
            rate_limited: cooldown,
            unavailable: cooldown,
            timeout: cooldown,
            retry_after: (Duration::from_secs(60), LONGEST),
            extension: 50,
            ..Self::at_once()
        }
    }

    /// How many failures open a circuit.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.threshold.get()
    }

    /// The time in which they have to come; none where they only have to follow each other.
    #[must_use]
    pub fn window(&self) -> Option<Duration> {
        self.window
    }

    /// Whether this opens a circuit for good.
    #[must_use]
    pub fn is_permanent(&self, cause: Cause) -> bool {
        self.permanent.contains(&cause)
    }

    /// How long a circuit stays open after `cause`; none where that opens none, or for good.
    #[must_use]
    pub fn cooldown(&self, cause: Cause, retry_after: Option<Duration>) -> Option<Duration> {
        match self.weight(Some(cause), retry_after) {
            Weight::Trouble(cooldown) => Some(cooldown),
            Weight::Good | Weight::Permanent => None,
        }
    }

    /// How long after it opened for `cooldown` one request is let through.
    #[must_use]
    pub fn probe_after(&self, cooldown: Duration) -> Duration {
        if cooldown > self.probe_lead { cooldown.saturating_sub(self.probe_lead) } else { cooldown }
    }

    pub(super) fn weight(&self, cause: Option<Cause>, retry_after: Option<Duration>) -> Weight {
        let Some(cause) = cause else { return Weight::Good };
        if self.is_permanent(cause) {
            return Weight::Permanent;
        }
        let own = match cause {
            Cause::RateLimited => self.rate_limited,
            Cause::Unavailable => self.unavailable,
            Cause::Timeout => self.timeout,
            Cause::Network => self.network,
            _ => return Weight::Good,
        };
        let (least, most) = self.retry_after;
        Weight::Trouble(retry_after.map_or(own, |asked| asked.max(least).min(most)))
    }

    /// The cooldown after a failed probe, which by itself would be `own`, where the one before was `before`.
    pub(super) fn extended(&self, own: Duration, before: Duration) -> Duration {
        if self.extension == 0 {
            return own;
        }
        let percent = self.extension.saturating_add(100);
        let longer = before.checked_mul(percent).map_or(LONGEST, |product| product / 100);
        own.max(longer.min(LONGEST))
    }
}
