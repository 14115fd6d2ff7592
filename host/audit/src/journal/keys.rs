//! The idempotency keys of a home, unique over all processes: a small SQLite file that can be rebuilt from the journals.
//!
//! The table is not trusted. Each row has a MAC under a key of the host and names the next key: reading a row detects that
//! it was changed or added by anything but a host, and looking for a key detects that its row was removed. One row has the
//! first key, the number of changes, and a sum of all rows. Thereby a process detects older rows when it opens the file,
//! and an older table while it is open. When it opens the file, it also compares the indexes with the rows. An older copy
//! of the file is only behind: the table has, for each journal, the entry up to which its keys are in the table, and later
//! ones are read from the journal. Keys are stored by their SHA-256.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_core::host_key::{derived, hmac};
use cofferdam_core::private_file::{self, FilePolicy};
use hmac::{Hmac, Mac as _};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::stored_key::StoredKey;
use crate::error::{AuditError, AuditErrorKind};
use crate::sqlite_file;

/// Other users may neither read nor write it.
const POLICY: FilePolicy = FilePolicy::secret(u64::MAX);

/// The number of changes without waiting after which they are copied from the write-ahead log into the file. Each is two
/// to five pages of 4 KiB; SQLite itself copies after 1,000 pages.
const CHANGES_COPIED: u32 = 256;

/// The length of the write-ahead log, in pages, above which changes wait until all of it is copied. Otherwise it would grow
/// as long as changes follow each other: SQLite begins it anew only if nothing in it is left to copy.
const LONGEST_LOG: i64 = 4_096;

/// The most memory for pages of the file, in KiB, as SQLite takes it: those of about 40,000 keys.
const CACHE: i64 = -16 * 1_024;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS keys (
      key    BLOB PRIMARY KEY,
      next   BLOB NOT NULL,
      call   BLOB NOT NULL,
      action BLOB,
      value  BLOB NOT NULL,
      mac    BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS keys_of_call ON keys (call);
    CREATE INDEX IF NOT EXISTS keys_of_action ON keys (action) WHERE action IS NOT NULL;
    CREATE TABLE IF NOT EXISTS summary (
      one   INTEGER PRIMARY KEY CHECK (one = 0),
      value BLOB NOT NULL,
      mac   BLOB NOT NULL
    ) STRICT;
";

/// The queries that read the two indexes alone, by the column that each has beside the key.
const INDEXES: [(&[u8], &str); 2] = [
    (b"call", "SELECT key, call FROM keys INDEXED BY keys_of_call"),
    (b"action", "SELECT key, action FROM keys INDEXED BY keys_of_action WHERE action IS NOT NULL"),
];

/// The longest time that changes wait for other processes in addition, before all of the log is copied.
const COPY_TIMEOUT: Duration = Duration::from_millis(20);

/// The key after the last one.
const END: [u8; 32] = [0; 32];

/// The keys of a home.
pub(crate) struct KeyTable {
    path: PathBuf,
    connection: Mutex<Connection>,
    /// A second connection, which never waits for other processes or the disk. None for a table in memory.
    at_once: Option<Mutex<Connection>>,
    /// With the key of the MACs in it.
    mac: Hmac<Sha256>,
    /// The number of changes over the second connection since the write-ahead log was last copied.
    uncopied: AtomicU32,
    /// True while changes wait until all of that log is copied.
    stops_changes: AtomicBool,
    /// The number of changes in the newest table that was seen.
    newest: AtomicU64,
    /// The file that was opened, by its device and number.
    opened: (u64, u64),
    /// The time that the first connection waits for other processes.
    busy_timeout: Duration,
}

/// The summary of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct TableSummary {
    /// The number of changes.
    changes: u64,
    /// The first key.
    first: [u8; 32],
    /// The sum of all rows, in whatever order. It is masked where it is stored: with the terms of all rows known, older
    /// rows could be chosen that have the same sum.
    sum: [u8; 32],
    /// The value that the mask follows from.
    nonce: [u8; 32],
    /// By writer, the number of the entry up to which the keys of its journal are in the table.
    read: BTreeMap<String, u64>,
    /// The time that the log goes by, in microseconds since 1970; none before the first key.
    seen: Option<i64>,
}

fn xor(sum: &mut [u8; 32], term: &[u8; 32]) {
    sum.iter_mut().zip(term).for_each(|(sum, byte)| *sum ^= byte);
}

/// A row as it is stored.
struct Row {
    key: [u8; 32],
    next: [u8; 32],
    value: Vec<u8>,
    mac: [u8; 32],
}

impl Row {
    fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { key: row.get(0)?, next: row.get(1)?, value: row.get(2)?, mac: row.get(3)? })
    }
}

/// The slot of a key.
enum KeySlot {
    Row(Row),
    /// There is no such key. It would be between these, or be the first one.
    Between(Option<Row>, [u8; 32]),
}

/// Keys that belong together.
#[derive(Clone, Copy)]
pub(crate) enum KeysOf {
    /// Those that this call holds.
    Call([u8; 16]),
    /// Those of the steps of the action under this key.
    Action([u8; 32]),
}

impl KeyTable {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// `Tampered`: it is damaged, or was not written by a host of this home, and has to be rebuilt.
    pub(crate) fn open(path: &Path, host_key: &[u8; 32], busy_timeout: Duration) -> Result<Self, AuditError> {
        let mac = hmac(&derived(host_key, b"cofferdam idempotency keys 1"));
        let refused = |error| AuditError::from_file("keys.db", error);
        if !private_file::check(path, &POLICY).map_err(refused)? {
            sqlite_file::create_private(path)?;
        }
        let connect = || {
            let connection = Connection::open(path)?;
            connection.busy_timeout(busy_timeout)?;
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "normal")?;
            connection.pragma_update(None, "cache_size", CACHE)?;
            Ok::<_, AuditError>(connection)
        };
        let connection = connect()?;
        connection.execute_batch(SCHEMA)?;
        let expected = Connection::open_in_memory()?;
        expected.execute_batch(SCHEMA)?;
        // Another index or trigger could answer in the place of the table.
        if schema(&connection)? != schema(&expected)? {
            return Err(changed());
        }
        let at_once = connect()?;
        at_once.busy_timeout(Duration::ZERO)?;
        // Copying the write-ahead log into the file waits for the disk: see `copy_changes`.
        at_once.pragma_update(None, "wal_autocheckpoint", 0)?;
        let opened = file_at(path)?;
        let own = Self {
            path: path.to_owned(),
            connection: Mutex::new(connection),
            at_once: Some(Mutex::new(at_once)),
            mac,
            uncopied: AtomicU32::new(0),
            stops_changes: AtomicBool::new(false),
            newest: AtomicU64::new(0),
            opened,
            busy_timeout,
        };
        own.check(|_, _| ())?;
        Ok(own)
    }

    /// Returns true if the open file is the one at its path.
    pub(crate) fn is_in_place(&self) -> bool {
        file_at(&self.path).is_ok_and(|there| there == self.opened)
    }

    /// Checks every row and the indexes, and hands the rows over.
    fn check(&self, mut each: impl FnMut([u8; 32], StoredKey)) -> Result<(), AuditError> {
        let newest = self.newest.load(Ordering::SeqCst);
        let connection = self.connection();
        let transaction = connection.unchecked_transaction()?;
        let summary = self.summary(&transaction, newest)?;
        let (mut sum, mut indexed) = ([0; 32], [0; 32]);
        let mut select =
            transaction.prepare("SELECT key, next, value, mac, call, action FROM keys ORDER BY key")?;
        let mut rows = select.query([])?;
        let mut next = summary.first;
        while let Some(row) = rows.next()? {
            let columns = Row::from_row(row).and_then(|it| Ok((it, (row.get(4)?, row.get(5)?))));
            let (row, columns) = columns.map_err(unreadable)?;
            let stored: StoredKey = read(&row.value)?;
            let (call, action) = (stored.call, stored.action_key());
            if !self.is_genuine(&row) || row.key != next || (call, action) != columns {
                return Err(changed());
            }
            xor(&mut indexed, &self.mac(&[b"call", &row.key], &call));
            if let Some(action) = &action {
                xor(&mut indexed, &self.mac(&[b"action", &row.key], action));
            }
            xor(&mut sum, &self.term(&row.mac));
            next = row.next;
            each(row.key, stored);
        }
        // A damaged index would hide rows without a trace: an action that ends would not find its steps.
        for (column, select) in INDEXES {
            let mut select = transaction.prepare(select)?;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                let columns = row.get(0).and_then(|key: [u8; 32]| Ok((key, row.get::<_, Vec<u8>>(1)?)));
                let (key, value) = columns.map_err(unreadable)?;
                xor(&mut indexed, &self.mac(&[column, &key], &value));
            }
        }
        (sum == summary.sum && next == END && indexed == [0; 32]).then_some(()).ok_or_else(changed)
    }

    /// Changes keys in one transaction that no other process runs meanwhile. It is committed if `change` succeeds.
    ///
    /// # Errors
    /// Those of `change`; `Locked`: another process holds the file for longer than is waited.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut KeyChange<'_>) -> Result<T, AuditError>,
    ) -> Result<T, AuditError> {
        self.change_on(&mut self.connection(), change)
    }

    /// Changes keys as [`change`](Self::change) does, but without waiting for other processes or the disk. None if it would
    /// have to, or if there was an error.
    pub(crate) fn try_change<T>(
        &self,
        change: impl FnOnce(&mut KeyChange<'_>) -> Result<T, AuditError>,
    ) -> Option<T> {
        if self.stops_changes.load(Ordering::SeqCst) {
            return None;
        }
        let mut connection = self.at_once.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = self.change_on(&mut connection, change).ok()?;
        self.uncopied.fetch_add(1, Ordering::Relaxed);
        Some(changed)
    }

    /// Returns true if no call holds the key. None if another process uses the table, or if there was an error.
    pub(crate) fn try_is_free(&self, key: &[u8; 32]) -> Option<bool> {
        let connection = self.at_once.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        // Not in one transaction: if another process changes the table meanwhile, this is as good as an error.
        let slot = self.find(&connection, key, || Ok(self.summary(&connection, 0)?.first)).ok()?;
        Some(matches!(slot, KeySlot::Between(..)))
    }

    /// Returns true if the changes over the second connection should be copied into the file.
    pub(crate) fn is_copy_due(&self) -> bool {
        self.uncopied.load(Ordering::Relaxed) >= CHANGES_COPIED
    }

    /// Copies the changes from the write-ahead log into the file, as far as no other process reads them. Waits for the disk,
    /// and has changes wait if the log is long.
    pub(crate) fn copy_changes(&self) -> Result<(), AuditError> {
        self.uncopied.store(0, Ordering::Relaxed);
        let connection = self.connection();
        let pages: i64 = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get("log"))?;
        if pages > LONGEST_LOG {
            // Others would not leave it a moment to begin. It may wait for readers in other processes, and changes with it.
            connection.busy_timeout(COPY_TIMEOUT)?;
            self.stops_changes.store(true, Ordering::SeqCst);
            let copied = connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
            self.stops_changes.store(false, Ordering::SeqCst);
            connection.busy_timeout(self.busy_timeout)?;
            copied?;
        }
        Ok(())
    }

    fn change_on<T>(
        &self,
        connection: &mut Connection,
        change: impl FnOnce(&mut KeyChange<'_>) -> Result<T, AuditError>,
    ) -> Result<T, AuditError> {
        // Before it begins: the other connection may change the table any moment.
        let newest = self.newest.load(Ordering::SeqCst);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let summary = self.summary(&transaction, newest)?;
        let mut keys = KeyChange { table: self, summary: summary.clone(), transaction };
        let outcome = change(&mut keys)?;
        let KeyChange { summary: mut changed, transaction, .. } = keys;
        if changed != summary {
            changed.changes = changed.changes.saturating_add(1);
            // The same nonce belongs to the same sum.
            changed.nonce = self.mac(&[b"nonce", &changed.sum], b"");
            xor(&mut changed.sum, &self.mask(&changed.nonce));
            let value = stored_form(&changed);
            let mac = self.mac(&[b"summary"], &value);
            let update = "INSERT INTO summary (one, value, mac) VALUES (0, ?1, ?2) \
                          ON CONFLICT DO UPDATE SET value = ?1, mac = ?2";
            transaction.prepare_cached(update)?.execute(params![value, mac])?;
            transaction.commit()?;
            self.newest.fetch_max(changed.changes, Ordering::SeqCst);
        }
        Ok(outcome)
    }

    /// Returns the key, if a call holds it.
    pub(crate) fn get(&self, key: &[u8; 32]) -> Result<Option<StoredKey>, AuditError> {
        let connection = self.connection();
        // Another process may add keys between two statements.
        let transaction = connection.unchecked_transaction()?;
        match self.find(&transaction, key, || Ok(self.summary(&transaction, 0)?.first))? {
            KeySlot::Row(row) => read(&row.value).map(Some),
            KeySlot::Between(..) => Ok(None),
        }
    }

    /// Returns the time that the log goes by, in microseconds since 1970; none before the first key.
    pub(crate) fn seen(&self) -> Result<Option<i64>, AuditError> {
        let newest = self.newest.load(Ordering::SeqCst);
        self.summary(&self.connection(), newest).map(|summary| summary.seen)
    }

    /// Returns all keys.
    pub(crate) fn all(&self) -> Result<BTreeMap<[u8; 32], StoredKey>, AuditError> {
        let mut keys = BTreeMap::new();
        self.check(|key, stored| drop(keys.insert(key, stored)))?;
        Ok(keys)
    }

    /// Returns these keys.
    pub(crate) fn rows(&self, of: KeysOf) -> Result<Vec<([u8; 32], StoredKey)>, AuditError> {
        let connection = self.connection();
        let transaction = connection.unchecked_transaction()?;
        self.find_rows(&transaction, of, || Ok(self.summary(&transaction, 0)?.first))
    }

    /// Creates an empty table in memory.
    pub(crate) fn in_memory() -> Result<Self, AuditError> {
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self {
            path: PathBuf::new(),
            connection: Mutex::new(connection),
            at_once: None,
            mac: hmac(&[0; 32]),
            uncopied: AtomicU32::new(0),
            stops_changes: AtomicBool::new(false),
            newest: AtomicU64::new(0),
            opened: (0, 0),
            busy_timeout: Duration::ZERO,
        })
    }

    /// Returns the slot of a key.
    ///
    /// # Errors
    /// `Tampered`: the row, or the one before it, is not as a host wrote it. One that was removed is named by the row before
    /// it, or else by `first`.
    fn find(
        &self,
        connection: &Connection,
        key: &[u8; 32],
        first: impl FnOnce() -> Result<[u8; 32], AuditError>,
    ) -> Result<KeySlot, AuditError> {
        let select = "SELECT key, next, value, mac FROM keys WHERE key <= ?1 ORDER BY key DESC LIMIT 1";
        let before = self.select_row(connection, select, key)?;
        let next = match before {
            Some(row) if row.key == *key => return Ok(KeySlot::Row(row)),
            Some(ref before) => before.next,
            None => first()?,
        };
        if next != END && next <= *key {
            return Err(changed());
        }
        Ok(KeySlot::Between(before, next))
    }

    fn find_rows(
        &self,
        connection: &Connection,
        of: KeysOf,
        first: impl Fn() -> Result<[u8; 32], AuditError>,
    ) -> Result<Vec<([u8; 32], StoredKey)>, AuditError> {
        let (select, value): (_, &[u8]) = match &of {
            KeysOf::Call(call) => ("SELECT key FROM keys WHERE call = ?1", call),
            KeysOf::Action(action) => ("SELECT key FROM keys WHERE action = ?1", action),
        };
        let mut select = connection.prepare_cached(select)?;
        let keys = select.query_map([value], |row| row.get(0))?.collect::<Result<Vec<[u8; 32]>, _>>();
        let rows =
            keys.map_err(unreadable)?.into_iter().map(|key| match self.find(connection, &key, &first)? {
                KeySlot::Row(row) => Ok((key, read::<StoredKey>(&row.value)?)),
                KeySlot::Between(..) => Err(changed()),
            });
        let rows = rows.collect::<Result<Vec<_>, AuditError>>()?;
        // The columns have no MAC.
        let is_of = |stored: &StoredKey| match of {
            KeysOf::Call(call) => stored.call == call,
            KeysOf::Action(action) => stored.action_key() == Some(action),
        };
        rows.iter().all(|(_, stored)| is_of(stored)).then_some(rows).ok_or_else(changed)
    }

    fn select_row(
        &self,
        connection: &Connection,
        select: &str,
        key: &[u8; 32],
    ) -> Result<Option<Row>, AuditError> {
        let row = connection.prepare_cached(select)?.query_row([key], Row::from_row).optional();
        match row.map_err(unreadable)? {
            Some(row) if !self.is_genuine(&row) => Err(changed()),
            row => Ok(row),
        }
    }

    fn is_genuine(&self, row: &Row) -> bool {
        self.mac(&[&row.key, &row.next], &row.value) == row.mac
    }

    /// Returns the summary of a table with `newest` changes or more.
    fn summary(&self, connection: &Connection, newest: u64) -> Result<TableSummary, AuditError> {
        let mut select = connection.prepare_cached("SELECT value, mac FROM summary")?;
        let row = select.query_row([], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, [u8; 32]>(1)?)));
        let mut summary = match row.optional().map_err(unreadable)? {
            None => TableSummary::default(),
            Some((value, mac)) if self.mac(&[b"summary"], &value) == mac => {
                let mut stored: TableSummary = read(&value)?;
                xor(&mut stored.sum, &self.mask(&stored.nonce));
                stored
            }
            Some(_) => return Err(changed()),
        };
        if summary.changes < newest {
            return Err(changed());
        }
        self.newest.fetch_max(summary.changes, Ordering::SeqCst);
        summary.nonce = [0; 32];
        Ok(summary)
    }

    /// Returns the term of a row in the sum.
    fn term(&self, mac: &[u8; 32]) -> [u8; 32] {
        self.mac(&[b"term", mac], b"")
    }

    fn mask(&self, nonce: &[u8; 32]) -> [u8; 32] {
        self.mac(&[b"mask", nonce], b"")
    }

    /// Returns the MAC of a value and of what it belongs to: two keys, or a name and at most one key or other MAC. The
    /// length of that comes first: values have any bytes, and the summary must not pass for a row.
    fn mac(&self, of: &[&[u8]], value: &[u8]) -> [u8; 32] {
        let mut mac = self.mac.clone();
        let length: usize = of.iter().map(|part| part.len()).sum();
        mac.update(&(length as u64).to_be_bytes());
        of.iter().for_each(|part| mac.update(part));
        mac.update(value);
        mac.finalize().into_bytes().into()
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change of keys that is under way.
pub(crate) struct KeyChange<'t> {
    table: &'t KeyTable,
    summary: TableSummary,
    transaction: Transaction<'t>,
}

impl KeyChange<'_> {
    /// Returns the key, if a call holds it.
    pub(crate) fn get(&self, key: &[u8; 32]) -> Result<Option<StoredKey>, AuditError> {
        match self.find(key)? {
            KeySlot::Row(row) => read(&row.value).map(Some),
            KeySlot::Between(..) => Ok(None),
        }
    }

    fn find(&self, key: &[u8; 32]) -> Result<KeySlot, AuditError> {
        self.table.find(&self.transaction, key, || Ok(self.summary.first))
    }

    /// Returns these keys.
    pub(crate) fn rows(&self, of: KeysOf) -> Result<Vec<([u8; 32], StoredKey)>, AuditError> {
        self.table.find_rows(&self.transaction, of, || Ok(self.summary.first))
    }

    /// Notes that the action under this key has a value, which stands until then, in those of its steps whose outcomes
    /// were `used` by it.
    pub(crate) fn end_steps_of(
        &mut self,
        action: [u8; 32],
        until: i64,
        used: impl Fn(&StoredKey) -> bool,
    ) -> Result<(), AuditError> {
        let steps = self.rows(KeysOf::Action(action))?;
        for (key, mut stored) in steps.into_iter().filter(|(_, stored)| used(stored)) {
            stored.end_action(until);
            self.put(&key, &stored)?;
        }
        Ok(())
    }

    /// Stores the key, instead of what is stored of it.
    pub(crate) fn put(&mut self, key: &[u8; 32], stored: &StoredKey) -> Result<(), AuditError> {
        let slot = self.find(key)?;
        self.put_at(slot, key, stored)
    }

    /// Stores the key, if no call holds it. Returns false otherwise.
    pub(crate) fn put_new(&mut self, key: &[u8; 32], stored: &StoredKey) -> Result<bool, AuditError> {
        match self.find(key)? {
            KeySlot::Row(_) => Ok(false),
            slot => self.put_at(slot, key, stored).map(|()| true),
        }
    }

    /// Stores the key of this call as `change` returns it, or releases it if that returns none. Does nothing if another
    /// call holds the key.
    pub(crate) fn change_of(
        &mut self,
        key: &[u8; 32],
        call: &[u8; 16],
        change: impl FnOnce(StoredKey) -> Option<StoredKey>,
    ) -> Result<(), AuditError> {
        let slot = self.find(key)?;
        let KeySlot::Row(row) = &slot else { return Ok(()) };
        let stored: StoredKey = read(&row.value)?;
        if stored.call != *call {
            return Ok(());
        }
        match change(stored) {
            Some(stored) => self.put_at(slot, key, &stored),
            None => self.remove(key),
        }
    }

    fn put_at(&mut self, slot: KeySlot, key: &[u8; 32], stored: &StoredKey) -> Result<(), AuditError> {
        let value = stored_form(stored);
        let mac = match slot {
            KeySlot::Row(row) => {
                self.toggle(&row.mac);
                let mac = self.table.mac(&[key, &row.next], &value);
                let (before, action): (StoredKey, _) = (read(&row.value)?, stored.action_key());
                // SQLite writes an index whenever its column is set, also if it stays the same.
                if (before.call, before.action_key()) != (stored.call, action) {
                    let update = "UPDATE keys SET call = ?2, action = ?3 WHERE key = ?1";
                    self.transaction.prepare_cached(update)?.execute(params![key, stored.call, action])?;
                }
                let update = "UPDATE keys SET value = ?2, mac = ?3 WHERE key = ?1";
                self.transaction.prepare_cached(update)?.execute(params![key, value, mac])?;
                mac
            }
            KeySlot::Between(before, next) => {
                self.link(before, *key)?;
                let mac = self.table.mac(&[key, &next], &value);
                let insert =
                    "INSERT INTO keys (key, next, call, action, value, mac) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
                let row = params![key, next, stored.call, stored.action_key(), value, mac];
                self.transaction.prepare_cached(insert)?.execute(row)?;
                mac
            }
        };
        self.toggle(&mac);
        Ok(())
    }

    /// Adds a row with this MAC to the sum, or removes it.
    fn toggle(&mut self, mac: &[u8; 32]) {
        xor(&mut self.summary.sum, &self.table.term(mac));
    }

    /// Has a row name another next key, or the summary another first one.
    fn link(&mut self, before: Option<Row>, next: [u8; 32]) -> Result<(), AuditError> {
        let Some(before) = before else {
            self.summary.first = next;
            return Ok(());
        };
        let mac = self.table.mac(&[&before.key, &next], &before.value);
        let update = "UPDATE keys SET next = ?2, mac = ?3 WHERE key = ?1";
        self.transaction.prepare_cached(update)?.execute(params![before.key, next, mac])?;
        self.toggle(&before.mac);
        self.toggle(&mac);
        Ok(())
    }

    /// Returns the entry of this writer up to which its keys are in the table.
    pub(crate) fn read_up_to(&self, writer: &str) -> u64 {
        self.summary.read.get(writer).copied().unwrap_or(0)
    }

    /// Notes that the keys of this writer are in the table up to this entry.
    pub(crate) fn note_read(&mut self, writer: &str, n: u64) {
        self.summary.read.insert(writer.to_owned(), n);
    }

    /// Returns the time that the log goes by, in microseconds since 1970; none before the first key.
    pub(crate) fn seen(&self) -> Option<i64> {
        self.summary.seen
    }

    /// Has the log go by this time.
    pub(crate) fn see(&mut self, time: i64) {
        self.summary.seen = Some(time);
    }

    /// Releases the key.
    pub(crate) fn remove(&mut self, key: &[u8; 32]) -> Result<(), AuditError> {
        let KeySlot::Row(row) = self.find(key)? else { return Ok(()) };
        let select = "SELECT key, next, value, mac FROM keys WHERE key < ?1 ORDER BY key DESC LIMIT 1";
        let before = self.table.select_row(&self.transaction, select, key)?;
        if before.as_ref().map_or(self.summary.first, |before| before.next) != *key {
            return Err(changed());
        }
        self.link(before, row.next)?;
        self.transaction.prepare_cached("DELETE FROM keys WHERE key = ?1")?.execute([key])?;
        self.toggle(&row.mac);
        Ok(())
    }
}

/// Returns what the database consists of.
fn schema(connection: &Connection) -> Result<Vec<[Option<String>; 4]>, AuditError> {
    let mut select =
        connection.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name")?;
    let objects = select.query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?]))?;
    objects.collect::<Result<_, _>>().map_err(unreadable)
}

fn file_at(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|there| (there.dev(), there.ino()))
}

fn read<T: DeserializeOwned>(value: &[u8]) -> Result<T, AuditError> {
    postcard::from_bytes(value).map_err(|_| changed())
}

fn stored_form(value: &impl Serialize) -> Vec<u8> {
    // Numbers, texts and lists of them: this cannot fail.
    postcard::to_allocvec(value).unwrap_or_default()
}

/// Converts an error in reading a row: a column of another type is not one that a host wrote.
fn unreadable(error: rusqlite::Error) -> AuditError {
    match error.sqlite_error_code() {
        Some(_) => error.into(),
        None => changed(),
    }
}

fn changed() -> AuditError {
    AuditError::new(
        AuditErrorKind::Tampered,
        "the table of idempotency keys was changed by something else than a host",
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use super::*;
    use crate::journal::stored_key::{StepOf, StoredKeyState};

    fn open(path: &Path) -> Result<KeyTable, AuditError> {
        KeyTable::open(path, &[7; 32], Duration::from_secs(5))
    }

    /// Makes a table with a key of each of these calls.
    fn with_keys(calls: impl IntoIterator<Item = u8>) -> (tempfile::TempDir, PathBuf, KeyTable) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.db");
        let table = open(&path).unwrap();
        for call in calls {
            table.change(|keys| keys.put(&[call; 32], &stored(call))).unwrap();
        }
        (dir, path, table)
    }

    fn kind<T>(result: Result<T, AuditError>) -> Option<AuditErrorKind> {
        result.map_err(|error| error.kind()).err()
    }

    fn stored(call: u8) -> StoredKey {
        StoredKey::claimed([call; 16], [1; 32], "w", 0)
    }

    #[test]
    fn the_log_begins_anew_while_changes_go_on() {
        const CHANGES: u64 = 8_000;
        let (_dir, path, table) = with_keys([]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    match table.is_copy_due() {
                        true => table.copy_changes().unwrap(),
                        false => std::thread::yield_now(),
                    }
                }
            });
            for number in 0..CHANGES {
                // However seldom the other thread runs, changes go on while it copies.
                while table.uncopied.load(Ordering::Relaxed) >= 2 * CHANGES_COPIED {
                    std::thread::yield_now();
                }
                let key = *cofferdam_core::digest::Digest::sha256(&number.to_be_bytes()).as_bytes();
                let change = |keys: &mut KeyChange<'_>| keys.put(&key, &stored(1));
                table.try_change(change).map_or_else(|| table.change(change), Ok).unwrap();
            }
            is_over.store(true, Ordering::SeqCst);
        });
        let pages = fs::metadata(path.with_extension("db-wal")).unwrap().len() / 4_096;
        assert!(pages < 2 * LONGEST_LOG.unsigned_abs(), "{pages} pages of {CHANGES} changes");
    }

    #[test]
    fn keys_are_stored_replaced_and_released() {
        let (_dir, path, table) = with_keys([1]);
        let retained = StoredKey { state: StoredKeyState::Retained, until: Some(5), ..stored(1) };
        table.change(|keys| keys.put(&[1; 32], &retained)).unwrap();
        table.change(|keys| keys.put(&[2; 32], &stored(2))).unwrap();
        drop(table);
        let table = open(&path).unwrap();
        assert_eq!(table.get(&[1; 32]).unwrap(), Some(retained));
        assert_eq!(table.change(|keys| keys.rows(KeysOf::Call([2; 16]))).unwrap(), [([2; 32], stored(2))]);
        table.change(|keys| keys.remove(&[2; 32])).unwrap();
        table
            .change(|keys| {
                keys.note_read("w", 9);
                Ok(())
            })
            .unwrap();
        assert_eq!(table.get(&[2; 32]).unwrap(), None);
        let read = open(&path).unwrap().change(|keys| Ok((keys.read_up_to("w"), keys.read_up_to("other"))));
        assert_eq!(read.unwrap(), (9, 0));
    }

    #[test]
    fn a_key_is_claimed_by_one_of_many_processes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.db");
        drop(open(&path).unwrap());
        let claimed: usize = std::thread::scope(|scope| {
            let claim = |call: u8| {
                let table = open(&path).unwrap();
                let claims = (0..50_u8).map(|key| {
                    let claim = |keys: &mut KeyChange<'_>| match keys.get(&[key; 32])? {
                        Some(_) => Ok(0),
                        None => keys.put(&[key; 32], &stored(call)).map(|()| 1),
                    };
                    table.change(claim).unwrap()
                });
                claims.sum::<usize>()
            };
            let threads: Vec<_> = (0..8).map(|call| scope.spawn(move || claim(call))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(claimed, 50);
    }

    #[test]
    fn a_row_that_is_gone_does_not_look_free() {
        for tampering in
            ["DELETE FROM keys WHERE key = ?1", "UPDATE keys SET key = randomblob(32) WHERE key = ?1"]
        {
            for key in [[1; 32], [3; 32], [5; 32]] {
                let (_dir, path, table) = with_keys(1..=5);
                let other = Connection::open(&path).unwrap();
                assert_eq!(other.execute(tampering, [key]).unwrap(), 1);
                assert_eq!(kind(table.get(&key)), Some(AuditErrorKind::Tampered), "{key:?}");
                assert_eq!(table.try_is_free(&key), None);
                let claimed = table.change(|keys| keys.put(&key, &stored(9)));
                assert_eq!(kind(claimed), Some(AuditErrorKind::Tampered), "{key:?}");
            }
        }
    }

    #[test]
    fn an_older_table_is_noticed_while_it_is_open() {
        let (_dir, path, table) = with_keys([1]);
        let other = Connection::open(&path).unwrap();
        let copy = "CREATE TEMP TABLE k AS SELECT * FROM keys; CREATE TEMP TABLE s AS SELECT * FROM summary;";
        other.execute_batch(copy).unwrap();
        table.change(|keys| keys.put(&[2; 32], &stored(2))).unwrap();
        let empty = "BEGIN; DELETE FROM keys; DELETE FROM summary; ";
        let older = "INSERT INTO keys SELECT * FROM k; INSERT INTO summary SELECT * FROM s;";
        for put_back in [older, ""] {
            other.execute_batch(&format!("{empty}{put_back} COMMIT")).unwrap();
            let claimed = table.change(|keys| keys.put(&[2; 32], &stored(9)));
            assert_eq!(kind(claimed), Some(AuditErrorKind::Tampered));
            assert!(table.try_change(|keys| keys.put(&[2; 32], &stored(9))).is_none());
            assert!(table.seen().is_err());
        }
    }

    #[test]
    fn a_key_of_another_call_is_noticed() {
        let (_dir, path, table) = with_keys([1]);
        let other = Connection::open(&path).unwrap();
        other.execute("UPDATE keys SET call = ?1", [[2; 16]]).unwrap();
        let found = table.change(|keys| keys.rows(KeysOf::Call([2; 16])));
        assert_eq!(kind(found), Some(AuditErrorKind::Tampered));
    }

    #[test]
    fn tables_with_another_schema_are_made_again() {
        for change in [
            "ALTER TABLE keys RENAME COLUMN next TO other",
            "CREATE INDEX another ON keys (key, next, value, mac)",
            "CREATE TRIGGER another AFTER INSERT ON keys BEGIN DELETE FROM keys; END",
        ] {
            let (_dir, path, _table) = with_keys([1]);
            Connection::open(&path).unwrap().execute_batch(change).unwrap();
            assert_eq!(kind(open(&path)), Some(AuditErrorKind::Tampered), "{change}");
        }
    }

    /// Also if the summary is the current one.
    #[test]
    fn older_rows_are_noticed_when_the_file_is_opened() {
        let (_dir, path, table) = with_keys([1]);
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TEMP TABLE k AS SELECT * FROM keys").unwrap();
        table.change(|keys| keys.put(&[2; 32], &stored(2))).unwrap();
        drop(table);
        assert!(open(&path).is_ok());
        other.execute_batch("DELETE FROM keys; INSERT INTO keys SELECT * FROM k").unwrap();
        assert_eq!(kind(open(&path)), Some(AuditErrorKind::Tampered));
    }

    #[test]
    fn rows_in_any_order_stay_linked() {
        let (_dir, path, table) = with_keys([]);
        let mut model = BTreeMap::new();
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..2_000 {
            let key = [rng.u8(1..40); 32];
            if rng.bool() {
                let stored = stored(rng.u8(..));
                table.change(|keys| keys.put(&key, &stored)).unwrap();
                model.insert(key, stored);
            } else {
                table.change(|keys| keys.remove(&key)).unwrap();
                model.remove(&key);
            }
        }
        assert_eq!(open(&path).unwrap().all().unwrap(), model);
    }

    /// A change of the file by anything else shows when it is opened, or changes no key.
    #[test]
    fn flipped_bits_are_noticed() {
        let (_dir, path, table) = with_keys([]);
        for key in 1..=40 {
            let step_of = Some(StepOf { action: "act".to_owned(), key: Some([key; 32]), has_value: false });
            table.change(|keys| keys.put(&[key; 32], &StoredKey { step_of, ..stored(key) })).unwrap();
        }
        drop(table);
        let whole = fs::read(&path).unwrap();
        let rows = |table: &KeyTable, of| table.rows(of).unwrap();
        let key = |table: &KeyTable, key| {
            let found = (rows(table, KeysOf::Call([key; 16])), rows(table, KeysOf::Action([key; 32])));
            (table.get(&[key; 32]).unwrap(), found)
        };
        let keys = |table: &KeyTable| (1..=40).map(|number| key(table, number)).collect::<Vec<_>>();
        let before = keys(&open(&path).unwrap());
        let mut noticed = 0;
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..500 {
            let mut flipped = whole.clone();
            flipped[rng.usize(..whole.len())] ^= 1 << rng.u8(..8);
            fs::write(&path, flipped).unwrap();
            match open(&path) {
                Ok(table) => assert_eq!(keys(&table), before),
                Err(_) => noticed += 1,
            }
        }
        assert!(noticed > 100, "{noticed}");
    }
}
