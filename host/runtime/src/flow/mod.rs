//! Sequences of calls: the steps of actions, the recovery of calls that a crash interrupted, and the replay of
//! outcomes.

pub(crate) mod actions;
mod recorded_call;
mod recover;
mod replay;

pub use actions::{
    ActionPreview, ActionReport, ActionResult, ActionValue, CheckedAction, CheckedStep, DryCall, DryRun,
    DryStep, ListedAction, NonIdempotentReason, Readiness, ReadyTarget, RepeatAdvice, RunRequest, StepReport,
    StepStatus, StoredAction,
};
pub use recover::{IncompleteCall, SkipRequest};
pub(crate) use recover::{incomplete, incomplete_call, resume, skip};
pub(crate) use replay::replay;
