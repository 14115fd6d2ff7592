//! The closed failure taxonomy: what a call can fail with, made once, by a constructor of its class.
//!
//! A [`Failure`] is the outcome of a call for callers and agents. Its fields are private, its
//! constructors are one per class and the host's own ([`privileged`](crate::privileged)), and it serialises to
//! exactly the envelope of the contract. No embedder can make or change one: a layer that passes a
//! failure on passes it on as it is. What the pipeline did about it (`retried`, `retry_stopped`,
//! `retry_after_ms`, `chain`) is the one thing that is added.

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
mod restored;
mod retried;
mod runtime;
mod text;

pub use binding::{BindingCode, BindingProblem};
pub use cause::Cause;
pub use circuit::CircuitOpen;
pub use class::{Boundary, FailureClass, RESERVED_CLASSES};
pub use context::{AuditId, Context};
pub use denial::{Denial, DenialBoundary, DenialCode};
pub use envelope::Failure;
pub use external::{NetworkFault, Phase, UpstreamFault};
pub use grant::{GrantLine, MissingBinding, Permit};
pub use identity::SignatureCode;
pub use limit::{LimitHit, LimitKind, LimitOwner, TimeOf};
pub use prompt::Prompt;
pub use repeat::{RepeatRule, UnkeyedRequest, Unrepeatable};
pub use restored::WholeFailure;
pub use retried::RetryStopped;
pub use runtime::RuntimeFault;
pub use text::safe_lines;
pub use text::{ascii_line, safe_line};
pub use text::{printable_json, visible_json};
