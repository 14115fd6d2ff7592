//! Recovery of interrupted calls, and replay of outcomes: the public API of `flow`.

use std::sync::Arc;

use cofferdam_core::error::{Error, HostError};
use cofferdam_core::failure::AuditId;
use serde_json::Value;

use super::Host;
use crate::call::{Cancellation, Report, actor_name};
use crate::flow::{self, IncompleteCall, SkipRequest};

impl Host {
    /// Returns the interrupted calls that are not decided about yet, the oldest first. It blocks: not for an
    /// executor's threads.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be read.
    pub fn incomplete(&self) -> Result<Vec<IncompleteCall>, HostError> {
        self.audit().check_complete()?;
        flow::incomplete(&self.pipeline)
    }

    /// Returns one interrupted call. It blocks, as [`incomplete`](Self::incomplete) does.
    ///
    /// # Errors
    /// `audit_not_found`; `in_progress`; `conflict`: it has an end, or is decided about.
    pub fn incomplete_call(&self, audit_id: &AuditId) -> Result<IncompleteCall, HostError> {
        flow::look(&self.pipeline, audit_id)
    }

    /// Resumes an interrupted call if that is safe: under its idempotency key, with its arguments and its package.
    /// Of several concurrent requests, only one runs it. `actor` is recorded.
    ///
    /// # Errors
    /// In addition to the errors of any call: as [`incomplete_call`](Self::incomplete_call); `outcome_unknown` if
    /// its operation must not be repeated, `not_replayable` if its arguments are not stored. Then nothing runs.
    pub async fn resume(
        &self,
        audit_id: &AuditId,
        actor: &str,
        cancellation: Option<&Cancellation>,
    ) -> (Result<Value, Error>, Report) {
        flow::resume(&self.pipeline, audit_id, &actor_name(actor), cancellation).await
    }

    /// Leaves an interrupted call as it is, and records the actor and the reason. Nothing runs.
    ///
    /// # Errors
    /// As [`incomplete_call`](Self::incomplete_call); `validation`: there is no reason; `audit_unavailable`.
    pub async fn skip(&self, audit_id: &AuditId, skip: SkipRequest) -> Result<(), HostError> {
        let skip = SkipRequest { actor: Arc::clone(&actor_name(&skip.actor)), ..skip };
        flow::skip(&self.pipeline, audit_id, skip).await
    }

    /// Replays the recorded outcome of a call: the value as the JSON text that its caller got, or the failure.
    /// Nothing is loaded and nothing runs, and the connector need not be installed any more. It blocks.
    ///
    /// # Errors
    /// `audit_not_found`; `not_replayable`, with the reason in `details.reason`; `audit_unavailable`.
    pub fn replay(&self, audit_id: &AuditId) -> Result<Result<String, Error>, HostError> {
        flow::replay(&self.pipeline, audit_id).map(|recorded| recorded.outcome)
    }
}
