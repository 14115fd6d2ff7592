//! How long to wait before the next attempt, and how many there are.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use super::profile::ProfileError;

/// The most attempts that a schedule may have: more is no retry but a poll.
pub const MAX_ATTEMPTS: u32 = 100;

/// The longest wait that a schedule may have. A call's wall time ends long before.
pub const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// How waits grow. `n` is the number of the retry, from 1.
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
    /// The kinds, as documents name them.
    pub const NAMES: [(&str, Self); 3] =
        [("fixed", Self::Fixed), ("linear", Self::Linear), ("exponential", Self::Exponential)];
}

/// How waits vary, so that callers who failed together do not come back together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jitter {
    /// Not at all: replays are exact.
    None,
    /// Longer by up to this part, from 0 to 1.
    Plus(f64),
    /// Longer or shorter by up to this part, from 0 to 1.
    Both(f64),
}

impl Jitter {
    /// The most by which it makes this wait longer.
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

/// What is done about one cause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    pub(super) max_attempts: NonZeroU32,
    pub(super) backoff: Backoff,
    pub(super) base: Duration,
    pub(super) cap: Duration,
    pub(super) jitter: Jitter,
}

impl Schedule {
    /// A schedule of `max_attempts` attempts, the first included, with waits that grow from `base` to `cap`.
    ///
    /// # Errors
    /// No attempts or more than [`MAX_ATTEMPTS`], no base, a base above the cap, a cap above [`MAX_WAIT`], or jitter
    /// that is no part.
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

    /// The attempts that are made, the first included.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        self.max_attempts.get()
    }

    /// How its waits vary.
    #[must_use]
    pub const fn jitter(&self) -> Jitter {
        self.jitter
    }

    /// The wait before retry `n`, from 1, without jitter. The cap holds for this one: jitter comes on top.
    #[must_use]
    pub fn wait(&self, n: u32) -> Duration {
        let factor = match self.backoff {
            Backoff::Fixed => 1,
            Backoff::Linear => n,
            Backoff::Exponential => 1_u32.checked_shl(n.saturating_sub(1)).unwrap_or(u32::MAX),
        };
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// The wait before retry `n`, varied by `unit`, a number from 0 to below 1.
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

    /// Every wait without jitter, in order: one fewer than there are attempts.
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
