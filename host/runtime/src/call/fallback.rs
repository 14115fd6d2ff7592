//! The candidates of a call: the call itself and its fallbacks, the check that none repeats another, and the trace of
//! those that failed.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_audit::KEY_BYTES;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{Failure, FailureCause, sanitize_line};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_model::action::ActionScope;
use cofferdam_model::manifest::Manifest;
use serde_json::{Map, Value};

use super::call_progress::CallProgress;
use super::request::{Call, CallArgs, ConnectorRef};

/// The most fallbacks of a call. Each is loaded and checked before the first candidate is tried.
const MAX_FALLBACKS: usize = 16;

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
    fallback: Option<&'c Fallback>,
}

impl<'c> CallCandidate<'c> {
    /// Returns the call as it was requested.
    pub(super) fn first(call: &'c Call) -> Self {
        Self {
            index: 0,
            connector: &call.connector,
            op: &call.op,
            scope: call.scope.as_ref(),
            fallback: None,
        }
    }

    /// Returns the fallbacks, in order.
    ///
    /// # Errors
    /// There are too many, or one of them would leave the call's action.
    pub(super) fn fallbacks(call: &'c Call) -> Result<Vec<Self>, HostError> {
        if call.fallbacks.len() > MAX_FALLBACKS {
            let message = format!("The call names {} fallbacks.", call.fallbacks.len());
            let hint = format!("Name {MAX_FALLBACKS} or fewer.");
            return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint));
        }
        let mut candidates: Vec<Self> = Vec::with_capacity(call.fallbacks.len());
        for (index, fallback) in (1..).zip(&call.fallbacks) {
            // An action declares the permitted use of each connector separately.
            let own = fallback.connector.text() == call.connector.text();
            let inherited = call.scope.as_ref().filter(|_| own);
            let candidate = Self {
                index,
                connector: &fallback.connector,
                op: &fallback.op,
                scope: fallback.scope.as_ref().or(inherited),
                fallback: Some(fallback),
            };
            if candidate.scope.is_none() && call.scope.is_some() {
                let why =
                    "the call is within an action, and of this connector it does not say what that declares";
                let hint = "Say it: `Fallback::within` takes the action's scope.";
                return Err(candidate.refuses(HostErrorKind::Validation, why).with_hint(hint));
            }
            candidates.push(candidate);
        }
        Ok(candidates)
    }

    /// Returns the fields of the call's arguments that are replaced, with their values.
    pub(super) fn overrides(&self) -> Option<&'c Map<String, Value>> {
        self.fallback.map(|fallback| &fallback.overrides).filter(|fields| !fields.is_empty())
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
        let Some(fallback) = self.fallback else { return Cow::Borrowed(&call.identities) };
        let uses = |service: &str| manifest.credentials().iter().any(|grant| grant.service() == service);
        let mut chosen = call.identities.clone();
        chosen.retain(|service, _| uses(service));
        chosen.extend(fallback.identities.clone());
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
            0 => format!("The call names fallbacks, and cannot have any: {why}."),
            n => format!("Fallback {n} of the call, `{op}` of {}, cannot be one: {why}.", self.connector),
        };
        HostError::new(kind, message).detail("candidate", self.index)
    }
}

/// Returns the call's arguments with these fields replaced.
fn overridden(args: &CallArgs, overrides: &Map<String, Value>) -> Result<CallArgs, HostError> {
    let Some(given) = object(args) else {
        let message = "The arguments are no JSON object, so that fallbacks cannot replace fields of them.";
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
pub(super) fn allows_fallback(failure: &Failure, rotate_on_permanent: bool) -> bool {
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

/// A candidate, and the identity that it uses for each service.
pub(super) struct ResolvedCandidate<'a, 'c> {
    pub(super) candidate: &'a CallCandidate<'c>,
    pub(super) identities: BTreeMap<String, String>,
}

/// Checks that no candidate repeats an earlier one. It would do so under another key, and so repeat the effect. The
/// arguments are known to be within the size limit of a call.
///
/// # Errors
/// One does; the error names it.
pub(super) fn reject_duplicates(call: &Call, asked: &[ResolvedCandidate<'_, '_>]) -> Result<(), HostError> {
    let given = LazyArgs { args: &call.args, object: OnceCell::new() };
    for (n, later) in asked.iter().enumerate() {
        if asked.iter().take(n).any(|before| before.is_duplicate_of(later, &given)) {
            let why = "it asks the same as a candidate before it";
            let hint = "Leave it out, or give it other arguments: to ask again is what retries are for.";
            return Err(later.candidate.refuses(HostErrorKind::Validation, why).with_hint(hint));
        }
    }
    Ok(())
}

/// The call's arguments, parsed only when they are needed: text may be large as values.
struct LazyArgs<'c> {
    args: &'c CallArgs,
    object: OnceCell<Option<Cow<'c, Map<String, Value>>>>,
}

impl LazyArgs<'_> {
    fn field(&self, name: &str) -> Option<&Value> {
        self.object.get_or_init(|| object(self.args)).as_ref()?.get(name)
    }
}

impl ResolvedCandidate<'_, '_> {
    fn is_duplicate_of(&self, other: &Self, given: &LazyArgs<'_>) -> bool {
        let (one, two) = (self.candidate, other.candidate);
        // A pin decides whether a package runs, but does not make it another connector.
        (one.connector.text(), one.op) == (two.connector.text(), two.op)
            && self.identities == other.identities
            && same_arguments(one.overrides(), two.overrides(), given)
    }
}

/// True if both have the same effective arguments. Nothing is copied: only the replaced fields can differ.
fn same_arguments(
    one: Option<&Map<String, Value>>,
    two: Option<&Map<String, Value>>,
    given: &LazyArgs<'_>,
) -> bool {
    let value = |of: Option<&'_ Map<String, Value>>, name: &str, other: &Value| {
        same(of.and_then(|fields| fields.get(name)).or_else(|| given.field(name)), Some(other))
    };
    let agrees = |with: Option<&'_ Map<String, Value>>, fields: Option<&'_ Map<String, Value>>| {
        fields.into_iter().flatten().all(|(name, its)| value(with, name, its))
    };
    one == two || (agrees(two, one) && agrees(one, two))
}

/// True if these are the same value to an operation: a missing field is `null`, and 1 is 1.0.
fn same(one: Option<&Value>, two: Option<&Value>) -> bool {
    match (one.unwrap_or(&Value::Null), two.unwrap_or(&Value::Null)) {
        (Value::Object(one), Value::Object(two)) => {
            let mut names = one.keys().chain(two.keys().filter(|name| !one.contains_key(*name)));
            names.all(|name| same(one.get(name), two.get(name)))
        }
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| same(Some(one), Some(two)))
        }
        (Value::Number(one), Value::Number(two)) if one.is_f64() != two.is_f64() => {
            one.as_f64() == two.as_f64()
        }
        (one, two) => one == two,
    }
}

/// The candidates that were tried so far, in order. Empty for a call without fallbacks.
#[derive(Default)]
pub(super) struct FallbackTrace {
    entries: Vec<Map<String, Value>>,
    /// The failure of the last of them.
    last: Option<Failure>,
}

impl FallbackTrace {
    /// Adds a candidate that failed and is followed by another one.
    pub(super) fn failed(
        &mut self,
        candidate: &CallCandidate<'_>,
        failure: Failure,
        progress: &CallProgress,
    ) {
        self.entries.push(entry(candidate, failure_summary(&failure), progress));
        self.last = Some(failure);
    }

    /// Adds the last candidate that failed. Returns its failure, with the outcomes of the other candidates if there
    /// are any.
    pub(super) fn ended(
        mut self,
        candidate: &CallCandidate<'_>,
        failure: Failure,
        progress: &CallProgress,
    ) -> Failure {
        if self.entries.is_empty() {
            return failure;
        }
        self.entries.push(entry(candidate, failure_summary(&failure), progress));
        failure.with_chain(self.entries)
    }

    /// Adds a candidate that could not be tried for a reason that is not an outage: it was removed, a key was
    /// revoked, nothing is bound. Keeps the previous candidate's failure as the outcome. Without one, returns
    /// `error`.
    pub(super) fn finish_with_error(
        mut self,
        candidate: &CallCandidate<'_>,
        error: Error,
        progress: &CallProgress,
    ) -> Error {
        let Some(last) = self.last else { return error };
        let note = format!("fallback {} was not taken up: {error}", candidate.index);
        self.entries.push(entry(candidate, error_summary(&error), progress));
        last.with_chain(self.entries).with_operator_note(note).into()
    }
}

fn entry(
    candidate: &CallCandidate<'_>,
    said: Map<String, Value>,
    progress: &CallProgress,
) -> Map<String, Value> {
    let (attempts, request_sent) = progress.attempts_of(candidate.index);
    let mut entry = Map::new();
    entry.insert("connector".into(), (**candidate.connector.text()).into());
    entry.insert("op".into(), sanitize_line(candidate.op, 100).into());
    entry.extend(said);
    entry.insert("attempts".into(), attempts.into());
    entry.insert("request_sent".into(), request_sent.into());
    entry
}

/// Returns a caller's view of an error within another one: class (of a failure), code and message. The host's own
/// error may name paths of its machine, so it is replaced by the meaning of its code.
pub(super) fn error_summary(error: &Error) -> Map<String, Value> {
    match error {
        Error::Failure(failure) => failure_summary(failure),
        Error::Host(error) => {
            let kind = error.kind();
            let message = if kind.is_about_the_request() { error.message() } else { kind.meaning() };
            Map::from_iter([("code".into(), kind.code().into()), ("message".into(), message.into())])
        }
    }
}

fn failure_summary(failure: &Failure) -> Map<String, Value> {
    Map::from_iter([
        ("class".into(), failure.class().name().into()),
        ("code".into(), failure.code().into()),
        ("message".into(), failure.message().into()),
    ])
}

#[cfg(test)]
mod tests {

    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use serde_json::json;

    use super::*;
    use cofferdam_core::failure::{AuditId, CircuitOpen, FailureContext, LimitHit, LimitKind, UpstreamFault};

    fn candidates(call: &Call) -> Vec<CallCandidate<'_>> {
        let mut all = vec![CallCandidate::first(call)];
        all.extend(CallCandidate::fallbacks(call).unwrap());
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
    fn only_failures_that_may_differ_elsewhere_move_on() {
        for status in [404, 408, 425, 429, 500, 502, 503, 504, 529] {
            assert!(allows_fallback(&answered(status, true), false), "{status}");
            assert!(
                !allows_fallback(&answered(status, false), true),
                "a {status} that only the connector saw"
            );
        }
        for status in [200, 302, 400, 403, 405, 409, 413, 422, 451] {
            assert!(!allows_fallback(&answered(status, true), true), "{status}");
        }
        for status in [401, 402] {
            assert_eq!(
                [false, true].map(|rotate| allows_fallback(&answered(status, true), rotate)),
                [false, true]
            );
        }
        for cause in [
            FailureCause::Network,
            FailureCause::RateLimited,
            FailureCause::Timeout,
            FailureCause::Unavailable,
        ] {
            assert!(allows_fallback(&circuit(cause, true), false), "{cause:?}");
        }
        assert!(allows_fallback(&circuit(FailureCause::NotFound, false), false));
        for cause in [FailureCause::Auth, FailureCause::PaymentRequired] {
            assert_eq!(
                [false, true].map(|rotate| allows_fallback(&circuit(cause, false), rotate)),
                [false, true]
            );
        }
        let context = FailureContext::new(AuditId::mint());
        for limit in [LimitKind::WallTime, LimitKind::Fuel, LimitKind::Rate] {
            let hit = LimitHit::at_least_one_over(limit, 1);
            assert!(!allows_fallback(&Failure::resource_limit_exceeded(&context, hit), true), "{limit:?}");
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
    fn fallbacks_keep_the_original_arguments() {
        let call =
            Call::from_text(llm("1.0.0"), "ask", "{\"a\": 1}").or_else(Fallback::new(llm("2.0.0"), "ask"));
        assert_eq!(*candidates(&call)[1].args(&call).unwrap(), CallArgs::Text("{\"a\": 1}".into()));
    }

    #[test]
    fn the_number_of_candidates_is_bounded() {
        let many = (0..=MAX_FALLBACKS).fold(Call::new(llm("1.0.0"), "ask", json!({})), |call, n| {
            call.or_else(Fallback::new(llm(&format!("2.0.{n}")), "ask"))
        });
        assert!(CallCandidate::fallbacks(&many).unwrap_err().message().contains("17 fallbacks"));
    }

    #[test]
    fn a_fallback_cannot_leave_its_action() {
        let scope = |op: &str| Arc::new(ActionScope::new("ask@1.0.0", [op], ["a.example:443"]).unwrap());
        let small = Fallback::new(llm("1.0.0"), "ask").with_args(object(json!({"model": "small"})));
        let call = Call::new(llm("1.0.0"), "ask", json!({})).within(scope("ask"));
        let same = call.clone().or_else(small);
        assert_eq!(candidates(&same)[1].scope, Some(&scope("ask")), "one connector, one scope");
        let outside = call.clone().or_else(Fallback::new(llm("2.0.0"), "ask"));
        let error = CallCandidate::fallbacks(&outside).unwrap_err();
        assert!(error.message().contains("within an action"), "{error}");
        let inside = call.or_else(Fallback::new(llm("2.0.0"), "ask").within(scope("other")));
        assert_eq!(candidates(&inside)[1].scope, Some(&scope("other")));
    }

    #[test]
    fn each_candidate_has_its_own_valid_key() {
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

    /// True if the first fallback repeats the call, both with these identities.
    fn twice_with(call: &Call, identities: [&[(&str, &str)]; 2]) -> bool {
        let mut all = vec![CallCandidate::first(call)];
        all.extend(CallCandidate::fallbacks(call).unwrap());
        let owned = |of: &[(&str, &str)]| {
            of.iter().map(|(service, it)| ((*service).to_owned(), (*it).to_owned())).collect()
        };
        let asked = all.iter().zip(identities);
        let asked: Vec<_> =
            asked.map(|(candidate, of)| ResolvedCandidate { candidate, identities: owned(of) }).collect();
        reject_duplicates(call, &asked)
            .is_err_and(|error| error.message().contains("Fallback 1 of the call, `ask`"))
    }

    fn twice(call: Call, instead: Fallback) -> bool {
        twice_with(&call.or_else(instead), [&[], &[]])
    }

    fn with(args: &Value) -> Fallback {
        Fallback::new(llm("1.0.0"), "ask").with_args(args.as_object().unwrap().clone())
    }

    #[test]
    fn arguments_are_compared_by_value() {
        let args = json!({"model": "large", "heat": 1, "more": {"a": [1, {"b": 2}]}});
        for (fields, same) in [
            (json!({}), true),
            (args.clone(), true),
            (json!({"model": "large"}), true),
            (json!({"heat": 1.0, "none": null}), true),
            (json!({"more": {"none": null, "a": [1, {"b": 2.0}]}}), true),
            (json!({"model": "small"}), false),
            (json!({"model": "large", "heat": 1.5}), false),
            (json!({"model": "large", "seed": 1}), false),
            (json!({"heat": "1"}), false),
            (json!({"heat": null}), false),
            (json!({"more": {"a": [1]}}), false),
        ] {
            // The text differs from the serialized value.
            let text = r#" {"more": {"a": [1, {"b": 2}]}, "model": "l\u0061rge", "heat": 1} "#;
            for call in
                [Call::new(llm("1.0.0"), "ask", args.clone()), Call::from_text(llm("1.0.0"), "ask", text)]
            {
                assert_eq!(twice(call, with(&fields)), same, "{fields}");
            }
        }
        let large = json!({"n": 9_007_199_254_740_993_u64});
        let call = Call::new(llm("1.0.0"), "ask", large);
        assert!(!twice(call, with(&json!({"n": 9_007_199_254_740_992_u64}))), "integers are not rounded");
    }

    #[test]
    fn fallbacks_are_compared_with_each_other() {
        let call = || Call::from_text(llm("1.0.0"), "ask", r#"{"model": "large", "seed": 1}"#);
        let three = |second: &Value| {
            let call = call().or_else(with(&json!({"model": "small"}))).or_else(with(second));
            let all = CallCandidate::fallbacks(&call).unwrap();
            let asked: Vec<_> = all
                .iter()
                .map(|candidate| ResolvedCandidate { candidate, identities: BTreeMap::new() })
                .collect();
            reject_duplicates(&call, &asked).map_err(|error| error.message().to_owned())
        };
        assert!(three(&json!({"model": "small", "seed": 1})).unwrap_err().contains("Fallback 2"));
        three(&json!({"model": "small", "seed": 2})).unwrap();
    }

    #[test]
    fn a_pin_is_no_difference_and_an_identity_is() {
        let call = || Call::new(llm("1.0.0"), "ask", json!({}));
        assert!(twice(call(), Fallback::new(llm("1.0.0").pinned(Digest::sha256(b"")), "ask")));
        assert!(!twice(call(), Fallback::new(llm("1.0.0"), "tell")));
        let version = ConnectorRef::parse("github://acme/llm@1.0.1").unwrap();
        assert!(!twice(call(), Fallback::new(version, "ask")));
        let call = call().or_else(Fallback::new(llm("1.0.0"), "ask"));
        assert!(twice_with(&call, [&[("llm", "work")], &[("llm", "work")]]));
        assert!(!twice_with(&call, [&[("llm", "work")], &[("llm", "home")]]));
    }
}
