//! Constructors of the credential classes, from the one value that says what is wrong with a binding.

use super::cause::Cause;
use super::class::{Boundary, FailureClass};
use super::context::Context;
use super::envelope::Failure;
use super::text::safe_line;

/// What is wrong with a binding (`details.code`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingCode {
    /// Nothing is bound under the name.
    Unbound,
    /// Something is bound, and this connector may not use it, or not there.
    NotAllowed,
    /// The issuer of tokens refused to give one.
    RefreshRefused,
    /// The issuer of tokens could not be asked, or could not answer: it may pass.
    RefreshUnreachable,
    /// The issuer of tokens is at a place that the host does not go to.
    EndpointNotAllowed,
    /// What is bound cannot be sent as the manifest wants it.
    Unsendable,
}

impl BindingCode {
    /// The stable word in `details.code`.
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

    /// The class of the failure that a call ends with.
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
    /// `binding` is its name; `reason` a sentence for callers, without secrets; `command` what mends it.
    pub fn new(
        binding: impl ToString,
        code: BindingCode,
        reason: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        let (binding, reason, command) = (binding.to_string(), reason.into(), command.into());
        Self { binding, code, reason, command, status: None }
    }

    /// Adds the status with which the issuer answered.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// The binding's name.
    #[must_use]
    pub(crate) fn binding(&self) -> &str {
        &self.binding
    }

    /// What is wrong.
    #[must_use]
    pub fn code(&self) -> BindingCode {
        self.code
    }

    /// What is wrong, in a sentence or two.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The command that mends it.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.command
    }
}

impl Failure {
    /// A binding that the call needs is not there, is not for this connector, or was refused by its issuer.
    pub fn binding(context: &Context, problem: &BindingProblem) -> Self {
        let mut details = context.details(problem.code.name());
        details.insert("binding".into(), problem.binding.as_str().into());
        details.insert("suggestion".into(), problem.command.as_str().into());
        if let Some(status) = problem.status {
            details.insert("status".into(), status.into());
        }
        let (class, passing) = (problem.code.class(), problem.code == BindingCode::RefreshUnreachable);
        let message = format!("{} To mend it: `{}`.", safe_line(&problem.reason, 300), problem.command);
        let retriable = passing && context.idempotent();
        let cause = if passing { Cause::RefreshUnreachable } else { Cause::Other };
        Self::new(context, class, Boundary::Runtime, retriable, message, details).caused_by(cause, None)
    }
}

impl Failure {
    /// The vault could not be used when a request needed a credential, and others had been sent by then: no reason
    /// for a call not to have been taken up, since it was.
    pub(crate) fn vault_unavailable(context: &Context, trouble: &str) -> Self {
        let mut details = context.details("vault_unavailable");
        details.insert("vault".into(), trouble.into());
        let message = "The vault could not be used when a request needed a credential. Requests before that one had been \
                       sent, and may have had effects.";
        Self::new(context, FailureClass::BindingFailed, Boundary::Runtime, false, message.to_owned(), details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::AuditId;

    #[test]
    fn a13_a14_name_the_command_and_only_unreachable_may_pass() {
        let context = Context::new(AuditId::mint()).with_op("x", true);
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
