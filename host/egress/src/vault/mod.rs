//! Bindings: the secret for each credential, the hosts that it may be sent to, and the connectors that may
//! use it.
//!
//! This module has the contents and their rules; the storage is behind [`Vault`], so that an embedder can
//! store them elsewhere. [`VaultFile`] stores them in one sealed file. [`ExternalVault`] reads the secrets from where
//! the operator keeps them.

mod binding;
mod contents;
mod error;
mod external;
mod file;
mod name;
mod seal;
mod text;
mod unlock;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use binding::{Binding, Bindings, OauthGrant, OauthTokens, SecretMaterial, UnavailableBinding};
pub use contents::scanner_for;
pub use error::VaultError;
pub use external::{
    ExternalVault, SecretCommand, SecretCommandSettings, SecretDirectory, SecretVariables, VariableLookup,
};
pub use file::{LockKind, NewLock, VaultFile, VaultStatus};
pub use name::{BindingName, BindingNameError, DEFAULT_IDENTITY};
pub use text::{SECRET_BYTES, SHORT_SECRET_CHARS, SecretFlaw, SecretForm, secret_text};
pub use unlock::{PassphraseFor, PassphraseSource};

/// The store of bindings.
pub trait Vault: Send + Sync {
    /// Returns the current bindings. Called for each call of a connector with credentials: it must be cheap
    /// while nothing changed (one `stat` of a file), and then return the same [`Arc`]. May block after a
    /// change.
    ///
    /// # Errors
    /// The vault cannot be opened or read.
    fn bindings(&self) -> Result<Arc<Bindings>, VaultError>;

    /// Returns the same as [`bindings`](Self::bindings) if that requires only a check for changes: for
    /// threads that must not block. `None` if more work is required, and by default.
    fn known(&self) -> Option<Arc<Bindings>> {
        None
    }

    /// Returns the bindings as they are now, even if a cached copy still counts. Called under the lock under which one
    /// process renews a token, so that none is renewed with a token that another process has used. May block.
    ///
    /// # Errors
    /// As [`bindings`](Self::bindings).
    fn reload(&self) -> Result<Arc<Bindings>, VaultError> {
        self.bindings()
    }

    /// Checks that an operator can change bindings through this vault. Succeeds by default.
    ///
    /// # Errors
    /// The bindings are kept where others change them; the error says where.
    fn check_editable(&self) -> Result<(), VaultError> {
        Ok(())
    }

    /// Checks, as far as possible, that a change of this binding's tokens could be written now. Called before an issuer
    /// is asked for a token that it issues only once. Succeeds by default. May block.
    ///
    /// # Errors
    /// The vault cannot be written.
    fn check_writable(&self, name: &BindingName) -> Result<(), VaultError> {
        let _ = name;
        Ok(())
    }

    /// Changes the bindings, or fails and changes nothing. `change` gets the newest state, and no other
    /// process changes it meanwhile. Nothing has to be written if nothing changed. May block.
    ///
    /// # Errors
    /// The vault cannot be opened, read or written, or `change` rejected the change.
    fn change(
        &self,
        change: &mut dyn FnMut(&mut Bindings) -> Result<(), VaultError>,
    ) -> Result<(), VaultError>;
}
