//! The paths of the console, who may see them, and the pages behind them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Path, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use cofferdam_core::clock::Clock;
use cofferdam_core::error::{Error, HostError};
use cofferdam_core::failure::FailureClass;
use cofferdam_server::http_api::{HttpApi, error_message};
use cofferdam_server::server::PathAccess;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::approval_pages;
use crate::call_pages::{self, CallQuery, PAGE};
use crate::connector_pages;
use crate::explanation::Explain;
use crate::frame::{Page, icon, script, style, with_headers};
use crate::health_page::{self, Range};
use crate::network_page::{self, NetworkQuery};
use crate::sessions::{SessionRight, Sessions, form_token, is_form_token};
use crate::trust_page::{self, ChangeQuery};

/// The path of the console.
pub const CONSOLE: &str = "/console";

/// The path of the link that opens it.
const OPEN: &str = "/console/open";

/// The paths of the style sheet and of the icon, which pages without a session have as well, and of the script.
const STYLE: &str = "/console/style.css";
const ICON: &str = "/console/icon.svg";
pub(crate) const LIVE_SCRIPT: &str = "/console/live.js";

/// The path of the events that tell of new entries in the audit log.
pub(crate) const LIVE: &str = "/console/live";

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

    /// Returns the path and the query of a new link that opens the console once, with this right. An earlier link of the
    /// right ends.
    ///
    /// # Errors
    /// `internal`: the system has no randomness.
    pub fn new_link(&self, right: SessionRight) -> Result<String, HostError> {
        Ok(format!("{OPEN}?key={}", self.0.sessions.new_link(right)?))
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
            .route("/console/network", get(network))
            .route("/console/approvals", get(approvals))
            .route("/console/approvals/{id}", get(approval).post(answer))
            .route("/console/close", post(close))
            .route(OPEN, get(open))
            .route(STYLE, get(async || style()))
            .route(ICON, get(async || icon()))
            .route(LIVE_SCRIPT, get(async || script()))
            .route(LIVE, get(live))
            .route("/console/{*rest}", get(not_found))
            .layer(middleware::from_fn_with_state(self.clone(), require_session))
            .with_state(self.clone())
    }

    /// Returns the page as a live one. The end of the audit log is read before the page, so that no entry is missed.
    async fn live(&self, page: impl Future<Output = Result<Page, HostError>>) -> Page {
        let since = self.0.api.log_end().await;
        match (page.await, since) {
            (Ok(page), Ok(since)) => page.live(since),
            (Ok(page), Err(_)) => page,
            (Err(error), _) => Page::host_error(error),
        }
    }

    fn session(&self, headers: &HeaderMap) -> Option<Session> {
        let name = self.cookie_name();
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.filter(|(key, _)| *key == name).find_map(|(_, secret)| {
            self.0.sessions.right_of(secret).map(|right| Session { secret: secret.into(), right })
        })
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
struct Session {
    secret: Arc<str>,
    right: SessionRight,
}

impl Session {
    fn framed(&self, page: Page) -> Response {
        page.framed(Some(&form_token(&self.secret)))
    }

    /// Returns the token of the forms that answer, if this session may.
    fn answer_token(&self) -> Option<String> {
        (self.right == SessionRight::Answer).then(|| form_token(&self.secret))
    }

    /// Returns true if the form has the token of this session.
    fn sent(&self, form: &FormFields) -> bool {
        form.get("token").is_some_and(|token| is_form_token(&self.secret, token))
    }
}

/// The fields of a form. Of a field that is given twice, the last one counts.
type FormFields = BTreeMap<String, String>;

/// Lets requests of a session through, and those that need none: the link, the style sheet, the icon and the script.
async fn require_session(State(console): State<Console>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if [OPEN, STYLE, ICON, LIVE_SCRIPT].contains(&path) {
        return with_headers(next.run(request).await);
    }
    let Some(session) = console.session(request.headers()) else {
        return with_headers(Page::no_session().framed(None));
    };
    request.extensions_mut().insert(session);
    with_headers(next.run(request).await)
}

/// Lists the connectors.
async fn connectors(State(console): State<Console>, Extension(session): Extension<Session>) -> Response {
    let page = async { Ok(connector_pages::list(&console.0.api.connectors().await?)) };
    session.framed(console.live(page).await)
}

async fn not_found(Extension(session): Extension<Session>) -> Response {
    session.framed(Page::not_found())
}

/// Shows a connector, with `from` also its changes from that version.
async fn connector(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
    Path((scheme, owner, repository)): Path<(String, String, String)>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let api = &console.0.api;
    session.framed(match api.connector(&format!("{scheme}://{owner}/{repository}")).await {
        Ok(connector) => connector_pages::load(api, &connector, filled(query).remove("from")).await,
        Err(error) => Page::error(&error),
    })
}

/// Lists calls. A form sends fields that are empty: they select nothing.
async fn calls(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let query: CallQuery = filled(query);
    let mut parameters = query.clone();
    parameters.entry("limit".to_owned()).or_insert_with(|| PAGE.to_owned());
    let classes: Vec<_> = FailureClass::ALL.iter().map(|class| class.name()).collect();
    let page = async {
        let page = console.0.api.calls(parameters.into_iter().collect()).await?;
        Ok(call_pages::list(&query, &page, &classes))
    };
    session.framed(console.live(page).await)
}

/// Shows a call.
async fn call(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
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
    Extension(session): Extension<Session>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let range = query.get("range").and_then(|name| Range::with_name(name)).unwrap_or_default();
    let api = &console.0.api;
    let page =
        async { Ok(health_page::show(range, &api.health().await?, &api.history(range.parameters()).await?)) };
    session.framed(console.live(page).await)
}

/// Shows the changes of operators. A form sends fields that are empty: they select nothing.
async fn trust(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
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

/// Shows the requests of connectors. A form sends fields that are empty: they select nothing.
async fn network(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let query: NetworkQuery = filled(query);
    let page = async {
        let network = console.0.api.network(query.clone().into_iter().collect()).await?;
        Ok(network_page::show(&query, &network))
    };
    session.framed(console.live(page).await)
}

/// Returns events for as long as the session has not ended.
async fn live(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
    Query(mut query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let state = Arc::clone(&console.0);
    let is_allowed = move || state.sessions.right_of(&session.secret).is_some();
    console.0.api.live(query.remove("since"), &headers, is_allowed)
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
    cookie.map_or_else(|| Page::no_session().framed(None), first_page)
}

/// Ends the session of a form.
async fn close(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
    form: Result<Form<FormFields>, FormRejection>,
) -> Response {
    if !form.is_ok_and(|Form(form)| session.sent(&form)) {
        return session.framed(Page::forbidden());
    }
    console.0.sessions.close(&session.secret);
    let cookie = console.cookie("", Duration::ZERO);
    cookie.map_or_else(|| Page::no_session().framed(None), first_page)
}

/// Lists the calls that wait for a person, and the requests for grants.
async fn approvals(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let all = query.iter().any(|(name, value)| name == "all" && value == "true");
    let api = &console.0.api;
    let page = async {
        let approvals = api.approvals(query).await?;
        // Without these, calls can still be answered.
        let grants = api.grant_requests().await.map_err(Error::from);
        let grants = grants.as_ref().map(|list| list.requests.as_slice()).map_err(error_message);
        Ok(approval_pages::list(&approvals, grants, all))
    };
    session.framed(console.live(page).await)
}

/// Shows one of them, with its arguments if this session may answer it.
async fn approval(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
) -> Response {
    let token = session.answer_token();
    let approval = match token {
        Some(_) => console.0.api.approval_with_arguments(&id).await,
        None => console.0.api.approval(&id).await,
    };
    session.framed(match approval {
        Ok(approval) => approval_pages::show(&approval, token.as_deref()),
        Err(error) => Page::host_error(error),
    })
}

/// Records the answer of a form, and shows the approval with it.
async fn answer(
    State(console): State<Console>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
    form: Result<Form<FormFields>, FormRejection>,
) -> Response {
    let form = form.ok().map(|Form(form)| form).filter(|form| session.sent(form));
    let Some(form) = form.filter(|_| session.right == SessionRight::Answer) else {
        return session.framed(Page::forbidden());
    };
    let answered = match approval_pages::decision(&form) {
        Ok(decision) => {
            let reason = form.get("reason").map(|reason| reason.trim()).filter(|reason| !reason.is_empty());
            console.0.api.answer_approval(&id, decision, reason.map(str::to_owned), "console").await
        }
        Err(error) => Err(error),
    };
    match answered {
        Ok(approval) => see_other(&approval_pages::path(approval.id.as_str())),
        Err(error) => session.framed(Page::host_error(error)),
    }
}

/// Returns a redirection to the first page, with this cookie.
fn first_page(cookie: HeaderValue) -> Response {
    let mut response = see_other(CONSOLE);
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response
}

/// Returns a redirection to a page, which is read: a form is not sent again when that page is loaded again.
fn see_other(path: &str) -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::SEE_OTHER;
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, path);
    }
    response
}
