//! One effect for each idempotency key: decides what a call gets whose key was given before, and waits for that
//! outcome.
//!
//! The key is checked before anything is loaded, so that an outcome is replayed even if the connector has changed
//! or is gone. The key is claimed in the key table before the call's first entry is written. That claim alone
//! decides which call runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_audit::{
    AuditError, AuditErrorKind, KeyClaim, KeyDisposition, KeyScope, KeyState, Part, Sealed,
};
use cofferdam_core::digest::Digest as FileDigest;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, Failure, FailureCause, FailureClass, REPEAT_WITH_KEY};
use cofferdam_core::limits::PAYLOAD_BYTES;
use cofferdam_egress::vault::DEFAULT_IDENTITY;
use cofferdam_model::action::ActionScope;
use cofferdam_sandbox::{ResultFormat, json_size_over};
use jiff::Timestamp;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::fallback::object;
use super::pipeline::CallPipeline;
use super::request::{Call, CallArgs, OnKeyConflict};
use super::sealed_payload::{self, RecordedOutcome};
use crate::log_errors;

/// The delay before a key is checked for the second time. It doubles each time, up to [`MAX_POLL_DELAY`].
const INITIAL_POLL_DELAY: Duration = Duration::from_millis(20);

/// The longest delay before a key is checked again.
const MAX_POLL_DELAY: Duration = Duration::from_millis(250);

/// The wait of one call for another.
pub(super) struct PollBackoff {
    deadline: Instant,
    next: Duration,
}

impl PollBackoff {
    /// Creates a wait that ends at `deadline`.
    pub(super) fn with_deadline(deadline: Instant) -> Self {
        Self { deadline, next: INITIAL_POLL_DELAY }
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
        let fingerprint = if fits { call_fingerprint(call, actor) } else { None };
        let at = self.loader.clock.timestamp();
        Some(KeyClaim { key: Arc::clone(key), fingerprint: fingerprint?, at, of: KeyScope::Call })
    }

    /// Returns how long a call waits for another one with its key: its own wall time, as far as that is known
    /// before the load.
    pub(super) fn poll_backoff(&self, call: &Call) -> PollBackoff {
        PollBackoff::with_deadline(self.waits_until(call, DEFAULT_WAIT))
    }

    /// Returns the time until which a call waits for a permit: its own wall time, or else the longest that any call
    /// may have.
    pub(super) fn permit_deadline(&self, call: &Call) -> Instant {
        self.waits_until(call, self.loader.ceilings.wall_time())
    }

    fn waits_until(&self, call: &Call, otherwise: Duration) -> Instant {
        let plan = self.settings.plan(call.connector.name(), call.retry.as_ref());
        let scope = call.scope.as_ref().and_then(|scope| scope.limits().wall_time());
        let time = call.limits.wall_time().or(scope).or(plan.profile.times().wall_time);
        let time = time.unwrap_or(otherwise).min(self.loader.ceilings.wall_time());
        let deadline = self.loader.clock.now() + time;
        call.action_context.as_ref().map_or(deadline, |action| deadline.min(action.deadline()))
    }

    /// Decides what a call does whose key is in this state: it runs, gets the recorded outcome, or waits.
    ///
    /// # Errors
    /// The call may not run: the key is another call's, the outcome under it is unknown or not kept, or the other
    /// call runs for longer than this one waits.
    pub(super) async fn decide_for_key<A: ResultFormat>(
        &self,
        if_running: OnKeyConflict,
        state: KeyState,
        backoff: &mut PollBackoff,
    ) -> Result<KeyDecision<A>, HostError> {
        match state {
            KeyState::Free => Ok(KeyDecision::Own),
            KeyState::Done { audit_id, idempotent, outcome: Some(sealed) } => {
                let recorded = self.recorded(&audit_id, &sealed)?;
                Ok(KeyDecision::Recorded { of: audit_id, idempotent, recorded })
            }
            KeyState::Done { audit_id, outcome: None, .. } => Err(not_kept(&audit_id)),
            KeyState::Different { audit_id } => Err(different(&audit_id)),
            KeyState::Unknown { audit_id } => Err(unknown(&audit_id)),
            KeyState::Running { audit_id } => {
                let clock = &*self.loader.clock;
                if if_running == OnKeyConflict::Refuse || clock.now() >= backoff.deadline {
                    return Err(running(&audit_id, if_running));
                }
                let _asleep = self.backoff_slots.try_acquire().map_err(|_| super::admit::busy())?;
                let until = clock.now() + backoff.next;
                backoff.next = backoff.next.saturating_mul(2).min(MAX_POLL_DELAY);
                clock.sleep_until(until.min(backoff.deadline)).await;
                Ok(KeyDecision::PollAgain)
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
    ) -> Result<RecordedOutcome<A>, HostError> {
        let text = self.opened(of, Part::Outcome, sealed)?;
        sealed_payload::recorded(&text).ok_or_else(|| unreadable(of, unfamiliar()))
    }

    /// Opens the recorded call, so that it can be made again. Its attempts carry the key of the first call's
    /// attempts, and its actor is the same.
    ///
    /// # Errors
    /// It does not open: it was changed, or the host's key was.
    pub(crate) fn recorded_call(&self, of: &AuditId, sealed: &Sealed) -> Result<Call, HostError> {
        let text = self.opened(of, Part::Request, sealed)?;
        let call = sealed_payload::call(&text, |name| self.settings.profile(name));
        call.ok_or_else(|| unreadable(of, unfamiliar()))
    }

    /// Checks that a call may be made under the key that the host made for the call `failed`: that one is the same
    /// call, and its failure or its cancellation names the key.
    ///
    /// # Errors
    /// `validation`: there is no such failure; `idempotency_conflict`: it is another call's; or it cannot be read.
    pub(super) async fn check_repeats(
        &self,
        call: &Call,
        failed: AuditId,
        actor: &str,
    ) -> Result<(), HostError> {
        let (log, id) = (Arc::clone(self.log()), failed.clone());
        let read = tokio::task::spawn_blocking(move || log.reader()?.sealed(&id)).await;
        let read = read.map_err(|error| {
            HostError::new(HostErrorKind::Internal, "The audit log could not be read.").with_source(error)
        })?;
        let (request, outcome) = match read {
            Ok((Some(request), Some(outcome))) => (request, outcome),
            Ok(_) => return Err(unnamed()),
            Err(error) if error.kind() == AuditErrorKind::Absent => return Err(unnamed()),
            Err(error) => return Err(log_errors::unreadable(error)),
        };
        let outcome = self.recorded::<Value>(&failed, &outcome)?.outcome;
        let details = match &outcome {
            Ok(_) => None,
            Err(Error::Failure(failure)) => Some(failure.details()),
            Err(Error::Host(error)) => Some(error.details()),
        };
        let named = details.and_then(|details| details.get(REPEAT_WITH_KEY)?.as_str());
        if named != Some(failed.as_str()) {
            return Err(unnamed());
        }
        let first = self.recorded_call(&failed, &request)?;
        let by = first.actor.as_deref().unwrap_or_default();
        match call_fingerprint(&first, by) == call_fingerprint(call, actor) {
            true => Ok(()),
            false => Err(of_another(&failed)),
        }
    }

    fn opened(
        &self,
        of: &AuditId,
        part: Part,
        sealed: &Sealed,
    ) -> Result<zeroize::Zeroizing<Vec<u8>>, HostError> {
        let sealer = self.audit.sealer().map_err(|error| unreadable(of, error))?;
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
        recorded: RecordedOutcome<A>,
    },
    /// The call checks its key again.
    PollAgain,
}

fn unfamiliar() -> AuditError {
    AuditError::new(AuditErrorKind::TooNew, "it has a form that this version does not know")
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
        .with_hint(format!(
            "`cofferdam audit show {of}` says how it ended. Another key does it again: look at the service first."
        ))
        .detail("call", of.as_str())
}

fn different(of: &AuditId) -> HostError {
    HostError::new(
        HostErrorKind::IdempotencyConflict,
        format!("The idempotency key was given before, with another call or action: {of}. Nothing was run."),
    )
    .with_hint(format!(
        "`cofferdam audit show {of}` shows what it was given with. Give it with the same (actor, operation or action's \
         file, arguments, identities). Use another key only for another call: it does again what was done under this \
         one."
    ))
    .detail("call", of.as_str())
}

/// Returns the error for a key that the host made for another call. Neither hint names a new key as the remedy: the
/// caller may mean a call that had its effect.
fn of_another(of: &AuditId) -> HostError {
    HostError::new(
        HostErrorKind::IdempotencyConflict,
        format!("The host made the idempotency key for another call: {of}. Nothing was run."),
    )
    .with_hint(format!(
        "`cofferdam audit show {of}` shows that call. Make it again as it was, as the same actor: under another key it \
         may have its effect twice."
    ))
    .detail("call", of.as_str())
}

/// Returns the error for a key like those that the host makes, which no stored failure names.
fn unnamed() -> HostError {
    let message = "No failure that is stored names this idempotency key. Nothing was run.";
    HostError::new(HostErrorKind::Validation, message).with_hint(
        "If a failure named it, that is not stored any more: look at the service before you make the call under \
         another key. A key of your own begins with something else than `audit-`.",
    )
}

pub(super) fn unknown(of: &AuditId) -> HostError {
    let message = format!(
        "Nothing was run: a call with this idempotency key, {of}, was begun and may have had its effect, and no outcome \
         of it stands."
    );
    HostError::new(HostErrorKind::OutcomeUnknown, message)
        .with_hint(format!(
            "Look at the service. Where its effect is missing, `cofferdam recover skip {of} --free-key --reason TEXT` \
             lets the key be used again; where it is there, the same without --free-key records that, unless it is \
             recorded."
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

/// The facts that decide about a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyContext {
    pub(super) attempts: usize,
    /// True if each attempt has ended.
    pub(super) all_ended: bool,
    /// True if a request of the ended attempts may have left.
    pub(super) sent: bool,
    /// True if the guest returned while a request was pending that may have changed something.
    pub(super) left_unsafe: bool,
    /// True if the call may be repeated.
    pub(super) idempotent: bool,
    /// The time until which an outcome would be kept.
    pub(super) until: Timestamp,
}

impl KeyContext {
    /// Returns the state of the key after a call with this outcome.
    pub(super) fn key<A>(self, outcome: &Result<A, Error>) -> KeyDisposition {
        match outcome {
            // No attempt was made under it.
            _ if self.attempts == 0 => KeyDisposition::Release,
            // The result of a request that was aborted when the guest returned is unknown, whatever the guest
            // reports.
            Ok(_) if self.left_unsafe => KeyDisposition::Undetermined,
            Ok(_) => KeyDisposition::Retain(self.until),
            // The host cut the call off while its requests were on the way. As with a cancellation, the outcome
            // does not show their effect.
            Err(Error::Failure(failure)) if cut_off(failure) => self.key_without_outcome(),
            // A transient failure must not block the key. Release it if that cannot cause a second effect.
            Err(Error::Failure(failure)) if may_end_otherwise(failure) && (self.idempotent || !self.sent) => {
                KeyDisposition::Release
            }
            Err(Error::Failure(_)) if self.left_unsafe => KeyDisposition::Undetermined,
            Err(Error::Failure(_)) => KeyDisposition::Retain(self.until),
            Err(Error::Host(_)) => self.key_without_outcome(),
        }
    }

    /// Returns the state of the key after a call without an outcome of its own: it was cancelled, or the host could
    /// not go on.
    pub(super) fn key_without_outcome(self) -> KeyDisposition {
        // An attempt that never ended may have sent anything.
        match self.attempts == 0 || self.idempotent || (self.all_ended && !self.sent) {
            true => KeyDisposition::Release,
            false => KeyDisposition::Undetermined,
        }
    }
}

/// True if the host ended the call before the connector had answered. It may be given more, and called again.
fn cut_off(failure: &Failure) -> bool {
    failure.class() == FailureClass::ResourceLimitExceeded && failure.code() != "payload"
}

/// True if another try may end otherwise. This includes a call that was cut off, an open circuit, and what the operator
/// can mend: a missing grant, a binding, or a bill. Other failures stand for the key of their call.
#[must_use]
pub fn may_end_otherwise(failure: &Failure) -> bool {
    use FailureClass::{BindingFailed, BindingRequired, CapabilityDenied, HashMismatch, SignatureFailure};
    let for_the_operator = match failure.class() {
        CapabilityDenied | BindingRequired | BindingFailed | HashMismatch | SignatureFailure => true,
        FailureClass::ExternalApiError => matches!(failure.code(), "auth" | "payment_required"),
        _ => false,
    };
    failure.retriable()
        || for_the_operator
        || cut_off(failure)
        || failure.cause() == FailureCause::CircuitOpen
}

/// Returns the fingerprint of `call` by `actor`. None if its arguments are not a JSON object, which no operation
/// accepts.
pub(super) fn call_fingerprint(call: &Call, actor: &str) -> Option<[u8; 32]> {
    let mut hash = HashWriter(Sha256::new());
    hash.text("cofferdam-call-v1");
    hash.text(actor);
    hash.text(call.connector.name().as_str());
    hash.text(&call.op);
    let (action, step) = call.action_and_step();
    hash.text(action.map(unversioned).unwrap_or_default());
    hash.text(step.unwrap_or_default());
    hash.identities(&call.identities, call.scope.as_deref());
    match &call.args {
        CallArgs::Value(Value::Object(args)) => hash.arguments(args),
        CallArgs::Value(_) => return None,
        args @ CallArgs::Text(_) => hash.arguments(&*object(args)?),
    }
    hash.length(call.fallbacks.len());
    for fallback in &call.fallbacks {
        hash.text(fallback.connector.name().as_str());
        // Fallbacks may differ in their version alone.
        hash.text(&fallback.connector.version().to_string());
        hash.text(&fallback.op);
        hash.identities(&fallback.identities, fallback.scope.as_deref());
        // A `null` here replaces a field, so it counts.
        hash.length(fallback.overrides.len());
        sorted(&fallback.overrides, |_| true).for_each(|(name, value)| hash.field(name, value));
    }
    Some(hash.0.finalize().into())
}

/// Returns the fingerprint of an action that `actor` runs with these arguments. It covers the action's file: an
/// edited file may name its steps differently, and would then repeat steps that are done.
pub(super) fn action_fingerprint(
    (name, file): (&str, &FileDigest),
    args: &Map<String, Value>,
    identities: &BTreeMap<String, String>,
    actor: &str,
) -> [u8; 32] {
    let mut hash = HashWriter(Sha256::new());
    hash.text("cofferdam-action-v1");
    hash.text(actor);
    hash.text(unversioned(name));
    hash.text(&file.to_string());
    hash.identities(identities, None);
    hash.arguments(args);
    hash.0.finalize().into()
}

/// Returns an action's name without its version.
fn unversioned(action: &str) -> &str {
    action.split_once('@').map_or(action, |(name, _)| name)
}

/// A hash in which every part is preceded by its kind or its length, so that different inputs never give the same
/// bytes.
struct HashWriter(Sha256);

impl HashWriter {
    fn length(&mut self, length: usize) {
        self.0.update((length as u64).to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.update(text);
    }

    /// Adds the identity that is chosen for each service. The identity `default` equals no choice.
    fn identities(&mut self, chosen: &BTreeMap<String, String>, scope: Option<&ActionScope>) {
        let mut all = scope.map(|scope| scope.identities().clone()).unwrap_or_default();
        all.extend(chosen.iter().map(|(service, identity)| (service.clone(), identity.clone())));
        all.retain(|_, identity| identity != DEFAULT_IDENTITY);
        self.length(all.len());
        for (service, identity) in &all {
            self.text(service);
            self.text(identity);
        }
    }

    fn arguments(&mut self, fields: &Map<String, Value>) {
        self.fields(sorted(fields, |value| !value.is_null()));
    }

    fn fields<'f>(&mut self, fields: impl Iterator<Item = (&'f str, &'f Value)>) {
        self.0.update(b"{");
        fields.for_each(|(name, value)| self.field(name, value));
        self.0.update(b"}");
    }

    fn field(&mut self, name: &str, value: &Value) {
        self.0.update(b".");
        self.text(name);
        self.value(value);
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.0.update(b"n"),
            Value::Bool(bool) => self.0.update(if *bool { b"t" } else { b"f" }),
            Value::Number(number) => {
                self.0.update(b"#");
                match number.as_f64() {
                    // 1.0 equals 1. Beyond 2^53 a float does not identify an integer.
                    #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
                    Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
                        self.text(&(float as i64).to_string());
                    }
                    _ => self.text(&number.to_string()),
                }
            }
            Value::String(text) => {
                self.0.update(b"\"");
                self.text(text);
            }
            Value::Array(items) => {
                self.0.update(b"[");
                self.length(items.len());
                items.iter().for_each(|item| self.value(item));
            }
            // Nested `null` values count, because they may be all that a case has: `{"ok": null}` is not `{"err":
            // null}`.
            Value::Object(fields) => self.fields(sorted(fields, |_| true)),
        }
    }
}

/// Below this limit every whole float is exactly one integer: 2^53.
const EXACT: f64 = 9_007_199_254_740_992.0;

fn sorted(
    fields: &Map<String, Value>,
    wanted: impl Fn(&Value) -> bool,
) -> impl Iterator<Item = (&str, &Value)> {
    let mut fields: Vec<_> = fields.iter().filter(|(_, value)| wanted(value)).collect();
    fields.sort_unstable_by_key(|(name, _)| *name);
    fields.into_iter().map(|(name, value)| (name.as_str(), value))
}

#[cfg(test)]
mod tests {

    #![allow(clippy::unwrap_used, reason = "a test")]
    use serde_json::json;

    use super::*;
    use crate::call::{ConnectorRef, Fallback};
    use cofferdam_core::failure::{FailureContext, LimitHit, LimitKind};
    use cofferdam_core::privileged::MakeFailure as _;
    use cofferdam_egress::resilience::RetryProfile;

    fn at(version: &str) -> ConnectorRef {
        ConnectorRef::parse(&format!("github://acme/mail@{version}")).unwrap()
    }

    fn text(args: &str) -> Call {
        Call::from_text(at("1.0.0"), "send", args)
    }

    #[test]
    fn equal_calls_have_equal_fingerprints() {
        let one = call_fingerprint(&text(r#"{"to": "ada", "n": 1, "more": {"a": [1, {"b": 2}]}}"#), "host")
            .unwrap();
        for args in [
            r#"{"n":1.0,"more":{"a":[1,{"b":2}]},"to":"\u0061da"}"#,
            r#"{"none": null, "to": "ada", "n": 1e0, "more": {"a": [1.0, {"b": 2}]}}"#,
        ] {
            assert_eq!(call_fingerprint(&text(args), "host").unwrap(), one, "{args}");
        }
        let value = json!({"more": {"a": [1, {"b": 2}]}, "n": 1, "to": "ada"});
        let call = || Call::new(at("1.0.0"), "send", value.clone());
        for call in [
            call(),
            Call::new(at("2.0.0"), "send", value.clone()),
            call().identity("mail", "default").allow_unsigned(),
            call()
                .retry(RetryProfile::named("none").unwrap())
                .attempt_timeout(std::time::Duration::from_secs(1)),
        ] {
            assert_eq!(call_fingerprint(&call, "host").unwrap(), one, "{call:?}");
        }
    }

    #[test]
    fn different_calls_have_different_fingerprints() {
        let base = || text(r#"{"a": "1", "b": [1]}"#);
        let overrides = |value: Value| json!({"a": value}).as_object().unwrap().clone();
        let instead = |version: &str| Fallback::new(at(version), "send");
        let scope = ActionScope::new("notify@1.0.0", ["send"], ["a.example:443"]).unwrap();
        let calls = [
            base(),
            text(r#"{"a": 1, "b": [1]}"#),
            text(r#"{"a": "1", "b": [1, null]}"#),
            text(r#"{"a": "1", "b": [[1]]}"#),
            text(r#"{"a": "1", "b": []}"#),
            text(r#"{"a": "1b"}"#),
            text(r#"{"a": {"ok": null}}"#),
            text(r#"{"a": {"err": null}}"#),
            text(r#"{"a": {}}"#),
            text(r#"{"a": "1", "b": [9007199254740993]}"#),
            text(r#"{"a": "1", "b": [9007199254740992]}"#),
            text(r#"{"a": "1", "b": [9007199254740992.0]}"#),
            text(r#"{"a": "1", "b": [0.1]}"#),
            text(r#"{"a": "1", "b": [0.10000000000000002]}"#),
            Call::from_text(at("1.0.0"), "sent", r#"{"a": "1", "b": [1]}"#),
            base().identity("mail", "work"),
            base().step_of("notify", "one"),
            base().step_of("notify", "two"),
            base().within(scope),
            base().or_else(instead("2.0.0")),
            base().or_else(instead("3.0.0")),
            base().or_else(instead("2.0.0").with_args(overrides(json!(null)))),
            base().or_else(instead("2.0.0").with_args(overrides(json!(2)))),
        ];
        let mut seen: Vec<_> = calls.iter().map(|call| call_fingerprint(call, "host").unwrap()).collect();
        seen.push(call_fingerprint(&base(), "cli:ada").unwrap());
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
        assert_eq!(call_fingerprint(&text("[1]"), "host"), None);
    }

    /// The caller raises the limit and keeps the key: under another key the call may have its effect twice.
    #[test]
    fn a_limit_frees_a_key_that_no_effect_needs() {
        let key = |limit, idempotent, sent| {
            let failure = Failure::resource_limit_exceeded(
                &FailureContext::new(AuditId::mint()),
                LimitHit::new(limit, 1, 2),
            );
            let (attempts, all_ended, left_unsafe, until) = (1, true, false, Timestamp::MAX);
            let context = KeyContext { attempts, all_ended, sent, left_unsafe, idempotent, until };
            context.key(&Err::<(), Error>(failure.into()))
        };
        for limit in [LimitKind::Fuel, LimitKind::Memory, LimitKind::WallTime] {
            assert_eq!(key(limit, true, true), KeyDisposition::Release, "{limit:?}");
            assert_eq!(key(limit, false, false), KeyDisposition::Release, "{limit:?}");
            assert_eq!(key(limit, false, true), KeyDisposition::Undetermined, "{limit:?}");
        }
        // The same call has the same result.
        assert_eq!(key(LimitKind::Payload, true, true), KeyDisposition::Retain(Timestamp::MAX));
    }
}
