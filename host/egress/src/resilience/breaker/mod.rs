//! Circuit breakers: hosts to which no requests are sent for a while after too many failures.
//!
//! `policy` has the numbers and `circuit` the state machine, both pure. `circuit_table` stores
//! the circuits for all processes of a machine, and `circuit_replica` is the copy of those that the hosts of a cluster
//! share; `circuit_store` has one or the other, and `call_scope` applies them to one candidate of a call.

mod call_scope;
#[cfg(test)]
mod call_scope_tests;
mod circuit;
mod circuit_replica;
mod circuit_store;
mod circuit_table;
#[cfg(test)]
mod circuit_table_tests;
mod policy;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;

pub use call_scope::{BreakerGuard, BreakerScope, CircuitChange};
pub use circuit::{
    BreakerAdmission, Circuit, CircuitObservation, CircuitState, CircuitTrip, PermanentTrip, TripCause,
};
pub use circuit_replica::{CircuitReplica, CircuitUpdate, SharedCircuit, SharedCircuitChange};
pub use circuit_store::{CauseView, CircuitStore, CircuitView, OpenView, PermanentTripView, ResetView};
pub use policy::BreakerPolicy;
