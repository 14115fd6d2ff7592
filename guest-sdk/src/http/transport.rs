//! One exchange over `wasi:http`: sends the request, reads the response, and classifies every error.

use std::sync::{Mutex, PoisonError};

use super::labels::Labels;
use super::request::{PreparedRequest, Timeouts};
use super::url::Url;
use super::{Error, Method, Response};
use crate::NetworkPhase;
use crate::bindings::wasi::clocks::monotonic_clock::Duration as Nanoseconds;
use crate::bindings::wasi::http::outgoing_handler;
use crate::bindings::wasi::http::types::{
    ErrorCode, Fields, IncomingBody, IncomingResponse, Method as WasiMethod, OutgoingBody, OutgoingRequest,
    RequestOptions, Scheme,
};
use crate::bindings::wasi::io::streams::StreamError;

/// The number of bytes requested in one read.
const READ: u64 = 64 * 1024;
/// The most bytes that are reserved because of a `Content-Length`.
const RESERVED: usize = 1024 * 1024;

/// The labels of this instance, which lives for one attempt.
static LABELS: Mutex<Labels> = Mutex::new(Labels::new());

pub(crate) fn send(request: PreparedRequest) -> Result<Response, Error> {
    // An instance whose guest panicked is not used again.
    LABELS.lock().unwrap_or_else(PoisonError::into_inner).take_all(&request)?;
    // Each call to the host costs as much as a good part of the request itself, so none is made to set a default.
    let outgoing = outgoing(&request)?;
    let body = match request.body.is_empty() {
        true => None,
        false => Some(outgoing.body().map_err(|()| invalid("the body"))?),
    };
    // From here on the host may connect, and the body is written meanwhile.
    let future = outgoing_handler::handle(outgoing, options(request.timeouts)?).map_err(failed)?;
    // A service may respond before it has read everything, and close the connection. Its response is then more
    // informative than the write error.
    let written = body.map_or(Ok(()), |body| write(body, &request.body));
    let response = loop {
        future.subscribe().block();
        if let Some(response) = future.get() {
            break response;
        }
    };
    let response = response.map_err(|()| invalid("the response was taken twice"))?;
    match (response, written) {
        (Ok(response), _) => receive(request.url, response),
        (Err(_), Err(error)) => Err(error),
        (Err(error), Ok(())) => Err(failed(error)),
    }
}

fn outgoing(request: &PreparedRequest) -> Result<OutgoingRequest, Error> {
    let url = &request.url;
    let headers =
        Fields::from_list(&request.headers).map_err(|error| invalid(&format!("a header ({error})")))?;
    let outgoing = OutgoingRequest::new(headers);
    let method = match request.method {
        Method::Get => WasiMethod::Get,
        Method::Head => WasiMethod::Head,
        Method::Post => WasiMethod::Post,
        Method::Put => WasiMethod::Put,
        Method::Patch => WasiMethod::Patch,
        Method::Delete => WasiMethod::Delete,
    };
    let scheme = if url.https { Scheme::Https } else { Scheme::Http };
    if request.method != Method::Get {
        outgoing.set_method(&method).map_err(|()| invalid("the method"))?;
    }
    outgoing.set_scheme(Some(&scheme)).map_err(|()| invalid("the URL's scheme"))?;
    outgoing.set_authority(Some(&url.authority)).map_err(|()| invalid("the URL's host"))?;
    outgoing.set_path_with_query(Some(&url.path_and_query)).map_err(|()| invalid("the URL's path"))?;
    Ok(outgoing)
}

fn options(timeouts: Timeouts) -> Result<Option<RequestOptions>, Error> {
    if [timeouts.connect, timeouts.first_byte, timeouts.between_bytes].iter().all(Option::is_none) {
        return Ok(None);
    }
    let nanoseconds = |limit: Option<std::time::Duration>| -> Option<Nanoseconds> {
        limit.map(|limit| Nanoseconds::try_from(limit.as_nanos()).unwrap_or(Nanoseconds::MAX))
    };
    let options = RequestOptions::new();
    let set = [
        options.set_connect_timeout(nanoseconds(timeouts.connect)),
        options.set_first_byte_timeout(nanoseconds(timeouts.first_byte)),
        options.set_between_bytes_timeout(nanoseconds(timeouts.between_bytes)),
    ];
    if set.iter().all(Result::is_ok) { Ok(Some(options)) } else { Err(invalid("a timeout")) }
}

fn write(body: OutgoingBody, mut rest: &[u8]) -> Result<(), Error> {
    let stream = body.write().map_err(|()| invalid("the body"))?;
    let ready = stream.subscribe();
    while !rest.is_empty() {
        ready.block();
        let room =
            usize::try_from(stream.check_write().map_err(broken(NetworkPhase::Send))?).unwrap_or(usize::MAX);
        let (now, later) = rest.split_at(room.min(rest.len()));
        stream.write(now).map_err(broken(NetworkPhase::Send))?;
        rest = later;
    }
    stream.flush().map_err(broken(NetworkPhase::Send))?;
    ready.block();
    stream.check_write().map_err(broken(NetworkPhase::Send))?;
    drop((ready, stream));
    OutgoingBody::finish(body, None).map_err(failed)
}

fn receive(url: Url, response: IncomingResponse) -> Result<Response, Error> {
    let status = response.status();
    let headers = response.headers().entries();
    let body = response.consume().map_err(|()| invalid("the response was taken twice"))?;
    let bytes = read(&body, content_length(&headers))?;
    // Trailers are not used here, but an error in place of them is.
    drop(response);
    let trailers = IncomingBody::finish(body);
    loop {
        match trailers.get() {
            Some(Ok(Err(error))) => return Err(failed(error)),
            Some(_) => break,
            None => trailers.subscribe().block(),
        }
    }
    Ok(Response::received(url, status, headers, bytes))
}

/// Reads a body. `expected` is its declared length in bytes, if there is one.
fn read(body: &IncomingBody, expected: Option<usize>) -> Result<Vec<u8>, Error> {
    let stream = body.stream().map_err(|()| invalid("the response was taken twice"))?;
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(READ) {
            // Most bodies arrive in one piece and need no copy.
            Ok(chunk) if bytes.is_empty() && expected.is_some_and(|all| all <= chunk.len()) => bytes = chunk,
            Ok(chunk) => {
                if bytes.is_empty() {
                    bytes.reserve(expected.unwrap_or_default().min(RESERVED));
                }
                bytes.extend_from_slice(&chunk);
            }
            Err(StreamError::Closed) => return Ok(bytes),
            Err(error) => return Err(broken(NetworkPhase::Response)(error)),
        }
    }
}

fn content_length(headers: &[(String, Vec<u8>)]) -> Option<usize> {
    let (_, value) = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

fn invalid(what: &str) -> Error {
    Error::Invalid(format!("the host does not accept {what}"))
}

fn broken(phase: NetworkPhase) -> impl Fn(StreamError) -> Error {
    move |error| {
        let detail = match error {
            StreamError::Closed => "the stream was closed".to_owned(),
            StreamError::LastOperationFailed(error) => error.to_debug_string(),
        };
        Error::Network { phase: Some(phase), detail }
    }
}

/// Converts an error of `wasi:http`. The match is exhaustive, so that a new error has to be classified.
fn failed(error: ErrorCode) -> Error {
    use NetworkPhase::{Connect, Dns, Response, Send, Tls};

    let detail = format!("{error:?}");
    let phase = match error {
        ErrorCode::HttpRequestDenied => return Error::Denied,
        ErrorCode::HttpRequestMethodInvalid
        | ErrorCode::HttpRequestUriInvalid
        | ErrorCode::HttpRequestUriTooLong
        | ErrorCode::HttpRequestLengthRequired => return Error::Invalid(detail),
        ErrorCode::DnsTimeout | ErrorCode::DnsError(_) | ErrorCode::DestinationNotFound => Some(Dns),
        ErrorCode::DestinationUnavailable
        | ErrorCode::DestinationIpProhibited
        | ErrorCode::DestinationIpUnroutable
        | ErrorCode::ConnectionRefused
        | ErrorCode::ConnectionTimeout
        | ErrorCode::ConnectionLimitReached => Some(Connect),
        ErrorCode::TlsProtocolError | ErrorCode::TlsCertificateError | ErrorCode::TlsAlertReceived(_) => {
            Some(Tls)
        }
        ErrorCode::ConnectionWriteTimeout
        | ErrorCode::HttpRequestBodySize(_)
        | ErrorCode::HttpRequestHeaderSectionSize(_)
        | ErrorCode::HttpRequestHeaderSize(_)
        | ErrorCode::HttpRequestTrailerSectionSize(_)
        | ErrorCode::HttpRequestTrailerSize(_) => Some(Send),
        ErrorCode::ConnectionTerminated
        | ErrorCode::ConnectionReadTimeout
        | ErrorCode::HttpResponseIncomplete
        | ErrorCode::HttpResponseHeaderSectionSize(_)
        | ErrorCode::HttpResponseHeaderSize(_)
        | ErrorCode::HttpResponseBodySize(_)
        | ErrorCode::HttpResponseTrailerSectionSize(_)
        | ErrorCode::HttpResponseTrailerSize(_)
        | ErrorCode::HttpResponseTransferCoding(_)
        | ErrorCode::HttpResponseContentCoding(_)
        | ErrorCode::HttpResponseTimeout
        | ErrorCode::HttpUpgradeFailed
        | ErrorCode::HttpProtocolError => Some(Response),
        ErrorCode::LoopDetected | ErrorCode::ConfigurationError | ErrorCode::InternalError(_) => None,
    };
    Error::Network { phase, detail }
}
