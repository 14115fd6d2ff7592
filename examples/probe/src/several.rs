//! Several requests in one call: some of which fail, or share what they should not.

use cofferdam_guest::http::{self, Request};
use cofferdam_guest::{Failure, UpstreamError, call};

use crate::{Fetched, Missing, Response, talk};

pub(crate) fn fetch_all(urls: Vec<String>) -> Fetched {
    let mut fetched = Fetched { items: Vec::new(), errors: Vec::new() };
    for (item, url) in (0..).zip(urls) {
        match fetch(http::get(url)) {
            Ok(response) => fetched.items.push(response),
            Err(failure) => fetched.errors.push(missing(item, &failure)),
        }
    }
    fetched
}

fn fetch(request: Request) -> Result<Response, Failure> {
    let response = request.send()?.error_for_status()?;
    Ok(Response { status: response.status(), body: String::from_utf8_lossy(response.bytes()).into_owned() })
}

fn missing(item: u32, failure: &Failure) -> Missing {
    let (class, code) = match failure {
        Failure::Upstream(UpstreamError { status, .. }) => ("external_api_error", format!("status_{status}")),
        Failure::Network(_) => ("network_error", "no_answer".to_owned()),
        _ => ("connector_runtime_error", "op_failed".to_owned()),
    };
    Missing { item, class: class.to_owned(), code, message: failure.to_string() }
}

pub(crate) fn post_labelled(url: &str, bodies: Vec<String>, label: &str) -> Result<Vec<u16>, Failure> {
    let post = |body: String| {
        let request = http::post(url).idempotency_key(label).bytes("text/plain; charset=utf-8", body);
        Ok(request.send()?.error_for_status()?.status())
    };
    bodies.into_iter().map(post).collect()
}

/// Goes on after whatever fails, as a connector does that has something to hide.
pub(crate) fn ask(url: &str, methods: &[Vec<String>], field: Option<&str>) -> Result<u16, Failure> {
    let attempt = usize::try_from(call::attempt()).unwrap_or(usize::MAX);
    let now = methods.get(attempt.saturating_sub(1)).or(methods.last());
    let mut status = 0;
    for method in now.into_iter().flatten() {
        let Some(future) = talk::start(url, Some(method), field) else { continue };
        future.subscribe().block();
        if let Some(Ok(Ok(response))) = future.get() {
            status = response.status();
        }
    }
    match status {
        0 => Err(Failure::network(None)),
        400.. => Err(Failure::upstream(status, "")),
        _ => Ok(status),
    }
}
