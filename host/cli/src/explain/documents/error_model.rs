//! The words of the error model (001): eight classes with their codes, and what its implementation adds.

use super::{AUTH, INPUT, LIMITED, MALFORMED, MISSING, NETWORK, OPT_IN, UNAVAILABLE, WALL_TIME, row};
use crate::explain::external_term::{ExternalRetry, ExternalTerm, SourceDocument, TermMapping};

use ExternalRetry::{Maybe, No, Silent, Yes};
use FailureClass::{
    BindingRequired, CapabilityDenied, ConnectorRuntimeError, ExternalApiError, HashMismatch,
    SignatureFailure,
};
use HostErrorKind::{ContractVersion, KeyringInvalid, Validation};
use SourceDocument::ErrorModel;
use TermMapping::{Cancelled, Failure, Host, Later, Never};
use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::FailureClass;

/// Its words.
pub(super) const ROWS: &[ExternalTerm] = &[
    row(ErrorModel, "Validation", No, "ShapeInvalid", Host(Validation), ""),
    row(ErrorModel, "Validation", No, "ContractVersionMismatch", Host(ContractVersion), ""),
    row(
        ErrorModel,
        "Validation",
        No,
        "ConfigSchemaViolation",
        Host(Validation),
        "The same for every document: the message names file, field and fix.",
    ),
    row(
        ErrorModel,
        "ProviderTransient",
        Yes,
        "NetworkTimeout",
        NETWORK,
        "Repeated by `patient` as there: three attempts.",
    ),
    row(
        ErrorModel,
        "ProviderTransient",
        Yes,
        "Provider5xx",
        UNAVAILABLE,
        "Repeated by `patient` as there: three attempts.",
    ),
    row(
        ErrorModel,
        "ProviderTransient",
        Yes,
        "RateLimited",
        LIMITED,
        "Repeated by `patient` as there: Retry-After exactly, else six attempts.",
    ),
    row(ErrorModel, "ProviderCapability", No, "MissingStreaming", MISSING, ""),
    row(ErrorModel, "ProviderCapability", No, "MissingToolCalling", MISSING, ""),
    row(ErrorModel, "ProviderCapability", No, "ContextWindowTooSmall", MISSING, ""),
    row(ErrorModel, "ToolTransient", Maybe, "ExecutionTimeout", WALL_TIME, OPT_IN),
    row(
        ErrorModel,
        "ToolTransient",
        Maybe,
        "ResourceBusy",
        Failure(ConnectorRuntimeError, &["op_failed"]),
        "The connector says `busy` in details.connector_code, and that it is transient; no profile but `deterministic` repeats it.",
    ),
    row(ErrorModel, "ToolTerminal", No, "InputInvalid", INPUT, ""),
    row(ErrorModel, "ToolTerminal", No, "OutputMalformed", MALFORMED, ""),
    row(
        ErrorModel,
        "ToolTerminal",
        No,
        "Forbidden",
        Failure(CapabilityDenied, &["operation_not_granted", "host_not_granted"]),
        "Where the host says no.",
    ),
    row(ErrorModel, "ToolTerminal", No, "Forbidden", AUTH, "Where the service says no, with 403."),
    row(ErrorModel, "ToolTerminal", No, "NotFound", Failure(ExternalApiError, &["not_found"]), ""),
    row(
        ErrorModel,
        "Session",
        Maybe,
        "ManifestDrift",
        Later("a recorded call whose connector has changed is not replayed"),
        "",
    ),
    row(
        ErrorModel,
        "Session",
        Maybe,
        "StoreUnavailable",
        Later(
            "the audit store is tried three times after 2 and 4 s; then the call is refused, and nothing runs unrecorded",
        ),
        "",
    ),
    row(ErrorModel, "Session", No, "ResumeMismatch", Later("a record that does not fit is not resumed"), ""),
    row(ErrorModel, "Cancellation", Silent, "SessionCancelled", Cancelled, ""),
    row(ErrorModel, "Cancellation", Silent, "TurnCancelled", Cancelled, ""),
    row(ErrorModel, "Cancellation", Silent, "ToolCancelled", Cancelled, ""),
    row(
        ErrorModel,
        "ExtensionHost",
        No,
        "LifecycleFailure",
        Failure(ConnectorRuntimeError, &["load_failed", "trap"]),
        "",
    ),
    row(
        ErrorModel,
        "ExtensionHost",
        No,
        "DependencyCycle",
        Never("connectors do not depend on each other"),
        "",
    ),
    row(
        ErrorModel,
        "ExtensionHost",
        No,
        "DependencyMissing",
        Never("connectors do not depend on each other"),
        "",
    ),
    row(ErrorModel, "integrity", No, "IntegrityFailed", Failure(HashMismatch, &["hash"]), ""),
    row(ErrorModel, "integrity", No, "IntegrityTokenMissing", Failure(SignatureFailure, &["unsigned"]), ""),
    row(
        ErrorModel,
        "secrets",
        No,
        "SecretLeak",
        Failure(CapabilityDenied, &["secret_reflected", "secret_in_request"]),
        "Stopped before anybody sees it, which makes it a denial.",
    ),
    row(ErrorModel, "secrets", No, "MalformedSecretReference", Host(Validation), ""),
    row(ErrorModel, "audit", No, "UnknownAuditClass", Never("the steps of a record are a closed list"), ""),
    row(
        ErrorModel,
        "audit",
        No,
        "AuditWithoutCorrelation",
        Never("a step without its record cannot be written down"),
        "",
    ),
    row(
        ErrorModel,
        "policy",
        No,
        "PolicyInvalid",
        Host(Validation),
        "Said with file, line and fix when the policy is read, not when a call fails.",
    ),
    row(ErrorModel, "integrity", Maybe, "TrustStoreUnavailable", Host(KeyringInvalid), ""),
    row(
        ErrorModel,
        "prompts",
        No,
        "Auth.DeviceCode",
        Failure(BindingRequired, &["unbound"]),
        "A person binds it beforehand: calls ask nobody.",
    ),
];
