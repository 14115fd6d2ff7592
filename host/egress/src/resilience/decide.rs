//! The retry decision after a failed attempt. It alone decides whether an operation may be executed twice.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use cofferdam_core::event::DelaySource;
use cofferdam_core::failure::{Failure, FailureCause, RetryStopped};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_core::rng::RandomSource;

use super::profile::{ProfileError, RetryProfile};

/// The facts that are known when an attempt has failed.
#[derive(Debug, Clone, Copy)]
pub struct RetryContext {
    /// The cause that the host observed.
    pub cause: FailureCause,
    /// True if the failure itself is marked retriable. Never for an operation that is not idempotent.
    pub retriable: bool,
    /// True if the operation may be repeated according to its manifest and its caller.
    pub idempotent: bool,
    /// True if the operation sent a request that forbids a retry, since its manifest declares nothing.
    pub sent_unkeyed: bool,
    /// The wait that the upstream service asked for.
    pub retry_after: Option<Duration>,
    /// The number of attempts made with this candidate, including this one.
    pub attempts: u32,
    /// The index of the candidate in the chain, from 0.
    pub candidate: u32,
    /// The current time.
    pub now: Instant,
    /// The deadline of the call.
    pub deadline: Instant,
}

impl RetryContext {
    /// Creates the facts that a failure states; the caller sets the rest.
    #[must_use]
    pub fn from_failure(
        failure: &Failure,
        idempotent: bool,
        attempts: u32,
        candidate: u32,
        now: Instant,
        deadline: Instant,
    ) -> Self {
        Self {
            cause: failure.cause(),
            retriable: failure.retriable(),
            idempotent,
            sent_unkeyed: failure.unrepeatable().is_some(),
            retry_after: failure.retry_after(),
            attempts,
            candidate,
            now,
            deadline,
        }
    }
}

impl RetryContext {
    /// Adds a random part to the wait that the upstream service asked for: all its callers got the same wait,
    /// and must not return at the same moment. Adds at most half of the call's remaining time.
    fn spread(&self, asked: Duration, schedule: &RetrySchedule, chance: &dyn RandomSource) -> Duration {
        let left = self.deadline.saturating_duration_since(self.now).saturating_sub(asked);
        let most = schedule.jitter().longest(asked).min(LONGEST_SPREAD).min(left / 2);
        asked.saturating_add(most.mul_f64(chance.next_f64().clamp(0.0, 1.0)))
    }
}

/// The decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// The failure is the outcome of this candidate. If the failure could have been retried, this includes
    /// the reason why it is not, and the next wait.
    Stop {
        /// The reason why there is no retry, if one was possible.
        stopped: Option<RetryStopped>,
        /// The length of the wait that was not taken.
        retry_after: Option<Duration>,
    },
    /// The call waits and is then attempted again.
    Retry {
        /// The length of the wait.
        delay: Duration,
        /// The source of the wait.
        wait: DelaySource,
        /// The maximum number of retries for this cause.
        of: u32,
        /// The length of the wait without jitter.
        planned: Duration,
    },
}

/// The longest extension of a wait that the upstream service asked for.
const LONGEST_SPREAD: Duration = Duration::from_secs(30);

/// Decides about a retry. An operation is not retried if it is not idempotent, if the host did not itself see
/// it fail, or if the policy does not name the cause; and no wait begins that cannot end before the deadline.
#[must_use]
pub fn decide(profile: &RetryProfile, moment: &RetryContext, chance: &dyn RandomSource) -> RetryDecision {
    // An unkeyed request alone makes a failure not retriable: any other retriable failure is marked as such.
    let passes = moment.retriable || moment.sent_unkeyed || moment.cause == FailureCause::WallTime;
    let repeatable = moment.idempotent && passes && moment.cause.is_retriable();
    let schedule = profile.schedule(moment.cause).filter(|_| repeatable);
    let Some(schedule) = schedule else { return RetryDecision::Stop { stopped: None, retry_after: None } };
    if moment.sent_unkeyed {
        return RetryDecision::Stop { stopped: Some(RetryStopped::NotDeclaredIdempotent), retry_after: None };
    }
    let later = if profile.waits_grow_along_chain { moment.candidate } else { 0 };
    let retry = moment.attempts.saturating_add(later);
    if moment.attempts >= schedule.max_attempts() {
        let retry_after = moment.retry_after.unwrap_or_else(|| schedule.wait(retry));
        return RetryDecision::Stop {
            stopped: Some(RetryStopped::MaxAttempts),
            retry_after: Some(retry_after),
        };
    }
    let (delay, wait, planned) = match moment.retry_after {
        Some(asked) => (moment.spread(asked, schedule, chance), DelaySource::RetryAfter, asked),
        None => (schedule.varied_wait(retry, chance.next_f64()), DelaySource::Backoff, schedule.wait(retry)),
    };
    let ends_in_time = moment.now.checked_add(delay).is_some_and(|end| end < moment.deadline);
    if !ends_in_time {
        let retry_after = moment.retry_after.unwrap_or(delay);
        return RetryDecision::Stop { stopped: Some(RetryStopped::WallTime), retry_after: Some(retry_after) };
    }
    RetryDecision::Retry { delay, wait, of: schedule.max_attempts().saturating_sub(1), planned }
}

/// The maximum number of attempts of a schedule: more would be polling.
pub const MAX_ATTEMPTS: u32 = 100;

/// The longest wait of a schedule. A call's wall time is much shorter.
pub const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The growth of waits. `n` is the number of the retry, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backoff {
    /// Always the base.
    Fixed,
    /// The base times n.
    Linear,
    /// The base doubled n-1 times.
    Exponential,
}

impl Backoff {
    /// The kinds by their names in documents.
    pub const NAMES: [(&str, Self); 3] =
        [("fixed", Self::Fixed), ("linear", Self::Linear), ("exponential", Self::Exponential)];
}

/// The variation of waits, so that callers that failed together do not return together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jitter {
    /// No variation: replays are exact.
    None,
    /// Longer by up to this fraction, from 0 to 1.
    Plus(f64),
    /// Longer or shorter by up to this fraction, from 0 to 1.
    Both(f64),
}

impl Jitter {
    /// Returns the most by which it extends this wait.
    #[must_use]
    pub(super) fn longest(self, wait: Duration) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Plus(ratio) | Self::Both(ratio) => {
                Duration::try_from_secs_f64(wait.as_secs_f64() * ratio).unwrap_or(Duration::MAX)
            }
        }
    }
}

/// The attempts and waits for one cause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetrySchedule {
    pub(super) max_attempts: NonZeroU32,
    pub(super) backoff: Backoff,
    pub(super) base: Duration,
    pub(super) cap: Duration,
    pub(super) jitter: Jitter,
}

impl RetrySchedule {
    /// Creates a schedule of `max_attempts` attempts, including the first, with waits that grow from `base`
    /// to `cap`.
    ///
    /// # Errors
    /// No attempts or more than [`MAX_ATTEMPTS`], a zero base, a base above the cap, a cap above
    /// [`MAX_WAIT`], or a jitter that is not a fraction.
    pub fn new(
        max_attempts: u32,
        backoff: Backoff,
        base: Duration,
        cap: Duration,
        jitter: Jitter,
    ) -> Result<Self, ProfileError> {
        let wrong = |what: String| Err(ProfileError(what));
        let Some(attempts) = NonZeroU32::new(max_attempts).filter(|attempts| attempts.get() <= MAX_ATTEMPTS)
        else {
            return wrong(format!("{max_attempts} attempts are not 1 to {MAX_ATTEMPTS}"));
        };
        if base.is_zero() || base > cap {
            return wrong(format!("a first wait of {base:?} is not above zero and up to the cap, {cap:?}"));
        }
        if cap > MAX_WAIT {
            return wrong(format!("a cap of {cap:?} is above 24 hours"));
        }
        match jitter {
            Jitter::Plus(ratio) | Jitter::Both(ratio) if !(0.0..=1.0).contains(&ratio) => {
                wrong(format!("jitter of {ratio} is not a part from 0 to 1"))
            }
            _ => Ok(Self { max_attempts: attempts, backoff, base, cap, jitter }),
        }
    }

    /// Returns the number of attempts, including the first.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        self.max_attempts.get()
    }

    /// Returns the jitter of its waits.
    #[must_use]
    pub const fn jitter(&self) -> Jitter {
        self.jitter
    }

    /// Returns the wait before retry `n`, from 1, without jitter. The cap applies to this wait: jitter is
    /// added to it.
    #[must_use]
    pub fn wait(&self, n: u32) -> Duration {
        let factor = match self.backoff {
            Backoff::Fixed => 1,
            Backoff::Linear => n,
            Backoff::Exponential => 1_u32.checked_shl(n.saturating_sub(1)).unwrap_or(u32::MAX),
        };
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// Returns the wait before retry `n`, varied by `unit`, a number from 0 to below 1.
    #[must_use]
    pub fn varied_wait(&self, n: u32, unit: f64) -> Duration {
        let wait = self.wait(n);
        let factor = match self.jitter {
            Jitter::None => return wait,
            Jitter::Plus(ratio) => 1.0 + ratio * unit,
            Jitter::Both(ratio) => 1.0 - ratio + 2.0 * ratio * unit,
        };
        Duration::try_from_secs_f64(wait.as_secs_f64() * factor).unwrap_or(Duration::MAX)
    }

    /// Returns all waits without jitter in order: one fewer than there are attempts.
    pub fn waits(&self) -> impl Iterator<Item = Duration> {
        let schedule = *self;
        (1..self.max_attempts()).map(move |n| schedule.wait(n))
    }
}
