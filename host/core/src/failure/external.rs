//! Constructors of the classes of the outside world: requests without an answer, answers that are errors.
//!
//! What the host's own gate saw outranks what the guest says: a failure that the gate did not see in
//! this attempt keeps the class that the guest claims, is never retriable, and carries the code
//! `unobserved`.

use std::time::Duration;

use serde_json::{Map, Value};

use super::cause::Cause;
use super::class::{Boundary, FailureClass};
use super::context::Context;
use super::envelope::Failure;
use super::text::safe_line;

/// How far a request came (`details.phase`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
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

impl Phase {
    /// The stable word in `details.phase`.
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

/// A request that did not get an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkFault {
    /// How far it came; none where only the guest says that it failed.
    pub phase: Option<Phase>,
    /// The finer word (`refused`, `timeout`, `reset`, ...).
    pub code: &'static str,
    /// The host:port it was meant for.
    pub host: Option<String>,
    /// Whether any byte of the request may have reached the server.
    pub request_sent: bool,
    /// Whether the gate saw it fail.
    pub observed: bool,
}

/// An answer that is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamFault {
    /// The HTTP status.
    pub status: u16,
    /// The upstream's own code, as the connector read it.
    pub upstream_code: Option<String>,
    /// The host:port that answered.
    pub host: Option<String>,
    /// How long the upstream asked to wait, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The bindings whose credentials the request carried.
    pub bindings: Vec<String>,
    /// Whether the gate saw this status.
    pub observed: bool,
}

impl Failure {
    /// A request did not get an answer.
    pub(crate) fn network_error(context: &Context, fault: NetworkFault) -> Self {
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
        // The server's protocol does not change by itself.
        let plain = fault.observed && fault.code == "not_tls";
        if plain {
            message.push_str(
                " The server answers without TLS, and was asked with it: the port is wrong, or the manifest has to \
                 name it as http://host:port.",
            );
        }
        let retriable = decide(context, fault.observed, !plain, &mut message, &mut details);
        let cause = if fault.observed && !plain { Cause::Network } else { Cause::Other };
        Self::new(context, FailureClass::NetworkError, Boundary::External, retriable, message, details)
            .caused_by(cause, None)
    }

    /// The upstream answered with an error status.
    pub(crate) fn external_api_error(context: &Context, fault: UpstreamFault) -> Self {
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
            fault.upstream_code.map(|code| safe_line(&code, 64)).filter(|code| !code.is_empty())
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
        let cause = if known { Cause::of_status(fault.status) } else { Cause::Other };
        Self::new(context, FailureClass::ExternalApiError, Boundary::External, retriable, message, details)
            .caused_by(cause, fault.retry_after_ms.map(Duration::from_millis))
    }
}

/// The upstream's own code for a refusal because of what was asked for: it is refused again, whatever the status.
const CONTENT_FILTER: &str = "content_filter";

/// Retriable = observed, transient, and safe to repeat; where only the last is missing, says so.
fn decide(
    context: &Context,
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
        // A service that says its errors in answers that look like good ones.
        200..=299 => "error_in_answer",
        _ => "unexpected_status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::AuditId;

    fn upstream(context: &Context, status: u16, observed: bool) -> Failure {
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
    fn a18_status_decides_retriable() {
        let context = Context::new(AuditId::mint()).with_op("x", true);
        let expected =
            [(500, true), (503, true), (529, true), (429, true), (400, false), (401, false), (404, false)];
        for (status, retriable) in expected {
            assert_eq!(upstream(&context, status, true).retriable(), retriable, "{status}");
            assert!(!upstream(&context, status, false).retriable(), "unobserved {status}");
        }
    }

    #[test]
    fn a51_not_idempotent_is_never_retriable_and_says_so() {
        let context = Context::new(AuditId::mint()).with_op("charge", false);
        let fault = NetworkFault {
            phase: Some(Phase::Tls),
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
