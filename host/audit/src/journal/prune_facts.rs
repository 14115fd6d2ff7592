//! The facts that outlive pruned entries, and the entries about a pruning: the same in every store.

use std::collections::BTreeMap;

use cofferdam_core::event::operator::{OPERATOR_EVENT, OperatorAction, OperatorState};
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use super::key_facts::{KEY_DECIDED, KEYS_KEPT, KeptKey, KeysKept};
use super::line::{EntryDraft, LogEvent};
use crate::command::Pruned;
use crate::hex::hex;
use crate::verify::LOSS_ACCEPTED;

/// The name of the entry about what was pruned.
const PRUNED: &str = "pruned";

/// The facts of that entry. The fields are in the order of their names.
#[derive(Serialize)]
struct PrunedFacts {
    before: String,
    calls: u64,
    entries: u64,
    /// By writer, the last entry that was removed.
    journals: BTreeMap<String, u64>,
}

/// The facts of pruned entries that stay true: entries about the log, and keys that stay taken.
#[derive(Debug, Default, Clone)]
pub struct KeptFacts {
    /// By name, their payloads.
    entries: Vec<(String, Box<RawValue>)>,
    keys: Vec<KeptKey>,
}

impl KeptFacts {
    /// Reads an entry about the log that is to be pruned with calls that were received before `before`. Returns false if it
    /// has to stay where it is: it is a change by an operator that is not old enough.
    pub fn read(&mut self, log: &LogEvent<'_>, before: Timestamp) -> bool {
        if log.name == KEYS_KEPT {
            let kept = serde_json::from_str::<KeysKept>(log.payload.get());
            self.keys.extend(kept.map(|kept| kept.keys).unwrap_or_default());
        } else if [KEY_DECIDED, LOSS_ACCEPTED].contains(&&*log.name) {
            self.entries.push((log.name.to_string(), log.payload.to_owned()));
        }
        log.name != OPERATOR_EVENT || log.at().is_some_and(|at| at < before)
    }

    /// Adds a key that stays taken without its call.
    pub fn keep_key(&mut self, call: &AuditId, fingerprint: &[u8; 32], key: &[u8; 32]) {
        let (fingerprint, key_sha256) = (hex(fingerprint), hex(key));
        self.keys.push(KeptKey { call: call.to_string(), fingerprint, key_sha256 });
    }

    /// Adds the facts of entries that follow.
    pub fn extend(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.keys.extend(other.keys);
    }
}

/// Returns the earlier of two times, as far as there are any.
#[must_use]
pub fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// Returns the entries about a pruning of the calls that were received before `before`: what was kept of each journal, what
/// was removed (`journals` has the last removed entry of each), and the operator who asked for it.
#[must_use]
pub fn prune_entries<'k>(
    kept: impl Iterator<Item = &'k KeptFacts> + Clone,
    journals: BTreeMap<String, u64>,
    before: Timestamp,
    pruned: &Pruned,
    user: Option<&str>,
    now: Timestamp,
) -> Vec<EntryDraft> {
    let facts = kept.clone().flat_map(|kept| &kept.entries);
    let mut entries: Vec<_> = facts.map(|(name, payload)| EntryDraft::of_log(name, now, payload)).collect();
    let keys: Vec<_> = kept.flat_map(|kept| kept.keys.iter().cloned()).collect();
    if !keys.is_empty() {
        entries.push(EntryDraft::of_log(KEYS_KEPT, now, &KeysKept { keys }));
    }
    let (calls, removed) = (pruned.calls, pruned.entries);
    let facts = PrunedFacts { before: format!("{before:.6}"), calls, entries: removed, journals };
    entries.push(EntryDraft::of_log(PRUNED, now, &facts));
    entries.extend(user.map(|user| {
        let until = Some(facts.before.as_str().into());
        let after =
            OperatorState { calls: Some(calls), entries: Some(removed), until, ..OperatorState::default() };
        let before = pruned.since.map(|since| OperatorState {
            until: Some(format!("{since:.6}").into()),
            ..OperatorState::default()
        });
        EntryDraft::of_operator(now, OperatorAction::Prune, before, after, user)
    }));
    entries
}
