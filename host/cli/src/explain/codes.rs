//! The codes of failures inside the host (`details.code`), each with its class, its advice and its remedy.

use super::code_info::{CodeInfo, FixOwner, RetryAdvice, TermKind};

use FailureBoundary::{Action, ConnectorManifest, Runtime, Sandbox};
use FailureClass::{
    BindingFailed, BindingRequired, CapabilityDenied, ConnectorRuntimeError, HashMismatch, SignatureFailure,
};
use FixOwner::{Author, Caller, Operator, Service};
use RetryAdvice::{Backoff, Depends, No};
use cofferdam_core::failure::{FailureBoundary, FailureCause, FailureClass};

/// One row: a code within a class.
pub(super) struct CodeRow {
    pub(super) word: &'static str,
    pub(super) class: FailureClass,
    pub(super) boundary: &'static [FailureBoundary],
    pub(super) again: RetryAdvice,
    pub(super) cause: Option<FailureCause>,
    pub(super) mended_by: FixOwner,
    pub(super) meaning: &'static str,
    pub(super) remedy: &'static str,
}

impl CodeRow {
    pub(super) fn to_info(&self) -> CodeInfo {
        CodeInfo {
            word: self.word,
            kind: TermKind::Code,
            class: Some(self.class),
            boundary: self.boundary,
            meaning: self.meaning,
            again: self.again,
            cause: self.cause,
            mended_by: self.mended_by,
            remedy: self.remedy,
            exit_code: Some(self.class.exit_code()),
        }
    }
}

const fn denied(
    word: &'static str,
    boundary: &'static [FailureBoundary],
    mended_by: FixOwner,
    meaning: &'static str,
    remedy: &'static str,
) -> CodeRow {
    CodeRow { word, class: CapabilityDenied, boundary, again: No, cause: None, mended_by, meaning, remedy }
}

const fn signature(
    word: &'static str,
    mended_by: FixOwner,
    meaning: &'static str,
    remedy: &'static str,
) -> CodeRow {
    let boundary = &[Runtime];
    CodeRow { word, class: SignatureFailure, boundary, again: No, cause: None, mended_by, meaning, remedy }
}

const fn fault(
    word: &'static str,
    again: RetryAdvice,
    cause: Option<FailureCause>,
    mended_by: FixOwner,
    meaning: &'static str,
    remedy: &'static str,
) -> CodeRow {
    let boundary = &[Sandbox];
    CodeRow { word, class: ConnectorRuntimeError, boundary, again, cause, mended_by, meaning, remedy }
}

const fn binding(
    word: &'static str,
    class: FailureClass,
    again: RetryAdvice,
    cause: Option<FailureCause>,
    mended_by: FixOwner,
    meaning: &'static str,
    remedy: &'static str,
) -> CodeRow {
    CodeRow { word, class, boundary: &[Runtime], again, cause, mended_by, meaning, remedy }
}

pub(super) const ASK: &str =
    "`cofferdam why` says which line decides it; `details.allow` has the line that would allow it.";
pub(super) const REPORT: &str = "Report it to the connector's author, with the audit id.";
/// The codes of what happens inside: denials, bindings, the connector's own faults, identity.
pub(super) const CODES: &[CodeRow] = &[
    denied(
        "host_not_granted",
        &[Sandbox, Action],
        Author,
        "The connector asked for a host:port that is not among the granted ones.",
        ASK,
    ),
    denied(
        "operation_not_granted",
        &[Action, ConnectorManifest],
        Caller,
        "The operation is not in the subset that the action declares, or the connector has no such operation.",
        "Name the operation under `capabilities` of the action, if it is meant to be called.",
    ),
    denied(
        "method_not_granted",
        &[ConnectorManifest],
        Author,
        "The connector was about to send a method that its manifest does not grant, or that is not one of those of an operation that is declared `read_only`.",
        "Correct the operation, or what its manifest says of it: `details.allow` has the line.",
    ),
    denied(
        "insecure_url",
        &[Sandbox, Action],
        Author,
        "The request would go out without TLS, and the grant says TLS.",
        ASK,
    ),
    denied(
        "invalid_authority",
        &[Sandbox],
        Author,
        "The request's target is not written in a form that can be checked.",
        REPORT,
    ),
    denied(
        "private_address",
        &[Sandbox],
        Operator,
        "The name resolves to an address inside the operator's own network.",
        "If the connector may go there, allow that host:port with --allow-private or in config.toml.",
    ),
    denied(
        "partial_response",
        &[Sandbox],
        Author,
        "The service answered a request that carries a credential with a part of its answer (status 206).",
        "Use an operation of the service that answers whole; the host drops `Range` from requests that carry a credential.",
    ),
    denied(
        "credential_parameter",
        &[Sandbox],
        Author,
        "The request has a query parameter that the host writes, for a credential.",
        REPORT,
    ),
    denied(
        "credential_not_granted",
        &[ConnectorManifest, Sandbox],
        Author,
        "The connector asked for a handle for a credential that its manifest does not name.",
        ASK,
    ),
    denied(
        "credential_handle",
        &[Sandbox],
        Author,
        "A handle is unknown or spent, or stands where no credential goes.",
        REPORT,
    ),
    denied(
        "capability_unavailable",
        &[ConnectorManifest, Sandbox],
        Author,
        "The component asks for an interface that its manifest does not name, or that no host has.",
        ASK,
    ),
    denied(
        "secret_in_request",
        &[Sandbox],
        Caller,
        "What the connector wanted to send holds the secret of a binding; it was stopped.",
        "Leave the secret out of the arguments: the host adds credentials by itself.",
    ),
    denied(
        "secret_reflected",
        &[Sandbox],
        Operator,
        "What a service answered, or the connector returned, holds the secret of a binding; it was stopped.",
        "Use an operation that does not echo what it is sent; rebind if anybody else may have seen the answer.",
    ),
    binding(
        "unbound",
        BindingRequired,
        No,
        None,
        Operator,
        "Nothing is bound under the name that the connector needs.",
        "Run the command in `details.suggestion`, and call again.",
    ),
    binding(
        "not_allowed",
        BindingRequired,
        No,
        None,
        Operator,
        "Something is bound, and this connector may not use it, or not there.",
        "Run the command in `details.suggestion`, if it may.",
    ),
    binding(
        "refresh_refused",
        BindingFailed,
        No,
        None,
        Operator,
        "The issuer of tokens refused to give one: the grant was revoked, or its scope changed.",
        "Bind it anew with `cofferdam binding rebind`.",
    ),
    binding(
        "refresh_unreachable",
        BindingFailed,
        Backoff,
        Some(FailureCause::RefreshUnreachable),
        Service,
        "The issuer of tokens could not be asked, or could not answer.",
        "Wait and call again; `cofferdam binding test` asks the issuer alone.",
    ),
    binding(
        "vault_unavailable",
        BindingFailed,
        No,
        None,
        Operator,
        "The vault could not be used when a request needed a credential, and others had been sent by then.",
        "See what those did, then mend what `details.vault` names; `cofferdam explain` knows the word.",
    ),
    binding(
        "endpoint_not_allowed",
        BindingFailed,
        No,
        None,
        Operator,
        "The issuer of tokens is at a place that the host does not go to.",
        "Correct the binding's token endpoint, or allow its host:port.",
    ),
    binding(
        "unsendable",
        BindingFailed,
        No,
        None,
        Operator,
        "What is bound cannot be sent as the manifest wants it.",
        "Bind the secret without line breaks and the like; the manifest's `format` says how it is sent.",
    ),
    fault(
        "trap",
        No,
        None,
        Author,
        "The connector's code stopped with a trap; `details.trap` says which. A panic is one, too.",
        REPORT,
    ),
    fault("exit", No, None, Author, "The connector ended itself instead of returning a result.", REPORT),
    fault(
        "output_malformed",
        No,
        None,
        Author,
        "The connector returned a value that cannot be read as its declared result.",
        REPORT,
    ),
    fault(
        "input_invalid",
        No,
        None,
        Caller,
        "The connector refused its arguments; `details.field` and `details.connector_message` say what is wrong.",
        "Correct the argument.",
    ),
    fault(
        "op_failed",
        Depends,
        Some(FailureCause::Transient),
        Caller,
        "The operation failed for a reason of its own; `details.connector_code` and `details.connector_message` say which.",
        "Do what the connector's message says; where `retriable` is true, the connector says that it may pass.",
    ),
    fault("load_failed", No, None, Author, "The connector's component could not be started.", REPORT),
    CodeRow {
        boundary: &[Runtime],
        ..fault(
            "internal",
            No,
            None,
            Operator,
            "The host failed while it ran the connector.",
            "A fault of the host: please report it, with what its log says under the audit id.",
        )
    },
    CodeRow {
        word: "hash",
        class: HashMismatch,
        boundary: &[Runtime],
        again: No,
        cause: None,
        mended_by: Operator,
        meaning: "The bytes are not those that were verified, or not those that were asked for.",
        remedy: "Remove the connector and install it again from its source; find out who changed the file.",
    },
    signature(
        "unsigned",
        Operator,
        "The package has no signature.",
        "Have it signed; `--allow-unsigned` is for development alone.",
    ),
    signature(
        "malformed_signature",
        Author,
        "The signature cannot be read as a DSSE envelope with an in-toto statement.",
        "Sign it with `cofferdam sign`, or get the file again from its source.",
    ),
    signature(
        "unknown_key",
        Operator,
        "No key of the keyring made any of the signatures.",
        "If you trust the signer, add the key with `cofferdam trust add`.",
    ),
    signature(
        "key_scope",
        Operator,
        "A known key made it, but is not trusted for this connector's name.",
        "If you trust the key for this name, say so with `cofferdam trust add`.",
    ),
    signature(
        "revoked_key",
        Author,
        "The key that made it was revoked.",
        "Have it signed with a key that holds.",
    ),
    signature(
        "expired_key",
        Author,
        "The key that made it is past its date.",
        "Have it signed with a key that holds.",
    ),
    signature(
        "bad_signature",
        Operator,
        "The signature does not verify over these bytes.",
        "Get the package again from its source; do not run this one.",
    ),
    signature(
        "identity_mismatch",
        Operator,
        "The signature is about another connector, version or hash.",
        "Get the signature that belongs to the package.",
    ),
    signature(
        "below_floor",
        Operator,
        "The version is below the floor that the keyring holds for the connector.",
        "Install a newer version, or lower the floor with `cofferdam trust floor`.",
    ),
];
