//! A call as a part of an action: the id it is given beforehand, the action's own record, and the time that is left.

use std::time::{Duration, Instant};

use cofferdam_core::failure::{AuditId, Context, Failure, LimitHit, LimitKind, TimeOf};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_sandbox::AttemptTime;

use super::request::Call;

/// The action that runs a call.
#[derive(Debug, Clone)]
pub(crate) struct PartOf {
    /// Its record.
    pub(crate) audit_id: AuditId,
    /// Since when it runs,
    pub(crate) since: Instant,
    /// and how long it may.
    pub(crate) allowed: Duration,
}

impl PartOf {
    /// When the action's time is over.
    pub(crate) fn deadline(&self) -> Instant {
        self.since + self.allowed
    }

    /// The failure of a call for which the action has no time left.
    pub(crate) fn out_of_time(&self, context: &Context, now: Instant) -> Failure {
        let used = now.saturating_duration_since(self.since);
        let hit = LimitHit::new(LimitKind::WallTime, millis(self.allowed), millis(used)).of(TimeOf::Action);
        Failure::resource_limit_exceeded(context, hit)
    }
}

impl Call {
    /// The same call under this id, which no other call has: whoever asks for it knows it before it begins.
    #[must_use]
    pub(crate) fn recorded_as(mut self, audit_id: AuditId) -> Self {
        self.audit_id = Some(audit_id);
        self
    }

    /// The same call as a part of an action, within the time of which it ends.
    #[must_use]
    pub(crate) fn part_of(mut self, action: PartOf) -> Self {
        self.part_of = Some(action);
        self
    }
}

/// The time of a call, all its attempts and waits included.
#[derive(Clone, Copy)]
pub(super) struct CallTime {
    started: Instant,
    allowed: Duration,
    pub(super) deadline: Instant,
    of: TimeOf,
}

impl CallTime {
    /// The time of a call that may take as long as this from now on, but no longer than its action.
    pub(super) fn begin(part_of: Option<&PartOf>, allowed: Duration, now: Instant) -> Self {
        match part_of {
            Some(action) if action.deadline() < now + allowed => Self {
                started: action.since,
                allowed: action.allowed,
                deadline: action.deadline(),
                of: TimeOf::Action,
            },
            _ => Self { started: now, allowed, deadline: now + allowed, of: TimeOf::Call },
        }
    }

    /// The time of an attempt that begins now and may take as long as this.
    pub(super) fn attempt(&self, longest: Duration, now: Instant) -> AttemptTime {
        match now + longest < self.deadline {
            true => {
                AttemptTime { deadline: now + longest, allowed: longest, since: now, of: TimeOf::Attempt }
            }
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
