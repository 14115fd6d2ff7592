//! The HTTP API for programs that are not agents: one call, one action, one audit entry, and the description
//! of the API.
//!
//! It is a router for the listener of [`server`](crate::server), which has authorized the request and read
//! the body. An answer is a value, or one of two envelopes: one for failures, and one for all other errors. A
//! client that disconnects cancels its call, and the audit log says so. Nothing here grants, binds, trusts or
//! installs anything.

mod audit;
mod calls;
mod openapi;
mod request;
mod response;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::Response;
use axum::routing::{get, post};
use cofferdam_runtime::host::Host;
use http::StatusCode;
use tokio::sync::Semaphore;

use crate::server::Shutdown;

/// The path for calls.
pub const CALLS: &str = "/v1/calls";

/// The path prefix for actions; the name and `/run` follow.
pub const ACTIONS: &str = "/v1/actions";

/// The path prefix of the audit log; the call's id follows.
pub const AUDIT: &str = "/v1/audit";

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
}

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

    /// The router, for [`BoundServer::serve`](crate::server::BoundServer::serve).
    pub fn router(self) -> Router {
        Router::new()
            .route(CALLS, post(calls::create))
            .route(&format!("{ACTIONS}/{{name}}/run"), post(calls::run))
            .route(&format!("{AUDIT}/{{id}}"), get(audit::show))
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

async fn openapi_document(State(api): State<HttpApi>) -> Response {
    let profiles: Vec<_> = api.host.profile_names().collect();
    response::json(StatusCode::OK, openapi::description(&profiles, api.has_token).to_string())
}
