//! Constructors of the classes that the sandbox and the runtime produce: denials, bindings, connector errors.

use serde_json::Value;

use super::cause::Cause;
use super::class::{Boundary, FailureClass};
use super::context::Context;
use super::denial::Denial;
use super::envelope::Failure;
use super::text::safe_line;

/// The longest guest text that an envelope carries, in characters.
const GUEST_TEXT: usize = 300;

/// How a connector's own code failed (`details.code`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeFault {
    /// The guest trapped; the word is wasmtime's name of the trap.
    Trap(&'static str),
    /// The guest ended itself (`exit`) instead of returning.
    Exit,
    /// The guest returned a value that cannot be read as its declared result.
    OutputMalformed(&'static str),
    /// The guest says that an argument is not acceptable.
    InputInvalid {
        /// The argument it names.
        field: Option<String>,
        /// Its text, for the caller.
        message: String,
    },
    /// The guest says that the operation failed for a reason of its own.
    OperationFailed {
        /// Its own code.
        code: Option<String>,
        /// Its text, for the caller.
        message: String,
        /// Whether it says that trying later may help.
        transient: bool,
    },
    /// The component could not be instantiated.
    LoadFailed,
    /// A fault of the host, not of the connector.
    Internal,
}

impl RuntimeFault {
    /// The stable word in `details.code`.
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
    /// A capability check refused the operation.
    pub(crate) fn capability_denied(context: &Context, denial: &Denial) -> Self {
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
    pub(crate) fn connector_runtime_error(context: &Context, fault: RuntimeFault) -> Self {
        let (mut retriable, mut cause) = (false, Cause::Other);
        let mut boundary = Boundary::Sandbox;
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
                    extra.push(("field", safe_line(&field, 64).into()));
                }
                ("The connector refused its arguments; see details.connector_message.".into(), extra)
            }
            RuntimeFault::OperationFailed { code, message, transient } => {
                retriable = transient && context.idempotent();
                if transient {
                    cause = Cause::Transient;
                }
                let mut extra = guest_text(&message);
                if let Some(code) = code {
                    extra.push(("connector_code", safe_line(&code, 64).into()));
                }
                ("The operation failed; see details.connector_message.".into(), extra)
            }
            RuntimeFault::LoadFailed => ("The connector's component could not be started.".into(), vec![]),
            RuntimeFault::Internal => {
                boundary = Boundary::Runtime;
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
            .caused_by(cause, None)
    }
}

fn guest_text(message: &str) -> Vec<(&'static str, Value)> {
    vec![("connector_message", safe_line(message, GUEST_TEXT).into())]
}
