//! A retry policy by name: for each cause a schedule or none, and what a call under it has by default.

use std::sync::Arc;

use super::breaker::BreakerPolicy;
use super::schedule::Schedule;
use crate::failure::Cause;
use crate::limits::ProfileTimes;

/// A retry policy, complete and checked. What it has no schedule for is not repeated.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub(super) name: Arc<str>,
    pub(super) schedules: [Option<Schedule>; Cause::ALL.len()],
    pub(super) times: ProfileTimes,
    /// Whether the waits of the n-th candidate of a chain begin n steps later.
    pub(super) waits_grow_along_chain: bool,
    pub(super) breaker: Option<Arc<BreakerPolicy>>,
}

/// A profile that is not acceptable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProfileError(pub(super) String);

impl Profile {
    /// The built-in profile of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Arc<Self>> {
        super::profiles::named(name)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What is done about this cause; none: nothing.
    #[must_use]
    pub fn schedule(&self, cause: Cause) -> Option<&Schedule> {
        self.schedules.get(cause as usize)?.as_ref()
    }

    /// How long a call under it takes where nobody says, and one attempt at most.
    #[must_use]
    pub fn times(&self) -> &ProfileTimes {
        &self.times
    }

    /// The breaker that it brings.
    #[must_use]
    pub fn breaker(&self) -> Option<&Arc<BreakerPolicy>> {
        self.breaker.as_ref()
    }

    /// The most attempts that it makes, whatever the causes.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.schedules.iter().flatten().map(Schedule::max_attempts).max().unwrap_or(1)
    }
}
