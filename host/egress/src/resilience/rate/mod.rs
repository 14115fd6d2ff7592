//! Rate limits: bound the requests of a connector to a host to the operator's limit, over all callers.

mod limit;
mod turns;

pub use limit::{RateError, RateLimit};
pub use turns::{RateLimits, RateRefused};
