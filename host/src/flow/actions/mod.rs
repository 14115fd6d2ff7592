//! Actions: kept on a shelf, and checked against the connectors that are installed before any of them runs.

mod check;
mod known;
mod runnable;
mod shapes;
mod shelf;
mod typed;

pub(crate) use check::check;
pub use runnable::{ReadyStep, ReadyTarget, Runnable};
pub(crate) use shelf::Shelf;
pub use shelf::ShelvedAction;
