//! Circuit breakers: who is not asked for a while, because too much failed there.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::document::Table;
use crate::failure::{AuditId, Cause, CircuitOpen};
use crate::manifest::ConnectorName;

/// When a circuit opens, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerPolicy {}

impl BreakerPolicy {
    /// Opens at the first failure.
    #[must_use]
    pub fn at_once() -> Self {
        Self {}
    }

    /// The policy in a table of `config.toml`; none where it is switched off, or where it was reported what is
    /// wrong.
    pub(crate) fn read(table: &Table<'_>) -> Option<Self> {
        table.only(&["enabled"]);
        table.flag("enabled").unwrap_or(true).then(Self::at_once)
    }

    /// Opens at the third failure within a minute.
    #[must_use]
    pub fn windowed() -> Self {
        Self {}
    }
}

/// The circuits of a host.
#[derive(Debug)]
pub struct Circuits {}

/// A circuit that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The host:port.
    pub host: String,
    /// From this state,
    pub from: &'static str,
    /// to this one.
    pub to: &'static str,
    /// What was seen there; none where it was healed.
    pub cause: Option<Cause>,
}

/// What one candidate of a call has to do with circuits, from its first attempt to its last.
#[derive(Debug)]
pub struct Visit {}

impl Circuits {
    /// The circuits that are kept in `dir`.
    #[must_use]
    pub fn new(_dir: PathBuf) -> Arc<Self> {
        Arc::new(Self {})
    }

    /// One candidate's visit.
    #[must_use]
    pub fn visit(
        self: &Arc<Self>,
        _connector: &ConnectorName,
        _policy: &Arc<BreakerPolicy>,
        _audit_id: &AuditId,
    ) -> Arc<Visit> {
        Arc::new(Visit {})
    }
}

impl Visit {
    /// Whether a request may go to `host` now. `credential` says which state of which bindings it carries.
    ///
    /// # Errors
    /// The circuit is open.
    pub fn admit(&self, _host: &str, _credential: Option<&str>, _now: Timestamp) -> Result<(), CircuitOpen> {
        Ok(())
    }

    /// Notes what came of a request to `host`: none where it was answered well.
    pub fn saw(
        &self,
        _host: &str,
        _cause: Option<Cause>,
        _status: Option<u16>,
        _retry_after: Option<Duration>,
    ) {
    }

    /// After a failed attempt: whether the candidate must not be attempted again, since a circuit it needs is open
    /// or it is the one that tries it.
    pub fn forbids_retry(&self, _now: Timestamp) -> bool {
        false
    }

    /// The candidate is done: what was seen last at each host is counted, and what it held is let go. Dropping it
    /// lets go without counting.
    pub fn settle(&self, _now: Timestamp) {}

    /// The circuits that changed since this was asked last.
    pub fn take_changes(&self) -> Vec<Change> {
        Vec::new()
    }
}
