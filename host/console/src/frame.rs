//! The frame of every page: head, navigation and footer, and the headers that browsers get with it.

use axum::body::Body;
use axum::response::Response;
use cofferdam_core::error::{Error, HostError};
use cofferdam_server::http_api::{ErrorMessage, error_message};
use http::{HeaderName, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::format::plain;
use crate::router::{CONSOLE, LIVE, LIVE_SCRIPT};

/// The policy for browsers: scripts, styles and requests of this server only, none of them within a page.
const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The style sheet.
const STYLE: &str = include_str!("style.css");

/// The script of pages that show the present.
const SCRIPT: &str = include_str!("live.js");

/// The icon: a wall, and the water that it keeps out. Without one, browsers ask for a file beside the console.
const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 16 16\"><path fill=\"#2f6fb8\" \
                    d=\"M0 9h4v7H0zM12 9h4v7h-4z\"/><path fill=\"#545c66\" d=\"M4 1h2v15H4zM10 1h2v15h-2z\"/></svg>";

/// The part of the console that a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {
    Connectors,
    Calls,
    Health,
    Trust,
    Network,
    Approvals,
    /// None of the parts: an error, or a page without a session.
    None,
}

/// A page before it is put into the frame.
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) area: Area,
    pub(crate) title: String,
    pub(crate) body: Markup,
    /// The end of the audit log that it shows, if its element `present` is kept up to date.
    live_since: Option<String>,
}

impl Page {
    pub(crate) fn new(area: Area, title: impl Into<String>, body: Markup) -> Self {
        Self { status: StatusCode::OK, area, title: title.into(), body, live_since: None }
    }

    /// The page with its element `present` kept up to date, in browsers that run scripts, from this end of the audit log.
    pub(crate) fn live(self, since: String) -> Self {
        Self { live_since: Some(since).filter(|_| self.status.is_success()), ..self }
    }

    /// The page for a browser without a session.
    pub(crate) fn no_session() -> Self {
        let body = html! {
            p { "This browser has no session, or its session has ended." }
            p {
                "Run " code { "cofferdam console" } " (or " code { "cofferdam serve --console" }
                ") again and open the link that it prints. A link works once, and for five minutes."
            }
        };
        Self { status: StatusCode::UNAUTHORIZED, ..Self::new(Area::None, "No session", body) }
    }

    /// The page for a path or a thing that is not there.
    pub(crate) fn not_found() -> Self {
        let body = html! { p { "There is nothing at this address." } };
        Self { status: StatusCode::NOT_FOUND, ..Self::new(Area::None, "Not found", body) }
    }

    /// The page for a form that is not of this session, or that the session has no right to send.
    pub(crate) fn forbidden() -> Self {
        let body = html! { p { "This session may not do this. Nothing was done." } };
        Self { status: StatusCode::FORBIDDEN, ..Self::new(Area::None, "Not allowed", body) }
    }

    /// The page for an error.
    pub(crate) fn error(error: &Error) -> Self {
        let message = error_message(error);
        Self { status: message.status, ..Self::new(Area::None, "It cannot be shown", error_text(&message)) }
    }

    /// As [`error`](Self::error), of the host itself.
    pub(crate) fn host_error(error: HostError) -> Self {
        Self::error(&error.into())
    }

    /// Returns the whole page; `form_token` is that of the session, if there is one.
    pub(crate) fn framed(self, form_token: Option<&str>) -> Response {
        let link = |area: Area, path: &str, text: &str| {
            let current = (self.area == area).then_some("page");
            html! { a href=(format!("{CONSOLE}{path}")) aria-current=[current] { (text) } }
        };
        let document = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) " - cofferdam" }
                    link rel="stylesheet" href=(format!("{CONSOLE}/style.css"));
                    link rel="icon" href=(format!("{CONSOLE}/icon.svg"));
                    @if self.live_since.is_some() { script src=(LIVE_SCRIPT) defer {} }
                }
                body {
                    a.skip href="#main" { "Skip to the content" }
                    header {
                        span.brand { "cofferdam" }
                        @if let Some(token) = form_token {
                            nav aria-label="Pages" {
                                (link(Area::Connectors, "", "Connectors"))
                                (link(Area::Calls, "/calls", "Calls"))
                                (link(Area::Health, "/health", "Health"))
                                (link(Area::Trust, "/trust", "Trust"))
                                (link(Area::Network, "/network", "Network"))
                                (link(Area::Approvals, "/approvals", "Approvals"))
                            }
                            @if let Some(since) = &self.live_since {
                                button #live type="button" data-events=(format!("{LIVE}?since={since}")) aria-pressed="false" hidden { "Live" }
                            }
                            form method="post" action=(format!("{CONSOLE}/close")) {
                                input type="hidden" name="token" value=(token);
                                button { "End session" }
                            }
                        }
                    }
                    main id="main" tabindex="-1" {
                        h1 { (self.title) }
                        (self.body)
                    }
                }
            }
        };
        let mut response = text(document.into_string(), "text/html; charset=utf-8");
        *response.status_mut() = self.status;
        response
    }
}

impl Page {
    /// Returns the page as a file that needs no server, with this line below its title. Its links lead nowhere without a
    /// server, so it has none.
    pub(crate) fn standalone(self, made: &str) -> String {
        let policy = "default-src 'none'; style-src 'unsafe-inline'";
        let document = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta http-equiv="Content-Security-Policy" content=(policy);
                    title { (self.title) " - cofferdam" }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    main {
                        h1 { (self.title) }
                        p.dim { (made) }
                        (PreEscaped(without_links(&self.body.into_string())))
                    }
                }
            }
        };
        document.into_string()
    }
}

/// Returns markup of this crate with its links as plain text. In a text, `<` is escaped, so every tag is one of a template.
fn without_links(markup: &str) -> String {
    let mut text = String::with_capacity(markup.len());
    let mut rest = markup;
    while let Some((before, link)) = rest.split_once("<a ") {
        text.push_str(before);
        rest = link.split_once('>').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text.replace("</a>", "")
}

/// Returns the style sheet.
pub(crate) fn style() -> Response {
    text(STYLE.to_owned(), "text/css; charset=utf-8")
}

/// Returns the script.
pub(crate) fn script() -> Response {
    text(SCRIPT.to_owned(), "text/javascript; charset=utf-8")
}

/// Returns the icon.
pub(crate) fn icon() -> Response {
    text(ICON.to_owned(), "image/svg+xml")
}

fn text(text: String, content_type: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns the response with the headers that every one has.
pub(crate) fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
        // With `no-referrer`, browsers send forms with the origin `null`, which is refused as a foreign one.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns an error in words. Errors that the operator has to fix are named by their code: their messages may name
/// paths.
pub(crate) fn error_text(error: &ErrorMessage) -> Markup {
    html! {
        p { (plain(&error.message)) }
        @if let Some(hint) = &error.hint { p { (plain(hint)) } }
        p { "Code " code { (error.code) } ", request " code { (error.request_id) } "." }
    }
}

/// Returns a table that a keyboard can scroll sideways where it is wider than the page.
pub(crate) fn table(label: &str, header: &[&str], rows: &Markup) -> Markup {
    html! {
        div.scroll role="region" aria-label=(label) tabindex="0" {
            table {
                thead { tr { @for title in header { th scope="col" { (title) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// Returns a time for people and programs.
pub(crate) fn timestamp(at: Timestamp) -> Markup {
    time(Some(&format!("{at:.6}")))
}

/// Returns a time for people and programs; a dash without one.
pub(crate) fn time(at: Option<&str>) -> Markup {
    html! {
        @match at {
            Some(at) => time datetime=(plain(at)) { (crate::format::time(at)) },
            None => "-",
        }
    }
}
