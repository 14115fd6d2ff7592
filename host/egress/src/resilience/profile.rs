//! A named retry policy: a schedule or none for each cause, and the default times of a call under it. The
//! built-in ones are data, one for each document that specifies retries.

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cofferdam_core::document::{DocumentError, DocumentTable, InvalidValue, SpannedItem, quoted, read};
use cofferdam_core::failure::FailureCause;
use cofferdam_core::limits::{LimitCeilings, ProfileTimes, parse_time};

use super::breaker::BreakerPolicy;
use super::decide::{Backoff, Jitter, MAX_ATTEMPTS, MAX_WAIT, RetrySchedule};

/// The names of the built-in profiles; the first is the default.
pub const PROFILES: [&str; 6] =
    ["standard", "patient", "failover", "failover-windowed", "deterministic", "none"];

static BUILT_IN: LazyLock<[Arc<RetryProfile>; 6]> = LazyLock::new(|| {
    [built_in_standard(), patient(), failover(), failover_windowed(), deterministic(), none()].map(Arc::new)
});

/// A complete and checked retry policy. A cause without a schedule is not retried.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryProfile {
    pub(super) name: Arc<str>,
    schedules: [Option<RetrySchedule>; FailureCause::ALL.len()],
    times: ProfileTimes,
    /// True if the waits of the n-th candidate of a chain begin n steps later.
    pub(super) waits_grow_along_chain: bool,
    breaker: Option<Arc<BreakerPolicy>>,
}

/// The error for an invalid profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProfileError(pub(super) String);

impl RetryProfile {
    /// Returns the built-in profile of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Arc<Self>> {
        BUILT_IN.iter().find(|profile| &**profile.name() == name).cloned()
    }

    /// Creates a profile that retries `causes` with `schedule`, and nothing else. The name must not be that
    /// of a built-in profile.
    ///
    /// # Errors
    /// A name outside the grammar (lower-case letters, digits and hyphens, 40 at most) or of a built-in
    /// profile, and a cause that must not be retried.
    pub fn new(name: &str, schedule: RetrySchedule, causes: &[FailureCause]) -> Result<Self, ProfileError> {
        own_name(name).map_err(|refused| ProfileError(refused.to_string()))?;
        match causes.iter().find(|cause| !cause.is_retriable()) {
            Some(cause) => Err(ProfileError(format!("`{}` is never repeated", cause.name()))),
            None => Ok(Self::from_rules(name, &[(causes, schedule)])),
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

    pub(super) fn from_rules(name: &str, rules: &[(&[FailureCause], RetrySchedule)]) -> Self {
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
}

/// Returns the default profile.
pub(super) fn standard() -> Arc<RetryProfile> {
    let [standard, ..] = &*BUILT_IN;
    Arc::clone(standard)
}

/// Three retries after 1, 2 and 4 seconds plus up to a fifth: 5xx, 429, and requests without a response.
fn built_in_standard() -> RetryProfile {
    let schedule = schedule(4, Backoff::Exponential, 1, 4, Jitter::Plus(0.2));
    RetryProfile::from_rules(
        "standard",
        &[(&[FailureCause::Network, FailureCause::RateLimited, FailureCause::Unavailable], schedule)],
    )
}

/// Five retries after 429 with waits of 5 to 80 seconds, two if the service is unavailable; minutes in total.
fn patient() -> RetryProfile {
    let transient = schedule(3, Backoff::Exponential, 1, 4, Jitter::Both(0.2));
    let limited = schedule(6, Backoff::Exponential, 5, 160, Jitter::Both(0.2));
    RetryProfile {
        // Its waits do not fit into the default 30 seconds of a call. An attempt keeps those 30 seconds.
        times: ProfileTimes {
            wall_time: Some(Duration::from_secs(300)),
            attempt_timeout: Some(Duration::from_secs(30)),
        },
        ..RetryProfile::from_rules(
            "patient",
            &[
                (&[FailureCause::Network, FailureCause::Timeout, FailureCause::Unavailable], transient),
                (&[FailureCause::RateLimited], limited),
            ],
        )
    }
}

/// Three attempts with each candidate of a chain, one step slower for each candidate, and a breaker that
/// opens at the first failure.
fn failover() -> RetryProfile {
    let schedule = schedule(3, Backoff::Exponential, 1, 64, Jitter::None);
    let causes =
        [FailureCause::Network, FailureCause::Timeout, FailureCause::RateLimited, FailureCause::Unavailable];
    RetryProfile {
        waits_grow_along_chain: true,
        breaker: Some(Arc::new(BreakerPolicy::at_once())),
        ..RetryProfile::from_rules("failover", &[(&causes, schedule)])
    }
}

/// Falls back at once if a candidate is unavailable, and has a breaker that counts failures in a window.
fn failover_windowed() -> RetryProfile {
    let three = schedule(3, Backoff::Linear, 2, 4, Jitter::None);
    let twice = schedule(2, Backoff::Linear, 2, 4, Jitter::None);
    RetryProfile {
        breaker: Some(Arc::new(BreakerPolicy::windowed())),
        ..RetryProfile::from_rules(
            "failover-windowed",
            &[
                (&[FailureCause::Network, FailureCause::RateLimited], three),
                (&[FailureCause::Timeout], twice),
            ],
        )
    }
}

/// Exact waits without jitter, so that replays are exact. Also retries attempts that took too long.
fn deterministic() -> RetryProfile {
    let schedule = schedule(3, Backoff::Exponential, 1, 24 * 60 * 60, Jitter::None);
    let causes = [
        FailureCause::Network,
        FailureCause::Timeout,
        FailureCause::RateLimited,
        FailureCause::Unavailable,
        FailureCause::Transient,
        FailureCause::WallTime,
    ];
    RetryProfile::from_rules("deterministic", &[(&causes, schedule)])
}

/// Never retries.
fn none() -> RetryProfile {
    RetryProfile::from_rules("none", &[])
}

fn schedule(max_attempts: u32, backoff: Backoff, base: u64, cap: u64, jitter: Jitter) -> RetrySchedule {
    let max_attempts = NonZeroU32::new(max_attempts).unwrap_or(NonZeroU32::MIN);
    RetrySchedule {
        max_attempts,
        backoff,
        base: Duration::from_secs(base),
        cap: Duration::from_secs(cap),
        jitter,
    }
}

/// The name of a profile that is read from its own file.
const UNNAMED: &str = "custom";

const KEYS: [&str; 7] =
    ["retryable", "max_attempts", "backoff", "classifier", "jitter", "attempt_timeout", "wall_time"];

/// The default jitter: enough that callers that failed together return one after the other.
const JITTER: Jitter = Jitter::Plus(0.2);

const TIME: &str = "write it like \"500ms\", \"2s\", \"1m\" or \"1h\"";

impl RetryProfile {
    /// Parses the profile in `text`, called `label` in problems. Its name is `custom`.
    ///
    /// ```toml
    /// retryable = true
    /// max_attempts = 5
    /// backoff = { kind = "exponential", base = "1s", cap = "60s" }
    /// classifier = { retry_on = ["network_error", "rate_limited"] }
    /// ```
    ///
    /// # Errors
    /// All problems of the text, each with its place and its fix.
    pub fn parse(label: &str, text: &str) -> Result<Arc<Self>, DocumentError> {
        read(label, text, |root| Self::read(UNNAMED, root)).map(Arc::new)
    }

    /// Reads the profile in `table`; returns `None` only if a problem was reported.
    pub(super) fn read(name: &str, table: &DocumentTable<'_>) -> Option<Self> {
        table.reject_unknown_keys(&KEYS);
        if !table.has("retryable") {
            table.missing("retryable", "retryable = true, or false for a profile that repeats nothing");
        }
        let retryable = table.flag("retryable");
        let attempts = table.integer("max_attempts").and_then(|it| it.parse(|number| attempts(*number)));
        let waits = backoff(table);
        let jitter = jitter(table);
        let causes = classifier(table);
        let times = times(table);
        let profile = if retryable? {
            for (key, example) in [
                ("max_attempts", "max_attempts = 3"),
                ("backoff", "backoff = { kind = \"exponential\", base = \"1s\", cap = \"60s\" }"),
                ("classifier", "classifier = { retry_on = [\"network_error\"] }"),
            ] {
                if !table.has(key) {
                    table.missing(key, example);
                }
            }
            let causes = causes?;
            if causes.is_empty() && table.has("classifier") {
                let message = "`retry_on` names nothing, so that nothing is ever repeated";
                let fix = format!("name some of {}, or write retryable = false", cause_list());
                place_of(table, "classifier").refuse(InvalidValue::new(message, fix));
                return None;
            }
            let (kind, base, cap) = waits?;
            let schedule = RetrySchedule::new(attempts?, kind, base, cap, jitter?);
            let schedule = schedule.map_err(|error| table.location().refuse(profile_error(&error))).ok()?;
            Self::from_rules(name, &[(&causes, schedule)])
        } else {
            never_repeated(table, attempts, causes.unwrap_or_default());
            Self::from_rules(name, &[])
        };
        let checked = profile.with_times(times?);
        checked.map_err(|error| table.location().refuse(profile_error(&error))).ok()
    }
}

/// Rejects the settings that contradict `retryable = false`.
fn never_repeated(table: &DocumentTable<'_>, attempts: Option<u32>, causes: Vec<FailureCause>) {
    let message = "this profile has retryable = false";
    if attempts.is_some_and(|attempts| attempts > 1) {
        let fix = "remove it or write 1, or write retryable = true";
        place_of(table, "max_attempts").refuse(InvalidValue::new(message, fix));
    }
    if !causes.is_empty() {
        let fix = "remove it, or write retryable = true";
        place_of(table, "classifier").refuse(InvalidValue::new(message, fix));
    }
}

/// Returns the place of `key`.
fn place_of<'a>(table: &DocumentTable<'a>, key: &str) -> SpannedItem<'a, ()> {
    table.location_of(key).unwrap_or_else(|| table.location())
}

fn profile_error(error: &ProfileError) -> InvalidValue {
    InvalidValue::new(error.to_string(), "correct the values so that they fit together")
}

/// Checks a name that the operator gives to a profile.
pub(super) fn own_name(name: &str) -> Result<(), InvalidValue> {
    if PROFILES.contains(&name) {
        let message = format!("{} is a built-in profile and cannot be redefined", quoted(name));
        return Err(InvalidValue::new(message, "give it another name"));
    }
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let starts = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if starts && name.len() <= 40 && name.bytes().all(plain) {
        return Ok(());
    }
    let message = format!("{} is not a profile's name", quoted(name));
    Err(InvalidValue::new(message, "write 1 to 40 lower-case letters, digits and hyphens, a letter first"))
}

fn attempts(number: u64) -> Result<u32, InvalidValue> {
    let fits = u32::try_from(number).ok().filter(|number| (1..=MAX_ATTEMPTS).contains(number));
    fits.ok_or_else(|| {
        let fix = format!("write 1 to {MAX_ATTEMPTS}; the first attempt counts, so that 1 repeats nothing");
        InvalidValue::new(format!("{number} is no number of attempts"), fix)
    })
}

/// Reads kind, base and cap of the waits.
fn backoff(table: &DocumentTable<'_>) -> Option<(Backoff, Duration, Duration)> {
    let backoff = table.table("backoff")?;
    backoff.reject_unknown_keys(&["kind", "base", "cap"]);
    let kind = backoff.required_text("kind", "kind = \"exponential\"");
    let kind = kind.and_then(|kind| kind.parse(|kind| one_of(kind, &Backoff::NAMES)));
    let base = backoff.required_text("base", "base = \"1s\"");
    let base = base.and_then(|base| base.parse(|text| time(text, MAX_WAIT, "24h")));
    let cap = match backoff.text("cap") {
        None if backoff.has("cap") => None,
        None => Some(MAX_WAIT),
        Some(located) => located.parse(|text| {
            let cap = time(text, MAX_WAIT, "24h")?;
            match base {
                Some(base) if base > cap => Err(InvalidValue::new(
                    "the cap is below the base",
                    "write a cap that is no less than `base`",
                )),
                _ => Ok(cap),
            }
        }),
    };
    Some((kind?, base?, cap?))
}

/// Reads the jitter of the waits; the default if there is none.
fn jitter(table: &DocumentTable<'_>) -> Option<Jitter> {
    if !table.has("jitter") {
        return Some(JITTER);
    }
    let jitter = table.table("jitter")?;
    jitter.reject_unknown_keys(&["kind", "ratio"]);
    type Varied = Option<fn(f64) -> Jitter>;
    let kinds: [(&str, Varied); 3] =
        [("none", None), ("plus", Some(Jitter::Plus)), ("both", Some(Jitter::Both))];
    let kind = jitter.required_text("kind", "kind = \"plus\"");
    let kind = kind.and_then(|kind| kind.parse(|kind| one_of(kind, &kinds)));
    let ratio = jitter.number("ratio");
    let Some(varied) = kind? else {
        let Some(place) = jitter.location_of("ratio") else { return Some(Jitter::None) };
        place.refuse(InvalidValue::new("jitter of kind \"none\" has no ratio", "remove it"));
        return None;
    };
    if !jitter.has("ratio") {
        jitter.missing("ratio", "ratio = 0.2");
    }
    ratio?.parse(|ratio| match (0.0..=1.0).contains(ratio) {
        true => Ok(varied(*ratio)),
        false => {
            let fix = "write a part from 0 to 1: 0.2 is a fifth";
            Err(InvalidValue::new(format!("{ratio} is not a part of a wait"), fix))
        }
    })
}

/// Reads the causes that are retried; none if the document has no classifier.
fn classifier(table: &DocumentTable<'_>) -> Option<Vec<FailureCause>> {
    if !table.has("classifier") {
        return Some(Vec::new());
    }
    let classifier = table.table("classifier")?;
    classifier.reject_unknown_keys(&["retry_on"]);
    if !classifier.has("retry_on") {
        classifier.missing("retry_on", "retry_on = [\"network_error\"]");
        return None;
    }
    let mut causes: Vec<FailureCause> = Vec::new();
    let words = classifier.texts("retry_on");
    let read = words.iter().map(|word| {
        let cause = word.parse(|word| match cause(word)? {
            cause if causes.contains(&cause) => Err(InvalidValue::new(
                format!("{} stands in the list twice", quoted(word)),
                "remove one of the two",
            )),
            cause => Ok(cause),
        });
        causes.extend(cause);
        cause.is_some()
    });
    // Each entry is checked, so that one run reports all problems of the file.
    let all = read.filter(|read| !read).count() == 0;
    all.then_some(causes)
}

fn cause(word: &str) -> Result<FailureCause, InvalidValue> {
    match FailureCause::ALL.into_iter().find(|cause| cause.name() == word) {
        Some(cause) if cause.is_retriable() => Ok(cause),
        Some(_) => {
            let message = format!("what ends with {} is never repeated", quoted(word));
            Err(InvalidValue::new(message, format!("name some of {}", cause_list())))
        }
        None => Err(unknown(word, retriable().map(FailureCause::name))),
    }
}

fn retriable() -> impl Iterator<Item = FailureCause> {
    FailureCause::ALL.into_iter().filter(|cause| cause.is_retriable())
}

fn cause_list() -> String {
    retriable().map(FailureCause::name).collect::<Vec<_>>().join(", ")
}

fn times(table: &DocumentTable<'_>) -> Option<ProfileTimes> {
    let ceiling = LimitCeilings::default().wall_time();
    let read = |key: &str| match table.text(key) {
        Some(text) => text.parse(|text| time(text, ceiling, "5m")).map(Some),
        None if table.has(key) => None,
        None => Some(None),
    };
    let (wall_time, attempt_timeout) = (read("wall_time"), read("attempt_timeout"));
    Some(ProfileTimes { wall_time: wall_time?, attempt_timeout: attempt_timeout? })
}

fn time(text: &str, most: Duration, shown: &str) -> Result<Duration, InvalidValue> {
    match parse_time(text) {
        Some(time) if time > most => {
            Err(InvalidValue::new(format!("{} is more than {shown}", quoted(text)), "write that or less"))
        }
        Some(time) => Ok(time),
        None => Err(InvalidValue::new(format!("{} is not a time above zero", quoted(text)), TIME)),
    }
}

fn one_of<T: Copy>(word: &str, known: &[(&str, T)]) -> Result<T, InvalidValue> {
    let found = known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| unknown(word, known.iter().map(|(name, _)| *name)))
}

/// Reports a word that is none of `known`, with the nearest of them and the whole list.
pub(super) fn unknown<'w>(word: &str, known: impl Iterator<Item = &'w str>) -> InvalidValue {
    let known: Vec<_> = known.collect();
    let list = known.join(", ");
    let fix = match cofferdam_core::suggest::nearest(word, known) {
        Some(near) => format!("did you mean \"{near}\"? (there are: {list})"),
        None => format!("write one of {list}"),
    };
    InvalidValue::new(format!("{} is not known", quoted(word)), fix)
}
