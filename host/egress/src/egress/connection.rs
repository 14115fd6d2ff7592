//! One HTTP/1.1 connection with a single owner. Dropping it closes it at once.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::failure::{LimitHit, LimitKind, RequestPhase};
use cofferdam_core::limits::{HEADER_BYTES, RESPONSE_FIELDS};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::fault::{NetworkFaultParts, SendError, classify, code};
use super::outgoing::{RequestBody, UploadState};
use super::stream::{CountingIo, IoCounters};

/// A connection with at most one request in flight.
#[derive(Debug)]
pub(super) struct Http1Connection {
    pub(super) sender: http1::SendRequest<RequestBody>,
    meter: Arc<IoCounters>,
    driver: JoinHandle<()>,
}

/// The reason why a request has no response.
pub(super) enum ExchangeError {
    /// The connection cannot take the request, for this reason. No byte of it was written, and it is
    /// returned.
    Unsent(Box<Request<RequestBody>>, &'static str),
    /// The exchange failed.
    Failed(SendError),
}

impl Http1Connection {
    /// Starts HTTP on an open stream. Writes nothing yet.
    pub(super) async fn open<S>(stream: CountingIo<S>) -> Result<Self, SendError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let meter = stream.meter();
        let mut http = http1::Builder::new();
        // hyper's own limit of 100 fields stays: setting it would cost an allocation for each response.
        http.max_header_size(HEADER_BYTES).max_buf_size(2 * HEADER_BYTES);
        let (sender, connection) = http.handshake(TokioIo::new(stream)).await.map_err(|error| {
            NetworkFaultParts { phase: RequestPhase::Send, code: classify(&error), request_sent: false }
        })?;
        // An error is reported to the request that waits for the response. On an unused connection it does
        // not matter.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, meter, driver })
    }

    /// Sends a request and waits up to `within` for the head of its response.
    pub(super) async fn exchange(
        mut self,
        request: Request<RequestBody>,
        upload: &UploadState,
        within: Duration,
    ) -> Result<(Response<Incoming>, Self), ExchangeError> {
        let (before, read_before) = (self.meter.mark(), self.meter.read());
        upload.departs().map_err(ExchangeError::Failed)?;
        let code = match timeout(within, self.sender.try_send_request(request)).await {
            Ok(Ok(response)) => return Ok((response, self)),
            Ok(Err(mut error)) => match error.take_message() {
                Some(unsent) => {
                    upload.stayed();
                    return Err(ExchangeError::Unsent(Box::new(unsent), classify(error.error())));
                }
                None => classify(error.error()),
            },
            Err(_) => code::TIMEOUT,
        };
        let meter = self.stop().await;
        Err(ExchangeError::Failed(match code {
            code::HEADERS_TOO_LARGE => SendError::Limit(head_too_large(meter.read() - read_before)),
            _ => {
                let request_sent = meter.mark() != before;
                let whole = request_sent && !meter.write_failed();
                unanswered(upload, code, request_sent, whole).into()
            }
        }))
    }

    /// Returns the number of bytes read so far.
    #[cfg(test)]
    pub(super) fn bytes_read(&self) -> u64 {
        self.meter.read()
    }

    /// Closes the connection and waits until nothing more can be written, so that its meter is final.
    ///
    /// An error is reported before the driver is done: it may still flush its buffer.
    async fn stop(mut self) -> Arc<IoCounters> {
        self.driver.abort();
        // The driver was cancelled or had ended; either is fine.
        let _ = (&mut self.driver).await;
        Arc::clone(&self.meter)
    }
}

impl Drop for Http1Connection {
    /// The driver holds the socket and the request's body: neither may outlive a cancelled request.
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Builds the error of a request without a response: `written` tells whether everything that was handed over
/// was also sent.
pub(super) fn unanswered(
    upload: &UploadState,
    code: &'static str,
    request_sent: bool,
    written: bool,
) -> NetworkFaultParts {
    let phase = if written && upload.finished() { RequestPhase::Response } else { RequestPhase::Send };
    let code = if upload.failed() { code::REQUEST_BODY } else { code };
    if !request_sent {
        upload.stayed();
    }
    NetworkFaultParts { phase, code, request_sent }
}

/// Returns the limit that the head of a response exceeds, after `read` bytes arrived: hyper does not report
/// which one.
///
/// hyper rejects a head when it holds [`HEADER_BYTES`] without an end. So many bytes are too many, whichever
/// fields they are.
fn head_too_large(read: u64) -> LimitHit {
    let most = HEADER_BYTES as u64;
    match read >= most {
        true => LimitHit::new(LimitKind::ResponseHeaders, most, read.max(most + 1)),
        false => LimitHit::at_least_one_over(LimitKind::ResponseFields, RESPONSE_FIELDS),
    }
}
