//! The words of the error handling standard (003): codes, kinds, reasons of denials and of its sandbox.

use super::{
    AUTH, GRANTED, INPUT, INTERNAL, LIMITED, MALFORMED, MISSING, NETWORK, NO_APPROVALS, NO_SESSION, NO_SPAWN,
    OPT_IN, TIMEOUT, TRAP, UNAVAILABLE, UNKNOWN_OP, UPSTREAM, WALL_TIME, row,
};
use crate::explain::external_term::{ExternalRetry, ExternalTerm, SourceDocument, TermMapping};

use ExternalRetry::{Maybe, No, Yes};
use FailureClass::{
    BindingRequired, CapabilityDenied, ConnectorRuntimeError, ExternalApiError, ResourceLimitExceeded,
};
use HostErrorKind::Validation;
use SourceDocument::Handling;
use TermMapping::{Cancelled, Failure, Host, Never, Reserved};
use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::FailureClass;

/// Its words.
pub(super) const ROWS: &[ExternalTerm] = &[
    row(
        Handling,
        "code",
        No,
        "validation",
        Host(Validation),
        "Of documents and arguments. Output that cannot be read is connector_runtime_error, output_malformed.",
    ),
    row(Handling, "code", No, "provider_auth", AUTH, ""),
    row(Handling, "code", Yes, "provider_rate_limit", LIMITED, ""),
    row(Handling, "code", Yes, "provider_unavailable", UNAVAILABLE, ""),
    row(Handling, "code", No, "content_filter", Failure(ExternalApiError, &["content_filter"]), UPSTREAM),
    row(Handling, "code", No, "budget_exceeded", Never(NO_SESSION), ""),
    row(Handling, "code", No, "run_timeout", WALL_TIME, ""),
    row(Handling, "code", No, "turn_limit", Never(NO_SESSION), ""),
    row(
        Handling,
        "code",
        No,
        "tool_denied",
        Failure(CapabilityDenied, &["operation_not_granted", "host_not_granted", "insecure_url"]),
        "",
    ),
    row(
        Handling,
        "code",
        Yes,
        "tool_failed",
        Failure(ConnectorRuntimeError, &["op_failed"]),
        "Retriable where the connector says that it is transient; what a service answered is external_api_error.",
    ),
    row(Handling, "code", No, "tool_unavailable", MISSING, ""),
    row(
        Handling,
        "code",
        Maybe,
        "sandbox_error",
        TRAP,
        "Of its reasons only the timeout may be repeated, there and here.",
    ),
    row(Handling, "code", No, "cancelled", Cancelled, ""),
    row(
        Handling,
        "code",
        No,
        "internal",
        INTERNAL,
        "The audit id is the correlation id. Before a call it is the host error `internal`.",
    ),
    row(Handling, "kind", Yes, "rate_limit", LIMITED, ""),
    row(Handling, "kind", Yes, "overloaded", UNAVAILABLE, ""),
    row(Handling, "kind", Yes, "timeout", TIMEOUT, ""),
    row(Handling, "kind", Yes, "transport", NETWORK, ""),
    row(Handling, "kind", No, "auth", AUTH, ""),
    row(Handling, "kind", No, "bad_request", Failure(ExternalApiError, &["bad_request"]), ""),
    row(Handling, "kind", No, "unknown", INTERNAL, ""),
    row(
        Handling,
        "tool",
        No,
        "invalid_args",
        INPUT,
        "Arguments of the wrong type do not reach the connector: they are the host error `validation`.",
    ),
    row(Handling, "tool", No, "unknown_tool", UNKNOWN_OP, ""),
    row(Handling, "tool", No, "result_type", MALFORMED, ""),
    row(Handling, "tool", No, "non_serializable", MALFORMED, ""),
    row(Handling, "key", No, "No API key found", Failure(BindingRequired, &["unbound"]), ""),
    row(Handling, "sandbox reason", Yes, "timeout", WALL_TIME, OPT_IN),
    row(Handling, "sandbox reason", No, "memory", Failure(ResourceLimitExceeded, &["memory"]), ""),
    row(Handling, "sandbox reason", No, "stack", Failure(ResourceLimitExceeded, &["stack"]), ""),
    row(Handling, "sandbox reason", No, "syntax", TRAP, ""),
    row(Handling, "sandbox reason", No, "runtime", TRAP, ""),
    row(Handling, "sandbox reason", No, "scope", TRAP, ""),
    row(
        Handling,
        "deny reason",
        No,
        "not_granted",
        Failure(CapabilityDenied, &["operation_not_granted", "host_not_granted", "credential_not_granted"]),
        "",
    ),
    row(Handling, "deny reason", No, "provider_executed", Never("operations run in the sandbox alone"), ""),
    row(Handling, "deny reason", No, "command_not_allowed", Never(NO_SPAWN), ""),
    row(
        Handling,
        "deny reason",
        No,
        "domain_not_allowed",
        Failure(CapabilityDenied, &["host_not_granted"]),
        "",
    ),
    row(Handling, "deny reason", No, "insecure_url", Failure(CapabilityDenied, &["insecure_url"]), ""),
    row(Handling, "deny reason", No, "gate_required", Reserved, GRANTED),
    row(Handling, "deny reason", No, "media_scope_denied", Never("values are data, whatever they hold"), ""),
    row(Handling, "approval", No, "user_rejected", Reserved, NO_APPROVALS),
    row(Handling, "approval", No, "no_approval_hook", Reserved, NO_APPROVALS),
    row(Handling, "approval", No, "approval_error", Reserved, NO_APPROVALS),
    row(Handling, "invariant", No, "EngineStateError", INTERNAL, ""),
    row(Handling, "invariant", No, "RunLoopInvariantError", INTERNAL, ""),
];
