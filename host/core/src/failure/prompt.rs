//! The three recovery prompts: the question to a person after a call that ended without a value.

use super::class::FailureClass;
use super::envelope::Failure;

/// A question that a program could ask its user. The host asks no question itself: the audit log and the
/// listeners get the prompt, and a program with a user shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecoveryPrompt {
    /// "Do it again?": the failure may be transient, or it is unknown whether the call took effect. A call
    /// that must not be repeated needs the user's approval.
    Approve,
    /// "With what instead?": the input is wrong.
    Ask,
    /// "Authenticate again?": a credential is missing, or was rejected.
    Authenticate,
}

impl RecoveryPrompt {
    /// Returns the stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Ask => "ask",
            Self::Authenticate => "authenticate",
        }
    }
}

impl Failure {
    /// Returns the prompt for a person; `None` if no answer would help, as with a denial.
    #[must_use]
    pub fn prompt(&self) -> Option<RecoveryPrompt> {
        match self.class() {
            FailureClass::BindingRequired | FailureClass::BindingFailed => Some(RecoveryPrompt::Authenticate),
            FailureClass::ConnectorRuntimeError if self.code() == "input_invalid" => {
                Some(RecoveryPrompt::Ask)
            }
            // The service says that the request itself is what is wrong.
            FailureClass::ExternalApiError if self.status() == Some(401) => {
                Some(RecoveryPrompt::Authenticate)
            }
            FailureClass::ExternalApiError if matches!(self.status(), Some(400 | 404 | 410 | 413 | 422)) => {
                Some(RecoveryPrompt::Ask)
            }
            // The retries are exhausted, or it may not be repeated without approval.
            _ if self.retriable() || self.cause().is_retriable() => Some(RecoveryPrompt::Approve),
            _ => None,
        }
    }

    /// Returns the status of the service's response.
    fn status(&self) -> Option<u64> {
        self.details().get("status").and_then(serde_json::Value::as_u64)
    }
}
