//! cofferdam: a host for third-party connectors.

pub mod clock;
pub mod digest;
mod document;
pub mod error;
pub mod failure;
pub mod limits;
pub mod manifest;
pub mod package;
pub mod registry;
pub mod trust;
