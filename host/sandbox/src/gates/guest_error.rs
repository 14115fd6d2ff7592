//! The errors that a guest gets for its requests.

use cofferdam_core::failure::RequestPhase;
use cofferdam_egress::egress::{RequestFlaw, code};
use wasmtime_wasi_http::Error;

/// Returns the guest's error for a request that is never sent.
pub(super) fn flawed(flaw: RequestFlaw) -> Error {
    match flaw {
        RequestFlaw::ContentLength => Error::HttpRequestBodySize(None),
        RequestFlaw::Path => Error::HttpRequestUriInvalid,
        RequestFlaw::Credential => Error::HttpRequestHeaderSectionSize(None),
    }
}

/// Returns the most specific error that the guest has for the gate's finding.
pub(super) fn guest_error(phase: RequestPhase, word: &str) -> Error {
    match (phase, word) {
        (RequestPhase::Dns, code::TIMEOUT) => Error::DnsTimeout,
        (RequestPhase::Dns, _) => Error::DnsError { rcode: None, info_code: None },
        (RequestPhase::Connect, code::REFUSED) => Error::ConnectionRefused,
        (RequestPhase::Connect | RequestPhase::Tls, code::TIMEOUT) => Error::ConnectionTimeout,
        (RequestPhase::Connect, _) => Error::DestinationUnavailable,
        (
            RequestPhase::Tls,
            code::TLS_EXPIRED
            | code::TLS_NOT_YET_VALID
            | code::TLS_WRONG_HOST
            | code::TLS_UNKNOWN_ISSUER
            | code::TLS_NO_ROOTS
            | code::TLS_CERTIFICATE,
        ) => Error::TlsCertificateError,
        (RequestPhase::Tls, _) => Error::TlsProtocolError,
        (RequestPhase::Response, code::TIMEOUT) => Error::HttpResponseTimeout,
        (RequestPhase::Response, code::MALFORMED_RESPONSE) => Error::HttpProtocolError,
        (RequestPhase::Response, code::HEADERS_TOO_LARGE) => Error::HttpResponseHeaderSectionSize(None),
        (RequestPhase::Send | RequestPhase::Response, _) => Error::ConnectionTerminated,
    }
}
