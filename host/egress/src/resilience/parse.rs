//! A retry profile as people write it, in TOML: four fields, and beside them jitter and times.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::document::{DocumentError, Located, Refused, Table, quoted, read};
use cofferdam_core::failure::Cause;
use cofferdam_core::limits::{Ceilings, ProfileTimes, parse_time};

use super::profile::{Profile, ProfileError};
use super::profiles::PROFILES;
use super::schedule::{Backoff, Jitter, MAX_ATTEMPTS, MAX_WAIT, Schedule};

/// The name of a profile that has a file of its own.
const UNNAMED: &str = "custom";

const KEYS: [&str; 7] =
    ["retryable", "max_attempts", "backoff", "classifier", "jitter", "attempt_timeout", "wall_time"];

/// What waits have where nobody says: enough that callers who failed together come back one by one.
const JITTER: Jitter = Jitter::Plus(0.2);

const TIME: &str = "write it like \"500ms\", \"2s\", \"1m\" or \"1h\"";

impl Profile {
    /// Reads the profile in `text`, called `label` in problems. Its name is `custom`.
    ///
    /// ```toml
    /// retryable = true
    /// max_attempts = 5
    /// backoff = { kind = "exponential", base = "1s", cap = "60s" }
    /// classifier = { retry_on = ["network_error", "rate_limited"] }
    /// ```
    ///
    /// # Errors
    /// Everything that is wrong with it, each problem with its place and its fix.
    pub fn parse(label: &str, text: &str) -> Result<Arc<Self>, DocumentError> {
        read(label, text, |root| Self::read(UNNAMED, root)).map(Arc::new)
    }

    /// The profile in `table`; none only where it was reported why.
    pub(super) fn read(name: &str, table: &Table<'_>) -> Option<Self> {
        table.only(&KEYS);
        if !table.has("retryable") {
            table.missing("retryable", "retryable = true, or false for a profile that repeats nothing");
        }
        let retryable = table.flag("retryable");
        let attempts = table.whole("max_attempts").and_then(|it| it.parse(|number| attempts(*number)));
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
                place_of(table, "classifier").refuse(Refused::new(message, fix));
                return None;
            }
            let (kind, base, cap) = waits?;
            let schedule = Schedule::new(attempts?, kind, base, cap, jitter?);
            let schedule = schedule.map_err(|error| table.here().refuse(whole(&error))).ok()?;
            Self::of(name, &[(&causes, schedule)])
        } else {
            never_repeated(table, attempts, causes.unwrap_or_default());
            Self::of(name, &[])
        };
        let checked = profile.with_times(times?);
        checked.map_err(|error| table.here().refuse(whole(&error))).ok()
    }
}

/// Refuses what says that something is repeated after all.
fn never_repeated(table: &Table<'_>, attempts: Option<u32>, causes: Vec<Cause>) {
    let message = "this profile has retryable = false";
    if attempts.is_some_and(|attempts| attempts > 1) {
        let fix = "remove it or write 1, or write retryable = true";
        place_of(table, "max_attempts").refuse(Refused::new(message, fix));
    }
    if !causes.is_empty() {
        let fix = "remove it, or write retryable = true";
        place_of(table, "classifier").refuse(Refused::new(message, fix));
    }
}

/// The place of `key`.
fn place_of<'a>(table: &Table<'a>, key: &str) -> Located<'a, ()> {
    table.place(key).unwrap_or_else(|| table.here())
}

fn whole(error: &ProfileError) -> Refused {
    Refused::new(error.to_string(), "correct the values so that they fit together")
}

/// A name that an own profile may have.
pub(super) fn own_name(name: &str) -> Result<(), Refused> {
    if PROFILES.contains(&name) {
        let message = format!("{} is a built-in profile and cannot be redefined", quoted(name));
        return Err(Refused::new(message, "give it another name"));
    }
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let starts = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if starts && name.len() <= 40 && name.bytes().all(plain) {
        return Ok(());
    }
    let message = format!("{} is not a profile's name", quoted(name));
    Err(Refused::new(message, "write 1 to 40 lower-case letters, digits and hyphens, a letter first"))
}

fn attempts(number: u64) -> Result<u32, Refused> {
    let fits = u32::try_from(number).ok().filter(|number| (1..=MAX_ATTEMPTS).contains(number));
    fits.ok_or_else(|| {
        let fix = format!("write 1 to {MAX_ATTEMPTS}; the first attempt counts, so that 1 repeats nothing");
        Refused::new(format!("{number} is no number of attempts"), fix)
    })
}

/// Kind, base and cap of the waits.
fn backoff(table: &Table<'_>) -> Option<(Backoff, Duration, Duration)> {
    let backoff = table.table("backoff")?;
    backoff.only(&["kind", "base", "cap"]);
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
                Some(base) if base > cap => {
                    Err(Refused::new("the cap is below the base", "write a cap that is no less than `base`"))
                }
                _ => Ok(cap),
            }
        }),
    };
    Some((kind?, base?, cap?))
}

/// How the waits vary; the usual where nobody says.
fn jitter(table: &Table<'_>) -> Option<Jitter> {
    if !table.has("jitter") {
        return Some(JITTER);
    }
    let jitter = table.table("jitter")?;
    jitter.only(&["kind", "ratio"]);
    type Varied = Option<fn(f64) -> Jitter>;
    let kinds: [(&str, Varied); 3] =
        [("none", None), ("plus", Some(Jitter::Plus)), ("both", Some(Jitter::Both))];
    let kind = jitter.required_text("kind", "kind = \"plus\"");
    let kind = kind.and_then(|kind| kind.parse(|kind| one_of(kind, &kinds)));
    let ratio = jitter.number("ratio");
    let Some(varied) = kind? else {
        let Some(place) = jitter.place("ratio") else { return Some(Jitter::None) };
        place.refuse(Refused::new("jitter of kind \"none\" has no ratio", "remove it"));
        return None;
    };
    if !jitter.has("ratio") {
        jitter.missing("ratio", "ratio = 0.2");
    }
    ratio?.parse(|ratio| match (0.0..=1.0).contains(ratio) {
        true => Ok(varied(*ratio)),
        false => {
            let fix = "write a part from 0 to 1: 0.2 is a fifth";
            Err(Refused::new(format!("{ratio} is not a part of a wait"), fix))
        }
    })
}

/// The causes that are repeated; none at all where the document has no classifier.
fn classifier(table: &Table<'_>) -> Option<Vec<Cause>> {
    if !table.has("classifier") {
        return Some(Vec::new());
    }
    let classifier = table.table("classifier")?;
    classifier.only(&["retry_on"]);
    if !classifier.has("retry_on") {
        classifier.missing("retry_on", "retry_on = [\"network_error\"]");
        return None;
    }
    let mut causes: Vec<Cause> = Vec::new();
    let words = classifier.texts("retry_on");
    let read = words.iter().map(|word| {
        let cause = word.parse(|word| match cause(word)? {
            cause if causes.contains(&cause) => Err(Refused::new(
                format!("{} stands in the list twice", quoted(word)),
                "remove one of the two",
            )),
            cause => Ok(cause),
        });
        causes.extend(cause);
        cause.is_some()
    });
    // Each of them is looked at: whoever corrects the file wants to know of all.
    let all = read.filter(|read| !read).count() == 0;
    all.then_some(causes)
}

fn cause(word: &str) -> Result<Cause, Refused> {
    match Cause::ALL.into_iter().find(|cause| cause.name() == word) {
        Some(cause) if cause.is_retriable() => Ok(cause),
        Some(_) => {
            let message = format!("what ends with {} is never repeated", quoted(word));
            Err(Refused::new(message, format!("name some of {}", causes_there_are())))
        }
        None => Err(unknown(word, retriable().map(Cause::name))),
    }
}

fn retriable() -> impl Iterator<Item = Cause> {
    Cause::ALL.into_iter().filter(|cause| cause.is_retriable())
}

fn causes_there_are() -> String {
    retriable().map(Cause::name).collect::<Vec<_>>().join(", ")
}

fn times(table: &Table<'_>) -> Option<ProfileTimes> {
    let ceiling = Ceilings::default().wall_time();
    let read = |key: &str| match table.text(key) {
        Some(text) => text.parse(|text| time(text, ceiling, "5m")).map(Some),
        None if table.has(key) => None,
        None => Some(None),
    };
    let (wall_time, attempt_timeout) = (read("wall_time"), read("attempt_timeout"));
    Some(ProfileTimes { wall_time: wall_time?, attempt_timeout: attempt_timeout? })
}

fn time(text: &str, most: Duration, shown: &str) -> Result<Duration, Refused> {
    match parse_time(text) {
        Some(time) if time > most => {
            Err(Refused::new(format!("{} is more than {shown}", quoted(text)), "write that or less"))
        }
        Some(time) => Ok(time),
        None => Err(Refused::new(format!("{} is not a time above zero", quoted(text)), TIME)),
    }
}

fn one_of<T: Copy>(word: &str, known: &[(&str, T)]) -> Result<T, Refused> {
    let found = known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| unknown(word, known.iter().map(|(name, _)| *name)))
}

/// A word that is none of `known`: the nearest of them, and all.
pub(super) fn unknown<'w>(word: &str, known: impl Iterator<Item = &'w str>) -> Refused {
    let known: Vec<_> = known.collect();
    let list = known.join(", ");
    let fix = match cofferdam_core::spelling::nearest(word, known) {
        Some(near) => format!("did you mean \"{near}\"? (there are: {list})"),
        None => format!("write one of {list}"),
    };
    Refused::new(format!("{} is not known", quoted(word)), fix)
}
