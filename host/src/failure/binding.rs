//! Constructors of the credential classes. The credential store calls them; nothing else may.

use super::class::{Boundary, FailureClass};
use super::context::Context;
use super::envelope::Failure;

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the credential store, which is not built yet, is their only caller")
)]
impl Failure {
    /// Nothing is bound under `binding` (`<kind>/<service>/<identity>`).
    pub(crate) fn binding_required(context: &Context, binding: &str) -> Self {
        let mut details = context.details("unbound");
        let command = format!("cofferdam binding set {binding}");
        details.insert("binding".into(), binding.into());
        details.insert("suggestion".into(), command.as_str().into());
        let message = format!("No credential is bound as {binding}. Bind one with `{command}`.");
        Self::new(context, FailureClass::BindingRequired, Boundary::Runtime, false, message, details)
    }

    /// What is bound under `binding` was refused before anything was sent; `unreachable` means that the
    /// issuer could not be asked, which may pass.
    pub(crate) fn binding_failed(context: &Context, binding: &str, unreachable: bool) -> Self {
        let mut details =
            context.details(if unreachable { "refresh_unreachable" } else { "refresh_refused" });
        let command = format!("cofferdam binding rebind {binding}");
        details.insert("binding".into(), binding.into());
        details.insert("suggestion".into(), command.as_str().into());
        let message = format!("The credential bound as {binding} was refused. Renew it with `{command}`.");
        let retriable = unreachable && context.idempotent();
        Self::new(context, FailureClass::BindingFailed, Boundary::Runtime, retriable, message, details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::AuditId;

    #[test]
    fn a13_a14_name_the_command_and_only_unreachable_may_pass() {
        let context = Context::new(AuditId::mint());
        let required = Failure::binding_required(&context, "api_key/slack/work");
        assert_eq!((required.class(), required.retriable()), (FailureClass::BindingRequired, false));
        assert!(required.message().contains("cofferdam binding set api_key/slack/work"));
        for (unreachable, code) in [(false, "refresh_refused"), (true, "refresh_unreachable")] {
            let failed = Failure::binding_failed(&context, "oauth2/slack/work", unreachable);
            assert_eq!((failed.class(), failed.retriable()), (FailureClass::BindingFailed, unreachable));
            assert_eq!(failed.code(), code);
        }
    }
}
