//! The time at which a service accepts requests again.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// Returns `Retry-After` in milliseconds, from seconds or an HTTP date. Over a week is a week, a past date is
/// now, and an unreadable value is ignored.
pub(super) fn retry_after_ms(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let wait = match digits {
        // Digits that do not parse are too many of them.
        true => text.parse().map_or(WEEK, Duration::from_secs),
        false => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    u64::try_from(wait.min(WEEK).as_millis()).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date_and_never_absurd() {
        let now = httpdate::parse_http_date("Sat, 21 Nov 2026 10:00:00 GMT").unwrap();
        for (text, expected) in [
            ("7", Some(7_000)),
            ("0", Some(0)),
            ("Sat, 21 Nov 2026 10:00:30 GMT", Some(30_000)),
            ("Sat, 21 Nov 2026 09:00:00 GMT", Some(0)),
            ("-5", None),
            ("soon", None),
            ("+7", None),
            ("1000000000", Some(604_800_000)),
            ("99999999999999999999999999", Some(604_800_000)),
            ("Thu, 01 Jan 2099 00:00:00 GMT", Some(604_800_000)),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            assert_eq!(retry_after_ms(&headers, now), expected, "{text}");
        }
    }
}
