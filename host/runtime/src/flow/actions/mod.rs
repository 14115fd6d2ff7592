//! Actions: stored as files, checked against the installed connectors before any of them runs, and then run step by
//! step or previewed.

mod check;
mod checked_action;
mod dry_run;
mod packages;
mod report;
mod run;
mod store;
mod type_check;

pub(crate) use check::check;
pub use checked_action::{CheckedAction, CheckedStep, NonIdempotentReason, ReadyTarget};
pub(crate) use dry_run::dry_run;
pub use dry_run::{ActionPreview, DryCall, DryRun, DryStep};
pub(crate) use packages::list;
pub use packages::{ListedAction, Readiness};
pub use report::{ActionReport, ActionResult, ActionValue, RepeatAdvice, StepReport, StepStatus};
pub use run::RunRequest;
pub(crate) use run::run;
pub(crate) use store::ActionStore;
pub use store::StoredAction;
