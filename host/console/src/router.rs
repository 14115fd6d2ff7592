//! The paths of the console, who may see them, and the pages behind them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use cofferdam_core::clock::Clock;
use cofferdam_core::error::HostError;
use cofferdam_core::failure::FailureClass;
use cofferdam_server::http_api::HttpApi;
use cofferdam_server::server::PathAccess;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::call_pages::{self, CallQuery, PAGE};
use crate::connector_pages;
use crate::explanation::Explain;
use crate::frame::{Page, style, with_headers};
use crate::health_page::{self, Range};
use crate::sessions::{Sessions, form_token, is_form_token};
use crate::trust_page::{self, ChangeQuery};

/// The path of the console.
pub const CONSOLE: &str = "/console";

/// The path of the link that opens it.
const OPEN: &str = "/console/open";

/// The path of the style sheet, which pages without a session have as well.
const STYLE: &str = "/console/style.css";

/// The console over one HTTP API.
#[derive(Clone)]
pub struct Console(Arc<ConsoleState>);

struct ConsoleState {
    api: HttpApi,
    sessions: Sessions,
    explain: Explain,
    /// True if browsers send the cookie over TLS only.
    is_secure: bool,
}

impl Console {
    /// Creates the console of `api`. `explain` explains failures; sessions end after `lifetime`. With `is_secure`, browsers
    /// send the cookie of a session over TLS only.
    #[must_use]
    pub fn new(
        api: HttpApi,
        clock: Arc<dyn Clock>,
        explain: Explain,
        lifetime: Duration,
        is_secure: bool,
    ) -> Self {
        Self(Arc::new(ConsoleState { api, sessions: Sessions::new(clock, lifetime), explain, is_secure }))
    }

    /// Returns the path and the query of a new link that opens the console once. An earlier link ends.
    ///
    /// # Errors
    /// `internal`: the system has no randomness.
    pub fn new_link(&self) -> Result<String, HostError> {
        Ok(format!("{OPEN}?key={}", self.0.sessions.new_link()?))
    }

    /// Returns the access to the paths of the console, for the listener.
    #[must_use]
    pub fn access(&self) -> Arc<dyn PathAccess> {
        Arc::new(self.clone())
    }

    /// Returns the router of the console, for a server of its own or beside the HTTP API.
    pub fn router(&self) -> Router {
        Router::new()
            .route(CONSOLE, get(connectors))
            .route("/console/connectors/{scheme}/{owner}/{repository}", get(connector))
            .route("/console/calls", get(calls))
            .route("/console/calls/{id}", get(call))
            .route("/console/health", get(health))
            .route("/console/trust", get(trust))
            .route("/console/close", post(close))
            .route(OPEN, get(open))
            .route(STYLE, get(async || style()))
            .route("/console/{*rest}", get(not_found))
            .layer(middleware::from_fn_with_state(self.clone(), require_session))
            .with_state(self.clone())
    }

    fn session<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let name = self.cookie_name();
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value)
            .find(|session| self.0.sessions.is_open(session))
    }

    /// Returns the name of the cookie. A browser sends one with this prefix over TLS only, and no other site can set it.
    fn cookie_name(&self) -> &'static str {
        if self.0.is_secure { "__Secure-cofferdam-console" } else { "cofferdam-console" }
    }

    fn cookie(&self, session: &str, lifetime: Duration) -> Option<HeaderValue> {
        let secure = if self.0.is_secure { "; Secure" } else { "" };
        let text = format!(
            "{}={session}; Path={CONSOLE}; HttpOnly; SameSite=Strict; Max-Age={}{secure}",
            self.cookie_name(),
            lifetime.as_secs()
        );
        HeaderValue::from_str(&text).ok()
    }
}

impl PathAccess for Console {
    fn covers(&self, path: &str) -> bool {
        path.strip_prefix(CONSOLE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn admits(&self, request: &Parts) -> bool {
        self.session(&request.headers).is_some()
    }
}

/// The session of a request.
#[derive(Clone)]
struct SessionId(Arc<str>);

impl SessionId {
    fn framed(&self, page: Page) -> Response {
        page.framed(Some(&form_token(&self.0)))
    }
}

/// Lets requests of a session through, and those that need none: the link and the style sheet.
async fn require_session(State(console): State<Console>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path == OPEN || path == STYLE {
        return with_headers(next.run(request).await);
    }
    let Some(session) = console.session(request.headers()).map(|session| SessionId(session.into())) else {
        return with_headers(Page::no_session().framed(None));
    };
    request.extensions_mut().insert(session);
    with_headers(next.run(request).await)
}

/// Lists the connectors.
async fn connectors(State(console): State<Console>, Extension(session): Extension<SessionId>) -> Response {
    session.framed(match console.0.api.connectors().await {
        Ok(list) => connector_pages::list(&list),
        Err(error) => Page::host_error(error),
    })
}

async fn not_found(Extension(session): Extension<SessionId>) -> Response {
    session.framed(Page::not_found())
}

/// Shows a connector.
async fn connector(
    State(console): State<Console>,
    Extension(session): Extension<SessionId>,
    Path((scheme, owner, repository)): Path<(String, String, String)>,
) -> Response {
    let connector = match console.0.api.connector(&format!("{scheme}://{owner}/{repository}")).await {
        Ok(connector) => connector,
        Err(error) => return session.framed(Page::error(&error)),
    };
    let summary = &connector.summary;
    let name = format!("{}@{}", summary.name, summary.version);
    let stats = async |by: &str| {
        let query = [("connector", name.as_str()), ("usage", "true"), ("by", by)];
        let query = query.map(|(name, value)| (name.to_owned(), value.to_owned()));
        console.0.api.stats(query.to_vec()).await.ok()
    };
    let (all, hosts) = (stats("connector").await, stats("host").await);
    session.framed(connector_pages::show(&connector, all.as_ref(), hosts.as_ref()))
}

/// Lists calls. A form sends fields that are empty: they select nothing.
async fn calls(
    State(console): State<Console>,
    Extension(session): Extension<SessionId>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let query: CallQuery = filled(query);
    let mut parameters = query.clone();
    parameters.entry("limit".to_owned()).or_insert_with(|| PAGE.to_owned());
    let classes: Vec<_> = FailureClass::ALL.iter().map(|class| class.name()).collect();
    session.framed(match console.0.api.calls(parameters.into_iter().collect()).await {
        Ok(page) => call_pages::list(&query, &page, &classes),
        Err(error) => Page::host_error(error),
    })
}

/// Shows a call.
async fn call(
    State(console): State<Console>,
    Extension(session): Extension<SessionId>,
    Path(id): Path<String>,
) -> Response {
    session.framed(match console.0.api.logged_call(&id).await {
        Ok(call) => {
            let row = &call.call;
            let explanation = (console.0.explain)(row.class.as_deref(), row.code.as_deref());
            call_pages::show(&call, explanation.as_ref())
        }
        Err(error) => Page::host_error(error),
    })
}

/// Shows the calls of a time, and the state of what they depend on.
async fn health(
    State(console): State<Console>,
    Extension(session): Extension<SessionId>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let range = query.get("range").and_then(|name| Range::with_name(name)).unwrap_or_default();
    let api = &console.0.api;
    let read = async { Ok((api.health().await?, api.history(range.parameters()).await?)) };
    session.framed(match read.await {
        Ok((health, history)) => health_page::show(range, &health, &history),
        Err(error) => Page::host_error(error),
    })
}

/// Shows the changes of operators. A form sends fields that are empty: they select nothing.
async fn trust(
    State(console): State<Console>,
    Extension(session): Extension<SessionId>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let query: ChangeQuery = filled(query);
    let mut parameters = query.clone();
    parameters.entry("limit".to_owned()).or_insert_with(|| trust_page::PAGE.to_owned());
    session.framed(match console.0.api.changes(parameters.into_iter().collect()).await {
        Ok(page) => trust_page::show(&query, &page),
        Err(error) => Page::host_error(error),
    })
}

/// Returns the fields of a form that have a value.
fn filled(query: Vec<(String, String)>) -> BTreeMap<String, String> {
    query.into_iter().filter(|(_, value)| !value.trim().is_empty()).collect()
}

/// Begins a session, if the link has not been used. A browser that only asks for the head does not use it.
async fn open(
    State(console): State<Console>,
    method: Method,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let sessions = &console.0.sessions;
    let session = query.get("key").filter(|_| method == Method::GET).and_then(|key| sessions.open(key));
    let cookie = session.and_then(|session| console.cookie(&session, sessions.lifetime()));
    cookie.map_or_else(|| Page::no_session().framed(None), redirect)
}

/// Ends the session of a form.
async fn close(
    State(console): State<Console>,
    Extension(session): Extension<SessionId>,
    body: Bytes,
) -> Response {
    let token = std::str::from_utf8(&body).ok().and_then(|body| body.strip_prefix("token="));
    if !token.is_some_and(|token| is_form_token(&session.0, token)) {
        return session.framed(Page { status: StatusCode::FORBIDDEN, ..Page::not_found() });
    }
    console.0.sessions.close(&session.0);
    let cookie = console.cookie("", Duration::ZERO);
    cookie.map_or_else(|| Page::no_session().framed(None), redirect)
}

/// Returns a redirection to the first page, with this cookie.
fn redirect(cookie: HeaderValue) -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(CONSOLE));
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response
}
