//! One HTTP/1.1 connection: whoever holds it owns it, and dropping it ends it at once.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::failure::{LimitHit, LimitKind, Phase};
use cofferdam_core::limits::{HEADER_BYTES, RESPONSE_FIELDS};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::fault::{NetworkFaultParts, SendError, classify, code};
use super::outgoing::{RequestBody, Upload};
use super::stream::{Meter, Metered};

/// A connection with at most one request under way.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: http1::SendRequest<RequestBody>,
    meter: Arc<Meter>,
    driver: JoinHandle<()>,
}

/// Why a request has no response.
pub(super) enum Unanswered {
    /// The connection cannot take it, for this reason, and no byte of it was written: here it is again.
    Unsent(Box<Request<RequestBody>>, &'static str),
    /// It failed.
    Failed(SendError),
}

impl Connection {
    /// Starts HTTP on an open stream. Nothing is written yet.
    pub(super) async fn open<S>(stream: Metered<S>) -> Result<Self, SendError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let meter = stream.meter();
        let mut http = http1::Builder::new();
        // hyper's own limit of 100 fields stays: to name it would cost an allocation for each response.
        http.max_header_size(HEADER_BYTES).max_buf_size(2 * HEADER_BYTES);
        let (sender, connection) = http.handshake(TokioIo::new(stream)).await.map_err(|error| {
            NetworkFaultParts { phase: Phase::Send, code: classify(&error), request_sent: false }
        })?;
        // An error reaches whoever waits for the response; of a connection that nobody uses it is no news.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, meter, driver })
    }

    /// Sends a request and waits for the head of its response, `within` that time.
    pub(super) async fn exchange(
        mut self,
        request: Request<RequestBody>,
        upload: &Upload,
        within: Duration,
    ) -> Result<(Response<Incoming>, Self), Unanswered> {
        let (before, read_before) = (self.meter.mark(), self.meter.read());
        upload.departs().map_err(Unanswered::Failed)?;
        let code = match timeout(within, self.sender.try_send_request(request)).await {
            Ok(Ok(response)) => return Ok((response, self)),
            Ok(Err(mut error)) => match error.take_message() {
                Some(unsent) => {
                    upload.stayed();
                    return Err(Unanswered::Unsent(Box::new(unsent), classify(error.error())));
                }
                None => classify(error.error()),
            },
            Err(_) => code::TIMEOUT,
        };
        let meter = self.stop().await;
        Err(Unanswered::Failed(match code {
            code::HEADERS_TOO_LARGE => SendError::Limit(head_too_large(meter.read() - read_before)),
            _ => {
                let request_sent = meter.mark() != before;
                let whole = request_sent && !meter.write_failed();
                unanswered(upload, code, request_sent, whole).into()
            }
        }))
    }

    /// The bytes that came until now.
    #[cfg(test)]
    pub(super) fn bytes_read(&self) -> u64 {
        self.meter.read()
    }

    /// Ends the connection and waits until nothing more can be written; what its meter then says is final.
    ///
    /// An error is reported before the driver is done: it may still flush what it had buffered.
    async fn stop(mut self) -> Arc<Meter> {
        self.driver.abort();
        // Either it was cancelled or it had ended; both are what is wanted.
        let _ = (&mut self.driver).await;
        Arc::clone(&self.meter)
    }
}

impl Drop for Connection {
    /// The driver holds the socket and the request's body: neither outlives the request that is given up.
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// What is reported of a request without an answer: `written` says whether all of it that was handed over
/// also went out.
pub(super) fn unanswered(
    upload: &Upload,
    code: &'static str,
    request_sent: bool,
    written: bool,
) -> NetworkFaultParts {
    let phase = if written && upload.finished() { Phase::Response } else { Phase::Send };
    let code = if upload.failed() { code::REQUEST_BODY } else { code };
    if !request_sent {
        upload.stayed();
    }
    NetworkFaultParts { phase, code, request_sent }
}

/// The limit that the head of a response is over, after `read` bytes came: hyper does not say which.
///
/// hyper gives a head up when it holds [`HEADER_BYTES`] and has seen no end: so many bytes are too many, whatever
/// fields they are.
fn head_too_large(read: u64) -> LimitHit {
    let most = HEADER_BYTES as u64;
    match read >= most {
        true => LimitHit::new(LimitKind::ResponseHeaders, most, read.max(most + 1)),
        false => LimitHit::at_least_one_over(LimitKind::ResponseFields, RESPONSE_FIELDS),
    }
}
