//! Integration tests: the host, its command line and its packages from outside, one module a topic.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "tests: what does not hold ends the test"
)]

mod aborted;
mod actions;
mod attacks;
mod audit_queries;
mod bindings;
mod bombs;
mod boundaries;
mod breaker;
mod calls;
mod canary;
mod cancellation;
mod chain;
mod cli;
mod compile_fail;
mod concurrency;
mod credentials;
mod disk;
mod documents;
mod downgrade;
mod dsse;
mod each;
mod effects;
mod envelope;
mod explain;
mod failures;
mod faults_between;
mod features;
mod forgotten;
mod fuzz;
mod hoards;
mod hostile;
mod idempotency;
mod identity;
mod inputs;
mod install;
mod kept;
mod kills;
mod languages;
mod large_components;
mod layout;
mod limits;
mod loads;
mod mcp;
mod network;
mod outcomes;
mod panics;
mod private_files;
mod proofs;
mod proposals;
mod public_api;
mod rate;
mod record;
mod retries;
mod running;
mod serve;
mod services;
mod slips;
mod surface;
mod telemetry;
mod texts;
mod told;
mod two_shapes;
mod undeclared;
mod vault;
mod world;

/// The binary under test.
const COFFERDAM: &str = env!("CARGO_BIN_EXE_cofferdam");

/// Says, past the capture of a test's output, what is not checked on this machine.
fn skipped(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {why}");
}
