//! Runs one call from start to end: verify and load, admit, attempt, record.

mod action_record;
mod admit;
mod dry_run;
mod fallback;
mod idempotency;
mod kept;
mod loader;
mod on_record;
mod pipeline;
mod record;
mod recording;
mod redact;
mod report;
mod request;
mod spans;
mod tell;
mod told;
mod verify;

pub(crate) use action_record::{ActionRecord, Asked, Beginning, Running};
pub(crate) use dry_run::CallPreview;
pub use fallback::Fallback;
pub(crate) use kept::Recorded;
pub use loader::{PackageLoader, REBUILD_INDEX_HINT};
pub(crate) use pipeline::{CallPipeline, PipelineParts, waiting_calls};
pub(crate) use recording::{RecordSettings, Recording};
pub use report::{AttemptOutcome, AttemptReport, CallResult, Report};
pub(crate) use request::{ActionContext, KEY_BYTES, actor_name, cancelled, check_key};
pub use request::{Call, Cancellation, ConnectorRef, OnKeyConflict};
pub use spans::TARGET as SPANS;
pub(crate) use verify::{
    check_bytes, check_imports, check_limits, check_manifest_limits, check_signature, hash_mismatch,
    pin_mismatch,
};
