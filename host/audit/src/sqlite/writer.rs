//! The writer: takes all orders that wait, carries them out in one transaction, and answers when it is committed.

use std::collections::HashMap;
use std::iter;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cofferdam_core::failpoint;
use cofferdam_core::home_state::{HomeState, StateLoss};
use cofferdam_core::host_key;
use cofferdam_core::warnings::WarningLog;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::caught::caught;
pub(super) use super::head::{Head, head};
use super::kept::{Kept, begins, is_lost, worth_keeping};
use super::names::Names;
use super::orders::{Answer, At, carry_out};
use super::owners::{self, Life};
use super::place::{Place, replaced};
use super::prune::Pruning;
use super::signing::{self, Signing};
use super::write_command::WriteCommand;
use super::{Durability, LogSettings, rollup, schema, sealed};
use crate::anchor::Anchor;
use crate::entry::GENESIS;
use crate::error::{AuditError, AuditErrorKind};
use crate::note::NoteSigner;

/// Most orders in one commit.
const AT_ONCE: usize = 1024;

/// The idle time after which deferred work is done.
const IDLE: Duration = Duration::from_secs(1);

/// Steps of a pruning that a host makes that ends.
const STEPS_AT_THE_END: usize = 4;

/// Writes the audit log of one host, on a thread of its own.
pub(super) struct Writer {
    home: PathBuf,
    pub(super) lives: PathBuf,
    pub(super) settings: LogSettings,
    /// As long as this host lives, whatever becomes of the file or of this thread: its calls are its own until then.
    life: Arc<Mutex<Option<Life>>>,
    pub(super) signing: Option<Signing>,
    pub(super) book: Option<Book>,
    /// True if a database was open before this one, so that there may be open calls that this one does not
    /// know.
    was_open: bool,
    /// Calls that got an end since they were last counted.
    pub(super) ended: usize,
    kept: Kept,
    pub(super) pruning: Option<Pruning>,
    /// When it was last looked whether there is something to prune.
    pub(super) pruned: Option<jiff::Timestamp>,
    /// The last entry that this host wrote, and up to where it knows of a signed statement.
    pub(super) own: Option<Head>,
    signed: u64,
    /// True if no sender of orders is left.
    pub(super) is_ending: bool,
    warnings: WarningLog,
    /// The clients without room for more sealed bytes.
    full: sealed::Full,
}

/// The open record.
pub(super) struct Book {
    pub(super) connection: Connection,
    pub(super) names: Names,
    /// The calls of this host that have no end: their last entries.
    pub(super) open: HashMap<[u8; 16], u64>,
    /// This host's number.
    pub(super) owner: i64,
    pub(super) place: Place,
    /// The end of the chain, as it was last seen.
    seen: u64,
    /// The loss that was found when the home was last checked.
    loss: Option<StateLoss>,
}

impl Writer {
    pub(super) fn new(
        home: PathBuf,
        lives: PathBuf,
        settings: LogSettings,
        life: Arc<Mutex<Option<Life>>>,
    ) -> Self {
        Self {
            home,
            lives,
            settings,
            life,
            signing: None,
            book: None,
            was_open: false,
            ended: 0,
            kept: Kept::default(),
            pruning: None,
            pruned: None,
            own: None,
            signed: 0,
            is_ending: false,
            warnings: WarningLog::default(),
            full: sealed::Full::default(),
        }
    }

    /// Applies orders until all senders are gone.
    pub(super) fn run(mut self, orders: &Receiver<WriteCommand>) {
        loop {
            let first = match (self.pruning.is_some(), self.has_more_to_do()) {
                (true, _) => orders.recv_timeout(Duration::ZERO),
                (false, true) => orders.recv_timeout(IDLE),
                (false, false) => orders.recv().map_err(RecvTimeoutError::from),
            };
            match first {
                Ok(first) => {
                    let batch = iter::once(first).chain(orders.try_iter().take(AT_ONCE - 1)).collect();
                    self.guarded(|own| own.carry_out(batch));
                }
                Err(RecvTimeoutError::Timeout) if self.pruning.is_none() => self.guarded(Self::tidy),
                Err(RecvTimeoutError::Timeout) => self.hold(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            // Calls and steps take turns.
            self.guarded(Self::prune);
        }
        self.is_ending = true;
        self.guarded(Self::tidy);
        // A process that makes one call prunes a little; the next one goes on.
        for _ in 0..STEPS_AT_THE_END {
            self.guarded(Self::prune);
        }
        // Commands make one call each: the process that finds that there are many counts them.
        let behind = |book: &Book| rollup::is_behind(&book.connection, rollup::CALLS).unwrap_or(false);
        if self.ended > 0 && self.book.as_ref().is_some_and(behind) {
            self.count(2 * rollup::CALLS);
        }
        self.end_life();
        if !self.kept.is_empty() {
            tracing::error!(target: "cofferdam::audit", "the ends of some calls could not be written: they are incomplete");
        }
    }

    /// Does it; where it panics, lets go of all that may be half done.
    fn guarded(&mut self, what: impl FnOnce(&mut Self)) {
        if caught(|| what(self)).is_err() {
            self.pruning = None;
            self.drop_book();
        }
    }

    fn carry_out(&mut self, mut batch: Vec<WriteCommand>) {
        let own: Vec<_> = batch.extract_if(.., |order| order.is_of_the_log()).collect();
        self.refuse_keyed(&mut batch);
        self.write(&mut batch);
        own.into_iter().for_each(|order| self.do_own(order));
        if self.unsigned() >= signing::EVERY {
            self.sign();
        }
        if self.ended >= rollup::CALLS {
            self.count(2 * rollup::CALLS);
        }
    }

    /// Refuses what depends on keys and calls that the log may have forgotten, until the operator accepts the loss.
    fn refuse_keyed(&mut self, batch: &mut Vec<WriteCommand>) {
        if !batch.iter().any(WriteCommand::depends_on_the_past) || self.open().is_err() {
            return;
        }
        let (Some(book), Some(signing)) = (&mut self.book, &self.signing) else { return };
        if book.loss.is_none() {
            return;
        }
        // Another process may have accepted it.
        let error = match signing.loss(&book.connection) {
            Ok(loss) => {
                book.loss = loss;
                loss.map(|loss| AuditError::new(AuditErrorKind::Lost, loss))
            }
            Err(error) => Some(error),
        };
        if let Some(error) = error {
            let refused = batch.extract_if(.., |order| order.depends_on_the_past());
            refused.for_each(|order| Answer::refused(order).tell(Some(&error)));
        }
    }

    fn has_more_to_do(&self) -> bool {
        self.unsigned() > 0 || !self.kept.is_empty() || self.has_open_calls()
    }

    /// Returns true if calls of this host may be open, so that its lock file must exist.
    fn has_open_calls(&self) -> bool {
        self.was_open || self.book.as_ref().is_some_and(|book| !book.open.is_empty())
    }

    fn hold(&self) {
        if let Err(error) = self.live()
            && self.warnings.is_new("life", &error)
        {
            tracing::warn!(target: "cofferdam::audit", %error, "this host has no sign of life");
        }
    }

    /// Has the sign of life of this host stand.
    fn live(&self) -> Result<(), AuditError> {
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        let held = match &mut *life {
            Some(life) => life.hold(),
            None => Life::begin(&self.lives).map(|begun| *life = Some(begun)),
        };
        held.map_err(AuditError::from_io)
    }

    /// Leaves the lock file behind if a call is open: a file without a lock shows that the call has no end.
    fn end_life(&mut self) {
        let Some(life) = self.life.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let has_open_calls = match &self.book {
            Some(book) => owners::has_open_calls(&book.connection, life.name()),
            None => self.was_open,
        };
        if !has_open_calls {
            life.end();
        }
    }

    /// Lets go of the file: what is open may be what is wrong.
    fn drop_book(&mut self) {
        let Some(book) = self.book.take() else { return };
        self.was_open = true;
        if book.place.check().is_err() {
            // The files at the paths now are not the opened ones, so closing must not clean them up.
            let kept_as_it_is = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = book.connection.set_db_config(kept_as_it_is, true);
        }
    }

    /// Carries out what is of the audit log itself, and has transactions of its own.
    fn do_own(&mut self, order: WriteCommand) {
        let order =
            match order {
                WriteCommand::Prune { before, dry_run, reply } => {
                    match (self.open(), &self.pruning) {
                        (Err(error), _) => drop(reply.send(Err(error))),
                        (Ok(()), Some(_)) => {
                            drop(reply.send(Err(AuditError::new(
                                AuditErrorKind::Other,
                                "it is being pruned already",
                            ))));
                        }
                        (Ok(()), None) => self.pruning = Some(Pruning::new(before, dry_run, Some(reply))),
                    }
                    return;
                }
                order => order,
            };
        let done = self.open().and_then(|()| match (&self.book, &self.signing) {
            (Some(book), Some(signing)) => Ok((book, signing)),
            _ => Err(AuditError::new(AuditErrorKind::Other, "it is not open")),
        });
        let mut is_accepted = false;
        let (note, reply) = match order {
            WriteCommand::Sign { reply } => {
                let own = self.own.as_ref();
                (done.and_then(|(book, signing)| signing.sign(&book.connection, own)), reply)
            }
            WriteCommand::Accept { flaws, reply } => {
                let note = done.and_then(|(book, signing)| signing.accept(&book.connection, flaws));
                // The entries that this host wrote before may be the ones that are lost.
                self.own = None;
                self.signed = 0;
                is_accepted = note.is_ok();
                (note, reply)
            }
            _ => return,
        };
        if let (true, Some(book)) = (is_accepted, &mut self.book) {
            book.loss = None;
        }
        let _ = reply.send(note);
    }

    /// Does the deferred work while no caller waits.
    fn tidy(&mut self) {
        if !self.kept.is_empty() {
            self.write(&mut Vec::new());
        }
        if self.unsigned() > 0 {
            self.sign();
        }
        if self.has_open_calls() {
            self.hold();
        }
        self.prune_by_itself();
    }

    fn unsigned(&self) -> u64 {
        self.own.as_ref().map_or(0, |own| own.n.saturating_sub(self.signed))
    }

    /// Signs the written entries. A failure is retried with the next entry.
    pub(super) fn sign(&mut self) {
        let Self { book: Some(book), signing: Some(signing), own, .. } = self else { return };
        self.signed = own.as_ref().map_or(0, |own| own.n);
        failpoint::pass("checkpoint.before");
        let signed = book.place.check().and_then(|()| signing.sign(&book.connection, own.as_ref()));
        if let Err(error) = signed
            && self.warnings.is_new("checkpoint", &error)
        {
            tracing::warn!(target: "cofferdam::audit", %error, "no checkpoint was signed");
        }
        failpoint::pass("checkpoint.after");
    }

    fn write(&mut self, batch: &mut Vec<WriteCommand>) {
        let orders = std::mem::take(batch);
        let kept = self.kept.take();
        if !kept.is_empty() {
            // In a transaction of their own: what cannot be written at all must not hold up what can.
            if let Err(error) = self.write_again(kept) {
                for order in orders {
                    let copy = worth_keeping(&order);
                    let answer = Answer::refused(order);
                    let copy = copy.filter(|order| is_lost(order, answer.has_waiter()));
                    copy.into_iter().for_each(|order| self.kept.keep(order));
                    answer.tell(Some(&error));
                }
                return;
            }
        }
        if !orders.is_empty() {
            // Whoever waits was told.
            let _ = self.write_down(orders);
        }
    }

    /// Applies the stored orders. If one of these orders fails rather than the audit log, the others are
    /// applied without it, and it is lost.
    fn write_again(&mut self, kept: Vec<WriteCommand>) -> Result<(), AuditError> {
        let alone: Vec<_> = kept.iter().filter_map(worth_keeping).collect();
        match self.write_down(kept) {
            Err(error) if error.kind() == AuditErrorKind::Other => {}
            outcome => return outcome,
        }
        drop(self.kept.take());
        for order in alone {
            match self.write_down(vec![order]) {
                Err(error) if error.kind() == AuditErrorKind::Other => {
                    drop(self.kept.take());
                    tracing::error!(target: "cofferdam::audit", %error, "what came of a call cannot be written: it is incomplete");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Carries out these orders and answers them.
    fn write_down(&mut self, orders: Vec<WriteCommand>) -> Result<(), AuditError> {
        let mut answers = Vec::with_capacity(orders.len());
        // Copied before it is known whether they must be; what is long in them is shared.
        let copies: Vec<_> = orders.iter().map(worth_keeping).collect();
        let outcome = caught(|| self.commit(orders, &mut answers)).flatten();
        if let Err(error) = &outcome {
            // It is tried again, and every call that waits for it says so itself.
            if self.warnings.is_new("written", error) {
                tracing::warn!(target: "cofferdam::audit", %error, "the record was not written");
            }
            // The open file itself may be the cause: a file that was replaced, a disk that was mounted again.
            self.drop_book();
            if error.kind().may_pass() {
                // A call that began in a replaced file does not begin in another one.
                let is_replaced = error.kind() == AuditErrorKind::Replaced;
                // Only now it is certain that a caller who does not wait has dropped its end of the channel. After a
                // panic some commands have no answer.
                let waiters = answers.iter().map(Answer::has_waiter).chain(iter::repeat(false));
                let lost = copies.into_iter().zip(waiters).filter_map(|(copy, has_waiter)| {
                    copy.filter(|order| is_lost(order, has_waiter) && !(is_replaced && begins(order)))
                });
                lost.for_each(|order| self.kept.keep(order));
            }
        }
        if outcome.is_ok() && self.warnings.resolve("written") {
            tracing::info!(target: "cofferdam::audit", "the record is written again");
        }
        answers.into_iter().for_each(|answer| answer.tell(outcome.as_ref().err()));
        outcome
    }

    fn commit(&mut self, orders: Vec<WriteCommand>, answers: &mut Vec<Answer>) -> Result<(), AuditError> {
        if let Err(error) = self.open() {
            answers.extend(orders.into_iter().map(Answer::refused));
            return Err(error);
        }
        let Self { lives, book: Some(book), own, ended, full, settings, warnings, .. } = self else {
            return Err(AuditError::new(AuditErrorKind::Other, "it is not open"));
        };
        let Book { connection, names, open, owner, place, seen, .. } = book;
        // Frequent queries for the state of a key do not block the writer.
        let orders = if orders
            .iter()
            .all(|order| matches!(order, WriteCommand::KeyState { .. } | WriteCommand::Flush { .. }))
        {
            let head = Head { n: 0, hash: GENESIS };
            let at = At::new(names, open, *owner, lives, head, full);
            let left = at.look(connection, orders, answers);
            place.check()?;
            if left.is_empty() {
                return Ok(());
            }
            left
        } else {
            orders
        };
        let begun = signing::begin(connection).and_then(|transaction| {
            let head = head(&transaction)?;
            names.refresh(&transaction)?;
            Ok((transaction, head))
        });
        let (transaction, head) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                answers.extend(orders.into_iter().map(Answer::refused));
                return Err(error.into());
            }
        };
        if head.n < *seen {
            answers.extend(orders.into_iter().map(Answer::refused));
            return Err(replaced("it is shorter than it was"));
        }
        let before = head.n;
        let mut at = At::new(names, open, *owner, lives, head, full);
        let mut failed = None;
        for order in orders {
            let (answer, outcome) = match failed {
                None => carry_out(&transaction, &mut at, order),
                Some(_) => (Answer::refused(order), Ok(())),
            };
            answers.push(answer);
            failed = failed.or(outcome.err());
        }
        let At { head, ended: ended_now, sealed, .. } = at;
        match failed.map_or_else(|| sealed.settle(&transaction, settings.sealed, full), Err) {
            Err(error) => Err(error.into()),
            Ok(dropped) => {
                *ended += ended_now;
                if dropped > 0 && warnings.is_new("sealed", "dropped") {
                    tracing::warn!(target: "cofferdam::audit", dropped, "the quota of sealed bytes is used up: outcomes of the oldest calls are not given again; `cofferdam audit stats` says whose");
                }
                failpoint::pass("before.commit");
                transaction.commit()?;
                *seen = head.n;
                // An acknowledged entry must be in the file that is at the path.
                place.check()?;
                failpoint::pass("after.commit");
                failpoint::pass_if("open.committed", || answers.iter().any(Answer::is_of_open));
                failpoint::pass_if("close.committed", || answers.iter().any(Answer::is_of_more));
                if head.n > before {
                    *own = Some(head);
                }
                Ok(())
            }
        }
    }

    fn open(&mut self) -> Result<(), AuditError> {
        self.live()?;
        if let Some(book) = &self.book {
            let there = book.place.check();
            if there.is_err() {
                self.drop_book();
            }
            return there;
        }
        if self.signing.is_none() {
            let key = host_key::load_or_create(&self.home.join("host.key"));
            let key = key.map_err(AuditError::from_key)?;
            let power = self.settings.durability == Durability::Power;
            let (signer, anchor) = (NoteSigner::new(&key), Anchor::of(&self.home));
            let state = HomeState::new(&self.home);
            self.signing = Some(Signing { signer, anchor, state, power });
        }
        let connection = schema::open(&self.home.join(super::FILE), &self.settings)?;
        let mut loss = None;
        if let Some(signing) = &self.signing {
            loss = signing.loss(&connection)?;
            signing.begin(&connection)?;
        }
        if let Some(loss) = loss {
            tracing::error!(target: "cofferdam::audit", "{loss}. Nothing is run under an idempotency key until the loss is accepted: `cofferdam audit verify` says more");
        }
        let name = {
            let life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
            life.as_ref().map(|life| life.name().to_owned()).unwrap_or_default()
        };
        connection.execute("INSERT INTO owners (name) VALUES (?1) ON CONFLICT DO NOTHING", [&name])?;
        let owner = "SELECT id FROM owners WHERE name = ?1";
        let owner = connection.query_row(owner, [&name], |row| row.get(0))?;
        let place = Place::of(&self.home).map_err(AuditError::from_io)?;
        if !self.was_open {
            owners::sweep(&self.lives, |name| owners::has_open_calls(&connection, name));
        }
        let (names, open) = (Names::default(), HashMap::new());
        self.book = Some(Book { connection, names, open, owner, place, seen: 0, loss });
        Ok(())
    }
}
