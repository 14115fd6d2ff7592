//! Settings and retry profiles as operators write them, with and without mistakes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::time::Duration;

use cofferdam_core::failure::FailureCause;
use cofferdam_core::limits::ProfileTimes;
use cofferdam_model::manifest::ConnectorName;

use super::{Backoff, Jitter, ResilienceSettings, RetryProfile, RetrySchedule};

const GOOD: &str = r#"
retryable = true
max_attempts = 5
backoff = { kind = "linear", base = "500ms", cap = "60s" }
jitter = { kind = "both", ratio = 0.25 }
classifier = { retry_on = ["network_error", "rate_limited"] }
attempt_timeout = "10s"
wall_time = "2m"
"#;

#[test]
fn a_profile_has_schedule_classifier_and_times() {
    let profile = RetryProfile::parse("p.toml", GOOD).unwrap();
    assert_eq!(&**profile.name(), "custom");
    let (half, minute) = (Duration::from_millis(500), Duration::from_secs(60));
    let schedule = RetrySchedule::new(5, Backoff::Linear, half, minute, Jitter::Both(0.25)).unwrap();
    for cause in FailureCause::ALL {
        let repeated = matches!(cause, FailureCause::Network | FailureCause::RateLimited);
        assert_eq!(profile.schedule(cause).copied(), repeated.then_some(schedule), "{}", cause.name());
    }
    let (wall_time, attempt_timeout) = (Some(Duration::from_secs(120)), Some(Duration::from_secs(10)));
    assert_eq!(*profile.times(), ProfileTimes { wall_time, attempt_timeout });
}

#[test]
fn omitted_fields_have_defaults() {
    let text = "retryable = true\nmax_attempts = 2\nclassifier.retry_on = [\"unavailable\"]\n\
                backoff = { kind = \"exponential\", base = \"1s\" }";
    let profile = RetryProfile::parse("p.toml", text).unwrap();
    let schedule = profile.schedule(FailureCause::Unavailable).unwrap();
    assert_eq!(
        (schedule.jitter(), schedule.wait(60)),
        (Jitter::Plus(0.2), Duration::from_secs(24 * 60 * 60))
    );
    assert_eq!(*profile.times(), ProfileTimes::default());
    let nothing = RetryProfile::parse("p.toml", "retryable = false").unwrap();
    assert_eq!((nothing.max_attempts(), super::reference_tests::rows(&nothing).len()), (1, 0));
    for (jitter, expected) in [
        ("{ kind = \"none\" }", Jitter::None),
        ("{ kind = \"plus\", ratio = 1 }", Jitter::Plus(1.0)),
        ("{ kind = \"both\", ratio = 0 }", Jitter::Both(0.0)),
    ] {
        let profile = RetryProfile::parse("p.toml", &format!("{text}\njitter = {jitter}")).unwrap();
        assert_eq!(profile.schedule(FailureCause::Unavailable).unwrap().jitter(), expected);
    }
}

/// Returns the good profile with one line replaced.
fn with(line: usize, text: &str) -> String {
    let mut lines: Vec<_> = GOOD.lines().collect();
    lines[line - 1] = text;
    lines.join("\n")
}

#[test]
fn invalid_profiles_are_refused_with_place_and_fix() {
    let backoff = |rest: &str| with(4, &format!("backoff = {{ {rest} }}"));
    let jitter = |rest: &str| with(5, &format!("jitter = {{ {rest} }}"));
    let retry_on = |list: &str| with(6, &format!("classifier = {{ retry_on = [{list}] }}"));
    for (text, problem) in [
        (
            with(2, "retryabel = true"),
            "p.toml:2:1: retryabel: this key is not known here; did you mean `retryable`?",
        ),
        (with(2, ""), "p.toml:1:1: retryable: this key is missing; add retryable = true"),
        (with(2, "retryable = 1"), "p.toml:2:13: retryable: this is an integer; write true or false"),
        (
            with(2, "retryable = false"),
            "p.toml:3:16: max_attempts: this profile has retryable = false; remove it",
        ),
        (
            with(2, "retryable = false"),
            "p.toml:6:14: classifier: this profile has retryable = false; remove it",
        ),
        (
            with(3, "max_attempts = 0"),
            "p.toml:3:16: max_attempts: 0 is no number of attempts; write 1 to 100",
        ),
        (with(3, "max_attempts = 101"), "p.toml:3:16: max_attempts: 101 is no number of attempts"),
        (with(3, "max_attempts = -1"), "p.toml:3:16: max_attempts: -1 is not a whole number"),
        (with(3, "max_attempts = 2.5"), "p.toml:3:16: max_attempts: this is a float; write a whole number"),
        (with(3, ""), "max_attempts: this key is missing; add max_attempts = 3"),
        (with(4, ""), "backoff: this key is missing; add backoff = {"),
        (with(6, ""), "classifier: this key is missing; add classifier = {"),
        (
            backoff("kind = \"exponental\", base = \"1s\""),
            "backoff.kind: \"exponental\" is not known; did you mean \"exponential\"?",
        ),
        (backoff("base = \"1s\""), "backoff.kind: this key is missing; add kind = "),
        (backoff("kind = \"fixed\""), "backoff.base: this key is missing; add base = "),
        (
            backoff("kind = \"fixed\", base = \"0s\""),
            "backoff.base: \"0s\" is not a time above zero; write it like",
        ),
        (backoff("kind = \"fixed\", base = \"1.5s\""), "backoff.base: \"1.5s\" is not a time above zero"),
        (backoff("kind = \"fixed\", base = 1"), "backoff.base: this is an integer; write a string"),
        (backoff("kind = \"fixed\", base = \"25h\""), "backoff.base: \"25h\" is more than 24h"),
        (backoff("kind = \"fixed\", base = \"1s\", cap = \"25h\""), "backoff.cap: \"25h\" is more than 24h"),
        (
            backoff("kind = \"fixed\", base = \"2s\", cap = \"1s\""),
            "backoff.cap: the cap is below the base; write a cap",
        ),
        (backoff("kind = \"fixed\", base = \"1s\", max = \"2s\""), "backoff.max: this key is not known here"),
        (jitter("kind = \"some\""), "jitter.kind: \"some\" is not known; write one of none, plus, both"),
        (jitter("kind = \"plus\""), "jitter.ratio: this key is missing; add ratio = 0.2"),
        (
            jitter("kind = \"plus\", ratio = 1.5"),
            "jitter.ratio: 1.5 is not a part of a wait; write a part from 0 to 1",
        ),
        (jitter("kind = \"both\", ratio = -0.1"), "jitter.ratio: -0.1 is not a part of a wait"),
        (jitter("kind = \"both\", ratio = nan"), "jitter.ratio: this counts nothing; write a number"),
        (jitter("kind = \"both\", ratio = \"0.2\""), "jitter.ratio: this is a string; write a number"),
        (
            jitter("kind = \"none\", ratio = 0.2"),
            "jitter.ratio: jitter of kind \"none\" has no ratio; remove it",
        ),
        (
            retry_on(""),
            "p.toml:6:14: classifier: `retry_on` names nothing, so that nothing is ever repeated; name some",
        ),
        (
            retry_on("\"auth\""),
            "classifier.retry_on[0]: what ends with \"auth\" is never repeated; name some of \
            network_error, timeout, rate_limited, unavailable, op_failed, refresh_unreachable, wall_time",
        ),
        (
            retry_on("\"network\""),
            "classifier.retry_on[0]: \"network\" is not known; did you mean \"network_error\"?",
        ),
        (
            retry_on("\"timeout\", \"timeout\""),
            "classifier.retry_on[1]: \"timeout\" stands in the list twice",
        ),
        (
            retry_on("\"network\", \"auth\""),
            "classifier.retry_on[1]: what ends with \"auth\" is never repeated",
        ),
        (retry_on("5"), "classifier.retry_on[0]: this is an integer; write a string"),
        (with(6, "classifier = {}"), "classifier.retry_on: this key is missing"),
        (with(7, "attempt_timeout = \"3m\""), "one attempt may take longer than its call"),
        (with(8, "wall_time = \"6m\""), "wall_time: \"6m\" is more than 5m; write that or less"),
        (
            with(8, "walltime = \"1m\""),
            "p.toml:8:1: walltime: this key is not known here; did you mean `wall_time`?",
        ),
    ] {
        let error = RetryProfile::parse("p.toml", &text).unwrap_err().to_string();
        assert!(error.contains(problem), "{text}\n{error}\ninstead of\n{problem}");
    }
}

#[test]
fn every_problem_is_shown_at_once() {
    let text =
        with(3, "max_attempts = 0").replace("linear", "round").replace("0.25", "25").replace("2m", "2d");
    let error = RetryProfile::parse("p.toml", &text).unwrap_err();
    let keys: Vec<_> = error.problems().iter().map(|problem| problem.key()).collect();
    assert_eq!(keys, ["max_attempts", "backoff.kind", "jitter.ratio", "wall_time"]);
}

const SETTINGS: &str = r#"
[retry]
profile = "patient"

[retry.connectors]
"github://acme/slack" = "none"
"github://acme/stripe" = "careful"

[retry.profiles.careful]
retryable = true
max_attempts = 2
backoff = { kind = "fixed", base = "1s" }
classifier = { retry_on = ["unavailable"] }
"#;

fn name(text: &str) -> ConnectorName {
    ConnectorName::parse(text).unwrap()
}

#[test]
fn the_caller_outranks_connector_and_operator() {
    let settings = ResilienceSettings::parse("config.toml", SETTINGS).unwrap();
    let deterministic = RetryProfile::named("deterministic").unwrap();
    for (connector, wished, profile) in [
        ("github://acme/other", None, "patient"),
        ("github://acme/slack", None, "none"),
        ("github://acme/stripe", None, "careful"),
        ("github://acme/stripe", Some(&deterministic), "deterministic"),
    ] {
        let plan = settings.plan(&name(connector), wished);
        assert_eq!(&**plan.profile.name(), profile, "{connector}");
    }
    let names: Vec<_> = settings.profile_names().collect();
    assert_eq!(names.last(), Some(&"careful"));
    assert_eq!(settings.profile("careful").unwrap().max_attempts(), 2);
    let nothing = ResilienceSettings::parse("config.toml", "").unwrap();
    assert_eq!(nothing, ResilienceSettings::default());
}

#[test]
fn meaningless_settings_are_refused() {
    let careful = "[retry.profiles.careful]\nretryable = false\n";
    for (text, problem) in [
        (
            "[retry]\nprofil = \"none\"".to_owned(),
            "c:2:1: retry.profil: this key is not known here; did you mean `profile`?",
        ),
        (
            "[retry]\nprofile = \"patien\"".to_owned(),
            "c:2:11: retry.profile: \"patien\" is not known; did you mean \"patient\"? (there are: standard, ",
        ),
        (format!("[retry]\nprofile = \"carefull\"\n{careful}"), "did you mean \"careful\"?"),
        (
            "[retry.connectors]\nslack = \"none\"".to_owned(),
            "c:2:1: retry.connectors.slack: \"slack\" is not a connector name",
        ),
        (
            "[retry.connectors]\n\"github://acme/slack@1.2.0\" = \"none\"".to_owned(),
            "names a version; write \"github://acme/slack\"",
        ),
        ("[retry.connectors]\n\"github://acme/slack\" = \"nome\"".to_owned(), "did you mean \"none\"?"),
        (
            careful.replace("careful", "patient"),
            "c:1:17: retry.profiles.patient: \"patient\" is a built-in profile and cannot be redefined",
        ),
        (
            careful.replace("careful", "Careful"),
            "\"Careful\" is not a profile's name; write 1 to 40 lower-case",
        ),
        (careful.replace("careful", "\"\""), "is not a profile's name"),
        (careful.replace("false", "true"), "retry.profiles.careful.max_attempts: this key is missing"),
        (
            "[retry.profiles]\ncareful = \"standard\"".to_owned(),
            "retry.profiles.careful: this is a string; write a table",
        ),
        ("retry = \"none\"".to_owned(), "c:1:9: retry: this is a string; write a table: [retry]"),
        ("[retyr]".to_owned(), "retyr: this key is not known here; did you mean `retry`?"),
        (
            "[rate_limit]\nper_second = 3".to_owned(),
            "c:2:1: rate_limit.per_second: this key is not known here",
        ),
        (
            "[breaker.connectors.slack]\n".to_owned(),
            "breaker.connectors.slack: \"slack\" is not a connector name",
        ),
    ] {
        let error = ResilienceSettings::parse("c", &text).unwrap_err().to_string();
        assert!(error.contains(problem), "{text}\n{error}\ninstead of\n{problem}");
    }
    // A reference to a profile that cannot be read is not a second problem.
    let text = format!("[retry]\nprofile = \"careful\"\n{}", careful.replace("false", "0"));
    assert_eq!(ResilienceSettings::parse("c", &text).unwrap_err().problems().len(), 1);
}

#[test]
fn embedders_configure_without_a_document() {
    let second = Duration::from_secs(1);
    let schedule = RetrySchedule::new(2, Backoff::Fixed, second, second, Jitter::None).unwrap();
    let own = RetryProfile::new("own", schedule, &[FailureCause::Unavailable]).unwrap();
    let settings = ResilienceSettings::default()
        .with_profile(RetryProfile::named("patient").unwrap())
        .with_own_profile(own.clone().into())
        .unwrap();
    let own = settings.profile("own").unwrap();
    let settings = settings.with_profile_for(name("github://acme/slack"), own);
    assert_eq!(&**settings.plan(&name("github://acme/slack"), None).profile.name(), "own");
    assert_eq!(&**settings.plan(&name("github://acme/other"), None).profile.name(), "patient");
    assert!(settings.clone().with_own_profile(RetryProfile::named("none").unwrap()).is_err());
    assert!(RetryProfile::new("none", schedule, &[]).is_err(), "a built-in name");
    assert!(
        RetryProfile::new("own", schedule, &[FailureCause::Auth]).unwrap_err().to_string().contains("`auth`")
    );
    for (attempts, base, cap, jitter) in [
        (0, 1, 1, Jitter::None),
        (101, 1, 1, Jitter::None),
        (1, 0, 1, Jitter::None),
        (1, 2, 1, Jitter::None),
        (1, 1, 86_401, Jitter::None),
        (1, 1, 1, Jitter::Plus(1.1)),
        (1, 1, 1, Jitter::Both(f64::NAN)),
    ] {
        let (base, cap) = (Duration::from_secs(base), Duration::from_secs(cap));
        assert!(
            RetrySchedule::new(attempts, Backoff::Linear, base, cap, jitter).is_err(),
            "{attempts} {base:?} {cap:?}"
        );
    }
}

#[test]
fn breakers_and_rate_limits_can_be_set_or_disabled() {
    let failover = RetryProfile::named("failover").unwrap();
    let of = |settings: &ResilienceSettings, connector: &str| {
        let plan = settings.plan(&name(connector), Some(&failover));
        (plan.breaker.is_some(), plan.rate.is_some())
    };
    let (slack, other) = ("github://acme/slack", "github://acme/other");
    let text = "[breaker]\nenabled = false\n[rate_limit]\nrequests = 30\nper = \"60s\"\n\
                [rate_limit.connectors.\"github://acme/slack\"]\nenabled = false\n\
                [breaker.connectors.\"github://acme/slack\"]\nenabled = true\n";
    let settings = ResilienceSettings::parse("config.toml", text).unwrap();
    assert_eq!((of(&settings, slack), of(&settings, other)), ((true, false), (false, true)));
    let alone = "[rate_limit.connectors.\"github://acme/slack\"]\nrequests = 1\nper = \"1s\"\n";
    let settings = ResilienceSettings::parse("config.toml", alone).unwrap();
    assert_eq!(
        (of(&settings, slack), of(&settings, other)),
        ((true, true), (true, false)),
        "the profile's breaker"
    );
}
