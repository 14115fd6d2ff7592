//! Work that waits: jobs on a NATS JetStream work queue.
//!
//! A job is a call or an action with its idempotency key. Three streams have everything: the queue itself, whose
//! messages are removed when they are acknowledged; the dead letters; and the newest record of each job. A worker runs a
//! job under its key and acknowledges it when the outcome is durable in the audit log. The log alone says what was done:
//! a job that is delivered twice, because a worker died or an acknowledgement was lost, is run twice under one key, and
//! so has one effect. The record of a job says what the log does not have: that it waits, for what, and since when.
//!
//! Messages are authenticated with a key of the cluster (`authentication.rs`). A message that is not the cluster's own is
//! removed and counted, and never run.

mod authentication;
mod connection;
mod delivery;
mod disposition;
mod log_view;
mod message;
mod metrics;
mod queue;
mod record;
mod service;
mod settings;
#[cfg(test)]
mod tests;
mod worker;

pub use authentication::{JobAuthenticator, JobId};
pub use metrics::JobMetrics;
pub use queue::JobQueue;
pub use service::Jobs;
pub use settings::{JobSettings, JobTrace, NatsLogin};
pub use worker::{Worker, WorkerSettings};
