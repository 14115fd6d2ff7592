//! The rule for repeating an operation, and the request that forbids it if the manifest leaves that open.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::grant::GrantLine;
use super::text::sanitize_line;

/// The rule by which the host may repeat an operation.
///
/// The variants are ordered from permissive to strict: for several operations in one call the greatest applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepeatRule {
    /// Its manifest declares that it is idempotent, or that it only reads.
    Always,
    /// Its manifest declares neither: it may be repeated unless the host observes that it sends an
    /// [`UnkeyedRequest`].
    UnlessUnkeyed,
    /// Its manifest or its caller forbids repeating it.
    Never,
}

impl RepeatRule {
    /// Returns the stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::UnlessUnkeyed => "unless_unkeyed",
            Self::Never => "never",
        }
    }
}

impl From<bool> for RepeatRule {
    /// Returns `Always` or `Never`.
    fn from(idempotent: bool) -> Self {
        if idempotent { Self::Always } else { Self::Never }
    }
}

/// A request that a service may execute each time it arrives: its method is not idempotent by definition
/// (GET, HEAD, OPTIONS, TRACE, PUT, DELETE are), and it does not carry the call's idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnkeyedRequest {
    /// Its method.
    pub method: String,
    /// The `host:port` that it was sent to.
    pub host: String,
}

impl UnkeyedRequest {
    /// Creates a request of this method to `host`. A method is the guest's own text, and may have any length.
    pub fn new(method: &str, host: String) -> Self {
        Self { method: sanitize_line(method, 64), host }
    }
}

/// An unkeyed request, and the operation that sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnrepeatableRequest {
    pub(super) op: String,
    pub(super) request: UnkeyedRequest,
}

impl UnrepeatableRequest {
    fn line(&self) -> GrantLine {
        GrantLine::manifest_idempotent(&self.op)
    }

    /// Returns the reason why the operation is not repeated, and the line that would change it.
    pub(super) fn sentences(&self) -> String {
        let Self { op, request: UnkeyedRequest { method, host } } = self;
        format!(
            " It was not repeated: it had sent {method} to {host} without the call's idempotency key, and its manifest \
             does not declare {op} idempotent. If sending that twice is as good as once, {}.",
            self.line().instruction()
        )
    }

    /// Adds the same for programs.
    pub(super) fn describe(&self, details: &mut Map<String, Value>) {
        details.insert("unkeyed".into(), json!(self.request));
        details.insert("allow".into(), self.line().as_json());
    }
}
