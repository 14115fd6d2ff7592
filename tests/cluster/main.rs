//! Many hosts on one store behave as one: hosts and workers are killed, servers restarted and connections cut while
//! clients make calls and run actions; then an independent checker judges what is left. docs/contributing/testing.md
//! says how to run it with another seed or size.
//!
//! It is a binary of its own, so that it has the machine to itself.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a failed assumption ends the test"
)]

mod client;
mod cluster;
mod faults;
mod fleet;
mod plan;
mod proof;
mod proxy;
mod rate;
mod run;
mod upstream;

/// The binary under test.
const COFFERDAM: &str = env!("CARGO_BIN_EXE_cofferdam");

/// True if this machine has PostgreSQL and NATS for tests; says, past the capture of a test's output, if it has not.
fn has_services() -> bool {
    use std::io::Write as _;
    let found = cofferdam_test_support::services::Tools::find();
    if let Err(why) = &found {
        assert!(
            !cofferdam_test_support::services::Tools::required(),
            "COFFERDAM_REQUIRE_SERVICES is set, and {why}"
        );
        let _ = writeln!(std::io::stderr(), "\nSKIPPED: no cluster is tried: {why}");
    }
    found.is_ok()
}
