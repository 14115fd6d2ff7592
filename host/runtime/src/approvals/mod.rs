//! Approvals: the rules that make a call wait for a person, and the requests of a host.

mod gate;
mod policy;

pub(crate) use gate::{ApprovalGate, denied, full, required, unavailable};
pub use policy::{ApprovalPolicy, CallFacts};
