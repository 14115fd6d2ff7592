//! The words of the failure model (004): fourteen codes in six categories, and what its implementation adds.

use super::{AUTH, LIMITED, MALFORMED, NETWORK, OPT_IN, UNKNOWN_OP, WALL_TIME, row};
use crate::explain::external_term::{ExternalRetry, ExternalTerm, SourceDocument, TermMapping};

use ExternalRetry::{Maybe, No, Silent, Yes};
use FailureClass::{ConnectorRuntimeError, ResourceLimitExceeded};
use HostErrorKind::{ContractVersion, Validation, VaultUnusable};
use SourceDocument::FailureModel;
use TermMapping::{AsLast, Cancelled, Failure, Host, Later};
use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::FailureClass;

/// Its words.
pub(super) const ROWS: &[ExternalTerm] = &[
    row(FailureModel, "Validation", No, "VALIDATION_ERROR", Host(Validation), ""),
    row(
        FailureModel,
        "Validation",
        No,
        "PAYLOAD_TOO_LARGE",
        Failure(ResourceLimitExceeded, &["payload"]),
        "",
    ),
    row(FailureModel, "Validation", No, "unsupported version", Host(ContractVersion), ""),
    row(FailureModel, "Routing", Maybe, "ROUTING_ERROR", Host(Validation), ""),
    row(
        FailureModel,
        "Routing",
        No,
        "CAPABILITY_NOT_FOUND",
        UNKNOWN_OP,
        "An unknown connector is the host error `connector_not_found`.",
    ),
    row(FailureModel, "Agent", Maybe, "AGENT_ERROR", Failure(ConnectorRuntimeError, &["op_failed"]), ""),
    row(FailureModel, "Agent", Yes, "AGENT_TIMEOUT", WALL_TIME, OPT_IN),
    row(FailureModel, "Agent", Yes, "AGENT_UNAVAILABLE", NETWORK, ""),
    row(
        FailureModel,
        "Agent",
        Maybe,
        "INTERNAL_AGENT_ERROR",
        Failure(ConnectorRuntimeError, &["trap", "exit"]),
        "",
    ),
    row(FailureModel, "Transport", Yes, "TRANSPORT_ERROR", NETWORK, ""),
    row(FailureModel, "Transport", No, "PROTOCOL_ERROR", MALFORMED, ""),
    row(FailureModel, "Security", No, "UNAUTHORIZED", AUTH, ""),
    row(FailureModel, "Security", Yes, "RATE_LIMIT", LIMITED, "Where the service limits."),
    row(
        FailureModel,
        "Security",
        Yes,
        "RATE_LIMIT",
        Failure(ResourceLimitExceeded, &["host_rate_limit"]),
        "Where this host's own limit does.",
    ),
    row(
        FailureModel,
        "Security",
        No,
        "EMCL_FAILURE",
        Host(VaultUnusable),
        "Where the vault cannot be opened; a signature that does not hold is signature_failure.",
    ),
    row(FailureModel, "Internal", No, "WORKFLOW_ABORTED", Cancelled, ""),
    row(FailureModel, "routing", Silent, "fallback_exhausted", AsLast, ""),
    row(
        FailureModel,
        "replay",
        No,
        "REPLAY_HASH_MISMATCH",
        Later("a record whose connector or arguments have changed is not replayed"),
        "",
    ),
];
