//! Verification of an audit log.

mod finding;

pub use self::finding::{Accepted, Finding, Flaw};
