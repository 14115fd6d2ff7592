//! Actions, run or told beforehand.

use std::sync::Arc;

use super::Host;
use crate::action::Action;
use crate::call::ConnectorRef;
use crate::error::{Error, HostError, HostErrorKind};
use crate::failure::{AuditId, Context};
use crate::flow::{self, ActionReport, ActionValue, DryRun, Run, Runnable};

impl Host {
    /// Runs the action `name`, and reports how it came to its outcome.
    ///
    /// Its steps run in order, each a call with all that a call has. The first that has no value ends the action: its
    /// failure is given back as it is, and nothing is rolled back; which steps are done is in the report. Dropping the
    /// future cancels the action and the call that it is at.
    pub async fn run_action(&self, name: &str, run: Run) -> (Result<ActionValue, Error>, ActionReport) {
        match self.runnable(name).await {
            Ok(runnable) => self.run_runnable(&runnable, run).await,
            Err(error) => {
                let id = match &error {
                    Error::Host(error) => error.request_id().clone(),
                    Error::Failure(failure) => failure.audit_id().clone(),
                };
                (Err(error), ActionReport::new(id, name.into(), std::iter::empty()))
            }
        }
    }

    /// Runs an action that was checked, as [`run_action`](Self::run_action) does.
    pub(crate) async fn run_runnable(
        &self,
        runnable: &Runnable,
        run: Run,
    ) -> (Result<ActionValue, Error>, ActionReport) {
        flow::run(&self.pipeline, runnable, run).await
    }

    /// What the action `name` would do with these arguments: nothing runs, nothing is recorded, nothing leaves.
    ///
    /// # Errors
    /// There is no such action, it does not check, or its arguments are not acceptable.
    pub async fn dry_run_action(&self, name: &str, run: &Run) -> Result<DryRun, Error> {
        Ok(flow::dry_run(&self.pipeline, &self.runnable(name).await?, run).await?)
    }

    /// The inputs of an action.
    pub(crate) fn action_file(&self, name: &str) -> Result<Vec<crate::action::Input>, HostError> {
        let path = self.audit.home().join("actions").join(format!("{name}.md"));
        let bytes = std::fs::read(&path).map_err(|error| {
            HostError::new(HostErrorKind::InputUnreadable, "There is no such action.").because(error)
        })?;
        let action = Action::parse(&path.display().to_string(), &bytes)
            .map_err(|error| HostError::new(HostErrorKind::Validation, error.to_string()).because(error))?;
        Ok(action.inputs)
    }

    async fn runnable(&self, name: &str) -> Result<Runnable, Error> {
        let path = self.audit.home().join("actions").join(format!("{name}.md"));
        let unreadable = |error: std::io::Error| {
            HostError::new(HostErrorKind::InputUnreadable, "There is no such action.").because(error)
        };
        let bytes = std::fs::read(&path).map_err(unreadable)?;
        let action = Action::parse(&path.display().to_string(), &bytes)
            .map_err(|error| HostError::new(HostErrorKind::Validation, error.to_string()).because(error))?;
        let mut idempotent = Vec::new();
        for step in &action.steps {
            let Some(required) = action.requires.get(step.target.requirement) else { continue };
            let connector = ConnectorRef::new(required.connector.clone(), required.version.clone());
            let context = Context::new(AuditId::mint());
            let loaded = self.pipeline.loader.load(&context, &connector, connector.text(), false).await?;
            idempotent.push(loaded.checked.package.manifest().idempotent(&step.target.op) && !step.once);
        }
        Ok(Runnable { action: Arc::new(action), idempotent })
    }
}
