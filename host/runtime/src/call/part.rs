//! A call as a part of an action: the id it is given beforehand, the action's audit id, and the remaining time.

use std::time::{Duration, Instant};

use cofferdam_core::failure::{AuditId, DeadlineScope, Failure, FailureContext, LimitHit, LimitKind};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_sandbox::AttemptTime;

use super::request::Call;

/// The action that runs a call.
#[derive(Debug, Clone)]
pub(crate) struct PartOf {
    /// The action's audit id.
    pub(crate) audit_id: AuditId,
    /// The time at which the action began.
    pub(crate) since: Instant,
    /// The longest time that the action may take.
    pub(crate) allowed: Duration,
}

impl PartOf {
    /// Returns the time at which the action has to end.
    pub(crate) fn deadline(&self) -> Instant {
        self.since + self.allowed
    }

    /// Returns the failure of a call for which the action has no time left.
    pub(crate) fn out_of_time(&self, context: &FailureContext, now: Instant) -> Failure {
        let used = now.saturating_duration_since(self.since);
        let hit = LimitHit::new(LimitKind::WallTime, millis(self.allowed), millis(used))
            .with_scope(DeadlineScope::Action);
        Failure::resource_limit_exceeded(context, hit)
    }
}

impl Call {
    /// Records the call under this id, which no other call has. Its caller knows the id before the call begins.
    #[must_use]
    pub(crate) fn recorded_as(mut self, audit_id: AuditId) -> Self {
        self.audit_id = Some(audit_id);
        self
    }

    /// Makes the call a part of an action. It ends within the action's time.
    #[must_use]
    pub(crate) fn part_of(mut self, action: PartOf) -> Self {
        self.part_of = Some(action);
        self
    }
}

/// The time of a call, including all its attempts and waits.
#[derive(Clone, Copy)]
pub(super) struct CallTime {
    started: Instant,
    allowed: Duration,
    pub(super) deadline: Instant,
    of: DeadlineScope,
}

impl CallTime {
    /// Starts the time of a call that may take `allowed` from now on, but no longer than its action.
    pub(super) fn begin(part_of: Option<&PartOf>, allowed: Duration, now: Instant) -> Self {
        match part_of {
            Some(action) if action.deadline() < now + allowed => Self {
                started: action.since,
                allowed: action.allowed,
                deadline: action.deadline(),
                of: DeadlineScope::Action,
            },
            _ => Self { started: now, allowed, deadline: now + allowed, of: DeadlineScope::Call },
        }
    }

    /// Returns the time of an attempt that begins now and may take at most `longest`.
    pub(super) fn attempt(&self, longest: Duration, now: Instant) -> AttemptTime {
        match now + longest < self.deadline {
            true => AttemptTime {
                deadline: now + longest,
                allowed: longest,
                since: now,
                of: DeadlineScope::Attempt,
            },
            false => AttemptTime {
                deadline: self.deadline,
                allowed: self.allowed,
                since: self.started,
                of: self.of,
            },
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
