//! The session that the entries of a process are written in.

use std::future::Future;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Statement};

use super::batch::APPEND;
use crate::database::{Database, DatabaseError, SCHEMA_LOCK};

/// The condition of an append to a journal that another process has taken, or in another epoch of it.
const TAKEN: &str = "CF001";

/// The constraint that no two calls claim one key.
const KEY_CONSTRAINT: &str = "keys_pkey";

/// The tables with one part for each month.
const PARTITIONED: [&str; 2] = ["entries", "sealed"];

/// The longest wait for the answer to a commit: as long as a statement waits for a lock.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(10);

/// A session, and the statements that are prepared in it.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) append: Statement,
}

/// Why an append failed.
pub(super) enum AppendFault {
    /// A call has one of its keys already. Nothing was written.
    KeyTaken,
    /// Another process holds a journal. Nothing was written.
    Taken,
    /// There is no part of a table for this time yet. Nothing was written.
    NoPartition,
    /// It may have been written, or not.
    Unknown(DatabaseError),
    /// Nothing was written.
    Failed(DatabaseError),
}

impl Session {
    pub(super) async fn open(database: &Database) -> Result<Self, DatabaseError> {
        let client = database.connect().await?;
        let append = client.prepare(APPEND).await?;
        Ok(Self { client, append })
    }
}

impl AppendFault {
    pub(super) fn of(error: &tokio_postgres::Error) -> Self {
        let Some(reported) = error.as_db_error() else {
            return Self::Unknown(DatabaseError::from_sql(error));
        };
        let own = DatabaseError::from_sql(error);
        match reported.code() {
            code if code.code() == TAKEN => Self::Taken,
            code if *code == SqlState::UNIQUE_VIOLATION && reported.constraint() == Some(KEY_CONSTRAINT) => {
                Self::KeyTaken
            }
            code if *code == SqlState::CHECK_VIOLATION && reported.constraint().is_none() => {
                Self::NoPartition
            }
            // The server ends the session, and says so also after a commit that it could not confirm.
            code if code.code().starts_with("57P") || code.code().starts_with("08") => Self::Unknown(own),
            _ => Self::Failed(own),
        }
    }
}

/// Waits for the answer of the server for a limited time: it confirms a commit once its standbys have it, which may
/// never be. After this error the work may have been done or not, and its session is in use until the answer comes.
pub(super) async fn answered<T>(
    work: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, DatabaseError> {
    let answer = tokio::time::timeout(ANSWER_TIME, work).await.map_err(|_| DatabaseError::unanswered())?;
    Ok(answer?)
}

/// Makes the parts of the tables for this time and the month after it, if they are missing. After an error, the session
/// may have the lock.
pub(super) async fn make_partitions(client: &mut Client, at: SystemTime) -> Result<(), DatabaseError> {
    let at = Timestamp::try_from(at).unwrap_or_default().to_zoned(TimeZone::UTC).date();
    let first = at.first_of_month();
    // Before the transaction: one that began earlier would not see the parts that another host made while it waited.
    client.execute("SELECT pg_advisory_lock($1)", &[&SCHEMA_LOCK]).await?;
    let transaction = client.transaction().await?;
    for month in [first, next_month(first)] {
        let (from, to) = (bound(month), bound(next_month(month)));
        for table in PARTITIONED {
            let name = partition(table, month);
            let make = format!(
                "CREATE TABLE IF NOT EXISTS {name} PARTITION OF cofferdam.{table} FOR VALUES FROM ({from}) TO ({to})"
            );
            transaction.batch_execute(&make).await?;
        }
    }
    answered(transaction.commit()).await?;
    client.execute("SELECT pg_advisory_unlock($1)", &[&SCHEMA_LOCK]).await?;
    Ok(())
}

fn partition(table: &str, month: Date) -> String {
    format!("cofferdam.{table}_{:04}{:02}", month.year(), month.month())
}

fn bound(month: Date) -> String {
    format!("'{month} 00:00:00+00'")
}

fn next_month(month: Date) -> Date {
    month.last_of_month().tomorrow().unwrap_or(Date::MAX)
}

/// Returns the names of the parts of the tables that are over by this time, the entries' with the sealed ones' of the same
/// month.
pub(super) async fn old_partitions(
    client: &impl tokio_postgres::GenericClient,
    before: SystemTime,
) -> Result<Vec<[String; 2]>, DatabaseError> {
    let before =
        Timestamp::try_from(before).unwrap_or_default().to_zoned(TimeZone::UTC).date().first_of_month();
    let end = format!("entries_{:04}{:02}", before.year(), before.month());
    let select = "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
                  WHERE i.inhparent = 'cofferdam.entries'::regclass AND c.relname < $1 ORDER BY 1";
    let mut found = Vec::new();
    for row in client.query(select, &[&end]).await? {
        let name: String = row.try_get(0)?;
        let Some(month) = name.strip_prefix("entries_") else { continue };
        if month.len() == 6 && month.bytes().all(|byte| byte.is_ascii_digit()) {
            found.push([format!("cofferdam.entries_{month}"), format!("cofferdam.sealed_{month}")]);
        }
    }
    Ok(found)
}
