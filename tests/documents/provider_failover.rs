//! The failover record (002): its categories and its waits, which are the profiles `failover` and
//! `failover-windowed`. Its circuits are tested in `breaker`, and its order of providers in `fallback`.

use std::sync::Arc;

use cofferdam::Fallback;
use cofferdam_core::limits::LimitRequest;
use cofferdam_core::rng::SeededRng;
use cofferdam_test_support::{ScriptedReply, Upstream, package};
use serde_json::{Map, Value};

use super::fixture::{SeparateHome, fetch, profile, script};
use crate::envelope::{check, network, upstream};
use crate::shared_host::example;

/// A status, its category's code, whether it may be repeated, and the waits in seconds.
type Row = (u16, &'static str, bool, &'static [u64]);

/// One server for each row: a circuit that one row opens is not another's.
fn walk(name: &str, rows: &[Row]) {
    let servers: Vec<_> = rows.iter().map(|_| Upstream::start()).collect();
    let own = SeparateHome::new(|builder, _| {
        let builder = builder.rng(Arc::new(SeededRng::new(2)));
        servers.iter().fold(builder, |builder, server| builder.allow_private(server.host_port()))
    });
    let grants: Vec<_> = servers.iter().map(Upstream::grant).collect();
    own.install(&package::with_hosts(&own.manifest(), &grants));
    for ((status, code, retriable, waits), server) in rows.iter().zip(&servers) {
        let (url, path) = script(server, [ScriptedReply::status(*status)]);
        let told = own.call(fetch(&url).retry(profile(name)));
        check(told.failure(), upstream(code, *retriable));
        let expected: Vec<_> = waits.iter().map(|seconds| seconds * 1_000).collect();
        assert_eq!(told.waits(), expected, "{name}: {status}");
        assert_eq!(server.seen(&path).len(), waits.len() + 1, "{name}: {status}");
    }
}

/// Index 0 sleeps for 1 and 2 s; permanent and unknown failures, and those of another model, are returned at
/// once.
#[test]
fn failover_profile_category_table() {
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

/// Each provider of a chain gets more time than the one before: 1 and 2 s, 2 and 4, 4 and 8.
#[test]
fn each_fallback_provider_waits_longer() {
    let servers: Vec<_> = (0..3).map(|_| Upstream::start()).collect();
    let own = SeparateHome::new(|builder, _| {
        servers.iter().fold(builder, |builder, server| builder.allow_private(server.host_port()))
    });
    let grants: Vec<_> = servers.iter().map(Upstream::grant).collect();
    own.install(&package::with_hosts(&own.manifest(), &grants));
    let scripts: Vec<_> = servers.iter().map(|server| script(server, [ScriptedReply::status(503)])).collect();
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

/// After 2 and 4 s; a timeout is tried once more, and an unavailable service is left to the next provider at
/// once.
#[test]
fn windowed_failover_profile_table() {
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

/// A request without a response is of the category `timeout`.
#[test]
fn a_missing_response_is_retried_by_failover() {
    for (name, range) in [("failover", [1_000, 2_000]), ("failover-windowed", [2_000, 4_000])] {
        let own = SeparateHome::new(|builder, _| builder);
        own.install(&own.manifest());
        let (url, path) = script(&own.upstream, [ScriptedReply::hang_up()]);
        let told = own.call(fetch(&url).retry(profile(name)));
        check(told.failure(), network("closed", true));
        assert_eq!(told.waits(), range, "{name}");
        assert_eq!(own.upstream.seen(&path).len(), 3, "{name}");
    }
}

/// The status decides, never a number in a text.
#[test]
fn the_status_outranks_the_text() {
    let own = SeparateHome::new(|builder, _| builder);
    own.install(&own.manifest());
    // The path, which the answer repeats, is full of other statuses.
    let url = own.upstream.script("/status/500/and/503", [ScriptedReply::status(429)]);
    let told = own.call(fetch(&url).retry(profile("failover")));
    check(told.failure(), upstream("rate_limited", true));
    assert_eq!(told.attempts(), 3);
}
