//! Runs one call from start to end: verify and load, admit, attempt, record.

mod action_record;
mod admit;
mod cancellation;
mod chain;
mod fingerprint;
mod foresee;
mod idempotency;
mod kept;
mod key_end;
mod loader;
mod on_record;
mod operator_view;
mod part;
mod pipeline;
mod record;
mod recording;
mod redact;
mod report;
mod request;
mod same;
mod settle;
mod spans;
mod tell;
mod told;
mod trail;
mod verify;
mod vet;

pub(crate) use action_record::{ActionRecord, Asked, Beginning, Running};
pub use cancellation::Cancellation;
pub(crate) use cancellation::cancelled;
pub use chain::Fallback;
pub(crate) use foresee::CallPreview;
pub(crate) use kept::Recorded;
pub use loader::{PackageLoader, REBUILD};
pub(crate) use part::PartOf;
pub(crate) use pipeline::{CallPipeline, PipelineParts, waiting_calls};
pub(crate) use recording::{RecordSettings, Recording};
pub use report::{AttemptOutcome, AttemptReport, Report};
pub use request::{Call, ConnectorRef, OnKeyConflict};
pub(crate) use request::{KEY_BYTES, actor_name, check_key};
pub use spans::TARGET as SPANS;
pub(crate) use verify::{
    check_bytes, check_imports, check_limits, check_manifest_limits, check_signature, hash_mismatch,
    pin_mismatch,
};
