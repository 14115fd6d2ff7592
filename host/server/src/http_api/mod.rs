//! The HTTP API for programs that are not agents: calls and actions, the connectors and their types, the audit log, and
//! the description of the API.
//!
//! It is a router for the listener of [`server`](crate::server), which has authorized the request and read
//! the body. An answer is a value, or one of two envelopes: one for failures, and one for all other errors. A
//! client that disconnects cancels its call, and the audit log says so. Nothing here grants, binds, trusts or
//! installs anything.

mod approvals;
mod audit;
mod calls;
mod changes;
mod connectors;
mod difference;
mod grant_requests;
mod health;
mod history;
mod job_request;
mod jobs;
mod live;
mod network;
mod openapi;
mod query;
mod request;
mod response;

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use cofferdam_core::error::Error;
use cofferdam_runtime::host::Host;
use http::StatusCode;
use tokio::sync::Semaphore;

use self::live::LiveLog;
use self::network::KnownGrants;
use crate::server::Shutdown;

pub use approvals::ApprovalList;
pub use audit::{
    AttemptPhases, AttemptReport, AttemptUsage, CallPage, LoggedCallView, LoggedEntryView, LoggedEventView,
    RequestReport,
};
pub use changes::{ChangeArea, ChangePage, ChangeView, ChangedFact};
pub use cofferdam_audit::{CallRow, VerificationResult};
pub use connectors::{
    AcceptanceView, CircuitState, ConnectorGrants, ConnectorList, ConnectorSummary, ConnectorView,
    CredentialGrantView, ImportGrant, LimitDescription, OperationDescription, SignatureVerdict,
};
pub use difference::{ComparedVersion, ConnectorDifference, VersionChange};
pub use grant_requests::{GrantLineView, GrantRequestList, GrantRequestView};
pub use health::{
    ConnectorCircuit, ConnectorRateLimit, HealthReport, LogUsage, RateLimitAtHost, WaitingCalls,
};
pub use history::{FailureCount, HistoryReport, HistoryStepView};
pub use network::{NetworkReport, NetworkRoute, UnusedHost};
pub use response::{ErrorMessage, error_message};

pub use job_request::{ActionWork, CallWork, JobRequest, JobTarget, JobWork};
pub use jobs::{
    JobFuture, JobService, JobState, JobView, NewJob, SubmittedJob, is_traceparent, job_not_found,
};

/// The path for calls.
pub const CALLS: &str = "/v1/calls";

/// The path prefix for actions; the name and `/run` follow.
pub const ACTIONS: &str = "/v1/actions";

/// The path of the installed connectors; the three parts of a name follow, and `/difference`, or `/operations` with the
/// name of one.
pub const CONNECTORS: &str = "/v1/connectors";

/// The path of the audit log; a call's id follows.
pub const AUDIT: &str = "/v1/audit";

/// The path of the calls that wait for a person; an approval's id follows.
pub const APPROVALS: &str = "/v1/approvals";

/// The path of the requests for grants.
pub const GRANT_REQUESTS: &str = "/v1/grant-requests";

/// The path of the statistics of calls.
pub const STATS: &str = "/v1/stats";

/// The path of the calls of a time, step by step.
pub const HISTORY: &str = "/v1/history";

/// The path of the state of what calls depend on.
pub const HEALTH_REPORT: &str = "/v1/health";

/// The path of the changes that operators made.
pub const CHANGES: &str = "/v1/changes";

/// The path of the requests of connectors by operation and host.
pub const NETWORK: &str = "/v1/network";

/// The path of the events that tell of new entries in the audit log.
pub const LIVE: &str = "/v1/live";

/// The path of jobs, if the server has a queue; a job's id follows.
pub const JOBS: &str = "/v1/jobs";

/// The path of the metrics, if the server has any.
pub const METRICS: &str = "/metrics";

/// The path of one connector.
const CONNECTOR_PATH: &str = "/v1/connectors/{scheme}/{owner}/{repository}";

/// The path of the API's description.
pub const DESCRIPTION: &str = "/openapi.json";

/// The most bodies that are read at once. It bounds work, not memory: bodies stay text.
const READING: usize = 4;

/// The API of one host.
#[derive(Clone)]
pub struct HttpApi {
    host: Host,
    shutdown: Shutdown,
    actor: Arc<str>,
    has_token: bool,
    /// Limits the bodies that are read at once.
    reading: Arc<Semaphore>,
    live: Arc<LiveLog>,
    jobs: Option<Arc<dyn JobService>>,
    metrics: Option<MetricsText>,
    grants: KnownGrants,
}

/// Returns the content type and the text of the metrics.
pub type MetricsText = Arc<dyn Fn() -> (&'static str, String) + Send + Sync>;

impl HttpApi {
    /// Creates the API of `host`; its calls end at the latest when `shutdown` requires it.
    #[must_use]
    pub fn new(host: Host, shutdown: Shutdown) -> Self {
        Self {
            host,
            shutdown,
            actor: Arc::from("http"),
            has_token: false,
            reading: Arc::new(Semaphore::new(READING)),
            live: Arc::new(LiveLog::new()),
            jobs: None,
            metrics: None,
            grants: KnownGrants::default(),
        }
    }

    /// Sets the name that the audit log has for its calls. Default: `http`.
    #[must_use]
    pub fn actor(mut self, actor: &str) -> Self {
        self.actor = Arc::from(actor);
        self
    }

    /// Sets whether its description requires a token: true if the listener requires one.
    #[must_use]
    pub fn described_with_token(mut self, has_token: bool) -> Self {
        self.has_token = has_token;
        self
    }

    /// Puts jobs on this queue. Without one, the API has no jobs.
    #[must_use]
    pub fn with_jobs(mut self, jobs: Arc<dyn JobService>) -> Self {
        self.jobs = Some(jobs);
        self
    }

    /// Serves these metrics.
    #[must_use]
    pub fn with_metrics(mut self, metrics: MetricsText) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// The router, for [`BoundServer::serve`](crate::server::BoundServer::serve).
    pub fn router(self) -> Router {
        let mut router = Router::new();
        if self.jobs.is_some() {
            router = router
                .route(JOBS, post(jobs::submit))
                .route(&format!("{JOBS}/{{id}}"), get(jobs::show))
                .route(&format!("{JOBS}/{{id}}/cancel"), post(jobs::cancel));
        }
        if let Some(metrics) = self.metrics.clone() {
            router = router.route(METRICS, metrics_route(metrics));
        }
        router
            .route(CALLS, post(calls::create))
            .route(&format!("{ACTIONS}/{{name}}/run"), post(calls::run))
            .route(CONNECTORS, get(connectors::list))
            .route(CONNECTOR_PATH, get(connectors::show))
            .route(&format!("{CONNECTOR_PATH}/difference"), get(difference::show))
            .route(&format!("{CONNECTOR_PATH}/operations/{{op}}"), post(calls::operation))
            .route(AUDIT, get(audit::list))
            .route(&format!("{AUDIT}/{{id}}"), get(audit::show))
            .route(APPROVALS, get(approvals::list))
            .route(&format!("{APPROVALS}/{{id}}"), get(approvals::show))
            .route(GRANT_REQUESTS, get(grant_requests::list))
            .route(STATS, get(audit::stats))
            .route(CHANGES, get(changes::list))
            .route(HISTORY, get(history::show))
            .route(NETWORK, get(network::show))
            .route(HEALTH_REPORT, get(health::show))
            .route(LIVE, get(live::follow))
            .route(DESCRIPTION, get(openapi_document))
            .fallback(async || response::no_such_path())
            .method_not_allowed_fallback(async || {
                response::rejection(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "method_not_allowed",
                    "This path has no such method.",
                    "The header Allow names those that it has.",
                )
            })
            // The listener limits the length of a body.
            .layer(DefaultBodyLimit::disable())
            .with_state(self)
    }
}

/// Returns a router that serves metrics alone, for a process without an API.
pub fn metrics_router(metrics: MetricsText) -> Router {
    Router::new().route(METRICS, metrics_route(metrics)).fallback(async || response::no_such_path())
}

fn metrics_route<S: Clone + Send + Sync + 'static>(metrics: MetricsText) -> MethodRouter<S> {
    get(move || async move {
        let (content_type, text) = metrics();
        let mut answer = response::json(StatusCode::OK, text);
        answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
        answer
    })
}

/// Describes the API, or with `connector` the operations of one.
async fn openapi_document(
    State(api): State<HttpApi>,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Response {
    let connector = query.map_err(audit::unreadable_query).and_then(|Query(pairs)| {
        let mut parameters = query::QueryParameters::new(pairs)?;
        let connector = parameters.connector()?;
        parameters.finish(&["connector"])?;
        Ok(connector)
    });
    let connector = match connector {
        Ok(connector) => connector,
        Err(error) => return response::host_error(error),
    };
    let profiles: Vec<_> = api.host.profile_names().map(str::to_owned).collect();
    let Some(connector) = connector else {
        let description = openapi::description(&profiles, api.has_token, api.jobs.is_some());
        return response::json(StatusCode::OK, description.to_string());
    };
    let (host, has_token) = (api.host.clone(), api.has_token);
    let described = calls::read_queued(&api, move || -> Result<_, Error> {
        let package = host.package(&host.resolve(&connector)?)?;
        Ok(openapi::connector_description(&connector, &package, &profiles, has_token))
    });
    match described.await {
        Ok(description) => response::json(StatusCode::OK, description.to_string()),
        Err(error) => response::error(&error),
    }
}
