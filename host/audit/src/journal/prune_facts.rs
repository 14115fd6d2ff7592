//! The facts that outlive pruned entries, and the entries about a pruning: the same in every store.

use std::collections::BTreeMap;

use cofferdam_core::event::log_event::{KeptKey, KeysKept, PrunedEntries};
use cofferdam_core::event::operator::{OPERATOR_EVENT, OperatorAction, OperatorState};
use cofferdam_core::event::recorded::{RecordedEvent, UnknownEvent};
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;

use super::line::{EntryDraft, LogEvent};
use crate::command::Pruned;
use crate::hex::hex;

/// The names of entries that outlive the pruning of their segments.
const KEY_DECIDED: &str = "key_decided";
const LOSS_ACCEPTED: &str = "loss_accepted";

/// The facts of pruned entries that stay true: entries about the log, and keys that stay taken.
#[derive(Debug, Default, Clone)]
pub struct KeptFacts {
    entries: Vec<RecordedEvent<'static>>,
    keys: Vec<KeptKey>,
}

impl KeptFacts {
    /// Reads an entry about the log that is to be pruned. Returns false if it has to stay where it is: it is a change by an
    /// operator, and not old enough.
    pub fn read(&mut self, log: &LogEvent<'_>, is_old: bool) -> bool {
        match log.event() {
            RecordedEvent::KeysKept(kept) => self.keys.extend(kept.keys),
            event if [KEY_DECIDED, LOSS_ACCEPTED].contains(&event.name()) => {
                // As it is: it may be of a newer version.
                let (name, payload) = (log.name.to_string(), log.payload.to_owned());
                self.entries.push(RecordedEvent::Unknown(UnknownEvent { name, payload }));
            }
            _ => {}
        }
        log.name != OPERATOR_EVENT || is_old
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
    let mut entries: Vec<_> = facts.map(|event| EntryDraft::of_log(now, event)).collect();
    let keys: Vec<_> = kept.flat_map(|kept| kept.keys.iter().cloned()).collect();
    if !keys.is_empty() {
        entries.push(EntryDraft::of_log(now, &RecordedEvent::KeysKept(KeysKept { keys })));
    }
    let (calls, removed) = (pruned.calls, pruned.entries);
    let facts = PrunedEntries { before: format!("{before:.6}"), calls, entries: removed, journals };
    entries.push(EntryDraft::of_log(now, &RecordedEvent::Pruned(facts)));
    entries.extend(user.map(|user| {
        let until = Some(format!("{before:.6}").into());
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
