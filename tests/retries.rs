//! Retries as an operator and a caller choose them: the configuration, the command line, what both say.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use cofferdam::{Call, Error};
use cofferdam_core::limits::LimitRequest;
use cofferdam_egress::resilience::{Backoff, Jitter, ResilienceSettings, RetryProfile, RetrySchedule};
use cofferdam_runtime::call::CallResult;
use cofferdam_test_support::{Cli, Home, ManualClock, Signer};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::cli::example_cli;
use crate::hostile;
use crate::shared_host::{example, failed, refused, run, shared_host};

/// Profiles that take no time, so that a test of the command line does not either.
const CONFIG: &str = r#"
[retry]
profile = "brisk"

[retry.connectors]
"github://cofferdam/github-issues" = "none"

[retry.profiles.brisk]
retryable = true
max_attempts = 3
backoff = { kind = "fixed", base = "20ms" }
jitter = { kind = "none" }
classifier = { retry_on = ["unavailable", "network_error"] }

[retry.profiles.twice]
retryable = true
max_attempts = 2
backoff = { kind = "fixed", base = "1ms" }
classifier = { retry_on = ["unavailable"] }
"#;

/// A separate home with the guest `probe` in it, and this configuration.
struct Desk {
    home: Home,
    cli: Cli,
}

fn desk(config: &str) -> Desk {
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    for (_, bytes) in
        shared_host().packages.iter().filter(|(name, _)| ["probe", "github-issues"].contains(name))
    {
        run(home.install(bytes, &signer)).unwrap();
    }
    let network = format!("[network]\nallow_private = [\"{}\"]\n", shared_host().upstream.host_port());
    fs::write(home.path().join("config.toml"), network + config).unwrap();
    let cli = Cli::new(COFFERDAM, home.path());
    Desk { home, cli }
}

/// The number of requests for `path` at the upstream server.
fn count(path: &str) -> usize {
    shared_host().upstream.seen(path).len()
}

/// `call probe fetch` of a path of the upstream server.
fn fetch(path: &str, options: &[&str]) -> Vec<String> {
    let url = format!("url={}", shared_host().upstream.url(path));
    let mut args = ["call", "github://cofferdam/probe", "fetch", "--arg", &url].map(str::to_owned).to_vec();
    args.extend(options.iter().map(|option| (*option).to_owned()));
    args
}

#[test]
fn retry_profiles_resolve_call_connector_default() {
    let desk = desk(CONFIG);
    let ran = desk.cli.run(&fetch("/status/503?for-all", &["--format", "json"])).fails(76);
    assert_eq!(count("/status/503?for-all"), 3, "the operator's profile for all");
    let details = &ran.envelope()["error"]["details"];
    assert_eq!((&details["retried"], &details["retry_stopped"]), (&json!(2), &json!("max_attempts")));
    assert_eq!((&details["retry_after_ms"], ran.stderr.as_str()), (&json!(20), ""));

    let url = shared_host().upstream.url("/status/503/for-one");
    let repository = format!("repository={}", json!({"owner": "o", "name": "n", "base_url": url}));
    let issues =
        ["call", "github://cofferdam/github-issues", "get_issue", "--arg", &repository, "--arg", "number=1"];
    desk.cli.run(&issues).fails(76).said("error: external_api_error");
    assert_eq!(count("/status/503/for-one"), 1, "the operator's profile for this connector");

    for (path, options, attempts) in [
        ("/status/503?by-name", &["--retry", "twice"][..], 2),
        ("/status/503?none", &["--retry", "none"], 1),
        ("/status/503?not-idempotent", &["--not-idempotent"], 1),
        ("/status/500?other", &[], 3),
        ("/status/429?not-named", &[], 1),
        ("/status/400?fatal", &[], 1),
    ] {
        desk.cli.run(&fetch(path, options)).fails(76).said("error: external_api_error");
        assert_eq!(count(path), attempts, "{path}");
    }

    let own = "retryable = true\nmax_attempts = 5\nbackoff = { kind = \"linear\", base = \"1ms\" }\n\
               classifier = { retry_on = [\"rate_limited\"] }\n";
    fs::write(desk.home.path().join("own.toml"), own).unwrap();
    let ran =
        desk.cli.run(&fetch("/status/429?by-file", &["--retry", "@own.toml", "--usage", "--format", "json"]));
    assert_eq!(count("/status/429?by-file"), 5);
    let answer: Value = serde_json::from_str(&ran.fails(76).stdout).unwrap();
    assert_eq!(answer["report"]["attempts"][4]["profile"], "custom");
}

#[test]
fn waits_are_shown_and_the_value_is_unchanged() {
    let desk = desk(CONFIG);
    let usual = desk.cli.run(&fetch("/flaky/0/usual", &[]));
    assert_eq!(usual.stderr, "");
    let ran = desk.cli.run(&fetch("/flaky/2/seen", &[]));
    let lines: Vec<_> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ran.stderr);
    for (line, retry) in lines.iter().zip(["Retry 1/2 in 20ms", "Retry 2/2 in 20ms"]) {
        assert!(line.starts_with("external_api_error: ") && line.ends_with(retry), "{line}");
    }
    assert_eq!(ran.ok(), usual.ok());
    for option in ["--quiet", "--format=json"] {
        let ran = desk.cli.run(&fetch(&format!("/flaky/1/{option}"), &[option]));
        assert_eq!((ran.stderr.as_str(), ran.stdout.lines().count() > 0), ("", true), "{option}");
        ran.json();
    }
}

#[test]
fn every_attempt_is_reported_with_its_usage() {
    let desk = desk(CONFIG);
    let ran = desk.cli.run(&fetch("/flaky/2/report", &["--usage"]));
    let told: Vec<_> = ran.stderr.lines().filter(|line| line.starts_with("attempt ")).collect();
    assert_eq!(told.len(), 3, "{}", ran.stderr);
    assert!(
        told[0].contains("github://cofferdam/probe@0.1.0 fetch: external_api_error (unavailable); used: ")
    );
    assert!(told[0].ends_with("; then waited 20ms") && told[2].contains(": a value; used: "), "{told:?}");

    let ran = desk.cli.run(&fetch("/flaky/1/report-json", &["--usage", "--format", "json"]));
    let answer = ran.json();
    assert_eq!(answer["value"]["body"], "at last");
    let report = &answer["report"];
    let attempts = report["attempts"].as_array().unwrap();
    let statuses: Vec<_> = attempts.iter().map(|attempt| &attempt["outcome"]["status"]).collect();
    assert_eq!(statuses, ["failure", "value"], "{report}");
    assert_eq!(
        (&attempts[0]["outcome"]["cause"], &attempts[0]["waited_ms"]),
        (&json!("unavailable"), &json!(20))
    );
    assert!(
        attempts.iter().all(|attempt| attempt["usage"]["requests"] == 1 && attempt["profile"] == "brisk")
    );
    assert_eq!(answer["usage"], attempts[1]["usage"], "the last attempt's");
    assert_eq!(report["idempotency_key"], report["audit_id"], "one key for all attempts");
}

#[test]
fn an_unknown_profile_is_refused_with_the_known_ones() {
    let desk = desk(CONFIG);
    let path = "/text/not-called";
    let ran = desk.cli.run(&fetch(path, &["--retry", "brsik"])).fails(65);
    assert_eq!(
        ran.stderr,
        "error: There is no retry profile `brsik`.\n\
         fix: Did you mean `brisk`? There are: standard, patient, failover, failover-windowed, deterministic, none, \
         brisk, twice\n"
    );
    desk.cli.run(&fetch(path, &["--retry", ""])).fails(2).said("--retry");
    desk.cli.run(&fetch(path, &["--retry", "@nowhere.toml"])).fails(66).said("nowhere.toml");
    desk.cli.run(&fetch(path, &["--attempt-timeout", "0s"])).fails(2).said("--attempt-timeout");
    let file = "retryable = true\nmax_attempts = 0\nbackoff = { kind = \"fixed\", base = \"1s\" }\n\
                classifier = { retry_on = [\"unavailable\"] }\n";
    fs::write(desk.home.path().join("own.toml"), file).unwrap();
    let ran = desk.cli.run(&fetch(path, &["--retry", "@own.toml"])).fails(65);
    assert_eq!(
        ran.stderr,
        "error: max_attempts: 0 is no number of attempts\n \
         --> own.toml:2:16\n  \
         |\n\
         2 | max_attempts = 0\n  \
         |                ^\n  \
         |\n  \
         = help: write 1 to 100; the first attempt counts, so that 1 repeats nothing\n"
    );
    assert_eq!(count(path), 0);
}

#[test]
fn an_invalid_configuration_lists_every_line() {
    let desk = desk("");
    let config = desk.home.path().join("config.toml");
    fs::write(
        &config,
        "[retry]\nprofile = \"patien\"\n\n[retry.profiles.standard]\nretryable = true\nmax_attempts = 2\n\
         backoff = { kind = \"fixed\", base = \"1s\" }\nclassifier = { retry_on = [\"auth\"] }\n",
    )
    .unwrap();
    let ran = desk.cli.run(&fetch("/text/not-called", &[])).fails(65);
    let shown = ran.stderr.replace(&format!("{}/", desk.home.path().display()), "");
    assert_eq!(
        shown,
        "error: retry.profile: \"patien\" is not known\n \
         --> config.toml:2:11\n  \
         |\n\
         2 | profile = \"patien\"\n  \
         |           ^^^^^^^^\n  \
         |\n  \
         = help: did you mean \"patient\"? (there are: standard, patient, failover, failover-windowed, \
         deterministic, none)\n\n\
         error: retry.profiles.standard: \"standard\" is a built-in profile and cannot be redefined\n \
         --> config.toml:4:17\n  \
         |\n\
         4 | [retry.profiles.standard]\n  \
         |                 ^^^^^^^^\n  \
         |\n  \
         = help: give it another name\n\n\
         error: retry.profiles.standard.classifier.retry_on[0]: what ends with \"auth\" is never repeated\n \
         --> config.toml:8:28\n  \
         |\n\
         8 | classifier = { retry_on = [\"auth\"] }\n  \
         |                            ^^^^^^\n  \
         |\n  \
         = help: name some of network_error, timeout, rate_limited, unavailable, op_failed, refresh_unreachable, \
         wall_time\n"
    );
}

#[test]
fn ctrl_c_ends_a_wait_at_once() {
    let path = "/status/503?retry_after=200&ctrl-c";
    let allowed = shared_host().upstream.host_port();
    let args = fetch(path, &["--timeout", "5m", "--allow-private", &allowed]);
    let mut child =
        example_cli().command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let (_, wait) = line.rsplit_once("Retry 1/3 in ").unwrap();
    let seconds: f64 = wait.strip_suffix("s, as the service asks").unwrap().parse().unwrap();
    assert!((200.0..=230.0).contains(&seconds), "{line}");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let said: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(
        said.len() == 3 && said[0].contains("cancelled") && said[1].contains("record: audit-"),
        "{said:?}"
    );
    assert_eq!(count(path), 1);
}

#[test]
fn shells_complete_the_built_in_profiles() {
    for shell in ["bash", "zsh", "fish"] {
        let script = example_cli().run(&["completions", shell]).ok();
        assert!(script.contains("failover-windowed"), "{shell}");
    }
}

/// The result of a call of `probe` under `profile` with this attempt timeout: the failure, and the number of
/// attempts.
fn under(
    profile: &str,
    (op, args): (&str, Value),
    limits: (Option<u64>, Option<&str>, Option<&str>),
    attempt: Option<u64>,
) -> (cofferdam::Failure, usize) {
    let mut call = Call::new(example("probe"), op, args)
        .retry(shared_host().host.profile(profile).unwrap())
        .limits(LimitRequest::parse(limits.0, limits.1, limits.2).unwrap());
    if let Some(ms) = attempt {
        call = call.attempt_timeout(Duration::from_millis(ms));
    }
    let CallResult { outcome, report } = run(shared_host().host.run(call));
    (failed(outcome), report.attempts.len())
}

#[test]
fn only_timed_out_attempts_are_retried_in_time() {
    let plenty = (Some(200_000_000_000), Some("60s"), None);
    for (profile, op, attempts, stopped) in [
        ("deterministic", ("sleep", json!({"ms": 60_000})), 3, Some("max_attempts")),
        ("deterministic", ("spin", json!({})), 3, Some("max_attempts")),
        ("standard", ("sleep", json!({"ms": 60_000})), 1, None),
    ] {
        let (failure, made) = under(profile, op.clone(), plenty, Some(150));
        assert_eq!((failure.code(), made), ("wall_time", attempts), "{profile} {op:?}");
        assert_eq!(failure.details().get("configured"), Some(&json!(150)), "an attempt's time");
        assert_eq!(failure.details().get("of"), Some(&json!("attempt")));
        assert!(
            failure.message().starts_with("The attempt exceeded its wall_time limit of 150 ms"),
            "{failure}"
        );
        let said = failure.details().get("retry_stopped").and_then(Value::as_str);
        assert_eq!((said, failure.retriable()), (stopped, false), "{profile} {op:?}");
    }
    // Without a separate attempt timeout, the call's time is over.
    let (failure, made) =
        under("deterministic", ("sleep", json!({"ms": 60_000})), (None, Some("200ms"), None), None);
    assert_eq!((failure.code(), made), ("wall_time", 1));
    assert_eq!(failure.details().get("retry_stopped"), Some(&json!("wall_time")));
    assert_eq!(failure.details().get("of"), Some(&json!("call")));
    assert!(failure.message().starts_with("The call exceeded"), "{failure}");
    // A failure that would repeat itself is not retried.
    for (op, limits, code) in [
        (("eat_memory", json!({})), (None, Some("60s"), Some("8MiB")), "memory"),
        (("spin", json!({})), (Some(20_000_000), Some("60s"), None), "fuel"),
        (("panic", json!({"message": "x"})), plenty, "trap"),
    ] {
        let (failure, made) = under("deterministic", op, limits, Some(30_000));
        assert_eq!((failure.code(), made), (code, 1));
        assert_eq!(failure.details().get("retried"), None);
    }
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "local://hostile/*");
    let host = home.host();
    let recurses = hostile::installed(&host, &signer, "recurses").unwrap();
    let call = Call::new(recurses, "run", json!({})).retry(host.profile("deterministic").unwrap());
    let CallResult { outcome, report } = run(host.run(call));
    assert_eq!((failed(outcome).code(), report.attempts.len()), ("stack", 1));
}

#[test]
fn embedders_set_profiles_at_three_levels() {
    let second = Duration::from_secs(1);
    let schedule = RetrySchedule::new(3, Backoff::Linear, second, second * 9, Jitter::None).unwrap();
    let own =
        RetryProfile::new("own", schedule, &[cofferdam_core::failure::FailureCause::Unavailable]).unwrap();
    let settings = ResilienceSettings::default()
        .with_own_profile(own.into())
        .unwrap()
        .with_profile(RetryProfile::named("none").unwrap());
    let probe = example("probe");
    let settings_for_one =
        settings.clone().with_profile_for(probe.name().clone(), settings.profile("own").unwrap());
    for (settings, wished, expected) in [
        (&settings, None, vec![]),
        (&settings_for_one, None, vec![1_000, 2_000]),
        (&settings_for_one, Some("deterministic"), vec![1_000, 2_000]),
        (&settings_for_one, Some("none"), vec![]),
    ] {
        let clock = ManualClock::new();
        let host = shared_host().home.builder_at(&clock).resilience(settings.clone());
        let host = host.allow_private(shared_host().upstream.host_port()).build().unwrap();
        let url = shared_host().upstream.url("/status/500?embedders");
        let mut call = Call::new(probe.clone(), "fetch", json!({"url": url}));
        if let Some(name) = wished {
            call = call.retry(host.profile(name).unwrap());
        }
        failed(run(host.run(call)).outcome);
        assert_eq!(clock.waits_ms(), expected, "{wished:?}");
    }
    let unknown = refused::<()>(shared_host().host.profile("standrad").map(drop).map_err(Error::from));
    assert!(unknown.hint().is_some_and(|hint| hint.starts_with("Did you mean `standard`?")));
}

/// `[rate_limit]`, from the file to the failure that says what is agreed.
#[test]
fn the_rate_limit_holds_at_the_command_line() {
    let desk = desk("[rate_limit]\nrequests = 1\nper = \"1h\"\n");
    let url = format!("url={}", shared_host().upstream.url("/text/agreed"));
    let call = ["call", "github://cofferdam/probe", "fetch_many", "--arg", &url, "--arg", "times=2"];
    let ran = desk.cli.run(&[&call[..], &["--format", "json"]].concat()).fails(73);
    let error = &ran.envelope()["error"];
    assert_eq!(error["details"]["code"], "host_rate_limit", "{error}");
    assert_eq!(
        (&error["details"]["configured"], &error["details"]["period_ms"]),
        (&json!(1), &json!(3_600_000))
    );
    assert_eq!(count("/text/agreed"), 1);
}
