//! Circuit breakers: who is not asked for a while, because too much failed there.
//!
//! `policy` has the numbers and `circuit` the state machine, both pure. `circuits` keeps each circuit's state in a
//! file that all processes share, and `visit` is what one candidate of a call does with them.

mod circuit;
mod circuits;
mod disk;
mod document;
mod kept;
mod mark;
mod policy;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
mod turn;
mod view;
mod visit;
#[cfg(test)]
mod visit_tests;

pub use circuit::{Admission, Circuit, CircuitState, Opening, Seen, Shut, Why};
pub use circuits::Circuits;
pub use policy::BreakerPolicy;
pub use view::{CauseView, CircuitView, OpenView, ResetView, ShutView};
pub use visit::{Change, Visit, Visiting};
