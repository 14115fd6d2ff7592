//! The causes that failures of one class have: faults of a connector at run time, problems with a binding, an open circuit.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::class::{FailureBoundary, FailureCause, FailureClass};
use super::context::FailureContext;
use super::denial::Denial;
use super::envelope::Failure;
use super::text::sanitize_line;

/// The longest guest text that an envelope carries, in characters.
const GUEST_TEXT: usize = 300;

/// The failure of a connector's own code (`details.code`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeFault {
    /// The guest trapped; the text is wasmtime's name of the trap.
    Trap(&'static str),
    /// The guest ended itself (`exit`) instead of returning.
    Exit,
    /// The guest returned a value that is not of its declared result type.
    OutputMalformed(&'static str),
    /// The guest rejects an argument.
    InputInvalid {
        /// The argument it names.
        field: Option<String>,
        /// Its text, for the caller.
        message: String,
    },
    /// The guest reports that the operation failed for a reason of its own.
    OperationFailed {
        /// Its own code.
        code: Option<String>,
        /// Its text, for the caller.
        message: String,
        /// True if the guest says that trying later may help.
        transient: bool,
    },
    /// The component could not be instantiated.
    LoadFailed,
    /// A fault of the host, not of the connector.
    Internal,
}

impl RuntimeFault {
    /// Returns the stable name in `details.code`.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Trap(_) => "trap",
            Self::Exit => "exit",
            Self::OutputMalformed(_) => "output_malformed",
            Self::InputInvalid { .. } => "input_invalid",
            Self::OperationFailed { .. } => "op_failed",
            Self::LoadFailed => "load_failed",
            Self::Internal => "internal",
        }
    }
}

impl Failure {
    /// A capability check denied the operation.
    pub(crate) fn capability_denied(context: &FailureContext, denial: &Denial) -> Self {
        let mut details = context.details(denial.code().name());
        denial.describe(&mut details);
        let class = FailureClass::CapabilityDenied;
        let note = match denial.address() {
            Some(address) => format!("denied: {} at {address}", denial.requested()),
            None => format!("denied: {}", denial.requested()),
        };
        Self::new(context, class, denial.boundary().into(), false, denial.message(), details)
            .with_operator_note(note)
    }

    /// The connector's own code failed, or (for `Internal`) the host did while running it.
    pub(crate) fn connector_runtime_error(context: &FailureContext, fault: RuntimeFault) -> Self {
        let (mut retriable, mut cause) = (false, FailureCause::Other);
        let mut boundary = FailureBoundary::Sandbox;
        let code = fault.code();
        let (message, extra): (String, Vec<(&str, Value)>) = match fault {
            RuntimeFault::Trap(trap) => {
                (format!("The connector's code stopped with a trap ({trap})."), vec![("trap", trap.into())])
            }
            RuntimeFault::Exit => {
                ("The connector ended itself instead of returning a result.".into(), vec![])
            }
            RuntimeFault::OutputMalformed(what) => {
                (format!("The connector returned an unusable result: {what}."), vec![])
            }
            RuntimeFault::InputInvalid { field, message } => {
                let mut extra = guest_text(&message);
                if let Some(field) = field {
                    extra.push(("field", sanitize_line(&field, 64).into()));
                }
                ("The connector refused its arguments; see details.connector_message.".into(), extra)
            }
            RuntimeFault::OperationFailed { code, message, transient } => {
                retriable = transient && context.idempotent();
                if transient {
                    cause = FailureCause::Transient;
                }
                let mut extra = guest_text(&message);
                if let Some(code) = code {
                    extra.push(("connector_code", sanitize_line(&code, 64).into()));
                }
                ("The operation failed; see details.connector_message.".into(), extra)
            }
            RuntimeFault::LoadFailed => ("The connector's component could not be started.".into(), vec![]),
            RuntimeFault::Internal => {
                boundary = FailureBoundary::Runtime;
                (
                    "The host failed while it ran the connector; the operator's log has the cause.".into(),
                    vec![],
                )
            }
        };
        let mut details = context.details(code);
        for (key, value) in extra {
            details.insert(key.into(), value);
        }
        Self::new(context, FailureClass::ConnectorRuntimeError, boundary, retriable, message, details)
            .with_cause(cause, None)
    }
}

fn guest_text(message: &str) -> Vec<(&'static str, Value)> {
    vec![("connector_message", sanitize_line(message, GUEST_TEXT).into())]
}

/// The problem of a binding (`details.code`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingCode {
    /// There is no binding of this name.
    Unbound,
    /// The binding exists, and does not allow this connector or this host.
    NotAllowed,
    /// The issuer of tokens rejected the request.
    RefreshRefused,
    /// The issuer of tokens could not be reached, or could not answer. This may be transient.
    RefreshUnreachable,
    /// The host does not connect to the address of the token issuer.
    EndpointNotAllowed,
    /// The bound secret cannot be sent as the manifest requires.
    Unsendable,
}

impl BindingCode {
    /// Returns the stable name in `details.code`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unbound => "unbound",
            Self::NotAllowed => "not_allowed",
            Self::RefreshRefused => "refresh_refused",
            Self::RefreshUnreachable => "refresh_unreachable",
            Self::EndpointNotAllowed => "endpoint_not_allowed",
            Self::Unsendable => "unsendable",
        }
    }

    /// Returns the class of the failure that a call ends with.
    #[must_use]
    pub const fn class(self) -> FailureClass {
        match self {
            Self::Unbound | Self::NotAllowed => FailureClass::BindingRequired,
            Self::RefreshRefused | Self::EndpointNotAllowed | Self::Unsendable | Self::RefreshUnreachable => {
                FailureClass::BindingFailed
            }
        }
    }
}

/// A binding that a call needs and cannot use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingProblem {
    binding: String,
    code: BindingCode,
    reason: String,
    command: String,
    status: Option<u16>,
}

impl BindingProblem {
    /// Creates a problem: `binding` is its name; `reason` a sentence for callers, without secrets; `command`
    /// the fix.
    pub fn new(
        binding: impl ToString,
        code: BindingCode,
        reason: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        let (binding, reason, command) = (binding.to_string(), reason.into(), command.into());
        Self { binding, code, reason, command, status: None }
    }

    /// Adds the status of the issuer's response.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Returns the binding's name.
    #[must_use]
    pub(crate) fn binding(&self) -> &str {
        &self.binding
    }

    /// Returns the code of the problem.
    #[must_use]
    pub fn code(&self) -> BindingCode {
        self.code
    }

    /// Returns the problem in a sentence or two.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the command that fixes it.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.command
    }
}

impl Failure {
    /// A binding that the call needs does not exist, does not allow this connector, or was rejected by its
    /// issuer.
    pub fn binding(context: &FailureContext, problem: &BindingProblem) -> Self {
        let mut details = context.details(problem.code.name());
        details.insert("binding".into(), problem.binding.as_str().into());
        details.insert("suggestion".into(), problem.command.as_str().into());
        if let Some(status) = problem.status {
            details.insert("status".into(), status.into());
        }
        let (class, passing) = (problem.code.class(), problem.code == BindingCode::RefreshUnreachable);
        let message = format!("{} To mend it: `{}`.", sanitize_line(&problem.reason, 300), problem.command);
        let retriable = passing && context.idempotent();
        let cause = if passing { FailureCause::RefreshUnreachable } else { FailureCause::Other };
        Self::new(context, class, FailureBoundary::Runtime, retriable, message, details)
            .with_cause(cause, None)
    }
}

impl Failure {
    /// The vault could not be used when a request needed a credential. Other requests had been sent by then,
    /// so the call counts as started.
    pub(crate) fn vault_unavailable(context: &FailureContext, trouble: &str) -> Self {
        let mut details = context.details("vault_unavailable");
        details.insert("vault".into(), trouble.into());
        let message = "The vault could not be used when a request needed a credential. Requests before that one had been \
                       sent, and may have had effects.";
        Self::new(
            context,
            FailureClass::BindingFailed,
            FailureBoundary::Runtime,
            false,
            message.to_owned(),
            details,
        )
    }
}

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

#[cfg(test)]
mod tests {

    use super::*;
    use crate::failure::AuditId;

    #[test]
    fn binding_failures_name_the_command() {
        let context = FailureContext::new(AuditId::mint()).with_op("x", true);
        for (code, class, retriable) in [
            (BindingCode::Unbound, FailureClass::BindingRequired, false),
            (BindingCode::NotAllowed, FailureClass::BindingRequired, false),
            (BindingCode::RefreshRefused, FailureClass::BindingFailed, false),
            (BindingCode::RefreshUnreachable, FailureClass::BindingFailed, true),
            (BindingCode::EndpointNotAllowed, FailureClass::BindingFailed, false),
            (BindingCode::Unsendable, FailureClass::BindingFailed, false),
        ] {
            let problem =
                BindingProblem::new("oauth2/slack/work", code, "It is so.", "cofferdam binding set it");
            let failed = Failure::binding(&context, &problem);
            assert_eq!((failed.class(), failed.retriable(), failed.code()), (class, retriable, code.name()));
            assert!(failed.message().contains("cofferdam binding set it"));
        }
    }
}
