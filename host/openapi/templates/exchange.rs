//! Sends requests and reads answers.

use cofferdam_guest::Failure;
use cofferdam_guest::http::{Request, Response};
use serde_json::Value;

use super::read::{Mismatch, Read};

/// Sends a request. An error status is a failure.
pub(crate) fn send(request: Request) -> Result<Response, Failure> {
    let response = crate::prepare(request).send()?;
    if response.status() >= 400 { Err(crate::failure_of(response)) } else { Ok(response) }
}

/// Refuses an answer that is neither an error nor the result: a redirect, for example.
pub(crate) fn success(response: &Response) -> Result<(), Failure> {
    match response.status() {
        200..=299 => Ok(()),
        status => Err(Failure::upstream(status, "unexpected_status")),
    }
}

fn parsed(response: &Response) -> Result<Value, Failure> {
    success(response)?;
    let parsed = response.json();
    parsed.map_err(|_| Mismatch::new("JSON").into_failure(response.status()))
}

/// Reads the JSON of an answer.
pub(crate) fn json<T>(response: &Response, read: impl Fn(&Value) -> Read<T>) -> Result<T, Failure> {
    let value = parsed(response)?;
    read(&value).map_err(|wrong| wrong.into_failure(response.status()))
}

/// As [`json`], for services whose answers say with the field `ok` if they are errors.
pub(crate) fn ok_json<T>(response: &Response, read: impl Fn(&Value) -> Read<T>) -> Result<T, Failure> {
    let value = parsed(response)?;
    if value["ok"] == Value::Bool(false) {
        let code = value["error"].as_str().unwrap_or("unknown_error");
        return Err(Failure::upstream(response.status(), code));
    }
    read(&value).map_err(|wrong| wrong.into_failure(response.status()))
}

/// Reads an answer as text.
pub(crate) fn text(response: Response) -> Result<String, Failure> {
    success(&response)?;
    Ok(response.text()?)
}

/// Reads an answer as bytes.
pub(crate) fn bytes(response: Response) -> Result<Vec<u8>, Failure> {
    success(&response)?;
    Ok(response.into_bytes())
}

/// Reads the target of a redirect.
pub(crate) fn location(response: &Response) -> Result<String, Failure> {
    let status = response.status();
    let location = response.header("location").filter(|_| (300..=399).contains(&status));
    let location = location.map(ToOwned::to_owned);
    location.ok_or_else(|| Failure::upstream(status, "no_location"))
}
