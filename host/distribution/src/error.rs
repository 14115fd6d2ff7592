//! The errors of this crate, each with the place and the fix.

use std::error::Error as _;
use std::fmt::Display;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::{Denial, GrantLine, sanitize_line};
use cofferdam_egress::egress::{NetworkFaultParts, RequestTarget, SendError, is_private};
use oci_client::errors::{OciDistributionError, OciErrorCode};

/// The longest text of a server in a message, in characters.
const SHOWN_CHARS: usize = 300;

/// The fix for a login that is missing or not enough.
const LOGIN: &str = "Log in with a tool that writes ~/.docker/config.json, such as `docker login`, `oras login` or \
                     `podman login --compat-auth-file`, and check that the account may do this.";

/// Returns the error for a fault of this machine or of the program.
pub(crate) fn internal(message: &str, error: impl std::error::Error + Send + Sync + 'static) -> HostError {
    HostError::new(HostErrorKind::Internal, message).with_source(error)
}

/// Returns the error for a source that does not have the package, refuses it, or cannot be reached.
pub(crate) fn unavailable(message: impl Into<String>, hint: impl Into<String>) -> HostError {
    HostError::new(HostErrorKind::SourceUnavailable, message).with_hint(hint)
}

/// Returns the error for a source that sent something unacceptable, or led to it.
pub(crate) fn refused(message: impl Into<String>, hint: impl Into<String>) -> HostError {
    HostError::new(HostErrorKind::SourceRefused, message).with_hint(hint)
}

/// Returns the error for a host whose address is one of a private network. A cloud's metadata address has no entry that
/// would allow it.
pub(crate) fn private_address(target: &RequestTarget, denial: &Denial) -> HostError {
    let address = denial.address();
    let range = address.and_then(is_private).unwrap_or("private");
    let shown = address.map_or_else(String::new, |address| format!(" ({address})"));
    let hint = match denial.line().and_then(GrantLine::entry) {
        Some(entry) => format!(
            "If it is meant, allow it with `--allow-private {entry}`, or in allow_private under [network] in \
             config.toml. If the reference names another host, its server led there: do not allow it."
        ),
        None => "Do not use this source: such an address serves the credentials of this machine. Report it to the \
                 registry's operator."
            .to_owned(),
    };
    refused(format!("{target} has a {range} address{shown}, which packages are not fetched from."), hint)
}

/// Returns the error for a request that would have been sent without TLS.
pub(crate) fn unencrypted(target: &RequestTarget) -> HostError {
    refused(
        format!("{target} would have been asked without TLS, and nothing was sent to it."),
        format!(
            "If the registry has no TLS and the network is your own, allow it \
             with `--plain-http {target}`."
        ),
    )
}

/// Returns the error for an HTTP client that cannot be set up. The certificate authorities in its settings were parsed
/// before, so the machine's are missing.
pub(crate) fn no_client() -> HostError {
    let message = "The HTTP client cannot be set up, because this machine has no certificate authorities.";
    HostError::new(HostErrorKind::Configuration, message).with_hint(
        "Install them (a package that is mostly called ca-certificates), or name a PEM file with them in \
         SSL_CERT_FILE.",
    )
}

/// Returns the error for a loopback name that leads to another machine, to which plain HTTP is not allowed.
pub(crate) fn not_loopback(target: &RequestTarget) -> HostError {
    refused(
        format!(
            "{target} has an address that is not one of loopback, and nothing was sent to it without TLS."
        ),
        format!(
            "Check how this machine looks the name up. If the address is meant, and the network is your own, allow it \
             with `--plain-http {target}`."
        ),
    )
}

/// Returns the error for a response with more bytes than the step allows.
pub(crate) fn too_much() -> HostError {
    refused("The server sent more bytes than were asked for.", "Report it to the registry's operator.")
}

/// Returns the error for an address from a server that is not a host and port.
pub(crate) fn not_an_address(authority: &str) -> HostError {
    let shown = sanitize_line(authority, 100);
    refused(format!("`{shown}` is not a host and port."), "Report it to the registry's operator.")
}

/// Returns the error for a connection that could not be opened.
pub(crate) fn unreachable(target: &RequestTarget, error: &SendError) -> HostError {
    let why = match error {
        SendError::Fault(NetworkFaultParts { code, .. }) => (*code).replace('_', " "),
        other => other.to_string(),
    };
    unavailable(
        format!("{target} cannot be reached ({why})."),
        "Check the reference, and that this machine reaches the server.",
    )
}

/// Returns the error for an operation that exceeded its time limit.
pub(crate) fn too_slow(reference: &dyn Display, limit: std::time::Duration) -> HostError {
    unavailable(
        format!("{reference} was not complete after {} s.", limit.as_secs_f64()),
        "Try again, or give it more time with --time-limit.",
    )
}

/// Returns the error for a response that makes the protocol's library panic.
pub(crate) fn unreadable_answer(reference: &dyn Display) -> HostError {
    refused(
        format!("The registry's answer about {reference} could not be processed."),
        "Report it to the registry's operator.",
    )
}

/// Returns the error for an answer of the registry, or for a failed request.
pub(crate) fn from_client(reference: &dyn Display, error: OciDistributionError) -> HostError {
    let said = |text: &str| sanitize_line(text, SHOWN_CHARS);
    let login_wanted =
        || unavailable(format!("The registry wants a login for {reference}, or another one."), LOGIN);
    match error {
        OciDistributionError::UnauthorizedError { .. } => login_wanted(),
        OciDistributionError::AuthenticationFailure(reason) => unavailable(
            format!("The registry's token service refused a token for {reference}: {}.", said(&reason)),
            LOGIN,
        ),
        OciDistributionError::RegistryError { envelope, .. } => {
            let is_refusal = envelope
                .errors
                .iter()
                .any(|error| matches!(error.code, OciErrorCode::Denied | OciErrorCode::Unauthorized));
            let words: Vec<_> = envelope.errors.iter().map(|error| said(&error.message)).collect();
            let message = format!("The registry refused {reference}: {}.", words.join("; "));
            unavailable(message, if is_refusal { LOGIN } else { "Check the reference." })
        }
        OciDistributionError::ServerError { code: 401 | 403, .. } => login_wanted(),
        OciDistributionError::RequestError(error)
            if error.status().is_some_and(|status| matches!(status.as_u16(), 401 | 403)) =>
        {
            login_wanted()
        }
        OciDistributionError::ServerError { code, .. } => unavailable(
            format!("The registry answered the request about {reference} with status {code}."),
            "Check the reference, or try again later.",
        ),
        OciDistributionError::DigestError(error) => refused(
            format!("The registry sent other bytes than those of {reference}: {}.", said(&error.to_string())),
            "Do not use this copy. Try again, and report it to the registry's operator.",
        ),
        OciDistributionError::RequestError(error) => from_request(reference, error),
        OciDistributionError::IoError(error) => unavailable(
            format!("The download of {reference} broke off: {}.", said(&error.to_string())),
            "Try again.",
        ),
        other => refused(
            format!(
                "The registry's answer about {reference} is not acceptable: {}.",
                said(&other.to_string())
            ),
            "Report it to the registry's operator.",
        ),
    }
}

/// Returns the error for a request that failed in the HTTP client.
pub(crate) fn from_request(reference: &dyn Display, error: reqwest::Error) -> HostError {
    // The URL may have the query of a redirect in it, which may be a credential.
    let error = error.without_url();
    let mut reasons = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        reasons.push(cause.to_string());
        next = cause.source();
    }
    let is_certificate = reasons.iter().any(|reason| reason.contains("certificate"));
    let hint = match is_certificate {
        true => "If the registry's certificate is of your own authority, name it with --ca-file.",
        false => "Check the reference, and that this machine reaches the server.",
    };
    let reasons = sanitize_line(&reasons.join(": "), SHOWN_CHARS);
    unavailable(format!("The request about {reference} failed: {reasons}."), hint)
}

/// Returns whether the registry says that it does not have it.
pub(crate) fn is_missing(error: &OciDistributionError) -> bool {
    match error {
        OciDistributionError::ImageManifestNotFoundError(_) => true,
        OciDistributionError::ServerError { code, .. } => *code == 404,
        OciDistributionError::RegistryError { envelope, .. } => envelope.errors.iter().any(|error| {
            matches!(
                error.code,
                OciErrorCode::ManifestUnknown | OciErrorCode::NameUnknown | OciErrorCode::NotFound
            )
        }),
        _ => false,
    }
}
