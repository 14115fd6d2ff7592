//! Actions: their steps run one after the other, or told beforehand.

mod ask;
mod check;
mod dry_run;
mod outcome;
mod report;
mod run;
mod step;

pub use ask::Run;
pub(crate) use check::Runnable;
pub(crate) use dry_run::dry_run;
pub use dry_run::{DryCall, DryRun, DryStep, Foretold};
pub use outcome::ActionValue;
pub use report::{ActionReport, StepReport, StepStatus};
pub(crate) use run::run;
