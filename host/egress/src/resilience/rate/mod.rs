//! Rate limits: no more requests of a connector to a host than the operator wants, whoever calls.

mod limit;
mod turns;

pub use limit::{RateError, RateLimit};
pub use turns::{RateLimits, RateRefused};
