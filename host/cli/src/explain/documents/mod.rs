//! The words of the other documents, a file each, and what several of them say.

mod error_model;
mod failover;
mod failure_model;
mod handling;
mod recovery;

use super::foreign::{Becomes, Document, Foreign, Theirs};

use Becomes::{Failure, Host};
use FailureClass::{
    CapabilityDenied, ConnectorRuntimeError, ExternalApiError, NetworkError, ResourceLimitExceeded,
};
use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::FailureClass;

/// Every foreign word, document by document.
pub fn foreign() -> impl Iterator<Item = &'static Foreign> {
    let all = [recovery::ROWS, error_model::ROWS, failover::ROWS, handling::ROWS, failure_model::ROWS];
    all.into_iter().flatten()
}

const NETWORK: Becomes = Failure(
    NetworkError,
    &["dns_failed", "refused", "unreachable", "timeout", "reset", "closed", "tls_handshake"],
);
const AUTH: Becomes = Failure(ExternalApiError, &["auth"]);
const TIMEOUT: Becomes = Failure(ExternalApiError, &["timeout"]);
const UNAVAILABLE: Becomes = Failure(ExternalApiError, &["unavailable"]);
const LIMITED: Becomes = Failure(ExternalApiError, &["rate_limited"]);
const WALL_TIME: Becomes = Failure(ResourceLimitExceeded, &["wall_time"]);
const MALFORMED: Becomes = Failure(ConnectorRuntimeError, &["output_malformed"]);
const INPUT: Becomes = Failure(ConnectorRuntimeError, &["input_invalid"]);
const TRAP: Becomes = Failure(ConnectorRuntimeError, &["trap"]);
const INTERNAL: Becomes = Failure(ConnectorRuntimeError, &["internal"]);
const MISSING: Becomes = Failure(CapabilityDenied, &["capability_unavailable"]);
const UNKNOWN_OP: Becomes = Host(HostErrorKind::OpNotFound);

const GRANTED: &str = "What a guest may do is decided before, by grants; nobody is asked while it runs.";
const NO_APPROVALS: &str = "Nobody is asked to approve a call yet.";
const NO_SPAWN: &str = "connectors start no programs";
const NO_SESSION: &str = "there are no sessions with a budget; the limits are those of a call";
const OPT_IN: &str = "Not retriable: a profile that names wall_time repeats it (`deterministic`).";
const INSTALL: &str =
    "A package is one file; what is wrong with it is said by `install`, `inspect` and `pack`.";
const UPSTREAM: &str = "The connector passes the service's word on; it stands in details.upstream_code, too.";

const fn row(
    document: Document,
    group: &'static str,
    theirs: Theirs,
    word: &'static str,
    becomes: Becomes,
    note: &'static str,
) -> Foreign {
    Foreign { document, word, group, theirs, becomes, note }
}
