//! Work that no call waits for: signing, the table of calls, the quota of sealed bytes, and retention.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use cofferdam_audit::store::{QuotaOutcome, below_quota, retained, warn_once};
use cofferdam_audit::{AuditError, SealedUsage};
use tokio_postgres::Client;
use uuid::Uuid;

use super::batch::unsigned;
use super::prune::PruneRequest;
use super::reader::sealed_usage;
use super::session::{answered, make_partitions};
use super::{LogShared, Running, calls, prune, time};
use crate::database::DatabaseError;

/// The delay after an entry, before it is signed for and indexed.
const DELAY: Duration = Duration::from_secs(1);

/// The time between two runs of retention in a cluster, in seconds.
const RETENTION_INTERVAL: f64 = 60.0 * 60.0;

/// The most calls whose sealed parts are dropped at once.
const CALLS_AT_ONCE: i64 = 1_024;

/// Begins the task that works after entries.
pub(super) fn begin(running: &Arc<Running>) {
    let Ok(runtime) = running.handle() else { return };
    let (weak, shared) = (Arc::downgrade(running), Arc::clone(&running.shared));
    runtime.spawn(async move {
        loop {
            shared.has_new.notified().await;
            tokio::time::sleep(DELAY).await;
            let Some(running) = weak.upgrade() else { return };
            maintain(&running).await;
        }
    });
}

/// Does once an hour what a living host does after a second: some homes are only used by short processes.
pub(super) fn end(running: &Arc<Running>) {
    if !running.has_commands() {
        return;
    }
    let own = Arc::clone(running);
    let work = running.spawn(async move {
        if is_retention_due(&own.shared).await? {
            retain(&own).await?;
        }
        Ok(())
    });
    let retained = cofferdam_audit::wait(work);
    warn_once(&running.shared.warnings, "retention", "old calls were not removed", retained);
}

async fn maintain(running: &Arc<Running>) {
    let (shared, warnings) = (&running.shared, &running.shared.warnings);
    warn_once(warnings, "checkpoint", "no checkpoint was signed", running.sign().await.map(drop));
    warn_once(warnings, "index", "the table of calls is behind the audit log", index(shared).await);
    let retained = match is_retention_due(shared).await {
        Ok(true) => retain(running).await,
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    };
    warn_once(warnings, "retention", "old calls were not removed", retained);
}

async fn index(shared: &LogShared) -> Result<(), AuditError> {
    let mut session = shared.pool.get().await?;
    time::follow(session.client(), shared.given_time()).await?;
    calls::fill(session.client(), &mut |_| ()).await?;
    enforce_quota(shared, session.client()).await?;
    session.give_back();
    Ok(())
}

/// Returns true if no process ran retention in the last hour. The one that gets true runs it.
async fn is_retention_due(shared: &LogShared) -> Result<bool, AuditError> {
    let mut session = shared.pool.get().await?;
    let claim = "UPDATE cofferdam.log_time SET retained = coalesce($1, clock_timestamp()) WHERE retained IS NULL \
                 OR abs(extract(epoch FROM coalesce($1, clock_timestamp()) - retained)::float8) >= $2";
    let given = shared.given_time();
    let is_due = answered(session.client().execute(claim, &[&given, &RETENTION_INTERVAL])).await? == 1;
    session.give_back();
    Ok(is_due)
}

/// Removes calls that are older than the operator keeps, and makes the parts of tables for the time to come.
async fn retain(running: &Arc<Running>) -> Result<(), AuditError> {
    let shared = &running.shared;
    let now = running.submit(super::Command::Time).await?;
    let mut session = shared.pool.get().await?;
    make_partitions(session.client(), SystemTime::from(now.clock)).await?;
    session.give_back();
    let Some(retention) = shared.settings.log.retention else { return Ok(()) };
    let Ok(before) = now.removal_time().checked_sub(retention) else { return Ok(()) };
    retained(prune::prune(running, PruneRequest { before, dry_run: false, user: None }).await)
}

/// Drops sealed parts of the oldest calls that have ended and need no decision, until there are no more than the quota.
async fn enforce_quota(shared: &LogShared, client: &mut Client) -> Result<(), DatabaseError> {
    let quota = shared.settings.log.sealed;
    let mut usage = sealed_usage(client).await?;
    let mut outcome = QuotaOutcome::default();
    for SealedUsage { client: actor, bytes } in &mut usage {
        if *bytes > quota.per_client {
            let (calls, freed) =
                drop_oldest(client, actor, bytes.saturating_sub(below_quota(quota.per_client))).await?;
            if freed == 0 {
                outcome.clients.insert(actor.clone());
            }
            *bytes = bytes.saturating_sub(freed);
            outcome.dropped = outcome.dropped.saturating_add(calls);
        }
    }
    let in_all = usage.iter().fold(0_u64, |sum, of| sum.saturating_add(of.bytes));
    if in_all > quota.in_all {
        usage.sort_by_key(|of| std::cmp::Reverse(of.bytes));
        let mut need = in_all.saturating_sub(below_quota(quota.in_all));
        outcome.is_all = true;
        for of in &usage {
            let (calls, freed) = drop_oldest(client, &of.client, need).await?;
            (need, outcome.is_all) = (need.saturating_sub(freed), outcome.is_all && freed == 0);
            outcome.dropped = outcome.dropped.saturating_add(calls);
            if need == 0 {
                break;
            }
        }
    }
    outcome.warn();
    *shared.quota.write().unwrap_or_else(PoisonError::into_inner) = outcome;
    Ok(())
}

/// Drops the sealed parts of the client's oldest calls, `need` bytes or more. Returns the number of calls and bytes.
async fn drop_oldest(client: &mut Client, actor: &str, need: u64) -> Result<(usize, u64), DatabaseError> {
    let (mut count, mut freed) = (0_usize, 0_u64);
    // The steps of actions last: an interrupted action goes on from the outcomes of its steps.
    for steps in ["c.step = ''", "c.step <> ''"] {
        let select = format!(
            "SELECT c.id, c.writer, c.parts, c.sealed FROM cofferdam.calls c WHERE c.actor = $1 AND c.sealed > 0 \
             AND c.status <> 0 AND {steps} AND (NOT c.is_undetermined \
             OR EXISTS (SELECT FROM cofferdam.decided d WHERE d.call = c.id)) \
             ORDER BY c.opened, c.first_n LIMIT $2 FOR UPDATE"
        );
        if freed >= need {
            break;
        }
        let transaction = client.transaction().await?;
        for row in transaction.query(&select, &[&actor, &CALLS_AT_ONCE]).await? {
            if freed >= need {
                break;
            }
            let (id, writer): (Uuid, Uuid) = (row.try_get(0)?, row.try_get(1)?);
            let (parts, bytes): (Vec<i64>, i64) = (row.try_get(2)?, row.try_get(3)?);
            let delete = "DELETE FROM cofferdam.sealed WHERE writer = $1 AND place = ANY($2)";
            transaction.execute(delete, &[&writer, &parts]).await?;
            transaction.execute("UPDATE cofferdam.calls SET sealed = 0 WHERE id = $1", &[&id]).await?;
            (count, freed) = (count.saturating_add(1), freed.saturating_add(unsigned(bytes)));
        }
        transaction.commit().await?;
    }
    Ok((count, freed))
}
