//! The actions of a host: the public API of the action store, and of the check before an action runs.

use std::sync::Arc;

use cofferdam_core::document::DocumentError;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::action::Action;

use super::Host;
use crate::flow::actions::{self, CheckedAction, ListedAction, StoredAction};
use crate::flow::{self, ActionReport, ActionResult, DryRun, RunRequest};

impl Host {
    /// Returns the actions in the home directory, by name, with the error for a file that cannot be read. It reads
    /// files: not for an executor's threads. Nothing is checked against connectors.
    ///
    /// # Errors
    /// The directory cannot be read, or others could have written it.
    pub fn actions(&self) -> Result<Vec<StoredAction>, HostError> {
        self.action_store.list()
    }

    /// Returns the actions in the home directory, by name, each checked against the installed connectors.
    /// Connectors are verified, each once, and neither compiled nor run. It reads files: not for an executor's
    /// threads.
    ///
    /// # Errors
    /// As [`actions`](Self::actions).
    pub fn listed_actions(&self) -> Result<Vec<ListedAction>, HostError> {
        actions::list(&self.pipeline, &self.action_store)
    }

    /// Returns the action of this name, read from its file. It blocks.
    ///
    /// # Errors
    /// `action_not_found`; `validation`: the problems of its file, each with its line.
    pub fn action(&self, name: &str) -> Result<Arc<Action>, HostError> {
        self.action_store.read(name).map(Arc::new)
    }

    /// Returns the bytes of an action's file, also of one that cannot be parsed.
    ///
    /// # Errors
    /// `action_not_found`; the file is not private to this user.
    pub fn action_file(&self, name: &str) -> Result<Vec<u8>, HostError> {
        self.action_store.bytes(name)
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
        self.action_store.add(runnable.action(), replace)?;
        Ok(runnable)
    }

    /// Removes an action.
    ///
    /// # Errors
    /// `action_not_found`; it cannot be removed.
    pub fn remove_action(&self, name: &str) -> Result<(), HostError> {
        self.action_store.remove(name)
    }
}

impl Host {
    /// Runs the action `name`, and returns a report of its steps.
    ///
    /// Its file is read and checked again. Its steps run in order, each as a full call. The first step without a
    /// value ends the action: its failure is returned unchanged, and nothing is rolled back. The report shows the
    /// steps that are done. Dropping the future cancels the action and its current call.
    pub async fn run_action(&self, name: &str, run: RunRequest) -> ActionResult {
        match self.runnable(name).await {
            Ok(runnable) => self.run_checked_action(&runnable, run).await,
            Err(error) => {
                let report = ActionReport::new(error.request_id().clone(), name.into(), std::iter::empty());
                ActionResult { outcome: Err(error.into()), report }
            }
        }
    }

    /// Runs a checked action, as [`run_action`](Self::run_action) does.
    pub async fn run_checked_action(&self, runnable: &CheckedAction, run: RunRequest) -> ActionResult {
        flow::actions::run(&self.pipeline, runnable, run).await
    }

    /// Previews the action `name` with these arguments. Nothing runs, is recorded or is sent. The `problem` of a
    /// step names a missing binding or package.
    ///
    /// # Errors
    /// There is no such action, its check fails, or its arguments are not acceptable.
    pub async fn dry_run_action(&self, name: &str, run: &RunRequest) -> Result<DryRun, HostError> {
        flow::actions::dry_run(&self.pipeline, &self.runnable(name).await?, run).await
    }

    /// Reads and checks the action `name`.
    ///
    /// # Errors
    /// There is no such action, or its check fails. The error is about its file and not about its caller.
    pub async fn runnable(&self, name: &str) -> Result<CheckedAction, HostError> {
        let (host, asked) = (self.clone(), name.to_owned());
        let read = tokio::task::spawn_blocking(move || host.action(&asked)).await;
        let action = read.map_err(|error| {
            HostError::new(HostErrorKind::Internal, "The action's file could not be read.").with_source(error)
        })??;
        self.check_action(action).await
    }
}
