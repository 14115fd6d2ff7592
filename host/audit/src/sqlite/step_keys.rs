//! The keys of an action's steps, looked at where the action begins under its own.

use std::sync::Arc;

use cofferdam_core::failure::AuditId;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::command::KeyClaim;

/// Returns the call that holds the key of a step, unless it is a step of this action, of whatever version.
pub(super) fn foreign(
    connection: &Connection,
    key: &str,
    action: &str,
    now: i64,
) -> rusqlite::Result<Option<AuditId>> {
    let select = "SELECT keys.call, ifnull(routes.action, ''), ifnull(routes.step, '') <> '' FROM keys \
                  LEFT JOIN calls ON calls.id = keys.call LEFT JOIN routes ON routes.id = calls.route \
                  WHERE keys.key = ?1 AND (keys.state <> 1 OR keys.until > ?2)";
    let found: Option<([u8; 16], String, bool)> = connection
        .prepare_cached(select)?
        .query_row(params![key, now], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let name = |action: &str| action.split('@').next().map(str::to_owned);
    let own = |of: &str, is_step: bool| is_step && name(of) == name(action);
    Ok(found.filter(|(_, of, is_step)| !own(of, *is_step)).map(|(id, ..)| AuditId::from_bytes(id)))
}

/// Deletes the expired outcomes of the steps of an action that begins again because its own outcome has
/// expired. If no outcome is stored for the action's key, the action never ended, and the outcomes of its steps
/// are its progress.
pub(super) fn forget(connection: &Connection, claim: &KeyClaim, steps: &[Arc<str>]) -> rusqlite::Result<()> {
    let now = claim.at.as_microsecond();
    let mut select = connection.prepare_cached("SELECT 1 FROM keys WHERE key = ?1 AND state = 1")?;
    if !select.exists([&*claim.key])? {
        return Ok(());
    }
    let mut delete =
        connection.prepare_cached("DELETE FROM keys WHERE key = ?1 AND state = 1 AND until <= ?2")?;
    steps.iter().try_for_each(|key| delete.execute(params![&**key, now]).map(drop))
}
