//! The rate limit that the operator sets: a number of requests in a period, and how many of them at once.

use std::time::Duration;

use cofferdam_core::document::{DocumentTable, InvalidValue};
use cofferdam_core::limits::parse_time;

/// The maximum number of requests in a period.
const MOST: u64 = 1_000_000;

/// The shortest and the longest period.
const PERIODS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(24 * 60 * 60)];

/// A number of requests in a period, for each host of a connector.
///
/// Requests are paced: after a pause, `burst` of them may be sent at once, and after that one each time that
/// `per / requests` has passed. In the long run that is `requests` in each period; in the one period that
/// begins with a burst it is fewer than `requests + burst`. A burst of 1 paces evenly, and never sends more
/// than `requests` in any period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    requests: u32,
    per: Duration,
    burst: u32,
}

/// The error for an invalid rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// No requests, or too many.
    #[error("a rate limit allows 1 to 1000000 requests in a period")]
    Requests,
    /// A period that is too short or too long.
    #[error("the period of a rate limit is 1 second to 24 hours")]
    Period,
    /// No requests at once, or more than in the period.
    #[error("a rate limit allows 1 request at once, up to as many as in its period")]
    Burst,
}

impl RateLimit {
    /// The keys of its table in a document.
    pub(crate) const KEYS: [&'static str; 3] = ["requests", "per", "burst"];

    /// Creates a limit of `requests` (1 to 1,000,000) in each period `per` (1 second to 24 hours), with a
    /// burst of all of them.
    ///
    /// # Errors
    /// A value out of its range.
    pub fn new(requests: u32, per: Duration) -> Result<Self, RateError> {
        let [shortest, longest] = PERIODS;
        match requests {
            0 => Err(RateError::Requests),
            _ if u64::from(requests) > MOST => Err(RateError::Requests),
            _ if per < shortest || per > longest => Err(RateError::Period),
            _ => Ok(Self { requests, per, burst: requests }),
        }
    }

    /// Returns the limit with a burst of `burst`, from 1 to all requests.
    ///
    /// # Errors
    /// A value out of its range.
    pub fn with_burst(self, burst: u32) -> Result<Self, RateError> {
        match burst == 0 || burst > self.requests {
            true => Err(RateError::Burst),
            false => Ok(Self { burst, ..self }),
        }
    }

    /// Returns the number of requests in a period.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// Returns the period.
    #[must_use]
    pub fn per(&self) -> Duration {
        self.per
    }

    /// Returns the number of requests that may be sent at once.
    #[must_use]
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Reads `{ requests = 30, per = "60s" }` with an optional `burst`; problems are reported with their
    /// place. The caller rejects other keys of the table: [`KEYS`](Self::KEYS) are these.
    pub(crate) fn read(table: &DocumentTable<'_>) -> Option<Self> {
        if !table.has("requests") {
            table.missing("requests", "how many requests are allowed in a period, like requests = 30");
        }
        let requests = table.integer("requests").and_then(|number| number.parse(|number| requests(*number)));
        let per = table.required_text("per", "the period, like per = \"60s\"");
        let per = per.and_then(|text| text.parse(|text| period(text)));
        let burst = table.integer("burst");
        let limit = Self::new(requests?, per?).ok()?;
        match burst {
            None => Some(limit),
            Some(burst) => burst.parse(|burst| {
                let fits = u32::try_from(*burst).ok().and_then(|burst| limit.with_burst(burst).ok());
                fits.ok_or_else(|| refused(RateError::Burst, "write 1 up to the number of `requests`"))
            }),
        }
    }
}

fn requests(number: u64) -> Result<u32, InvalidValue> {
    let fits = u32::try_from(number).ok().filter(|_| (1..=MOST).contains(&number));
    fits.ok_or_else(|| {
        refused(RateError::Requests, "write a number in that range; leave the table out for no limit")
    })
}

fn period(text: &str) -> Result<Duration, InvalidValue> {
    let [shortest, longest] = PERIODS;
    let fits = parse_time(text).filter(|time| (shortest..=longest).contains(time));
    fits.ok_or_else(|| refused(RateError::Period, "write it like \"60s\", \"5m\" or \"1h\""))
}

fn refused(error: RateError, fix: &str) -> InvalidValue {
    InvalidValue::new(error.to_string(), fix)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use cofferdam_core::document::read;

    fn parse(text: &str) -> Result<RateLimit, String> {
        let read = read("config.toml", text, |root| {
            let table = root.table("rate_limit")?;
            table.reject_unknown_keys(&RateLimit::KEYS);
            RateLimit::read(&table)
        });
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn a_table_is_a_limit_or_says_where_it_is_wrong() {
        let thirty = RateLimit::new(30, Duration::from_secs(60)).unwrap();
        assert_eq!(parse("rate_limit = { requests = 30, per = \"60s\" }").unwrap(), thirty);
        assert_eq!(parse("[rate_limit]\nrequests = 30\nper = \"1m\"").unwrap(), thirty);
        let even = thirty.with_burst(1).unwrap();
        assert_eq!(parse("[rate_limit]\nrequests = 30\nper = \"60s\"\nburst = 1").unwrap(), even);
        for (text, place) in [
            ("requests = 30", "config.toml:1:1: rate_limit.per: "),
            ("per = \"60s\"", "config.toml:1:1: rate_limit.requests: "),
            ("requests = 0\nper = \"60s\"", "config.toml:2:12: rate_limit.requests: "),
            ("requests = 1000001\nper = \"60s\"", "config.toml:2:12: rate_limit.requests: "),
            ("requests = \"30\"\nper = \"60s\"", "config.toml:2:12: rate_limit.requests: "),
            ("requests = -1\nper = \"60s\"", "config.toml:2:12: rate_limit.requests: "),
            ("requests = 30\nper = 60", "config.toml:3:7: rate_limit.per: "),
            ("requests = 30\nper = \"500ms\"", "config.toml:3:7: rate_limit.per: "),
            ("requests = 30\nper = \"1441m\"", "config.toml:3:7: rate_limit.per: "),
            ("requests = 30\nper = \"60s\"\nburst = 0", "config.toml:4:9: rate_limit.burst: "),
            ("requests = 30\nper = \"60s\"\nburst = 31", "config.toml:4:9: rate_limit.burst: "),
            ("requests = 30\nper = \"60s\"\nbursts = 3", "did you mean `burst`?"),
        ] {
            let error = parse(&format!("[rate_limit]\n{text}")).unwrap_err();
            assert!(error.contains(place), "{text}: {error}");
        }
    }

    #[test]
    fn amounts_out_of_range_are_no_limits() {
        let minute = Duration::from_secs(60);
        assert_eq!(RateLimit::new(0, minute), Err(RateError::Requests));
        assert_eq!(RateLimit::new(u32::MAX, minute), Err(RateError::Requests));
        assert_eq!(RateLimit::new(1, Duration::from_millis(999)), Err(RateError::Period));
        assert_eq!(RateLimit::new(1, Duration::MAX), Err(RateError::Period));
        assert_eq!(RateLimit::new(2, minute).unwrap().with_burst(3), Err(RateError::Burst));
    }
}
