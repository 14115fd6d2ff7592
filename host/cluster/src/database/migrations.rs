//! The tables of a database: made, and brought up to this version, by one host at a time.

use std::path::Path;

use tokio_postgres::{Client, Transaction};

use super::identity::{self, ClusterIdentity};
use super::{DatabaseError, DatabaseErrorKind, DatabaseSettings};

/// The number of the advisory lock under which tables are made: "cofferda" in ASCII.
pub(crate) const SCHEMA_LOCK: i64 = 0x636f_6666_6572_6461;

/// A change of the tables. Its name is stored once it is made.
struct Migration {
    name: &'static str,
    sql: &'static str,
}

/// All changes, in their order. One that was released stays as it is.
const MIGRATIONS: &[Migration] = &[
    Migration { name: "0001_cluster", sql: include_str!("migrations/0001_cluster.sql") },
    Migration { name: "0002_audit_log", sql: include_str!("migrations/0002_audit_log.sql") },
    Migration { name: "0003_shared_state", sql: include_str!("migrations/0003_shared_state.sql") },
    Migration { name: "0004_approvals", sql: include_str!("migrations/0004_approvals.sql") },
    Migration { name: "0005_requests", sql: include_str!("migrations/0005_requests.sql") },
    Migration { name: "0006_server_run", sql: include_str!("migrations/0006_server_run.sql") },
];

/// Tables outside of the schema of this program, unless they are those of an extension.
const SELECT_FOREIGN: &str = "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c \
     JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema') \
     AND n.nspname NOT LIKE 'pg\\_%' \
     AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e') \
     ORDER BY 1 LIMIT 1";

/// Makes the tables, or brings them up to this version, and checks that they are this cluster's. The key in the home
/// directory is made if the database has no cluster yet.
pub(super) async fn prepare(
    client: &mut Client,
    settings: &DatabaseSettings,
    host_key: &Path,
) -> Result<(), DatabaseError> {
    // Before the transaction: one that began earlier would not see the tables that another host made while it waited.
    client.execute("SELECT pg_advisory_lock($1)", &[&SCHEMA_LOCK]).await?;
    let transaction = client.transaction().await?;
    let has_tables: bool = transaction
        .query_one("SELECT to_regclass('cofferdam.migrations') IS NOT NULL", &[])
        .await?
        .try_get(0)?;
    if has_tables {
        check_versions(&transaction).await?;
        let stored = transaction.query_opt("SELECT identity FROM cofferdam.cluster", &[]).await?;
        let own = ClusterIdentity::read_if_there(host_key)?.ok_or_else(identity::missing_key)?;
        identity::compare(stored.map(|row| row.try_get(0)).transpose()?, &own)?;
    } else {
        check_empty(&transaction, settings).await?;
    }
    for Migration { name, sql } in MIGRATIONS {
        let is_made = has_tables && {
            let select = "SELECT EXISTS (SELECT FROM cofferdam.migrations WHERE name = $1)";
            transaction.query_one(select, &[name]).await?.try_get::<_, bool>(0)?
        };
        if !is_made {
            transaction.batch_execute(sql).await?;
            transaction.execute("INSERT INTO cofferdam.migrations (name) VALUES ($1)", &[name]).await?;
        }
    }
    if !has_tables {
        let own = match ClusterIdentity::read_if_there(host_key)? {
            Some(own) => own,
            None => ClusterIdentity::create(host_key)?,
        };
        let insert = "INSERT INTO cofferdam.cluster (identity) VALUES ($1)";
        transaction.execute(insert, &[&own.to_string()]).await?;
    }
    transaction.commit().await?;
    // A session that failed is closed, and its lock is free.
    client.execute("SELECT pg_advisory_unlock($1)", &[&SCHEMA_LOCK]).await?;
    Ok(())
}

/// Refuses tables of a newer version.
async fn check_versions(transaction: &Transaction<'_>) -> Result<(), DatabaseError> {
    for row in transaction.query("SELECT name FROM cofferdam.migrations ORDER BY name", &[]).await? {
        let name: String = row.try_get(0)?;
        if !MIGRATIONS.iter().any(|known| known.name == name) {
            let what = format!("a newer version of cofferdam made the tables of the database ({name})");
            let fix = "Use a cofferdam that is as new, on all hosts of the cluster.";
            return Err(DatabaseError::new(DatabaseErrorKind::TooNew, what, fix));
        }
    }
    Ok(())
}

/// Refuses a database that another program uses.
async fn check_empty(
    transaction: &Transaction<'_>,
    settings: &DatabaseSettings,
) -> Result<(), DatabaseError> {
    let Some(row) = transaction.query_opt(SELECT_FOREIGN, &[]).await? else { return Ok(()) };
    let table: String = row.try_get(0)?;
    let table = cofferdam_core::failure::sanitize_line(&table, 100);
    let what = format!("the database at {} is another program's: it has the table {table}", settings.place());
    let fix = "Make a database for this cluster alone: CREATE DATABASE cofferdam OWNER role; then name it in the URL.";
    Err(DatabaseError::new(DatabaseErrorKind::Foreign, what, fix))
}
