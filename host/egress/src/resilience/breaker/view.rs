//! What an operator sees of circuits, and closing them by hand.

use std::io;

use cofferdam_core::failure::Cause;
use cofferdam_model::manifest::ConnectorName;
use jiff::Timestamp;
use serde::Serialize;

use super::circuit::{CircuitState, Opening, Shut, Why};
use super::circuits::Circuits;
use super::kept::Record;

/// A circuit that has something to remember.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CircuitView {
    /// The connector, without a version.
    pub connector: String,
    /// The host:port.
    pub host: String,
    /// `open`, `half_open` from when one request is let through, `closed` where it has only failures to remember.
    /// Open for some credentials is open.
    pub state: &'static str,
    /// The failures that count towards opening it.
    pub failures: usize,
    /// Why it is open for everybody, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenView>,
    /// For which credentials it is open for good.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub open_for_good: Vec<ShutView>,
}

/// What was reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ResetView {
    /// The circuits that were closed, as they were.
    pub closed: Vec<CircuitView>,
    /// How many files were removed that were none: damaged, or put there by others. Only where all were reset.
    pub damaged_removed: usize,
}

/// Why a circuit is open, and how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OpenView {
    /// Who found out, and what.
    #[serde(flatten)]
    pub cause: CauseView,
    /// How long it stays open, in milliseconds.
    pub cooldown_ms: u64,
    /// How long until one request is let through, in milliseconds; 0 where that is now.
    pub retry_after_ms: u64,
    /// Whether a call is trying the host now: until it ends, all others are refused.
    pub probe_is_out: bool,
}

/// For which credentials a circuit is open until they are bound anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShutView {
    /// Who found out, and what.
    #[serde(flatten)]
    pub cause: CauseView,
    /// The names of the bindings; none where the request carried no credential.
    pub bindings: Vec<String>,
}

/// What opened a circuit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CauseView {
    /// When.
    pub opened_at: String,
    /// What was seen there.
    pub cause_code: &'static str,
    /// The answer's status, if it was an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The record of the call that saw it.
    pub cause_audit_id: String,
}

impl Circuits {
    /// Every circuit that has something to remember, by connector and host.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn views(&self, now: Timestamp) -> io::Result<Vec<CircuitView>> {
        let (records, unusable) = self.records()?;
        if !unusable.is_empty() {
            let files = unusable.len();
            tracing::warn!(target: "cofferdam::breaker", files, "files of circuits are damaged, and count as closed");
        }
        Ok(records.iter().map(|record| self.view(record, now)).collect())
    }

    /// Closes the circuits of this connector, at this host; of all where none is named, and then removes what is
    /// damaged, too.
    ///
    /// # Errors
    /// The directory cannot be read or written.
    pub fn reset(
        &self,
        connector: Option<&ConnectorName>,
        host: Option<&str>,
        now: Timestamp,
    ) -> io::Result<ResetView> {
        let (records, unusable) = self.records()?;
        let is_meant = |record: &Record| {
            connector.is_none_or(|connector| connector.as_str() == record.connector)
                && host.is_none_or(|host| host == record.host)
        };
        let (meant, _): (Vec<_>, Vec<_>) = records.into_iter().partition(is_meant);
        let all = connector.is_none() && host.is_none();
        let closed = meant.iter().map(|record| self.view(record, now)).collect();
        let damaged: &[_] = if all { &unusable } else { &[] };
        self.close(&meant, damaged)?;
        Ok(ResetView { closed, damaged_removed: damaged.len() })
    }

    fn view(&self, record: &Record, now: Timestamp) -> CircuitView {
        let mut view = view(record, now);
        let open = view.open.as_mut().filter(|open| open.retry_after_ms == 0);
        if let Some((open, connector)) = open.zip(ConnectorName::parse(&record.connector).ok()) {
            open.probe_is_out = self.is_probed(&self.place(&connector, &record.host));
        }
        view
    }
}

fn view(record: &Record, now: Timestamp) -> CircuitView {
    let circuit = &record.circuit;
    let state = match &circuit.open {
        Some(opening) if opening.left(now).is_none() => CircuitState::HalfOpen,
        Some(_) => CircuitState::Open,
        None if circuit.shut.is_empty() => CircuitState::Closed,
        None => CircuitState::Open,
    };
    CircuitView {
        connector: record.connector.clone(),
        host: record.host.clone(),
        state: state.name(),
        failures: circuit.failures.len(),
        open: circuit.open.as_ref().map(|opening| open(opening, now)),
        open_for_good: circuit.shut.iter().map(shut).collect(),
    }
}

fn open(opening: &Opening, now: Timestamp) -> OpenView {
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    OpenView {
        cause: cause(&opening.why),
        cooldown_ms: millis(opening.cooldown),
        retry_after_ms: opening.left(now).map_or(0, millis),
        probe_is_out: false,
    }
}

fn shut(shut: &Shut) -> ShutView {
    ShutView { cause: cause(&shut.why), bindings: shut.bindings() }
}

fn cause(why: &Why) -> CauseView {
    CauseView {
        opened_at: why.at.to_string(),
        cause_code: Cause::name(why.cause),
        status: why.status,
        cause_audit_id: why.audit_id.clone(),
    }
}
