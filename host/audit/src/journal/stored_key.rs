//! The rules of idempotency keys, the same in every store: what a call gets that uses a key again, how long an outcome
//! stands, and what the end of a call, the value of an action and an operator's decision make of a key.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashSet};

use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::prune_facts::JournalCut;
use crate::command::{KeyClaim, KeyDisposition, KeyScope, KeyState, OpenCall, PruneBlocker};
use crate::error::AuditError;
use crate::evidence::DerivedFinding;
use crate::seal::Sealed;
use crate::verify::FindingKind;

/// The state of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredKeyState {
    /// Its call has no end, as far as this table knows.
    #[default]
    Claimed,
    /// The outcome of its call stands.
    Retained,
    /// It is unknown what was done under it.
    Undetermined,
    /// The operator decided that no call ever runs under it.
    Blocked,
}

impl StoredKeyState {
    /// The number with which a table stores it.
    pub const fn number(self) -> i16 {
        self as i16
    }

    /// Returns the state that is stored with this number; `Undetermined` if none is: no call runs under the key.
    pub fn from_number(number: i16) -> Self {
        let all = [Self::Claimed, Self::Retained, Self::Blocked];
        all.into_iter().find(|state| state.number() == number).unwrap_or(Self::Undetermined)
    }
}

/// A key, and the call that holds it. The key table of a home stores it in the form of postcard: rows of a third of the
/// length of JSON, so that fewer pages change with a key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredKey {
    /// The call.
    pub call: [u8; 16],
    /// The SHA-256 of what is asked for: the actor, the operation or the action, the arguments and the identities.
    pub fingerprint: [u8; 32],
    /// When the call was received, in microseconds since 1970.
    pub at: i64,
    /// The state.
    pub state: StoredKeyState,
    /// The time of the log until which the outcome stands, in microseconds since 1970.
    pub until: Option<i64>,
    /// The writer whose journal has the call.
    pub writer: String,
    /// An entry of that journal: the call's first one is this one or a later one.
    pub since: u64,
    /// True if the call may be repeated.
    pub is_idempotent: bool,
    /// True for an action, whose steps have keys of their own.
    pub is_action: bool,
    /// The action that the call is a step of.
    pub step_of: Option<StepOf>,
    /// True if the call has a value.
    pub has_value: bool,
    /// The sealed outcome, if the journal of the writer keeps it.
    pub outcome: Option<SealedOutcome>,
    /// The interrupted call from which the call took the key. The key returns to it if the call is never opened.
    pub taken_from: Option<InterruptedCall>,
}

/// An interrupted call that held a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptedCall {
    /// The call.
    pub call: [u8; 16],
    /// True if it may be repeated: the package of the call that took the key may say something else.
    pub is_idempotent: bool,
}

/// An action with a step under a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepOf {
    /// Its name, without its version.
    pub action: String,
    /// The SHA-256 of its key.
    pub key: Option<[u8; 32]>,
    /// True once a run of the action that could use the step's outcome has a value.
    pub has_value: bool,
}

impl StepOf {
    /// Creates it from the name and the key of an action; none without both. An action whose name is missing needs the
    /// step as well.
    pub fn new(action: Option<&str>, key: Option<[u8; 32]>) -> Option<Self> {
        let action = action.or_else(|| key.map(|_| ""))?;
        Some(Self { action: action_name(action).to_owned(), key, has_value: false })
    }
}

/// The place of a sealed outcome in the journal of its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedOutcome {
    /// The number of the first entry of the segment.
    pub segment: u64,
    /// The position of the first byte in the file of sealed parts.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u64,
}

/// The facts about the end of a call that decide about its key.
#[derive(Debug, Clone, Copy)]
pub struct KeyEnd {
    /// The call.
    pub call: [u8; 16],
    /// The state of its key from then on.
    pub key: KeyDisposition,
    /// True if the call has a value.
    pub has_value: bool,
}

impl StoredKey {
    /// Creates a key that this call claims, whose first entry in the journal of this writer is `since` or a later one.
    pub(crate) fn claimed(call: [u8; 16], fingerprint: [u8; 32], writer: &str, since: u64) -> Self {
        Self { call, fingerprint, writer: writer.to_owned(), since, ..Self::default() }
    }

    /// Creates the key of a call that is about to be opened in a journal that the store adds.
    pub fn of_call(call: &OpenCall, claim: &KeyClaim) -> Self {
        let step = call.route.step.as_deref();
        let action = call.route.action.as_deref().filter(|_| step.is_some());
        Self {
            at: call.at.as_microsecond(),
            is_idempotent: call.idempotent,
            is_action: matches!(claim.of, KeyScope::Action { .. }),
            step_of: StepOf::new(action, claim.action_key(action.and(step)).map(key_digest)),
            ..Self::claimed(call.audit_id.bytes(), claim.fingerprint, "", 0)
        }
    }

    /// Returns the call.
    pub fn audit_id(&self) -> AuditId {
        AuditId::from_bytes(self.call)
    }

    /// Returns true if the time is over for which the outcome stands.
    pub fn has_expired(&self, now: i64) -> bool {
        self.state == StoredKeyState::Retained && self.until.is_some_and(|until| until <= now)
    }

    /// Returns the key of the action that the call is a step of.
    pub(crate) fn action_key(&self) -> Option<[u8; 32]> {
        self.step_of.as_ref()?.key
    }

    /// Returns the key of the action that the call is a step of, until a run of the action has a value.
    pub fn pending_action(&self) -> Option<[u8; 32]> {
        self.step_of.as_ref().filter(|of| !of.has_value)?.key
    }

    /// Returns the key of the action that needs the outcome of this step, however old it is.
    pub(crate) fn needed_by(&self) -> Option<[u8; 32]> {
        self.pending_action().filter(|_| self.has_value || !self.is_idempotent)
    }

    /// Returns true if the outcome stands no longer.
    fn is_over(&self, now: i64) -> bool {
        self.has_expired(now) && self.needed_by().is_none()
    }

    /// Returns true if the call has no outcome, and the operator has not decided about it.
    pub fn is_unfinished(&self) -> bool {
        matches!(self.state, StoredKeyState::Claimed | StoredKeyState::Undetermined)
    }

    /// Returns true if the operator may decide about the key. This includes freeing a key that an earlier decision
    /// blocked: a second review may know better.
    pub fn is_open_to(&self, frees_key: bool) -> bool {
        !matches!((self.state, frees_key), (StoredKeyState::Retained, _) | (StoredKeyState::Blocked, false))
    }

    /// Returns true if a call with this claim repeats the one that holds the key, if that was interrupted: both may be
    /// repeated.
    pub fn may_be_resumed(&self, claim: &KeyClaim, is_idempotent: bool) -> bool {
        let may_be_repeated = self.is_idempotent && is_idempotent;
        self.state == StoredKeyState::Claimed && may_be_repeated && self.fingerprint == claim.fingerprint
    }

    /// Returns true if this claim in a later entry changes nothing: a key that stays taken without its call, or the
    /// claim of the same call, which is recorded again with each fallback.
    pub fn outlasts(&self, claimed: &Self) -> bool {
        claimed.state == StoredKeyState::Blocked || claimed.call == self.call
    }

    /// Returns the key after the end of its call; none if it is free.
    pub fn ended(self, end: &KeyEnd, outcome: Option<SealedOutcome>) -> Option<Self> {
        match end.key {
            KeyDisposition::Release => None,
            KeyDisposition::Undetermined => {
                Some(Self { state: StoredKeyState::Undetermined, until: None, ..self })
            }
            KeyDisposition::Retain(until) => {
                let (state, until) = (StoredKeyState::Retained, Some(until.as_microsecond()));
                Some(Self { state, until, has_value: end.has_value, outcome, ..self })
            }
        }
    }

    /// Returns the key after the operator's decision, to which it is open; none if it is free.
    pub fn resolved(self, frees_key: bool) -> Option<Self> {
        let blocked = Self { state: StoredKeyState::Blocked, until: None, ..self };
        (!frees_key).then_some(blocked)
    }

    /// Notes that the action of this step has a value, which stands until then: the outcome of the step stands as long
    /// as others from now on, and no longer than that. With a longer time, a run that begins once the value has expired
    /// would get it, and do nothing.
    pub fn end_action(&mut self, until: i64) {
        self.step_of.iter_mut().for_each(|of| of.has_value = true);
        self.until = self.until.map(|own| own.min(until));
    }

    /// Returns true if a verification finds no difference between this key and another one, which may be in another
    /// journal.
    pub fn is_same(&self, other: &Self) -> bool {
        let facts = |of: &Self| (of.call, of.fingerprint, of.state, of.until, of.is_idempotent, of.has_value);
        facts(self) == facts(other)
    }
}

impl JournalCut {
    /// Returns the reason why the call stays that holds this key at `now`, the time of the log. Otherwise the key is
    /// added to those that stay taken, or to those whose outcomes stand no longer. `unfinished` has the keys of calls
    /// without an outcome: an action among them needs the outcomes of its steps.
    pub fn blocked_by(
        &mut self,
        key: &[u8; 32],
        stored: &StoredKey,
        now: Timestamp,
        unfinished: &HashSet<[u8; 32]>,
    ) -> Option<PruneBlocker> {
        let is_needed = stored.needed_by().is_some_and(|action| unfinished.contains(&action));
        let stands = is_needed || !stored.has_expired(now.as_microsecond());
        match stored.state {
            StoredKeyState::Claimed | StoredKeyState::Undetermined => Some(PruneBlocker::KeyUndecided),
            StoredKeyState::Retained if stands => Some(PruneBlocker::KeyStands),
            StoredKeyState::Retained => {
                self.expired.push((*key, stored.call));
                None
            }
            StoredKeyState::Blocked => {
                self.kept.keep_key(&stored.audit_id(), &stored.fingerprint, key);
                None
            }
        }
    }
}

/// Returns the state of a claim's key at `now`, the time of the log. `find` returns what is stored of a key. Of the
/// claim's own key, `is_running` tells whether the process of its call lives, and `outcome` returns the sealed outcome.
///
/// # Errors
/// Those of `find` and `outcome`.
pub fn key_state<K: Borrow<StoredKey>>(
    claim: &KeyClaim,
    now: i64,
    find: impl Fn(&[u8; 32]) -> Result<Option<K>, AuditError>,
    is_running: impl FnOnce(&K) -> bool,
    outcome: impl FnOnce(&K) -> Result<Option<Sealed>, AuditError>,
) -> Result<KeyState, AuditError> {
    let standing = |key: &str| {
        let stored = find(&key_digest(key));
        stored.map(|stored| stored.filter(|stored| !stored.borrow().is_over(now)))
    };
    if let Some(own) = standing(&claim.key)? {
        let stored = own.borrow();
        let audit_id = stored.audit_id();
        if stored.fingerprint != claim.fingerprint {
            return Ok(KeyState::Different { audit_id });
        }
        match stored.state {
            StoredKeyState::Retained => {
                let (idempotent, outcome) = (stored.is_idempotent, outcome(&own)?);
                return Ok(KeyState::Done { audit_id, idempotent, outcome });
            }
            StoredKeyState::Claimed if is_running(&own) => return Ok(KeyState::Running { audit_id }),
            // An interrupted call may be repeated if it is idempotent.
            StoredKeyState::Claimed if stored.is_idempotent => {}
            _ => return Ok(KeyState::Unknown { audit_id }),
        }
    }
    let KeyScope::Action { action, steps } = &claim.of else { return Ok(KeyState::Free) };
    for step in steps {
        if let Some(other) = standing(step)?
            && other.borrow().step_of.as_ref().map(|of| of.action.as_str()) != Some(action_name(action))
        {
            return Ok(KeyState::Different { audit_id: other.borrow().audit_id() });
        }
    }
    Ok(KeyState::Free)
}

/// Returns the differences between the stored keys and the `expected` ones, according to the entries, at `now`, the
/// time of the log. `is_same` compares two of one key, and `is_ahead` tells that entries may follow a stored key.
pub fn key_differences<K: Borrow<StoredKey>>(
    stored: &BTreeMap<[u8; 32], K>,
    expected: &BTreeMap<[u8; 32], StoredKey>,
    now: i64,
    is_same: impl Fn(&[u8; 32], &K, &StoredKey) -> bool,
    is_ahead: impl Fn(&StoredKey) -> bool,
) -> Vec<DerivedFinding> {
    let mut found = Vec::new();
    let mut differs = |of: &StoredKey, what: &str| {
        let (audit_id, what) = (Some(of.audit_id()), format!("the table of idempotency keys {what}"));
        found.push(DerivedFinding { audit_id, flaw: FindingKind::Keys, what });
    };
    for (key, expected) in expected {
        match stored.get(key) {
            Some(own) if own.borrow().call == expected.call && is_ahead(own.borrow()) => {}
            Some(own) if is_same(key, own, expected) => {}
            Some(_) => differs(expected, "has the key in another state"),
            None if expected.has_expired(now) => {}
            None => differs(expected, "lacks the key"),
        }
    }
    for own in stored.iter().filter(|(key, _)| !expected.contains_key(*key)).map(|(_, own)| own.borrow()) {
        if !is_ahead(own) && !own.has_expired(now) {
            differs(own, "has a key that no call has");
        }
    }
    found
}

/// Returns the SHA-256 of a key, by which it is stored.
pub fn key_digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// Returns the name of an action, without its version.
pub(super) fn action_name(action: &str) -> &str {
    action.split('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::sync::Arc;

    use super::*;

    fn stored(call: u8, state: StoredKeyState) -> StoredKey {
        StoredKey { state, ..StoredKey::claimed([call; 16], [1; 32], "w", 0) }
    }

    /// Returns the state of `k` for an action with the step `k/one` at the time 10, in a few letters.
    fn state(keys: &[(&str, StoredKey)], runs: bool) -> String {
        let of = KeyScope::Action { action: "act@1.0.0".into(), steps: vec!["k/one".into()] };
        let claim = KeyClaim { key: Arc::from("k"), fingerprint: [1; 32], at: Timestamp::UNIX_EPOCH, of };
        let find = |key: &[u8; 32]| {
            let found = keys.iter().find(|(name, _)| key_digest(name) == *key);
            Ok(found.map(|(_, stored)| stored.clone()))
        };
        let state = key_state(&claim, 10, find, |_| runs, |_| Ok(None)).unwrap();
        format!("{state:?}").chars().take_while(|letter| letter.is_alphabetic()).collect()
    }

    #[test]
    fn a_key_has_one_state_in_every_store() {
        let claimed = stored(1, StoredKeyState::Claimed);
        let retained = |until| StoredKey { until: Some(until), ..stored(1, StoredKeyState::Retained) };
        let other = StoredKey { fingerprint: [2; 32], ..claimed.clone() };
        assert_eq!(state(&[], false), "Free");
        assert_eq!(state(&[("k", claimed.clone())], true), "Running");
        assert_eq!(state(&[("k", claimed.clone())], false), "Unknown");
        assert_eq!(state(&[("k", StoredKey { is_idempotent: true, ..claimed })], false), "Free");
        assert_eq!(state(&[("k", other)], true), "Different");
        assert_eq!(state(&[("k", retained(11))], false), "Done");
        assert_eq!(state(&[("k", retained(10))], false), "Free");
        for held in [StoredKeyState::Undetermined, StoredKeyState::Blocked] {
            assert_eq!(state(&[("k", stored(1, held))], true), "Unknown");
        }
        let step = |action| StoredKey { step_of: StepOf::new(Some(action), Some([3; 32])), ..retained(11) };
        assert_eq!(state(&[("k/one", step("act@2.0.0"))], false), "Free");
        assert_eq!(state(&[("k/one", step("other@1.0.0"))], false), "Different");
        assert_eq!(state(&[("k/one", retained(11))], false), "Different");
        assert_eq!(state(&[("k/one", retained(10))], false), "Free");
    }

    #[test]
    fn an_action_needs_its_steps_until_it_has_a_value() {
        let retained = StoredKey { until: Some(20), ..stored(1, StoredKeyState::Retained) };
        // Also a step whose action has no name.
        let mut step = StoredKey { step_of: StepOf::new(None, Some([3; 32])), ..retained };
        assert!(!step.is_over(20));
        assert!(StoredKey { is_idempotent: true, ..step.clone() }.is_over(20));
        step.end_action(15);
        assert_eq!((step.until, step.is_over(14), step.is_over(15)), (Some(15), false, true));
        assert_eq!(StepOf::new(None, None), None);
    }

    #[test]
    fn the_claim_of_a_fallback_changes_nothing() {
        let first = stored(1, StoredKeyState::Claimed);
        assert!(first.outlasts(&StoredKey { is_idempotent: true, ..first.clone() }));
        assert!(first.outlasts(&stored(2, StoredKeyState::Blocked)));
        assert!(!first.outlasts(&stored(2, StoredKeyState::Claimed)));
    }

    #[test]
    fn no_call_runs_in_a_state_that_is_unknown() {
        for (number, state) in (0..).zip(["Claimed", "Retained", "Undetermined", "Blocked"]) {
            assert_eq!(format!("{:?}", StoredKeyState::from_number(number)), state);
            assert_eq!(StoredKeyState::from_number(number).number(), number);
        }
        for number in [-1, 4, i16::MAX] {
            assert_eq!(StoredKeyState::from_number(number), StoredKeyState::Undetermined);
        }
    }
}
