//! The numbers of what calls have in common: routes and verdicts, each looked up once.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::command::{CallOutcome, CallTarget};

/// Most numbers that are remembered of each kind; more are looked up each time.
const REMEMBERED: usize = 10_000;

/// The numbers that this host has seen.
#[derive(Default)]
pub(super) struct Names {
    /// The number of the first entry when they were looked up: routes go with entries that are pruned.
    first: Option<u64>,
    routes: HashMap<CallTarget, i64>,
    verdicts: HashMap<CallOutcome, i64>,
}

impl Names {
    /// Forgets what may be gone, as some host pruned; to be asked first in every transaction that writes.
    pub(super) fn refresh(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let select = "SELECT n FROM entries ORDER BY n LIMIT 1";
        let first = connection.prepare_cached(select)?.query_row([], |row| row.get(0)).optional()?;
        if self.first != first {
            self.first = first;
            self.routes.clear();
        }
        Ok(())
    }

    pub(super) fn route(&mut self, connection: &Connection, route: &CallTarget) -> rusqlite::Result<i64> {
        if let Some(id) = self.routes.get(route) {
            return Ok(*id);
        }
        let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
        let row = params![&*route.connector, &*route.op, text(&route.action), text(&route.step)];
        let select = "SELECT id FROM routes WHERE connector = ?1 AND op = ?2 AND action = ?3 AND step = ?4";
        let insert = "INSERT INTO routes (connector, op, action, step) VALUES (?1, ?2, ?3, ?4)";
        let id = look_up(connection, select, insert, row)?;
        if self.routes.len() < REMEMBERED {
            self.routes.insert(route.clone(), id);
        }
        Ok(id)
    }

    pub(super) fn verdict(
        &mut self,
        connection: &Connection,
        verdict: &CallOutcome,
    ) -> rusqlite::Result<i64> {
        if let Some(id) = self.verdicts.get(verdict) {
            return Ok(*id);
        }
        let code = verdict.code.as_deref().unwrap_or_default();
        let row = params![verdict.status.number(), verdict.class.unwrap_or_default(), code];
        let select = "SELECT id FROM verdicts WHERE status = ?1 AND class = ?2 AND code = ?3";
        let insert = "INSERT INTO verdicts (status, class, code) VALUES (?1, ?2, ?3)";
        let id = look_up(connection, select, insert, row)?;
        if self.verdicts.len() < REMEMBERED {
            self.verdicts.insert(verdict.clone(), id);
        }
        Ok(id)
    }
}

fn look_up(
    connection: &Connection,
    select: &str,
    insert: &str,
    row: &[&dyn rusqlite::ToSql],
) -> rusqlite::Result<i64> {
    let found = connection.prepare_cached(select)?.query_row(row, |row| row.get(0)).optional()?;
    if let Some(id) = found {
        return Ok(id);
    }
    connection.prepare_cached(insert)?.execute(row)?;
    Ok(connection.last_insert_rowid())
}
