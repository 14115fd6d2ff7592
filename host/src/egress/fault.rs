//! How a request fails, told apart by type: how far it came, why, and whether anything of it left.

use std::error::Error;
use std::io;

use crate::failure::{Denial, LimitHit, Phase};

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
    /// The peer broke the connection off.
    pub const RESET: &str = "reset";
    /// The peer closed the connection before it had answered whole.
    pub const CLOSED: &str = "closed";
    /// The server's certificate does not hold: expired, of another name, of an unknown issuer.
    pub const TLS_CERTIFICATE: &str = "tls_certificate";
    /// The TLS handshake failed for another reason.
    pub const TLS_HANDSHAKE: &str = "tls_handshake";
    /// The response is not HTTP/1.1, or contradicts itself.
    pub const MALFORMED_RESPONSE: &str = "malformed_response";
    /// The fields after the response's body are too large.
    pub const HEADERS_TOO_LARGE: &str = "headers_too_large";
    /// The request's own body failed or ended early.
    pub const REQUEST_BODY: &str = "request_body";
    /// Another input or output error.
    pub const IO: &str = "io";
}

/// Why [`Client::send`](super::Client::send) has no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// It is not allowed; nothing was sent. A denial: the call ends.
    #[error(transparent)]
    Refused(#[from] Denial),
    /// The guest built a request that is never sent; nothing was sent. The guest's error.
    #[error(transparent)]
    Flawed(#[from] RequestFlaw),
    /// The request or its answer is larger than a message may be: a limit, and the call ends.
    #[error("the {} limit was hit", .0.limit.name())]
    Limit(LimitHit),
    /// It failed on its way.
    #[error(transparent)]
    Fault(#[from] NetworkFaultParts),
}

/// A request that could be read in two ways, or that no server should get from a connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestFlaw {
    /// `CONNECT` (a tunnel past the gate) or `TRACE` (echoes what the host adds).
    #[error("the methods CONNECT and TRACE are not sent")]
    Method,
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
            word = match error {
                rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
                    code::TLS_CERTIFICATE
                }
                _ => code::TLS_HANDSHAKE,
            };
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
