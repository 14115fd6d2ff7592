//! One call, start to end: verify and load, admit, attempt, record.

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
pub use chain::Alternate;
pub(crate) use foresee::Foreseen;
pub(crate) use kept::Recorded;
pub use loader::{Loader, REBUILD};
pub(crate) use part::PartOf;
pub(crate) use pipeline::{Pipeline, PipelineParts, waiting_calls};
pub(crate) use recording::{RecordSettings, Recording};
pub use report::{AttemptOutcome, AttemptReport, Report};
pub use request::{Call, ConnectorRef, IfRunning};
pub(crate) use request::{KEY_BYTES, actor_name, check_key};
pub use spans::TARGET as SPANS;
pub(crate) use verify::{
    check_bytes, check_imports, check_limits, check_manifest_limits, check_signature, hash_mismatch,
    pin_mismatch,
};
