//! The requests, log lines and suppressed errors that a test's call has received.

use std::fmt;

use serde::de::DeserializeOwned;

use crate::http::Method;
use crate::http::request::PreparedRequest;
use crate::http::url::Url;
use crate::log::{Fields, Level};

/// A request as the host would receive it.
#[derive(Debug, Clone)]
pub struct SentRequest(PreparedRequest);

impl SentRequest {
    pub(super) fn new(request: PreparedRequest) -> Self {
        Self(request)
    }

    /// Returns the method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.0.method
    }

    /// Returns the whole URL, encoded, with its query.
    #[must_use]
    pub fn url(&self) -> String {
        self.0.url.to_string()
    }

    /// Returns the first value of that name in the URL's query, decoded.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<String> {
        self.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Returns the first header of that name, in any case. None if its value is not UTF-8. The headers that the
    /// host adds, such as `Host` and those with credentials, are not among them.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(value).ok()
    }

    /// Returns all headers, in the order sent.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Returns the idempotency key that the request carries: the call's key, a colon, and the request's label.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&str> {
        self.header("idempotency-key")
    }

    /// Returns the body; empty if the request has none.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0.body
    }

    /// Returns the body as text, with a replacement character for what is not UTF-8.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.body).into_owned()
    }

    /// Parses the body as JSON.
    ///
    /// # Errors
    ///
    /// It is not JSON, or not of the form that `T` requires.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0.body)
    }

    /// Returns the pairs of a body that is a form, decoded.
    #[must_use]
    pub fn form(&self) -> Vec<(String, String)> {
        form_urlencoded::parse(&self.0.body).into_owned().collect()
    }

    /// Returns the pairs of the URL's query, decoded.
    pub(super) fn query_pairs(&self) -> impl Iterator<Item = (String, String)> {
        let (_, query) = self.split_path();
        form_urlencoded::parse(query.as_bytes()).into_owned()
    }

    /// Compares the URLs, without their queries.
    pub(super) fn has_path_of(&self, other: &Self) -> bool {
        let (url, other_url): (&Url, &Url) = (&self.0.url, &other.0.url);
        url.https == other_url.https
            && url.authority.eq_ignore_ascii_case(&other_url.authority)
            && self.split_path().0 == other.split_path().0
    }

    fn split_path(&self) -> (&str, &str) {
        let path = &self.0.url.path_and_query;
        path.split_once('?').unwrap_or((path, ""))
    }
}

/// The request line, the headers and the body, a line each.
impl fmt::Display for SentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.method, self.0.url)?;
        for (name, value) in &self.0.headers {
            write!(f, "\n{name}: {}", String::from_utf8_lossy(value))?;
        }
        if self.0.body.is_empty() { Ok(()) } else { write!(f, "\n\n{}", self.text()) }
    }
}

/// A line that the connector logged. Its text form is `debug page read page=1 issues=2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    level: Level,
    message: String,
    fields: Vec<(String, String)>,
}

impl LogLine {
    pub(super) fn new(level: Level, message: &str, fields: Fields<'_>) -> Self {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
        Self { level, message: message.to_owned(), fields }
    }

    /// Returns the severity.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns the message, without the fields.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Trace => "trace",
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        };
        write!(f, "{level} {}", self.message)?;
        self.fields.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// An error that the connector ignored on purpose, and reported with
/// [`log::suppressed`](crate::log::suppressed).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuppressedError {
    reason: String,
    cause: String,
}

impl SuppressedError {
    pub(super) fn new(reason: &str, cause: &str) -> Self {
        Self { reason: reason.to_owned(), cause: cause.to_owned() }
    }

    /// Returns the reason for ignoring the error.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the error's own text.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.cause
    }
}
