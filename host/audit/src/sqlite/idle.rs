//! The maintenance work of the writer: pruning in steps, and counting calls for statistics.

use std::time::Duration;

use cofferdam_core::failpoint;

use super::prune::{Lives, Pruning};
use super::writer::Writer;
use super::{rollup, schema};
use crate::error::{AuditError, AuditErrorKind};

/// The interval of checks for calls to prune, if the operator sets a retention.
const EACH: Duration = Duration::from_secs(60 * 60);

impl Writer {
    /// Counts ended calls for statistics. If that fails, each query for statistics counts more.
    pub(super) fn count(&mut self, most: usize) {
        self.ended = 0;
        let Some(book) = &self.book else { return };
        if let Err(error) = rollup::advance(&book.connection, jiff::Timestamp::now(), most) {
            tracing::debug!(target: "cofferdam::audit", %error, "calls are not counted");
        }
    }

    /// One step of a pruning, if there is one.
    pub(super) fn prune(&mut self) {
        let Some(mut pruning) = self.pruning.take() else { return };
        let stepped = match (&self.book, &self.signing) {
            (Some(book), Some(signing)) => {
                let lives = Lives { dir: &self.lives, own: book.owner };
                book.place.check().and_then(|()| pruning.step(&book.connection, signing, &lives))
            }
            _ => Err(AuditError::new(AuditErrorKind::Other, "it is not open")),
        };
        failpoint::pass("prune.step");
        if matches!(stepped, Ok(false))
            && let Some(book) = &self.book
        {
            schema::empty_log(&book.connection, self.settings.busy_timeout);
        }
        if matches!(stepped, Ok(true)) {
            self.pruning = Some(pruning);
            return;
        }
        let Some(book) = &self.book else { return };
        let lives = Lives { dir: &self.lives, own: book.owner };
        match pruning.end(&book.connection, &lives, stepped.map(drop)) {
            Ok(Some(head)) => {
                self.own = Some(head);
                self.sign();
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(target: "cofferdam::audit", %error, "the record was not pruned"),
        }
    }

    /// Begins to prune what is older than the operator keeps, once in a while.
    pub(super) fn prune_by_itself(&mut self) {
        let Some(retention) = self.settings.retention else { return };
        let now = jiff::Timestamp::now();
        let recently = |last: jiff::Timestamp| now.duration_since(last).unsigned_abs() < EACH;
        let Some(book) = &self.book else { return };
        if self.pruning.is_some() || self.pruned.is_some_and(recently) {
            return;
        }
        self.pruned = Some(now);
        if let Ok(before) = now.checked_sub(retention)
            && Pruning::is_due(&book.connection, before)
        {
            // Commands make one call each, and would say it each time.
            self.pruning = Some(Pruning::by_itself(before, !self.is_ending));
        }
    }
}
