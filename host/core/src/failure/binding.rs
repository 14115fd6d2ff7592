//! Constructors of the credential classes, from the one value that describes the problem of a binding.

use super::cause::FailureCause;
use super::class::{FailureBoundary, FailureClass};
use super::context::FailureContext;
use super::envelope::Failure;
use super::text::sanitize_line;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::AuditId;

    #[test]
    fn a13_a14_name_the_command_and_only_unreachable_may_pass() {
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
