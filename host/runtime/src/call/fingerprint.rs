//! What an idempotency key stands for: the SHA-256 of all that makes a call the same call.
//!
//! It is who asks, what is asked of whom, with which arguments and identities, and who is asked instead. Versions of
//! connectors are not in it: an update between two tries makes no second effect. Nor is how a call is run: limits,
//! retries, times. Arguments count by what they say to an operation: the order of fields and the spelling of numbers
//! and texts do not matter, and an argument that is missing is `null`. Integers are never rounded: two that differ are two.

use std::collections::BTreeMap;

use cofferdam_core::digest::Digest as FileDigest;
use cofferdam_egress::vault::DEFAULT_IDENTITY;
use cofferdam_model::action::ActionScope;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::chain::object;
use super::request::{Args, Call};

/// The fingerprint of `call`, asked for by `actor`; none where its arguments are no JSON object, which no operation
/// takes.
pub(super) fn of(call: &Call, actor: &str) -> Option<[u8; 32]> {
    let mut hash = Hash(Sha256::new());
    hash.text("cofferdam-call-v1");
    hash.text(actor);
    hash.text(call.connector.name().as_str());
    hash.text(&call.op);
    let (action, step) = call.action_and_step();
    hash.text(action.map(unversioned).unwrap_or_default());
    hash.text(step.unwrap_or_default());
    hash.identities(&call.identities, call.scope.as_deref());
    match &call.args {
        Args::Value(Value::Object(args)) => hash.arguments(args),
        Args::Value(_) => return None,
        args @ Args::Text(_) => hash.arguments(&*object(args)?),
    }
    hash.length(call.alternates.len());
    for alternate in &call.alternates {
        hash.text(alternate.connector.name().as_str());
        // Alternates may differ in nothing but their version.
        hash.text(&alternate.connector.version().to_string());
        hash.text(&alternate.op);
        hash.identities(&alternate.identities, alternate.scope.as_deref());
        // Here `null` replaces something.
        hash.length(alternate.overrides.len());
        sorted(&alternate.overrides, |_| true).for_each(|(name, value)| hash.field(name, value));
    }
    Some(hash.0.finalize().into())
}

/// The fingerprint of an action that is run with these arguments by `actor`. Which file it was is a part of it: what
/// was edited meanwhile may name its steps otherwise, and so do again what was done.
pub(super) fn of_action(
    (name, file): (&str, &FileDigest),
    args: &Map<String, Value>,
    identities: &BTreeMap<String, String>,
    actor: &str,
) -> [u8; 32] {
    let mut hash = Hash(Sha256::new());
    hash.text("cofferdam-action-v1");
    hash.text(actor);
    hash.text(unversioned(name));
    hash.text(&file.to_string());
    hash.identities(identities, None);
    hash.arguments(args);
    hash.0.finalize().into()
}

/// An action's name without its version.
fn unversioned(action: &str) -> &str {
    action.split_once('@').map_or(action, |(name, _)| name)
}

/// Every part is written with its kind or its length before it, so that no two ways to write lead to the same bytes.
struct Hash(Sha256);

impl Hash {
    fn length(&mut self, length: usize) {
        self.0.update((length as u64).to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.update(text);
    }

    /// What is chosen of each service; `default` is what everybody has who chooses nothing.
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
                    // 1.0 is 1; beyond 2^53 a float says nothing about an integer.
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
            // Deeper down `null` may be all that a case is told by: `{"ok": null}` is not `{"err": null}`.
            Value::Object(fields) => self.fields(sorted(fields, |_| true)),
        }
    }
}

/// Below this every whole float is exactly one integer: 2^53.
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
    use crate::call::{Alternate, ConnectorRef};
    use cofferdam_egress::resilience::Profile;

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
            call().retry(Profile::named("none").unwrap()).attempt_timeout(std::time::Duration::from_secs(1)),
        ] {
            assert_eq!(of(&call, "host").unwrap(), one, "{call:?}");
        }
    }

    #[test]
    fn what_differs_in_anything_differs() {
        let base = || text(r#"{"a": "1", "b": [1]}"#);
        let overrides = |value: Value| json!({"a": value}).as_object().unwrap().clone();
        let instead = |version: &str| Alternate::new(at(version), "send");
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
