//! The waits between attempts, and the number of attempts.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use super::profile::ProfileError;

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

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |ratio: &f64| (ratio * 100.0).round();
        match self {
            Self::None => f.write_str("none"),
            Self::Plus(ratio) => write!(f, "+0 to {} %", percent(ratio)),
            Self::Both(ratio) => write!(f, "±{} %", percent(ratio)),
        }
    }
}
