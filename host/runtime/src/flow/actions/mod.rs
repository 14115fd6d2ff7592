//! Actions: kept on a shelf, checked against the connectors that are installed before any of them runs, run step by
//! step, or told beforehand.

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

pub use ask::Run;
pub(crate) use check::check;
pub(crate) use dry_run::dry_run;
pub use dry_run::{DryCall, DryRun, DryStep, Foretold};
pub use outcome::ActionValue;
pub(crate) use readiness::list;
pub use readiness::{ListedAction, Readiness};
pub use report::{ActionReport, Again, StepReport, StepStatus};
pub(crate) use run::run;
pub use runnable::{Once, ReadyStep, ReadyTarget, Runnable};
pub(crate) use shelf::Shelf;
pub use shelf::ShelvedAction;
