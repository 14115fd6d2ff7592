//! Idempotency keys: what is stored of them, and what a call gets that uses one again.

use std::borrow::Borrow;
use std::collections::HashMap;

use cofferdam_audit::store::{StepOf, StoredKey, StoredKeyState, key_digest, key_state};
use cofferdam_audit::{AuditError, KeyClaim, KeyScope, KeyState, Sealed};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use crate::database::DatabaseError;

/// Keys with the processes that hold their journals, and their outcomes.
const SELECT: &str = "SELECT k.key, k.call, k.fingerprint, k.state, k.until, \
                      (extract(epoch FROM k.expires) * 1000000)::bigint, k.is_idempotent, k.step_of, k.has_value, \
                      k.action_key, w.holder, s.part \
                      FROM cofferdam.keys k LEFT JOIN cofferdam.writers w ON w.name = k.writer \
                      LEFT JOIN cofferdam.sealed s \
                      ON s.writer = k.writer AND s.place = k.outcome_place AND s.at = k.outcome_at";

/// A key in the table.
#[derive(Debug, Clone)]
pub(super) struct KeyRow {
    pub(super) key: [u8; 32],
    /// The rest of the row. Its `until` is by the clock of the database.
    pub(super) stored: StoredKey,
    /// The time until which the outcome stands, by the clock of the host that wrote it.
    pub(super) until: Option<i64>,
    /// The process that holds the journal of the call.
    pub(super) holder: Option<Uuid>,
    outcome: Option<Sealed>,
}

impl KeyRow {
    fn read(row: &Row) -> Result<Self, DatabaseError> {
        // The steps of an action with a value have its key no longer.
        let action_key = row.try_get::<_, Option<&[u8]>>(9)?.map(bytes);
        Ok(Self {
            key: bytes(row.try_get(0)?),
            stored: StoredKey {
                call: row.try_get::<_, Uuid>(1)?.into_bytes(),
                fingerprint: bytes(row.try_get(2)?),
                state: StoredKeyState::from_number(row.try_get(3)?),
                until: row.try_get(5)?,
                is_idempotent: row.try_get(6)?,
                step_of: StepOf::new(row.try_get(7)?, action_key),
                has_value: row.try_get(8)?,
                ..StoredKey::default()
            },
            until: row.try_get(4)?,
            holder: row.try_get(10)?,
            outcome: row.try_get::<_, Option<Vec<u8>>>(11)?.map(Sealed::from_bytes),
        })
    }
}

impl Borrow<StoredKey> for &KeyRow {
    fn borrow(&self) -> &StoredKey {
        &self.stored
    }
}

/// Keys by their SHA-256.
pub(super) type KeyRows = HashMap<[u8; 32], KeyRow>;

/// Reads keys.
pub(super) async fn read(client: &impl GenericClient, keys: &[[u8; 32]]) -> Result<KeyRows, DatabaseError> {
    let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
    let rows = client.query(&format!("{SELECT} WHERE k.key = ANY($1)"), &[&keys]).await?;
    rows.iter().map(|row| KeyRow::read(row).map(|row| (row.key, row))).collect()
}

/// Reads keys, and locks those that there are until the transaction ends.
pub(super) async fn lock(client: &impl GenericClient, keys: &[[u8; 32]]) -> Result<KeyRows, DatabaseError> {
    let locked: Vec<_> = keys.iter().map(|key| &key[..]).collect();
    let lock = "SELECT FROM cofferdam.keys WHERE key = ANY($1) ORDER BY key FOR UPDATE";
    client.execute(lock, &[&locked]).await?;
    read(client, keys).await
}

/// Reads the keys that a call holds.
pub(super) async fn of_call(client: &impl GenericClient, call: Uuid) -> Result<Vec<KeyRow>, DatabaseError> {
    let rows = client.query(&format!("{SELECT} WHERE k.call = $1 ORDER BY k.key"), &[&call]).await?;
    rows.iter().map(KeyRow::read).collect()
}

/// Reads all keys, without their outcomes.
pub(super) async fn all(client: &impl GenericClient) -> Result<Vec<KeyRow>, DatabaseError> {
    let select = "SELECT k.key, k.call, k.fingerprint, k.state, k.until, \
                  (extract(epoch FROM k.expires) * 1000000)::bigint, k.is_idempotent, k.step_of, k.has_value, \
                  k.action_key, NULL::uuid, NULL::bytea FROM cofferdam.keys k ORDER BY k.key";
    client.query(select, &[]).await?.iter().map(KeyRow::read).collect()
}

/// Returns the keys that decide about a claim: its own, and those of its action's steps.
pub(super) fn named(claim: &KeyClaim) -> Vec<[u8; 32]> {
    let steps = match &claim.of {
        KeyScope::Action { steps, .. } => steps.as_slice(),
        KeyScope::Call => &[],
    };
    std::iter::once(&claim.key).chain(steps).map(|key| key_digest(key)).collect()
}

/// Returns the state of a claim's key at this time of the log. `is_running` tells of a key without an end whether the
/// process of its call lives.
pub(super) fn state(
    keys: &KeyRows,
    claim: &KeyClaim,
    now: i64,
    is_running: &dyn Fn(&KeyRow) -> bool,
) -> Result<KeyState, AuditError> {
    let is_running = |row: &&KeyRow| is_running(row);
    key_state(claim, now, |key| Ok(keys.get(key)), is_running, |row| Ok(row.outcome.clone()))
}

/// Returns a hash as it is stored; another one than any hash if it has another length.
fn bytes(stored: &[u8]) -> [u8; 32] {
    stored.try_into().unwrap_or_default()
}
