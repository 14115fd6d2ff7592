//! The words of the error recovery record (000): names that it reserves, and codes of its implementation.

use super::{INPUT, INSTALL, NO_APPROVALS, UNKNOWN_OP, row};
use crate::explain::external_term::{ExternalRetry, ExternalTerm, SourceDocument, TermMapping};

use ExternalRetry::{Maybe, No};
use FailureClass::{ConnectorRuntimeError, ExternalApiError, SignatureFailure};
use HostErrorKind::{RegistryUnavailable, Validation};
use SourceDocument::Recovery;
use TermMapping::{Failure, Host, Later, Reserved};
use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::FailureClass;

/// Its words.
pub(super) const ROWS: &[ExternalTerm] = &[
    row(Recovery, "reserved", No, "approval_denied", Reserved, NO_APPROVALS),
    row(Recovery, "reserved", No, "approval_timeout", Reserved, NO_APPROVALS),
    row(Recovery, "install", No, "unknown_scheme", Host(Validation), INSTALL),
    row(Recovery, "install", No, "parse_error", Host(Validation), INSTALL),
    row(Recovery, "install", No, "validation_error", Host(Validation), INSTALL),
    row(Recovery, "install", No, "malformed_tarball", Host(Validation), INSTALL),
    row(Recovery, "install", No, "fqn_mismatch", Failure(SignatureFailure, &["identity_mismatch"]), ""),
    row(Recovery, "install", No, "store_unwritable", Host(RegistryUnavailable), ""),
    row(
        Recovery,
        "install",
        Maybe,
        "fetch_failed",
        Later(
            "packages are given as files; a fetch will fail as network_error or external_api_error, by its cause",
        ),
        "",
    ),
    row(
        Recovery,
        "install",
        No,
        "connector_load_failed",
        Failure(ConnectorRuntimeError, &["load_failed"]),
        "",
    ),
    row(Recovery, "authoring", No, "bad_input", INPUT, ""),
    row(Recovery, "authoring", Maybe, "external_service_error", Failure(ExternalApiError, &[]), ""),
    row(Recovery, "authoring", No, "unknown_op", UNKNOWN_OP, ""),
];
