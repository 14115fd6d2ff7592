//! The approvals that all hosts of a cluster share, in the database of their log.
//!
//! Changes are made one after the other, under an advisory lock: they are rare, and of several calls or answers one is to
//! be first. They are as durable as the log.

use cofferdam_audit::approvals::{
    AnswerOutcome, ApprovalId, ApprovalRow, ApprovalSeal, ApprovalStep, ApprovalStore, ApprovalVerdict,
    PersonAnswer, StoredApproval, decide_approval, has_approval_room, is_approval_waiting, shown_bytes,
};
use cofferdam_audit::{AuditError, LogFuture, LogTime};
use cofferdam_core::failure::AuditId;
use cofferdam_core::host_key;
use tokio_postgres::types::ToSql;
use tokio_postgres::{GenericClient, Row};

use super::session::answered;
use super::{LogShared, PostgresLog};
use crate::database::DatabaseError;

/// The number of the advisory lock under which approvals are changed: "approval" in ASCII.
const APPROVALS_LOCK: i64 = 0x6170_7072_6f76_616c;

/// The columns that a row is read from.
const COLUMNS: &str = "id, exact, same_arguments, value, mac";

impl LogShared {
    fn approval_seal(&self) -> Result<ApprovalSeal, AuditError> {
        let key = host_key::read(&self.home.join("host.key"))?;
        Ok(ApprovalSeal::new(&key))
    }
}

impl ApprovalStore for PostgresLog {
    fn request(&self, request: StoredApproval, call: AuditId, now: LogTime) -> LogFuture<ApprovalVerdict> {
        self.spawn(|running| async move {
            let mut session = running.shared.pool.get().await?;
            // After the session was opened, which makes the key of the cluster.
            let seal = running.shared.approval_seal()?;
            let transaction = session.client().transaction().await.map_err(sql)?;
            lock(&transaction).await?;
            let delete = "DELETE FROM approvals WHERE ends <= $1";
            transaction.execute(delete, &[&now.time.as_microsecond()]).await.map_err(sql)?;
            let binding = request.binding;
            let select =
                format!("SELECT {COLUMNS} FROM approvals WHERE same_arguments = $1 ORDER BY id DESC");
            let rows =
                transaction.query(&select, &[&binding.same_arguments.as_slice()]).await.map_err(sql)?;
            let found = rows.iter().map(|row| read(row, &seal)).filter_map(Result::transpose);
            let found = found.collect::<Result<Vec<_>, _>>()?;
            let verdict = match decide_approval(found, &binding, &call, now) {
                ApprovalStep::Keep(verdict) => verdict,
                ApprovalStep::UseUp(verdict, used) => {
                    update(&transaction, &used, &seal).await?;
                    verdict
                }
                ApprovalStep::Ask if !has_room(&transaction, &request).await? => ApprovalVerdict::Full,
                ApprovalStep::Ask => {
                    insert(&transaction, &request, &seal).await?;
                    ApprovalVerdict::Waiting(Box::new(request.at(now)))
                }
            };
            answered(transaction.commit()).await?;
            session.give_back();
            Ok(verdict)
        })
    }

    fn answer(&self, id: ApprovalId, answer: PersonAnswer, now: LogTime) -> LogFuture<AnswerOutcome> {
        self.spawn(|running| async move {
            let mut session = running.shared.pool.get().await?;
            let seal = running.shared.approval_seal()?;
            let transaction = session.client().transaction().await.map_err(sql)?;
            lock(&transaction).await?;
            let outcome = match row(&transaction, &id, &seal).await? {
                None => AnswerOutcome::Missing,
                Some(mut stored) => {
                    let outcome = stored.answer(answer, now);
                    if matches!(outcome, AnswerOutcome::Taken(_)) {
                        update(&transaction, &stored, &seal).await?;
                    }
                    outcome
                }
            };
            answered(transaction.commit()).await?;
            session.give_back();
            Ok(outcome)
        })
    }

    fn list(&self) -> LogFuture<Vec<StoredApproval>> {
        self.spawn(|running| async move {
            let mut session = running.shared.pool.get().await?;
            let seal = running.shared.approval_seal()?;
            let select = format!("SELECT {COLUMNS} FROM approvals ORDER BY id");
            let rows = session.client().query(&select, &[]).await.map_err(sql)?;
            session.give_back();
            rows.iter().map(|row| read(row, &seal)).filter_map(Result::transpose).collect()
        })
    }

    fn get(&self, id: ApprovalId) -> LogFuture<Option<StoredApproval>> {
        self.spawn(|running| async move {
            let mut session = running.shared.pool.get().await?;
            let seal = running.shared.approval_seal()?;
            let found = row(session.client(), &id, &seal).await?;
            let select = "SELECT arguments FROM approvals WHERE id = $1";
            let text = session.client().query_opt(select, &[&id.as_str()]).await.map_err(sql)?;
            let text = text.map(|row| row.try_get(0)).transpose().map_err(sql)?.flatten();
            session.give_back();
            Ok(found.and_then(|stored| stored.with_shown_text(text)))
        })
    }
}

fn sql(error: tokio_postgres::Error) -> AuditError {
    DatabaseError::from_sql(&error).into()
}

async fn lock(client: &impl GenericClient) -> Result<(), AuditError> {
    client.execute("SELECT pg_advisory_xact_lock($1)", &[&APPROVALS_LOCK]).await.map(drop).map_err(sql)
}

/// Reads a row; none if it is not one that a host of this cluster wrote.
fn read(row: &Row, seal: &ApprovalSeal) -> Result<Option<StoredApproval>, AuditError> {
    let columns = || {
        let (id, exact, same_arguments) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(ApprovalRow { id, exact, same_arguments, value: row.try_get(3)?, mac: row.try_get(4)? })
    };
    columns().map(|row| seal.open(&row)).map_err(sql)
}

async fn row(
    client: &impl GenericClient,
    id: &ApprovalId,
    seal: &ApprovalSeal,
) -> Result<Option<StoredApproval>, AuditError> {
    let select = format!("SELECT {COLUMNS} FROM approvals WHERE id = $1");
    match client.query_opt(&select, &[&id.as_str()]).await.map_err(sql)? {
        Some(row) => read(&row, seal),
        None => Ok(None),
    }
}

/// Returns true if there is room for a further request.
async fn has_room(client: &impl GenericClient, request: &StoredApproval) -> Result<bool, AuditError> {
    let select = "SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM approvals WHERE is_waiting";
    let row = client.query_one(select, &[]).await.map_err(sql)?;
    let (waiting, bytes) = (row.try_get(0).map_err(sql)?, row.try_get(1).map_err(sql)?);
    Ok(has_approval_room(waiting, bytes, request))
}

async fn insert(
    client: &impl GenericClient,
    stored: &StoredApproval,
    seal: &ApprovalSeal,
) -> Result<(), AuditError> {
    let row = seal.row(stored)?;
    let insert = "INSERT INTO approvals (id, exact, same_arguments, is_waiting, ends, bytes, value, arguments, mac) \
                  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let (waiting, ends, bytes) = (is_approval_waiting(stored), stored.ends(), shown_bytes(stored));
    let arguments = &stored.approval.arguments.text;
    let columns: [&(dyn ToSql + Sync); 9] =
        [&row.id, &row.exact, &row.same_arguments, &waiting, &ends, &bytes, &row.value, arguments, &row.mac];
    client.execute(insert, &columns).await.map(drop).map_err(sql)
}

async fn update(
    client: &impl GenericClient,
    stored: &StoredApproval,
    seal: &ApprovalSeal,
) -> Result<(), AuditError> {
    let row = seal.row(stored)?;
    let update = "UPDATE approvals SET is_waiting = $2, ends = $3, value = $4, mac = $5 WHERE id = $1";
    let (waiting, ends) = (is_approval_waiting(stored), stored.ends());
    client.execute(update, &[&row.id, &waiting, &ends, &row.value, &row.mac]).await.map(drop).map_err(sql)
}
