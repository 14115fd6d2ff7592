//! Many calls, in order: those that a crash cut short, done again or left; and outcomes given again.

mod actions;
mod found;
mod recover;
mod replay;

pub use actions::{
    ActionReport, ActionValue, DryCall, DryRun, DryStep, Foretold, Run, StepReport, StepStatus,
};
pub(crate) use actions::{Runnable, dry_run, run};
pub use recover::{Incomplete, Skip};
pub(crate) use recover::{incomplete, look, resume, skip};
pub(crate) use replay::replay;
