//! The parameters of a circuit: when it opens, for how long, and the causes that open it permanently. No
//! state.

use std::num::NonZeroU32;
use std::time::Duration;

use cofferdam_core::failure::FailureCause;

/// The longest time that an upstream service, or failed probes, can keep a circuit open.
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// The parameters of a circuit. Complete and checked: every value is a working breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerPolicy {
    pub(super) threshold: NonZeroU32,
    /// The window in which failures are counted; `None` to count consecutive failures over any time.
    pub(super) window: Option<Duration>,
    /// The cooldown after 429 without `Retry-After`.
    pub(super) rate_limited: Duration,
    /// The cooldown after 5xx.
    pub(super) unavailable: Duration,
    /// The cooldown after 408 and 425.
    pub(super) timeout: Duration,
    /// The cooldown after a request without a response.
    pub(super) network: Duration,
    /// The lower and upper bound of `Retry-After`.
    pub(super) retry_after: (Duration, Duration),
    /// The time before the end of a longer cooldown at which one request is let through.
    pub(super) probe_lead: Duration,
    /// The percentage by which a failed probe extends the previous cooldown; 0 restarts with the normal one.
    pub(super) extension: u32,
    pub(super) permanent: Vec<FailureCause>,
}

/// The meaning of an observation for a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureSignal {
    /// The host responded: a good response, or one that tells nothing about the host.
    Good,
    /// The host has a problem; the cooldown.
    Trouble(Duration),
    /// A failure that does not go away without intervention.
    Permanent,
}

impl BreakerPolicy {
    /// Opens at the first failure: after 429 for the requested time (5 minutes at most), or for 60 s if there
    /// is none; for 60 s after 5xx, and for 30 s after 408, 425 and requests without a response. One request
    /// is let through 30 s before a longer cooldown ends. 401 and 402 open it permanently.
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
            permanent: vec![FailureCause::Auth, FailureCause::PaymentRequired],
        }
    }

    /// Opens at the third failure within a minute, for 2 minutes, or for 30 s after requests without a
    /// response; `Retry-After` is used within 1 to 5 minutes. A failed probe extends the cooldown by half.
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

    /// Returns the number of failures that open a circuit.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.threshold.get()
    }

    /// Returns the window in which failures are counted; `None` if they only have to be consecutive.
    #[must_use]
    pub fn window(&self) -> Option<Duration> {
        self.window
    }

    /// Returns whether this cause opens a circuit permanently.
    #[must_use]
    pub fn is_permanent(&self, cause: FailureCause) -> bool {
        self.permanent.contains(&cause)
    }

    /// Returns the cooldown after `cause`; `None` if it does not open a circuit, or opens it permanently.
    #[must_use]
    pub fn cooldown(&self, cause: FailureCause, retry_after: Option<Duration>) -> Option<Duration> {
        match self.weight(Some(cause), retry_after) {
            FailureSignal::Trouble(cooldown) => Some(cooldown),
            FailureSignal::Good | FailureSignal::Permanent => None,
        }
    }

    /// Returns the time after which one request is let through, for a circuit with this `cooldown`.
    #[must_use]
    pub fn probe_after(&self, cooldown: Duration) -> Duration {
        if cooldown > self.probe_lead { cooldown.saturating_sub(self.probe_lead) } else { cooldown }
    }

    pub(super) fn weight(&self, cause: Option<FailureCause>, retry_after: Option<Duration>) -> FailureSignal {
        let Some(cause) = cause else { return FailureSignal::Good };
        if self.is_permanent(cause) {
            return FailureSignal::Permanent;
        }
        let own = match cause {
            FailureCause::RateLimited => self.rate_limited,
            FailureCause::Unavailable => self.unavailable,
            FailureCause::Timeout => self.timeout,
            FailureCause::Network => self.network,
            _ => return FailureSignal::Good,
        };
        let (least, most) = self.retry_after;
        FailureSignal::Trouble(retry_after.map_or(own, |asked| asked.max(least).min(most)))
    }

    /// Returns the cooldown after a failed probe; `own` is the one of its cause, `before` the previous one.
    pub(super) fn extended(&self, own: Duration, before: Duration) -> Duration {
        if self.extension == 0 {
            return own;
        }
        let percent = self.extension.saturating_add(100);
        let longer = before.checked_mul(percent).map_or(LONGEST, |product| product / 100);
        own.max(longer.min(LONGEST))
    }
}
