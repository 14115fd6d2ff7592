//! The words of the other documents, a file each, and what several of them say.

mod error_model;
mod failover;
mod failure_model;
mod handling;
mod recovery;

use super::external_term::{ExternalRetry, ExternalTerm, SourceDocument, TermMapping};

use FailureClass::{
    CapabilityDenied, ConnectorRuntimeError, ExternalApiError, NetworkError, ResourceLimitExceeded,
};
use TermMapping::{Failure, Host};
use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::FailureClass;

/// Every foreign word, document by document.
pub fn external_terms() -> impl Iterator<Item = &'static ExternalTerm> {
    let all = [recovery::ROWS, error_model::ROWS, failover::ROWS, handling::ROWS, failure_model::ROWS];
    all.into_iter().flatten()
}

const NETWORK: TermMapping = Failure(
    NetworkError,
    &["dns_failed", "refused", "unreachable", "timeout", "reset", "closed", "tls_handshake"],
);
const AUTH: TermMapping = Failure(ExternalApiError, &["auth"]);
const TIMEOUT: TermMapping = Failure(ExternalApiError, &["timeout"]);
const UNAVAILABLE: TermMapping = Failure(ExternalApiError, &["unavailable"]);
const LIMITED: TermMapping = Failure(ExternalApiError, &["rate_limited"]);
const WALL_TIME: TermMapping = Failure(ResourceLimitExceeded, &["wall_time"]);
const MALFORMED: TermMapping = Failure(ConnectorRuntimeError, &["output_malformed"]);
const INPUT: TermMapping = Failure(ConnectorRuntimeError, &["input_invalid"]);
const TRAP: TermMapping = Failure(ConnectorRuntimeError, &["trap"]);
const INTERNAL: TermMapping = Failure(ConnectorRuntimeError, &["internal"]);
const MISSING: TermMapping = Failure(CapabilityDenied, &["capability_unavailable"]);
const UNKNOWN_OP: TermMapping = Host(HostErrorKind::OpNotFound);

const GRANTED: &str = "What a guest may do is decided before, by grants; nobody is asked while it runs.";
const NO_APPROVALS: &str = "Nobody is asked to approve a call yet.";
const NO_SPAWN: &str = "connectors start no programs";
const NO_SESSION: &str = "there are no sessions with a budget; the limits are those of a call";
const OPT_IN: &str = "Not retriable: a profile that names wall_time repeats it (`deterministic`).";
const INSTALL: &str =
    "A package is one file; what is wrong with it is said by `install`, `inspect` and `pack`.";
const UPSTREAM: &str = "The connector passes the service's word on; it stands in details.upstream_code, too.";

const fn row(
    document: SourceDocument,
    group: &'static str,
    theirs: ExternalRetry,
    word: &'static str,
    becomes: TermMapping,
    note: &'static str,
) -> ExternalTerm {
    ExternalTerm { document, word, group, theirs, becomes, note }
}
