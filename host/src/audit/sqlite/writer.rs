//! The writer: takes all orders that wait, carries them out in one transaction, and answers when it is committed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};

use super::names::Names;
use super::orders::{Answer, At, carry_out};
use super::owners::Life;
use super::{Durability, rollup, schema};
use crate::audit::entry::GENESIS;
use crate::audit::error::{AuditError, AuditTrouble};
use crate::audit::order::Order;

/// Most orders in one commit.
const AT_ONCE: usize = 1024;

/// Writes the record of one host, on a thread of its own.
pub(super) struct Writer {
    path: PathBuf,
    lives: PathBuf,
    durability: Durability,
    /// As long as this host lives, whatever becomes of the file: its calls are its own until then.
    life: Option<Life>,
    book: Option<Book>,
    /// Calls that got an end since they were last counted.
    ended: usize,
}

/// The open record.
pub(super) struct Book {
    pub(super) connection: Connection,
    pub(super) names: Names,
    /// The calls of this host that have no end: their last entries.
    pub(super) open: HashMap<[u8; 16], u64>,
    /// This host's number.
    pub(super) owner: i64,
}

/// The end of the chain.
pub(super) struct Head {
    pub(super) n: u64,
    pub(super) hash: [u8; 32],
}

impl Writer {
    pub(super) fn new(path: PathBuf, lives: PathBuf, durability: Durability) -> Self {
        Self { path, lives, durability, life: None, book: None, ended: 0 }
    }

    /// Carries out orders until nobody can give any.
    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        let mut batch = Vec::new();
        while let Ok(first) = orders.recv() {
            batch.push(first);
            batch.extend(orders.try_iter().take(AT_ONCE - 1));
            self.write(&mut batch);
            if self.ended >= rollup::CALLS {
                self.count(2 * rollup::CALLS);
            }
        }
        // Commands make one call each: who finds that there are many counts them.
        let behind = |book: &Book| rollup::is_behind(&book.connection, rollup::CALLS).unwrap_or(false);
        if self.ended > 0 && self.book.as_ref().is_some_and(behind) {
            self.count(2 * rollup::CALLS);
        }
    }

    /// Counts calls that ended, for statistics. Where that fails, whoever asks for them counts more.
    fn count(&mut self, most: usize) {
        self.ended = 0;
        let Some(book) = &self.book else { return };
        if let Err(error) = rollup::advance(&book.connection, jiff::Timestamp::now(), most) {
            tracing::debug!(target: "cofferdam::audit", %error, "calls are not counted");
        }
    }

    fn write(&mut self, batch: &mut Vec<Order>) {
        let orders = std::mem::take(batch);
        let mut answers = Vec::with_capacity(orders.len());
        let outcome = self.commit(orders, &mut answers);
        if let Err(error) = &outcome {
            tracing::warn!(target: "cofferdam::audit", %error, "the record was not written");
            // What is open may be what is wrong: a file that was replaced, a disk that was mounted anew.
            self.book = None;
        }
        answers.into_iter().for_each(|answer| answer.tell(outcome.as_ref().err()));
    }

    fn commit(&mut self, orders: Vec<Order>, answers: &mut Vec<Answer>) -> Result<(), AuditError> {
        if let Err(error) = self.open() {
            answers.extend(orders.into_iter().map(Answer::refused));
            return Err(error);
        }
        let Self { lives, book: Some(book), ended, .. } = self else {
            return Err(AuditError::new(AuditTrouble::Other, "it is not open"));
        };
        let Book { connection, names, open, owner } = book;
        // Of a connection that nothing else uses: an unchecked transaction is one like any other.
        let transaction = rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate);
        let transaction = match transaction {
            Ok(transaction) => transaction,
            Err(error) => {
                answers.extend(orders.into_iter().map(Answer::refused));
                return Err(error.into());
            }
        };
        let head = head(&transaction)?;
        let mut at = At { names, open, owner: *owner, lives, head, ended: 0, counted: None };
        let mut failed = None;
        for order in orders {
            let (answer, outcome) = match failed {
                None => carry_out(&transaction, &mut at, order),
                Some(_) => (Answer::refused(order), Ok(())),
            };
            answers.push(answer);
            failed = failed.or(outcome.err());
        }
        match failed {
            Some(error) => Err(error.into()),
            None => {
                *ended += at.ended;
                Ok(transaction.commit()?)
            }
        }
    }

    fn open(&mut self) -> Result<(), AuditError> {
        if self.book.is_some() {
            return Ok(());
        }
        let life = match self.life.take() {
            Some(life) => life,
            None => Life::begin(&self.lives).map_err(AuditError::from_io)?,
        };
        let life = self.life.insert(life);
        let connection = schema::open(&self.path, self.durability)?;
        connection.execute("INSERT INTO owners (name) VALUES (?1) ON CONFLICT DO NOTHING", [life.name()])?;
        let owner = "SELECT id FROM owners WHERE name = ?1";
        let owner = connection.query_row(owner, [life.name()], |row| row.get(0))?;
        self.book = Some(Book { connection, names: Names::default(), open: HashMap::new(), owner });
        Ok(())
    }
}

/// The end of the chain as it is now: another host may have written since.
fn head(connection: &Connection) -> Result<Head, AuditError> {
    let mut last = connection.prepare_cached("SELECT n, hash FROM entries ORDER BY n DESC LIMIT 1")?;
    let last = last.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (n, hash) = last.unwrap_or((0, GENESIS));
    Ok(Head { n, hash })
}
