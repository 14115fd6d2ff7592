//! A request to run an action: its arguments, actor, idempotency key and time limit.

use std::collections::BTreeMap;
use std::time::Duration;

use cofferdam_core::failure::AuditId;
use serde_json::Value;

use crate::call::{Cancellation, OnKeyConflict};

/// One complete run of an action. Every setting that is not given has a default.
#[derive(Debug, Clone)]
pub struct RunRequest {
    pub(super) args: Value,
    pub(super) actor: Option<String>,
    pub(super) identities: BTreeMap<String, String>,
    pub(super) key: Option<String>,
    pub(super) if_running: OnKeyConflict,
    pub(super) wall_time: Option<Duration>,
    pub(super) cancellation: Option<Cancellation>,
    pub(super) audit_id: Option<AuditId>,
}

impl RunRequest {
    /// Runs it with `args`, an object with a field for each of its inputs. They are data: nothing in them is parsed
    /// as a reference, and none of them replaces text of the action's author.
    #[must_use]
    pub fn new(args: Value) -> Self {
        Self {
            args,
            actor: None,
            identities: BTreeMap::new(),
            key: None,
            if_running: OnKeyConflict::Wait,
            wall_time: None,
            cancellation: None,
            audit_id: None,
        }
    }

    /// Sets the actor for the audit log, as [`Call::actor`](crate::call::Call::actor) does. Default: the host's
    /// actor.
    #[must_use]
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    /// Uses the credential that is bound as `<kind>/<service>/<identity>` in every step whose connector requests
    /// one for this service. This takes precedence over the action's choice.
    #[must_use]
    pub fn identity(mut self, service: impl Into<String>, identity: impl Into<String>) -> Self {
        self.identities.insert(service.into(), identity.into());
        self
    }

    /// Sets the idempotency key, as [`Call::idempotency_key`](crate::call::Call::idempotency_key) does. Each step
    /// carries it followed by `/` and the step's id. If the action is run again under the same key, the steps that
    /// are done return their recorded values and do not run again.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the behavior if the same action with its key is still running. Default: this run waits.
    #[must_use]
    pub fn if_running(mut self, then: OnKeyConflict) -> Self {
        self.if_running = then;
        self
    }

    /// Sets the longest time of the whole action. Default: the limit in its file, or two minutes.
    #[must_use]
    pub fn wall_time(mut self, longest: Duration) -> Self {
        self.wall_time = Some(longest);
        self
    }

    /// Lets `cancellation` end the action and its current call.
    #[must_use]
    pub fn cancelled_by(mut self, cancellation: &Cancellation) -> Self {
        self.cancellation = Some(cancellation.clone());
        self
    }

    /// Records it under this id, which no other run has. So a listener of the host knows the id before the run
    /// begins.
    #[must_use]
    #[allow(dead_code, reason = "for servers, which tell whose progress it is")]
    pub(crate) fn recorded_as(mut self, audit_id: AuditId) -> Self {
        self.audit_id = Some(audit_id);
        self
    }
}
