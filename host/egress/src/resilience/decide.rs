//! What comes after an attempt that failed: the one decision on which it depends whether anything happens twice.

use std::time::{Duration, Instant};

use cofferdam_core::chance::Chance;
use cofferdam_core::event::Wait;
use cofferdam_core::failure::{Cause, Failure, RetryStopped};
use cofferdam_core::privileged::MakeFailure as _;

use super::profile::Profile;
use super::schedule::Schedule;

/// What is known when an attempt has failed.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// What the host observed.
    pub cause: Cause,
    /// Whether the failure itself says that it may be repeated: never of an operation that is not idempotent.
    pub retriable: bool,
    /// Whether the operation may be repeated, as far as its manifest and its caller say.
    pub idempotent: bool,
    /// Whether the operation sent a request for which it must not be repeated, since its manifest declares nothing.
    pub sent_unkeyed: bool,
    /// How long the upstream service asked to wait.
    pub retry_after: Option<Duration>,
    /// The attempts that were made of this candidate, this one included.
    pub attempts: u32,
    /// Which candidate of the chain it is, from 0.
    pub candidate: u32,
    /// The time.
    pub now: Instant,
    /// When the call ends.
    pub deadline: Instant,
}

impl Moment {
    /// What this failure says; the rest is the caller's to know.
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

impl Moment {
    /// What the upstream service asked for, and something on top: all its callers were given the same, and must not come
    /// back in the same moment. At most half of what is left of the call goes into that.
    fn spread(&self, asked: Duration, schedule: &Schedule, chance: &dyn Chance) -> Duration {
        let left = self.deadline.saturating_duration_since(self.now).saturating_sub(asked);
        let most = schedule.jitter().longest(asked).min(LONGEST_SPREAD).min(left / 2);
        asked.saturating_add(most.mul_f64(chance.unit().clamp(0.0, 1.0)))
    }
}

/// What is done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The failure is the outcome of this candidate. Where it was one to be repeated: why it is not, and how long
    /// the next wait would have been.
    Stop {
        /// Why it is not repeated, where it might have been.
        stopped: Option<RetryStopped>,
        /// How long the wait would have been.
        retry_after: Option<Duration>,
    },
    /// The call waits until then, and is attempted again.
    Retry {
        /// How long it waits.
        delay: Duration,
        /// Where that comes from.
        wait: Wait,
        /// The most retries for this cause.
        of: u32,
        /// How long it would have waited without jitter.
        planned: Duration,
    },
}

/// The longest that a wait which the upstream service asked for is made longer.
const LONGEST_SPREAD: Duration = Duration::from_secs(30);

/// Decides. Nothing is repeated that is not idempotent, that the host did not itself see fail, or that the policy
/// does not name; and no wait begins that cannot end before the deadline.
#[must_use]
pub fn decide(profile: &Profile, moment: &Moment, chance: &dyn Chance) -> Next {
    // An unkeyed request alone makes a failure not retriable: what else would be repeated says so.
    let passes = moment.retriable || moment.sent_unkeyed || moment.cause == Cause::WallTime;
    let repeatable = moment.idempotent && passes && moment.cause.is_retriable();
    let schedule = profile.schedule(moment.cause).filter(|_| repeatable);
    let Some(schedule) = schedule else { return Next::Stop { stopped: None, retry_after: None } };
    if moment.sent_unkeyed {
        return Next::Stop { stopped: Some(RetryStopped::NotDeclaredIdempotent), retry_after: None };
    }
    let later = if profile.waits_grow_along_chain { moment.candidate } else { 0 };
    let retry = moment.attempts.saturating_add(later);
    if moment.attempts >= schedule.max_attempts() {
        let retry_after = moment.retry_after.unwrap_or_else(|| schedule.wait(retry));
        return Next::Stop { stopped: Some(RetryStopped::MaxAttempts), retry_after: Some(retry_after) };
    }
    let (delay, wait, planned) = match moment.retry_after {
        Some(asked) => (moment.spread(asked, schedule, chance), Wait::RetryAfter, asked),
        None => (schedule.varied_wait(retry, chance.unit()), Wait::Backoff, schedule.wait(retry)),
    };
    let ends_in_time = moment.now.checked_add(delay).is_some_and(|end| end < moment.deadline);
    if !ends_in_time {
        let retry_after = moment.retry_after.unwrap_or(delay);
        return Next::Stop { stopped: Some(RetryStopped::WallTime), retry_after: Some(retry_after) };
    }
    Next::Retry { delay, wait, of: schedule.max_attempts().saturating_sub(1), planned }
}
