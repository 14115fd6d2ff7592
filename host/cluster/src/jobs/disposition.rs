//! The decision about a job after a run: pure, so that every case of it is a test.

use std::time::{Duration, Instant};

use cofferdam_core::error::{Error, HostErrorKind};
use cofferdam_core::failure::{Failure, FailureCause};
use cofferdam_core::rng::RandomSource;
use cofferdam_egress::resilience::{RetryContext, RetryDecision, RetryProfile, decide};
use cofferdam_runtime::call::may_end_otherwise;

/// The delay before a job is looked at again whose key another call holds that is running.
const IN_PROGRESS: Duration = Duration::from_millis(250);

/// The delay of a job that this host cannot run now, doubled with each delivery.
const HOST_TROUBLE: Duration = Duration::from_millis(500);

/// The longest of those delays.
const LONGEST_TROUBLE: Duration = Duration::from_secs(60);

/// The shortest and the longest delay before an open circuit is asked again.
const CIRCUIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// The time that is left to a retry decision: a job has no deadline over its runs.
const NO_DEADLINE: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// The decision about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Disposition {
    /// It has a value.
    Done,
    /// It has an outcome that is not a value, and that stands for its key.
    Failed,
    /// Its failure is retried after this delay.
    Retry(Duration),
    /// It was not run, or its call is another's that runs: it is delivered again after this delay. It does not count.
    Later(Duration),
    /// This host does not have its connector or its action.
    Missing,
    /// It was cancelled.
    Cancelled,
    /// It has no outcome, and an operator has to do something.
    Dead,
}

/// The facts of a run that is over.
pub(super) struct EndedRun<'r> {
    /// The error; none for a value.
    pub(super) error: Option<&'r Error>,
    /// True if the outcome is that of an earlier call with the same key.
    pub(super) is_replayed: bool,
    /// The retry profile of what failed; none if nothing was run.
    pub(super) profile: Option<&'r RetryProfile>,
    /// The number of runs that ended with a failure that is retried, including this one.
    pub(super) attempts: u32,
    /// The number of deliveries of the message.
    pub(super) deliveries: u64,
    /// True if somebody asked to cancel the job, and not the worker that is about to end.
    pub(super) is_cancel_requested: bool,
}

impl EndedRun<'_> {
    /// Returns the decision.
    pub(super) fn disposition(&self, rng: &dyn RandomSource) -> Disposition {
        match self.error {
            None => Disposition::Done,
            Some(Error::Failure(failure)) => self.of_failure(failure, rng),
            Some(Error::Host(error)) => self.of_host_error(error.kind()),
        }
    }

    fn of_failure(&self, failure: &Failure, rng: &dyn RandomSource) -> Disposition {
        // It stands for the key: a further run would get the same.
        if self.is_replayed {
            return Disposition::Failed;
        }
        if failure.cause() == FailureCause::CircuitOpen {
            let asked = failure.retry_after().unwrap_or(CIRCUIT.0);
            return Disposition::Later(asked.clamp(CIRCUIT.0, CIRCUIT.1));
        }
        let now = Instant::now();
        let deadline = now.checked_add(NO_DEADLINE).unwrap_or(now);
        // Whether the operation may be repeated is decided by its key, in the audit log: a run of one that may not gets
        // `outcome_unknown`, or the recorded failure.
        let context = RetryContext::from_failure(failure, true, self.attempts, 0, now, deadline);
        match self.profile.map(|profile| decide(profile, &context, rng)) {
            Some(RetryDecision::Retry { delay, .. }) => Disposition::Retry(delay),
            // Others pass with time, or are mended by an operator or a caller.
            _ if !may_end_otherwise(failure) => Disposition::Failed,
            _ => Disposition::Dead,
        }
    }

    fn of_host_error(&self, kind: HostErrorKind) -> Disposition {
        use HostErrorKind as Kind;
        match kind {
            Kind::ConnectorNotFound | Kind::ActionNotFound => Disposition::Missing,
            Kind::InProgress => Disposition::Later(IN_PROGRESS),
            Kind::Cancelled if self.is_cancel_requested => Disposition::Cancelled,
            // The worker is about to end: another one goes on at once.
            Kind::Cancelled => Disposition::Later(Duration::ZERO),
            // Nothing was run. The host's state may be different soon, or on another host.
            Kind::Busy
            | Kind::AuditUnavailable
            | Kind::CircuitsUnavailable
            | Kind::RegistryUnavailable
            | Kind::KeyringInvalid
            | Kind::VaultLocked
            | Kind::VaultUnusable
            | Kind::QueueUnavailable
            | Kind::SourceUnavailable
            // The connector was replaced while the call waited.
            | Kind::Conflict => Disposition::Later(trouble_delay(self.deliveries)),
            // The request is at fault: it ends the same way for ever.
            Kind::Validation
            | Kind::OpNotFound
            | Kind::IdempotencyConflict
            | Kind::NotReplayable => Disposition::Failed,
            // An operator has to look: the effect is unknown, a person has to approve it, or something has to be mended.
            Kind::OutcomeUnknown
            | Kind::ApprovalRequired
            | Kind::ApprovalDenied
            | Kind::ContractVersion
            | Kind::ConsentRequired
            | Kind::CompileRefused
            | Kind::InputUnreadable
            | Kind::Downgrade
            | Kind::BindingNotFound
            | Kind::SourceRefused
            | Kind::AuditNotFound
            | Kind::JobNotFound
            | Kind::AuditTampered
            | Kind::OutputUnwritable
            | Kind::Tool
            | Kind::Configuration
            | Kind::Internal => Disposition::Dead,
        }
    }
}

/// Returns the delay of a job that this host cannot run now.
pub(super) fn trouble_delay(deliveries: u64) -> Duration {
    let doublings = u32::try_from(deliveries.saturating_sub(1)).unwrap_or(u32::MAX).min(10);
    HOST_TROUBLE.saturating_mul(1 << doublings).min(LONGEST_TROUBLE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use cofferdam_core::error::HostError;
    use cofferdam_core::failure::{AuditId, FailureContext, LimitHit, LimitKind, RepeatRule, UpstreamFault};
    use cofferdam_core::privileged::MakeFailure as _;
    use cofferdam_core::rng::SystemRng;

    use super::*;

    fn answered(status: u16) -> Error {
        let context = FailureContext::new(AuditId::mint()).with_op("op", RepeatRule::Always);
        let fault = UpstreamFault {
            status,
            upstream_code: None,
            host: None,
            retry_after_ms: None,
            bindings: Vec::new(),
            observed: true,
        };
        Failure::external_api_error(&context, fault).into()
    }

    fn decided(error: Option<&Error>, attempts: u32, is_replayed: bool) -> Disposition {
        let profile = RetryProfile::named("standard").unwrap();
        let run = EndedRun {
            error,
            is_replayed,
            profile: Some(&profile),
            attempts,
            deliveries: 1,
            is_cancel_requested: false,
        };
        run.disposition(&SystemRng)
    }

    #[test]
    fn a_temporary_failure_is_retried_by_the_profile() {
        let busy = answered(503);
        assert!(matches!(decided(Some(&busy), 1, false), Disposition::Retry(delay) if delay.as_secs() == 1));
        assert!(matches!(decided(Some(&busy), 3, false), Disposition::Retry(delay) if delay.as_secs() >= 4));
        assert_eq!(decided(Some(&busy), 4, false), Disposition::Dead, "no outcome stands for the key");
        assert_eq!(decided(Some(&busy), 1, true), Disposition::Failed, "a recorded outcome is final");
        assert_eq!(decided(Some(&answered(404)), 1, false), Disposition::Failed);
        for (limit, disposition) in
            [(LimitKind::Fuel, Disposition::Dead), (LimitKind::Payload, Disposition::Failed)]
        {
            let context = FailureContext::new(AuditId::mint());
            let hit = Failure::resource_limit_exceeded(&context, LimitHit::new(limit, 1, 2)).into();
            assert_eq!(decided(Some(&hit), 1, false), disposition, "{limit:?}");
        }
        assert_eq!(decided(None, 1, false), Disposition::Done);
    }

    #[test]
    fn host_errors_are_final_late_or_dead() {
        let of = |kind: HostErrorKind| decided(Some(&HostError::new(kind, "No.").into()), 1, false);
        assert_eq!(of(HostErrorKind::OutcomeUnknown), Disposition::Dead);
        assert_eq!(of(HostErrorKind::Validation), Disposition::Failed);
        assert_eq!(of(HostErrorKind::ConnectorNotFound), Disposition::Missing);
        assert_eq!(of(HostErrorKind::InProgress), Disposition::Later(IN_PROGRESS));
        assert_eq!(of(HostErrorKind::AuditUnavailable), Disposition::Later(HOST_TROUBLE));
        assert_eq!(of(HostErrorKind::Cancelled), Disposition::Later(Duration::ZERO));
        for kind in HostErrorKind::ALL {
            assert_ne!(of(*kind), Disposition::Done, "{kind:?}");
        }
    }

    #[test]
    fn the_delay_of_host_trouble_is_bounded() {
        assert_eq!(trouble_delay(1), HOST_TROUBLE);
        assert_eq!(trouble_delay(2), HOST_TROUBLE * 2);
        assert_eq!(trouble_delay(u64::MAX), LONGEST_TROUBLE);
    }
}
