//! The actions of a host: the public API of the action store, and of the check before an action runs.

use std::sync::Arc;

use cofferdam_core::document::DocumentError;
use cofferdam_core::error::HostError;
use cofferdam_model::action::Action;

use super::Host;
use crate::flow::actions::{self, CheckedAction, ListedAction, StoredAction};

impl Host {
    /// Returns the actions in the home directory, by name, with the error for a file that cannot be read. It reads
    /// files: not for an executor's threads. Nothing is checked against connectors.
    ///
    /// # Errors
    /// The directory cannot be read, or others could have written it.
    pub fn actions(&self) -> Result<Vec<StoredAction>, HostError> {
        self.shelf.list()
    }

    /// Returns the actions in the home directory, by name, each checked against the installed connectors.
    /// Connectors are verified, each once, and neither compiled nor run. It reads files: not for an executor's
    /// threads.
    ///
    /// # Errors
    /// As [`actions`](Self::actions).
    pub fn listed_actions(&self) -> Result<Vec<ListedAction>, HostError> {
        actions::list(&self.pipeline, &self.shelf)
    }

    /// Returns the action of this name, read from its file. It blocks.
    ///
    /// # Errors
    /// `action_not_found`; `validation`: the problems of its file, each with its line.
    pub fn action(&self, name: &str) -> Result<Arc<Action>, HostError> {
        self.shelf.read(name).map(Arc::new)
    }

    /// Returns the bytes of an action's file, also of one that cannot be parsed.
    ///
    /// # Errors
    /// `action_not_found`; the file is not private to this user.
    pub fn action_file(&self, name: &str) -> Result<Vec<u8>, HostError> {
        self.shelf.bytes(name)
    }

    /// Checks an action against the installed connectors: every connector is verified, and compiled if its code is
    /// not cached, every operation found, every input's type compared. No code of a connector runs.
    ///
    /// # Errors
    /// `validation`: everything that is wrong with it here, each problem with its line; or the host's own error.
    pub async fn check_action(&self, action: Arc<Action>) -> Result<CheckedAction, HostError> {
        actions::check(&self.pipeline, action).await
    }

    /// Checks the action in `bytes`, called `label` in problems, and stores it under its own name.
    ///
    /// # Errors
    /// As [`check_action`](Self::check_action), and then nothing is stored; `conflict`: there is one of this name,
    /// and `replace` is not set.
    pub async fn add_action(
        &self,
        label: &str,
        bytes: &[u8],
        replace: bool,
    ) -> Result<CheckedAction, HostError> {
        let action = Action::parse(label, bytes).map_err(DocumentError::into_host_error)?;
        let runnable = self.check_action(Arc::new(action)).await?;
        self.shelf.add(runnable.action(), replace)?;
        Ok(runnable)
    }

    /// Removes an action.
    ///
    /// # Errors
    /// `action_not_found`; it cannot be removed.
    pub fn remove_action(&self, name: &str) -> Result<(), HostError> {
        self.shelf.remove(name)
    }
}
