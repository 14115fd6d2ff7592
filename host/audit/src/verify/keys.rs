//! The idempotency keys according to the chain, compared with the list of keys.

use std::collections::{HashMap, HashSet};

use cofferdam_core::digest::Digest;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::calls::CallFacts;
use crate::error::AuditError;
use crate::evidence::{AuditEvidence, KeptCall};

/// Keys that are read at once.
const AT_ONCE: usize = 1_000;

/// The facts about keys from entries of the audit log about itself.
#[derive(Default)]
pub(super) struct SaidOfKeys {
    /// Calls whose keys were decided about; true if the key may be used again.
    decided: HashMap<String, Option<bool>>,
    /// Pruned calls whose keys stay blocked forever: the SHA-256 of the key, and its fingerprint.
    kept: HashMap<String, (String, String)>,
}

impl SaidOfKeys {
    /// Takes over what an entry says.
    pub(super) fn entry(&mut self, name: &str, facts: &RawValue) {
        match name {
            "key_decided" => {
                let decided = serde_json::from_str::<KeyDecided>(facts.get());
                self.decided.extend(decided.map(|decided| (decided.call, decided.frees_key)));
            }
            "keys_kept" => {
                let kept = serde_json::from_str::<KeysKept>(facts.get()).map(|kept| kept.keys);
                let kept = kept.into_iter().flatten();
                self.kept.extend(kept.map(|key| (key.call, (key.key_sha256, key.fingerprint))));
            }
            _ => {}
        }
    }
}

/// The facts of the entry `key_decided`.
#[derive(Deserialize)]
struct KeyDecided {
    call: String,
    frees_key: Option<bool>,
}

/// The facts of the entry `keys_kept`.
#[derive(Deserialize)]
struct KeysKept {
    keys: Vec<KeyOfPruned>,
}

/// A key of a pruned call that stays blocked forever.
#[derive(Deserialize)]
struct KeyOfPruned {
    call: String,
    key_sha256: String,
    fingerprint: String,
}

/// Something that is wrong with the list of keys: at which entry, of which call, and what.
type Wrong = (u64, Option<AuditId>, &'static str);

const LACKS: &str = "the list of idempotency keys lacks the key of the call";
const OTHER_STATE: &str = "the list of idempotency keys has the key in another state than the chain";
const STRAY: &str = "the list of idempotency keys has a key that is not the call's";

/// Compares keys call by call; what only the whole chain tells waits for its end.
#[derive(Default)]
pub(super) struct Keys {
    /// Calls whose keys are not theirs any more: their last entries, and until when the keys were to stand.
    lost: Vec<(AuditId, u64, Option<Timestamp>)>,
    /// Calls of which it is not known what they did under the key that they hold: their last entries, and whether the
    /// list says that this is decided.
    unknown: Vec<(AuditId, u64, bool)>,
}

impl Keys {
    /// Compares the key of a call, where its caller gave one, with what the chain says of it.
    pub(super) fn call(&mut self, id: &AuditId, call: &CallFacts, kept: &KeptCall) -> Option<&'static str> {
        let (key, fingerprint) = call.claim.as_ref()?;
        // The call ran nothing, so the key belongs to the call that was first.
        if kept.key.is_none() && call.attempts == 0 {
            return None;
        }
        if kept.key.as_ref().map(|key| Digest::sha256(key.as_bytes()).to_string()).as_ref() != Some(key) {
            return Some("the list of calls has another idempotency key of the call than the chain");
        }
        let end = call.key_end.as_ref().map(|(state, until)| (state.as_str(), *until));
        let status = call.status.as_deref();
        let Some(held) = &kept.held else {
            match (status, end) {
                (None, _) => return Some(LACKS),
                (Some("skipped"), _) if call.frees_key == Some(false) => {
                    self.lost.push((id.clone(), call.last, None))
                }
                (_, Some(("keeps", until))) if until.is_some_and(|until| until > Timestamp::now()) => {
                    self.lost.push((id.clone(), call.last, until));
                }
                (_, Some(("unknown", _))) => self.lost.push((id.clone(), call.last, None)),
                _ => {}
            }
            return None;
        };
        let own = <[u8; 32]>::try_from(held.fingerprint.as_slice()).ok().map(Digest::from_bytes);
        if own.map(|own| own.to_string()).as_ref() != Some(fingerprint) {
            return Some("the list of idempotency keys has the key with another call than the chain");
        }
        let micros = |until: Option<Timestamp>| until.map(Timestamp::as_microsecond);
        let fits = match (status, end) {
            (None, _) => held.state == 0,
            (Some("resumed"), _) => false,
            (Some("skipped"), _) => held.state == 3 && call.frees_key != Some(true),
            (_, Some(("keeps", until))) => held.state == 1 && micros(held.until) == micros(until),
            (_, Some(("unknown", _))) => {
                self.unknown.push((id.clone(), call.last, held.state == 3));
                matches!(held.state, 2 | 3) && held.until.is_none()
            }
            (_, Some(("free", _))) => false,
            _ => true,
        };
        (!fits).then_some(OTHER_STATE)
    }

    /// Once all entries went by, the last of which was received at `newest`: what is wrong beside.
    pub(super) fn end(
        self,
        evidence: &mut dyn AuditEvidence,
        said: &SaidOfKeys,
        newest: Option<Timestamp>,
    ) -> Result<Vec<Wrong>, AuditError> {
        let mut wrong = Vec::new();
        for (id, n, until) in self.lost {
            let is_due = match until {
                Some(until) => newest.is_none_or(|newest| until > newest),
                None => !matches!(said.decided.get(id.as_str()), Some(Some(true) | None)),
            };
            if is_due {
                wrong.push((n, Some(id), LACKS));
            }
        }
        for (id, n, is_decided) in self.unknown {
            let fits = match said.decided.get(id.as_str()) {
                None => !is_decided,
                Some(Some(true)) => false,
                Some(Some(false) | None) => is_decided,
            };
            if !fits {
                wrong.push((n, Some(id), OTHER_STATE));
            }
        }
        for key in evidence.stray_keys()? {
            wrong.push((key.last, key.audit_id, STRAY));
        }
        let (mut after, mut there) = (None, HashSet::new());
        loop {
            let keys = evidence.keys_of_pruned(after.as_deref(), AT_ONCE)?;
            let Some(newest) = keys.last() else { break };
            after = Some(newest.key.clone());
            for kept in keys {
                let fingerprint = <[u8; 32]>::try_from(kept.fingerprint.as_slice()).ok();
                let fingerprint = fingerprint.map(|own| Digest::from_bytes(own).to_string());
                let own = fingerprint.map(|own| (Digest::sha256(kept.key.as_bytes()).to_string(), own));
                let call = kept.audit_id.as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default();
                if own.is_none() || said.kept.get(&call) != own.as_ref() {
                    wrong.push((0, kept.audit_id, STRAY));
                }
                there.insert(call);
            }
        }
        let lacking = said.kept.keys().filter(|call| !there.contains(*call));
        wrong.extend(lacking.map(|call| (0, AuditId::parse(call), LACKS)));
        Ok(wrong)
    }
}
