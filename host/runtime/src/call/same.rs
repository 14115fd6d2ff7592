//! Rejects fallbacks that repeat an earlier candidate: same connector, operation, identities and effective
//! arguments.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

use cofferdam_core::error::{HostError, HostErrorKind};
use serde_json::{Map, Value};

use super::chain::{CallCandidate, object};
use super::request::{Call, CallArgs};

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
pub(super) fn none_twice(call: &Call, asked: &[ResolvedCandidate<'_, '_>]) -> Result<(), HostError> {
    let given = LazyArgs { args: &call.args, object: OnceCell::new() };
    for (n, later) in asked.iter().enumerate() {
        if asked.iter().take(n).any(|before| before.asks_the_same(later, &given)) {
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
    fn asks_the_same(&self, other: &Self, given: &LazyArgs<'_>) -> bool {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use serde_json::json;

    use super::super::chain::Fallback;
    use super::super::request::ConnectorRef;
    use super::*;
    use cofferdam_core::digest::Digest;

    fn llm() -> ConnectorRef {
        ConnectorRef::parse("github://acme/llm@1.0.0").unwrap()
    }

    /// True if the first fallback repeats the call, both with these identities.
    fn twice_with(call: &Call, identities: [&[(&str, &str)]; 2]) -> bool {
        let mut all = vec![CallCandidate::first(call)];
        all.extend(CallCandidate::alternates(call).unwrap());
        let owned = |of: &[(&str, &str)]| {
            of.iter().map(|(service, it)| ((*service).to_owned(), (*it).to_owned())).collect()
        };
        let asked = all.iter().zip(identities);
        let asked: Vec<_> =
            asked.map(|(candidate, of)| ResolvedCandidate { candidate, identities: owned(of) }).collect();
        none_twice(call, &asked)
            .is_err_and(|error| error.message().contains("Alternate 1 of the call, `ask`"))
    }

    fn twice(call: Call, instead: Fallback) -> bool {
        twice_with(&call.or_else(instead), [&[], &[]])
    }

    fn with(args: &Value) -> Fallback {
        Fallback::new(llm(), "ask").with_args(args.as_object().unwrap().clone())
    }

    #[test]
    fn arguments_are_compared_by_what_they_say_as_values_and_as_text() {
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
            for call in [Call::new(llm(), "ask", args.clone()), Call::from_text(llm(), "ask", text)] {
                assert_eq!(twice(call, with(&fields)), same, "{fields}");
            }
        }
        let large = json!({"n": 9_007_199_254_740_993_u64});
        let call = Call::new(llm(), "ask", large);
        assert!(!twice(call, with(&json!({"n": 9_007_199_254_740_992_u64}))), "integers are not rounded");
    }

    #[test]
    fn two_alternates_are_compared_with_each_other() {
        let call = || Call::from_text(llm(), "ask", r#"{"model": "large", "seed": 1}"#);
        let three = |second: &Value| {
            let call = call().or_else(with(&json!({"model": "small"}))).or_else(with(second));
            let all = CallCandidate::alternates(&call).unwrap();
            let asked: Vec<_> = all
                .iter()
                .map(|candidate| ResolvedCandidate { candidate, identities: BTreeMap::new() })
                .collect();
            none_twice(&call, &asked).map_err(|error| error.message().to_owned())
        };
        assert!(three(&json!({"model": "small", "seed": 1})).unwrap_err().contains("Alternate 2"));
        three(&json!({"model": "small", "seed": 2})).unwrap();
    }

    #[test]
    fn a_pin_makes_no_other_connector_and_an_account_does() {
        let call = || Call::new(llm(), "ask", json!({}));
        assert!(twice(call(), Fallback::new(llm().pinned(Digest::sha256(b"")), "ask")));
        assert!(!twice(call(), Fallback::new(llm(), "tell")));
        let version = ConnectorRef::parse("github://acme/llm@1.0.1").unwrap();
        assert!(!twice(call(), Fallback::new(version, "ask")));
        let call = call().or_else(Fallback::new(llm(), "ask"));
        assert!(twice_with(&call, [&[("llm", "work")], &[("llm", "work")]]));
        assert!(!twice_with(&call, [&[("llm", "work")], &[("llm", "home")]]));
    }
}
