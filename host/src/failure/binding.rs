//! Constructors of the credential classes. The credential store calls them; nothing else may.

use super::class::{Boundary, FailureClass};
use super::context::Context;
use super::envelope::Failure;

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
