//! A response whose status is an error, reduced to its relevant parts.

use std::fmt;
use std::time::SystemTime;

use serde_json::Value;

use super::{Response, retry_after};
use crate::{Failure, UpstreamError};

/// An error response of the service. `?` converts it to [`Failure::Upstream`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusError {
    status: u16,
    code: Option<String>,
    retry_after_ms: Option<u64>,
    detail: Option<String>,
}

impl StatusError {
    /// The longest text that is taken for a code, in bytes.
    const CODE: usize = 128;
    /// The most bytes of the body that go into the detail.
    const DETAIL: usize = 512;

    pub(super) fn from_response(response: &Response) -> Self {
        // The service computed the date with its own clock, so compare it with the response's `Date`.
        let now = || {
            let date = response.header("date").and_then(|date| httpdate::parse_http_date(date).ok());
            date.unwrap_or_else(SystemTime::now)
        };
        let wait = response.header("retry-after").and_then(|value| retry_after::milliseconds(value, now));
        let start = response.bytes().get(..Self::DETAIL).unwrap_or(response.bytes());
        let detail = String::from_utf8_lossy(start).into_owned();
        Self {
            status: response.status(),
            code: response.json().ok().as_ref().and_then(code),
            retry_after_ms: wait,
            detail: Some(detail).filter(|detail| !detail.is_empty()),
        }
    }

    /// Returns the HTTP status, 400 to 599.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the service's own name for the error, if its JSON has one in a usual place: `error`, `code`,
    /// `error.code`, `error.type`, `errors[0].code`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// Returns the delay that the service requested before a retry, in milliseconds.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        self.retry_after_ms
    }

    /// Sets the service's code for the error, if its response has it in an unusual place.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }
}

/// Returns the service's own code: a token in one of the usual places, never a sentence.
fn code(body: &Value) -> Option<String> {
    let first = |value: &Value| value.get(0).cloned().unwrap_or_default();
    let nested = [body["error"].clone(), body["errors"].clone(), first(&body["errors"]), first(body)];
    let candidates = [&body["code"], &body["error"], &body["error_code"]]
        .into_iter()
        .chain(nested.iter().flat_map(|error| [&error["code"], &error["type"]]));
    candidates.filter_map(token).next()
}

fn token(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let fits = !text.is_empty()
        && text.len() <= StatusError::CODE
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then_some(text)
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the service answered with status {}", self.status)?;
        self.code.as_ref().map_or(Ok(()), |code| write!(f, " ({code})"))
    }
}

impl std::error::Error for StatusError {}

impl From<StatusError> for Failure {
    fn from(error: StatusError) -> Self {
        let StatusError { status, code, retry_after_ms, detail } = error;
        Self::Upstream(UpstreamError { status, code, retry_after_ms, detail })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, clippy::panic, reason = "a test")]

    use super::*;

    fn error(headers: &[(&'static str, &'static str)], body: &str) -> StatusError {
        Response::new(429, headers.iter().copied(), body).error_for_status().expect_err("429 is an error")
    }

    #[test]
    fn error_codes_are_found_in_common_fields() {
        for (body, expected) in [
            (r#"{"error":"channel_not_found"}"#, Some("channel_not_found")),
            (r#"{"error":{"code":"rate_limited","message":"Slow down"}}"#, Some("rate_limited")),
            (r#"{"error":{"type":"card_error"}}"#, Some("card_error")),
            (r#"{"code":20404,"message":"Not found"}"#, Some("20404")),
            (r#"{"errors":[{"code":"already_exists"}]}"#, Some("already_exists")),
            (r#"[{"errorCode":"X","code":"INVALID_FIELD"}]"#, Some("INVALID_FIELD")),
            (r#"{"error":"This is a sentence."}"#, None),
            (r#"{"message":"Not Found"}"#, None),
            ("<html>", None),
            ("", None),
        ] {
            assert_eq!(error(&[], body).code(), expected, "{body}");
        }
    }

    #[test]
    fn retry_dates_use_the_services_clock() {
        let headers =
            [("Date", "Sun, 06 Nov 1994 08:49:37 GMT"), ("Retry-After", "Sun, 06 Nov 1994 08:50:07 GMT")];
        assert_eq!(error(&headers, "").retry_after_ms(), Some(30_000));
        assert_eq!(error(&[("Retry-After", "7")], "").retry_after_ms(), Some(7000));
        assert_eq!(error(&[("Retry-After", "later")], "").retry_after_ms(), None);
    }

    #[test]
    fn a_status_error_keeps_its_body_for_the_operator() {
        let failure = Failure::from(error(&[("Retry-After", "1")], &"x".repeat(2000)));
        assert!(!failure.to_string().contains("xx"));
        let Failure::Upstream(UpstreamError {
            status: 429,
            retry_after_ms: Some(1000),
            detail: Some(detail),
            ..
        }) = failure
        else {
            panic!("{failure:?}")
        };
        assert_eq!(detail.len(), 512);
    }
}
