//! A retry profile in TOML: four fields, and optionally jitter and times.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::document::{DocumentError, DocumentTable, InvalidValue, SpannedItem, quoted, read};
use cofferdam_core::failure::FailureCause;
use cofferdam_core::limits::{LimitCeilings, ProfileTimes, parse_time};

use super::profile::{ProfileError, RetryProfile};
use super::profiles::PROFILES;
use super::schedule::{Backoff, Jitter, MAX_ATTEMPTS, MAX_WAIT, RetrySchedule};

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
                let fix = format!("name some of {}, or write retryable = false", causes_there_are());
                place_of(table, "classifier").refuse(InvalidValue::new(message, fix));
                return None;
            }
            let (kind, base, cap) = waits?;
            let schedule = RetrySchedule::new(attempts?, kind, base, cap, jitter?);
            let schedule = schedule.map_err(|error| table.location().refuse(whole(&error))).ok()?;
            Self::of(name, &[(&causes, schedule)])
        } else {
            never_repeated(table, attempts, causes.unwrap_or_default());
            Self::of(name, &[])
        };
        let checked = profile.with_times(times?);
        checked.map_err(|error| table.location().refuse(whole(&error))).ok()
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

fn whole(error: &ProfileError) -> InvalidValue {
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
            Err(InvalidValue::new(message, format!("name some of {}", causes_there_are())))
        }
        None => Err(unknown(word, retriable().map(FailureCause::name))),
    }
}

fn retriable() -> impl Iterator<Item = FailureCause> {
    FailureCause::ALL.into_iter().filter(|cause| cause.is_retriable())
}

fn causes_there_are() -> String {
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
