//! One request on an HTTP/2 connection: its own stream, which is reset when the request is given up.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use cofferdam_core::failure::Phase;
use h2::{Reason, RecvStream, SendStream};
use http::uri::{Authority, Parts, Scheme};
use http::{HeaderMap, Request, Response, Uri, Version, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::connection::{Unanswered, unanswered};
use super::fault::{NetworkFaultParts, RequestFlaw, classify_stream, code};
use super::multiplexed::Share;
use super::outgoing::{RequestBody, Upload};
use super::room::Place;

/// The upload of one request's body; dropped, it ends, and with the rest of its stream resets it.
#[derive(Debug)]
pub(super) struct Pump(JoinHandle<bool>);

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a request needs to stay alive while its response is read.
#[derive(Debug)]
pub(super) struct Running {
    pump: Option<Pump>,
    _place: Arc<Place>,
    #[cfg_attr(not(test), expect(dead_code, reason = "its end is what counts"))]
    share: Share,
}

impl Running {
    /// Ends the upload. The stream counts as open until this is dropped.
    pub(super) fn stop_upload(&mut self) {
        self.pump = None;
    }
}

#[cfg(test)]
impl Running {
    /// The bytes that came over the connection until now.
    pub(super) fn bytes_read(&self) -> u64 {
        self.share.connection().meter.read()
    }
}

/// Marks the connection as silent if a request on it is given up and not one byte came meanwhile.
struct Listening<'a> {
    share: &'a Share,
    read_before: u64,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        let connection = self.share.connection();
        if connection.meter.read() == self.read_before {
            connection.gone_silent();
        }
    }
}

/// Sends a request when the server has room for it, and waits for the head of its response, both `within`
/// that time.
pub(super) async fn exchange(
    share: Share,
    request: Request<RequestBody>,
    upload: &Arc<Upload>,
    within: Duration,
) -> Result<(Response<RecvStream>, Running), Unanswered> {
    let deadline = Instant::now() + within;
    let listening = Listening { share: &share, read_before: share.connection().meter.read() };
    let place = match timeout_at(deadline, share.connection().place()).await {
        Ok(Some(place)) => Arc::new(place),
        Ok(None) => return Err(Unanswered::Unsent(Box::new(request), code::CLOSED)),
        Err(_) => {
            let (phase, code) = (Phase::Send, code::TIMEOUT);
            return Err(Unanswered::Failed(NetworkFaultParts { phase, code, request_sent: false }.into()));
        }
    };
    let mut sender = share.connection().sender.clone();
    if let Err(error) = poll_fn(|cx| sender.poll_ready(cx)).await {
        return Err(Unanswered::Unsent(Box::new(request), classify_stream(&error)));
    }
    let (head, body) = request.into_parts();
    let head = in_http2(head).map_err(|flaw| Unanswered::Failed(flaw.into()))?;
    let before = share.connection().meter.mark();
    let promised = promised(head.headers());
    upload.departs().map_err(Unanswered::Failed)?;
    let (response, stream) = sender.send_request(head, body.is_end_stream()).map_err(|error| {
        upload.stayed();
        let (phase, code) = (Phase::Send, classify_stream(&error));
        Unanswered::Failed(NetworkFaultParts { phase, code, request_sent: false }.into())
    })?;
    let mut pump = match body.is_end_stream() {
        true => None,
        false => {
            let (upload, place) = (Arc::clone(upload), Arc::clone(&place));
            Some(Pump(tokio::spawn(async move {
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
            return Ok((response, Running { pump, _place: place, share }));
        }
        Ok(Err(code)) => code,
        Err(_) => code::TIMEOUT,
    };
    let meter = &share.connection().meter;
    // What h2 has, it may still write for as long as the connection lives.
    let request_sent = !(share.connection().has_ended() && meter.mark() == before);
    let written = whole && request_sent && !meter.write_failed();
    Err(Unanswered::Failed(unanswered(upload, code, request_sent, written).into()))
}

/// The head as HTTP/2 has it: the server's name in the URI alone, and no field of the connection.
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

/// The length that the head promises, which was checked to be one plain number.
fn promised(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Sends the body as the server takes it; whether all of it was handed over. A body that fails, or is not
/// what its head promised, resets the stream: the server must not take it for whole.
async fn pump(
    mut stream: SendStream<Bytes>,
    mut body: RequestBody,
    mut promised: Option<u64>,
    upload: Arc<Upload>,
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

/// Sends `data` in the pieces that the server has room for; none if the stream ended.
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
