//! The broker: which bindings a call of a connector uses, and what its requests carry of them.
//!
//! A binding is used only where three agree: the manifest asks for it and for that host, the binding lists
//! the connector and that host, and the call (or its action) chose its identity, or nobody chose another than
//! `default`. Everything that can be decided before the guest starts is decided then.

mod attempt;
mod bound;
mod broker;
mod choice;
mod handles;
mod oauth;
mod problem;

pub use broker::{Broker, BrokerSettings, CallCredentials, Refused};
pub use choice::Choice;
pub use problem::allow_command;
