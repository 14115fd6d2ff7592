//! The set of connectors that a home should have, as two files: what is wanted, and exactly what was chosen.

mod lock_file;
mod requirements;
pub(super) mod resolve;

pub(super) use lock_file::{LockFile, LockedConnector};
pub(super) use requirements::{ConnectorRequirement, ConnectorSet};
