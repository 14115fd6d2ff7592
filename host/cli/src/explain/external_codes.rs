//! The codes of the outside world (`details.code`): requests without an answer, answers that are errors.

use super::code_info::{FixOwner, RetryAdvice};
use super::codes::{CodeRow, REPORT};

use FailureBoundary::External;
use FailureClass::{ExternalApiError, NetworkError};
use FixOwner::{Author, Caller, Operator, Service};
use RetryAdvice::{Backoff, No, WhenTold};
use cofferdam_core::failure::{FailureBoundary, FailureCause, FailureClass};

const fn network(
    word: &'static str,
    mended_by: FixOwner,
    meaning: &'static str,
    remedy: &'static str,
) -> CodeRow {
    let (class, boundary, cause) = (NetworkError, &[External], Some(FailureCause::Network));
    CodeRow { word, class, boundary, again: Backoff, cause, mended_by, meaning, remedy }
}

const fn answered(
    word: &'static str,
    again: RetryAdvice,
    cause: Option<FailureCause>,
    mended_by: FixOwner,
    meaning: &'static str,
    remedy: &'static str,
) -> CodeRow {
    let boundary = &[External];
    CodeRow { word, class: ExternalApiError, boundary, again, cause, mended_by, meaning, remedy }
}

const WAIT: &str =
    "Wait, or look at the service's status page; the host repeats idempotent operations by itself.";
const CERTIFICATE: &str =
    "The service renews its certificate; see also this machine's clock and `extra_roots` in config.toml.";

/// The codes of `network_error` and `external_api_error`.
pub(super) const EXTERNAL_CODES: &[CodeRow] = &[
    network(
        "dns_not_found",
        Caller,
        "The host's name does not exist, or has no address.",
        "See whether the name is spelt right, and this machine's DNS.",
    ),
    network(
        "dns_failed",
        Operator,
        "The host's name could not be looked up now.",
        "See this machine's DNS; the host repeats idempotent operations by itself.",
    ),
    network("refused", Service, "Nothing listens at the address.", WAIT),
    network(
        "unreachable",
        Operator,
        "There is no way to the address.",
        "See this machine's network and firewalls.",
    ),
    network(
        "timeout",
        Service,
        "The time for connecting, or for the first byte of the response, was over.",
        WAIT,
    ),
    network("reset", Service, "The service broke the connection off.", WAIT),
    network("closed", Service, "The service closed the connection before it had answered whole.", WAIT),
    network(
        "not_processed",
        Service,
        "The service says that it did not process the request, which had reached it.",
        WAIT,
    ),
    network(
        "tls_expired",
        Service,
        "The service's certificate is no longer valid, or this machine's clock is wrong.",
        CERTIFICATE,
    ),
    network(
        "tls_not_yet_valid",
        Service,
        "The service's certificate is not valid yet, or this machine's clock is wrong.",
        CERTIFICATE,
    ),
    network("tls_wrong_host", Service, "The service's certificate is for other names.", CERTIFICATE),
    network(
        "tls_unknown_issuer",
        Operator,
        "The service's certificate is of an issuer that this host does not believe.",
        CERTIFICATE,
    ),
    network("tls_certificate", Service, "The service's certificate does not hold.", CERTIFICATE),
    network(
        "tls_no_roots",
        Operator,
        "This machine has no certificate authorities, so that no certificate can be checked.",
        "Install the machine's certificate authorities, or set roots = \"bundled\" under [network] in config.toml.",
    ),
    network(
        "tls_protocol_version",
        Service,
        "The service has neither TLS 1.2 nor 1.3.",
        "The service has to be brought up to date; the host speaks nothing older.",
    ),
    CodeRow {
        again: No,
        cause: None,
        ..network(
            "not_tls",
            Author,
            "The server answers without TLS, and was asked with it.",
            "Correct the port, or write the host as http://host:port in the manifest if its requests may go unencrypted.",
        )
    },
    network("tls_handshake", Service, "The TLS handshake failed.", WAIT),
    network("malformed_response", Service, "The response is not HTTP, or contradicts itself.", WAIT),
    network("headers_too_large", Service, "The fields after the response's body are too large.", WAIT),
    network("request_body", Author, "The request's own body failed or ended early.", REPORT),
    network("io", Operator, "Another input or output error on the way.", WAIT),
    CodeRow {
        again: No,
        cause: None,
        ..network(
            "unobserved",
            Author,
            "The connector says that a request failed, and the host saw none fail.",
            REPORT,
        )
    },
    answered(
        "unobserved",
        No,
        None,
        Author,
        "The connector says that a service answered so, and the host saw no such answer.",
        REPORT,
    ),
    answered(
        "auth",
        No,
        Some(FailureCause::Auth),
        Operator,
        "The service did not accept the credential (401), or does not let it do this (403).",
        "Renew or change what is bound, with the command in `details.suggestion`.",
    ),
    answered(
        "payment_required",
        No,
        Some(FailureCause::PaymentRequired),
        Operator,
        "The service wants to be paid (402).",
        "See the account at the service. A circuit that it opened is closed by `cofferdam breaker reset`, or by binding another credential.",
    ),
    answered(
        "not_found",
        No,
        Some(FailureCause::NotFound),
        Caller,
        "The service has no such thing (404).",
        "Correct the name in the arguments.",
    ),
    answered(
        "timeout",
        Backoff,
        Some(FailureCause::Timeout),
        Service,
        "The service took too long, or was asked too early (408, 425).",
        WAIT,
    ),
    answered(
        "rate_limited",
        WhenTold,
        Some(FailureCause::RateLimited),
        Service,
        "The service was asked too often (429).",
        "Ask less often; the host waits as long as the service asks, where that fits into the call.",
    ),
    answered(
        "unavailable",
        Backoff,
        Some(FailureCause::Unavailable),
        Service,
        "The service failed, or is not there at the moment (5xx).",
        WAIT,
    ),
    answered(
        "content_filter",
        No,
        None,
        Caller,
        "The service refused what it was asked for because of its content.",
        "Ask for something else: the same request is refused again.",
    ),
    answered(
        "bad_request",
        No,
        None,
        Caller,
        "The service did not accept the request (another 4xx); `details.upstream_code` has its own word.",
        "Correct the arguments; if they are right, report it to the connector's author.",
    ),
    answered(
        "error_in_answer",
        No,
        None,
        Caller,
        "The service said its error in an answer that looks like a good one; `details.upstream_code` has its word.",
        "Look the service's own word up in its documentation.",
    ),
    answered(
        "unexpected_status",
        No,
        None,
        Author,
        "The service answered with a status that is neither success nor error.",
        REPORT,
    ),
    answered(
        "circuit_open",
        WhenTold,
        Some(FailureCause::CircuitOpen),
        Service,
        "Nothing was sent: too much failed at this host before, with an answer. `details.circuit` says what and until when.",
        "Wait, or run the command in `details.suggestion` once what was wrong is mended.",
    ),
    CodeRow {
        again: WhenTold,
        cause: Some(FailureCause::CircuitOpen),
        ..network(
            "circuit_open",
            Service,
            "Nothing was sent: too many requests to this host got no answer. `details.circuit` says what and until when.",
            "Wait, or run the command in `details.suggestion` once what was wrong is mended.",
        )
    },
];
