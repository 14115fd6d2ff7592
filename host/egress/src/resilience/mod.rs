//! The handling of failures, decided by pure code: retry policies, retry decisions, breakers, rate limits.
//!
//! Nothing here sleeps, reads the clock or draws random numbers on its own: the pipeline passes its
//! observations and the time, and executes the result. Only circuits are stored in files, since processes
//! share their observations of a host.

mod breaker;
mod decide;
#[cfg(test)]
mod decide_tests;
mod parse;
#[cfg(test)]
mod parse_tests;
mod profile;
mod profiles;
#[cfg(test)]
mod profiles_tests;
mod rate;
mod read;
#[cfg(test)]
mod reference;
mod schedule;
mod settings;

pub use breaker::{
    BreakerAdmission, BreakerGuard, BreakerPolicy, BreakerScope, CauseView, Circuit, CircuitChange,
    CircuitObservation, CircuitState, CircuitStore, CircuitTrip, CircuitView, OpenView, PermanentTrip,
    ResetView, ShutView, TripCause,
};
pub use cofferdam_core::document::DocumentError as PolicyError;
pub use decide::{RetryContext, RetryDecision, decide};
pub use profile::{ProfileError, RetryProfile, RetryProfileRow};
pub use profiles::PROFILES;
pub use rate::{RateError, RateLimit, RateLimits, RateRefused};
pub use schedule::{Backoff, Jitter, MAX_ATTEMPTS, MAX_WAIT, RetrySchedule};
pub use settings::{ResilienceSettings, RetryPlan};

#[cfg(test)]
mod allocations;
#[cfg(test)]
mod outages;
