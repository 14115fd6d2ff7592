//! What a person could be asked where something ended without a value: the three recovery prompts.

use super::class::FailureClass;
use super::envelope::Failure;

/// What whoever sits at the program could be asked. The host asks nobody: the record and its listeners say which of the
/// three it is, and a program that has a person there asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Prompt {
    /// "Do it again?": it may pass, or nobody knows whether it was done. What must not be repeated needs a person's yes.
    Approve,
    /// "With what instead?": the input is what is wrong.
    Ask,
    /// "Authenticate again?": a credential is missing, or was refused.
    Authenticate,
}

impl Prompt {
    /// The stable word.
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
    /// What a person could be asked about it; none where no answer of theirs would help, as with a denial.
    #[must_use]
    pub fn prompt(&self) -> Option<Prompt> {
        match self.class() {
            FailureClass::BindingRequired | FailureClass::BindingFailed => Some(Prompt::Authenticate),
            FailureClass::ConnectorRuntimeError if self.code() == "input_invalid" => Some(Prompt::Ask),
            // The service says that the request itself is what is wrong.
            FailureClass::ExternalApiError if self.status() == Some(401) => Some(Prompt::Authenticate),
            FailureClass::ExternalApiError if matches!(self.status(), Some(400 | 404 | 410 | 413 | 422)) => {
                Some(Prompt::Ask)
            }
            // It was tried as often as it may be, or may not be repeated unasked.
            _ if self.retriable() || self.cause().is_retriable() => Some(Prompt::Approve),
            _ => None,
        }
    }

    /// What the service answered.
    fn status(&self) -> Option<u64> {
        self.details().get("status").and_then(serde_json::Value::as_u64)
    }
}
