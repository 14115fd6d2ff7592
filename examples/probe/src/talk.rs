//! Talking: to services, to the log, to standard output.

use std::io::Write as _;
use std::time::Duration;

use cofferdam_guest::http::{self, Request};
use cofferdam_guest::wasi::http::outgoing_handler;
use cofferdam_guest::wasi::http::types::{
    Fields, FutureIncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme,
};
use cofferdam_guest::{Failure, credential, log};

use crate::Response;

pub(crate) fn fetch(url: String) -> Result<Response, Failure> {
    answer(http::get(url))
}

pub(crate) fn post(url: String, body: String) -> Result<Response, Failure> {
    answer(http::post(url).idempotency_key("post").bytes("text/plain; charset=utf-8", body))
}

/// Takes the service's words for its own.
pub(crate) fn quote_answer(url: String) -> Result<(), Failure> {
    let response = http::get(url).send()?;
    if response.status() < 400 {
        return Ok(());
    }
    let answer = String::from_utf8_lossy(response.bytes()).into_owned();
    Err(Failure::failed("bad_answer", format!("The service said: {answer}")))
}

/// Reads an answer as if nothing could be wrong with it.
#[allow(clippy::unwrap_used, reason = "what this operation is for")]
pub(crate) fn trust_answer(url: String) -> String {
    fetch(url).unwrap().body
}

/// Claims a status, whatever the service answered.
pub(crate) fn forge_upstream(status: u16, url: Option<String>) -> Result<(), Failure> {
    if let Some(url) = url {
        drop(http::get(url).send()?);
    }
    Err(Failure::upstream(status, "forged"))
}

pub(crate) fn order(
    url: &str,
    body: &str,
    labels: &[String],
    patience_ms: Option<u64>,
) -> Result<Response, Failure> {
    let mut response = None;
    for label in labels {
        let mut request = http::post(url).idempotency_key(label).bytes("text/plain", body);
        if let Some(patience) = patience_ms.map(Duration::from_millis) {
            request = request.connect_timeout(patience).first_byte_timeout(patience);
        }
        response = Some(answer(request)?);
    }
    response.ok_or_else(|| Failure::failed("no_response", "Nothing was ordered."))
}

pub(crate) fn post_bytes(url: String, bytes: u64) -> Result<Response, Failure> {
    let body = vec![b'x'; usize::try_from(bytes).unwrap_or(usize::MAX)];
    answer(http::post(url).bytes("text/plain", body))
}

pub(crate) fn fetch_with_fields(url: String, fields: u32, length: u32) -> Result<Response, Failure> {
    let value = "x".repeat(usize::try_from(length).unwrap_or(usize::MAX));
    let request = (0..fields)
        .fold(http::get(url), |request, number| request.header(format!("x-field-{number}"), value.as_str()));
    answer(request)
}

pub(crate) fn fetch_with_header(url: String, name: String, value: String) -> Result<Response, Failure> {
    answer(http::get(url).header(name, value))
}

pub(crate) fn place_handle(service: &str, parts: &[String; 3], times: u32) -> Result<Response, Failure> {
    let Some(handle) = credential::handle(service) else {
        return Err(Failure::failed("no_handle", "There is no handle."));
    };
    if times == 0 {
        return Ok(Response { status: 0, body: handle });
    }
    let [url, header, body] = parts.each_ref().map(|part| part.replace("{handle}", &handle));
    let mut response = None;
    for _ in 0..times {
        let request = http::post(url.as_str()).header("x-session", header.as_str());
        response = Some(answer(request.bytes("text/plain", body.as_str()))?);
    }
    response.ok_or_else(|| Failure::failed("no_response", "Nothing was posted."))
}

pub(crate) fn fetch_many(url: &str, times: u32) -> Result<Vec<u16>, Failure> {
    (0..times).map(|_| Ok(http::get(url).send()?.status())).collect()
}

/// Below the SDK, which waits for every answer.
pub(crate) fn persist(first: &str, denied: &str, after: &str, times: u32) -> u32 {
    let after = std::iter::repeat_n(after, usize::try_from(times).unwrap_or(usize::MAX));
    let started: Vec<_> =
        [first, denied].into_iter().chain(after).filter_map(|url| start(url, None, None)).collect();
    for future in &started {
        while future.get().is_none() {
            future.subscribe().block();
        }
    }
    u32::try_from(started.len()).unwrap_or(u32::MAX)
}

/// Has a request under way when another fails, or when it is dropped and a failure claimed.
pub(crate) fn lose_track(first: &str, second: &str) -> Result<(), Failure> {
    let started = start(first, None, None);
    std::thread::sleep(std::time::Duration::from_millis(500));
    if second.is_empty() {
        drop(started);
        return Err(Failure::network(None));
    }
    drop(http::get(second).send()?);
    drop(started);
    Ok(())
}

/// Returns while requests are under way.
pub(crate) fn leave_behind(
    methods: &[String],
    url: &str,
    awaited: &str,
    give_up: bool,
) -> Result<u32, Failure> {
    let started: Vec<_> = methods.iter().filter_map(|method| start(url, Some(method), None)).collect();
    drop(http::get(awaited).send()?);
    let count = u32::try_from(started.len()).unwrap_or(u32::MAX);
    if !give_up {
        std::mem::forget(started);
    }
    Ok(count)
}

/// Below the SDK, which knows six methods.
pub(crate) fn start(url: &str, method: Option<&str>, field: Option<&str>) -> Option<FutureIncomingResponse> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_once('/')?;
    let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
    let fields = Fields::new();
    if let Some(name) = field {
        fields.append(name, b"POST").ok()?;
    }
    let request = OutgoingRequest::new(fields);
    if let Some(method) = method {
        request.set_method(&Method::Other(method.to_owned())).ok()?;
    }
    request.set_scheme(Some(&scheme)).ok()?;
    request.set_authority(Some(authority)).ok()?;
    request.set_path_with_query(Some(&format!("/{path}"))).ok()?;
    let body = request.body().ok()?;
    let future = outgoing_handler::handle(request, None).ok();
    OutgoingBody::finish(body, None).ok()?;
    future
}

fn answer(request: Request) -> Result<Response, Failure> {
    let response = request.send()?.error_for_status()?;
    Ok(Response { status: response.status(), body: String::from_utf8_lossy(response.bytes()).into_owned() })
}

pub(crate) fn log_flood(lines: u32, length: u32) {
    let line = "x".repeat(usize::try_from(length).unwrap_or(usize::MAX));
    for number in 0..lines {
        log::info(&line, &[("number", &number)]);
    }
}

pub(crate) fn stdout_flood(bytes: u64) {
    let chunk = [b'x'; 1024];
    let mut left = bytes;
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
        let (part, _) = chunk.split_at(now);
        // The host may drop it.
        let _ = std::io::stdout().write_all(part);
        let _ = std::io::stderr().write_all(part);
        left -= u64::try_from(now).unwrap_or(left);
    }
}
