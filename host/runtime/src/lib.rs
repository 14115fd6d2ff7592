//! Runs calls and actions of connectors: from a request to its recorded outcome. Embedders use the crate
//! `cofferdam`.

pub mod agent;
pub mod approvals;
pub mod call;
pub mod flow;
pub mod host;
mod log_errors;
#[cfg(feature = "prometheus")]
pub mod metrics;
