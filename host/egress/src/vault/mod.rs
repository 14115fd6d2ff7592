//! Bindings: which secret stands for which credential, where it may go and who may use it.
//!
//! Contents and their rules are here; how they are kept is behind [`Vault`], so that an embedder can keep
//! them elsewhere. [`VaultFile`] keeps them in one sealed file.

mod binding;
mod bindings;
mod contents;
mod disk;
mod error;
mod file;
mod header;
mod name;
mod seal;
mod sought;
mod text;
mod unlock;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use binding::{Binding, Material, OauthGrant, Tokens};
pub use bindings::Bindings;
pub use error::VaultError;
pub use file::{LockKind, NewLock, VaultFile, VaultStatus};
pub use name::{BindingName, BindingNameError, DEFAULT_IDENTITY};
pub(crate) use sought::scanner_for;
pub use text::{SECRET_BYTES, SHORT_SECRET_CHARS, SecretFlaw, SecretForm, secret_text};
pub use unlock::{PassphraseFor, PassphraseSource};

/// Where bindings are kept.
pub trait Vault: Send + Sync {
    /// What is bound now. Called for each call of a connector with credentials: cheap while nothing
    /// changed (one `stat` of a file), and the same [`Arc`] then. May block where something did.
    ///
    /// # Errors
    /// It cannot be opened or read.
    fn bindings(&self) -> Result<Arc<Bindings>, VaultError>;

    /// What [`bindings`](Self::bindings) would return, if that takes no more than a look at whether anything
    /// changed: for threads that must not block. None where more is to be done, or by default.
    fn known(&self) -> Option<Arc<Bindings>> {
        None
    }

    /// Whether a change could be written now, as far as that can be known: asked before an issuer is, whose
    /// answer could not be had twice. It can by default. May block.
    ///
    /// # Errors
    /// It cannot be written.
    fn check_writable(&self) -> Result<(), VaultError> {
        Ok(())
    }

    /// Changes what is bound, or fails and changes nothing; what `change` is given is the newest state, and
    /// no other process changes it meanwhile. Nothing need be written where nothing changed. May block.
    ///
    /// # Errors
    /// It cannot be opened, read or written, or `change` refused.
    fn change(
        &self,
        change: &mut dyn FnMut(&mut Bindings) -> Result<(), VaultError>,
    ) -> Result<(), VaultError>;
}
