//! A named retry policy: a schedule or none for each cause, and the default times of a call under it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::failure::FailureCause;
use cofferdam_core::limits::{LimitCeilings, ProfileTimes};

use super::breaker::BreakerPolicy;
use super::schedule::{Jitter, RetrySchedule};

/// A complete and checked retry policy. A cause without a schedule is not retried.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryProfile {
    pub(super) name: Arc<str>,
    pub(super) schedules: [Option<RetrySchedule>; FailureCause::ALL.len()],
    pub(super) times: ProfileTimes,
    /// True if the waits of the n-th candidate of a chain begin n steps later.
    pub(super) waits_grow_along_chain: bool,
    pub(super) breaker: Option<Arc<BreakerPolicy>>,
}

/// The error for an invalid profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProfileError(pub(super) String);

/// The schedule of a profile for the causes that it treats alike.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryProfileRow {
    /// The causes.
    pub causes: Vec<FailureCause>,
    /// The number of attempts with one candidate, including the first.
    pub attempts: u32,
    /// The waits between them, without jitter.
    pub waits: Vec<Duration>,
    /// The jitter of the waits.
    pub jitter: Jitter,
}

impl RetryProfile {
    /// Returns the built-in profile of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Arc<Self>> {
        super::profiles::named(name)
    }

    /// Creates a profile that retries `causes` with `schedule`, and nothing else. The name must not be that
    /// of a built-in profile.
    ///
    /// # Errors
    /// A name outside the grammar (lower-case letters, digits and hyphens, 40 at most) or of a built-in
    /// profile, and a cause that must not be retried.
    pub fn new(name: &str, schedule: RetrySchedule, causes: &[FailureCause]) -> Result<Self, ProfileError> {
        super::parse::own_name(name).map_err(|refused| ProfileError(refused.to_string()))?;
        match causes.iter().find(|cause| !cause.is_retriable()) {
            Some(cause) => Err(ProfileError(format!("`{}` is never repeated", cause.name()))),
            None => Ok(Self::of(name, &[(causes, schedule)])),
        }
    }

    /// Returns the same profile with these times: the wall time of a call that asks for none, and the longest
    /// attempt.
    ///
    /// # Errors
    /// A zero time, a wall time above five minutes, or an attempt that may take longer than its call.
    pub fn with_times(mut self, times: ProfileTimes) -> Result<Self, ProfileError> {
        let ceiling = LimitCeilings::default().wall_time();
        let zero = |time: Option<Duration>| time.is_some_and(|time| time.is_zero());
        if zero(times.wall_time) || zero(times.attempt_timeout) {
            return Err(ProfileError("a time is zero".to_owned()));
        }
        if times.wall_time.is_some_and(|wall| wall > ceiling) {
            return Err(ProfileError(format!("wall_time is above the ceiling of {ceiling:?}")));
        }
        if times.attempt_timeout.is_some_and(|attempt| attempt > times.wall_time.unwrap_or(ceiling)) {
            return Err(ProfileError("one attempt may take longer than its call".to_owned()));
        }
        self.times = times;
        Ok(self)
    }

    pub(super) fn of(name: &str, rules: &[(&[FailureCause], RetrySchedule)]) -> Self {
        let mut schedules = [None; FailureCause::ALL.len()];
        for (causes, schedule) in rules {
            for (cause, slot) in FailureCause::ALL.iter().zip(&mut schedules) {
                if causes.contains(cause) {
                    *slot = Some(*schedule);
                }
            }
        }
        Self {
            name: name.into(),
            schedules,
            times: ProfileTimes::default(),
            waits_grow_along_chain: false,
            breaker: None,
        }
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the schedule for this cause; `None` if it is not retried.
    #[must_use]
    pub fn schedule(&self, cause: FailureCause) -> Option<&RetrySchedule> {
        self.schedules.get(cause as usize)?.as_ref()
    }

    /// Returns the default time of a call under this profile, and the longest time of one attempt.
    #[must_use]
    pub fn times(&self) -> &ProfileTimes {
        &self.times
    }

    /// Returns the breaker that the profile includes.
    #[must_use]
    pub fn breaker(&self) -> Option<&Arc<BreakerPolicy>> {
        self.breaker.as_ref()
    }

    /// Returns the maximum number of attempts with one candidate over all causes.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.schedules.iter().flatten().map(RetrySchedule::max_attempts).max().unwrap_or(1)
    }

    /// Returns a row for each schedule; without rows nothing is retried.
    #[must_use]
    pub fn rows(&self) -> Vec<RetryProfileRow> {
        let mut rows: Vec<(RetrySchedule, Vec<FailureCause>)> = Vec::new();
        for cause in FailureCause::ALL {
            let Some(schedule) = self.schedule(cause) else { continue };
            match rows.iter_mut().find(|(known, _)| known == schedule) {
                Some((_, causes)) => causes.push(cause),
                None => rows.push((*schedule, vec![cause])),
            }
        }
        let row = |(schedule, causes): (RetrySchedule, Vec<FailureCause>)| RetryProfileRow {
            causes,
            attempts: schedule.max_attempts(),
            waits: schedule.waits().collect(),
            jitter: schedule.jitter(),
        };
        rows.into_iter().map(row).collect()
    }
}

impl fmt::Display for RetryProfileRow {
    /// Writes `network_error, unavailable: 4 attempts, waits 1 s, 2 s, 4 s, jitter +0 to 20 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes: Vec<_> = self.causes.iter().map(|cause| cause.name()).collect();
        write!(f, "{}: {} attempts", causes.join(", "), self.attempts)?;
        if !self.waits.is_empty() {
            write!(f, ", waits {}, jitter {}", shown_waits(&self.waits), self.jitter)?;
        }
        Ok(())
    }
}

impl fmt::Display for RetryProfile {
    /// Writes a line with its name and times, and one for each row.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(wall) = self.times.wall_time {
            write!(f, ", {} for a call that asks for no time", shown_time(wall))?;
        }
        if let Some(attempt) = self.times.attempt_timeout {
            write!(f, ", {} for one attempt", shown_time(attempt))?;
        }
        let rows = self.rows();
        if rows.is_empty() {
            f.write_str("\n  nothing is repeated")?;
        }
        rows.iter().try_for_each(|row| write!(f, "\n  {row}"))
    }
}

/// Formats waits for people: the first ten, and the number of the others.
pub(super) fn shown_waits(waits: &[Duration]) -> String {
    let mut shown: Vec<_> = waits.iter().take(10).map(|wait| shown_time(*wait)).collect();
    if waits.len() > 10 {
        shown.push(format!("and {} more", waits.len() - 10));
    }
    shown.join(", ")
}

/// Formats a time in the largest unit in which it is a whole number.
pub(super) fn shown_time(time: Duration) -> String {
    match time.as_millis() {
        ms if ms % 1_000 != 0 => format!("{ms} ms"),
        ms if ms % 60_000 != 0 || ms == 0 => format!("{} s", ms / 1_000),
        ms if ms % 3_600_000 != 0 => format!("{} min", ms / 60_000),
        ms => format!("{} h", ms / 3_600_000),
    }
}
