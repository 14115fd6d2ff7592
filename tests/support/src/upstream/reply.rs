//! Answers that a path spells out.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::channel::Channel;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::Response;
use serde_json::{Value, json};

use super::{HangUp, ReceivedRequest};

/// The body of an answer.
pub(super) type Body = BoxBody<Bytes, HangUp>;

/// The reaction to a request.
pub(super) enum Reply {
    Response(Response<Body>),
    HangUp,
}

/// The answer to a request before which there were so many `earlier` ones of the same path.
pub(super) async fn by_path(seen: &ReceivedRequest, earlier: usize) -> Reply {
    let (path, query) = seen.path.split_once('?').unwrap_or((&seen.path, ""));
    let mut parts = path.trim_start_matches('/').splitn(3, '/');
    let (kind, argument) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    match kind {
        "text" => text(200, argument),
        "echo" => value(200, &echo(seen)),
        "bytes" => text(200, &"x".repeat(argument.parse().unwrap_or(0))),
        "status" => {
            let mut reply = value(argument.parse().unwrap_or(500), &json!({"message": "as asked"}));
            if let (Reply::Response(response), Some(wait)) = (&mut reply, parameter(query, "retry_after")) {
                response.headers_mut().insert("retry-after", wait.parse().expect("a header value"));
            }
            reply
        }
        "flaky" if argument.parse().is_ok_and(|times: usize| earlier < times) => {
            value(503, &json!({"message": "not yet"}))
        }
        "flaky" => text(200, "at last"),
        "fields" => {
            let mut reply = text(200, "see above");
            let value =
                "x".repeat(parameter(query, "bytes").and_then(|bytes| bytes.parse().ok()).unwrap_or(1));
            if let Reply::Response(response) = &mut reply {
                for number in 0..argument.parse().unwrap_or(0) {
                    let name = http::HeaderName::try_from(format!("x-field-{number}")).expect("a name");
                    response.headers_mut().insert(name, value.parse().expect("a header value"));
                }
            }
            reply
        }
        "redirect" => {
            let mut reply = text(302, "elsewhere");
            if let (Reply::Response(response), Some(to)) = (&mut reply, parameter(query, "to")) {
                response.headers_mut().insert("location", to.parse().expect("a header value"));
            }
            reply
        }
        "slow" => {
            tokio::time::sleep(Duration::from_millis(argument.parse().unwrap_or(0))).await;
            text(200, "at last")
        }
        "hang" => std::future::pending().await,
        "early-close" => early_close(),
        "drop" => Reply::HangUp,
        _ => text(404, "no such path"),
    }
}

/// The parameter `name` of a query, with nothing decoded.
pub(super) fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

pub(super) fn text(status: u16, text: &str) -> Reply {
    full(status, "text/plain", Bytes::copy_from_slice(text.as_bytes()))
}

pub(super) fn value(status: u16, value: &Value) -> Reply {
    full(status, "application/json", value.to_string().into())
}

fn full(status: u16, kind: &str, bytes: Bytes) -> Reply {
    let body = Full::new(bytes).map_err(|never: Infallible| match never {}).boxed();
    let response = Response::builder().status(status).header("content-type", kind).body(body);
    Reply::Response(response.expect("a status and a type that are acceptable"))
}

fn echo(seen: &ReceivedRequest) -> Value {
    let headers: Vec<_> = seen.headers.iter().map(|(name, value)| json!([name, value])).collect();
    json!({
        "method": seen.method,
        "path": seen.path,
        "headers": headers,
        "body": String::from_utf8_lossy(&seen.body),
    })
}

/// A body that ends, with an error, after ten of the thousand bytes that were promised.
fn early_close() -> Reply {
    let (mut sender, body) = Channel::<Bytes, HangUp>::new(1);
    tokio::spawn(async move {
        if sender.send_data(Bytes::from_static(b"ten bytes!")).await.is_ok() {
            // Time for the ten to leave: an error right behind them would take them along.
            tokio::time::sleep(Duration::from_millis(20)).await;
            sender.abort(HangUp);
        }
    });
    let response = Response::builder().header("content-length", "1000").body(body.boxed());
    Reply::Response(response.expect("a header that is acceptable"))
}
