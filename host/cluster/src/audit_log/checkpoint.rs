//! The signed statement about all journals, in the database, and its comparison with what this home remembers.
//!
//! A process signs only for the ends of its own journals, which it knows itself: a host never vouches for what it only reads
//! in the database.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cofferdam_audit::store::{
    ChainHead, HomeMemory, LogCheckpoint, SignedJournal, StoredCheckpoint, begin_journals, end_journals,
};
use cofferdam_audit::{AuditError, AuditErrorKind, NoteSigner};
use cofferdam_core::failpoint;
use cofferdam_core::home_state::{HomeState, LogProgress, StateLoss, StoredState};
use cofferdam_core::host_key;
use sha2::{Digest as _, Sha256};
use tokio_postgres::{GenericClient, Transaction};
use uuid::Uuid;

use super::LogShared;
use super::batch::{signed, unsigned};
use super::process::HomeIdentity;
use super::session::answered;
use crate::database::DatabaseError;

/// The statement of the cluster, and the state of the home that remembers it.
pub(super) struct Checkpoints {
    host_key: PathBuf,
    pub(super) state: HomeState,
    home: HomeIdentity,
}

impl Checkpoints {
    pub(super) fn new(home: &Path) -> Self {
        let (host_key, state) = (home.join("host.key"), HomeState::new(home));
        Self { host_key, state, home: HomeIdentity::of(home) }
    }

    pub(super) fn signer(&self) -> Result<NoteSigner, AuditError> {
        Ok(NoteSigner::new(&host_key::read(&self.host_key)?))
    }

    /// Returns the journals of the statement; none if it is missing or was changed.
    pub(super) async fn journals(
        &self,
        client: &impl GenericClient,
    ) -> Result<Option<BTreeMap<String, SignedJournal>>, AuditError> {
        Ok(self.read(text(client).await?)?.valid().map(|checkpoint| checkpoint.journals))
    }

    fn read(&self, note: Option<String>) -> Result<StoredCheckpoint, AuditError> {
        Ok(StoredCheckpoint::read(note.as_deref(), Some(&self.signer()?.key())))
    }

    /// Signs that journals of this process have these ends, and returns the note.
    pub(super) async fn sign(
        &self,
        shared: &LogShared,
        heads: &[(Uuid, ChainHead)],
    ) -> Result<String, AuditError> {
        self.change(shared, |journals| end_journals(journals, heads)).await
    }

    /// Signs that journals begin after these entries.
    pub(super) async fn prune(
        &self,
        shared: &LogShared,
        bases: &BTreeMap<Uuid, ChainHead>,
    ) -> Result<(), AuditError> {
        self.change(shared, |journals| begin_journals(journals, bases)).await.map(drop)
    }

    /// Signs a changed statement.
    async fn change(
        &self,
        shared: &LogShared,
        change: impl FnOnce(&mut BTreeMap<String, SignedJournal>),
    ) -> Result<String, AuditError> {
        let mut session = shared.pool.get().await?;
        let transaction = session.client().transaction().await.map_err(DatabaseError::from)?;
        lock(&transaction).await?;
        let memory = HomeMemory::read(&self.state)?;
        let stored = self.read(text(&transaction).await?)?;
        let is_new =
            matches!(stored, StoredCheckpoint::Missing) && memory.is_new() && is_empty(&transaction).await?;
        let checkpoint = stored.signable(is_new, "the signed statement in the database")?;
        self.join(checkpoint.as_ref())?;
        // A statement over a loss would grow past what the home remembers, and hide it.
        if let Err(loss) = HomeMemory::read(&self.state)?.progress(checkpoint.as_ref()) {
            return Err(AuditError::new(AuditErrorKind::Tampered, loss));
        }
        let mut journals = checkpoint.map(|checkpoint| checkpoint.journals).unwrap_or_default();
        change(&mut journals);
        let checkpoint = LogCheckpoint::new(shared.clock.timestamp(), journals);
        let note = checkpoint.sign(&self.signer()?);
        store(&transaction, &note).await?;
        answered(transaction.commit()).await?;
        failpoint::pass("checkpoint.written");
        session.give_back();
        self.state.advance_log(checkpoint.size(), checkpoint.root())?;
        self.home.join()?;
        Ok(note)
    }

    /// Signs for these journals, whatever was signed before: the operator accepts that.
    pub(super) async fn accept(
        &self,
        shared: &LogShared,
        journals: BTreeMap<String, SignedJournal>,
    ) -> Result<String, AuditError> {
        let mut session = shared.pool.get().await?;
        let transaction = session.client().transaction().await.map_err(DatabaseError::from)?;
        lock(&transaction).await?;
        let checkpoint = LogCheckpoint::new(shared.clock.timestamp(), journals);
        let note = checkpoint.sign(&self.signer()?);
        store(&transaction, &note).await?;
        let accept = "UPDATE cofferdam.losses SET is_accepted = true; \
                      UPDATE cofferdam.cluster SET incarnation = cofferdam.incarnation()";
        transaction.batch_execute(accept).await.map_err(DatabaseError::from)?;
        answered(transaction.commit()).await?;
        session.give_back();
        self.state.accept(checkpoint.size(), checkpoint.root())?;
        Ok(note)
    }

    /// Has a home that remembers nothing remember the statement: that of a host that joins the cluster.
    fn join(&self, checkpoint: Option<&LogCheckpoint>) -> Result<(), AuditError> {
        let is_missing = self.state.read()? == StoredState::Missing;
        if !is_missing || self.state.has_counted_vault()? {
            return Ok(());
        }
        let log = checkpoint.map(|it| LogProgress { n: it.size(), hash: it.root(), highest: it.size() });
        self.state.create(log)?;
        Ok(self.home.join()?)
    }

    /// Returns what is missing of the log: the database is older than it was, or another one. What one home remembers counts
    /// for all hosts.
    pub(super) async fn loss(&self, client: &impl GenericClient) -> Result<Option<StateLoss>, AuditError> {
        let own = self.own_loss(client).await?;
        if let Some(StateLoss::LogOlder(n) | StateLoss::LogOther(n)) = own {
            self.miss(client, n, false).await?;
        }
        if own.is_some() {
            return Ok(own);
        }
        let select = "SELECT incarnation <> cofferdam.incarnation(), \
                      EXISTS (SELECT FROM cofferdam.losses WHERE NOT is_accepted) FROM cofferdam.cluster";
        let row = client.query_one(select, &[]).await.map_err(DatabaseError::from)?;
        let (is_restored, is_found) =
            (row.try_get(0).map_err(DatabaseError::from)?, row.try_get(1).map_err(DatabaseError::from)?);
        Ok(match (is_restored, is_found) {
            (true, _) => Some(StateLoss::LogRestored),
            (false, true) => Some(StateLoss::LogLossFound),
            (false, false) => None,
        })
    }

    /// Has all hosts know that entries are missing of which this home knows, the last of them with this number. With
    /// `is_new`, a loss with the same number that was accepted is another one.
    pub(super) async fn miss(
        &self,
        client: &impl GenericClient,
        n: u64,
        is_new: bool,
    ) -> Result<(), DatabaseError> {
        let Some(home) = self.home.member()? else { return Ok(()) };
        let insert = "INSERT INTO cofferdam.losses (home, remembered) VALUES ($1, $2) \
                      ON CONFLICT (home, remembered) DO UPDATE SET is_accepted = false WHERE $3::boolean";
        answered(client.execute(insert, &[&home, &signed(n), &is_new])).await.map(drop)
    }

    /// Returns what is missing of the log, as far as this home remembers. What it sees to be right, it remembers.
    async fn own_loss(&self, client: &impl GenericClient) -> Result<Option<StateLoss>, AuditError> {
        // In this order: what is read later is never behind what it is compared with.
        let stored = self.state.read()?;
        let mut note = text(client).await?;
        if stored == StoredState::Missing {
            // A host that joins, or a new cluster; unless the home has counted before.
            let is_counted = self.state.has_counted_vault()?;
            return Ok(is_counted.then_some(StateLoss::StateMissing));
        }
        let memory = HomeMemory::read(&self.state)?;
        loop {
            let Some(loss) = self.compare(&memory, note.clone(), client).await? else { return Ok(None) };
            // A host may have signed, and pruned what it signed for, between what was read.
            let now = text(client).await?;
            if now == note {
                return Ok(Some(loss));
            }
            note = now;
        }
    }

    async fn compare(
        &self,
        memory: &HomeMemory,
        note: Option<String>,
        client: &impl GenericClient,
    ) -> Result<Option<StateLoss>, AuditError> {
        let checkpoint = self.read(note)?.valid();
        let progress = match memory.progress(checkpoint.as_ref()) {
            Ok(Some(progress)) => progress,
            Ok(None) => return Ok(None),
            Err(loss) => return Ok(Some(loss)),
        };
        let journals = checkpoint.iter().flat_map(|checkpoint| &checkpoint.journals);
        let journals: Vec<_> = journals
            .filter(|(_, SignedJournal { head, base })| head.n != base.n)
            .filter_map(|(writer, journal)| Some((Uuid::try_parse(writer).ok()?, journal)))
            .collect();
        let ends = journals.iter().map(|(name, SignedJournal { head, .. })| (*name, signed(head.n)));
        let hashes = hashes_of(client, ends).await?;
        for (name, SignedJournal { head, .. }) in &journals {
            match hashes.get(name) {
                Some(hash) if *hash == head.hash => {}
                Some(_) => return Ok(Some(StateLoss::LogOther(head.n))),
                None => return Ok(Some(StateLoss::LogOlder(head.n))),
            }
        }
        if let Some(checkpoint) = &checkpoint
            && progress.log.is_none_or(|log| log.n < checkpoint.size())
        {
            self.state.advance_log(checkpoint.size(), checkpoint.root())?;
            self.home.join()?;
        }
        Ok(self.state.vault_loss(&progress)?)
    }
}

/// Returns true if no journal has an entry.
pub(super) async fn is_empty(client: &impl GenericClient) -> Result<bool, DatabaseError> {
    let is_empty = "SELECT NOT EXISTS (SELECT FROM cofferdam.writers WHERE n > 0)";
    Ok(client.query_one(is_empty, &[]).await?.try_get(0)?)
}

/// Returns the text of the statement, if there is one.
pub(super) async fn text(client: &impl GenericClient) -> Result<Option<String>, DatabaseError> {
    let row = client.query_opt("SELECT note FROM cofferdam.checkpoint", &[]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Returns the hash of an entry, if there is one.
pub(super) async fn hash_of(
    client: &impl GenericClient,
    writer: Uuid,
    n: i64,
) -> Result<Option<[u8; 32]>, DatabaseError> {
    Ok(hashes_of(client, [(writer, n)].into_iter()).await?.remove(&writer))
}

/// Returns the hashes of one entry of each of these journals, as far as they are there.
async fn hashes_of(
    client: &impl GenericClient,
    entries: impl Iterator<Item = (Uuid, i64)>,
) -> Result<BTreeMap<Uuid, [u8; 32]>, DatabaseError> {
    let select = "SELECT e.writer, e.line FROM unnest($1::uuid[], $2::bigint[]) AS wanted (writer, n) \
                  JOIN cofferdam.entries e ON e.writer = wanted.writer AND e.n = wanted.n";
    let (writers, numbers): (Vec<_>, Vec<_>) = entries.unzip();
    let mut hashes = BTreeMap::new();
    for row in client.query(select, &[&writers, &numbers]).await? {
        let line: &str = row.try_get(1)?;
        hashes.insert(row.try_get(0)?, Sha256::digest(line.as_bytes()).into());
    }
    Ok(hashes)
}

/// Waits for others that sign.
async fn lock(transaction: &Transaction<'_>) -> Result<(), DatabaseError> {
    // A row to lock may be missing.
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&(crate::database::SCHEMA_LOCK ^ 1)]).await?;
    Ok(())
}

async fn store(transaction: &Transaction<'_>, note: &str) -> Result<(), DatabaseError> {
    let store = "INSERT INTO cofferdam.checkpoint (note) VALUES ($1) ON CONFLICT (one) DO UPDATE SET note = excluded.note";
    transaction.execute(store, &[&note]).await?;
    Ok(())
}

/// Returns the journals of the database as they are, for an operator that accepts them.
pub(super) async fn journals_as_they_are(
    client: &impl GenericClient,
    known: &BTreeMap<String, SignedJournal>,
) -> Result<BTreeMap<String, SignedJournal>, DatabaseError> {
    let select = "SELECT w.name, (SELECT min(n) FROM cofferdam.entries e WHERE e.writer = w.name), \
                  (SELECT max(n) FROM cofferdam.entries e WHERE e.writer = w.name) FROM cofferdam.writers w ORDER BY 1";
    let mut journals = BTreeMap::new();
    for row in client.query(select, &[]).await? {
        let name: Uuid = row.try_get(0)?;
        let (first, last): (Option<i64>, Option<i64>) = (row.try_get(1)?, row.try_get(2)?);
        let signed_before = known.get(&name.to_string());
        let (Some(first), Some(last)) = (first, last) else {
            let base = signed_before.map(|journal| journal.base).unwrap_or_default();
            journals.insert(name.to_string(), SignedJournal { head: base, base });
            continue;
        };
        let base = match signed_before {
            Some(journal) if journal.base.n < unsigned(first) => journal.base,
            _ => ChainHead { n: unsigned(first).saturating_sub(1), ..ChainHead::EMPTY },
        };
        let hash = hash_of(client, name, last).await?.unwrap_or_default();
        journals
            .insert(name.to_string(), SignedJournal { head: ChainHead { n: unsigned(last), hash }, base });
    }
    Ok(journals)
}
