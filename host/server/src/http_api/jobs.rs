//! `POST /v1/jobs` and `GET /v1/jobs/{id}`: work that waits in a queue until a worker runs it.
//!
//! The queue is not a part of this crate: it is a [`JobService`]. Without one, these paths do not exist.

use std::pin::Pin;

use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::calls::read_queued;
use super::job_request::{JobRequest, JobTarget};
use super::request::{idempotency_key, is_json};
use super::{HttpApi, JOBS, response};

/// The future of a request to the queue.
pub type JobFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, HostError>> + Send + 'a>>;

/// A queue of jobs.
pub trait JobService: Send + Sync + 'static {
    /// Puts a job on the queue, unless one with its key is known. The job is durable when the future completes.
    fn submit(&self, job: NewJob) -> JobFuture<'_, SubmittedJob>;

    /// Returns a job. Its outcome is returned only to the actor that submitted it.
    fn show<'a>(&'a self, id: &'a str, actor: &'a str) -> JobFuture<'a, JobView>;

    /// Cancels a job that waits, or asks the worker that runs it to cancel its call.
    fn cancel<'a>(&'a self, id: &'a str) -> JobFuture<'a, JobView>;
}

/// A job that is to be submitted.
#[derive(Debug)]
pub struct NewJob {
    /// The idempotency key; a new one if there is none.
    pub key: Option<String>,
    /// The actor of the call.
    pub actor: String,
    /// The work.
    pub request: JobRequest,
    /// The trace that it belongs to, as a W3C `traceparent`.
    pub traceparent: Option<String>,
}

/// A job that is on the queue, or was there before.
#[derive(Debug)]
pub struct SubmittedJob {
    /// The job.
    pub job: JobView,
    /// True if it was submitted before with the same key.
    pub is_known: bool,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits for a worker, or for its next attempt.
    Queued,
    /// A worker runs it.
    Running,
    /// It has a value.
    Done,
    /// It has a failure, which stands for its key.
    Failed,
    /// It has no outcome, and an operator has to decide: it is in the dead-letter stream.
    Dead,
    /// It was cancelled.
    Cancelled,
}

impl JobState {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::Done, Self::Failed, Self::Dead, Self::Cancelled];

    /// Returns the stable word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns true if no worker will run the job any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

/// A job.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename = "Job")]
pub struct JobView {
    /// Its id. One idempotency key has one id.
    pub id: String,
    /// Its state. An outcome is that of the audit log.
    pub state: JobState,
    /// Its idempotency key.
    pub idempotency_key: String,
    /// The connector and the operation, or the action.
    pub target: JobTarget,
    /// The actor of its call.
    pub actor: String,
    /// The time at which it was submitted, as RFC 3339.
    pub submitted_at: String,
    /// The time of the last change, as RFC 3339.
    pub updated_at: String,
    /// The number of runs that ended with a failure which is retried.
    pub attempts: u32,
    /// The time of the next attempt, as RFC 3339, if it waits for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<String>,
    /// The audit id of its last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_id: Option<String>,
    /// The call with the same key, made otherwise, whose outcome it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<String>,
    /// The class of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The code of the last failure or error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The reason for its state, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The value, for the actor that submitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value")]
    pub value: Option<Box<RawValue>>,
    /// The failure, for the actor that submitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map<String, Value>")]
    pub error: Option<Box<RawValue>>,
}

/// The longest `traceparent`, in characters.
const TRACEPARENT: usize = 55;

/// Puts a job on the queue.
pub(super) async fn submit(State(api): State<HttpApi>, headers: HeaderMap, body: Bytes) -> Response {
    let Some(jobs) = api.jobs.clone() else { return response::no_such_path() };
    if !is_json(&headers) {
        return response::not_json();
    }
    let key = match idempotency_key(&headers) {
        Ok(key) => key,
        Err(error) => return response::host_error(error),
    };
    let host = api.host.clone();
    let request = match read_queued(&api, move || JobRequest::read(&body)?.resolve(&host)).await {
        Ok(request) => request,
        Err(error) => return response::host_error(error),
    };
    let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
    let traceparent = traceparent.filter(|text| is_traceparent(text)).map(str::to_owned);
    let job = NewJob { key, actor: api.actor.to_string(), request, traceparent };
    match jobs.submit(job).await {
        Ok(SubmittedJob { job, is_known }) => {
            let status = if is_known { StatusCode::OK } else { StatusCode::ACCEPTED };
            let mut answer = view(status, &job);
            if let Ok(location) = HeaderValue::from_str(&format!("{JOBS}/{}", job.id)) {
                answer.headers_mut().insert(header::LOCATION, location);
            }
            answer
        }
        Err(error) => refused(error),
    }
}

/// Returns a job.
pub(super) async fn show(State(api): State<HttpApi>, id: Result<Path<String>, PathRejection>) -> Response {
    let (Ok(Path(id)), Some(jobs)) = (id, api.jobs.clone()) else { return response::no_such_path() };
    match jobs.show(&id, &api.actor).await {
        Ok(job) => view(StatusCode::OK, &job),
        Err(error) => refused(error),
    }
}

/// Cancels a job.
pub(super) async fn cancel(State(api): State<HttpApi>, id: Result<Path<String>, PathRejection>) -> Response {
    let (Ok(Path(id)), Some(jobs)) = (id, api.jobs.clone()) else { return response::no_such_path() };
    match jobs.cancel(&id).await {
        Ok(job) => view(StatusCode::OK, &job),
        Err(error) => refused(error),
    }
}

fn view(status: StatusCode, job: &JobView) -> Response {
    // Texts, numbers and JSON: the serialization cannot fail.
    response::json(status, serde_json::to_string(job).unwrap_or_default())
}

/// Returns the answer for an error of the queue. A full queue is 503: the service is at its limit, not this client.
fn refused(error: HostError) -> Response {
    let is_temporary = matches!(error.kind(), HostErrorKind::Busy | HostErrorKind::QueueUnavailable);
    let mut answer = response::host_error(error);
    if is_temporary {
        *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

/// Returns the error for an id that no job has.
#[must_use]
pub fn job_not_found(id: &str) -> HostError {
    let message = format!("There is no job `{}`.", sanitize_line(id, 60));
    HostError::new(HostErrorKind::JobNotFound, message)
        .with_hint("A job's id begins with `job-`; one that is over is forgotten after its time.")
}

/// Returns true if the text is a W3C `traceparent` of version 00.
#[must_use]
pub fn is_traceparent(text: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_zero = |text: &str| text.bytes().all(|byte| byte == b'0');
    let mut parts = text.split('-');
    let parts = (parts.next(), parts.next(), parts.next(), parts.next(), parts.next());
    let (Some("00"), Some(trace), Some(span), Some(flags), None) = parts else { return false };
    text.len() == TRACEPARENT
        && (trace.len(), span.len(), flags.len()) == (32, 16, 2)
        && [trace, span, flags].into_iter().all(hex)
        && !is_zero(trace)
        && !is_zero(span)
}

#[cfg(test)]
mod tests {
    use super::is_traceparent;

    #[test]
    fn a_traceparent_is_checked_strictly() {
        let right = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_traceparent(right));
        for wrong in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        ] {
            assert!(!is_traceparent(wrong), "{wrong}");
        }
    }
}
