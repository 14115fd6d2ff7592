//! What becomes of calls that a crash cut short, and outcomes given again: the public API of `flow`.

use std::sync::Arc;

use cofferdam_core::error::{Error, HostError};
use cofferdam_core::failure::AuditId;
use serde_json::Value;

use super::Host;
use crate::call::{Cancellation, Report, actor_name};
use crate::flow::{self, Incomplete, Skip};

impl Host {
    /// The calls that were cut short and that nobody decided about yet, the oldest first. It blocks: not for an
    /// executor's threads.
    ///
    /// # Errors
    /// `audit_unavailable`: the record cannot be read.
    pub fn incomplete(&self) -> Result<Vec<Incomplete>, HostError> {
        self.audit().check_complete()?;
        flow::incomplete(&self.pipeline)
    }

    /// One of those. It blocks, as [`incomplete`](Self::incomplete) does.
    ///
    /// # Errors
    /// `audit_not_found`; `in_progress`; `conflict`: it has an end, or somebody decided about it.
    pub fn incomplete_call(&self, audit_id: &AuditId) -> Result<Incomplete, HostError> {
        flow::look(&self.pipeline, audit_id)
    }

    /// Does a call again that was cut short, where that is as good as once: under the idempotency key that it had, with
    /// the arguments and the package that it had. Of several who ask for it at once, one does it. `actor` goes on
    /// record.
    ///
    /// # Errors
    /// Beside what any call may end with: as [`incomplete_call`](Self::incomplete_call); `outcome_unknown` where its
    /// operation must not be repeated, `not_replayable` where its arguments are not kept. Then nothing runs.
    pub async fn resume(
        &self,
        audit_id: &AuditId,
        actor: &str,
        cancellation: Option<&Cancellation>,
    ) -> (Result<Value, Error>, Report) {
        flow::resume(&self.pipeline, audit_id, &actor_name(actor), cancellation).await
    }

    /// Leaves a call as it is that was cut short, and puts on record who says so and why. Nothing runs.
    ///
    /// # Errors
    /// As [`incomplete_call`](Self::incomplete_call); `validation`: there is no reason; `audit_unavailable`.
    pub async fn skip(&self, audit_id: &AuditId, skip: Skip) -> Result<(), HostError> {
        let skip = Skip { actor: Arc::clone(&actor_name(&skip.actor)), ..skip };
        flow::skip(&self.pipeline, audit_id, skip).await
    }

    /// The recorded outcome of a call: the value as the JSON text that it was told as, or the failure. Nothing is
    /// loaded and nothing runs; the connector need not be installed any more. It blocks.
    ///
    /// # Errors
    /// `audit_not_found`; `not_replayable`, whose `details.reason` says why; `audit_unavailable`.
    pub fn replay(&self, audit_id: &AuditId) -> Result<Result<String, Error>, HostError> {
        flow::replay(&self.pipeline, audit_id).map(|recorded| recorded.outcome)
    }
}
