//! Idempotency keys: what is stored of them, and what a call gets that uses one again.

use std::collections::HashMap;

use cofferdam_audit::store::action_name;
use cofferdam_audit::{KeyClaim, KeyScope, KeyState, Sealed};
use cofferdam_core::failure::AuditId;
use sha2::{Digest as _, Sha256};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use super::batch::{BLOCKED, CLAIMED, RETAINED};
use crate::database::DatabaseError;

/// Keys with the processes that hold their journals, and their outcomes.
const SELECT: &str = "SELECT k.key, k.call, k.fingerprint, k.state, k.until, \
                      (extract(epoch FROM k.expires) * 1000000)::bigint, k.is_idempotent, k.step_of, k.has_value, \
                      k.action_key, w.holder, s.part \
                      FROM cofferdam.keys k LEFT JOIN cofferdam.writers w ON w.name = k.writer \
                      LEFT JOIN cofferdam.sealed s \
                      ON s.writer = k.writer AND s.place = k.outcome_place AND s.at = k.outcome_at";

/// A key, and the call that holds it.
#[derive(Debug, Clone)]
pub(super) struct StoredKey {
    pub(super) key: [u8; 32],
    pub(super) call: Uuid,
    pub(super) fingerprint: [u8; 32],
    pub(super) state: i16,
    /// The time until which the outcome stands, by the clock of the host that wrote it.
    pub(super) until: Option<i64>,
    /// The same by the clock of the database.
    expires: Option<i64>,
    pub(super) is_idempotent: bool,
    pub(super) step_of: Option<String>,
    pub(super) has_value: bool,
    /// The key of the action of a step, until a run of the action has a value.
    pub(super) action_key: Option<[u8; 32]>,
    /// The process that holds the journal of the call.
    pub(super) holder: Option<Uuid>,
    outcome: Option<Sealed>,
}

impl StoredKey {
    fn read(row: &Row) -> Result<Self, DatabaseError> {
        Ok(Self {
            key: bytes(row.try_get(0)?),
            call: row.try_get(1)?,
            fingerprint: bytes(row.try_get(2)?),
            state: row.try_get(3)?,
            until: row.try_get(4)?,
            expires: row.try_get(5)?,
            is_idempotent: row.try_get(6)?,
            step_of: row.try_get(7)?,
            has_value: row.try_get(8)?,
            action_key: row.try_get::<_, Option<&[u8]>>(9)?.map(bytes),
            holder: row.try_get(10)?,
            outcome: row.try_get::<_, Option<Vec<u8>>>(11)?.map(Sealed::from_bytes),
        })
    }

    /// Returns the call.
    pub(super) fn audit_id(&self) -> AuditId {
        AuditId::from_bytes(*self.call.as_bytes())
    }

    /// Returns true if the time for which the outcome stands is over at this time of the log, in microseconds since 1970.
    pub(super) fn has_expired(&self, now: i64) -> bool {
        self.state == RETAINED && self.expires.is_some_and(|expires| expires <= now)
    }

    /// Returns the key of the action that needs the outcome of this step, however old it is.
    pub(super) fn needed_by(&self) -> Option<[u8; 32]> {
        self.action_key.filter(|_| self.has_value || !self.is_idempotent)
    }

    /// Returns true if the outcome stands no longer.
    fn is_over(&self, now: i64) -> bool {
        self.has_expired(now) && self.needed_by().is_none()
    }

    /// Returns true if the operator may decide about the key. This includes freeing a key that an earlier decision blocked.
    pub(super) fn is_open_to(&self, frees_key: bool) -> bool {
        self.state != RETAINED && (self.state != BLOCKED || frees_key)
    }
}

/// Keys by their SHA-256.
pub(super) type StoredKeys = HashMap<[u8; 32], StoredKey>;

/// Reads keys.
pub(super) async fn read(
    client: &impl GenericClient,
    keys: &[[u8; 32]],
) -> Result<StoredKeys, DatabaseError> {
    let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
    let rows = client.query(&format!("{SELECT} WHERE k.key = ANY($1)"), &[&keys]).await?;
    rows.iter().map(|row| StoredKey::read(row).map(|stored| (stored.key, stored))).collect()
}

/// Reads keys, and locks those that there are until the transaction ends.
pub(super) async fn lock(
    client: &impl GenericClient,
    keys: &[[u8; 32]],
) -> Result<StoredKeys, DatabaseError> {
    let locked: Vec<_> = keys.iter().map(|key| &key[..]).collect();
    let lock = "SELECT FROM cofferdam.keys WHERE key = ANY($1) ORDER BY key FOR UPDATE";
    client.execute(lock, &[&locked]).await?;
    read(client, keys).await
}

/// Reads the keys that a call holds.
pub(super) async fn of_call(
    client: &impl GenericClient,
    call: Uuid,
) -> Result<Vec<StoredKey>, DatabaseError> {
    let rows = client.query(&format!("{SELECT} WHERE k.call = $1 ORDER BY k.key"), &[&call]).await?;
    rows.iter().map(StoredKey::read).collect()
}

/// Reads all keys, without their outcomes.
pub(super) async fn all(client: &impl GenericClient) -> Result<Vec<StoredKey>, DatabaseError> {
    let select = "SELECT k.key, k.call, k.fingerprint, k.state, k.until, \
                  (extract(epoch FROM k.expires) * 1000000)::bigint, k.is_idempotent, k.step_of, k.has_value, \
                  k.action_key, NULL::uuid, NULL::bytea FROM cofferdam.keys k ORDER BY k.key";
    client.query(select, &[]).await?.iter().map(StoredKey::read).collect()
}

/// Returns the keys that decide about a claim: its own, and those of its action's steps.
pub(super) fn named(claim: &KeyClaim) -> Vec<[u8; 32]> {
    let steps = match &claim.of {
        KeyScope::Action { steps, .. } => steps.as_slice(),
        KeyScope::Call => &[],
    };
    std::iter::once(&claim.key).chain(steps).map(|key| digest(key)).collect()
}

/// Returns the state of a claim's key at this time of the log. `is_running` tells of a key without an end whether the
/// process of its call lives.
pub(super) fn state(
    keys: &StoredKeys,
    claim: &KeyClaim,
    now: i64,
    is_running: &dyn Fn(&StoredKey) -> bool,
) -> KeyState {
    let own = state_of_key(keys, claim, now, is_running);
    let (KeyState::Free, KeyScope::Action { action, steps }) = (&own, &claim.of) else { return own };
    for step in steps {
        if let Some(stored) = keys.get(&digest(step))
            && !stored.is_over(now)
            && stored.step_of.as_deref() != Some(action_name(action))
        {
            return KeyState::Different { audit_id: stored.audit_id() };
        }
    }
    own
}

fn state_of_key(
    keys: &StoredKeys,
    claim: &KeyClaim,
    now: i64,
    is_running: &dyn Fn(&StoredKey) -> bool,
) -> KeyState {
    let Some(stored) = keys.get(&digest(&claim.key)) else { return KeyState::Free };
    if stored.is_over(now) {
        return KeyState::Free;
    }
    let audit_id = stored.audit_id();
    if stored.fingerprint != claim.fingerprint {
        return KeyState::Different { audit_id };
    }
    match stored.state {
        RETAINED => {
            KeyState::Done { audit_id, idempotent: stored.is_idempotent, outcome: stored.outcome.clone() }
        }
        CLAIMED if is_running(stored) => KeyState::Running { audit_id },
        // An interrupted call may be repeated if it is idempotent.
        CLAIMED if stored.is_idempotent => KeyState::Free,
        _ => KeyState::Unknown { audit_id },
    }
}

pub(super) fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// Returns a hash as it is stored; another one than any hash if it has another length.
fn bytes(stored: &[u8]) -> [u8; 32] {
    stored.try_into().unwrap_or_default()
}
