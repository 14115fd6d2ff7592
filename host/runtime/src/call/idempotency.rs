//! One effect for each idempotency key: decides what a call gets whose key was given before, and waits for that
//! outcome.
//!
//! The key is checked before anything is loaded, so that an outcome is replayed even if the connector has changed
//! or is gone. The key is claimed in the commit that lets the first attempt run. That commit alone decides which
//! call runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::{AuditError, AuditTrouble, KeyClaim, KeyOf, Part, Sealed, Standing};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::AuditId;
use cofferdam_core::limits::PAYLOAD_BYTES;
use cofferdam_sandbox::{ResultFormat, json_size_over};

use super::kept::{self, Recorded};
use super::pipeline::CallPipeline;
use super::request::{Call, CallArgs, OnKeyConflict};

/// The delay before a key is checked for the second time. It doubles each time, up to [`LAST_LOOK`].
const FIRST_LOOK: Duration = Duration::from_millis(20);

/// The longest delay before a key is checked again.
const LAST_LOOK: Duration = Duration::from_millis(250);

/// The wait of one call for another.
pub(super) struct PollBackoff {
    deadline: Instant,
    next: Duration,
}

impl PollBackoff {
    /// Creates a wait that ends at `deadline`.
    pub(super) fn until(deadline: Instant) -> Self {
        Self { deadline, next: FIRST_LOOK }
    }
}

impl CallPipeline {
    /// Returns the claim for the key of this call. None if the caller gave no key, or if no operation can accept
    /// its arguments: then the call is refused for that.
    pub(super) fn claim(&self, call: &Call, key: &Arc<str>, actor: &str) -> Option<KeyClaim> {
        call.idempotency_key.as_ref()?;
        let limit = PAYLOAD_BYTES as u64;
        let fits = match &call.args {
            CallArgs::Value(value) => json_size_over(value, limit).is_none(),
            CallArgs::Text(text) => text.len() as u64 <= limit,
        };
        let fingerprint = if fits { super::fingerprint::of(call, actor) } else { None };
        let at = self.loader.clock.timestamp();
        let of = if call.part_of.is_some() { KeyOf::Step } else { KeyOf::Call };
        Some(KeyClaim { key: Arc::clone(key), fingerprint: fingerprint?, at, of })
    }

    /// Returns how long a call waits for another one with its key: its own wall time, as far as that is known
    /// before the load.
    pub(super) fn patience(&self, call: &Call) -> PollBackoff {
        PollBackoff::until(self.waits_until(call, DEFAULT_WAIT))
    }

    /// Returns the time until which a call waits for a permit: its own wall time, or else the longest that any call
    /// may have.
    pub(super) fn turn_until(&self, call: &Call) -> Instant {
        self.waits_until(call, self.loader.ceilings.wall_time())
    }

    fn waits_until(&self, call: &Call, otherwise: Duration) -> Instant {
        let plan = self.settings.plan(call.connector.name(), call.retry.as_ref());
        let scope = call.scope.as_ref().and_then(|scope| scope.limits().wall_time());
        let time = call.limits.wall_time().or(scope).or(plan.profile.times().wall_time);
        let time = time.unwrap_or(otherwise).min(self.loader.ceilings.wall_time());
        let deadline = self.loader.clock.now() + time;
        call.part_of.as_ref().map_or(deadline, |action| deadline.min(action.deadline()))
    }

    /// Decides what a call does whose key is in this state: it runs, gets the recorded outcome, or waits.
    ///
    /// # Errors
    /// The call may not run: the key is another call's, the outcome under it is unknown or not kept, or the other
    /// call runs for longer than this one waits.
    pub(super) async fn under_key<A: ResultFormat>(
        &self,
        if_running: OnKeyConflict,
        standing: Standing,
        patience: &mut PollBackoff,
    ) -> Result<KeyDecision<A>, HostError> {
        match standing {
            Standing::Free => Ok(KeyDecision::Own),
            Standing::Done { audit_id, idempotent, outcome: Some(sealed) } => {
                let recorded = self.recorded(&audit_id, &sealed)?;
                Ok(KeyDecision::Recorded { of: audit_id, idempotent, recorded })
            }
            Standing::Done { audit_id, outcome: None, .. } => Err(not_kept(&audit_id)),
            Standing::Different { audit_id } => Err(different(&audit_id)),
            Standing::Unknown { audit_id } => Err(unknown(&audit_id)),
            Standing::Running { audit_id } => {
                let clock = &*self.loader.clock;
                if if_running == OnKeyConflict::Refuse || clock.now() >= patience.deadline {
                    return Err(running(&audit_id, if_running));
                }
                let _asleep = self.asleep.try_acquire().map_err(|_| super::admit::busy())?;
                let until = clock.now() + patience.next;
                patience.next = patience.next.saturating_mul(2).min(LAST_LOOK);
                clock.sleep_until(until.min(patience.deadline)).await;
                Ok(KeyDecision::LookAgain)
            }
        }
    }

    /// Opens the recorded outcome of this call.
    ///
    /// # Errors
    /// It does not open: it was changed, or the host's key was.
    pub(crate) fn recorded<A: ResultFormat>(
        &self,
        of: &AuditId,
        sealed: &Sealed,
    ) -> Result<Recorded<A>, HostError> {
        let text = self.opened(of, Part::Outcome, sealed)?;
        kept::recorded(&text).ok_or_else(|| unreadable(of, unfamiliar()))
    }

    /// Opens the recorded call, so that it can be made again. Its attempts carry the key of the first call's
    /// attempts, and its actor is the same.
    ///
    /// # Errors
    /// It does not open: it was changed, or the host's key was.
    pub(crate) fn recorded_call(&self, of: &AuditId, sealed: &Sealed) -> Result<Call, HostError> {
        let text = self.opened(of, Part::Request, sealed)?;
        let call = kept::call(&text, |name| self.settings.profile(name));
        call.ok_or_else(|| unreadable(of, unfamiliar()))
    }

    fn opened(
        &self,
        of: &AuditId,
        part: Part,
        sealed: &Sealed,
    ) -> Result<zeroize::Zeroizing<Vec<u8>>, HostError> {
        let sealer = self.recording.sealer().map_err(|error| unreadable(of, error))?;
        sealer.open(of, part, sealed).map_err(|error| unreadable(of, error))
    }
}

/// The longest wait if no wall time is set: the default wall time of such a call.
const DEFAULT_WAIT: Duration = Duration::from_secs(30);

/// The next step of a call with a key.
pub(super) enum KeyDecision<A> {
    /// The call runs.
    Own,
    /// The call gets the outcome of an earlier one.
    Recorded {
        /// The earlier call.
        of: AuditId,
        /// True if it could have been repeated.
        idempotent: bool,
        /// Its outcome.
        recorded: Recorded<A>,
    },
    /// The call checks its key again.
    LookAgain,
}

fn unfamiliar() -> AuditError {
    AuditError::new(AuditTrouble::TooNew, "it has a form that this version does not know")
}

fn unreadable(of: &AuditId, error: AuditError) -> HostError {
    let message = format!("Nothing was run: what is kept of {of} cannot be opened.");
    HostError::new(HostErrorKind::AuditUnavailable, message)
        .with_hint("Either host.key is not the one that it was sealed with, or it was changed: `cofferdam audit verify` looks.")
        .detail("call", of.as_str())
        .with_source(error)
}

fn not_kept(of: &AuditId) -> HostError {
    let message = format!(
        "Nothing was run: the call with this idempotency key has ended, as {of}, and its outcome is not kept."
    );
    HostError::new(HostErrorKind::OutcomeUnknown, message)
        .with_hint(format!("`cofferdam audit show {of}` says how it ended; give another key to do it again."))
        .detail("call", of.as_str())
}

fn different(of: &AuditId) -> HostError {
    HostError::new(
        HostErrorKind::IdempotencyConflict,
        format!("The idempotency key was given before, with another call or action: {of}. Nothing was run."),
    )
    .with_hint(format!(
        "`cofferdam audit show {of}` shows what it was given with. Give it with the same (actor, operation or action's \
         file, arguments, identities), or give another key."
    ))
    .detail("call", of.as_str())
}

fn unknown(of: &AuditId) -> HostError {
    let message = format!(
        "Nothing was run: a call with this idempotency key, {of}, was begun, may have had its effect, and has no \
         outcome."
    );
    HostError::new(HostErrorKind::OutcomeUnknown, message)
        .with_hint(format!(
            "Look at the service. Where its effect is missing, `cofferdam recover skip {of} --free-key --reason TEXT` lets \
             the key be used again; where it is there, the same without --free-key puts that on record."
        ))
        .detail("call", of.as_str())
}

fn running(of: &AuditId, then: OnKeyConflict) -> HostError {
    let message = match then {
        OnKeyConflict::Refuse => format!("A call with this idempotency key is still running: {of}."),
        OnKeyConflict::Wait => {
            format!(
                "A call with this idempotency key, {of}, was still running when the time of this one was over."
            )
        }
    };
    HostError::new(HostErrorKind::InProgress, message)
        .with_hint("Call again with the same key to get its outcome.")
        .detail("call", of.as_str())
}
