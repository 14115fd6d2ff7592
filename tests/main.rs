//! Integration tests: the host, its command line and its packages from outside, one module a topic.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a failed assumption ends the test"
)]

mod aborted;
mod actions;
mod actions_run;
mod active_version;
mod approvals;
mod attacks;
mod attempt_facts;
mod audit_log;
mod audit_queries;
mod audit_verify;
mod batch;
mod bindings;
mod bombs;
mod boundaries;
mod breaker;
mod call_text;
mod calls;
mod canary;
mod cancellation;
mod cli;
mod cli_errors;
mod compile_fail;
mod concurrency;
mod connector_set;
mod consent;
mod contract;
mod credentials;
mod deploy;
mod dev;
mod diff;
mod disk;
mod docs;
mod documents;
mod downgrade;
mod dsse;
mod envelope;
mod error_envelopes;
mod explain;
mod failures;
mod fallback;
mod faulty_proxy;
mod features;
mod fuzz;
mod host_memory;
mod hostile;
mod idempotency;
mod identity;
mod install;
mod jobs;
mod keys;
mod kills;
mod languages;
mod large_components;
mod layout;
mod limits;
mod load_cache;
mod loading;
mod mcp;
mod network;
mod new;
mod openapi;
mod outcomes;
mod panics;
mod parsers;
mod private_files;
mod provenance;
mod public_api;
mod rate;
mod read_only;
mod registry;
mod reporting;
mod retries;
mod scale;
mod scenarios;
mod serve;
mod services;
mod shared_host;
mod shared_limits;
mod surface;
mod telemetry;
mod tidy;
mod trace;
mod undeclared;
mod update_attacks;
mod vault;
mod verify_script;
mod wasm_features;

use cofferdam_test_support::services::Tools;

/// The binary under test.
const COFFERDAM: &str = env!("CARGO_BIN_EXE_cofferdam");

/// The servers and tools of this machine; none where they are not installed, which is said with `what` is not tried.
fn tools(what: &str) -> Option<Tools> {
    match Tools::find() {
        Ok(tools) => Some(tools),
        Err(why) => {
            assert!(!Tools::required(), "COFFERDAM_REQUIRE_SERVICES is set, and {why}");
            skipped(&format!("{what} is not tried: {why}"));
            None
        }
    }
}

/// Says, past the capture of a test's output, what is not checked on this machine.
fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {why}");
}
