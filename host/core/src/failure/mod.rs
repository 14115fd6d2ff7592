//! The closed failure taxonomy: all failures of a call, each created by a constructor of its class.
//!
//! A [`Failure`] is the outcome of a call for callers and agents. Its fields are private, its constructors
//! are one per class and reserved for the host ([`privileged`](crate::privileged)), and it serializes to
//! exactly the envelope of the contract. Embedders cannot create or change one: a layer that forwards a
//! failure forwards it unchanged. Only the pipeline's actions (`retried`, `retry_stopped`, `retry_after_ms`,
//! `chain`) are added, and `retriable` is withdrawn where no other call may repeat the effect.

mod class;
mod context;
mod denial;
mod envelope;
mod external;
mod fault;
mod limit;
mod sealed;
mod text;

pub use class::{
    AbortedRequest, FailureBoundary, FailureCause, FailureClass, RESERVED_CLASSES, RepeatRule,
    UnkeyedRequest, UnrepeatableRequest,
};
pub use context::{AuditId, FailureContext, SignatureCode};
pub use denial::{Allowed, Denial, DenialBoundary, DenialCode, GrantLine, MissingBinding};
pub use envelope::{Failure, REPEAT_WITH_KEY, RetryStopped};
pub use external::{NetworkFault, RequestPhase, UpstreamFault};
pub use fault::{BindingCode, BindingProblem, CircuitOpen, RuntimeFault};
pub use limit::{DeadlineScope, LimitHit, LimitKind, LimitOwner};
pub use sealed::FailureSnapshot;
pub use text::{
    RecoveryPrompt, ascii_line, is_invisible, printable_json, sanitize_line, sanitize_lines, visible_json,
};
