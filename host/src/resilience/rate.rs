//! Rate limits: no more requests of a connector to a host than the operator wants, whoever calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::document::Table;

/// So many requests in so much time, for each host of a connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {}

impl RateLimit {
    /// The keys of its table.
    pub(crate) const KEYS: [&'static str; 3] = ["requests", "per", "burst"];

    /// The limit in a table of `config.toml`; none where it was reported what is wrong.
    pub(crate) fn read(table: &Table<'_>) -> Option<Self> {
        table.whole("requests").map(|_| Self {})
    }
}

/// The turns that were given, of all connectors.
#[derive(Debug, Default)]
pub struct RateLimits {}

/// A request that would have to wait longer than its call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateRefused {
    /// How long it would have waited.
    pub retry_after: Duration,
    /// The requests that are allowed in a period.
    pub configured: u64,
}

impl RateLimits {
    /// When a request of `connector` to `host` may be sent: at once, or after a wait.
    ///
    /// # Errors
    /// The wait would not end before `deadline`.
    pub fn turn(
        self: &Arc<Self>,
        _connector: &str,
        _host: &str,
        _limit: RateLimit,
        _now: Instant,
        _deadline: Instant,
    ) -> Result<Option<Duration>, RateRefused> {
        Ok(None)
    }
}
