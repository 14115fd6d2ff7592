//! Parses `Retry-After`: seconds, or an HTTP date.

use std::time::{Duration, SystemTime};

/// Returns the milliseconds to wait, counted from `now`. None if the value is neither a number of seconds nor an
/// HTTP date. 0 for a date in the past.
pub(crate) fn milliseconds(value: &str, now: impl FnOnce() -> SystemTime) -> Option<u64> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        // A sign is not part of the grammar, though Rust accepts a plus.
        return (!value.starts_with('+')).then(|| seconds.saturating_mul(1000));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    let wait = date.duration_since(now()).unwrap_or(Duration::ZERO);
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test")]

    use super::*;

    #[test]
    fn retry_after_is_parsed_from_seconds_and_dates() {
        let now = || httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").expect("a date");
        for (value, expected) in [
            ("0", Some(0)),
            (" 120 ", Some(120_000)),
            ("18446744073709551615", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60_000)),
            ("Sunday, 06-Nov-94 08:49:38 GMT", Some(1000)),
            ("Sun Nov  6 08:49:38 1994", Some(1000)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("+5", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(milliseconds(value, now), expected, "{value}");
        }
    }
}
