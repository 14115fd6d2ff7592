//! `GET /v1/history`: the calls of a time, step by step.

use axum::extract::State;
use axum::response::Response;
use cofferdam_audit::{CallStatus, DurationPercentiles, Histogram, HistoryPart, HistoryQuery, StatsGroup};
use cofferdam_core::error::HostError;
use cofferdam_runtime::host::unreadable;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::audit::{Parameters, parameters};
use super::calls::read_queued;
use super::query::{self, QueryParameters};
use super::{HttpApi, response};

/// The calls of a time, by the step in which they were received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename = "History")]
pub struct HistoryReport {
    /// The beginning of the first step, as RFC 3339.
    pub since: String,
    /// The end of the last step, or the present if that has not ended.
    pub until: String,
    /// The length of the steps: `hour` or `day`.
    pub step: String,
    /// All steps, the first one first; also those without a call.
    pub steps: Vec<HistoryStepView>,
}

/// The calls that were received in one step, and ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename = "HistoryStep")]
pub struct HistoryStepView {
    /// The beginning of the step, as RFC 3339.
    pub at: String,
    /// The length of the step in seconds; of the last one, up to the end.
    pub seconds: u64,
    /// The number of calls.
    pub calls: u64,
    /// Those of them without a value.
    pub failed: u64,
    /// Their durations.
    #[serde(flatten)]
    pub durations: DurationPercentiles,
    /// The calls without a value, the most first.
    pub failures: Vec<FailureCount>,
}

/// Calls without a value that ended the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailureCount {
    /// Their status: `failure`, `refused`, `cancelled`, `resumed` or `skipped`.
    pub status: String,
    /// The class of their failures.
    pub class: Option<String>,
    /// The layer that the failures came from; none if they are none, or if it is not known.
    pub boundary: Option<String>,
    /// The number of calls.
    pub calls: u64,
}

impl HistoryStepView {
    fn new(start: Timestamp, seconds: u64, groups: &[StatsGroup]) -> Self {
        let failed = groups.iter().filter(|group| group.status != CallStatus::Value);
        let failure = |group: &StatsGroup| FailureCount {
            status: group.status.name().to_owned(),
            class: group.class.clone(),
            boundary: Some(group.name.clone()).filter(|boundary| !boundary.is_empty()),
            calls: group.calls,
        };
        let failures: Vec<_> = failed.map(failure).collect();
        let mut durations = Histogram::default();
        groups.iter().for_each(|group| durations.merge(&group.durations));
        Self {
            at: start.to_string(),
            seconds,
            calls: groups.iter().map(|group| group.calls).sum(),
            failed: failures.iter().map(|failure| failure.calls).sum(),
            durations: DurationPercentiles::from_histogram(&durations),
            failures,
        }
    }
}

impl HistoryReport {
    fn new(query: HistoryQuery, parts: &[HistoryPart]) -> Self {
        let mut parts = parts.iter().peekable();
        let step = |start: Timestamp| {
            let part = parts.next_if(|part| part.start == start);
            let length = query.step.seconds();
            let passed = query.until.as_second().saturating_sub(start.as_second()).clamp(1, length);
            let groups = part.map(|part| part.groups.as_slice()).unwrap_or_default();
            HistoryStepView::new(start, passed.unsigned_abs(), groups)
        };
        Self {
            since: query.step.begin(query.since).to_string(),
            until: query.until.to_string(),
            step: query.step.name().to_owned(),
            steps: query.starts().map(step).collect(),
        }
    }
}

impl HttpApi {
    /// Returns the history that the parameters of `GET /v1/history` select.
    ///
    /// # Errors
    /// `validation`: a parameter is not acceptable. `audit_unavailable`: the audit log cannot be read.
    pub async fn history(&self, parameters: Vec<(String, String)>) -> Result<HistoryReport, HostError> {
        let (filter, history) = query::history(QueryParameters::new(parameters)?, self.host.timestamp())?;
        let host = self.host.clone();
        read_queued(self, move || {
            let parts = match host.audit().existing()? {
                Some(mut reader) => reader.history(&filter, history).map_err(unreadable)?,
                None => Vec::new(),
            };
            Ok(HistoryReport::new(history, &parts))
        })
        .await
    }
}

/// Returns the history.
pub(super) async fn show(State(api): State<HttpApi>, query: Parameters) -> Response {
    let history = async { api.history(parameters(query)?).await };
    history.await.map_or_else(response::host_error, |history| response::view(&history))
}
