//! One request on an HTTP/2 connection: its own stream, which is reset when the request is cancelled.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use cofferdam_core::failure::RequestPhase;
use h2::{Reason, RecvStream, SendStream};
use http::uri::{Authority, Parts, Scheme};
use http::{HeaderMap, Request, Response, Uri, Version, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::connection::{ExchangeError, unanswered};
use super::fault::{NetworkFaultParts, RequestFlaw, classify_stream, code};
use super::multiplexed::StreamLease;
use super::outgoing::{RequestBody, UploadState};
use super::room::StreamPermit;

/// The upload of one request's body. Dropping it stops the upload and, with the rest of its stream, resets
/// the stream.
#[derive(Debug)]
pub(super) struct BodyUpload(JoinHandle<bool>);

impl Drop for BodyUpload {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The state that keeps a request alive while its response is read.
#[derive(Debug)]
pub(super) struct ActiveStream {
    pump: Option<BodyUpload>,
    _place: Arc<StreamPermit>,
    #[cfg_attr(not(test), expect(dead_code, reason = "its end is what counts"))]
    share: StreamLease,
}

impl ActiveStream {
    /// Stops the upload. The stream counts as open until this value is dropped.
    pub(super) fn stop_upload(&mut self) {
        self.pump = None;
    }
}

#[cfg(test)]
impl ActiveStream {
    /// Returns the number of bytes read from the connection so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.share.connection().meter.read()
    }
}

/// Marks the connection as silent if a request on it is cancelled and not one byte arrived meanwhile.
struct SilenceGuard<'a> {
    share: &'a StreamLease,
    read_before: u64,
}

impl Drop for SilenceGuard<'_> {
    fn drop(&mut self) {
        let connection = self.share.connection();
        if connection.meter.read() == self.read_before {
            connection.gone_silent();
        }
    }
}

/// Sends a request when the server accepts another stream, and waits for the head of its response, both
/// limited by `within`.
pub(super) async fn exchange(
    share: StreamLease,
    request: Request<RequestBody>,
    upload: &Arc<UploadState>,
    within: Duration,
) -> Result<(Response<RecvStream>, ActiveStream), ExchangeError> {
    let deadline = Instant::now() + within;
    let listening = SilenceGuard { share: &share, read_before: share.connection().meter.read() };
    let place = match timeout_at(deadline, share.connection().place()).await {
        Ok(Some(place)) => Arc::new(place),
        Ok(None) => return Err(ExchangeError::Unsent(Box::new(request), code::CLOSED)),
        Err(_) => {
            let (phase, code) = (RequestPhase::Send, code::TIMEOUT);
            return Err(ExchangeError::Failed(NetworkFaultParts { phase, code, request_sent: false }.into()));
        }
    };
    let mut sender = share.connection().sender.clone();
    if let Err(error) = poll_fn(|cx| sender.poll_ready(cx)).await {
        return Err(ExchangeError::Unsent(Box::new(request), classify_stream(&error)));
    }
    let (head, body) = request.into_parts();
    let head = in_http2(head).map_err(|flaw| ExchangeError::Failed(flaw.into()))?;
    let before = share.connection().meter.mark();
    let promised = promised(head.headers());
    upload.departs().map_err(ExchangeError::Failed)?;
    let (response, stream) = sender.send_request(head, body.is_end_stream()).map_err(|error| {
        upload.stayed();
        let (phase, code) = (RequestPhase::Send, classify_stream(&error));
        ExchangeError::Failed(NetworkFaultParts { phase, code, request_sent: false }.into())
    })?;
    let mut pump = match body.is_end_stream() {
        true => None,
        false => {
            let (upload, place) = (Arc::clone(upload), Arc::clone(&place));
            Some(BodyUpload(tokio::spawn(async move {
                let whole = pump(stream, body, promised, upload).await;
                drop(place);
                whole
            })))
        }
    };
    let mut whole = pump.is_none();
    let answer = timeout_at(deadline, async {
        let mut response = std::pin::pin!(response);
        if let Some(pump) = &mut pump {
            tokio::select! {
                biased;
                answer = &mut response => return answer.map_err(|error| classify_stream(&error)),
                sent = &mut pump.0 => whole = sent.unwrap_or(false),
            }
            if upload.failed() {
                return Err(code::REQUEST_BODY);
            }
        }
        response.await.map_err(|error| classify_stream(&error))
    });
    let code = match answer.await {
        Ok(Ok(response)) => {
            drop(listening);
            return Ok((response, ActiveStream { pump, _place: place, share }));
        }
        Ok(Err(code)) => code,
        Err(_) => code::TIMEOUT,
    };
    let meter = &share.connection().meter;
    // Bytes that h2 has buffered may still be written for as long as the connection lives.
    let request_sent = !(share.connection().has_ended() && meter.mark() == before);
    let written = whole && request_sent && !meter.write_failed();
    Err(ExchangeError::Failed(unanswered(upload, code, request_sent, written).into()))
}

/// Converts the head to HTTP/2: the server's name only in the URI, and no connection-specific fields.
fn in_http2(head: http::request::Parts) -> Result<Request<()>, RequestFlaw> {
    let mut head = head;
    let host = head.headers.remove(header::HOST);
    head.headers.remove(header::TRANSFER_ENCODING);
    let host = host.as_ref().and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut uri = Parts::default();
    uri.scheme = Some(Scheme::HTTPS);
    uri.authority = Some(host.ok_or(RequestFlaw::Path)?);
    uri.path_and_query = head.uri.path_and_query().cloned();
    head.uri = Uri::from_parts(uri).map_err(|_| RequestFlaw::Path)?;
    head.version = Version::HTTP_2;
    Ok(Request::from_parts(head, ()))
}

/// Returns the length that the head promises, which was already checked to be one plain number.
fn promised(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Sends the body as fast as the server accepts it, and returns whether all of it was handed over. A body
/// that fails, or differs from what its head promised, resets the stream: the server must not take it as
/// complete.
async fn pump(
    mut stream: SendStream<Bytes>,
    mut body: RequestBody,
    mut promised: Option<u64>,
    upload: Arc<UploadState>,
) -> bool {
    loop {
        let frame = tokio::select! {
            biased;
            _ = poll_fn(|cx| stream.poll_reset(cx)) => return false,
            frame = body.frame() => frame,
        };
        match frame.map(|frame| frame.map(Frame::into_data)) {
            None if promised.unwrap_or(0) == 0 => return stream.send_data(Bytes::new(), true).is_ok(),
            Some(Ok(Ok(data))) if promised.is_none_or(|left| left >= data.len() as u64) => {
                promised = promised.map(|left| left - data.len() as u64);
                let end = body.is_end_stream() && promised.unwrap_or(0) == 0;
                match send_all(&mut stream, data, end).await {
                    Some(()) if end => return true,
                    Some(()) => {}
                    None => return false,
                }
            }
            Some(Ok(Err(frame))) if promised.unwrap_or(0) == 0 => {
                let trailers = frame.into_trailers().unwrap_or_default();
                return stream.send_trailers(trailers).is_ok();
            }
            None | Some(_) => {
                upload.fail();
                stream.send_reset(Reason::CANCEL);
                return false;
            }
        }
    }
}

/// Sends `data` in pieces that fit the server's window; returns `None` if the stream ended.
async fn send_all(stream: &mut SendStream<Bytes>, mut data: Bytes, end: bool) -> Option<()> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        while stream.capacity() == 0 {
            let room = poll_fn(|cx| match stream.poll_reset(cx) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => stream.poll_capacity(cx),
            });
            room.await?.ok()?;
        }
        let piece = data.split_to(stream.capacity().min(data.len()));
        stream.send_data(piece, end && data.is_empty()).ok()?;
    }
    Some(())
}
