//! One call, start to end: verify and load, admit, attempt, record.

mod admit;
mod cancellation;
mod chain;
mod loader;
mod on_record;
mod pipeline;
mod record;
mod report;
mod request;
mod same;
mod trail;
mod verify;
mod vet;

pub use cancellation::Cancellation;
pub use chain::Alternate;
pub(crate) use loader::{Loader, REBUILD};
pub(crate) use pipeline::{Pipeline, PipelineParts};
pub use report::{AttemptOutcome, AttemptReport, Report};
pub use request::{Call, ConnectorRef};
pub(crate) use verify::{
    check_imports, check_limits, check_manifest_limits, check_signature, hash_mismatch, pin_mismatch,
};
