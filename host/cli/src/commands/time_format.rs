//! Moments and lengths of time, as people write and read them. All of them in UTC.

pub(super) use cofferdam_core::amounts::duration as format_duration;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, SpanRelativeTo, Timestamp};

/// A moment: how long ago, a date (its beginning), or RFC 3339.
pub(super) fn parse_timestamp(text: &str) -> Result<Timestamp, String> {
    let written = "write it like 2h or 7d (ago), 2026-11-22, or 2026-11-22T12:00:00Z";
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment);
    }
    if let Ok(day) = text.parse::<Date>() {
        let begin = day.to_zoned(TimeZone::UTC).map_err(|error| error.to_string())?;
        return Ok(begin.timestamp());
    }
    let ago = text.parse::<Span>().map_err(|_| written)?;
    let ago = ago.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| written)?;
    if ago.is_negative() {
        return Err(written.into());
    }
    Timestamp::now().checked_sub(ago).map_err(|_| "it is too long ago".into())
}

/// A moment, to the millisecond.
pub(super) fn format_timestamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S%.3fZ").to_string()
}

/// Formats the time from `begin` until `at`, an RFC 3339 time.
pub(super) fn format_since(begin: Timestamp, at: &str) -> String {
    let at = at.parse::<Timestamp>().unwrap_or(begin);
    u64::try_from(at.duration_since(begin).as_micros()).map(format_duration).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn times_are_parsed_in_common_formats() {
        let at = |text: &str| parse_timestamp(text).unwrap().to_string();
        assert_eq!(at("2026-11-22"), "2026-11-22T00:00:00Z");
        assert_eq!(at("2026-11-22T12:00:00+01:00"), "2026-11-22T11:00:00Z");
        let now = Timestamp::now().as_second();
        for (text, seconds) in
            [("90s", 90), ("2h", 7_200), ("7d", 604_800), ("1w", 604_800), ("1h30m", 5_400)]
        {
            let ago = now - parse_timestamp(text).unwrap().as_second();
            assert!((seconds - 1..seconds + 60).contains(&ago), "{text}: {ago}");
        }
        for text in ["", "yesterday", "-2h", "2026-13-01", "2", "900000w"] {
            assert!(parse_timestamp(text).is_err(), "{text}");
        }
    }
}
