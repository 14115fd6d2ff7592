//! The operator's view of circuits, and closing them manually.

use std::io;

use cofferdam_core::failure::FailureCause;
use cofferdam_model::manifest::ConnectorName;
use jiff::Timestamp;
use serde::Serialize;

use super::circuit::{CircuitState, CircuitTrip, PermanentTrip, TripCause};
use super::circuits::CircuitStore;
use super::kept::StoredCircuit;

/// A circuit that is not in its initial state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CircuitView {
    /// The connector, without a version.
    pub connector: String,
    /// The `host:port`.
    pub host: String,
    /// `open`, `half_open` as soon as one request is let through, `closed` if it only has failures. A circuit
    /// that is open for some credentials counts as open.
    pub state: &'static str,
    /// The failures that count towards opening it.
    pub failures: usize,
    /// The reason why it is open for all requests, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenView>,
    /// The credentials for which it is permanently open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub open_for_good: Vec<ShutView>,
}

/// The result of a reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ResetView {
    /// The circuits that were closed, in their former state.
    pub closed: Vec<CircuitView>,
    /// The number of removed files that held no circuit: damaged, or of other programs. Only if all circuits
    /// were reset.
    pub damaged_removed: usize,
}

/// The cause of an open circuit, and its times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OpenView {
    /// The observation that opened it.
    #[serde(flatten)]
    pub cause: CauseView,
    /// The time that it stays open, in milliseconds.
    pub cooldown_ms: u64,
    /// The time until one request is let through, in milliseconds; 0 if that is now.
    pub retry_after_ms: u64,
    /// True if a call is probing the host now: until it ends, all others are rejected.
    pub probe_is_out: bool,
}

/// The credentials for which a circuit is open until they are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShutView {
    /// The observation that caused it.
    #[serde(flatten)]
    pub cause: CauseView,
    /// The names of the bindings; none if the request carried no credential.
    pub bindings: Vec<String>,
}

/// The observation that opened a circuit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CauseView {
    /// The time.
    pub opened_at: String,
    /// The observed cause.
    pub cause_code: &'static str,
    /// The response's status, if there was a response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The audit id of the call that observed it.
    pub cause_audit_id: String,
}

impl CircuitStore {
    /// Returns every circuit that is not in its initial state, by connector and host.
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

    /// Closes the circuits of this connector at this host. Without a connector and host it closes all
    /// circuits, and also removes damaged files.
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
        let is_meant = |record: &StoredCircuit| {
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

    fn view(&self, record: &StoredCircuit, now: Timestamp) -> CircuitView {
        let mut view = view(record, now);
        let open = view.open.as_mut().filter(|open| open.retry_after_ms == 0);
        if let Some((open, connector)) = open.zip(ConnectorName::parse(&record.connector).ok()) {
            open.probe_is_out = self.is_probed(&self.place(&connector, &record.host));
        }
        view
    }
}

fn view(record: &StoredCircuit, now: Timestamp) -> CircuitView {
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

fn open(opening: &CircuitTrip, now: Timestamp) -> OpenView {
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    OpenView {
        cause: cause(&opening.why),
        cooldown_ms: millis(opening.cooldown),
        retry_after_ms: opening.left(now).map_or(0, millis),
        probe_is_out: false,
    }
}

fn shut(shut: &PermanentTrip) -> ShutView {
    ShutView { cause: cause(&shut.why), bindings: shut.bindings() }
}

fn cause(why: &TripCause) -> CauseView {
    CauseView {
        opened_at: why.at.to_string(),
        cause_code: FailureCause::name(why.cause),
        status: why.status,
        cause_audit_id: why.audit_id.clone(),
    }
}
