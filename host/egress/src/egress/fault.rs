//! How a request fails, told apart by type: how far it came, why, and whether anything of it left.

use std::error::Error;
use std::io;

use cofferdam_core::failure::{Denial, LimitHit, Phase};
use rustls::{AlertDescription, CertificateError, InvalidMessage, PeerIncompatible};

/// What the gate saw of a request that got no (whole) answer; the parts of a `NetworkFault`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request failed in the {} phase ({code})", .phase.name())]
pub struct NetworkFaultParts {
    /// How far it came.
    pub phase: Phase,
    /// The finer word: one of the constants of [`code`].
    pub code: &'static str,
    /// Whether any byte of the request may have left this machine. False only where that is certain.
    pub request_sent: bool,
}

/// The words of [`NetworkFaultParts::code`].
pub mod code {
    /// The name does not exist, or has no address.
    pub const DNS_NOT_FOUND: &str = "dns_not_found";
    /// The name could not be looked up now.
    pub const DNS_FAILED: &str = "dns_failed";
    /// Nothing listens at the address.
    pub const REFUSED: &str = "refused";
    /// There is no way to the address.
    pub const UNREACHABLE: &str = "unreachable";
    /// The time for connecting, or for the first byte of the response, is over.
    pub const TIMEOUT: &str = "timeout";
    /// The peer broke the connection off, or (HTTP/2) this request alone.
    pub const RESET: &str = "reset";
    /// The peer closed the connection before it had answered whole.
    pub const CLOSED: &str = "closed";
    /// The server says that it did not process the request, which had reached it.
    pub const NOT_PROCESSED: &str = "not_processed";
    /// The server's certificate, or one above it, is no longer valid (or this machine's clock is wrong).
    pub const TLS_EXPIRED: &str = "tls_expired";
    /// The server's certificate, or one above it, is not valid yet (or this machine's clock is wrong).
    pub const TLS_NOT_YET_VALID: &str = "tls_not_yet_valid";
    /// The server's certificate is for other names.
    pub const TLS_WRONG_HOST: &str = "tls_wrong_host";
    /// The server's certificate is of an issuer that this host does not believe.
    pub const TLS_UNKNOWN_ISSUER: &str = "tls_unknown_issuer";
    /// The server's certificate does not hold for another reason.
    pub const TLS_CERTIFICATE: &str = "tls_certificate";
    /// This machine has no certificate authorities, so that no certificate can be checked.
    pub const TLS_NO_ROOTS: &str = "tls_no_roots";
    /// The server has neither TLS 1.2 nor 1.3.
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

/// What the operator can do about a fault with this word, where it may be this machine's own.
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

/// Why [`Client::send`](super::Client::send) has no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// It is not allowed; nothing was sent. A denial: the call ends.
    #[error(transparent)]
    Refused(#[from] Denial),
    /// The request was sent, and its answer is not passed on. A denial: the call ends.
    #[error(transparent)]
    RefusedAnswer(Denial),
    /// The guest built a request that is never sent; nothing was sent. The guest's error.
    #[error(transparent)]
    Flawed(#[from] RequestFlaw),
    /// The request or its answer is larger than a message may be: a limit, and the call ends.
    #[error("the {} limit was hit", .0.limit.name())]
    Limit(LimitHit),
    /// Its observer prevented it, since the attempt was judged already. Nothing was sent.
    #[error("the request came too late")]
    Over,
    /// It failed on its way.
    #[error(transparent)]
    Fault(#[from] NetworkFaultParts),
}

/// A request that could be read in two ways, or that no server should get from a connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestFlaw {
    /// More than one `Content-Length`, one that is no plain number, or one that contradicts the body.
    #[error("Content-Length must be one plain number that is the body's length")]
    ContentLength,
    /// The path would be taken for a whole URL.
    #[error("the path must begin with `/`")]
    Path,
    /// What it carries of credentials does not fit into it, or it cannot be signed.
    #[error("the request cannot carry its credential")]
    Credential,
}

/// The word for an error of connecting, writing or reading, from the innermost cause that says anything.
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

/// `io::Error` hides its own inner error from `source`.
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

/// The word for an error of one HTTP/2 stream.
pub(super) fn classify_stream(error: &h2::Error) -> &'static str {
    if let Some(error) = error.get_io() {
        // What h2 makes of an end of the connection at which nobody should stop.
        return if error.kind() == io::ErrorKind::BrokenPipe { code::CLOSED } else { classify(error) };
    }
    match error.reason() {
        _ if error.is_library() => code::MALFORMED_RESPONSE,
        // Of a GOAWAY only the requests hear that the server will not look at.
        _ if error.is_remote() && error.is_go_away() => code::NOT_PROCESSED,
        Some(h2::Reason::REFUSED_STREAM) if error.is_remote() => code::NOT_PROCESSED,
        _ if error.is_remote() => code::RESET,
        _ => code::IO,
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
        // What a decoder of chunks, or rustls, says of bytes that make no sense.
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => code::MALFORMED_RESPONSE,
        _ => outer,
    }
}
