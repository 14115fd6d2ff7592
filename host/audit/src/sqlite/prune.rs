//! Pruning: the oldest part of the chain is removed in small steps, and a signed statement takes its place.
//!
//! Only complete calls that ended long ago are removed, from the beginning of the chain up to the first call
//! that must stay: one that is younger, has no end, or holds an idempotency key. A key that an operator decided
//! about outlives its call. Each step is a transaction that leaves a valid audit log; calls continue between
//! two steps. The time at which a call was received and the fact that it ended are taken from the chain itself,
//! not from the list of calls. Inconsistent data is never removed: it is evidence.
//!
//! Removed data is overwritten with zeros in the file. The file does not shrink; its space is used again.

use std::collections::BTreeSet;
use std::path::Path;

use cofferdam_core::digest::Digest;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::{Map, Value, json};

use super::find;
use super::owners;
use super::rollup::{self, Ended};
use super::sealed;
use super::signing::{self, Signing};
use super::write_command::Reply;
use super::writer::{self, Head};
use crate::checkpoint::{Checkpoint, Statement};
use crate::command::{PruneBlocker, PruneStop, Pruned};
use crate::entry::GENESIS;
use crate::error::{AuditError, AuditErrorKind};
use crate::log::StoredEntry;
use crate::verify::Verifier;

/// Entries that one step looks at, and the most where calls overlap so much that no place to cut is among them.
const STEP: u64 = 256;
const MOST: u64 = 65_536;

/// A pruning under way.
pub(super) struct Pruning {
    /// Calls that were received before go.
    before: Timestamp,
    dry_run: bool,
    reply: Option<Reply<Pruned>>,
    /// The beginning of the chain, once it was looked up.
    base: Option<Head>,
    pruned: Pruned,
    says: bool,
}

/// A place where the chain can be cut.
struct Cut {
    head: Head,
    calls: Vec<[u8; 16]>,
    until: Option<Timestamp>,
    /// Keys of pruned calls that stay blocked forever. The entry that says so is pruned as well, and is written
    /// again.
    keys: Vec<Value>,
}

impl Pruning {
    pub(super) fn new(before: Timestamp, dry_run: bool, reply: Option<Reply<Pruned>>) -> Self {
        Self { before, dry_run, reply, base: None, pruned: Pruned::default(), says: false }
    }

    /// Creates an automatic pruning; `says` is true if it logs the call that stops it.
    pub(super) fn by_itself(before: Timestamp, says: bool) -> Self {
        Self { says, ..Self::new(before, false, None) }
    }

    /// Returns true if the oldest call is older than `before`, so that there may be something to prune.
    pub(super) fn is_due(connection: &Connection, before: Timestamp) -> bool {
        let oldest = "SELECT at FROM calls ORDER BY id LIMIT 1";
        let oldest = connection.query_row(oldest, [], |row| row.get::<_, i64>(0)).optional();
        matches!(oldest, Ok(Some(at)) if at < before.as_microsecond())
    }

    /// One step; whether there is another.
    pub(super) fn step(
        &mut self,
        connection: &Connection,
        signing: &Signing,
        lives: &Lives<'_>,
    ) -> Result<bool, AuditError> {
        let base = match self.base.take() {
            Some(base) => base,
            None => base(connection, signing)?,
        };
        let mut most = STEP;
        loop {
            let (cut, is_all) = self.cut(connection, signing, lives, &base, most)?;
            match cut {
                Some(cut) => {
                    if !self.dry_run {
                        signing.remember(connection)?;
                        remove(connection, signing, &cut)?;
                    }
                    self.pruned.entries =
                        self.pruned.entries.saturating_add(cut.head.n.saturating_sub(base.n));
                    self.pruned.calls = self.pruned.calls.saturating_add(cut.calls.len() as u64);
                    self.pruned.through = cut.head.n;
                    self.pruned.until = self.pruned.until.max(cut.until);
                    self.base = Some(cut.head);
                    return Ok(!is_all);
                }
                None if is_all || most >= MOST => return Ok(false),
                None => most = most.saturating_mul(4),
            }
        }
    }

    /// Returns the furthest place to cut among the next entries, and true if the part after it must stay.
    ///
    /// The chain decides what is pruned, as the verification reads it. The list of calls can only make more
    /// stay; if it contradicts the chain, nothing is pruned.
    fn cut(
        &mut self,
        connection: &Connection,
        signing: &Signing,
        lives: &Lives<'_>,
        base: &Head,
        most: u64,
    ) -> Result<(Option<Cut>, bool), AuditError> {
        let head = writer::head(connection)?;
        let key = signing.signer.key();
        let mut chain = Verifier::new(&key);
        chain.begin_after(base.n, base.hash);
        self.signed(connection, signing, &head, &mut chain)?;
        let select = "SELECT n, body, hash, prev FROM entries WHERE n > ?1 ORDER BY n LIMIT ?2";
        let mut select = connection.prepare_cached(select)?;
        let mut rows = select.query(params![base.n, most])?;
        let (mut reach, mut calls) = (0, Vec::new());
        let (mut cut, mut until, mut keys) = (None, None, Vec::new());
        let mut seen = 0;
        let mut must_stay = false;
        while let Some(row) = rows.next()? {
            let (n, body, hash): (u64, String, [u8; 32]) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let id = call_of(&body);
            if id.is_none() {
                keys.extend(keys_kept(&body));
            }
            // The last entry stays: it says where the chain goes on.
            if n == head.n {
                must_stay = true;
                break;
            }
            let over = chain.entry(&StoredEntry { n, body, hash }, Some(row.get(3)?));
            if chain.finding_after(0).is_some() {
                return Err(evidence(base.n.max(n.saturating_sub(1)).saturating_add(1)));
            }
            if let Some(id) = id {
                let kept = self.call(connection, id.bytes())?.ok_or_else(|| evidence(n))?;
                let said = over.as_ref().map(|(_, call)| &**call).or(chain.open(&id));
                if let Some(said) = said.filter(|said| said.first == n) {
                    if said.at != kept.at || kept.first != n {
                        return Err(evidence(n));
                    }
                    if said.at >= self.before {
                        must_stay = true;
                        break;
                    }
                    calls.push(id.bytes());
                    until = until.max(Some(said.at));
                }
                if let Some(why) = kept.why(connection, lives)? {
                    self.pruned.stopped = Some(PruneStop::new(id, why));
                    must_stay = true;
                    break;
                }
                // Only what is sealed of its end may come after it.
                let is_over = chain.open(&id).is_none();
                if is_over && kept.last < n || !is_over && kept.last <= n {
                    return Err(evidence(n));
                }
                reach = kept.last.max(reach);
                if over.as_ref().is_some_and(|(_, call)| call.is_resumed()) {
                    // The call that does it again stands next: what it is is told by what stands before it.
                    reach = n.saturating_add(1).max(reach);
                }
            }
            // Entries of the audit log about itself are pruned only with the calls after them, and written
            // again no more often than calls are pruned.
            if reach <= n && chain.has_none_open() && !calls.is_empty() {
                cut = Some((Head { n, hash }, calls.len(), until, keys.len()));
            }
            seen += 1;
        }
        let cut = cut.map(|(head, so_many, until, so_many_keys)| {
            calls.truncate(so_many);
            keys.truncate(so_many_keys);
            Cut { head, calls, until, keys }
        });
        Ok((cut, must_stay || seen < most))
    }

    /// Feeds the signed statements about the next entries to the verifier for comparison: a rewritten history
    /// has no matching signature.
    fn signed(
        &self,
        connection: &Connection,
        signing: &Signing,
        head: &Head,
        chain: &mut Verifier<'_>,
    ) -> Result<(), AuditError> {
        let key = signing.signer.key();
        let file = signing.anchor.read()?;
        if let Some(file) = file.as_deref()
            && let Ok(said) = Checkpoint::read(file, &key)
        {
            let there = signing::hash_at(connection, head, said.n)?;
            if said.n > head.n || there.is_some_and(|hash| hash != Some(said.hash)) {
                return Err(evidence(said.n));
            }
        }
        let select = "SELECT note FROM checkpoints WHERE kind = 'head' AND n > ?1 ORDER BY n LIMIT 100";
        let mut select = connection.prepare_cached(select)?;
        let mut notes = select.query([chain.n()])?;
        while let Some(note) = notes.next()? {
            let note: String = note.get(0)?;
            if Checkpoint::read(&note, &key).is_ok() {
                drop(chain.note(&note, 0, "a checkpoint"));
            }
        }
        Ok(())
    }

    fn call(&self, connection: &Connection, id: [u8; 16]) -> Result<Option<Call>, AuditError> {
        let select = "SELECT calls.at, calls.first, calls.last, calls.verdict, keys.state, keys.until, calls.owner \
                      FROM calls LEFT JOIN keys ON keys.key = calls.key AND keys.call = calls.id WHERE calls.id = ?1";
        let call = connection.prepare_cached(select)?.query_row([id], |row| {
            let (state, until): (Option<i64>, Option<i64>) = (row.get(4)?, row.get(5)?);
            Ok(Call {
                at: Timestamp::from_microsecond(row.get(0)?).unwrap_or_default(),
                first: row.get(1)?,
                last: row.get(2)?,
                has_no_end: row.get::<_, i64>(3)? == 0,
                key: state.map(|state| (state, until)),
                owner: row.get(6)?,
            })
        });
        Ok(call.optional()?)
    }

    /// Ends it: puts on record what was done, and tells.
    pub(super) fn end(
        self,
        connection: &Connection,
        lives: &Lives<'_>,
        outcome: Result<(), AuditError>,
    ) -> Result<Option<Head>, AuditError> {
        let said = match outcome {
            Ok(()) if self.pruned.entries > 0 && !self.dry_run => self.say(connection, lives).map(Some),
            Ok(()) => Ok(None),
            Err(error) => Err(error),
        };
        match (self.reply, &self.pruned.stopped) {
            (Some(reply), _) => drop(reply.send(said.clone().map(|_| self.pruned))),
            // By itself, which is once an hour.
            (None, Some(PruneStop { audit_id, why, decide: Some(decide) })) if self.says => {
                tracing::warn!(target: "cofferdam::audit", audit_id = audit_id.as_str(), "nothing younger than this call is pruned, since {}: {decide}", why.says());
            }
            (None, _) => {}
        }
        said
    }

    fn say(&self, connection: &Connection, lives: &Lives<'_>) -> Result<Head, AuditError> {
        let mut payload = Map::new();
        payload.insert("through".into(), self.pruned.through.into());
        payload.insert("entries".into(), self.pruned.entries.into());
        payload.insert("calls".into(), self.pruned.calls.into());
        payload.insert("before".into(), format!("{:.6}", self.before).into());
        let transaction = signing::begin(connection)?;
        let head = writer::head(&transaction)?;
        let head = signing::say(&transaction, &head, "pruned", &payload)?;
        let gone: Vec<i64> = {
            let select = "SELECT id, name FROM owners WHERE id <> ?1 AND id NOT IN (SELECT owner FROM calls)";
            let mut select = transaction.prepare(select)?;
            let rows = select.query_map([lives.own], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            rows.into_iter().filter(|(_, name)| !owners::holds(lives.dir, name)).map(|(id, _)| id).collect()
        };
        for id in gone {
            transaction.prepare_cached("DELETE FROM owners WHERE id = ?1")?.execute([id])?;
        }
        transaction.commit()?;
        Ok(head)
    }
}

struct Call {
    at: Timestamp,
    first: u64,
    last: u64,
    has_no_end: bool,
    /// The state of its key, and until when it stands.
    key: Option<(i64, Option<i64>)>,
    owner: i64,
}

/// Which hosts live: this one, and those whose files in this directory are locked.
pub(super) struct Lives<'w> {
    pub(super) dir: &'w Path,
    pub(super) own: i64,
}

impl Call {
    /// Why it stays however old it is.
    fn why(&self, connection: &Connection, lives: &Lives<'_>) -> Result<Option<PruneBlocker>, AuditError> {
        let now = Timestamp::now().as_microsecond();
        Ok(match self.key {
            _ if self.has_no_end => {
                let lives = self.owner == lives.own || find::owner_lives(connection, lives.dir, self.owner)?;
                Some(if lives { PruneBlocker::Running } else { PruneBlocker::Incomplete })
            }
            Some((1, until)) => until.is_none_or(|until| until > now).then_some(PruneBlocker::KeyStands),
            // The decision says that no call runs under the key, and the audit log keeps that without the call.
            Some((3, _)) | None => None,
            Some(_) => Some(PruneBlocker::KeyUndecided),
        })
    }
}

/// Returns the beginning of the chain: its very first entry, or the end of the part that was pruned before.
fn base(connection: &Connection, signing: &Signing) -> Result<Head, AuditError> {
    let Some((_, note)) = signing::base(connection)? else { return Ok(Head { n: 0, hash: GENESIS }) };
    match Checkpoint::read(&note, &signing.signer.key()) {
        Ok(Checkpoint { n, hash, statement: Statement::Pruned, .. }) => Ok(Head { n, hash }),
        _ => Err(evidence(1)),
    }
}

fn remove(connection: &Connection, signing: &Signing, cut: &Cut) -> Result<(), AuditError> {
    connection.pragma_update(None, "secure_delete", true)?;
    let removed = remove_with(connection, signing, cut);
    connection.pragma_update(None, "secure_delete", "fast")?;
    removed
}

fn remove_with(connection: &Connection, signing: &Signing, cut: &Cut) -> Result<(), AuditError> {
    let transaction = signing::begin(connection)?;
    transaction.prepare_cached("DELETE FROM entries WHERE n <= ?1")?.execute([cut.head.n])?;
    let mut keys = cut.keys.clone();
    for id in &cut.calls {
        let select = "SELECT key, fingerprint FROM keys WHERE call = ?1 AND state = 3 \
                      AND key = (SELECT key FROM calls WHERE id = ?1)";
        let kept = transaction.prepare_cached(select)?.query_row([id], |row| {
            let (key, stood): (String, [u8; 32]) = (row.get(0)?, row.get(1)?);
            let key = Digest::sha256(key.as_bytes()).to_string();
            let stood = Digest::from_bytes(stood).to_string();
            Ok(json!({"call": AuditId::from_bytes(*id).as_str(), "key_sha256": key, "fingerprint": stood}))
        });
        keys.extend(kept.optional()?);
    }
    let mut gone = Vec::with_capacity(cut.calls.len());
    for id in &cut.calls {
        let select = "SELECT at, route, verdict, duration, actor, sealed FROM calls WHERE id = ?1";
        let (call, actor, bytes): (_, String, _) =
            transaction.prepare_cached(select)?.query_row([id], |row| {
                let (at, route, verdict, duration) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
                Ok((Ended { id: *id, at, route, verdict, duration }, row.get(4)?, row.get(5)?))
            })?;
        gone.push(call);
        sealed::removed(&transaction, &actor, bytes)?;
    }
    let routes: BTreeSet<i64> = gone.iter().map(|call: &Ended| call.route).collect();
    rollup::removed(&transaction, gone)?;
    for id in &cut.calls {
        transaction
            .prepare_cached(
                "DELETE FROM keys WHERE call = ?1 AND state <> 3 AND key = (SELECT key FROM calls WHERE id = ?1)",
            )?
            .execute([id])?;
        transaction.prepare_cached("DELETE FROM calls WHERE id = ?1")?.execute([id])?;
    }
    // Removes routes without a call. Hosts that cache a route's number notice that the chain begins elsewhere.
    for route in routes {
        let delete = "DELETE FROM routes WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM calls WHERE route = ?1) \
                      AND NOT EXISTS (SELECT 1 FROM rollup WHERE route = ?1)";
        transaction.prepare_cached(delete)?.execute([route])?;
    }
    let delete = "DELETE FROM checkpoints WHERE n <= ?1";
    transaction.prepare_cached(delete)?.execute([cut.head.n])?;
    let note = signing.note(&cut.head, Statement::Pruned);
    let insert = "INSERT INTO checkpoints (n, kind, note) VALUES (?1, 'base', ?2)";
    transaction.prepare_cached(insert)?.execute(params![cut.head.n, note])?;
    if !keys.is_empty() {
        let head = writer::head(&transaction)?;
        let payload = Map::from_iter([("keys".to_owned(), keys.into())]);
        signing::say(&transaction, &head, "keys_kept", &payload)?;
    }
    Ok(transaction.commit()?)
}

/// The keys in an entry that says which are kept of calls that are pruned.
fn keys_kept(body: &str) -> Vec<Value> {
    let body = serde_json::from_str::<Value>(body).unwrap_or_default();
    match body.pointer("/log/type").and_then(Value::as_str) {
        Some("keys_kept") => {
            body.pointer("/log/payload/keys").and_then(Value::as_array).cloned().unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

fn call_of(body: &str) -> Option<AuditId> {
    let id = body.strip_prefix("{\"audit_id\":\"")?.split('"').next()?;
    AuditId::parse(id)
}

fn evidence(n: u64) -> AuditError {
    let what =
        format!("entry {n} does not hold together, and is not pruned; `cofferdam audit verify` says more");
    AuditError::new(AuditErrorKind::Tampered, what)
}
