//! Actions: stored as files, checked against the installed connectors before any of them runs, and then run step by
//! step or previewed.

mod again;
mod ask;
mod check;
mod dry_run;
mod known;
mod outcome;
mod packages;
mod readiness;
mod report;
mod run;
mod runnable;
mod shapes;
mod shelf;
mod step;
mod typed;

pub use ask::RunRequest;
pub(crate) use check::check;
pub(crate) use dry_run::dry_run;
pub use dry_run::{ActionPreview, DryCall, DryRun, DryStep};
pub use outcome::ActionValue;
pub(crate) use readiness::list;
pub use readiness::{ListedAction, Readiness};
pub use report::{ActionReport, RepeatAdvice, StepReport, StepStatus};
pub(crate) use run::run;
pub use runnable::{CheckedAction, CheckedStep, NonIdempotentReason, ReadyTarget};
pub(crate) use shelf::ActionStore;
pub use shelf::StoredAction;
