//! The failures of a request by type: the phase, the cause, and whether anything was sent.

use std::error::Error;
use std::io;

use cofferdam_core::failure::{Denial, LimitHit, RequestPhase};
use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible};

/// The gate's observations of a request that got no (complete) response; the parts of a `NetworkFault`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request failed in the {} phase ({code})", .phase.name())]
pub struct NetworkFaultParts {
    /// The phase that the request had reached.
    pub phase: RequestPhase,
    /// The detailed code: one of the constants of [`code`].
    pub code: &'static str,
    /// True if a byte of the request may have left this machine; false only if certainly none did.
    pub request_sent: bool,
}

/// The values of [`NetworkFaultParts::code`].
pub mod code {
    /// The name does not exist, or has no address.
    pub const DNS_NOT_FOUND: &str = "dns_not_found";
    /// The lookup failed temporarily.
    pub const DNS_FAILED: &str = "dns_failed";
    /// Nothing listens at the address.
    pub const REFUSED: &str = "refused";
    /// There is no route to the address.
    pub const UNREACHABLE: &str = "unreachable";
    /// The timeout for connecting, or for the first byte of the response, has passed.
    pub const TIMEOUT: &str = "timeout";
    /// The peer reset the connection.
    pub const RESET: &str = "reset";
    /// The peer closed the connection before the response was complete.
    pub const CLOSED: &str = "closed";
    /// The server's certificate, or one above it, is no longer valid (or this machine's clock is wrong).
    pub const TLS_EXPIRED: &str = "tls_expired";
    /// The server's certificate, or one above it, is not valid yet (or this machine's clock is wrong).
    pub const TLS_NOT_YET_VALID: &str = "tls_not_yet_valid";
    /// The server's certificate is for other names.
    pub const TLS_WRONG_HOST: &str = "tls_wrong_host";
    /// The server's certificate has an issuer that this host does not trust.
    pub const TLS_UNKNOWN_ISSUER: &str = "tls_unknown_issuer";
    /// The server's certificate is invalid for another reason.
    pub const TLS_CERTIFICATE: &str = "tls_certificate";
    /// This machine has no certificate authorities, so that no certificate can be checked.
    pub const TLS_NO_ROOTS: &str = "tls_no_roots";
    /// The server supports neither TLS 1.2 nor 1.3.
    pub const TLS_PROTOCOL_VERSION: &str = "tls_protocol_version";
    /// The server answered the TLS hello with something that is not TLS.
    pub const NOT_TLS: &str = "not_tls";
    /// The TLS handshake failed for another reason.
    pub const TLS_HANDSHAKE: &str = "tls_handshake";
    /// The response is not HTTP, or contradicts itself.
    pub const MALFORMED_RESPONSE: &str = "malformed_response";
    /// The fields after the response's body are too large.
    pub const HEADERS_TOO_LARGE: &str = "headers_too_large";
    /// The request's own body failed or ended early.
    pub const REQUEST_BODY: &str = "request_body";
    /// Another input or output error.
    pub const IO: &str = "io";
}

/// Returns the operator's remedy for a fault with this code, if the cause may be this machine.
#[must_use]
pub fn remedy(word: &str) -> Option<&'static str> {
    match word {
        code::TLS_NO_ROOTS => Some(
            "remedy: this machine has no certificate authorities; install its own (a package that is mostly called \
             ca-certificates), or set roots = \"bundled\" under [network] in config.toml",
        ),
        code::TLS_UNKNOWN_ISSUER => Some(
            "remedy: if the issuer is your own, name its certificate in extra_roots under [network] in config.toml",
        ),
        code::NOT_TLS => Some(
            "remedy: the server speaks no TLS on this port; correct the port, or, where it may go unencrypted, have the \
             manifest grant it as http://host:port",
        ),
        code::TLS_EXPIRED | code::TLS_NOT_YET_VALID => {
            Some("remedy: if the certificate is good, correct this machine's clock")
        }
        _ => None,
    }
}

/// The reason why [`EgressClient::send`](super::EgressClient::send) has no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The request is not allowed and was not sent. A denial: the call ends.
    #[error(transparent)]
    Refused(#[from] Denial),
    /// The request was sent, and its response is not passed on. A denial: the call ends.
    #[error(transparent)]
    RefusedAnswer(Denial),
    /// The guest built a request that is never sent. Nothing was sent. It is the guest's error.
    #[error(transparent)]
    Flawed(#[from] RequestFlaw),
    /// The request or its response exceeds a size limit, and the call ends.
    #[error("the {} limit was hit", .0.limit.name())]
    Limit(LimitHit),
    /// The observer prevented the request, since the attempt's outcome was already decided. Nothing was sent.
    #[error("the request came too late")]
    Over,
    /// The request failed on its way.
    #[error(transparent)]
    Fault(#[from] NetworkFaultParts),
}

/// A request that is ambiguous, or that no server should get from a connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestFlaw {
    /// More than one `Content-Length`, one that is no plain number, or one that contradicts the body.
    #[error("Content-Length must be one plain number that is the body's length")]
    ContentLength,
    /// The path would be taken for an absolute URL.
    #[error("the path must begin with `/`")]
    Path,
    /// Its credentials do not fit into it, or it cannot be signed.
    #[error("the request cannot carry its credential")]
    Credential,
}

/// Returns the code for an error of connecting, writing or reading, from the innermost cause that tells
/// anything.
pub(super) fn classify(error: &(dyn Error + 'static)) -> &'static str {
    let mut word = code::IO;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            word = classify_http(error, word);
        } else if let Some(error) = error.downcast_ref::<io::Error>() {
            word = classify_io(error, word);
        } else if let Some(error) = error.downcast_ref::<rustls::Error>() {
            word = classify_tls(error);
        }
        next = inner(error);
    }
    word
}

/// Returns the inner error, which `io::Error` hides from `source`.
fn inner<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

fn classify_tls(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(error) => match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => code::TLS_EXPIRED,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                code::TLS_NOT_YET_VALID
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                code::TLS_WRONG_HOST
            }
            CertificateError::UnknownIssuer => code::TLS_UNKNOWN_ISSUER,
            _ => code::TLS_CERTIFICATE,
        },
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => code::NOT_TLS,
        rustls::Error::NoCertificatesPresented => code::TLS_CERTIFICATE,
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)
        | rustls::Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => code::TLS_PROTOCOL_VERSION,
        _ => code::TLS_HANDSHAKE,
    }
}

fn classify_http(error: &hyper::Error, outer: &'static str) -> &'static str {
    if error.is_parse_too_large() {
        code::HEADERS_TOO_LARGE
    } else if error.is_parse() {
        code::MALFORMED_RESPONSE
    } else if error.is_body_write_aborted() || error.is_user() {
        code::REQUEST_BODY
    } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        code::CLOSED
    } else {
        outer
    }
}

fn classify_io(error: &io::Error, outer: &'static str) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => code::REFUSED,
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
            code::RESET
        }
        io::ErrorKind::UnexpectedEof => code::CLOSED,
        io::ErrorKind::TimedOut => code::TIMEOUT,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::AddrNotAvailable => code::UNREACHABLE,
        // The error of the chunk decoder, or of rustls, for malformed bytes.
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => code::MALFORMED_RESPONSE,
        _ => outer,
    }
}
