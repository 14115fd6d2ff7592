//! What is done about failures, decided by pure code: policies, the next step, breakers, rate limits.
//!
//! Nothing here sleeps, reads the time or draws lots by itself: the pipeline hands in what it observed and the
//! time, and does what comes out.

mod breaker;
mod decide;
mod profile;
mod profiles;
mod rate;
mod schedule;
mod settings;

pub use breaker::{BreakerPolicy, Change, Circuits, Visit};
pub use decide::{Moment, Next, decide};
pub use profile::{Profile, ProfileError};
pub use profiles::PROFILES;
pub use rate::{RateError, RateLimit, RateLimits, RateRefused};
pub use schedule::{Backoff, Jitter, Schedule};
pub use settings::{Plan, Settings};
