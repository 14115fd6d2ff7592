//! The words of the provider failover record (002): categories, chain, breaker, limiter, guards.

use super::{AUTH, INTERNAL, LIMITED, NO_SESSION, TIMEOUT, UNAVAILABLE, row};
use crate::explain::external_term::{ExternalRetry, ExternalTerm, SourceDocument, TermMapping};

use ExternalRetry::{Maybe, No, Silent, Yes};
use FailureClass::{ExternalApiError, NetworkError, ResourceLimitExceeded};
use SourceDocument::Failover;
use TermMapping::{AsLast, Failure, Never};
use cofferdam_core::failure::FailureClass;

/// Its words.
pub(super) const ROWS: &[ExternalTerm] = &[
    row(
        Failover,
        "category",
        No,
        "auth",
        AUTH,
        "Opens a circuit for good, until the credential is bound anew.",
    ),
    row(
        Failover,
        "category",
        No,
        "payment",
        Failure(ExternalApiError, &["payment_required"]),
        "Opens a circuit for good, until it is reset.",
    ),
    row(Failover, "category", Yes, "rate_limited", LIMITED, ""),
    row(
        Failover,
        "category",
        Yes,
        "timeout",
        TIMEOUT,
        "For the breaker every request without an answer is one, too.",
    ),
    row(Failover, "category", Yes, "unavailable", UNAVAILABLE, ""),
    row(
        Failover,
        "category",
        No,
        "model_not_found",
        Failure(ExternalApiError, &["not_found"]),
        "Moves a chain on, and opens no circuit: one missing thing says nothing about the host.",
    ),
    row(
        Failover,
        "category",
        No,
        "unknown",
        INTERNAL,
        "What the host cannot explain is its own fault, tried once, and held against nobody.",
    ),
    row(Failover, "chain", Silent, "AllProvidersFailedError", AsLast, ""),
    row(
        Failover,
        "breaker",
        Maybe,
        "OPEN",
        Failure(NetworkError, &["circuit_open"]),
        "Where requests got no answer; external_api_error with the same code where the answers were errors.",
    ),
    row(
        Failover,
        "limiter",
        Yes,
        "RateLimiter",
        Failure(ResourceLimitExceeded, &["host_rate_limit"]),
        "Waits within the deadline first.",
    ),
    row(Failover, "guard", No, "SafetyLimitError", Never(NO_SESSION), ""),
    row(Failover, "guard", No, "LoopDetectedError", Never(NO_SESSION), ""),
];
