//! The checks of each session: the server writes and is new enough, and the role is no superuser.

use tokio_postgres::Client;

use super::{DatabaseError, DatabaseErrorKind, DatabaseSettings};

/// The oldest server that is supported: its major version.
const OLDEST_SERVER: i32 = 14;

const SELECT_SESSION: &str = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', \
                              current_setting('server_version_num')::int / 10000, \
                              (SELECT rolsuper FROM pg_roles WHERE rolname = current_user), \
                              to_regclass('cofferdam.cluster') IS NOT NULL";

/// The facts about a session that its checks found.
pub(super) struct SessionFacts {
    /// True if the tables were made.
    pub(super) has_tables: bool,
}

pub(super) async fn check_session(
    client: &Client,
    settings: &DatabaseSettings,
) -> Result<SessionFacts, DatabaseError> {
    let row = client.query_one(SELECT_SESSION, &[]).await?;
    let (is_standby, is_read_only): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    let (version, is_superuser): (i32, bool) = (row.try_get(2)?, row.try_get(3)?);
    let place = settings.place();
    if version < OLDEST_SERVER {
        let what = format!("the database at {place} is a PostgreSQL {version}, which is too old");
        let fix = format!("Use PostgreSQL {OLDEST_SERVER} or newer.");
        return Err(DatabaseError::new(DatabaseErrorKind::TooOld, what, fix));
    }
    if is_standby {
        return Err(DatabaseError::read_only(&format!(
            "the database at {place} is a standby, which is read-only"
        )));
    }
    if is_read_only {
        let what = format!("the database at {place} is read-only");
        let fix = format!(
            "Let it be written: ALTER DATABASE {database} RESET default_transaction_read_only; ALTER ROLE {role} RESET \
             default_transaction_read_only.",
            database = quoted(settings.database()),
            role = quoted(settings.role())
        );
        return Err(DatabaseError::new(DatabaseErrorKind::ReadOnly, what, fix));
    }
    if is_superuser {
        // Whoever has the host's password would have the files and the programs of the database's machine, too.
        let what = format!("the role {:?} of the database at {place} is a superuser", settings.role());
        let fix = format!(
            "Make a role that may do no more than it must: CREATE ROLE cofferdam LOGIN PASSWORD '...'; ALTER DATABASE {} \
             OWNER TO cofferdam; then name it in the URL.",
            quoted(settings.database())
        );
        return Err(DatabaseError::new(DatabaseErrorKind::Superuser, what, fix));
    }
    Ok(SessionFacts { has_tables: row.try_get(4)? })
}

/// Returns a name as it is written in SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
