//! The single table of failure classes, from which names, boundaries, defaults, exit codes and docs derive.

use serde::Serialize;

macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, boundaries [$($boundary:ident),+],
        retriable $retriable:literal, exit $exit:literal;)+) => {
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

            /// Returns whether a failure of this class is retriable by default.
            #[must_use]
            pub const fn retriable_by_default(self) -> bool {
                match self { $(FailureClass::$variant => $retriable,)+ }
            }

            /// Returns the exit code of the command line (sysexits if one fits).
            #[must_use]
            pub const fn exit_code(self) -> u8 {
                match self { $(FailureClass::$variant => $exit,)+ }
            }
        }
    };
}

classes! {
    /// A capability check refused the operation.
    CapabilityDenied = "capability_denied", boundaries [Sandbox, ConnectorManifest, Action], retriable false, exit 77;
    /// No credential is bound for a capability that needs one.
    BindingRequired = "binding_required", boundaries [Runtime], retriable false, exit 78;
    /// A bound credential was refused: expired, revoked, or of another scope.
    BindingFailed = "binding_failed", boundaries [Runtime], retriable false, exit 79;
    /// The call hit one of its limits.
    ResourceLimitExceeded = "resource_limit_exceeded", boundaries [Sandbox], retriable false, exit 73;
    /// The connector's own code failed.
    ConnectorRuntimeError = "connector_runtime_error", boundaries [Sandbox, Runtime], retriable false, exit 70;
    /// A request did not get an answer from its server.
    NetworkError = "network_error", boundaries [External], retriable true, exit 69;
    /// The upstream service answered with an error.
    ExternalApiError = "external_api_error", boundaries [External], retriable false, exit 76;
    /// The installed bytes are not the bytes that were verified.
    HashMismatch = "hash_mismatch", boundaries [Runtime], retriable false, exit 80;
    /// No valid signature by a key that is trusted for this name.
    SignatureFailure = "signature_failure", boundaries [Runtime], retriable false, exit 81;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a5_the_nine_names_never_change() {
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
    fn a8_five_boundaries_and_no_user() {
        let names = FailureBoundary::ALL.map(FailureBoundary::name);
        assert_eq!(names, ["sandbox", "connector_manifest", "action", "runtime", "external"]);
        for boundary in FailureBoundary::ALL {
            assert_eq!(serde_json::to_value(boundary).ok(), Some(serde_json::json!(boundary.name())));
        }
    }

    #[test]
    fn exit_codes_tell_classes_apart() {
        let mut codes: Vec<_> = FailureClass::ALL.iter().map(|c| c.exit_code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), FailureClass::ALL.len());
    }
}
