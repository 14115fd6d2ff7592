//! Constructors of the classes that the sandbox and the runtime produce: denials, bindings, connector errors.

use serde_json::Value;

use super::cause::FailureCause;
use super::class::{FailureBoundary, FailureClass};
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
