//! Every limit, hit by a real guest: one table, and a kind without a row fails.

use std::collections::BTreeSet;
use std::time::Duration;

use cofferdam::{ActionScope, Call, ConnectorRef, Failure, Host, HostErrorKind, Usage};
use cofferdam_core::failure::LimitKind;
use cofferdam_core::limits;
use cofferdam_core::limits::LimitRequest;
use cofferdam_egress::resilience::{RateLimit, ResilienceSettings};
use cofferdam_runtime::call::CallResult;
use cofferdam_test_support::{Home, Signer, connector, log_capture, package};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::envelope::{check, limit};
use crate::hostile;
use crate::shared_host::{example, failed, refused, run, shared_host};

type Limits = (Option<u64>, Option<&'static str>, Option<&'static str>);

/// The host's default limits.
const DEFAULT: Limits = (None, None, None);

/// Fuel that outlasts the time.
const QUICK: Limits = (Some(200_000_000_000), Some("300ms"), None);

/// The guest that exceeds the limit.
enum Guest {
    /// An operation of the example `probe`, with its arguments.
    Probe(&'static str, Value),
    /// The same, on a host whose operator allows one request per hour.
    Slowed(&'static str, Value),
    /// A component of `tests/hostile`.
    Hostile(&'static str),
}

use Guest::{Hostile, Probe, Slowed};

/// One way into one limit, and the amount that was allowed.
struct Row(LimitKind, Guest, Limits, u64);

fn rows() -> Vec<Row> {
    use LimitKind as L;
    let upstream = |path: &str| shared_host().upstream.url(path);
    let mib = |amount: u64| amount << 20;
    let fetch = |path: &str| Probe("fetch", json!({"url": upstream(path)}));
    vec![
        Row(L::Fuel, Probe("spin", json!({})), (Some(20_000_000), None, None), 20_000_000),
        Row(L::Fuel, Hostile("spins-at-start"), (Some(5_000_000), None, None), 5_000_000),
        Row(L::WallTime, Probe("spin", json!({})), QUICK, 300),
        Row(L::WallTime, Probe("sleep", json!({"ms": 60_000})), QUICK, 300),
        Row(L::WallTime, fetch("/slow/60000"), QUICK, 300),
        Row(L::WallTime, Hostile("waits-for-ever"), QUICK, 300),
        Row(L::WallTime, Hostile("asks-for-randomness-for-ever"), QUICK, 300),
        Row(L::Memory, Probe("eat_memory", json!({})), DEFAULT, mib(64)),
        Row(L::Memory, Probe("eat_memory", json!({})), (None, None, Some("8MiB")), mib(8)),
        Row(L::Memory, Hostile("many-memories-that-add-up"), DEFAULT, mib(64)),
        Row(L::Memory, Hostile("grows-tables"), DEFAULT, mib(64)),
        Row(L::Memory, Hostile("starts-big"), DEFAULT, mib(64)),
        Row(L::Stack, Hostile("recurses"), DEFAULT, limits::STACK_BYTES as u64),
        Row(L::Tables, Hostile("many-tables"), DEFAULT, limits::TABLES as u64),
        Row(L::Memories, Hostile("many-memories"), DEFAULT, limits::MEMORIES as u64),
        Row(L::Instances, Hostile("many-instances"), DEFAULT, limits::INSTANCES as u64),
        Row(L::Instances, Hostile("many-adapters"), DEFAULT, limits::INSTANCES as u64),
        Row(L::Handles, Hostile("hoards-handles"), DEFAULT, limits::HANDLES as u64),
        Row(L::Handles, Hostile("makes-resources"), DEFAULT, limits::HANDLES as u64),
        Row(L::Handles, Hostile("lends-what-it-hoards"), DEFAULT, limits::HANDLES as u64),
        Row(L::HostTransfer, Hostile("huge-text"), DEFAULT, limits::HOST_TRANSFER_BYTES as u64),
        Row(L::HostTransfer, Hostile("logs-megabytes"), DEFAULT, limits::HOST_TRANSFER_BYTES as u64),
        Row(L::HostTransfer, Probe("random", json!({"bytes": 65_537})), DEFAULT, limits::RANDOM_BYTES as u64),
        Row(L::Payload, Probe("big_result", json!({"bytes": 5_000_000})), DEFAULT, mib(4)),
        Row(L::Payload, Probe("panic", json!({"message": "x".repeat(4 << 20)})), DEFAULT, mib(4)),
        Row(L::Requests, Probe("fetch_many", json!({"url": upstream("/text/x"), "times": 65})), DEFAULT, 64),
        Row(
            L::RequestBody,
            Probe("post_bytes", json!({"url": upstream("/text/post"), "bytes": mib(10) + 1})),
            DEFAULT,
            limits::REQUEST_BODY_BYTES,
        ),
        Row(L::ResponseBody, fetch("/bytes/10485761"), DEFAULT, limits::RESPONSE_BODY_BYTES),
        Row(
            L::RequestHeaders,
            Probe("fetch_with_fields", json!({"url": upstream("/echo"), "fields": 3, "length": 30_000})),
            DEFAULT,
            limits::HEADER_BYTES as u64,
        ),
        Row(L::RequestHeaders, Hostile("hoards-fields"), DEFAULT, limits::HEADER_BYTES as u64),
        Row(L::ResponseHeaders, fetch("/fields/3?bytes=30000"), DEFAULT, limits::HEADER_BYTES as u64),
        Row(L::ResponseFields, fetch("/fields/101"), DEFAULT, limits::RESPONSE_FIELDS),
        Row(L::Rate, Slowed("fetch_many", json!({"url": upstream("/text/x"), "times": 2})), DEFAULT, 1),
    ]
}

/// A host with the hostile components that the table names.
struct Stage {
    home: Home,
    signer: Signer,
    host: Host,
}

impl Stage {
    fn new() -> Self {
        log_capture::catch();
        let (home, signer) = (Home::new(COFFERDAM), Signer::new());
        home.trust(&signer.public(), "local://hostile/*");
        home.trust(&signer.public(), "github://cofferdam/*");
        let hourly = RateLimit::new(1, Duration::from_secs(3_600)).unwrap();
        let upstream = &shared_host().upstream;
        let builder = home.builder().allow_private(upstream.host_port());
        let host = builder.resilience(ResilienceSettings::default().with_rate(hourly)).build().unwrap();
        let probe = package::guest_package("probe", &[upstream.grant()]);
        run(home.install(&probe, &signer)).unwrap();
        Self { home, signer, host }
    }

    fn hostile(&self, name: &str) -> ConnectorRef {
        hostile::installed(&self.host, &self.signer, name).unwrap()
    }

    /// The failure of the row's call, and what it used.
    fn drive(&self, guest: &Guest, (fuel, wall_time, memory): Limits) -> (Failure, Option<Usage>) {
        let (host, call) = match guest {
            Probe(op, args) => (&shared_host().host, Call::new(example("probe"), *op, args.clone())),
            Slowed(op, args) => (&self.host, Call::new(example("probe"), *op, args.clone())),
            Hostile(name) => (&self.host, Call::new(self.hostile(name), "run", json!({}))),
        };
        let limits = LimitRequest::parse(fuel, wall_time, memory).unwrap();
        let CallResult { outcome, report } = run(host.run(call.limits(limits)));
        let usage = report.last_usage();
        (failed(outcome), usage)
    }
}

#[test]
fn every_limit_is_enforced_with_its_numbers() {
    let stage = Stage::new();
    let mut hit = BTreeSet::new();
    for Row(kind, guest, asked, configured) in rows() {
        let shown = match &guest {
            Probe(op, _) | Slowed(op, _) => format!("{} by probe {op}", kind.name()),
            Hostile(name) => format!("{} by {name}", kind.name()),
        };
        let (failure, usage) = stage.drive(&guest, asked);
        check(&failure, limit(kind.code()));
        let details = failure.details();
        assert_eq!(
            (&details["limit"], &details["configured"]),
            (&json!(kind.name()), &json!(configured)),
            "{shown}"
        );
        assert_eq!(details["unit"], kind.unit(), "{shown}");
        let used = details["used"].as_u64().unwrap();
        // Some resources cannot be exceeded, only exhausted; a rate-limited request is not used.
        let all = matches!(kind, LimitKind::Fuel | LimitKind::Stack | LimitKind::WallTime | LimitKind::Rate);
        assert!(used > configured || (all && used == configured), "{shown}: {used}");
        let record = log_capture::record_of(failure.audit_id().as_str());
        assert_eq!(record.get("code"), Some(kind.code()), "{shown}");
        // Arguments that are too large are refused before there is an attempt.
        let started = !matches!(guest, Probe("panic", _));
        assert_eq!(usage.is_some(), started, "{shown}");
        assert_eq!(record.get("fuel").is_some(), started, "{shown}");
        hit.insert(kind.name());
    }
    let missing: Vec<_> =
        LimitKind::ALL.iter().map(|kind| kind.name()).filter(|name| !hit.contains(name)).collect();
    assert!(missing.is_empty(), "no guest drives into {missing:?}: add a row");
    drop(stage.home);
}

#[test]
fn values_at_the_limit_pass() {
    let world = shared_host();
    let url = |path: &str| world.upstream.url(path);
    let fields = json!({"url": url("/text/ok"), "fields": 3, "length": 20_000});
    assert_eq!(world.value("probe", "fetch_with_fields", fields)["status"], 200);
    let body = json!({"url": url("/text/post"), "bytes": limits::REQUEST_BODY_BYTES});
    assert_eq!(world.value("probe", "post_bytes", body)["status"], 200);
    assert_eq!(
        world.upstream.seen("/text/post").last().unwrap().body.len() as u64,
        limits::REQUEST_BODY_BYTES
    );
    assert_eq!(world.value("probe", "fetch", json!({"url": url("/fields/90")}))["status"], 200);
    assert_eq!(world.value("probe", "fetch", json!({"url": url("/fields/2?bytes=30000")}))["status"], 200);
    assert!(world.value("probe", "random", json!({"bytes": 65_536})).is_string());
}

fn measured(op: &str, args: Value) -> (Value, Usage) {
    let CallResult { outcome, report } = run(shared_host().host.run(Call::new(example("probe"), op, args)));
    let usage = report.last_usage();
    (outcome.unwrap(), usage.unwrap())
}

#[test]
fn excess_guest_output_is_dropped_and_counted() {
    let (_, usage) = measured("log_flood", json!({"lines": 5_000, "length": 100}));
    assert_eq!((usage.log_lines, usage.log_lines_dropped), (1_000, 4_000));
    let (_, usage) = measured("stdout_flood", json!({"bytes": 1_000_000}));
    let kept = 2 * limits::STDIO_BYTES as u64;
    assert_eq!(usage.stdio_bytes, kept);
    // The guest's library has its own buffer, which it need not flush when the call ends.
    let written = usage.stdio_bytes + usage.stdio_bytes_dropped;
    assert!((1_990_000..=2_000_000).contains(&written), "{usage:?}");
    let (_, usage) = measured("stdout_flood", json!({"bytes": 10}));
    assert!((10..=20).contains(&usage.stdio_bytes), "{usage:?}");
    assert_eq!(usage.stdio_bytes_dropped, 0);
}

#[test]
fn dropped_and_truncated_log_lines_are_marked_once() {
    let marks = || {
        let dropped = |text: &str| text.contains("500 were omitted");
        log_capture::records(|record| record.get("message").is_some_and(dropped)).len()
    };
    let lines = |call: &str| {
        log_capture::records(|record| record.target == "cofferdam::guest" && record.get("call") == Some(call))
    };
    let call = Call::new(example("probe"), "log_flood", json!({"lines": 1_500, "length": 3}));
    let before = marks();
    run(shared_host().host.run(call)).outcome.unwrap();
    assert!(marks() > before);
    let flood = log_capture::records(|record| {
        record.get("op") == Some("log_flood") && record.get("log_lines_dropped") == Some("500")
    });
    let id = flood.last().unwrap().get("audit_id").unwrap().to_owned();
    let written = lines(&id);
    assert_eq!(written.len(), 1_001, "a thousand lines and one mark");
    let last = written.last().unwrap().get("message").unwrap();
    assert!(last.contains("more than 1000 lines; 500 were omitted"), "{last}");
    let run_once = Call::new(example("probe"), "log_flood", json!({"lines": 2, "length": 1_000_000}));
    run(shared_host().host.run(run_once)).outcome.unwrap();
    let long = log_capture::records(|record| {
        record.get("op") == Some("log_flood") && record.get("log_lines") == Some("2")
    });
    let written = lines(long.last().unwrap().get("audit_id").unwrap());
    assert_eq!(written.len(), 2);
    assert!(
        written
            .iter()
            .all(|line| line.get("message").unwrap().chars().count() <= limits::LOG_LINE_CHARS + 80)
    );
}

#[test]
fn successful_attempts_report_their_usage() {
    let url = shared_host().upstream.url("/bytes/5000");
    let (_, usage) = measured("fetch", json!({"url": url}));
    let line = "GET /bytes/5000 HTTP/1.1\r\n".len() as u64;
    assert_eq!((usage.requests, usage.bytes_in, usage.bytes_out), (1, 5_000, line));
    assert!(usage.fuel > 0 && usage.memory > 0 && !usage.wall_time.is_zero(), "{usage:?}");
    assert_eq!((usage.limits.fuel(), usage.limits.memory()), (30_000_000_000, 64 << 20));
    assert_eq!(usage.wall_limit_ms(), 30_000);
    let (_, usage) =
        measured("post", json!({"url": shared_host().upstream.url("/text/out"), "body": "12345"}));
    assert_eq!(usage.bytes_out, 5 + "POST /text/out HTTP/1.1\r\n".len() as u64);
    let (value, quiet) = measured("call_info", json!({}));
    assert_eq!(value["attempt"], 1);
    assert_eq!(quiet.memory_grows, 0, "nothing on the common path grows memory");
    let (_, hungry) = measured("stdout_flood", json!({"bytes": 0}));
    assert_eq!(hungry.memory_grows, 0);
    let failure = shared_host().failure("probe", "eat_memory", json!({}));
    let record = log_capture::record_of(failure.audit_id().as_str());
    assert!(record.get("memory_grows").unwrap().parse::<u64>().unwrap() > 0, "{record:?}");
    for field in ["fuel_limit", "memory_limit_bytes", "wall_limit_ms", "log_lines_dropped", "stdio_bytes"] {
        assert!(record.get(field).is_some(), "{field} is missing: {record:?}");
    }
}

#[test]
fn fuel_is_deterministic() {
    let world = shared_host();
    let signer = Signer::new();
    let other = Home::new(COFFERDAM);
    other.trust(&signer.public(), "github://cofferdam/*");
    let bytes = &world.packages.iter().find(|(name, _)| *name == "hello").unwrap().1;
    run(other.install(bytes, &signer)).unwrap();
    let fuel = |host: &Host| {
        let args = json!({"shapes": ["empty", {"circle": 2}]});
        let CallResult { outcome, report } = run(host.run(Call::new(example("hello"), "areas", args)));
        let usage = report.last_usage();
        outcome.unwrap();
        usage.unwrap().fuel
    };
    let first = fuel(&world.host);
    let other = other.host();
    let burnt: BTreeSet<u64> = (0..100).flat_map(|_| [fuel(&world.host), fuel(&other)]).collect();
    assert_eq!(burnt, BTreeSet::from([first]));
}

#[test]
fn invalid_limits_are_refused_by_name() {
    for (fuel, wall_time, memory, name) in [
        (Some(0), None, None, "fuel"),
        (None, Some("0s"), None, "wall_time"),
        (None, Some("-1s"), None, "wall_time"),
        (None, Some("18446744073709551615m"), None, "wall_time"),
        (None, Some("unlimited"), None, "wall_time"),
        (None, None, Some("0MiB"), "memory"),
        (None, None, Some("-64MiB"), "memory"),
        (None, None, Some("17179869184GiB"), "memory"),
    ] {
        let error = LimitRequest::parse(fuel, wall_time, memory).unwrap_err();
        assert!(error.to_string().starts_with(name), "{error}");
    }
    for (fuel, wall_time, memory, name) in [
        (Some(u64::MAX), None, None, "fuel"),
        (None, Some("6m"), None, "wall_time"),
        (None, None, Some("2GiB"), "memory"),
    ] {
        let limits = LimitRequest::parse(fuel, wall_time, memory).unwrap();
        let call = Call::new(example("hello"), "nothing", json!({})).limits(limits);
        let error = refused(run(shared_host().host.run(call)).outcome);
        assert_eq!(error.kind(), HostErrorKind::Validation);
        assert!(
            error.message().contains(name) && error.message().contains("the caller"),
            "{}",
            error.message()
        );
    }
}

#[test]
fn a_manifest_above_the_ceiling_is_refused() {
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "local://test/*");
    for (line, name) in [
        ("fuel = 300000000001", "fuel"),
        ("wall_time = \"6m\"", "wall_time"),
        ("memory = \"2GiB\"", "memory"),
    ] {
        let manifest = package::manifest("local://test/greedy", "1.0.0") + "\n[limits]\n" + line + "\n";
        let bytes = package::pack(&package::quiet(), &manifest);
        let error = refused(run(home.install(&bytes, &signer)));
        assert_eq!(error.kind(), HostErrorKind::Validation);
        let line = manifest.lines().position(|text| text.starts_with(name)).unwrap() + 1;
        let place = format!("connector.toml:{line}: limits.{name}");
        assert!(error.message().starts_with(&place), "{}", error.message());
    }
}

#[test]
fn limits_resolve_caller_action_manifest_default() {
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "local://test/*");
    for name in ["plain", "modest"] {
        let asks = "[limits]\nfuel = 7_000_000\nwall_time = \"7s\"\nmemory = \"7MiB\"\n";
        let full = format!("local://test/{name}");
        let manifest = package::manifest(&full, "1.0.0") + if name == "modest" { asks } else { "" };
        run(home.install(&package::pack(&package::quiet(), &manifest), &signer)).unwrap();
    }
    let none: Limits = DEFAULT;
    for (name, (fuel, wall_time, memory), expected) in [
        ("plain", none, (30_000_000_000, 30_000, 64 << 20)),
        ("plain", (None, Some("2s"), None), (2_000_000_000, 2_000, 64 << 20)),
        ("modest", none, (7_000_000, 7_000, 7 << 20)),
        ("modest", (Some(5_000_000), None, None), (5_000_000, 7_000, 7 << 20)),
        ("modest", (None, Some("9s"), None), (7_000_000, 9_000, 7 << 20)),
        ("modest", (None, None, Some("128MiB")), (7_000_000, 7_000, 128 << 20)),
        ("modest", (Some(1_000_000), Some("1s"), Some("1MiB")), (1_000_000, 1_000, 1 << 20)),
    ] {
        let connector = connector(&format!("local://test/{name}@1.0.0"));
        let limits = LimitRequest::parse(fuel, wall_time, memory).unwrap();
        let call = Call::new(connector, "run", json!({})).limits(limits);
        let CallResult { outcome, report } = run(home.host().run(call));
        outcome.unwrap();
        let usage = report.last_usage().unwrap();
        let got = (usage.limits.fuel(), usage.wall_limit_ms(), usage.limits.memory());
        assert_eq!(got, expected, "{name}");
    }
    let asks = LimitRequest::parse(Some(6_000_000), Some("6s"), None).unwrap();
    let scope = ActionScope::new("modest@1.0.0", ["run"], [""; 0]).unwrap().with_limits(asks);
    let call = Call::new(connector("local://test/modest@1.0.0"), "run", json!({})).within(scope);
    let caller = LimitRequest::parse(Some(5_000_000), None, None).unwrap();
    let CallResult { report, .. } = run(home.host().run(call.limits(caller)));
    let usage = report.last_usage();
    let usage = usage.unwrap();
    assert_eq!(
        (usage.limits.fuel(), usage.wall_limit_ms(), usage.limits.memory()),
        (5_000_000, 6_000, 7 << 20)
    );
}
