//! What an action declares of a connector it calls: a subset of what the connector is granted.
//!
//! The files that actions are written in are not read yet; what one declares can be given with a call.

mod scope;

pub use crate::document::Refused as ScopeError;
pub use scope::ActionScope;
