//! The end of the chain, where the next entry goes.

use rusqlite::{Connection, OptionalExtension as _};

use crate::entry::GENESIS;

/// The end of the chain.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) n: u64,
    pub(super) hash: [u8; 32],
}

/// The end of the chain as it is now: another host may have written since.
pub(super) fn head(connection: &Connection) -> rusqlite::Result<Head> {
    let mut last = connection.prepare_cached("SELECT n, hash FROM entries ORDER BY n DESC LIMIT 1")?;
    let last = last.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (n, hash) = last.unwrap_or((0, GENESIS));
    Ok(Head { n, hash })
}
