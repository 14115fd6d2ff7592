//! Entries that are written in one transaction, with the keys that they claim and end.

use std::time::SystemTime;

use cofferdam_audit::store::{ChainHead, EntryDraft, SealedPlace, StoredKey, StoredKeyState, key_digest};
use cofferdam_audit::{KeyClaim, OpenCall};
use cofferdam_core::failure::AuditId;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};
use uuid::Uuid;

/// The state of a key that is free again: none is stored.
const FREE: i16 = -1;

/// The statement that appends.
pub(super) const APPEND: &str = "SELECT cofferdam.append_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
                                 $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29)";

/// The end of a journal that this process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChainEnd {
    pub(super) name: Uuid,
    pub(super) epoch: i64,
    pub(super) head: ChainHead,
    /// The bytes of all sealed parts.
    pub(super) sealed: u64,
}

impl ChainEnd {
    /// Reads the end of a journal from a row that begins with its `name, epoch, n, hash, sealed`.
    pub(super) fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let hash: &[u8] = row.try_get(3)?;
        let head = ChainHead { n: unsigned(row.try_get(2)?), hash: hash.try_into().unwrap_or_default() };
        Ok(Self { name: row.try_get(0)?, epoch: row.try_get(1)?, head, sealed: unsigned(row.try_get(4)?) })
    }
}

/// A key that a call claims with its first entry, in the journal of this writer.
#[derive(Debug, Clone)]
pub(super) struct ClaimedKey {
    pub(super) key: [u8; 32],
    pub(super) stored: StoredKey,
    pub(super) writer: Uuid,
}

impl ClaimedKey {
    pub(super) fn new(open: &OpenCall, claim: &KeyClaim, writer: Uuid) -> Self {
        Self { key: key_digest(&claim.key), stored: StoredKey::of_call(open, claim), writer }
    }

    /// Returns the action that the call is a step of, and the action's key.
    pub(super) fn action(&self) -> (Option<&str>, Option<&[u8]>) {
        let of = self.stored.step_of.as_ref();
        (of.map(|of| &*of.action), of.and_then(|of| of.key.as_ref()).map(|key| &key[..]))
    }
}

/// The state of a key after its call has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyEnd {
    /// None if the key is free.
    pub(super) state: Option<StoredKeyState>,
    /// If an outcome is kept: until this time by the clock of this host, and for this many microseconds from now.
    pub(super) retained: Option<(i64, i64)>,
    /// True if that is a value.
    pub(super) has_value: bool,
}

/// Entries of one transaction. Each journal in it is added to once its end is known.
#[derive(Debug, Default)]
pub(super) struct Batch {
    chains: Vec<(ChainEnd, ChainEnd)>,
    lines: (Vec<Uuid>, Vec<i64>, Vec<String>),
    parts: (Vec<Uuid>, Vec<i64>, Vec<Vec<u8>>),
    claims: Vec<ClaimedKey>,
    ends: Vec<EndedKey>,
}

#[derive(Debug)]
struct EndedKey {
    key: [u8; 32],
    call: Uuid,
    end: KeyEnd,
    place: Option<i64>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.0.is_empty()
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.lines.0.len()
    }

    /// Returns the journals, each as it was before and as it is after.
    pub(super) fn chains(&self) -> &[(ChainEnd, ChainEnd)] {
        &self.chains
    }

    /// Returns the names of the journals.
    pub(super) fn names(&self) -> Vec<Uuid> {
        self.chains.iter().map(|(before, _)| before.name).collect()
    }

    /// Appends an entry to a journal that ends here. Returns the place of its sealed part.
    pub(super) fn append(&mut self, chain: ChainEnd, draft: &EntryDraft) -> Option<i64> {
        let end = match self.chains.iter().position(|(before, _)| before.name == chain.name) {
            Some(at) => at,
            None => {
                self.chains.push((chain, chain));
                self.chains.len().saturating_sub(1)
            }
        };
        let (_, end) = self.chains.get_mut(end)?;
        let offset = end.sealed;
        let place = draft.sealed().map(|part| SealedPlace::at(offset, part));
        let mut line = Vec::new();
        end.head = draft.append_to(&mut line, end.head, place.as_ref());
        line.pop();
        // Of JSON that this program wrote.
        let line = String::from_utf8(line).unwrap_or_default();
        self.lines.0.push(chain.name);
        self.lines.1.push(signed(end.head.n));
        self.lines.2.push(line);
        let part = draft.sealed()?;
        end.sealed = end.sealed.saturating_add(part.bytes().len() as u64);
        self.parts.0.push(chain.name);
        self.parts.1.push(signed(offset));
        self.parts.2.push(part.bytes().to_vec());
        Some(signed(offset))
    }

    /// Claims a key that no call has.
    pub(super) fn claim(&mut self, claim: ClaimedKey) {
        self.claims.push(claim);
    }

    /// Has the calls begin without their keys: a defect for a test to detect.
    pub(super) fn forget_claims(&mut self) {
        self.claims.clear();
    }

    /// Returns true if a call of the batch claims this key.
    pub(super) fn claims(&self, key: &[u8; 32]) -> bool {
        self.claims.iter().any(|claim| claim.key == *key)
    }

    /// Ends a key that this call holds. `place` is that of its outcome.
    pub(super) fn end_key(&mut self, key: [u8; 32], call: Uuid, end: KeyEnd, place: Option<i64>) {
        self.ends.push(EndedKey { key, call, end, place });
    }

    /// Returns true if a call of the batch ends this key.
    pub(super) fn ends(&self, key: &[u8; 32]) -> bool {
        self.ends.iter().any(|end| end.key == *key)
    }

    /// Writes it, in the transaction that `client` has begun, or else in one of its own.
    pub(super) async fn write(
        &self,
        client: &Client,
        statement: &Statement,
        process: Uuid,
        given: Option<SystemTime>,
    ) -> Result<(), tokio_postgres::Error> {
        let Self { chains, lines, parts, claims, ends } = self;
        let parameters: [&(dyn ToSql + Sync); 29] = [
            &given,
            &process,
            &column(chains, |(before, _)| before.name),
            &column(chains, |(before, _)| before.epoch),
            &column(chains, |(before, _)| signed(before.head.n)),
            &column(chains, |(_, after)| signed(after.head.n)),
            &column(chains, |(_, after)| &after.head.hash[..]),
            &column(chains, |(_, after)| signed(after.sealed)),
            &lines.0,
            &lines.1,
            &lines.2,
            &parts.0,
            &parts.1,
            &parts.2,
            &column(claims, |claim| &claim.key[..]),
            &column(claims, |claim| Uuid::from_bytes(claim.stored.call)),
            &column(claims, |claim| &claim.stored.fingerprint[..]),
            &column(claims, |claim| claim.stored.at),
            &column(claims, |claim| claim.writer),
            &column(claims, |claim| claim.stored.is_idempotent),
            &column(claims, |claim| claim.action().0),
            &column(claims, |claim| claim.action().1),
            &column(ends, |end| &end.key[..]),
            &column(ends, |end| end.call),
            &column(ends, |end| end.end.state.map_or(FREE, StoredKeyState::number)),
            &column(ends, |end| end.end.retained.map(|(until, _)| until)),
            &column(ends, |end| end.end.retained.map(|(_, ttl)| ttl)),
            &column(ends, |end| end.end.has_value),
            &column(ends, |end| end.place.filter(|_| end.end.retained.is_some())),
        ];
        client.query_one(statement, &parameters).await.map(drop)
    }
}

/// Returns one parameter of each row.
fn column<'r, R, P>(rows: &'r [R], of: impl Fn(&'r R) -> P) -> Vec<P> {
    rows.iter().map(of).collect()
}

/// Returns the id of a call as the database has it.
pub(super) fn stored_id(call: &AuditId) -> Uuid {
    Uuid::from_bytes(call.bytes())
}

/// Returns the id of a call as it was before it was stored.
pub(super) fn audit_id(call: Uuid) -> AuditId {
    AuditId::from_bytes(*call.as_bytes())
}

/// Returns the id in an entry, as the database has it.
pub(super) fn id_in(text: Option<&str>) -> Option<Uuid> {
    AuditId::parse(text?).map(|call| stored_id(&call))
}

/// Returns a number as the database has it.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a number as it was before it was stored.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
