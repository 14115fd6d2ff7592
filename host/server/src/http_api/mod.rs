//! The HTTP API for programs that are not agents: one call, one action, one look at the record, and the description of both.
//!
//! It is a router for the listener of [`server`](crate::server), which has looked at who asks and has read the body.
//! An answer is a value, or one of the two envelopes: that of a failure, and that of all else. A client that goes away
//! cancels its call, and the record says so. Nothing here grants, binds, trusts or installs anything.

mod actions;
mod answer;
mod audit;
mod calls;
mod openapi;
mod request;
mod status;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::Response;
use axum::routing::{get, post};
use cofferdam_runtime::host::Host;
use http::StatusCode;
use tokio::sync::Semaphore;

use crate::server::Shutdown;

/// Where calls are made.
pub const CALLS: &str = "/v1/calls";

/// Where actions are run: the name comes after it, and `/run` after that.
pub const ACTIONS: &str = "/v1/actions";

/// Where the record is looked at; the call's id comes after it.
pub const AUDIT: &str = "/v1/audit";

/// Where the API is described.
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
    /// Turns to read a body.
    reading: Arc<Semaphore>,
}

impl HttpApi {
    /// The API of `host`, whose calls end at the latest when `shutdown` says so.
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

    /// The name under which its calls are on record. Default: `http`.
    #[must_use]
    pub fn actor(mut self, actor: &str) -> Self {
        self.actor = Arc::from(actor);
        self
    }

    /// Whether its description says that requests carry a token: where the listener wants one.
    #[must_use]
    pub fn described_with_token(mut self, has_token: bool) -> Self {
        self.has_token = has_token;
        self
    }

    /// The router, for [`Listening::serve`](crate::server::Listening::serve).
    pub fn router(self) -> Router {
        Router::new()
            .route(CALLS, post(calls::made))
            .route(&format!("{ACTIONS}/{{name}}/run"), post(actions::run))
            .route(&format!("{AUDIT}/{{id}}"), get(audit::shown))
            .route(DESCRIPTION, get(described))
            .fallback(async || answer::no_such_path())
            .method_not_allowed_fallback(async || {
                answer::refused(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "method_not_allowed",
                    "This path has no such method.",
                    "The header Allow names those that it has.",
                )
            })
            // How long a body may be, the listener says.
            .layer(DefaultBodyLimit::disable())
            .with_state(self)
    }
}

async fn described(State(api): State<HttpApi>) -> Response {
    let profiles: Vec<_> = api.host.profile_names().collect();
    answer::json(StatusCode::OK, openapi::description(&profiles, api.has_token).to_string())
}
