//! Making the host keep things: each way repeats one host function for as long as it is let, and gives nothing back.

use std::io::Write as _;
use std::mem::forget;

use cofferdam_guest::wasi::clocks::monotonic_clock;
use cofferdam_guest::wasi::http::outgoing_handler;
use cofferdam_guest::wasi::http::types::{
    Fields, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest, OutgoingResponse,
    RequestOptions, Scheme,
};
use cofferdam_guest::wasi::io::poll::{Pollable, poll};
use cofferdam_guest::wasi::io::streams::{OutputStream, StreamError};
use cofferdam_guest::wasi::random::{insecure, random};
use cofferdam_guest::{Failure, call, credential, log};

/// More than any handle may be needed for.
const TIMES: usize = 1_000_000;

/// Repeats `way` until the host ends it; what came of it where it does not.
pub(crate) fn hoard(way: &str, url: &str) -> Result<u64, Failure> {
    let mebibyte = "x".repeat(1 << 20);
    match way {
        "nothing" => {}
        "set-method" => repeat(|| request().set_method(&Method::Other(mebibyte.clone()))),
        "set-method-short" => repeat(|| request().set_method(&Method::Other("x".repeat(64)))),
        "set-authority" => repeat(|| request().set_authority(Some(&mebibyte))),
        "set-authority-short" => repeat(|| request().set_authority(Some(&"x".repeat(300)))),
        "set-scheme" => repeat(|| request().set_scheme(Some(&Scheme::Other(mebibyte.clone())))),
        "set-path-with-query" => {
            let path = format!("/{}", "x".repeat(60_000));
            repeat(|| request().set_path_with_query(Some(&path)));
        }
        "fields.append" => repeat(|| fields().append("name", &[b'x'; 60_000])),
        "fields.append-small" => repeat(|| {
            let fields = fields();
            (0..880).for_each(|number| ignore(fields.append(&format!("{number}"), b"")));
        }),
        "fields.set" => repeat(|| fields().set("name", &vec![vec![b'x'; 1_000]; 60])),
        "fields.from-list" => {
            let list: Vec<_> = (0..400).map(|number| (format!("name-{number}"), vec![b'x'; 70])).collect();
            repeat(|| Fields::from_list(&list).map(forget));
        }
        "fields.delete" => repeat(|| {
            let fields = fields();
            ignore(fields.append("name", &[b'x'; 60_000]));
            fields.delete(&"x".repeat(60_000))
        }),
        "fields.get" => repeat(|| fields().get(&mebibyte)),
        "fields.has" => repeat(|| fields().has(&mebibyte)),
        "fields.clone" => {
            let fields = fields();
            ignore(fields.append("name", &[b'x'; 60_000]));
            repeat(|| {
                let clone = fields.clone();
                ignore(clone.append("other", b"x"));
                forget(clone);
            });
        }
        "fields.of-request" => {
            let filled = Fields::new();
            ignore(filled.append("name", &[b'x'; 60_000]));
            let request = OutgoingRequest::new(filled);
            repeat(|| {
                let copy = request.headers().clone();
                ignore(copy.append("other", b"x"));
                forget(copy);
            });
        }
        "request-options" => repeat(|| {
            let options = kept(RequestOptions::new());
            ignore(options.set_connect_timeout(Some(1)));
            ignore(options.set_first_byte_timeout(Some(1)));
            options.set_between_bytes_timeout(Some(1))
        }),
        "outgoing-response" => repeat(|| {
            let filled = Fields::new();
            ignore(filled.append("name", &[b'x'; 30_000]));
            let response = kept(OutgoingResponse::new(filled));
            ignore(response.set_status_code(200));
            forget(response.headers().clone());
            response.body().map(forget)
        }),
        "request-body" => repeat(|| write(&request())),
        "blocking-write" => repeat(|| {
            let stream = stream_of(&request());
            // The second would wait for ever, as it is never read.
            stream.map(|stream| stream.blocking_write_and_flush(&[b'x'; 4096]))
        }),
        "write-zeroes" => repeat(|| stream_of(&request()).map(|stream| stream.write_zeroes(16 * 1024))),
        "write-too-much" => {
            repeat(|| stream_of(&request()).map(|stream| stream.write(&vec![b'x'; 12 << 20])));
        }
        "trailers" => repeat(|| {
            let trailers = Fields::new();
            (0..800).for_each(|number| ignore(trailers.append(&format!("{number}"), b"")));
            request().body().map(|body| OutgoingBody::finish(body, Some(trailers)))
        }),
        "send" => repeat(|| send(url, false).map(forget)),
        "send-bodies" => repeat(|| send(url, true).map(forget)),
        "unbuildable" => repeat(|| outgoing_handler::handle(OutgoingRequest::new(Fields::new()), None)),
        "without-path" => {
            let authority = url.split('/').nth(2);
            repeat(|| {
                let request = OutgoingRequest::new(Fields::new());
                ignore(request.set_scheme(Some(&Scheme::Http)));
                ignore(request.set_authority(authority));
                outgoing_handler::handle(request, None)
            });
        }
        "responses" => repeat(|| {
            let response = respond(url)?;
            forget(response.headers().clone());
            // The next may go once the body is read.
            read_all(response)
        }),
        "response-bodies" => repeat(|| respond(url).map(read_some)),
        "response-trailers" => repeat(|| respond(url).map(trailers_of)),
        "subscribe" => repeat(|| forget(monotonic_clock::subscribe_duration(u64::MAX))),
        "poll" => {
            let pollable = monotonic_clock::subscribe_duration(0);
            let many: Vec<&Pollable> = std::iter::repeat_n(&pollable, 900).collect();
            (0..1_000).for_each(|_| ignore(poll(&many)));
        }
        "errors" => repeat(|| {
            let filled = Fields::new();
            ignore(filled.append("content-length", b"1"));
            let request = kept(OutgoingRequest::new(filled));
            // More than was promised.
            if let Some(Err(StreamError::LastOperationFailed(error))) =
                stream_of(request).map(|stream| stream.write(b"xx"))
            {
                ignore(error.to_debug_string());
                forget(error);
            }
        }),
        "random" => (0..1_000).for_each(|_| {
            ignore(random::get_random_bytes(64 * 1024));
            ignore(insecure::get_insecure_random_bytes(64 * 1024));
        }),
        "stdout" => (0..1_000).for_each(|_| ignore(std::io::stdout().write_all(&[b'x'; 64 * 1024]))),
        "stderr" => (0..1_000).for_each(|_| ignore(std::io::stderr().write_all(&[b'x'; 64 * 1024]))),
        "log" => (0..2_000).for_each(|_| log::info(&mebibyte, &[("field", &mebibyte)])),
        "suppressed" => (0..2_000).for_each(|_| log::suppressed(&mebibyte, &mebibyte)),
        "credential" => repeat(|| credential::handle(&mebibyte)),
        "call" => {
            (0..10_000).for_each(|_| ignore((call::idempotency_key(), call::attempt(), call::deadline())));
        }
        other => return Err(Failure::failed("unknown_way", format!("There is no way {other}."))),
    }
    Ok(0)
}

/// Returns as much text as there is memory for.
pub(crate) fn hoard_result(items: u32) -> Vec<String> {
    (0..items).map(|_| String::new()).collect()
}

fn repeat<T>(mut what: impl FnMut() -> T) {
    for _ in 0..TIMES {
        ignore(what());
    }
}

/// The result does not matter: only the next try counts.
fn ignore<T>(_: T) {}

/// Keeps a handle open for good, and uses it.
fn kept<T>(handle: T) -> &'static T {
    Box::leak(Box::new(handle))
}

fn fields() -> &'static Fields {
    kept(Fields::new())
}

fn request() -> &'static OutgoingRequest {
    kept(OutgoingRequest::new(Fields::new()))
}

fn stream_of(request: &OutgoingRequest) -> Option<&'static OutputStream> {
    let body = kept(request.body().ok()?);
    body.write().ok().map(kept)
}

/// As much as the host takes of a body that is never sent.
fn write(request: &OutgoingRequest) {
    let Some(stream) = stream_of(request) else { return };
    while let Ok(room @ 1..) = stream.check_write() {
        let bytes = vec![b'x'; usize::try_from(room).unwrap_or(usize::MAX)];
        if stream.write(&bytes).is_err() {
            return;
        }
    }
}

fn send(url: &str, with_body: bool) -> Option<cofferdam_guest::wasi::http::types::FutureIncomingResponse> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_once('/')?;
    let filled = Fields::new();
    ignore(filled.append("x-filler", &[b'x'; 30_000]));
    let request = OutgoingRequest::new(filled);
    let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
    request.set_scheme(Some(&scheme)).ok()?;
    request.set_authority(Some(authority)).ok()?;
    request.set_path_with_query(Some(&format!("/{path}"))).ok()?;
    if with_body {
        request.set_method(&Method::Post).ok()?;
        write(&request);
    }
    outgoing_handler::handle(request, None).ok()
}

fn respond(url: &str) -> Option<&'static IncomingResponse> {
    let future = kept(send(url, false)?);
    future.subscribe().block();
    future.get()?.ok()?.ok().map(kept)
}

fn read_all(response: &IncomingResponse) -> Option<()> {
    let body = kept(response.consume().ok()?);
    let stream = kept(body.stream().ok()?);
    while stream.blocking_read(1 << 16).is_ok() {}
    Some(())
}

/// Has the host hold a piece of the body, and leaves it there.
fn read_some(response: &IncomingResponse) -> Option<()> {
    let body = kept(response.consume().ok()?);
    let stream = kept(body.stream().ok()?);
    stream.subscribe().block();
    ignore(stream.blocking_read(1));
    ignore(stream.skip(1));
    ignore(stream.blocking_skip(1));
    Some(())
}

fn trailers_of(response: &IncomingResponse) -> Option<()> {
    let trailers = kept(IncomingBody::finish(response.consume().ok()?));
    trailers.subscribe().block();
    trailers.get()?.ok()?.ok()?.map(forget)
}
