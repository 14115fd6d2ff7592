//! Computes the fingerprint that an idempotency key stands for: a SHA-256 over everything that identifies a call.
//!
//! It covers the actor, the connector, the operation, the arguments, the identities and the fallbacks. It does not
//! cover versions of connectors, so that an update between two tries causes no second effect, nor the settings for
//! running a call (limits, retries, times). Arguments are compared by their meaning for an operation: the order of
//! fields and the spelling of numbers and texts do not matter, and a missing argument is `null`. Integers are never
//! rounded, so different integers always differ.

use std::collections::BTreeMap;

use cofferdam_core::digest::Digest as FileDigest;
use cofferdam_egress::vault::DEFAULT_IDENTITY;
use cofferdam_model::action::ActionScope;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::chain::object;
use super::request::{Call, CallArgs};

/// Returns the fingerprint of `call` by `actor`. None if its arguments are not a JSON object, which no operation
/// accepts.
pub(super) fn of(call: &Call, actor: &str) -> Option<[u8; 32]> {
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
    hash.length(call.alternates.len());
    for alternate in &call.alternates {
        hash.text(alternate.connector.name().as_str());
        // Fallbacks may differ in their version alone.
        hash.text(&alternate.connector.version().to_string());
        hash.text(&alternate.op);
        hash.identities(&alternate.identities, alternate.scope.as_deref());
        // A `null` here replaces a field, so it counts.
        hash.length(alternate.overrides.len());
        sorted(&alternate.overrides, |_| true).for_each(|(name, value)| hash.field(name, value));
    }
    Some(hash.0.finalize().into())
}

/// Returns the fingerprint of an action that `actor` runs with these arguments. It covers the action's file: an
/// edited file may name its steps differently, and would then repeat steps that are done.
pub(super) fn of_action(
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
    use cofferdam_egress::resilience::RetryProfile;

    fn at(version: &str) -> ConnectorRef {
        ConnectorRef::parse(&format!("github://acme/mail@{version}")).unwrap()
    }

    fn text(args: &str) -> Call {
        Call::from_text(at("1.0.0"), "send", args)
    }

    #[test]
    fn what_says_the_same_is_the_same() {
        let one = of(&text(r#"{"to": "ada", "n": 1, "more": {"a": [1, {"b": 2}]}}"#), "host").unwrap();
        for args in [
            r#"{"n":1.0,"more":{"a":[1,{"b":2}]},"to":"\u0061da"}"#,
            r#"{"none": null, "to": "ada", "n": 1e0, "more": {"a": [1.0, {"b": 2}]}}"#,
        ] {
            assert_eq!(of(&text(args), "host").unwrap(), one, "{args}");
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
            assert_eq!(of(&call, "host").unwrap(), one, "{call:?}");
        }
    }

    #[test]
    fn what_differs_in_anything_differs() {
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
        let mut seen: Vec<_> = calls.iter().map(|call| of(call, "host").unwrap()).collect();
        seen.push(of(&base(), "cli:ada").unwrap());
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
        assert_eq!(of(&text("[1]"), "host"), None);
    }
}
