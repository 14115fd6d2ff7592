//! The actions of a host: the public API of the shelf, and of the check before an action runs.

use std::sync::Arc;

use cofferdam_core::document::DocumentError;
use cofferdam_core::error::HostError;
use cofferdam_model::action::Action;

use super::Host;
use crate::flow::actions::{self, ListedAction, Runnable, ShelvedAction};

impl Host {
    /// The actions that are kept in the home directory, by name; of a file that cannot be read, why. It reads files:
    /// not for an executor's threads. Nothing is checked against connectors.
    ///
    /// # Errors
    /// The directory cannot be read, or others could have written it.
    pub fn actions(&self) -> Result<Vec<ShelvedAction>, HostError> {
        self.shelf.list()
    }

    /// The actions that are kept in the home directory, by name, each held against what is installed. Connectors are
    /// verified, each once, and neither compiled nor run. It reads files: not for an executor's threads.
    ///
    /// # Errors
    /// As [`actions`](Self::actions).
    pub fn listed_actions(&self) -> Result<Vec<ListedAction>, HostError> {
        actions::list(&self.pipeline, &self.shelf)
    }

    /// The action of this name, read from its file, which it blocks for.
    ///
    /// # Errors
    /// `action_not_found`; `validation`: what is wrong with its file, each problem with its line.
    pub fn action(&self, name: &str) -> Result<Arc<Action>, HostError> {
        self.shelf.read(name).map(Arc::new)
    }

    /// The bytes of an action's file, also of one that cannot be read as an action.
    ///
    /// # Errors
    /// `action_not_found`; it is no file of this user's alone.
    pub fn action_file(&self, name: &str) -> Result<Vec<u8>, HostError> {
        self.shelf.bytes(name)
    }

    /// Holds an action against what is installed: every connector is verified, and compiled if no code is kept of it,
    /// every operation found, every input's type compared. Nothing of a connector runs.
    ///
    /// # Errors
    /// `validation`: everything that is wrong with it here, each problem with its line; the host's own trouble.
    pub async fn check_action(&self, action: Arc<Action>) -> Result<Runnable, HostError> {
        actions::check(&self.pipeline, action).await
    }

    /// Checks the action in `bytes`, called `label` in problems, and keeps it under its own name.
    ///
    /// # Errors
    /// As [`check_action`](Self::check_action), and then nothing is kept; `conflict`: there is one of this name, and
    /// `replace` does not say that it may go.
    pub async fn add_action(&self, label: &str, bytes: &[u8], replace: bool) -> Result<Runnable, HostError> {
        let action = Action::parse(label, bytes).map_err(DocumentError::into_host_error)?;
        let runnable = self.check_action(Arc::new(action)).await?;
        self.shelf.add(runnable.action(), replace)?;
        Ok(runnable)
    }

    /// Takes an action away.
    ///
    /// # Errors
    /// `action_not_found`; it cannot be removed.
    pub fn remove_action(&self, name: &str) -> Result<(), HostError> {
        self.shelf.remove(name)
    }
}
