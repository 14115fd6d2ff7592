//! The failover record (002): its categories (P2, P3) and its waits (P10, P17), which are the profiles `failover` and
//! `failover-windowed`. What its circuits do is in `breaker`, and how it goes from one provider to the next in `chain`.

use std::sync::Arc;

use cofferdam::Fallback;
use cofferdam_core::limits::LimitRequest;
use cofferdam_core::rng::SeededRng;
use cofferdam_test_support::{Turn, Upstream, package};
use serde_json::{Map, Value};

use super::stage::{Own, fetch, profile, script};
use crate::envelope::{check, network, upstream};
use crate::world::example;

/// A status, its category's code, whether it may be repeated, and the waits in seconds.
type Row = (u16, &'static str, bool, &'static [u64]);

/// One server for each row: a circuit that one row opens is not another's.
fn walk(name: &str, rows: &[Row]) {
    let servers: Vec<_> = rows.iter().map(|_| Upstream::start()).collect();
    let own = Own::new(|builder, _| {
        let builder = builder.chance(Arc::new(SeededRng::new(2)));
        servers.iter().fold(builder, |builder, server| builder.allow_private(server.host_port()))
    });
    let grants: Vec<_> = servers.iter().map(Upstream::grant).collect();
    own.install(&package::with_hosts(&own.manifest(), &grants));
    for ((status, code, retriable, waits), server) in rows.iter().zip(&servers) {
        let (url, path) = script(server, [Turn::status(*status)]);
        let told = own.call(fetch(&url).retry(profile(name)));
        check(told.failure(), upstream(code, *retriable));
        let expected: Vec<_> = waits.iter().map(|seconds| seconds * 1_000).collect();
        assert_eq!(told.waits(), expected, "{name}: {status}");
        assert_eq!(server.seen(&path).len(), waits.len() + 1, "{name}: {status}");
    }
}

/// P2 and P10: index 0 sleeps for 1 and 2 s; what is permanent, unknown or another model's is thrown at once.
#[test]
fn p2_p10_the_table_of_categories() {
    walk(
        "failover",
        &[
            (401, "auth", false, &[]),
            (402, "payment_required", false, &[]),
            (429, "rate_limited", true, &[1, 2]),
            (408, "timeout", true, &[1, 2]),
            (503, "unavailable", true, &[1, 2]),
            (500, "unavailable", true, &[1, 2]),
            (529, "unavailable", true, &[1, 2]),
            (404, "not_found", false, &[]),
            (400, "bad_request", false, &[]),
            (418, "bad_request", false, &[]),
        ],
    );
}

/// P10: each provider of a chain is given more time than the one before: 1 and 2 s, 2 and 4, 4 and 8.
#[test]
fn p10_each_provider_waits_a_step_longer() {
    let servers: Vec<_> = (0..3).map(|_| Upstream::start()).collect();
    let own = Own::new(|builder, _| {
        servers.iter().fold(builder, |builder, server| builder.allow_private(server.host_port()))
    });
    let grants: Vec<_> = servers.iter().map(Upstream::grant).collect();
    own.install(&package::with_hosts(&own.manifest(), &grants));
    let scripts: Vec<_> = servers.iter().map(|server| script(server, [Turn::status(503)])).collect();
    let limits = LimitRequest::parse(None, Some("2m"), None).unwrap();
    let mut call = fetch(&scripts[0].0).retry(profile("failover")).limits(limits);
    for (url, _) in &scripts[1..] {
        let args = Map::from_iter([("url".to_owned(), Value::from(url.as_str()))]);
        call = call.or_else(Fallback::new(example("probe"), "fetch").with_args(args));
    }
    let told = own.call(call);
    check(told.failure(), upstream("unavailable", true));
    assert_eq!(told.waits(), [1_000, 2_000, 2_000, 4_000, 4_000, 8_000]);
    for (server, (_, path)) in servers.iter().zip(&scripts) {
        assert_eq!(server.seen(path).len(), 3);
    }
}

/// P17: after 2 and 4 s; a timeout is tried once more, and what is unavailable is left to the next provider at once.
#[test]
fn p17_the_table_of_the_windowed_profile() {
    walk(
        "failover-windowed",
        &[
            (401, "auth", false, &[]),
            (402, "payment_required", false, &[]),
            (429, "rate_limited", true, &[2, 4]),
            (408, "timeout", true, &[2]),
            (503, "unavailable", true, &[]),
            (500, "unavailable", true, &[]),
            (404, "not_found", false, &[]),
        ],
    );
}

/// P2: a request without an answer is of the category `timeout`.
#[test]
fn p2_p10_no_answer_at_all() {
    for (name, range) in [("failover", [1_000, 2_000]), ("failover-windowed", [2_000, 4_000])] {
        let own = Own::new(|builder, _| builder);
        own.install(&own.manifest());
        let (url, path) = script(&own.upstream, [Turn::hang_up()]);
        let told = own.call(fetch(&url).retry(profile(name)));
        check(told.failure(), network("closed", true));
        assert_eq!(told.waits(), range, "{name}");
        assert_eq!(own.upstream.seen(&path).len(), 3, "{name}");
    }
}

/// P3: the status decides, never a number in a text.
#[test]
fn p3_the_status_outranks_any_text() {
    let own = Own::new(|builder, _| builder);
    own.install(&own.manifest());
    // The path, which the answer repeats, is full of other statuses.
    let url = own.upstream.script("/status/500/and/503", [Turn::status(429)]);
    let told = own.call(fetch(&url).retry(profile("failover")));
    check(told.failure(), upstream("rate_limited", true));
    assert_eq!(told.attempts(), 3);
}
