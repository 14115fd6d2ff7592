//! The schema of the changes that operators make, as the audit log stores them: in entries of no call.
//!
//! A change serializes straight to canonical JSON (RFC 8785): fields are declared in the order of their names, and have
//! no fractions. Facts that do not apply are left out. No fact is a secret, or derived from one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::failure::sanitize_line;

type Text<'e> = Cow<'e, str>;

/// The name of an operator's change, which is the `type` of its entry in the audit log.
pub const OPERATOR_EVENT: &str = "operator";

/// The longest text, in characters.
const TEXT_CHARS: usize = 500;

/// The most items of a list.
const LIST_ITEMS: usize = 200;

/// Declares the actions with the name of each.
macro_rules! operator_actions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The kind of a change that an operator makes.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[non_exhaustive]
        pub enum OperatorAction {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
            /// An action that this version does not know.
            #[default]
            #[cfg_attr(test, schemars(skip))]
            #[serde(other, rename = "unknown")]
            Unknown,
        }

        impl OperatorAction {
            /// Every known action.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the stable name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Unknown => "unknown",
                }
            }
        }
    };
}

operator_actions! {
    /// A package is installed, or the signature of an installed one is replaced.
    Install = "install",
    /// An installed package is removed.
    Remove = "remove",
    /// The access that a package asks for is accepted.
    Consent = "consent",
    /// Another installed version becomes the active one of its name.
    Activate = "activate",
    /// A key is trusted, or trusted for more.
    Trust = "trust",
    /// A key is removed from the keyring.
    Distrust = "distrust",
    /// A key is revoked.
    Revoke = "revoke",
    /// A key is succeeded by another, which is trusted for the same.
    Rotate = "rotate",
    /// The minimum version of a connector is set, changed or removed.
    Floor = "floor",
    /// The number of keys that must sign a connector is set, changed or removed.
    Threshold = "threshold",
    /// The key set of a publisher is imported.
    Import = "import",
    /// A secret is bound to a name.
    Bind = "bind",
    /// The secret of a binding is replaced.
    Rebind = "rebind",
    /// A binding is removed.
    Unbind = "unbind",
    /// A binding may be used by another connector, or sent to another host.
    Allow = "allow",
    /// A connector or a host is removed from a binding.
    Disallow = "disallow",
    /// Findings of a verification, or a loss, are accepted.
    Accept = "accept",
    /// The oldest calls are removed from the audit log.
    Prune = "prune",
    /// The clock is accepted, after a leap of more than a day.
    Clock = "clock",
    /// A call that waits for a person is approved.
    Approve = "approve",
    /// A call that waits for a person is denied, or its unused approval is withdrawn.
    Deny = "deny",
}

/// A change that an operator makes. It is recorded before it takes effect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct OperatorEvent<'e> {
    /// The kind of the change.
    pub action: OperatorAction,
    /// The state of the subject after the change; none if it is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<OperatorState<'e>>,
    /// The state of the subject before the change; none if it did not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<OperatorState<'e>>,
    /// True if the change, which an earlier entry records, failed; left out otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// The connector as `name@version` or `name`, the scope, the key's id, the name of the binding, the id of the
    /// approval, or `audit` for the log.
    pub subject: Text<'e>,
    /// The user of the operating system, or the name that the embedding program gave.
    pub user: Text<'e>,
}

/// The state of the subject of a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct OperatorState<'e> {
    /// The number of calls that are removed from the audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// The time at which the secret of a binding was last set, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<Text<'e>>,
    /// The operator's note about a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<Text<'e>>,
    /// The connectors that may use a binding.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connectors: Vec<Text<'e>>,
    /// The parts of a binding that identify an account or its issuer, by name; of a `consent`, the SHA-256 of all
    /// `grants`; of `approve` and `deny`, the call.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<Text<'e>, Text<'e>>,
    /// The number of entries that are removed from the audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// The number of findings that are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub findings: Option<u64>,
    /// The access that a package asks for, as lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Text<'e>>,
    /// The SHA-256 of a package or of a key set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<Text<'e>>,
    /// The hosts that a binding may be sent to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Text<'e>>,
    /// The hashes of the packages that stay valid after the end of a key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Text<'e>>,
    /// The last moment at which a key is trusted, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Text<'e>>,
    /// The number of items that are left out, since the lists are too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u64>,
    /// The public key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<Text<'e>>,
    /// The reason for the end of a key, for a `consent` or for the answer to an approval; before the acceptance of
    /// findings, the loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text<'e>>,
    /// The connectors that a key is trusted for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<Text<'e>>,
    /// The number of keys that must sign a connector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signatures: Option<u64>,
    /// The id of the key that signed a package; of the first of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<Text<'e>>,
    /// The ids of the keys that signed a package, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signers: Vec<Text<'e>>,
    /// The date of a revocation, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Text<'e>>,
    /// The file or URL that a key set came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Text<'e>>,
    /// The status of a key (`trusted`, `expired`, `revoked`), of a binding (`active`, `refused`), of findings (`open`,
    /// `accepted`) or of an approval (`waiting`, `approved`, `denied`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Text<'e>>,
    /// The id of the key that a key succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successor_of: Option<Text<'e>>,
    /// The time that the audit log goes by, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Text<'e>>,
    /// True if a package is unsigned, which the operator allowed; left out otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unsigned: bool,
    /// The time before which calls are removed from the audit log, as RFC 3339; before that, the time of the
    /// oldest of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Text<'e>>,
    /// The version of a connector, or its minimum version; before an install, the highest version so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Text<'e>>,
}

impl OperatorEvent<'_> {
    /// Returns the event with texts of one line and lists of a limited length.
    #[must_use]
    pub fn bounded(&self) -> OperatorEvent<'static> {
        OperatorEvent {
            action: self.action,
            after: self.after.as_ref().map(OperatorState::bounded),
            before: self.before.as_ref().map(OperatorState::bounded),
            failed: self.failed,
            subject: bounded(&self.subject),
            user: bounded(&self.user),
        }
    }
}

impl OperatorState<'_> {
    fn bounded(&self) -> OperatorState<'static> {
        let mut left_out = 0;
        let bound = |(name, fact)| (name, bounded_fact(fact, &mut left_out));
        let facts: Map<String, Value> = self.facts().into_iter().map(bound).collect();
        // They were written from a state, so that they are the facts of one.
        let state: OperatorState<'_> = serde_json::from_value(facts.into()).unwrap_or_default();
        let omitted = Some(left_out).filter(|count| *count > 0).or(state.omitted);
        OperatorState { omitted, ..state }
    }

    /// Returns the facts as JSON.
    #[must_use]
    pub fn facts(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(facts)) => facts,
            _ => Map::new(),
        }
    }
}

fn bounded(text: &str) -> Text<'static> {
    sanitize_line(text, TEXT_CHARS).into()
}

/// Returns a fact with texts of one line and lists of a limited length. Adds the number of items that are left out.
fn bounded_fact(fact: Value, left_out: &mut u64) -> Value {
    match fact {
        Value::String(text) => bounded(&text).into(),
        Value::Array(items) => {
            *left_out = left_out.saturating_add(items.len().saturating_sub(LIST_ITEMS) as u64);
            items.into_iter().take(LIST_ITEMS).map(|item| bounded_fact(item, left_out)).collect()
        }
        Value::Object(details) => {
            let details = details.into_iter().take(LIST_ITEMS);
            details.map(|(name, text)| (bounded(&name), bounded_fact(text, left_out))).collect()
        }
        fact => fact,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use serde_json::json;

    use super::*;

    #[test]
    fn every_action_has_its_name() {
        for action in OperatorAction::ALL {
            assert_eq!(serde_json::to_value(action).unwrap(), action.name());
            assert_eq!(serde_json::from_value::<OperatorAction>(action.name().into()).unwrap(), *action);
        }
    }

    #[test]
    fn facts_that_do_not_apply_are_left_out() {
        let event = OperatorEvent {
            action: OperatorAction::Floor,
            after: Some(OperatorState { version: Some("1.4.2".into()), ..OperatorState::default() }),
            subject: "github://acme/slack".into(),
            user: "uid 0 (root)".into(),
            ..OperatorEvent::default()
        };
        let expected = "{\"action\":\"floor\",\"after\":{\"version\":\"1.4.2\"},\"subject\":\"github://acme/slack\",\
                        \"user\":\"uid 0 (root)\"}";
        assert_eq!(serde_json::to_string(&event).unwrap(), expected);
    }

    #[test]
    fn changes_of_newer_versions_can_be_read() {
        let newer =
            json!({"action": "teleport", "after": {"place": 7}, "subject": "s", "user": "u", "why": null});
        let event: OperatorEvent<'_> = serde_json::from_value(newer).unwrap();
        assert_eq!((event.action, &*event.subject), (OperatorAction::Unknown, "s"));
        assert_eq!(event.after, Some(OperatorState::default()));
    }

    #[test]
    fn texts_and_lists_are_bounded() {
        let hosts = (0..LIST_ITEMS + 3).map(|n| format!("h{n}.example:443").into()).collect();
        let comment = Some(format!("two\nlines {}", "x".repeat(2 * TEXT_CHARS)).into());
        let state = OperatorState { comment, hosts, ..OperatorState::default() };
        let event = OperatorEvent { after: Some(state), ..OperatorEvent::default() }.bounded();
        let state = event.after.unwrap();
        assert_eq!((state.hosts.len(), state.omitted), (LIST_ITEMS, Some(3)));
        let comment = state.comment.unwrap();
        assert!(!comment.contains('\n') && comment.chars().count() <= TEXT_CHARS + 1, "{comment}");
    }
}
