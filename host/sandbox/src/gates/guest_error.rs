//! The errors that a guest gets for its requests.

use cofferdam_core::failure::Phase;
use cofferdam_egress::egress::{RequestFlaw, code};
use wasmtime_wasi_http::Error;

/// What the guest is told of a request that is never sent.
pub(super) fn flawed(flaw: RequestFlaw) -> Error {
    match flaw {
        RequestFlaw::ContentLength => Error::HttpRequestBodySize(None),
        RequestFlaw::Path => Error::HttpRequestUriInvalid,
        RequestFlaw::Credential => Error::HttpRequestHeaderSectionSize(None),
    }
}

/// The error that tells the guest most of what the gate knows.
pub(super) fn guest_error(phase: Phase, word: &str) -> Error {
    match (phase, word) {
        (Phase::Dns, code::TIMEOUT) => Error::DnsTimeout,
        (Phase::Dns, _) => Error::DnsError { rcode: None, info_code: None },
        (Phase::Connect, code::REFUSED) => Error::ConnectionRefused,
        (Phase::Connect | Phase::Tls, code::TIMEOUT) => Error::ConnectionTimeout,
        (Phase::Connect, _) => Error::DestinationUnavailable,
        (
            Phase::Tls,
            code::TLS_EXPIRED
            | code::TLS_NOT_YET_VALID
            | code::TLS_WRONG_HOST
            | code::TLS_UNKNOWN_ISSUER
            | code::TLS_NO_ROOTS
            | code::TLS_CERTIFICATE,
        ) => Error::TlsCertificateError,
        (Phase::Tls, _) => Error::TlsProtocolError,
        (Phase::Response, code::TIMEOUT) => Error::HttpResponseTimeout,
        (Phase::Response, code::MALFORMED_RESPONSE) => Error::HttpProtocolError,
        (Phase::Response, code::HEADERS_TOO_LARGE) => Error::HttpResponseHeaderSectionSize(None),
        (Phase::Send | Phase::Response, _) => Error::ConnectionTerminated,
    }
}
