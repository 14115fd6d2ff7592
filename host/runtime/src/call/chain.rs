//! The candidates of one logical call: the first one, its fallbacks, and their arguments and order.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::{Failure, FailureCause, sanitize_line};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_model::action::ActionScope;
use cofferdam_model::manifest::Manifest;
use serde_json::{Map, Value};

use super::request::{Call, CallArgs, ConnectorRef, KEY_BYTES};

/// The most fallbacks of a call. Each is loaded and checked before the first candidate is tried.
const ALTERNATES: usize = 16;

/// A fallback for a candidate that failed: the same call, to another connector or with other arguments.
#[derive(Debug, Clone)]
pub struct Fallback {
    pub(super) connector: ConnectorRef,
    pub(super) op: String,
    pub(super) overrides: Map<String, Value>,
    pub(super) scope: Option<Arc<ActionScope>>,
    pub(super) identities: BTreeMap<String, String>,
}

impl Fallback {
    /// Creates a fallback to this operation of this connector, with the call's own arguments.
    #[must_use]
    pub fn new(connector: ConnectorRef, op: impl Into<String>) -> Self {
        Self { connector, op: op.into(), overrides: Map::new(), scope: None, identities: BTreeMap::new() }
    }

    /// Replaces these fields of the call's arguments, each as a whole: a cheaper model, another region. The
    /// resulting arguments must fit the operation's types like any others.
    #[must_use]
    pub fn with_args(mut self, overrides: Map<String, Value>) -> Self {
        self.overrides = overrides;
        self
    }

    /// Sets the action's scope for this connector. It is needed if the call is within an action and this is another
    /// connector than the call's. For the same connector the call's scope applies.
    #[must_use]
    pub fn within(mut self, scope: impl Into<Arc<ActionScope>>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// Uses the credential that is bound as `<kind>/<service>/<identity>`. The default is the identity that the
    /// call chose for the service, if it chose one.
    #[must_use]
    pub fn identity(mut self, service: impl Into<String>, identity: impl Into<String>) -> Self {
        self.identities.insert(service.into(), identity.into());
        self
    }
}

/// One candidate of a call.
#[derive(Debug, Clone)]
pub(super) struct CallCandidate<'c> {
    /// The position in the chain. 0 is the call as it was requested.
    pub(super) index: u32,
    pub(super) connector: &'c ConnectorRef,
    pub(super) op: &'c str,
    pub(super) scope: Option<&'c Arc<ActionScope>>,
    alternate: Option<&'c Fallback>,
}

impl<'c> CallCandidate<'c> {
    /// Returns the call as it was requested.
    pub(super) fn first(call: &'c Call) -> Self {
        Self {
            index: 0,
            connector: &call.connector,
            op: &call.op,
            scope: call.scope.as_ref(),
            alternate: None,
        }
    }

    /// Returns the fallbacks, in order.
    ///
    /// # Errors
    /// There are too many, or one of them would leave the call's action.
    pub(super) fn alternates(call: &'c Call) -> Result<Vec<Self>, HostError> {
        if call.alternates.len() > ALTERNATES {
            let message = format!("The call names {} alternates.", call.alternates.len());
            let hint = format!("Name {ALTERNATES} or fewer.");
            return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint));
        }
        let mut candidates: Vec<Self> = Vec::with_capacity(call.alternates.len());
        for (index, alternate) in (1..).zip(&call.alternates) {
            // An action declares the permitted use of each connector separately.
            let own = alternate.connector.text() == call.connector.text();
            let inherited = call.scope.as_ref().filter(|_| own);
            let candidate = Self {
                index,
                connector: &alternate.connector,
                op: &alternate.op,
                scope: alternate.scope.as_ref().or(inherited),
                alternate: Some(alternate),
            };
            if candidate.scope.is_none() && call.scope.is_some() {
                let why =
                    "the call is within an action, and of this connector it does not say what that declares";
                let hint = "Say it: `Alternate::within` takes the action's scope.";
                return Err(candidate.refuses(HostErrorKind::Validation, why).with_hint(hint));
            }
            candidates.push(candidate);
        }
        Ok(candidates)
    }

    /// Returns the fields of the call's arguments that are replaced, with their values.
    pub(super) fn overrides(&self) -> Option<&'c Map<String, Value>> {
        self.alternate.map(|alternate| &alternate.overrides).filter(|fields| !fields.is_empty())
    }

    /// Returns its arguments. A fallback's arguments are built on every call of this method: a chain keeps no
    /// copies of arguments that may never be sent.
    ///
    /// # Errors
    /// The call's arguments are not an object, so no field of them can be replaced.
    pub(super) fn args(&self, call: &'c Call) -> Result<Cow<'c, CallArgs>, HostError> {
        match self.overrides() {
            None => Ok(Cow::Borrowed(&call.args)),
            Some(overrides) => overridden(&call.args, overrides).map(Cow::Owned),
        }
    }

    /// Returns the identities that were chosen for it, by service. A fallback takes those of the call that it can
    /// use.
    pub(super) fn identities(
        &self,
        call: &'c Call,
        manifest: &Manifest,
    ) -> Cow<'c, BTreeMap<String, String>> {
        let Some(alternate) = self.alternate else { return Cow::Borrowed(&call.identities) };
        let uses = |service: &str| manifest.credentials().iter().any(|grant| grant.service() == service);
        let mut chosen = call.identities.clone();
        chosen.retain(|service, _| uses(service));
        chosen.extend(alternate.identities.clone());
        Cow::Owned(chosen)
    }

    /// Returns the key that its attempts carry, derived from the call's key. A service must never see one key with
    /// two requests, so each candidate has its own. The first candidate has the call's key.
    pub(super) fn idempotency_key(&self, of_call: &Arc<str>) -> Arc<str> {
        if self.index == 0 {
            return Arc::clone(of_call);
        }
        let suffix = format!("~{}", self.index);
        match of_call.len() + suffix.len() <= KEY_BYTES {
            true => format!("{of_call}{suffix}").into(),
            // A caller's key that has the form of such a digest must not collide with it, hence two separators.
            false => format!("{}~{suffix}", Digest::sha256(of_call.as_bytes())).into(),
        }
    }

    /// Returns the error for a call that cannot be a candidate, for the reason `why`.
    pub(super) fn refuses(&self, kind: HostErrorKind, why: &str) -> HostError {
        let op = sanitize_line(self.op, 100);
        let message = match self.index {
            0 => format!("The call names alternates, and cannot have any: {why}."),
            n => format!("Alternate {n} of the call, `{op}` of {}, cannot be one: {why}.", self.connector),
        };
        HostError::new(kind, message).detail("candidate", self.index)
    }
}

/// Returns the call's arguments with these fields replaced.
fn overridden(args: &CallArgs, overrides: &Map<String, Value>) -> Result<CallArgs, HostError> {
    let Some(given) = object(args) else {
        let message = "The arguments are no JSON object, so that alternates cannot replace fields of them.";
        let hint = "Give an object with one field per parameter.";
        return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint));
    };
    let mut object = match given {
        Cow::Owned(object) => object,
        Cow::Borrowed(object) => {
            let kept = object.iter().filter(|(name, _)| !overrides.contains_key(*name));
            kept.map(|(name, value)| (name.clone(), value.clone())).collect()
        }
    };
    object.extend(overrides.clone());
    Ok(CallArgs::Value(Value::Object(object)))
}

/// Returns the fields of these arguments if they are an object.
pub(super) fn object(args: &CallArgs) -> Option<Cow<'_, Map<String, Value>>> {
    match args {
        CallArgs::Value(Value::Object(object)) => Some(Cow::Borrowed(object)),
        CallArgs::Value(_) => None,
        CallArgs::Text(text) => serde_json::from_str(text).ok().map(Cow::Owned),
    }
}

/// True if another candidate may help after this failure. A transient failure may not occur elsewhere, and a
/// resource that is not found under one name may exist under another. A fallback would only hide a call that was
/// refused, denied, cut off or not understood. An open circuit counts as its cause.
pub(super) fn helps(failure: &Failure, rotate_on_permanent: bool) -> bool {
    let cause = match failure.cause() {
        FailureCause::CircuitOpen => failure.circuit_cause().unwrap_or(FailureCause::CircuitOpen),
        cause => cause,
    };
    match cause {
        FailureCause::Auth | FailureCause::PaymentRequired => rotate_on_permanent,
        FailureCause::NotFound | FailureCause::CircuitOpen => true,
        // The time is the call's own. A call that used all of it may do so with every candidate.
        FailureCause::WallTime => false,
        cause => cause.is_retriable(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use serde_json::json;

    use super::*;
    use cofferdam_core::failure::{AuditId, CircuitOpen, FailureContext, LimitHit, LimitKind, UpstreamFault};

    fn candidates(call: &Call) -> Vec<CallCandidate<'_>> {
        let mut all = vec![CallCandidate::first(call)];
        all.extend(CallCandidate::alternates(call).unwrap());
        all
    }

    fn llm(version: &str) -> ConnectorRef {
        ConnectorRef::parse(&format!("github://acme/llm@{version}")).unwrap()
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    /// Returns a failure for an open circuit with this cause, which a wait heals or does not heal.
    fn circuit(cause: FailureCause, healing: bool) -> Failure {
        let open = CircuitOpen {
            connector: "github://acme/llm".into(),
            bindings: Vec::new(),
            host: "a.example:443".into(),
            state: "open",
            opened_at: jiff::Timestamp::UNIX_EPOCH,
            retry_after_ms: healing.then_some(60_000),
            cause,
            status: None,
            cause_audit_id: "audit-x".into(),
        };
        Failure::circuit_open(&FailureContext::new(AuditId::mint()), &open, false)
    }

    fn answered(status: u16, observed: bool) -> Failure {
        let fault = UpstreamFault {
            status,
            upstream_code: None,
            host: None,
            retry_after_ms: None,
            bindings: Vec::new(),
            observed,
        };
        Failure::external_api_error(&FailureContext::new(AuditId::mint()), fault)
    }

    #[test]
    fn what_may_be_over_elsewhere_moves_on_and_what_must_be_seen_does_not() {
        for status in [404, 408, 425, 429, 500, 502, 503, 504, 529] {
            assert!(helps(&answered(status, true), false), "{status}");
            assert!(!helps(&answered(status, false), true), "a {status} that only the connector saw");
        }
        for status in [200, 302, 400, 403, 405, 409, 413, 422, 451] {
            assert!(!helps(&answered(status, true), true), "{status}");
        }
        for status in [401, 402] {
            assert_eq!([false, true].map(|rotate| helps(&answered(status, true), rotate)), [false, true]);
        }
        for cause in [
            FailureCause::Network,
            FailureCause::RateLimited,
            FailureCause::Timeout,
            FailureCause::Unavailable,
        ] {
            assert!(helps(&circuit(cause, true), false), "{cause:?}");
        }
        assert!(helps(&circuit(FailureCause::NotFound, false), false));
        for cause in [FailureCause::Auth, FailureCause::PaymentRequired] {
            assert_eq!([false, true].map(|rotate| helps(&circuit(cause, false), rotate)), [false, true]);
        }
        let context = FailureContext::new(AuditId::mint());
        for limit in [LimitKind::WallTime, LimitKind::Fuel, LimitKind::Rate] {
            let hit = LimitHit::at_least_one_over(limit, 1);
            assert!(!helps(&Failure::resource_limit_exceeded(&context, hit), true), "{limit:?}");
        }
    }

    #[test]
    fn fields_are_replaced_whole_in_values_and_in_text() {
        let args = json!({"model": "large", "options": {"a": 1, "b": 2}, "prompt": "p"});
        let small = Fallback::new(llm("1.0.0"), "ask")
            .with_args(object(json!({"model": "small", "options": {"a": 3}, "more": null})));
        let expected =
            CallArgs::Value(json!({"model": "small", "options": {"a": 3}, "prompt": "p", "more": null}));
        let value = Call::new(llm("1.0.0"), "ask", args.clone()).or_else(small.clone());
        let text = Call::from_text(llm("1.0.0"), "ask", args.to_string()).or_else(small.clone());
        for call in [value, text] {
            assert_eq!(*candidates(&call)[1].args(&call).unwrap(), expected);
        }
        for call in [
            Call::new(llm("1.0.0"), "ask", json!([1])).or_else(small.clone()),
            Call::from_text(llm("1.0.0"), "ask", "[1]").or_else(small.clone()),
            Call::from_text(llm("1.0.0"), "ask", "no JSON").or_else(small),
        ] {
            let error = candidates(&call)[1].args(&call).unwrap_err();
            assert!(error.message().contains("no JSON object"), "{error}");
        }
    }

    #[test]
    fn without_other_arguments_they_stay_as_they_were_given() {
        let call =
            Call::from_text(llm("1.0.0"), "ask", "{\"a\": 1}").or_else(Fallback::new(llm("2.0.0"), "ask"));
        assert_eq!(*candidates(&call)[1].args(&call).unwrap(), CallArgs::Text("{\"a\": 1}".into()));
    }

    #[test]
    fn there_are_not_too_many() {
        let many = (0..=ALTERNATES).fold(Call::new(llm("1.0.0"), "ask", json!({})), |call, n| {
            call.or_else(Fallback::new(llm(&format!("2.0.{n}")), "ask"))
        });
        assert!(CallCandidate::alternates(&many).unwrap_err().message().contains("17 alternates"));
    }

    #[test]
    fn nobody_leaves_the_action_by_being_asked_instead() {
        let scope = |op: &str| Arc::new(ActionScope::new("ask@1.0.0", [op], ["a.example:443"]).unwrap());
        let small = Fallback::new(llm("1.0.0"), "ask").with_args(object(json!({"model": "small"})));
        let call = Call::new(llm("1.0.0"), "ask", json!({})).within(scope("ask"));
        let same = call.clone().or_else(small);
        assert_eq!(candidates(&same)[1].scope, Some(&scope("ask")), "one connector, one scope");
        let outside = call.clone().or_else(Fallback::new(llm("2.0.0"), "ask"));
        let error = CallCandidate::alternates(&outside).unwrap_err();
        assert!(error.message().contains("within an action"), "{error}");
        let inside = call.or_else(Fallback::new(llm("2.0.0"), "ask").within(scope("other")));
        assert_eq!(candidates(&inside)[1].scope, Some(&scope("other")));
    }

    #[test]
    fn each_candidate_has_a_key_of_its_own_that_is_acceptable() {
        let call = Call::new(llm("1.0.0"), "ask", json!({}))
            .or_else(Fallback::new(llm("2.0.0"), "ask"))
            .or_else(Fallback::new(llm("3.0.0"), "ask"));
        let all = candidates(&call);
        let keys =
            |of_call: &str| all.iter().map(|it| it.idempotency_key(&of_call.into())).collect::<Vec<_>>();
        assert_eq!(
            keys("order-17").iter().map(|key| &**key).collect::<Vec<_>>(),
            ["order-17", "order-17~1", "order-17~2"]
        );
        for long in ["x".repeat(198), "x".repeat(199), "x".repeat(200)] {
            let keys = keys(&long);
            let acceptable = |key: &str| key.len() <= KEY_BYTES && key.bytes().all(|b| b.is_ascii_graphic());
            assert!(keys.iter().all(|key| acceptable(key)), "{keys:?}");
            assert!(keys[0] != keys[1] && keys[1] != keys[2]);
        }
        let long = "x".repeat(200);
        let digest = Digest::sha256(long.as_bytes()).to_string();
        assert_ne!(keys(&long)[1], keys(&digest)[1]);
        assert_ne!(keys(&"x".repeat(199))[1], keys(&"x".repeat(200))[1]);
    }
}
