//! Actions, run or told beforehand.

use cofferdam_core::error::{Error, HostError, HostErrorKind};

use super::Host;
use crate::flow::{self, ActionReport, ActionValue, DryRun, Run, Runnable};

impl Host {
    /// Runs the action `name`, and reports how it came to its outcome.
    ///
    /// Its file is read and checked anew. Its steps run in order, each a call with all that a call has. The first that
    /// has no value ends the action: its failure is given back as it is, and nothing is rolled back; which steps are
    /// done is in the report. Dropping the future cancels the action and the call that it is at.
    pub async fn run_action(&self, name: &str, run: Run) -> (Result<ActionValue, Error>, ActionReport) {
        match self.runnable(name).await {
            Ok(runnable) => self.run_checked_action(&runnable, run).await,
            Err(error) => {
                let report = ActionReport::new(error.request_id().clone(), name.into(), std::iter::empty());
                (Err(error.into()), report)
            }
        }
    }

    /// Runs an action that was checked, as [`run_action`](Self::run_action) does.
    pub async fn run_checked_action(
        &self,
        runnable: &Runnable,
        run: Run,
    ) -> (Result<ActionValue, Error>, ActionReport) {
        flow::actions::run(&self.pipeline, runnable, run).await
    }

    /// What the action `name` would do with these arguments: nothing runs, nothing is recorded, nothing leaves. What a
    /// step lacks (a binding, a package) is in its `problem`.
    ///
    /// # Errors
    /// There is no such action, it does not check, or its arguments are not acceptable.
    pub async fn dry_run_action(&self, name: &str, run: &Run) -> Result<DryRun, HostError> {
        flow::actions::dry_run(&self.pipeline, &self.runnable(name).await?, run).await
    }

    /// The action `name`, read and checked.
    ///
    /// # Errors
    /// There is no such action, or it does not check: that is about its file, and not about who asks for it.
    pub async fn runnable(&self, name: &str) -> Result<Runnable, HostError> {
        let (host, asked) = (self.clone(), name.to_owned());
        let read = tokio::task::spawn_blocking(move || host.action(&asked)).await;
        let action = read.map_err(|error| {
            HostError::new(HostErrorKind::Internal, "The action's file could not be read.").because(error)
        })??;
        self.check_action(action).await
    }
}
