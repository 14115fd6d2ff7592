//! Arbitrary server responses in any order: no call is attempted too often, waits past its deadline, or reports
//! anything other than the server's response.

use std::time::{Duration, Instant};

use cofferdam::{Call, Error};
use cofferdam_core::limits::LimitRequest;
use cofferdam_egress::resilience::{PROFILES, ResilienceSettings, RetryProfile};
use cofferdam_test_support::{ScriptedReply, Upstream, package};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::Value;

use crate::documents::fixture::{CallRecord, SeparateHome, fetch, order, profile, script};

/// The server's reaction to one request.
#[derive(Debug, Clone)]
enum Does {
    Answers(u16, Option<&'static str>),
    HangsUp,
}

/// A call: under which profile, within what time, what is called, and what the server does.
#[derive(Debug, Clone)]
struct Case {
    profile: &'static str,
    wall_time: Option<&'static str>,
    call: &'static str,
    does: Vec<Does>,
}

fn does() -> impl Strategy<Value = Does> {
    let status = prop::sample::select(&[200, 200, 500, 503, 503, 429, 429, 408, 401, 402, 404, 400][..]);
    let after = prop::sample::select(
        &[None, None, None, Some("0"), Some("1"), Some("7"), Some("29"), Some("1000000000"), Some("soon")][..],
    );
    prop_oneof![
        5 => (status, after).prop_map(|(status, after)| Does::Answers(status, after)),
        1 => Just(Does::HangsUp),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    (
        prop::sample::select(&PROFILES[..]),
        prop::sample::select(&[None, Some("8s"), Some("30s"), Some("280s")][..]),
        prop::sample::select(&["fetch", "order", "order_once", "order, as what must not be repeated"][..]),
        prop::collection::vec(does(), 1..9),
    )
        .prop_map(|(profile, wall_time, call, does)| Case { profile, wall_time, call, does })
}

impl Case {
    fn may_be_repeated(&self) -> bool {
        matches!(self.call, "fetch" | "order")
    }

    fn wall_time(&self) -> Duration {
        let own = RetryProfile::named(self.profile).unwrap().times().wall_time;
        let asked =
            self.wall_time.map(|text| Duration::from_secs(text.trim_end_matches('s').parse().unwrap()));
        asked.or(own).unwrap_or(Duration::from_secs(30))
    }

    /// The reaction to the n-th request, from 1.
    fn does(&self, n: usize) -> &Does {
        self.does.get(n - 1).or(self.does.last()).unwrap()
    }

    /// The number of attempts if no wait is too long: given only by the profile's rule for each cause.
    fn attempts(&self) -> usize {
        use cofferdam_core::failure::FailureCause;
        for n in 1.. {
            let cause = match self.does(n) {
                Does::Answers(status, _) if *status < 400 => return n,
                Does::Answers(status, _) => FailureCause::from_status(*status),
                Does::HangsUp => FailureCause::Network,
            };
            let profile = RetryProfile::named(self.profile).unwrap();
            let most = profile.schedule(cause).map_or(1, |schedule| schedule.max_attempts() as usize);
            if !self.may_be_repeated() || n >= most {
                return n;
            }
        }
        unreachable!()
    }

    fn check(&self, told: &CallRecord, seen: &[cofferdam_test_support::ReceivedRequest], took: Duration) {
        let attempts = told.attempts();
        let profile = RetryProfile::named(self.profile).unwrap();
        assert!((1..=profile.max_attempts() as usize).contains(&attempts), "{attempts} attempts");
        assert_eq!(seen.len(), attempts, "each attempt is one request");
        assert!(self.may_be_repeated() || attempts == 1);
        assert_eq!(told.waits().len(), attempts - 1);
        let waited = Duration::from_millis(told.waits().iter().sum());
        assert!(waited < self.wall_time(), "{waited:?} were waited");

        let mut keys: Vec<_> = seen.iter().filter_map(|seen| seen.header("idempotency-key")).collect();
        keys.dedup();
        assert_eq!(keys.len(), usize::from(self.call != "fetch"), "one key for all attempts: {keys:?}");

        // The outcome is what the server did last, and all before it were failures.
        let last = self.does(attempts);
        for n in 1..attempts {
            assert!(!matches!(self.does(n), Does::Answers(..400, _)), "a good answer was thrown away");
        }
        let (failure, status) = match (&told.outcome, last) {
            (Ok(value), Does::Answers(status @ ..400, _)) => {
                assert_eq!(value["status"], *status);
                assert_eq!(attempts, self.attempts());
                return;
            }
            (Err(Error::Failure(failure)), Does::Answers(status @ 400.., _)) => (failure, Some(*status)),
            (Err(Error::Failure(failure)), Does::HangsUp) => (failure, None),
            (outcome, last) => panic!("{outcome:?}, and the server: {last:?}"),
        };
        let class = if status.is_some() { "external_api_error" } else { "network_error" };
        assert_eq!(failure.class().name(), class);
        let details = failure.details();
        assert_eq!(details.get("status").and_then(Value::as_u64), status.map(u64::from));
        // An order was sent, and only the key of its call keeps it from being made twice.
        let is_read = self.call == "fetch";
        assert!(is_read || !failure.retriable());
        let key = details.get("repeat_with_key").and_then(Value::as_str);
        assert!(key.is_none_or(|key| self.call == "order" && key == told.report.audit_id.as_str()));
        let stopped = details.get("retry_stopped").and_then(Value::as_str);
        assert!(stopped.is_none() || is_read != key.is_some(), "{details:?}");
        match stopped {
            // The next wait would not have ended in time: not with what was waited, and what the attempts took.
            Some("wall_time") => {
                assert!(attempts <= self.attempts());
                let next = details.get("retry_after_ms").and_then(Value::as_u64);
                assert_eq!(next.is_some(), is_read, "{details:?}");
                if let Some(next) = next.map(|ms| Duration::from_millis(ms + 1)) {
                    assert!(waited + took + next >= self.wall_time(), "{next:?} would have fitted");
                }
            }
            Some("max_attempts") => assert_eq!(attempts, self.attempts()),
            None => assert_eq!(attempts, self.attempts()),
            Some(other) => panic!("stopped by {other}"),
        }
        let retried = details.get("retried").and_then(Value::as_u64).unwrap_or(0);
        assert_eq!(retried as usize, attempts - 1);
    }
}

impl Case {
    /// The call, and the path at which `upstream` follows the case's script.
    fn begin(&self, upstream: &Upstream) -> (Call, String) {
        let turns = self.does.iter().map(|does| match does {
            Does::Answers(status, None) => ScriptedReply::status(*status),
            Does::Answers(status, Some(after)) => ScriptedReply::after(*status, *after),
            Does::HangsUp => ScriptedReply::hang_up(),
        });
        let (url, path) = script(upstream, turns);
        let call = match self.call {
            "fetch" => fetch(&url),
            "order_once" => order("order_once", &url),
            "order" => order("order", &url),
            _ => order("order", &url).not_idempotent(),
        };
        let limits = LimitRequest::parse(None, self.wall_time, None).unwrap();
        (call.retry(profile(self.profile)).limits(limits), path)
    }
}

/// Walks cases that are the same in every run, and calls `check` for each.
fn walk<S: Strategy>(cases: u32, strategy: S, check: impl Fn(S::Value)) {
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(20_261_122),
        failure_persistence: None,
        max_shrink_iters: 60,
        ..Config::default()
    };
    let ran = TestRunner::new(config).run(&strategy, |case| {
        check(case);
        Ok(())
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
}

/// Without circuits, so that calls are independent.
#[test]
fn outcomes_match_the_servers_responses() {
    let own =
        SeparateHome::new(|builder, _| builder.resilience(ResilienceSettings::default().with_breaker(None)));
    own.install(&own.manifest());
    walk(160, case(), |case| {
        let (call, path) = case.begin(&own.upstream);
        let begun = Instant::now();
        let told = own.call(call);
        case.check(&told, &own.upstream.seen(&path), begun.elapsed());
    });
}

/// With the circuits of some profiles, in any state left by earlier calls: they only ever reduce the requests,
/// and a value is still the server's response.
#[test]
fn circuits_never_cause_more_requests() {
    let servers: Vec<_> = (0..6).map(|_| Upstream::start()).collect();
    let own = SeparateHome::new(|builder, _| {
        servers.iter().fold(builder, |builder, server| builder.allow_private(server.host_port()))
    });
    let grants: Vec<_> = servers.iter().map(Upstream::grant).collect();
    own.install(&package::with_hosts(&own.manifest(), &grants));
    let pause = prop::sample::select(&[0, 1, 29, 61, 200, 4_000][..]);
    walk(90, (case(), 0..servers.len(), pause), |(case, server, pause)| {
        let server = &servers[server];
        own.clock.skip(Duration::from_secs(pause));
        let (call, path) = case.begin(server);
        let told = own.call(call);
        let seen = server.seen(&path);
        assert!(seen.len() <= case.attempts() && told.attempts() <= case.attempts());
        assert!(case.may_be_repeated() || seen.len() <= 1);
        let waited = Duration::from_millis(told.waits().iter().sum());
        assert!(waited < case.wall_time(), "{waited:?} were waited");
        match &told.outcome {
            Ok(value) => match case.does(seen.len()) {
                Does::Answers(status, _) => assert_eq!(value["status"], *status),
                Does::HangsUp => panic!("a value of nothing"),
            },
            Err(Error::Failure(failure)) if failure.code() == "circuit_open" => {
                assert_eq!((seen.len(), told.attempts()), (0, 1), "it fails at once");
                assert_eq!(failure.details()["request_sent"], false);
            }
            Err(Error::Failure(_)) => assert_eq!(seen.len(), told.attempts()),
            Err(Error::Host(error)) => panic!("{error}"),
        }
    });
}
