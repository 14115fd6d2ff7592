//! Constructors of the classes of the outside world: requests without a response, and error responses.
//!
//! An observation of the host's own gate overrides the guest's claim: a failure that the gate did not observe
//! in this attempt keeps the class that the guest claims, is never retriable, and carries the code
//! `unobserved`.

use std::time::Duration;

use serde_json::{Map, Value};

use super::class::FailureCause;
use super::class::{FailureBoundary, FailureClass};
use super::context::FailureContext;
use super::envelope::Failure;
use super::text::sanitize_line;

/// The phase that a request reached (`details.phase`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestPhase {
    /// Looking up the host's name.
    Dns,
    /// Connecting to its address.
    Connect,
    /// The TLS handshake.
    Tls,
    /// Writing the request.
    Send,
    /// Waiting for, or reading, the response.
    Response,
}

impl RequestPhase {
    /// Returns the stable name in `details.phase`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Send => "send",
            Self::Response => "response",
        }
    }
}

/// A request that did not get a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkFault {
    /// The phase that it reached; `None` if only the guest claims that it failed.
    pub phase: Option<RequestPhase>,
    /// The detailed code (`refused`, `timeout`, `reset`, ...).
    pub code: &'static str,
    /// The `host:port` of the target.
    pub host: Option<String>,
    /// True if any byte of the request may have reached the server.
    pub request_sent: bool,
    /// True if the gate observed the failure.
    pub observed: bool,
}

/// A response that is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamFault {
    /// The HTTP status.
    pub status: u16,
    /// The upstream's own code, as reported by the connector.
    pub upstream_code: Option<String>,
    /// The `host:port` that responded.
    pub host: Option<String>,
    /// The wait that the upstream asked for, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The bindings whose credentials the request carried.
    pub bindings: Vec<String>,
    /// True if the gate observed this status.
    pub observed: bool,
}

impl Failure {
    /// A request did not get a response.
    pub(crate) fn network_error(context: &FailureContext, fault: NetworkFault) -> Self {
        let mut details = context.details(if fault.observed { fault.code } else { "unobserved" });
        let mut message = String::from("The request");
        if let Some(host) = &fault.host {
            message.push_str(&format!(" to {host}"));
            details.insert("host".into(), host.as_str().into());
        }
        match fault.phase {
            Some(phase) => {
                message.push_str(&format!(" failed in the {} phase ({}).", phase.name(), fault.code));
                details.insert("phase".into(), phase.name().into());
            }
            None => message.push_str(" failed, says the connector; the host saw no request fail."),
        }
        details.insert("request_sent".into(), fault.request_sent.into());
        // The server's protocol does not change between attempts.
        let plain = fault.observed && fault.code == "not_tls";
        if plain {
            message.push_str(
                " The server answers without TLS, and was asked with it: the port is wrong, or the manifest has to \
                 name it as http://host:port.",
            );
        }
        let retriable = decide(context, fault.observed, !plain, &mut message, &mut details);
        let cause = if fault.observed && !plain { FailureCause::Network } else { FailureCause::Other };
        Self::new(context, FailureClass::NetworkError, FailureBoundary::External, retriable, message, details)
            .with_cause(cause, None)
    }

    /// The upstream responded with an error status.
    pub(crate) fn external_api_error(context: &FailureContext, fault: UpstreamFault) -> Self {
        let filtered = fault.upstream_code.as_deref() == Some(CONTENT_FILTER);
        let mut details = context.details(match fault.observed {
            true if filtered => CONTENT_FILTER,
            true => status_code(fault.status),
            false => "unobserved",
        });
        details.insert("status".into(), fault.status.into());
        let host = fault.host.as_deref().unwrap_or("The upstream service");
        let mut message = format!("{host} answered with status {}", fault.status);
        if let Some(code) =
            fault.upstream_code.map(|code| sanitize_line(&code, 64)).filter(|code| !code.is_empty())
        {
            message.push_str(&format!(" ({code})"));
            details.insert("upstream_code".into(), code.into());
        }
        message.push_str(if fault.observed {
            "."
        } else {
            ", says the connector; the host saw no such answer."
        });
        if let Some(host) = &fault.host {
            details.insert("host".into(), host.as_str().into());
        }
        if let Some(wait) = fault.retry_after_ms {
            details.insert("retry_after_ms".into(), wait.into());
        }
        if matches!(fault.status, 401 | 403)
            && let Some(binding) = fault.bindings.first()
        {
            let command = format!("cofferdam binding rebind {binding}");
            message.push_str(&match fault.status {
                401 => format!(
                    " It did not accept the credential bound as {binding}; renew it with `{command}`."
                ),
                _ => format!(
                    " It does not let the credential bound as {binding} do this; if another may, bind that with `{command}`."
                ),
            });
            details.insert("binding".into(), binding.as_str().into());
            details.insert("suggestion".into(), command.into());
        }
        let transient = status_is_transient(fault.status) && !filtered;
        let retriable = decide(context, fault.observed, transient, &mut message, &mut details);
        let known = fault.observed && !filtered;
        let cause = if known { FailureCause::from_status(fault.status) } else { FailureCause::Other };
        Self::new(
            context,
            FailureClass::ExternalApiError,
            FailureBoundary::External,
            retriable,
            message,
            details,
        )
        .with_cause(cause, fault.retry_after_ms.map(Duration::from_millis))
    }
}

/// The upstream's own code for rejecting the content of a request: a retry would be rejected again, whatever
/// the status.
const CONTENT_FILTER: &str = "content_filter";

/// Decides: a failure is retriable if it was observed, is transient, and is safe to repeat. If only the last
/// is missing, states that.
fn decide(
    context: &FailureContext,
    observed: bool,
    transient: bool,
    message: &mut String,
    details: &mut Map<String, Value>,
) -> bool {
    if observed && transient && !context.idempotent() {
        message.push_str(" The operation is not idempotent; it was not retried.");
        details.insert("idempotent".into(), false.into());
    }
    observed && transient && context.idempotent()
}

fn status_is_transient(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500..=599)
}

fn status_code(status: u16) -> &'static str {
    match status {
        401 | 403 => "auth",
        402 => "payment_required",
        404 => "not_found",
        408 | 425 => "timeout",
        429 => "rate_limited",
        500..=599 => "unavailable",
        400..=499 => "bad_request",
        // A service that reports errors in responses with a success status.
        200..=299 => "error_in_answer",
        _ => "unexpected_status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::AuditId;

    fn upstream(context: &FailureContext, status: u16, observed: bool) -> Failure {
        let fault = UpstreamFault {
            status,
            upstream_code: None,
            host: None,
            retry_after_ms: None,
            bindings: Vec::new(),
            observed,
        };
        Failure::external_api_error(context, fault)
    }

    #[test]
    fn the_status_decides_retriability() {
        let context = FailureContext::new(AuditId::mint()).with_op("x", true);
        let expected =
            [(500, true), (503, true), (529, true), (429, true), (400, false), (401, false), (404, false)];
        for (status, retriable) in expected {
            assert_eq!(upstream(&context, status, true).retriable(), retriable, "{status}");
            assert!(!upstream(&context, status, false).retriable(), "unobserved {status}");
        }
    }

    #[test]
    fn a_non_idempotent_failure_is_never_retriable() {
        let context = FailureContext::new(AuditId::mint()).with_op("charge", false);
        let fault = NetworkFault {
            phase: Some(RequestPhase::Tls),
            code: "timeout",
            host: Some("pay.example:443".into()),
            request_sent: false,
            observed: true,
        };
        let failure = Failure::network_error(&context, fault);
        assert!(!failure.retriable());
        assert!(failure.message().contains("not idempotent"), "{}", failure.message());
    }
}
