//! Many calls, in order: the steps of actions; those that a crash cut short, done again or left; and outcomes given
//! again.

pub(crate) mod actions;
mod found;
mod recover;
mod replay;

pub use actions::{
    ActionReport, ActionValue, Again, DryCall, DryRun, DryStep, Foretold, ListedAction, Once, Readiness,
    ReadyStep, ReadyTarget, Run, Runnable, ShelvedAction, StepReport, StepStatus,
};
pub use recover::{Incomplete, Skip};
pub(crate) use recover::{incomplete, look, resume, skip};
pub(crate) use replay::replay;
