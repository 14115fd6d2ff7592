//! Recovery of interrupted calls, and replay of outcomes: the public API of `flow`.

use std::sync::Arc;

use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::AuditId;
use cofferdam_egress::egress::HostPort;
use cofferdam_egress::resilience::{CircuitView, ResetView};
use cofferdam_model::manifest::ConnectorName;

use super::Host;
use crate::call::{CallResult, Cancellation, actor_name};
use crate::flow::{self, IncompleteCall, SkipRequest};

/// The recorded result of an earlier call.
#[derive(Debug)]
pub struct ReplayedCall {
    /// The value as the JSON text that its caller got, or the failure.
    pub outcome: Result<String, Error>,
}

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
        flow::incomplete_call(&self.pipeline, audit_id)
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
    ) -> CallResult {
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

    /// Replays the recorded outcome of a call. Nothing is loaded and nothing runs, and the connector need not be installed any more. It blocks.
    ///
    /// # Errors
    /// `audit_not_found`; `not_replayable`, with the reason in `details.reason`; `audit_unavailable`.
    pub fn replay(&self, audit_id: &AuditId) -> Result<ReplayedCall, HostError> {
        flow::replay(&self.pipeline, audit_id).map(|recorded| ReplayedCall { outcome: recorded.outcome })
    }
}

impl Host {
    /// Returns every circuit that is not closed or has counted failures, by connector and host. All others are
    /// closed.
    ///
    /// # Errors
    /// `circuits_unavailable`: they cannot be read.
    pub fn circuits(&self) -> Result<Vec<CircuitView>, HostError> {
        let now = self.pipeline.loader.clock.timestamp();
        self.pipeline.circuits.views(now).map_err(|error| unavailable("read", error))
    }

    /// Returns the reason why this host does not share circuits, rate limits and renewals with the other hosts of its
    /// cluster at the moment; none if it does, or belongs to none. Calls go on with this host's own state.
    #[must_use]
    pub fn shared_state_problem(&self) -> Option<String> {
        self.pipeline.circuits.away()
    }

    /// Closes the circuits of `connector`, in all versions, at `host`. Without a connector, it closes those of all
    /// connectors, and without a host, those at all hosts. It also removes those that are damaged.
    ///
    /// # Errors
    /// `circuits_unavailable`: they cannot be read or written.
    pub fn reset_circuits(
        &self,
        connector: Option<&ConnectorName>,
        host: Option<&HostPort>,
    ) -> Result<ResetView, HostError> {
        let now = self.pipeline.loader.clock.timestamp();
        let host = host.map(ToString::to_string);
        let reset = self.pipeline.circuits.reset(connector, host.as_deref(), now);
        reset.map_err(|error| unavailable("changed", error))
    }
}

fn unavailable(what: &str, error: std::io::Error) -> HostError {
    HostError::new(
        HostErrorKind::CircuitsUnavailable,
        format!("The circuits cannot be {what}: {}.", error.kind()),
    )
    .with_hint("They are in the directory `circuits` of the home directory, which its owner alone writes.")
    .with_source(error)
}
