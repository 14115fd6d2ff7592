//! The server that an operation's requests go to.

use cofferdam_model::manifest::HostGrant;
use url::Url;

use crate::document::{Document, Location, Node};
use crate::error::OpenApiError;
use crate::operation::OperationEntry;

/// Returns the start of an operation's URLs, without a slash at the end.
pub(crate) fn base(
    document: &Document,
    entry: &OperationEntry<'_>,
    given: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<String, OpenApiError> {
    let root = document.root();
    let holder = [&entry.node, &entry.item, &root]
        .into_iter()
        .find_map(|node| node.get("servers").filter(|servers| servers.items().next().is_some()));
    let fix = "Name the service with --server https://api.example.com.";
    if let Some(given) = given {
        return check(given)
            .map(|(base, _)| base)
            .map_err(|(why, fix)| OpenApiError::new("--server", format!("{given:?} {why}"), fix));
    }
    let Some(holder) = holder else {
        return match document.location() {
            Some(Location::Web(url)) => join(url, "/", &root, document),
            _ => Err(document.error(&root, "the document names no server", fix)),
        };
    };
    let mut servers: Vec<Node<'_>> = holder.items().collect();
    // TLS first; else the document's order.
    servers.sort_by_key(|server| !server.text("url").is_some_and(|url| url.starts_with("https://")));
    let mut refused = None;
    for server in &servers {
        let text = substituted(document, server, notes)?;
        if !text.contains("://") && !text.starts_with("//") {
            match document.location() {
                Some(Location::Web(url)) => return join(url, &text, server, document),
                _ => {
                    let message = format!("the server {text:?} is relative, and a file has no host");
                    refused.get_or_insert(document.error(server, message, fix));
                    continue;
                }
            }
        }
        let text = if text.starts_with("//") { format!("https:{text}") } else { text };
        match check(&text) {
            Ok((base, is_plain)) => {
                let note =
                    "its server is reached without TLS: everybody on the way can read and change requests"
                        .to_owned();
                if is_plain && !notes.contains(&note) {
                    notes.push(note);
                }
                return Ok(base);
            }
            Err((why, fix)) => {
                refused.get_or_insert(document.error(server, format!("the server {text:?} {why}"), fix));
            }
        }
    }
    Err(refused.unwrap_or_else(|| document.error(&holder, "no server can be reached", fix)))
}

fn join(url: &Url, reference: &str, node: &Node<'_>, document: &Document) -> Result<String, OpenApiError> {
    let fix = "Name the service with --server https://api.example.com.";
    let joined = url
        .join(reference)
        .map_err(|error| document.error(node, format!("the server {reference:?} is no URL: {error}"), fix))?;
    check(joined.as_str())
        .map(|(base, _)| base)
        .map_err(|(why, fix)| document.error(node, format!("the server {joined} {why}"), fix))
}

/// Puts the default values of variables into a server's URL.
fn substituted(
    document: &Document,
    server: &Node<'_>,
    notes: &mut Vec<String>,
) -> Result<String, OpenApiError> {
    let mut text = server.text("url").unwrap_or_default().to_owned();
    for (name, variable) in server.get("variables").iter().flat_map(Node::fields) {
        let mark = format!("{{{name}}}");
        if !text.contains(&mark) {
            continue;
        }
        let Some(default) = variable.text("default") else {
            let message = format!("the variable {name:?} has no default");
            return Err(document.error(
                &variable,
                message,
                "Give it one, or name the service with --server.",
            ));
        };
        text = text.replace(&mark, default);
        let note =
            format!("the server's variable `{name}` has its default, {default:?}: --server names another");
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    Ok(text)
}

/// Returns the base of a URL and whether it has no TLS, or the reason and the fix.
fn check(text: &str) -> Result<(String, bool), (String, String)> {
    let fix = || "Name the service with --server https://api.example.com.".to_owned();
    if text.contains(['{', '}']) {
        return Err(("has a variable that is not described".to_owned(), fix()));
    }
    let url = Url::parse(text).map_err(|error| (format!("is no URL: {error}"), fix()))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(("is neither https nor http".to_owned(), fix()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(("has a user name".to_owned(), fix()));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(("has a query or a fragment".to_owned(), fix()));
    }
    grant(&url).map_err(|error| {
        (
            format!("cannot be granted: {}", error.message()),
            format!("{}: {}", "Name a host with --server", error.fix()),
        )
    })?;
    Ok((url.as_str().trim_end_matches('/').to_owned(), url.scheme() == "http"))
}

fn grant(url: &Url) -> Result<HostGrant, cofferdam_core::document::InvalidValue> {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    let prefix = if url.scheme() == "http" { "http://" } else { "" };
    HostGrant::parse(&format!("{prefix}{host}:{port}"))
}

/// Returns the host of a base URL as manifests write it.
pub(crate) fn host_grant(base: &str) -> Option<HostGrant> {
    grant(&Url::parse(base).ok()?).ok()
}
