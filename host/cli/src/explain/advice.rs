//! What to do about whole classes, about limits, and about failures that were not repeated.

use super::code_info::{CodeInfo, FixOwner, RetryAdvice, TermKind};
use super::codes::ASK;

use FailureClass::{
    BindingFailed, BindingRequired, CapabilityDenied, ConnectorRuntimeError, ExternalApiError, HashMismatch,
    NetworkError, ResourceLimitExceeded, SignatureFailure,
};
use FixOwner::{Author, Caller, Operator, Service};
use RetryAdvice::{Backoff, Depends, No, OptIn, WhenTold};
use cofferdam_core::failure::{
    DeadlineScope, FailureBoundary, FailureCause, FailureClass, LimitKind, RetryStopped,
};

/// The code of a failure that hit this limit.
pub(super) fn of_limit(limit: LimitKind) -> CodeInfo {
    let rate = limit == LimitKind::Rate;
    let (again, mended_by) = match limit {
        LimitKind::Rate => (WhenTold, Operator),
        LimitKind::WallTime => (OptIn, Caller),
        LimitKind::Fuel | LimitKind::Memory | LimitKind::Payload => (No, Caller),
        _ => (No, Author),
    };
    let remedy = match limit {
        LimitKind::WallTime => {
            "The caller can raise it (`--wall-time`; where `details.of` is `attempt`, `--attempt-timeout`; where it is \
             `action`, its author can, with `timeout`); or ask for less in one call."
        }
        _ => limit.owner(DeadlineScope::Call).advice,
    };
    CodeInfo {
        word: if rate { "host_rate_limit" } else { limit.name() },
        kind: TermKind::Code,
        class: Some(ResourceLimitExceeded),
        boundary: &[FailureBoundary::Sandbox],
        meaning: limit.meaning(),
        again,
        cause: (limit == LimitKind::WallTime).then_some(FailureCause::WallTime),
        mended_by,
        remedy,
        exit_code: Some(ResourceLimitExceeded.exit_code()),
    }
}

/// What holds for most failures of a class.
pub(super) fn of_class(class: FailureClass) -> (RetryAdvice, FixOwner, &'static str) {
    match class {
        CapabilityDenied => (No, Author, ASK),
        BindingRequired => (No, Operator, "Run the command in `details.suggestion`, and call again."),
        BindingFailed => {
            (Depends, Operator, "Bind it anew with `cofferdam binding rebind`; `details.code` says more.")
        }
        ResourceLimitExceeded => {
            (No, Caller, "`details.limit` names the limit; give the call more of it, or ask for less.")
        }
        ConnectorRuntimeError => (
            Depends,
            Author,
            "`details.code` says how it failed; `input_invalid` and `op_failed` are for the caller.",
        ),
        NetworkError => {
            (Backoff, Service, "Wait; `details.phase` and `details.code` say how far the request came.")
        }
        ExternalApiError => {
            (Depends, Service, "`details.status` and `details.code` say what the service answered.")
        }
        HashMismatch => (No, Operator, "Remove the connector and install it again from its source."),
        SignatureFailure => (
            No,
            Operator,
            "`details.code` says what is wrong with the signature, `details.suggestion` what to do.",
        ),
    }
}

/// Why a failure was not repeated.
pub(super) const STOPPED: [RetryStopped; 6] = RetryStopped::ALL;

pub(super) fn of_stopped(stopped: &RetryStopped) -> CodeInfo {
    let (meaning, again, mended_by, remedy) = match stopped {
        RetryStopped::MaxAttempts => (
            "Every attempt that the retry profile allows was made.",
            WhenTold,
            Caller,
            "Call again later, or choose a profile with more attempts.",
        ),
        RetryStopped::WallTime => (
            "The next wait would not have ended within the call's wall time.",
            WhenTold,
            Caller,
            "Call again after `details.retry_after_ms`, or give the call more time.",
        ),
        RetryStopped::CircuitOpen => (
            "The circuit to the host opened, or this was the one call that tried it.",
            WhenTold,
            Service,
            "Call again when the circuit lets requests pass.",
        ),
        RetryStopped::NotAdmitted => (
            "What admitted the first attempt no longer did: the connector was removed, or its key revoked.",
            No,
            Operator,
            "See the connector's standing with `cofferdam verify`.",
        ),
        RetryStopped::NotDeclaredIdempotent => (
            "The attempt had sent a request that may take effect each time it arrives, without the call's idempotency key, and the manifest does not declare the operation idempotent by name.",
            No,
            Author,
            "Look at the service before the call is made again. Where repeating is safe, its author writes the line in `details.allow`.",
        ),
        RetryStopped::Busy => (
            "As many calls wait between attempts, or for a turn, as the host takes.",
            Backoff,
            Caller,
            "Call again later, or ask for less at once.",
        ),
    };
    CodeInfo {
        word: stopped.name(),
        kind: TermKind::RetryStopped,
        class: None,
        boundary: &[],
        meaning,
        again,
        cause: None,
        mended_by,
        remedy,
        exit_code: None,
    }
}
