//! Circuit breakers: hosts to which no requests are sent for a while after too many failures.
//!
//! `policy` has the numbers and `circuit` the state machine, both pure. `circuits` stores each circuit's
//! state in a file that all processes share, and `visit` applies them to one candidate of a call.

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

pub use circuit::{
    BreakerAdmission, Circuit, CircuitObservation, CircuitState, CircuitTrip, PermanentTrip, TripCause,
};
pub use circuits::CircuitStore;
pub use policy::BreakerPolicy;
pub use view::{CauseView, CircuitView, OpenView, ResetView, ShutView};
pub use visit::{BreakerGuard, BreakerScope, CircuitChange};
