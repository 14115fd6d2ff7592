//! Runs one call from start to end: verify and load, admit, attempt, record.

mod action_progress;
mod admit;
mod approval;
mod audit_context;
mod call_progress;
mod dry_run;
mod fallback;
mod idempotency;
mod loader;
mod pipeline;
mod recorder;
mod redact;
mod report;
mod request;
mod sealed_payload;
mod spans;
mod verify;

pub(crate) use action_progress::{ActionApproval, ActionIdentity, ActionProgress, ActionStart, StepStart};
pub(crate) use audit_context::{AuditContext, AuditSettings};
pub(crate) use dry_run::CallPreview;
pub use fallback::Fallback;
pub use idempotency::may_end_otherwise;
pub use loader::{PackageLoader, REBUILD_INDEX_HINT};
pub(crate) use pipeline::{CallPipeline, PipelineParts, waiting_calls};
pub use report::{AttemptOutcome, AttemptReport, CallResult, Report};
pub(crate) use request::{ActionContext, actor_name, cancelled, check_key};
pub use request::{Call, Cancellation, ConnectorRef, OnKeyConflict};
pub(crate) use sealed_payload::RecordedOutcome;
pub use spans::TARGET as SPANS;
pub(crate) use verify::{
    CheckedPackage, check_bytes, check_imports, check_limits, check_manifest_limits, check_signature,
    hash_mismatch, pin_mismatch,
};
