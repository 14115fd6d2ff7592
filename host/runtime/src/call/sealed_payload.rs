//! Seals a call's request and its outcome, so that the call can be resumed or its outcome replayed, and opens them
//! again.
//!
//! Each text has a head of one line of JSON, followed by the raw payload: arguments or a value. So a payload of
//! megabytes is neither escaped nor parsed on the way.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::clock::millis;
use cofferdam_core::error::{Error, HostError, HostErrorSnapshot};
use cofferdam_core::failure::{Failure, FailureSnapshot};
use cofferdam_core::limits::LimitRequest;
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_model::action::ActionScope;
use cofferdam_sandbox::ResultFormat;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fallback::Fallback;
use super::request::{Call, CallArgs, ConnectorRef};

/// The format version of sealed texts.
const FORMAT_VERSION: u8 = 1;

/// A text to be sealed, and the position of its payload.
pub(super) struct UnsealedPayload {
    pub(super) text: Vec<u8>,
    payload: usize,
}

impl UnsealedPayload {
    fn new(head: &impl Serialize, payload: impl FnOnce(&mut Vec<u8>)) -> Self {
        // Most heads and payloads fit, with the tag of the seal.
        let mut text = Vec::with_capacity(1024);
        // A head consists of texts and numbers, so its serialization cannot fail.
        let _ = serde_json::to_writer(&mut text, head);
        text.push(b'\n');
        let at = text.len();
        payload(&mut text);
        Self { text, payload: at }
    }

    /// Returns the payload: arguments, a value or an envelope as JSON text.
    pub(super) fn payload(&self) -> &[u8] {
        self.text.get(self.payload..).unwrap_or_default()
    }

    fn split<'t, H: Deserialize<'t>>(text: &'t [u8]) -> Option<(H, &'t [u8])> {
        let line = text.iter().position(|byte| *byte == b'\n')?;
        let (head, payload) = text.split_at_checked(line)?;
        Some((serde_json::from_slice(head).ok()?, payload.get(1..)?))
    }
}

/// A call without its arguments.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestHead<'r> {
    v: u8,
    connector: Cow<'r, str>,
    op: Cow<'r, str>,
    /// The key that its caller gave.
    key: Option<Cow<'r, str>>,
    /// The key that its attempts carry.
    carries: Cow<'r, str>,
    actor: Cow<'r, str>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    agent: bool,
    action: Option<Cow<'r, str>>,
    step: Option<Cow<'r, str>>,
    limits: SealedLimits,
    identities: Cow<'r, BTreeMap<String, String>>,
    scope: Option<SealedScope>,
    /// The profile's name.
    retry: Option<Cow<'r, str>>,
    attempt_timeout: Option<Duration>,
    once: bool,
    allow_unsigned: bool,
    rotate_on_permanent: bool,
    alternates: Vec<SealedFallback>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedLimits {
    fuel: Option<u64>,
    wall_ms: Option<u64>,
    memory: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedScope {
    action: String,
    operations: Vec<String>,
    hosts: Vec<String>,
    limits: SealedLimits,
    identities: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedFallback {
    connector: String,
    op: String,
    overrides: Map<String, Value>,
    scope: Option<SealedScope>,
    identities: BTreeMap<String, String>,
}

impl SealedLimits {
    fn of(limits: &LimitRequest) -> Self {
        Self { fuel: limits.fuel(), wall_ms: limits.wall_time().map(millis), memory: limits.memory() }
    }

    fn restored(&self) -> Option<LimitRequest> {
        let wall = self.wall_ms.map(|ms| format!("{ms}ms"));
        // Sizes are not written in units below KiB, nor read from them.
        let memory = self.memory.map(|bytes| format!("{}KiB", bytes / 1024));
        LimitRequest::parse(self.fuel, wall.as_deref(), memory.as_deref()).ok()
    }
}

impl SealedScope {
    fn of(scope: &Arc<ActionScope>) -> Self {
        Self {
            action: scope.action().to_owned(),
            operations: scope.operations().to_vec(),
            hosts: scope.hosts().iter().map(ToString::to_string).collect(),
            limits: SealedLimits::of(scope.limits()),
            identities: scope.identities().clone(),
        }
    }

    fn restored(self) -> Option<Arc<ActionScope>> {
        let scope = ActionScope::new(&self.action, &self.operations, &self.hosts).ok()?;
        let scope = scope.with_limits(self.limits.restored()?);
        let scope = self
            .identities
            .into_iter()
            .fold(scope, |scope, (service, identity)| scope.with_identity(service, identity));
        Some(Arc::new(scope))
    }
}

fn pinned(connector: &ConnectorRef) -> Cow<'_, str> {
    match connector.hash() {
        Some(hash) => format!("{}#sha256:{hash}", connector.text()).into(),
        None => (&**connector.text()).into(),
    }
}

/// Returns everything that is needed to repeat `call`, whose attempts carry the key `carries`.
pub(super) fn request(call: &Call, actor: &str, carries: &str) -> UnsealedPayload {
    let alternates = call.fallbacks.iter().map(|alternate| SealedFallback {
        connector: pinned(&alternate.connector).into_owned(),
        op: alternate.op.clone(),
        overrides: alternate.overrides.clone(),
        scope: alternate.scope.as_ref().map(SealedScope::of),
        identities: alternate.identities.clone(),
    });
    let (action, step) = call.action_and_step();
    let head = RequestHead {
        v: FORMAT_VERSION,
        connector: pinned(&call.connector),
        op: call.op.as_str().into(),
        key: call.idempotency_key.as_deref().map(Cow::from),
        carries: carries.into(),
        actor: actor.into(),
        agent: call.is_by_agent,
        action: action.map(Cow::from),
        step: step.map(Cow::from),
        limits: SealedLimits::of(&call.limits),
        identities: Cow::Borrowed(&call.identities),
        scope: call.scope.as_ref().map(SealedScope::of),
        retry: call.retry.as_ref().map(|profile| (&**profile.name()).into()),
        attempt_timeout: call.attempt_timeout,
        once: call.non_idempotent,
        allow_unsigned: call.allow_unsigned,
        rotate_on_permanent: call.rotate_on_permanent,
        alternates: alternates.collect(),
    };
    UnsealedPayload::new(&head, |text| match &call.args {
        CallArgs::Value(value) => value.append_to(text),
        CallArgs::Text(args) => text.extend_from_slice(args.as_bytes()),
    })
}

/// Returns the call that was sealed. None if the text is not such a call. A retry profile is restored by its name
/// through `profile`, so the operator's current settings apply.
pub(super) fn call(sealed: &[u8], profile: impl Fn(&str) -> Option<Arc<RetryProfile>>) -> Option<Call> {
    let (head, args): (RequestHead<'_>, _) = UnsealedPayload::split(sealed)?;
    let args = std::str::from_utf8(args).ok()?;
    let mut call = Call::from_text(ConnectorRef::parse(&head.connector).ok()?, head.op, args);
    call.limits = head.limits.restored()?;
    call.attempt_key = Some(head.carries.into());
    call.idempotency_key = head.key.map(Cow::into_owned);
    call.actor = Some(head.actor.into());
    call.is_by_agent = head.agent;
    call.step = head.action.map(|action| (action.into(), head.step.map(Into::into)));
    call.identities = head.identities.into_owned();
    call.scope = match head.scope {
        Some(scope) => Some(scope.restored()?),
        None => None,
    };
    call.retry = head.retry.and_then(|name| profile(&name));
    call.attempt_timeout = head.attempt_timeout;
    call.non_idempotent = head.once;
    call.allow_unsigned = head.allow_unsigned;
    call.rotate_on_permanent = head.rotate_on_permanent;
    for instead in head.alternates {
        let mut alternate = Fallback::new(ConnectorRef::parse(&instead.connector).ok()?, instead.op);
        alternate.overrides = instead.overrides;
        alternate.identities = instead.identities;
        alternate.scope = match instead.scope {
            Some(scope) => Some(scope.restored()?),
            None => None,
        };
        call.fallbacks.push(alternate);
    }
    (head.v == FORMAT_VERSION).then_some(call)
}

/// The outcome of a call without its value.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutcomeHead<'o> {
    v: u8,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    failure: Option<FailureSnapshot<'o>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    error: Option<HostErrorSnapshot<'o>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partial: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    partial_steps: BTreeMap<String, u64>,
}

/// An outcome as it was recorded.
pub(crate) struct RecordedOutcome<A> {
    /// The outcome. A failure has the audit id of the original call.
    pub(crate) outcome: Result<A, Error>,
    /// The number of failed items in the value.
    pub(crate) partial: Option<u64>,
    /// The number of failed items in the values of an action's steps, for steps that have any.
    pub(crate) partial_steps: BTreeMap<String, u64>,
}

/// Returns the text of an outcome. Its payload is the caller's result: the value, or the envelope. `partial` is the
/// number of failed items in the value of a call, `partial_steps` that of each step of an action.
pub(super) fn outcome<A: ResultFormat>(
    outcome: &Result<A, Error>,
    partial: Option<u64>,
    partial_steps: BTreeMap<String, u64>,
) -> UnsealedPayload {
    let (failure, error) = match outcome {
        Ok(_) => (None, None),
        Err(Error::Failure(failure)) => (Some(failure.snapshot()), None),
        Err(Error::Host(error)) => (None, Some(error.snapshot())),
    };
    UnsealedPayload::new(&OutcomeHead { v: FORMAT_VERSION, failure, error, partial, partial_steps }, |text| {
        match outcome {
            Ok(value) => value.append_to(text),
            Err(error) => {
                let _ = serde_json::to_writer(text, error);
            }
        }
    })
}

/// Returns the outcome that was sealed. None if the text is not such an outcome.
pub(super) fn recorded<A: ResultFormat>(sealed: &[u8]) -> Option<RecordedOutcome<A>> {
    let (head, payload): (OutcomeHead<'_>, _) = UnsealedPayload::split(sealed)?;
    let outcome = match (head.failure, head.error) {
        (None, None) => Ok(A::from_json(payload)?),
        (Some(failure), None) => Err(Failure::from_snapshot(failure)?.into()),
        (None, Some(error)) => Err(HostError::from_snapshot(error)?.into()),
        (Some(_), Some(_)) => return None,
    };
    (head.v == FORMAT_VERSION).then_some(RecordedOutcome {
        outcome,
        partial: head.partial,
        partial_steps: head.partial_steps,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use serde_json::json;

    use super::*;
    use cofferdam_core::digest::Digest;
    use cofferdam_core::error::HostErrorKind;

    fn of(text: &str) -> ConnectorRef {
        ConnectorRef::parse(text).unwrap()
    }

    #[test]
    fn a_sealed_call_round_trips() {
        let scope = ActionScope::new("notify@1.0.0", ["post"], ["a.example:8443"]).unwrap();
        let scope = Arc::new(scope.with_identity("slack", "work"));
        let limits = LimitRequest::parse(Some(7), Some("1500ms"), Some("3MiB")).unwrap();
        let pin = Digest::sha256(b"x");
        let overrides = json!({"model": "small", "n": 0.1}).as_object().unwrap().clone();
        let args = "{ \"text\" : \"a\\nb\", \"n\": 1.10 }";
        let call = Call::from_text(of("github://acme/slack@1.2.0").pinned(pin), "post", args)
            .limits(limits)
            .idempotency_key("order-17")
            .by_agent()
            .identity("slack", "home")
            .within(Arc::clone(&scope))
            .step_of("notify", "two")
            .attempt_timeout(Duration::from_micros(1_234_567))
            .retry(RetryProfile::named("patient").unwrap())
            .not_idempotent()
            .rotate_on_permanent()
            .or_else(
                Fallback::new(of("github://acme/mail@0.1.0"), "send")
                    .with_args(overrides)
                    .within(scope)
                    .identity("mail", "b"),
            );
        let whole = request(&call, "cli:ada", "order-17");
        assert_eq!(whole.payload(), args.as_bytes());
        let back = super::call(&whole.text, RetryProfile::named).unwrap();
        assert_eq!(format!("{:?}", request(&back, "cli:ada", "order-17").text), format!("{:?}", whole.text));
        assert_eq!((back.attempt_key.as_deref(), back.actor.as_deref()), (Some("order-17"), Some("cli:ada")));
        assert!(back.is_by_agent && !back.is_approved);
        assert_eq!((back.limits, back.args, back.scope), (call.limits, call.args, call.scope));
        assert_eq!(back.connector.hash(), Some(&pin));
        let value = Call::new(of("github://acme/slack@1.2.0"), "post", json!({"n": 1.1e300, "a": "ü"}));
        let whole = request(&value, "host", "audit-x");
        assert_eq!(whole.payload(), "{\"n\":1.1e+300,\"a\":\"ü\"}".as_bytes());
        assert!(super::call(b"{}\n{}", RetryProfile::named).is_none());
    }

    #[test]
    fn a_sealed_outcome_round_trips_in_the_same_bytes() {
        let text = "{\"n\":1.10,\"b\":[1,2]}";
        let whole = outcome(&Ok::<_, Error>(text.to_owned()), Some(2), BTreeMap::new());
        let back = recorded::<String>(&whole.text).unwrap();
        assert_eq!((&*back.outcome.unwrap(), back.partial), (text, Some(2)));
        let back = recorded::<Value>(&whole.text).unwrap();
        assert_eq!(back.outcome.unwrap(), json!({"n": 1.1, "b": [1, 2]}));
        let error: Result<Value, Error> =
            Err(HostError::new(HostErrorKind::Busy, "No room.").with_hint("Wait.").into());
        let whole = outcome(&error, None, BTreeMap::new());
        let back = recorded::<Value>(&whole.text).unwrap().outcome.unwrap_err();
        assert_eq!(serde_json::to_vec(&back).unwrap(), whole.payload());
        assert!(recorded::<Value>(b"{\"v\":2}\n1").is_none());
    }
}
