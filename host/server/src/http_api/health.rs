//! `GET /v1/health`: the state of what calls depend on, as an operator looks at it.

use axum::extract::State;
use axum::response::Response;
use cofferdam_audit::{AuditError, AuditReader, CallRow, CallStatus, Filter, LogStorage, VerificationResult};
use cofferdam_core::error::HostError;
use cofferdam_core::failure::sanitize_line;
use cofferdam_runtime::host::{Host, unreadable};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::calls::read_queued;
use super::{HttpApi, response};

/// The most calls that are listed of those that wait for a decision.
const LISTED: usize = 50;

/// The state of what calls depend on.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename = "Health")]
pub struct HealthReport {
    /// The time of the host's clock, as RFC 3339.
    pub at: String,
    /// The circuits that are not closed, or that count failures; none if they cannot be read.
    pub circuits: Option<Vec<ConnectorCircuit>>,
    /// The rate limits of installed connectors that have one.
    pub rate_limits: Vec<ConnectorRateLimit>,
    /// The calls that were begun by a process that is gone, and have no end.
    pub interrupted: WaitingCalls,
    /// The ended calls of which it is unknown what was done under their idempotency key: no call runs under the key until an
    /// operator decides.
    pub undecided_keys: WaitingCalls,
    /// The space that the audit log uses; none if nothing was recorded yet.
    pub log: Option<LogUsage>,
    /// The last verification of the audit log from this home; none if there was none.
    pub verification: Option<VerificationResult>,
}

/// The circuit of a connector to one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConnectorCircuit {
    /// The connector, without a version.
    pub connector: String,
    /// The host and port.
    pub host: String,
    /// `closed`, `open` or `half_open`.
    pub state: String,
    /// The failures that count towards opening it.
    pub failures: usize,
    /// The time until one request is let through, in milliseconds; none if it is not open for all requests.
    pub retry_after_ms: Option<u64>,
    /// The code of the observation that opened it.
    pub cause: Option<String>,
    /// The names of the bindings for which it stays open until they are replaced.
    pub refused_bindings: Vec<String>,
}

/// The rate limit of a connector at each host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConnectorRateLimit {
    /// The connector, without a version.
    pub connector: String,
    /// The number of requests in a period.
    pub requests: u32,
    /// The period in seconds.
    pub seconds: u64,
    /// The number of requests that may be sent at once.
    pub burst: u32,
    /// The hosts at which requests of this process count against the limit now; none if the hosts of a cluster share it.
    pub used: Option<Vec<RateLimitAtHost>>,
}

/// The use of a rate limit at one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RateLimitAtHost {
    /// The host and port.
    pub host: String,
    /// The requests that count against the limit now. Those above `burst` wait.
    pub requests: u64,
    /// The time that another request would wait, in milliseconds.
    pub wait_ms: u64,
}

/// Calls that wait for a decision of the operator.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct WaitingCalls {
    /// The number of them.
    pub count: u64,
    /// The newest of them.
    pub calls: Vec<CallRow>,
}

/// The space that the audit log uses, and its retention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LogUsage {
    /// The bytes of all parts.
    pub bytes: u64,
    /// The bytes of entries.
    pub entries_bytes: u64,
    /// The bytes of sealed requests and outcomes.
    pub sealed_bytes: u64,
    /// The bytes of the index.
    pub index_bytes: u64,
    /// The bytes of everything else.
    pub other_bytes: u64,
    /// The time at which the oldest call was received, as RFC 3339.
    pub oldest: Option<String>,
    /// The time for which calls are kept, in seconds; none if they are kept until an operator removes them.
    pub retention_seconds: Option<u64>,
    /// The time at which old calls were last looked for.
    pub retained: Option<String>,
    /// The time from which the oldest call is old enough to be removed.
    pub oldest_expires: Option<String>,
}

impl LogUsage {
    fn new(storage: &LogStorage, host: &Host) -> Self {
        let time = |at: Timestamp| format!("{at:.6}");
        let retention = host.audit().retention();
        let expires = storage.oldest.zip(retention).and_then(|(oldest, kept)| oldest.checked_add(kept).ok());
        Self {
            bytes: storage.bytes(),
            entries_bytes: storage.entries_bytes,
            sealed_bytes: storage.sealed_bytes,
            index_bytes: storage.index_bytes,
            other_bytes: storage.other_bytes,
            oldest: storage.oldest.map(time),
            retention_seconds: retention.map(|kept| kept.as_secs()),
            retained: storage.retained.map(time),
            oldest_expires: expires.map(time),
        }
    }
}

impl HttpApi {
    /// Returns the state of what calls depend on.
    ///
    /// # Errors
    /// `audit_unavailable`: the audit log cannot be read; the index of packages cannot be read.
    pub async fn health(&self) -> Result<HealthReport, HostError> {
        let host = self.host.clone();
        read_queued(self, move || report(&host)).await
    }
}

/// Returns the state.
pub(super) async fn show(State(api): State<HttpApi>) -> Response {
    api.health().await.map_or_else(response::host_error, |report| response::view(&report))
}

fn report(host: &Host) -> Result<HealthReport, HostError> {
    let mut log = None;
    let (mut interrupted, mut undecided_keys) = (WaitingCalls::default(), WaitingCalls::default());
    if let Some(mut reader) = host.audit().existing()? {
        let mut read = || -> Result<(), AuditError> {
            interrupted = incomplete_calls(&mut *reader)?;
            undecided_keys = undecided_calls(&mut *reader)?;
            log = Some(LogUsage::new(&reader.storage()?, host));
            Ok(())
        };
        read().map_err(unreadable)?;
    }
    let mut names: Vec<_> = host.list()?.into_iter().map(|entry| entry.name).collect();
    names.dedup();
    let rate_limits = names.iter().filter_map(|name| {
        let limit = host.rate_limit_for(name)?;
        let (requests, seconds, burst) = (limit.requests(), limit.per().as_secs(), limit.burst());
        let used = host.rate_limit_uses(name).map(|uses| {
            let at_host = uses.into_iter().map(|at| RateLimitAtHost {
                host: sanitize_line(&at.host, 300),
                requests: at.requests,
                wait_ms: u64::try_from(at.wait.as_millis()).unwrap_or(u64::MAX),
            });
            at_host.collect()
        });
        Some(ConnectorRateLimit { connector: name.to_string(), requests, seconds, burst, used })
    });
    Ok(HealthReport {
        at: format!("{:.6}", host.timestamp()),
        circuits: circuits(host),
        rate_limits: rate_limits.collect(),
        interrupted,
        undecided_keys,
        log,
        verification: host.audit().last_verification(),
    })
}

/// Returns the circuits; none if they cannot be read.
fn circuits(host: &Host) -> Option<Vec<ConnectorCircuit>> {
    let circuit = host.circuits().ok()?.into_iter().map(|circuit| {
        let lasting = circuit.open_for_good;
        let cause = circuit.open.as_ref().map(|open| &open.cause);
        let cause = cause.or_else(|| lasting.first().map(|trip| &trip.cause));
        ConnectorCircuit {
            retry_after_ms: circuit.open.as_ref().map(|open| open.retry_after_ms),
            cause: cause.map(|cause| cause.cause_code.to_owned()),
            refused_bindings: lasting.iter().flat_map(|trip| trip.bindings.iter().cloned()).collect(),
            connector: circuit.connector,
            host: circuit.host,
            state: circuit.state.to_owned(),
            failures: circuit.failures,
        }
    });
    Some(circuit.collect())
}

fn incomplete_calls(reader: &mut dyn AuditReader) -> Result<WaitingCalls, AuditError> {
    let mut rows = reader.list(&Filter { status: Some(CallStatus::Incomplete), ..Filter::default() })?;
    let count = rows.len() as u64;
    rows.truncate(LISTED);
    Ok(WaitingCalls { count, calls: rows })
}

fn undecided_calls(reader: &mut dyn AuditReader) -> Result<WaitingCalls, AuditError> {
    let mut ids = reader.undecided_keys(None)?;
    let count = ids.len() as u64;
    // Ids sort by time.
    ids.sort_by(|a, b| b.as_str().cmp(a.as_str()));
    ids.truncate(LISTED);
    let rows = ids.iter().filter_map(|id| reader.call(id).transpose());
    Ok(WaitingCalls { count, calls: rows.collect::<Result<_, _>>()? })
}
