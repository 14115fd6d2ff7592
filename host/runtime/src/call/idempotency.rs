//! One key, one effect: what a call whose idempotency key was given before gets, and what waits for it.
//!
//! A key is looked at before anything is loaded, so that an outcome is given again whatever became of the connector;
//! and it is claimed in the commit that lets the first attempt run, which alone decides who does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::{AuditError, AuditTrouble, KeyClaim, KeyOf, Part, Sealed, Standing};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::AuditId;
use cofferdam_core::limits::PAYLOAD_BYTES;
use cofferdam_sandbox::{Answer, json_size_over};

use super::kept::{self, Recorded};
use super::pipeline::Pipeline;
use super::request::{Args, Call, IfRunning};

/// How long is waited before a key is looked at again: twice as long each time, from
const FIRST_LOOK: Duration = Duration::from_millis(20);

/// up to this.
const LAST_LOOK: Duration = Duration::from_millis(250);

/// The waiting of one call for another.
pub(super) struct Patience {
    deadline: Instant,
    next: Duration,
}

impl Patience {
    /// Waiting that ends then.
    pub(super) fn until(deadline: Instant) -> Self {
        Self { deadline, next: FIRST_LOOK }
    }
}

impl Pipeline {
    /// What the key of this call stands for; none where nobody gave one, or where its arguments are none that any
    /// operation takes: then it is refused for that.
    pub(super) fn claim(&self, call: &Call, key: &Arc<str>, actor: &str) -> Option<KeyClaim> {
        call.idempotency_key.as_ref()?;
        let limit = PAYLOAD_BYTES as u64;
        let fits = match &call.args {
            Args::Value(value) => json_size_over(value, limit).is_none(),
            Args::Text(text) => text.len() as u64 <= limit,
        };
        let fingerprint = if fits { super::fingerprint::of(call, actor) } else { None };
        let at = self.loader.clock.timestamp();
        let of = if call.part_of.is_some() { KeyOf::Step } else { KeyOf::Call };
        Some(KeyClaim { key: Arc::clone(key), fingerprint: fingerprint?, at, of })
    }

    /// How long a call waits for another with its key: its own wall time, as far as that is known before it is loaded.
    pub(super) fn patience(&self, call: &Call) -> Patience {
        Patience::until(self.waits_until(call, DEFAULT_WAIT))
    }

    /// Until when a call waits for its turn: its own wall time, or the longest that any call may have where it has none
    /// of its own.
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

    /// What a call gets whose key stands so: the recorded outcome, or none where it may run.
    ///
    /// # Errors
    /// It may not: the key is another call's, or what was done under it is not known or not kept; or the other call
    /// runs for longer than this one waits.
    pub(super) async fn under_key<A: Answer>(
        &self,
        if_running: IfRunning,
        standing: Standing,
        patience: &mut Patience,
    ) -> Result<Turn<A>, HostError> {
        match standing {
            Standing::Free => Ok(Turn::Own),
            Standing::Done { audit_id, idempotent, outcome: Some(sealed) } => {
                let recorded = self.recorded(&audit_id, &sealed)?;
                Ok(Turn::Recorded { of: audit_id, idempotent, recorded })
            }
            Standing::Done { audit_id, outcome: None, .. } => Err(not_kept(&audit_id)),
            Standing::Different { audit_id } => Err(different(&audit_id)),
            Standing::Unknown { audit_id } => Err(unknown(&audit_id)),
            Standing::Running { audit_id } => {
                let clock = &*self.loader.clock;
                if if_running == IfRunning::Refuse || clock.now() >= patience.deadline {
                    return Err(running(&audit_id, if_running));
                }
                let _asleep = self.asleep.try_acquire().map_err(|_| super::admit::busy())?;
                let until = clock.now() + patience.next;
                patience.next = patience.next.saturating_mul(2).min(LAST_LOOK);
                clock.sleep_until(until.min(patience.deadline)).await;
                Ok(Turn::LookAgain)
            }
        }
    }

    /// The outcome of this call, as it was recorded.
    ///
    /// # Errors
    /// It does not open: it was changed, or the host's key was.
    pub(crate) fn recorded<A: Answer>(
        &self,
        of: &AuditId,
        sealed: &Sealed,
    ) -> Result<Recorded<A>, HostError> {
        let text = self.opened(of, Part::Outcome, sealed)?;
        kept::recorded(&text).ok_or_else(|| unreadable(of, unfamiliar()))
    }

    /// The call that was recorded, to be made again: its attempts will carry the key that those of the first did, and
    /// it is asked for in the name of the same actor.
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

/// How long is waited where nobody says: the wall time of such a call.
const DEFAULT_WAIT: Duration = Duration::from_secs(30);

/// What a call with a key does next.
pub(super) enum Turn<A> {
    /// It runs.
    Own,
    /// It has the outcome of that call.
    Recorded {
        /// The call.
        of: AuditId,
        /// Whether it might have been repeated.
        idempotent: bool,
        /// Its outcome.
        recorded: Recorded<A>,
    },
    /// It looks at its key again.
    LookAgain,
}

fn unfamiliar() -> AuditError {
    AuditError::new(AuditTrouble::TooNew, "it has a form that this version does not know")
}

fn unreadable(of: &AuditId, error: AuditError) -> HostError {
    let message = format!("Nothing was run: what is kept of {of} cannot be opened.");
    HostError::new(HostErrorKind::AuditUnavailable, message)
        .hint("Either host.key is not the one that it was sealed with, or it was changed: `cofferdam audit verify` looks.")
        .detail("call", of.as_str())
        .because(error)
}

fn not_kept(of: &AuditId) -> HostError {
    let message = format!(
        "Nothing was run: the call with this idempotency key has ended, as {of}, and its outcome is not kept."
    );
    HostError::new(HostErrorKind::OutcomeUnknown, message)
        .hint(format!("`cofferdam audit show {of}` says how it ended; give another key to do it again."))
        .detail("call", of.as_str())
}

fn different(of: &AuditId) -> HostError {
    HostError::new(
        HostErrorKind::IdempotencyConflict,
        format!("The idempotency key was given before, with another call or action: {of}. Nothing was run."),
    )
    .hint(format!(
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
        .hint(format!(
            "Look at the service. Where its effect is missing, `cofferdam recover skip {of} --free-key --reason TEXT` lets \
             the key be used again; where it is there, the same without --free-key puts that on record."
        ))
        .detail("call", of.as_str())
}

fn running(of: &AuditId, then: IfRunning) -> HostError {
    let message = match then {
        IfRunning::Refuse => format!("A call with this idempotency key is still running: {of}."),
        IfRunning::Wait => {
            format!(
                "A call with this idempotency key, {of}, was still running when the time of this one was over."
            )
        }
    };
    HostError::new(HostErrorKind::InProgress, message)
        .hint("Call again with the same key to get its outcome.")
        .detail("call", of.as_str())
}
