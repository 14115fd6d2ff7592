//! An action as it is asked for: with which arguments, by whom, under which key, within what time.

use std::collections::BTreeMap;
use std::time::Duration;

use cofferdam_core::failure::AuditId;
use serde_json::Value;

use crate::call::{Cancellation, IfRunning};

/// One run of an action, complete: what is not asked for has a default.
#[derive(Debug, Clone)]
pub struct Run {
    pub(super) args: Value,
    pub(super) actor: Option<String>,
    pub(super) identities: BTreeMap<String, String>,
    pub(super) key: Option<String>,
    pub(super) if_running: IfRunning,
    pub(super) wall_time: Option<Duration>,
    pub(super) cancellation: Option<Cancellation>,
    pub(super) audit_id: Option<AuditId>,
}

impl Run {
    /// Runs it with `args`, an object with a field for each of its inputs. They are data: nothing in them is read as
    /// a reference, and none of them takes the place of what the action's author wrote.
    #[must_use]
    pub fn new(args: Value) -> Self {
        Self {
            args,
            actor: None,
            identities: BTreeMap::new(),
            key: None,
            if_running: IfRunning::Wait,
            wall_time: None,
            cancellation: None,
            audit_id: None,
        }
    }

    /// Says who asks, for the record, as [`Call::actor`](crate::call::Call::actor) does. Default: the host's actor.
    #[must_use]
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    /// Uses the credential that is bound as `<kind>/<service>/<identity>` in every step whose connector asks for one
    /// of this service; outranks what the action says.
    #[must_use]
    pub fn identity(mut self, service: impl Into<String>, identity: impl Into<String>) -> Self {
        self.identities.insert(service.into(), identity.into());
        self
    }

    /// Gives the idempotency key, as [`Call::idempotency_key`](crate::call::Call::idempotency_key) does. Each step carries
    /// it with `/` and the step's id after it: who runs the action again under the same key gets what the steps that
    /// are done came to, and nothing of them runs again.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// What becomes of it where the same action with its key is still running. Default: it waits.
    #[must_use]
    pub fn if_running(mut self, then: IfRunning) -> Self {
        self.if_running = then;
        self
    }

    /// The longest that the whole action may take. Default: what its file says, or two minutes.
    #[must_use]
    pub fn wall_time(mut self, longest: Duration) -> Self {
        self.wall_time = Some(longest);
        self
    }

    /// Lets `cancellation` end the action, and the call that it is at.
    #[must_use]
    pub fn cancelled_by(mut self, cancellation: &Cancellation) -> Self {
        self.cancellation = Some(cancellation.clone());
        self
    }

    /// Records it under this id, which nothing else has: who listens to the host knows it before it begins.
    #[must_use]
    #[allow(dead_code, reason = "for servers, which tell whose progress it is")]
    pub(crate) fn recorded_as(mut self, audit_id: AuditId) -> Self {
        self.audit_id = Some(audit_id);
        self
    }
}
