//! The handling of failures, decided by pure code: retry policies, retry decisions, breakers, rate limits.
//!
//! Nothing here sleeps, reads the clock or draws random numbers on its own: the pipeline passes its
//! observations and the time, and executes the result. Only circuits are stored in a file, since processes
//! share their observations of a host.

mod breaker;
mod decide;
#[cfg(test)]
mod decide_tests;
mod profile;
#[cfg(test)]
mod profile_tests;
mod rate_limit;
#[cfg(test)]
mod reference_tests;
mod settings;
#[cfg(test)]
mod settings_tests;

pub use breaker::{
    BreakerAdmission, BreakerGuard, BreakerPolicy, BreakerScope, CauseView, Circuit, CircuitChange,
    CircuitObservation, CircuitReplica, CircuitState, CircuitStore, CircuitTrip, CircuitUpdate, CircuitView,
    OpenView, PermanentTrip, PermanentTripView, ResetView, SharedCircuit, SharedCircuitChange, TripCause,
};
pub use cofferdam_core::document::DocumentError;
pub use decide::{
    Backoff, Jitter, MAX_ATTEMPTS, MAX_WAIT, RetryContext, RetryDecision, RetrySchedule, decide,
};
pub use profile::{PROFILES, ProfileError, RetryProfile};
pub use rate_limit::{
    RateError, RateLimit, RateLimitUse, RateLimits, RateRefused, RateReservation, SharedRateLimits,
    SharedStateAway,
};
pub use settings::{ResilienceSettings, RetryPlan};

#[cfg(test)]
mod allocation_tests;
#[cfg(test)]
#[path = "../../tests/simulation/mod.rs"]
mod simulation;
