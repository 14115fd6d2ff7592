//! Decides whether a call may be repeated after its attempts, and collects the facts for the state of its key.

use std::sync::Arc;

use cofferdam_core::failure::RepeatRule;
use cofferdam_sandbox::UnkeyedWatch;

use super::Record;
use crate::call::idempotency::KeyContext;
use crate::call::report::AttemptReport;

impl Record {
    /// Sets the watch over the attempt's requests.
    pub(in crate::call) fn watches(&mut self, unkeyed: &Arc<UnkeyedWatch>) {
        self.repeat.1 = Some(Arc::clone(unkeyed));
    }

    /// Returns the number of retries of this candidate.
    pub(in crate::call) fn retried_of(&self, candidate: u32) -> u32 {
        u32::try_from(self.attempts_of(candidate).0).unwrap_or(u32::MAX).saturating_sub(1)
    }

    /// True if the operation may be repeated after its last attempt, which is over. Earlier attempts were followed
    /// by another one, so they sent no unkeyed request.
    fn may_be_repeated(&mut self) -> bool {
        let unkeyed = self.repeat.1.as_ref().and_then(|unkeyed| unkeyed.close());
        let may = match self.repeat.0 {
            RepeatRule::Always => true,
            RepeatRule::UnlessUnkeyed => unkeyed.is_none(),
            RepeatRule::Never => false,
        };
        if let Some(attempt) = self.report.as_mut().and_then(|report| report.attempts.last_mut()) {
            attempt.unkeyed = unkeyed;
        }
        may
    }

    /// Returns the facts that decide about the call's key.
    pub(super) fn done(&mut self) -> KeyContext {
        let idempotent = self.may_be_repeated();
        let ended = |attempt: &AttemptReport| attempt.outcome.is_some();
        KeyContext {
            attempts: self.attempts(),
            all_ended: self.report.as_ref().is_none_or(|report| report.attempts.iter().all(ended)),
            sent: self.sent,
            left_unsafe: self.left_unsafe,
            idempotent,
            until: self.on_record.key_stands_until(),
        }
    }
}
