//! How long to wait before the next attempt, and how many there are.

use std::num::NonZeroU32;
use std::time::Duration;

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
    /// The attempts that are made, the first included.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        self.max_attempts.get()
    }

    /// The wait before retry `n`, from 1, without jitter.
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
}
