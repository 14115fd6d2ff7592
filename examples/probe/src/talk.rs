//! Talking: to services, to the log, to standard output.

use std::io::Write as _;

use cofferdam_guest::http::{self, Request};
use cofferdam_guest::{Failure, log};

use crate::Response;

pub(crate) fn fetch(url: String) -> Result<Response, Failure> {
    answer(http::get(url))
}

pub(crate) fn post(url: String, body: String) -> Result<Response, Failure> {
    answer(http::post(url).idempotency_key("post").bytes("text/plain; charset=utf-8", body))
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

pub(crate) fn fetch_many(url: &str, times: u32) -> Result<Vec<u16>, Failure> {
    (0..times).map(|_| Ok(http::get(url).send()?.status())).collect()
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
        // Whether the host takes it is the host's business.
        let _ = std::io::stdout().write_all(part);
        let _ = std::io::stderr().write_all(part);
        left -= u64::try_from(now).unwrap_or(left);
    }
}
