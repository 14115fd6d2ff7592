//! A retry policy by name: for each cause a schedule or none, and what a call under it has by default.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::failure::Cause;
use cofferdam_core::limits::{Ceilings, ProfileTimes};

use super::breaker::BreakerPolicy;
use super::schedule::{Jitter, Schedule};

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

/// What a profile does about the causes that it treats alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The causes.
    pub causes: Vec<Cause>,
    /// The attempts that are made of a candidate, the first included.
    pub attempts: u32,
    /// The waits between them, without jitter.
    pub waits: Vec<Duration>,
    /// How the waits vary.
    pub jitter: Jitter,
}

impl Profile {
    /// The built-in profile of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Arc<Self>> {
        super::profiles::named(name)
    }

    /// A profile that repeats what ends for one of `causes` as `schedule` says, and nothing else. A built-in
    /// profile's name is not to be had.
    ///
    /// # Errors
    /// A name outside the grammar (lower-case letters, digits and hyphens, 40 at most) or of a built-in profile, and
    /// a cause of which nothing may be repeated.
    pub fn new(name: &str, schedule: Schedule, causes: &[Cause]) -> Result<Self, ProfileError> {
        super::parse::own_name(name).map_err(|refused| ProfileError(refused.to_string()))?;
        match causes.iter().find(|cause| !cause.is_retriable()) {
            Some(cause) => Err(ProfileError(format!("`{}` is never repeated", cause.name()))),
            None => Ok(Self::of(name, &[(causes, schedule)])),
        }
    }

    /// The same with these times: the wall time of a call that asks for none, and the longest attempt.
    ///
    /// # Errors
    /// No time at all, a wall time above five minutes, or an attempt that may take longer than its call.
    pub fn with_times(mut self, times: ProfileTimes) -> Result<Self, ProfileError> {
        let ceiling = Ceilings::default().wall_time();
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

    pub(super) fn of(name: &str, rules: &[(&[Cause], Schedule)]) -> Self {
        let mut schedules = [None; Cause::ALL.len()];
        for (causes, schedule) in rules {
            for (cause, slot) in Cause::ALL.iter().zip(&mut schedules) {
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

    /// The most attempts that it makes of one candidate, whatever the causes.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.schedules.iter().flatten().map(Schedule::max_attempts).max().unwrap_or(1)
    }

    /// What it does, a row for each schedule; no row: nothing is repeated.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<(Schedule, Vec<Cause>)> = Vec::new();
        for cause in Cause::ALL {
            let Some(schedule) = self.schedule(cause) else { continue };
            match rows.iter_mut().find(|(known, _)| known == schedule) {
                Some((_, causes)) => causes.push(cause),
                None => rows.push((*schedule, vec![cause])),
            }
        }
        let row = |(schedule, causes): (Schedule, Vec<Cause>)| Row {
            causes,
            attempts: schedule.max_attempts(),
            waits: schedule.waits().collect(),
            jitter: schedule.jitter(),
        };
        rows.into_iter().map(row).collect()
    }
}

impl fmt::Display for Row {
    /// `network_error, unavailable: 4 attempts, waits 1 s, 2 s, 4 s, jitter +0 to 20 %`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes: Vec<_> = self.causes.iter().map(|cause| cause.name()).collect();
        write!(f, "{}: {} attempts", causes.join(", "), self.attempts)?;
        if !self.waits.is_empty() {
            write!(f, ", waits {}, jitter {}", shown_waits(&self.waits), self.jitter)?;
        }
        Ok(())
    }
}

impl fmt::Display for Profile {
    /// A line with its name and times, and one for each row.
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

/// Waits as people read them; after ten of them, how many more there are.
pub(super) fn shown_waits(waits: &[Duration]) -> String {
    let mut shown: Vec<_> = waits.iter().take(10).map(|wait| shown_time(*wait)).collect();
    if waits.len() > 10 {
        shown.push(format!("and {} more", waits.len() - 10));
    }
    shown.join(", ")
}

/// A time in the largest unit in which it is whole.
pub(super) fn shown_time(time: Duration) -> String {
    match time.as_millis() {
        ms if ms % 1_000 != 0 => format!("{ms} ms"),
        ms if ms % 60_000 != 0 || ms == 0 => format!("{} s", ms / 1_000),
        ms if ms % 3_600_000 != 0 => format!("{} min", ms / 60_000),
        ms => format!("{} h", ms / 3_600_000),
    }
}
