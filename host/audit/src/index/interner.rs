//! The numbers of what many calls have in common: targets, outcomes, actors and hosts. Each is looked up once.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _, ToSql, params};

use super::facts::EndFacts;

/// The most numbers that are remembered of each kind; more are looked up each time.
const REMEMBERED: usize = 10_000;

/// The numbers that were looked up. Rows with numbers are never removed.
#[derive(Default)]
pub(super) struct Interner {
    targets: HashMap<Vec<u8>, i64>,
    outcomes: HashMap<Vec<u8>, i64>,
    actors: HashMap<Vec<u8>, i64>,
    hosts: HashMap<Vec<u8>, i64>,
    /// The connectors of targets.
    connectors: HashMap<i64, Box<str>>,
    key: Vec<u8>,
}

impl Interner {
    /// Returns the number of a target: its connector, operation, action and step.
    pub(super) fn target(&mut self, connection: &Connection, parts: [&str; 4]) -> rusqlite::Result<i64> {
        let [connector, op, action, step] = parts;
        let select = "SELECT id FROM targets WHERE connector = ?1 AND op = ?2 AND action = ?3 AND step = ?4";
        let insert = "INSERT INTO targets (connector, op, action, step) VALUES (?1, ?2, ?3, ?4)";
        key_of(&mut self.key, &parts);
        let row = params![connector, op, action, step];
        number(&mut self.targets, &self.key, connection, [select, insert], row)
    }

    /// Returns the number of the target of a connector that ran as a fallback in a call of `target`, whatever its operation
    /// was; 0 if it is the connector of `target`, or empty.
    pub(super) fn fallback(
        &mut self,
        connection: &Connection,
        target: i64,
        connector: &str,
    ) -> rusqlite::Result<i64> {
        if !self.connectors.contains_key(&target) {
            if self.connectors.len() >= REMEMBERED {
                self.connectors.clear();
            }
            let select = "SELECT connector FROM targets WHERE id = ?1";
            let own: Option<Box<str>> =
                connection.prepare_cached(select)?.query_row([target], |row| row.get(0)).optional()?;
            self.connectors.insert(target, own.unwrap_or_default());
        }
        let is_own = self.connectors.get(&target).is_some_and(|own| **own == *connector);
        if is_own || connector.is_empty() { Ok(0) } else { self.target(connection, [connector, "", "", ""]) }
    }

    /// Returns the number of an outcome.
    pub(super) fn outcome(&mut self, connection: &Connection, end: &EndFacts<'_>) -> rusqlite::Result<i64> {
        let select =
            "SELECT id FROM outcomes WHERE status = ?1 AND class = ?2 AND code = ?3 AND boundary = ?4";
        let insert = "INSERT INTO outcomes (status, class, code, boundary) VALUES (?1, ?2, ?3, ?4)";
        let EndFacts { status, class, code, boundary, .. } = end;
        key_of(&mut self.key, &[status.name(), class, code, boundary]);
        let row = params![status.number(), class, code, boundary];
        number(&mut self.outcomes, &self.key, connection, [select, insert], row)
    }

    /// Returns the number of an actor.
    pub(super) fn actor(&mut self, connection: &Connection, name: &str) -> rusqlite::Result<i64> {
        let select = "SELECT id FROM actors WHERE name = ?1";
        let insert = "INSERT INTO actors (name) VALUES (?1)";
        key_of(&mut self.key, &[name]);
        number(&mut self.actors, &self.key, connection, [select, insert], params![name])
    }

    /// Returns the number of a host of requests.
    pub(super) fn host(&mut self, connection: &Connection, name: &str) -> rusqlite::Result<i64> {
        let select = "SELECT id FROM hosts WHERE name = ?1";
        let insert = "INSERT INTO hosts (name) VALUES (?1)";
        key_of(&mut self.key, &[name]);
        number(&mut self.hosts, &self.key, connection, [select, insert], params![name])
    }
}

/// Makes the key of these parts.
fn key_of(key: &mut Vec<u8>, parts: &[&str]) {
    key.clear();
    for part in parts {
        key.extend_from_slice(&(part.len() as u64).to_le_bytes());
        key.extend_from_slice(part.as_bytes());
    }
}

fn number(
    known: &mut HashMap<Vec<u8>, i64>,
    key: &[u8],
    connection: &Connection,
    [select, insert]: [&str; 2],
    row: &[&dyn ToSql],
) -> rusqlite::Result<i64> {
    if let Some(id) = known.get(key) {
        return Ok(*id);
    }
    let found = connection.prepare_cached(select)?.query_row(row, |row| row.get(0)).optional()?;
    let id = match found {
        Some(id) => id,
        None => {
            connection.prepare_cached(insert)?.execute(row)?;
            connection.last_insert_rowid()
        }
    };
    if known.len() < REMEMBERED {
        known.insert(key.to_owned(), id);
    }
    Ok(id)
}
