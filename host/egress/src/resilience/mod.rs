//! What is done about failures, decided by pure code: policies, the next step, breakers, rate limits.
//!
//! Nothing here sleeps, reads the time or draws lots by itself: the pipeline hands in what it observed and the
//! time, and does what comes out. Circuits alone are kept in files, since processes share what they saw of a host.

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
    Admission, BreakerPolicy, CauseView, Change, Circuit, CircuitState, CircuitView, Circuits, OpenView,
    Opening, ResetView, Seen, Shut, ShutView, Visit, Visiting, Why,
};
pub use cofferdam_core::document::DocumentError as PolicyError;
pub use decide::{Moment, Next, decide};
pub use profile::{Profile, ProfileError, Row};
pub use profiles::PROFILES;
pub use rate::{RateError, RateLimit, RateLimits, RateRefused};
pub use schedule::{Backoff, Jitter, MAX_ATTEMPTS, MAX_WAIT, Schedule};
pub use settings::{Plan, Settings};

#[cfg(test)]
mod allocations;
#[cfg(test)]
mod outages;
