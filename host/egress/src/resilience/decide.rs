//! The retry decision after a failed attempt. It alone decides whether an operation may be executed twice.

use std::time::{Duration, Instant};

use cofferdam_core::event::DelaySource;
use cofferdam_core::failure::{Failure, FailureCause, RetryStopped};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_core::rng::RandomSource;

use super::profile::RetryProfile;
use super::schedule::RetrySchedule;

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
    pub fn of(
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
