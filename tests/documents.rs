//! The statements of each of this project's source documents about failing calls, row by row through the real
//! pipeline: a real guest, a real server, and a clock that skips the waits.

#[path = "documents/error_model.rs"]
mod error_model;
#[path = "documents/error_recovery.rs"]
mod error_recovery;
#[path = "documents/error_standard.rs"]
mod error_standard;
#[path = "documents/examples.rs"]
mod examples;
#[path = "documents/failure_model.rs"]
mod failure_model;
#[path = "documents/fixture.rs"]
pub(crate) mod fixture;
#[path = "documents/provider_failover.rs"]
mod provider_failover;
#[path = "documents/retry_after.rs"]
mod retry_after;
