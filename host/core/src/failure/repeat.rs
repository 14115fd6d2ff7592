//! Whether an operation may be repeated, and the request that forbids it where its manifest leaves that open.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::grant::GrantLine;
use super::text::safe_line;

/// Whether the host may repeat an operation.
///
/// In the order of what they allow: of several operations in one call the greatest holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepeatRule {
    /// Its manifest declares it idempotent by name, or that it only reads.
    Always,
    /// Its manifest declares neither: it may be repeated until the host sees it send an [`UnkeyedRequest`].
    UnlessUnkeyed,
    /// Its manifest or its caller says that it must not be repeated.
    Never,
}

impl RepeatRule {
    /// The stable word.
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
    /// Always or never.
    fn from(idempotent: bool) -> Self {
        if idempotent { Self::Always } else { Self::Never }
    }
}

/// A request that a service may act upon each time it arrives: neither its method says otherwise (GET, HEAD, OPTIONS,
/// TRACE, PUT, DELETE), nor does it carry the call's idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnkeyedRequest {
    /// Its method.
    pub method: String,
    /// The host:port that it was sent to.
    pub host: String,
}

impl UnkeyedRequest {
    /// A request of this method to `host`. A method is a guest's own text, and may have any length.
    pub fn new(method: &str, host: String) -> Self {
        Self { method: safe_line(method, 64), host }
    }
}

/// An unkeyed request, and the operation that sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrepeatable {
    pub(super) op: String,
    pub(super) request: UnkeyedRequest,
}

impl Unrepeatable {
    fn line(&self) -> GrantLine {
        GrantLine::manifest_idempotent(&self.op)
    }

    /// Why the operation is not repeated, and the line that would change it.
    pub(super) fn sentences(&self) -> String {
        let Self { op, request: UnkeyedRequest { method, host } } = self;
        format!(
            " It was not repeated: it had sent {method} to {host} without the call's idempotency key, and its manifest \
             does not declare {op} idempotent. If sending that twice is as good as once, {}.",
            self.line().instruction()
        )
    }

    /// The same for programs.
    pub(super) fn describe(&self, details: &mut Map<String, Value>) {
        details.insert("unkeyed".into(), json!(self.request));
        details.insert("allow".into(), self.line().as_json());
    }
}
