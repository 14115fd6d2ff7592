//! Many hosts with one truth: the audit log in PostgreSQL, shared state, and jobs on NATS JetStream.
//!
//! Only the command line uses this crate, behind its cargo feature `cluster`: an embedder compiles nothing of it.

pub mod audit_log;
pub mod database;
pub mod jobs;
pub mod shared_state;
