//! The credential broker: decides which bindings a call of a connector uses and which credentials its
//! requests carry.
//!
//! A binding is used only where three parties agree: the manifest asks for it and for that host, the binding
//! lists the connector and that host, and the call or its action chose its identity (`default` without a
//! choice). Everything that can be decided before the guest starts is decided then.

mod attempt;
mod broker;
mod oauth;
mod problem;
mod resolved_binding;

pub use broker::{BrokerSettings, CallCredentials, CredentialBroker, CredentialError};
pub use oauth::{RenewalError, RenewalFuture, RenewalRight, RenewalStore, SharedRenewals, StoredRenewal};
pub use problem::allow_command;
pub use resolved_binding::IdentitySelection;
