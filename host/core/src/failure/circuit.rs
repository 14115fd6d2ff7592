//! The failure of a call to a host whose circuit is open: it has the class of the failure that opened it, and
//! nothing was sent.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::cause::FailureCause;
use super::class::{FailureBoundary, FailureClass};
use super::context::FailureContext;
use super::envelope::Failure;

/// The reason why a request was not sent: too many requests to that host failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CircuitOpen {
    /// The connector, without a version.
    pub connector: String,
    /// The `host:port`.
    pub host: String,
    /// `open`, or `half_open` while another call probes it.
    pub state: &'static str,
    /// The time at which it opened.
    pub opened_at: Timestamp,
    /// The time until it is probed, in milliseconds; `None` if waiting does not help.
    pub retry_after_ms: Option<u64>,
    /// The cause that opened it.
    pub cause: FailureCause,
    /// The status of the response that opened it, if there was one.
    pub status: Option<u16>,
    /// The audit id of the call that opened it.
    pub cause_audit_id: String,
    /// The bindings for whose credentials it is permanently open; empty if it is open for all requests, or
    /// for requests without a credential.
    pub bindings: Vec<String>,
}

impl CircuitOpen {
    /// Returns the remedy for a permanently open circuit. A rejected credential has to be replaced: a reset
    /// alone would send the same one again. A paid bill, or a resource that now exists, requires no new
    /// credential.
    fn remedy(&self) -> String {
        match self.bindings.first() {
            Some(binding) if self.cause == FailureCause::Auth => {
                format!("cofferdam binding rebind {binding}")
            }
            _ => format!("cofferdam breaker reset {} --host {}", self.connector, self.host),
        }
    }
}

impl Failure {
    /// The circuit is open. `anything_sent` is whether the attempt had sent a request elsewhere before.
    pub(crate) fn circuit_open(context: &FailureContext, open: &CircuitOpen, anything_sent: bool) -> Self {
        let mut details = context.details("circuit_open");
        details.insert("host".into(), open.host.as_str().into());
        let class = match open.cause {
            FailureCause::Network => FailureClass::NetworkError,
            _ => FailureClass::ExternalApiError,
        };
        if let Some(status) = open.status {
            details.insert("status".into(), status.into());
        }
        details.insert("request_sent".into(), anything_sent.into());
        let mut circuit = Map::new();
        circuit.insert("state".into(), open.state.into());
        circuit.insert("opened_at".into(), open.opened_at.to_string().into());
        circuit.insert("retry_after_ms".into(), open.retry_after_ms.map_or(Value::Null, |ms| json!(ms)));
        circuit.insert("cause_code".into(), open.cause.name().into());
        circuit.insert("cause_audit_id".into(), open.cause_audit_id.as_str().into());
        details.insert("circuit".into(), circuit.into());
        let message = match open.retry_after_ms {
            Some(ms) => format!(
                "Nothing was sent to {}: its circuit is open after {} and is tried again in {} s.",
                open.host,
                open.cause.name(),
                ms.div_ceil(1000)
            ),
            None => format!(
                "Nothing was sent to {}: its circuit is open after {}, until the credential is bound anew or the \
                 circuit is reset.",
                open.host,
                open.cause.name()
            ),
        };
        match open.retry_after_ms {
            Some(ms) => {
                details.insert("retry_after_ms".into(), ms.into());
            }
            None => {
                if let Some(binding) = open.bindings.first() {
                    details.insert("binding".into(), binding.as_str().into());
                }
                details.insert("suggestion".into(), open.remedy().into());
            }
        }
        let retriable = open.retry_after_ms.is_some() && (context.idempotent() || !anything_sent);
        Self::new(context, class, FailureBoundary::External, retriable, message, details)
            .with_cause(FailureCause::CircuitOpen, None)
    }

    /// Returns the cause that opened the circuit, if the failure is an open circuit.
    pub(crate) fn circuit_cause(&self) -> Option<FailureCause> {
        let name = self.details().get("circuit")?.get("cause_code")?.as_str()?;
        FailureCause::ALL.into_iter().find(|cause| cause.name() == name)
    }
}
