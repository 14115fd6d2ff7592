//! Runs or previews actions.

use cofferdam_core::error::{Error, HostError, HostErrorKind};

use super::Host;
use crate::flow::{self, ActionReport, ActionValue, CheckedAction, DryRun, RunRequest};

impl Host {
    /// Runs the action `name`, and returns a report of its steps.
    ///
    /// Its file is read and checked again. Its steps run in order, each as a full call. The first step without a
    /// value ends the action: its failure is returned unchanged, and nothing is rolled back. The report shows the
    /// steps that are done. Dropping the future cancels the action and its current call.
    pub async fn run_action(
        &self,
        name: &str,
        run: RunRequest,
    ) -> (Result<ActionValue, Error>, ActionReport) {
        match self.runnable(name).await {
            Ok(runnable) => self.run_checked_action(&runnable, run).await,
            Err(error) => {
                let report = ActionReport::new(error.request_id().clone(), name.into(), std::iter::empty());
                (Err(error.into()), report)
            }
        }
    }

    /// Runs a checked action, as [`run_action`](Self::run_action) does.
    pub async fn run_checked_action(
        &self,
        runnable: &CheckedAction,
        run: RunRequest,
    ) -> (Result<ActionValue, Error>, ActionReport) {
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
