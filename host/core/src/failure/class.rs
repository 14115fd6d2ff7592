//! The single table of failure classes, from which names, boundaries, defaults and docs derive.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::denial::GrantLine;
use super::text::sanitize_line;

macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, boundaries [$($boundary:ident),+];)+) => {
        /// One of the nine canonical classes. The set is closed: adding one is a change of the contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum FailureClass {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl FailureClass {
            /// Every class, in the order of the table.
            pub const ALL: &'static [FailureClass] = &[$(FailureClass::$variant),+];

            /// Returns the stable name on the wire.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(FailureClass::$variant => $name,)+ }
            }

            /// Returns the meaning of the class in one sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(FailureClass::$variant => concat!($($doc),+).trim_ascii_start(),)+ }
            }

            /// Returns the layers that may produce it; the first is the usual one.
            #[must_use]
            pub const fn boundaries(self) -> &'static [FailureBoundary] {
                match self { $(FailureClass::$variant => &[$(FailureBoundary::$boundary),+],)+ }
            }
        }
    };
}

classes! {
    /// A capability check refused the operation.
    CapabilityDenied = "capability_denied", boundaries [Sandbox, ConnectorManifest, Action];
    /// No credential is bound for a capability that needs one.
    BindingRequired = "binding_required", boundaries [Runtime];
    /// A bound credential was refused: expired, revoked, or of another scope.
    BindingFailed = "binding_failed", boundaries [Runtime];
    /// The call hit one of its limits.
    ResourceLimitExceeded = "resource_limit_exceeded", boundaries [Sandbox];
    /// The connector's own code failed.
    ConnectorRuntimeError = "connector_runtime_error", boundaries [Sandbox, Runtime];
    /// A request did not get an answer from its server.
    NetworkError = "network_error", boundaries [External];
    /// The upstream service answered with an error.
    ExternalApiError = "external_api_error", boundaries [External];
    /// The installed bytes are not the bytes that were verified.
    HashMismatch = "hash_mismatch", boundaries [Runtime];
    /// No valid signature by a key that is trusted for this name.
    SignatureFailure = "signature_failure", boundaries [Runtime];
}

/// Names that the contract reserves for approvals; nothing produces them, and no value can hold them.
pub const RESERVED_CLASSES: [&str; 2] = ["approval_denied", "approval_timeout"];

/// The layer that produced a failure. `user` is reserved for approvals and cannot be represented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureBoundary {
    /// The gate around running guest code.
    Sandbox,
    /// The declarations of the connector's manifest.
    ConnectorManifest,
    /// The subset that the action, or the caller, declared.
    Action,
    /// The host itself, outside guest code.
    Runtime,
    /// The outside world.
    External,
}

impl FailureBoundary {
    /// Every boundary that can occur.
    pub const ALL: [FailureBoundary; 5] = [
        FailureBoundary::Sandbox,
        FailureBoundary::ConnectorManifest,
        FailureBoundary::Action,
        FailureBoundary::Runtime,
        FailureBoundary::External,
    ];

    /// Returns the stable name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FailureBoundary::Sandbox => "sandbox",
            FailureBoundary::ConnectorManifest => "connector_manifest",
            FailureBoundary::Action => "action",
            FailureBoundary::Runtime => "runtime",
            FailureBoundary::External => "external",
        }
    }
}

/// The cause of a failure as observed by the host itself. A mere claim of a connector is
/// [`Other`](Self::Other).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureCause {
    /// No response: DNS, connecting, TLS, or a broken connection.
    Network,
    /// Status 408 or 425.
    Timeout,
    /// Status 429.
    RateLimited,
    /// Status 5xx.
    Unavailable,
    /// Status 401.
    Auth,
    /// Status 402.
    PaymentRequired,
    /// Status 404.
    NotFound,
    /// The connector reports a transient failure of its operation.
    Transient,
    /// The issuer of tokens could not be reached.
    RefreshUnreachable,
    /// The time limit of one attempt, or of the call, has passed.
    WallTime,
    /// The circuit to the host is open: nothing was sent there.
    CircuitOpen,
    /// Everything else, which is never retried.
    Other,
}

impl FailureCause {
    /// Every cause, in the order of their discriminants.
    pub const ALL: [Self; 12] = [
        Self::Network,
        Self::Timeout,
        Self::RateLimited,
        Self::Unavailable,
        Self::Auth,
        Self::PaymentRequired,
        Self::NotFound,
        Self::Transient,
        Self::RefreshUnreachable,
        Self::WallTime,
        Self::CircuitOpen,
        Self::Other,
    ];

    /// Returns the stable name, which `retry_on` and the audit log use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network_error",
            Self::Timeout => "timeout",
            Self::RateLimited => "rate_limited",
            Self::Unavailable => "unavailable",
            Self::Auth => "auth",
            Self::PaymentRequired => "payment_required",
            Self::NotFound => "not_found",
            Self::Transient => "op_failed",
            Self::RefreshUnreachable => "refresh_unreachable",
            Self::WallTime => "wall_time",
            Self::CircuitOpen => "circuit_open",
            Self::Other => "other",
        }
    }

    /// Returns whether a policy may retry an attempt with this cause. The envelope of `wall_time` says that
    /// it is not retriable, and only a policy that names it retries it.
    #[must_use]
    pub const fn is_retriable(self) -> bool {
        matches!(
            self,
            Self::Network
                | Self::Timeout
                | Self::RateLimited
                | Self::Unavailable
                | Self::Transient
                | Self::RefreshUnreachable
                | Self::WallTime
        )
    }

    /// Returns the cause of a response with this status.
    #[must_use]
    pub const fn from_status(status: u16) -> Self {
        match status {
            401 => Self::Auth,
            402 => Self::PaymentRequired,
            404 => Self::NotFound,
            408 | 425 => Self::Timeout,
            429 => Self::RateLimited,
            500..=599 => Self::Unavailable,
            _ => Self::Other,
        }
    }
}

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct UnkeyedRequest {
    /// The `host:port` that it was sent to.
    pub host: String,
    /// Its method.
    pub method: String,
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

    /// Returns the reason why no profile retries the operation, and the line that would change it.
    pub(super) fn sentences(&self) -> String {
        let Self { op, request: UnkeyedRequest { method, host } } = self;
        format!(
            " It is not retried: it had sent {method} to {host} without the call's idempotency key, and its manifest \
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

/// A request that had neither an answer nor an error when its guest returned, and was aborted then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
#[non_exhaustive]
pub struct AbortedRequest {
    /// The `host:port`.
    pub host: String,
    /// The method.
    pub method: String,
    /// True if any byte of it may have left.
    pub request_sent: bool,
    /// True if it may have changed something at the service: it may have left, and its method is not
    /// read-only.
    pub unsafe_sent: bool,
}

impl AbortedRequest {
    /// Creates one from what was observed of it.
    #[must_use]
    pub fn new(host: String, method: String, request_sent: bool, unsafe_sent: bool) -> Self {
        Self { host, method, request_sent, unsafe_sent }
    }
}

impl fmt::Display for AbortedRequest {
    /// Writes a short description for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = match (self.unsafe_sent, self.request_sent) {
            (true, _) => "it may have had its effect",
            (false, true) => "it only reads",
            (false, false) => "nothing of it was sent",
        };
        write!(f, "the {} to {} was aborted when the connector returned: {effect}", self.method, self.host)
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_nine_class_names_never_change() {
        let names: Vec<_> = FailureClass::ALL.iter().map(|c| c.name()).collect();
        assert_eq!(
            names,
            [
                "capability_denied",
                "binding_required",
                "binding_failed",
                "resource_limit_exceeded",
                "connector_runtime_error",
                "network_error",
                "external_api_error",
                "hash_mismatch",
                "signature_failure"
            ]
        );
        for class in FailureClass::ALL {
            assert_eq!(serde_json::to_value(class).ok(), Some(serde_json::json!(class.name())));
            assert!(!RESERVED_CLASSES.contains(&class.name()));
        }
    }

    #[test]
    fn there_are_five_boundaries() {
        let names = FailureBoundary::ALL.map(FailureBoundary::name);
        assert_eq!(names, ["sandbox", "connector_manifest", "action", "runtime", "external"]);
        for boundary in FailureBoundary::ALL {
            assert_eq!(serde_json::to_value(boundary).ok(), Some(serde_json::json!(boundary.name())));
        }
    }
}
