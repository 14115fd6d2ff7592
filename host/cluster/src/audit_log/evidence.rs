//! The log as a verification reads it, the comparison of the keys with the entries, and the operator's word that what is
//! there is what the log goes on with.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_audit::store::{
    EntryDraft, JournalLine, KeyFact, LogEvent, SealedPlace, StoredKey, StoredKeyState, accepted_entry,
    key_differences,
};
use cofferdam_audit::{
    AcknowledgedFinding, AuditError, AuditEvidence, DerivedFinding, EvidenceLine, FindingKind, SealedState,
};
use cofferdam_core::digest::Digest;
use cofferdam_core::event::recorded::RecordedEvent;
use cofferdam_core::failpoint;
use cofferdam_core::failure::AuditId;
use tokio_postgres::Client;
use uuid::Uuid;

use super::batch::{signed, unsigned};
use super::engine::Command;
use super::keys::{self, KeyRow};
use super::reader::sealed_part;
use super::time::SeenTime;
use super::{LogShared, Running, checkpoint};
use crate::database::DatabaseError;

/// The entries that are read at once.
const LINES_AT_ONCE: i64 = 1_000;

/// The most by which the clocks of two hosts, and of the database, may differ, in microseconds. A key that was claimed so
/// much earlier than its outcome was to be kept was not free.
const CLOCK_SKEW: i64 = 15 * 60 * 1_000_000;

/// A difference between the keys and the entries is one that is found each time: hosts write both meanwhile.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(50);

/// The entries of one journal from a number on; several with one number in the order of their times.
const SELECT_LINES: &str =
    "SELECT n, line FROM cofferdam.entries WHERE writer = $1 AND n > $2 ORDER BY n, at LIMIT $3";

/// The log as it is when it is read.
pub(super) struct PostgresEvidence {
    running: Arc<Running>,
}

impl PostgresEvidence {
    pub(super) fn new(running: Arc<Running>) -> Self {
        Self { running }
    }
}

impl AuditEvidence for PostgresEvidence {
    fn writers(&self) -> Result<Vec<String>, AuditError> {
        self.running.in_session(async |client, _| writers(client).await)
    }

    fn checkpoint(&self) -> Result<Option<String>, AuditError> {
        self.running.in_session(async |client, _| checkpoint::text(client).await)
    }

    fn read(
        &self,
        writer: &str,
        after: u64,
        visit: &mut dyn FnMut(EvidenceLine<'_>) -> Result<(), AuditError>,
    ) -> Result<(), AuditError> {
        let Ok(name) = Uuid::try_parse(writer) else { return Ok(()) };
        let mut from = signed(after);
        loop {
            let lines = self.running.in_session(async |client, _| lines_after(client, name, from).await)?;
            let Some((last, _)) = lines.last() else { return Ok(()) };
            from = *last;
            for (n, text) in &lines {
                // One segment, which begins with the first entry of the journal.
                let position = if *n == 1 { 0 } else { unsigned(*n) };
                let text = text.as_bytes();
                visit(EvidenceLine { segment: 1, position, is_whole: true, is_newest: false, text })?;
            }
        }
    }

    fn is_torn(&self, _writer: &str, _segment: u64, _position: u64) -> Result<bool, AuditError> {
        // An entry is committed whole, or not at all.
        Ok(false)
    }

    fn sealed(&self, writer: &str, _segment: u64, place: &SealedPlace) -> Result<SealedState, AuditError> {
        let Ok(name) = Uuid::try_parse(writer) else { return Ok(SealedState::Changed) };
        let offset = signed(place.offset);
        let part = self.running.in_session(async |client, _| sealed_part(client, name, offset).await)?;
        // One that was dropped is not there.
        let Some(part) = part else { return Ok(SealedState::Intact) };
        let is_same = part.len() as u64 == place.bytes && Digest::sha256(&part).to_string() == place.sha256;
        Ok(if is_same { SealedState::Intact } else { SealedState::Changed })
    }

    fn derived(&mut self) -> Result<Vec<DerivedFinding>, AuditError> {
        self.running.in_session(async |client, shared| check_derived(client, shared).await)
    }
}

/// Returns the names of the journals, in order.
async fn writers(client: &Client) -> Result<Vec<String>, DatabaseError> {
    let select = "SELECT name FROM cofferdam.writers WHERE n > 0 ORDER BY name";
    let rows = client.query(select, &[]).await?;
    rows.iter().map(|row| Ok(row.try_get::<_, Uuid>(0)?.to_string())).collect()
}

/// Reads some entries of a journal. None with the last number is left out, also if there are several.
async fn lines_after(client: &Client, writer: Uuid, from: i64) -> Result<Vec<(i64, String)>, DatabaseError> {
    let mut limit = LINES_AT_ONCE;
    loop {
        let rows = client.query(SELECT_LINES, &[&writer, &from, &limit]).await?;
        let lines = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let mut lines = lines.collect::<Result<Vec<(i64, String)>, DatabaseError>>()?;
        if signed(lines.len() as u64) < limit {
            return Ok(lines);
        }
        let last = lines.last().map(|(n, _)| *n);
        lines.retain(|(n, _)| Some(*n) != last);
        if !lines.is_empty() {
            return Ok(lines);
        }
        limit = limit.saturating_mul(2);
    }
}

/// The keys according to the entries.
#[derive(Default)]
struct ExpectedKeys {
    keys: BTreeMap<[u8; 32], StoredKey>,
    of_calls: HashMap<[u8; 16], Vec<[u8; 32]>>,
    /// By the key of an action without a value, the keys of its steps.
    of_actions: HashMap<[u8; 32], Vec<[u8; 32]>>,
    /// The keys of steps whose actions may have had values according to entries that were pruned.
    may_be_over: HashSet<[u8; 32]>,
    /// By the key of a step, the time until which the value of its action stands.
    ends: HashMap<[u8; 32], i64>,
    /// The calls that began under keys which earlier calls still held.
    early: Vec<AuditId>,
}

impl ExpectedKeys {
    /// Adds an entry, after all that were written before it.
    fn line(&mut self, line: &JournalLine<'_>) {
        if let Some(RecordedEvent::Pruned(_)) = line.log.as_ref().map(LogEvent::event) {
            self.may_be_over.extend(self.of_actions.values().flatten());
        }
        KeyFact::read_all("", 0, line).into_iter().for_each(|fact| self.add(fact));
    }

    fn add(&mut self, fact: KeyFact) {
        match fact {
            KeyFact::Claimed(key, claimed, at) => self.claim(key, *claimed, at),
            KeyFact::Ended(end, _) => self.change(end.call, |held| match held.state {
                StoredKeyState::Claimed => held.ended(&end, None),
                _ => Some(held),
            }),
            KeyFact::Resolved(call, frees_key) | KeyFact::Decided(call, frees_key) => {
                self.change(call.bytes(), |held| match held.is_open_to(frees_key) {
                    true => held.resolved(frees_key),
                    false => Some(held),
                });
            }
            KeyFact::ActionEnded(end) => {
                for step in self.of_actions.remove(&end.key).unwrap_or_default() {
                    let held = self.keys.get_mut(&step);
                    if let Some(held) = held.filter(|held| held.pending_action() == Some(end.key)) {
                        // `until` stays the same, here and in the row: this end may be pruned before the step is.
                        held.step_of.iter_mut().for_each(|of| of.has_value = true);
                        self.ends.insert(step, end.until);
                    }
                }
            }
            // The call that resumes it claims its key.
            KeyFact::Resumed(_) => {}
        }
    }

    fn claim(&mut self, key: [u8; 32], claimed: StoredKey, at: i64) {
        let held = self.keys.get(&key);
        if held.is_some_and(|held| held.outlasts(&claimed)) {
            return;
        }
        let end = self.ends.remove(&key).unwrap_or(i64::MAX);
        let held = held.filter(|held| held.state == StoredKeyState::Retained);
        let until = held.and_then(|held| held.until).map(|until| until.min(end));
        if until.is_some_and(|until| at < until.saturating_sub(CLOCK_SKEW)) {
            self.early.push(claimed.audit_id());
        }
        if let Some(action) = claimed.pending_action() {
            self.of_actions.entry(action).or_default().push(key);
        }
        self.may_be_over.remove(&key);
        self.of_calls.entry(claimed.call).or_default().push(key);
        self.keys.insert(key, claimed);
    }

    /// Changes the keys that a call holds.
    fn change(&mut self, call: [u8; 16], change: impl Fn(StoredKey) -> Option<StoredKey>) {
        for key in self.of_calls.get(&call).into_iter().flatten() {
            if self.keys.get(key).is_some_and(|held| held.call == call)
                && let Some(changed) = self.keys.remove(key).and_then(&change)
            {
                self.keys.insert(*key, changed);
            }
        }
    }
}

/// Compares the keys, and the ends of the journals, with the entries.
async fn check_derived(
    client: &mut Client,
    shared: &LogShared,
) -> Result<Vec<DerivedFinding>, DatabaseError> {
    let mut found: Option<Vec<DerivedFinding>> = None;
    for _ in 0..TRIES {
        // In this order: what is read later is never behind.
        let mut now = ends_without_entries(client).await?;
        let stored = keys::all(client).await?;
        let expected = expected_keys(client).await?;
        let seen = SeenTime::read(client, shared.given_time()).await?;
        let stored = stored.iter().map(|row| (row.key, row)).collect();
        let is_same = |key: &_, own: &&_, it: &_| is_same(own, it, expected.may_be_over.contains(key));
        now.extend(key_differences(&stored, &expected.keys, seen.now(), is_same, |_| false));
        now.extend(expected.early.iter().map(|call| DerivedFinding {
            audit_id: Some(call.clone()),
            flaw: FindingKind::Keys,
            what: "the call began under an idempotency key that an earlier call still held".to_owned(),
        }));
        now.retain(|finding| found.as_ref().is_none_or(|before| before.contains(finding)));
        if found.insert(now).is_empty() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(found.unwrap_or_default())
}

/// Returns the journals whose last entries are missing.
async fn ends_without_entries(client: &Client) -> Result<Vec<DerivedFinding>, DatabaseError> {
    let select = "SELECT w.name, w.n FROM cofferdam.writers w WHERE w.n > 0 \
                  AND NOT EXISTS (SELECT FROM cofferdam.entries e WHERE e.writer = w.name AND e.n = w.n) \
                  AND EXISTS (SELECT FROM cofferdam.entries e WHERE e.writer = w.name) ORDER BY 1";
    let rows = client.query(select, &[]).await?;
    let finding = |row: &tokio_postgres::Row| {
        let (name, n): (Uuid, i64) = (row.try_get(0)?, row.try_get(1)?);
        let what = format!("the journal {name} ended with entry {n}, which is missing");
        Ok(DerivedFinding { audit_id: None, flaw: FindingKind::Keys, what })
    };
    rows.iter().map(finding).collect()
}

async fn expected_keys(client: &mut Client) -> Result<ExpectedKeys, DatabaseError> {
    let mut expected = ExpectedKeys::default();
    let transaction = client.transaction().await?;
    // In the order in which they were committed: no two transactions have one key at the same time.
    let select = "SELECT line FROM cofferdam.entries ORDER BY at, writer, n";
    let portal = transaction.bind(select, &[]).await?;
    loop {
        let rows =
            transaction.query_portal(&portal, i32::try_from(LINES_AT_ONCE).unwrap_or(i32::MAX)).await?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            if let Ok(line) = JournalLine::read(row.try_get::<_, &str>(0)?.as_bytes()) {
                expected.line(&line);
            }
        }
    }
    transaction.commit().await?;
    Ok(expected)
}

fn is_same(own: &KeyRow, expected: &StoredKey, may_be_over: bool) -> bool {
    let action = own.stored.pending_action();
    let is_of_action = action == expected.pending_action() || action.is_none() && may_be_over;
    is_of_action && StoredKey { until: own.until, ..own.stored.clone() }.is_same(expected)
}

/// Records and signs that the operator accepts these findings, and signs for the journals as they are.
pub(super) async fn accept(
    running: &Arc<Running>,
    findings: &[AcknowledgedFinding],
    user: &str,
) -> Result<String, AuditError> {
    let shared = &running.shared;
    let checkpoints = &shared.checkpoints;
    let mut session = shared.pool.get().await?;
    let loss = checkpoints.loss(session.client()).await?;
    running.submit(Command::Begin).await?;
    if findings.is_empty() && loss.is_none() {
        session.give_back();
        return running.sign().await;
    }
    // An operator that repairs the vault first does not accept an older one unseen.
    checkpoints.state.vault_mark()?;
    let (now, signer) = (shared.clock.timestamp(), checkpoints.signer()?);
    let entries = vec![
        accepted_entry(findings, checkpoint::text(session.client()).await?, now, &signer),
        EntryDraft::of_acceptance(now, findings.len(), loss.as_ref(), user),
    ];
    running.submit(|reply| Command::Entries(entries, reply)).await?;
    failpoint::pass("accept.committed");
    let known = checkpoints.journals(session.client()).await?.unwrap_or_default();
    let journals = checkpoint::journals_as_they_are(session.client(), &known).await?;
    let note = checkpoints.accept(shared, journals).await?;
    running.submit(Command::Forget).await?;
    // Keys of calls that are gone stay taken.
    let derived = check_derived(session.client(), shared).await?;
    session.give_back();
    if derived.is_empty() {
        return Ok(note);
    }
    let findings: Vec<_> = derived.iter().map(AcknowledgedFinding::from).collect();
    let entry = accepted_entry(&findings, None, now, &signer);
    running.submit(|reply| Command::Entries(vec![entry], reply)).await?;
    running.sign().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fallback_does_not_claim_the_key_again() {
        let first = StoredKey { call: [1; 16], is_idempotent: true, ..StoredKey::default() };
        let mut expected = ExpectedKeys::default();
        for claimed in [first.clone(), StoredKey { is_idempotent: false, ..first.clone() }] {
            expected.add(KeyFact::Claimed([7; 32], Box::new(claimed), 0));
        }
        assert_eq!(expected.keys, BTreeMap::from([([7; 32], first)]));
    }
}
