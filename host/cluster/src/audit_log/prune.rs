//! Pruning: the oldest entries of journals are removed, and a signed statement says where each journal begins now.
//!
//! An entry goes once all calls that begin in it or before it in its journal have ended, are old enough, and hold no
//! idempotency key. What the entries say decides, and their chains are verified on the way: a damaged journal is evidence,
//! and nothing of it is removed. The statement is signed before the entries are removed. Parts of tables with nothing else
//! are dropped as a whole.
//!
//! No process signs for the last entries of one that was killed, since anything that can write to the database could
//! have added them. They go like others: the statement then says only where the journal begins.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use cofferdam_audit::store::{
    ChainHead, HeldKey, JournalCut, PruneTimes, SignedJournal, StoredKeyState, prune_entries, prune_result,
};
use cofferdam_audit::{AuditError, AuditErrorKind, PruneBlocker, Pruned};
use cofferdam_core::failpoint;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use tokio_postgres::Client;
use uuid::Uuid;

use super::batch::{signed, stored_id, unsigned};
use super::engine::Command;
use super::keys::{self, KeyRow};
use super::process::{self, GoneProcesses, Lives};
use super::session::old_partitions;
use super::{Running, calls, checkpoint};
use crate::database::{DatabaseError, SCHEMA_LOCK};

/// The entries that are read at once.
const LINES_AT_ONCE: i64 = 1_000;

/// The state that decides about calls.
struct PruneContext {
    times: PruneTimes,
    keys: HashMap<[u8; 16], Vec<KeyRow>>,
    /// The keys of calls without an outcome: an action among them needs the outcomes of its steps.
    unfinished: HashSet<[u8; 32]>,
    /// By call without an end, the process that holds its journal.
    unended: HashMap<Uuid, Option<Uuid>>,
    /// The ends of the journals of this process, which it knows itself.
    own_ends: HashMap<Uuid, u64>,
    /// The ends of the journals of ended processes, as they are in the database.
    left_ends: HashMap<Uuid, u64>,
    lives: Lives,
}

/// A request to remove old calls.
#[derive(Clone, Copy)]
pub(super) struct PruneRequest<'u> {
    /// Calls that were received before it go, as far as none of them is needed.
    pub(super) before: Timestamp,
    pub(super) dry_run: bool,
    /// The operator who asks for it; none if it is retention.
    pub(super) user: Option<&'u str>,
}

/// Removes old calls.
pub(super) async fn prune(running: &Arc<Running>, request: PruneRequest<'_>) -> Result<Pruned, AuditError> {
    let shared = &running.shared;
    let mut session = shared.pool.get().await?;
    let client = session.client();
    let lock = "SELECT pg_try_advisory_lock($1)";
    let lock_number = SCHEMA_LOCK ^ 2;
    let row = client.query_one(lock, &[&lock_number]).await.map_err(DatabaseError::from)?;
    if !row.try_get::<_, bool>(0).map_err(DatabaseError::from)? {
        return Err(AuditError::new(AuditErrorKind::Locked, "it is being pruned already"));
    }
    // The lock ends with the session, unless it is given back.
    let pruned = prune_locked(running, client, request).await;
    client.execute("SELECT pg_advisory_unlock($1)", &[&lock_number]).await.map_err(DatabaseError::from)?;
    session.give_back();
    pruned
}

async fn prune_locked(
    running: &Arc<Running>,
    client: &mut Client,
    request: PruneRequest<'_>,
) -> Result<Pruned, AuditError> {
    let shared = &running.shared;
    if checkpoint::is_empty(client).await? {
        return Ok(Pruned::default());
    }
    if let Some(loss) = shared.checkpoints.loss(client).await? {
        return Err(AuditError::new(AuditErrorKind::Lost, loss));
    }
    // What this process has written is signed for first, so that it can go.
    if !request.dry_run {
        running.submit(Command::Begin).await?;
        running.sign().await?;
    }
    let journals = shared.checkpoints.journals(client).await?;
    let journals = journals.ok_or_else(|| {
        AuditError::new(
            AuditErrorKind::Tampered,
            "the signed statement in the database is missing or was changed",
        )
    })?;
    let context = context(running, client, request.before).await?;
    let mut cuts = BTreeMap::new();
    for (writer, journal) in &journals {
        let Ok(name) = Uuid::try_parse(writer) else { continue };
        let mut cut = cut(client, name, journal, &context).await?;
        cut.kept.leave_out_freed(|call, key| Ok(context.is_blocked(call, key)))?;
        cuts.insert(name, cut);
    }
    let pruned = prune_result(cuts.values());
    cuts.retain(|_, cut| cut.entries > 0);
    if !request.dry_run {
        // Of a process that ended while it pruned.
        let bases = journals.iter().filter_map(|(writer, it)| Some((Uuid::try_parse(writer).ok()?, it.base)));
        remove(client, &bases.collect(), &[]).await?;
        if !cuts.is_empty() {
            carry_out(running, client, &cuts, &pruned, request).await?;
        }
    }
    Ok(pruned)
}

async fn context(
    running: &Arc<Running>,
    client: &mut Client,
    before: Timestamp,
) -> Result<PruneContext, AuditError> {
    let time = running.submit(Command::Time).await?;
    let own = running.holdings().await?;
    // In this order: all calls up to these ends are in the table of calls then.
    let gone = process::gone(client, &running.shared.home).await?;
    let left_ends = left_ends(client, &gone).await?;
    calls::fill(client, &mut |_| ()).await?;
    let mut keys_of = HashMap::<_, Vec<_>>::new();
    let all = keys::all(client).await?;
    let unfinished = all.iter().filter(|row| row.stored.is_unfinished()).map(|row| row.key).collect();
    for row in all {
        keys_of.entry(row.stored.call).or_default().push(row);
    }
    Ok(PruneContext {
        times: PruneTimes { before, now: time.removal_time() },
        keys: keys_of,
        unfinished,
        unended: unended(client).await?,
        own_ends: own.chains.iter().map(|(name, head)| (*name, head.n)).collect(),
        left_ends,
        lives: Lives { own, gone },
    })
}

/// Returns the ends of the journals of ended processes.
async fn left_ends(client: &Client, gone: &GoneProcesses) -> Result<HashMap<Uuid, u64>, DatabaseError> {
    let mut ends = HashMap::new();
    for row in client.query("SELECT name, n, holder FROM cofferdam.writers", &[]).await? {
        if gone.has(row.try_get(2)?) {
            ends.insert(row.try_get(0)?, unsigned(row.try_get(1)?));
        }
    }
    Ok(ends)
}

/// Returns the calls without an end, each with the process that holds its journal.
async fn unended(client: &Client) -> Result<HashMap<Uuid, Option<Uuid>>, DatabaseError> {
    let select = "SELECT c.id, w.holder FROM cofferdam.calls c LEFT JOIN cofferdam.writers w ON w.name = c.writer \
                  WHERE c.status = 0";
    let rows = client.query(select, &[]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Returns what can go of a journal.
async fn cut(
    client: &Client,
    writer: Uuid,
    journal: &SignedJournal,
    context: &PruneContext,
) -> Result<JournalCut, AuditError> {
    let mut cut = JournalCut::after(journal.base);
    // What follows the last entry of a call: removing it alone would gain nothing.
    let mut rest = JournalCut::after(journal.base);
    let end_in = |ends: &HashMap<Uuid, u64>| ends.get(&writer).copied().unwrap_or(0);
    let known = end_in(&context.own_ends).max(journal.head.n);
    // What a process that lives has not signed for yet stays.
    let to = signed(end_in(&context.left_ends).max(known));
    loop {
        let select = "SELECT line FROM cofferdam.entries WHERE writer = $1 AND n > $2 AND n <= $3 ORDER BY n, at LIMIT $4";
        let from = signed(rest.base.n);
        let rows = client
            .query(select, &[&writer, &from, &to, &LINES_AT_ONCE])
            .await
            .map_err(DatabaseError::from)?;
        for row in &rows {
            let text: &str = row.try_get(0).map_err(DatabaseError::from)?;
            let blocker = |id: &AuditId, rest: &mut JournalCut| Ok(context.blocker(id, rest));
            let kept = rest.kept.count();
            let Some(line) = rest.add(text.as_bytes(), journal.head, context.times, blocker)? else {
                cut.stopped = rest.stopped;
                return Ok(cut);
            };
            // It may be forged: it can go, but no host writes again what it says.
            if line.n > known && rest.kept.count() > kept {
                return Ok(cut);
            }
            if line.audit_id.is_some() {
                cut.extend(rest);
                rest = JournalCut::after(cut.base);
            }
        }
        if rows.is_empty() {
            return Ok(cut);
        }
    }
}

impl PruneContext {
    /// Returns true if a key is taken for good by this call.
    fn is_blocked(&self, call: &[u8; 16], key: &[u8; 32]) -> bool {
        let mut held = self.keys.get(call).into_iter().flatten();
        held.any(|row| row.key == *key && row.stored.state == StoredKeyState::Blocked)
    }

    /// Returns the reason why a call stays. Otherwise its keys that stay taken, and those whose outcomes stand no
    /// longer, are added to `part`.
    fn blocker(&self, id: &AuditId, part: &mut JournalCut) -> Option<PruneBlocker> {
        if let Some(holder) = self.unended.get(&stored_id(id)) {
            let is_incomplete = self.lives.is_incomplete(id, *holder);
            return Some(if is_incomplete { PruneBlocker::Incomplete } else { PruneBlocker::Running });
        }
        let mut held = self.keys.get(&id.bytes()).into_iter().flatten();
        held.find_map(|row| part.blocked_by(&row.key, &row.stored, self.times.now, &self.unfinished))
    }
}

async fn carry_out(
    running: &Arc<Running>,
    client: &mut Client,
    cuts: &BTreeMap<Uuid, JournalCut>,
    pruned: &Pruned,
    PruneRequest { before, user, .. }: PruneRequest<'_>,
) -> Result<(), AuditError> {
    let shared = &running.shared;
    let now = shared.clock.timestamp();
    let removed = cuts.iter().map(|(writer, cut)| (writer.to_string(), cut));
    let entries = prune_entries(removed, before, pruned, user, now);
    running.submit(|reply| Command::Entries(entries, reply)).await?;
    // Every signed statement is about a larger log than the one before it.
    running.sign().await?;
    let bases = cuts.iter().map(|(writer, cut)| (*writer, cut.base)).collect();
    shared.checkpoints.prune(shared, &bases).await?;
    failpoint::pass("prune.signed");
    let expired: Vec<_> = cuts.values().flat_map(|cut| cut.expired.iter().copied()).collect();
    Ok(remove(client, &bases, &expired).await?)
}

/// Removes the entries of journals up to their new beginnings, what is sealed of them, and what is derived from them.
async fn remove(
    client: &mut Client,
    bases: &BTreeMap<Uuid, ChainHead>,
    expired: &[HeldKey],
) -> Result<(), DatabaseError> {
    let (names, ns): (Vec<_>, Vec<_>) =
        bases.iter().filter(|(_, base)| base.n > 0).map(|(name, base)| (*name, signed(base.n))).unzip();
    if names.is_empty() {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    let (keys, calls): (Vec<_>, Vec<_>) =
        expired.iter().map(|(key, call)| (&key[..], Uuid::from_bytes(*call))).unzip();
    // An action may have begun again meanwhile.
    let release = "DELETE FROM cofferdam.keys k USING unnest($1::bytea[], $2::uuid[]) AS e (key, call) \
                   WHERE k.key = e.key AND k.call = e.call AND k.state = 1 AND NOT EXISTS \
                   (SELECT FROM cofferdam.keys a WHERE a.key = k.action_key AND a.state IN (0, 2))";
    transaction.execute(release, &[&keys, &calls]).await?;
    // Calls whose beginning goes. Those that go on have their last entries left.
    let parts = "WITH gone AS (DELETE FROM cofferdam.calls c USING unnest($1::uuid[], $2::bigint[]) AS b (name, n) \
                 WHERE c.writer = b.name AND c.first_n <= b.n RETURNING c.writer, c.parts) \
                 DELETE FROM cofferdam.sealed s USING gone g WHERE s.writer = g.writer AND s.place = ANY(g.parts)";
    transaction.execute(parts, &[&names, &ns]).await?;
    let events = "DELETE FROM cofferdam.operator_events o USING unnest($1::uuid[], $2::bigint[]) AS b (name, n) \
                  WHERE o.writer = b.name AND o.n <= b.n";
    transaction.execute(events, &[&names, &ns]).await?;
    transaction.commit().await?;
    let now = client.query_one("SELECT clock_timestamp()", &[]).await?.try_get(0)?;
    for [entries, sealed] in old_partitions(client, now).await? {
        let transaction = client.transaction().await?;
        let stays = format!(
            "SELECT EXISTS (SELECT FROM {entries} e LEFT JOIN unnest($1::uuid[], $2::bigint[]) AS b (name, n) \
             ON b.name = e.writer WHERE b.n IS NULL OR e.n > b.n)"
        );
        if !transaction.query_one(&stays, &[&names, &ns]).await?.try_get::<_, bool>(0)? {
            transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&SCHEMA_LOCK]).await?;
            transaction
                .batch_execute(&format!("DROP TABLE {entries}; DROP TABLE IF EXISTS {sealed}"))
                .await?;
        }
        transaction.commit().await?;
    }
    let rest = "DELETE FROM cofferdam.entries e USING unnest($1::uuid[], $2::bigint[]) AS b (name, n) \
                WHERE e.writer = b.name AND e.n <= b.n";
    client.execute(rest, &[&names, &ns]).await?;
    Ok(())
}
