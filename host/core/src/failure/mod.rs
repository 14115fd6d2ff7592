//! The closed failure taxonomy: all failures of a call, each created by a constructor of its class.
//!
//! A [`Failure`] is the outcome of a call for callers and agents. Its fields are private, its constructors
//! are one per class and reserved for the host ([`privileged`](crate::privileged)), and it serializes to
//! exactly the envelope of the contract. Embedders cannot create or change one: a layer that forwards a
//! failure forwards it unchanged. Only the pipeline's actions (`retried`, `retry_stopped`, `retry_after_ms`,
//! `chain`) are added.

mod annotations;
mod binding;
mod cause;
mod circuit;
mod class;
mod context;
mod denial;
mod envelope;
mod external;
mod grant;
mod identity;
mod limit;
mod prompt;
mod repeat;
mod runtime;
mod sealed;
mod text;

pub use annotations::RetryStopped;
pub use binding::{BindingCode, BindingProblem};
pub use cause::FailureCause;
pub use circuit::CircuitOpen;
pub use class::{FailureBoundary, FailureClass, RESERVED_CLASSES};
pub use context::{AuditId, FailureContext};
pub use denial::{Denial, DenialBoundary, DenialCode};
pub use envelope::Failure;
pub use external::{NetworkFault, RequestPhase, UpstreamFault};
pub use grant::{Allowed, GrantLine, MissingBinding};
pub use identity::SignatureCode;
pub use limit::{DeadlineScope, LimitHit, LimitKind, LimitOwner};
pub use prompt::RecoveryPrompt;
pub use repeat::{RepeatRule, UnkeyedRequest, UnrepeatableRequest};
pub use runtime::RuntimeFault;
pub use sealed::FailureSnapshot;
pub use text::sanitize_lines;
pub use text::{ascii_line, sanitize_line};
pub use text::{printable_json, visible_json};
