//! One call, start to end: verify and load, admit, attempt, record.

mod loader;
mod pipeline;
mod record;
mod request;
mod verify;

pub(crate) use loader::{Loader, REBUILD};
pub(crate) use pipeline::Pipeline;
pub use request::{Call, ConnectorRef};
pub(crate) use verify::{
    check_imports, check_limits, check_manifest_limits, check_signature, hash_mismatch, pin_mismatch,
};
