//! One HTTP/1.1 connection with a single owner, whose bytes are counted. Dropping it closes it at once.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use cofferdam_core::failure::{LimitHit, LimitKind, RequestPhase};
use cofferdam_core::limits::{HEADER_BYTES, RESPONSE_FIELDS};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::fault::{NetworkFaultParts, SendError, classify, code};
use super::request::{RequestBody, UploadState};

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
    NotSent(Box<Request<RequestBody>>, &'static str),
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
        upload.begin_departure().map_err(ExchangeError::Failed)?;
        let code = match timeout(within, self.sender.try_send_request(request)).await {
            Ok(Ok(response)) => return Ok((response, self)),
            Ok(Err(mut error)) => match error.take_message() {
                Some(unsent) => {
                    upload.undo_departure();
                    return Err(ExchangeError::NotSent(Box::new(unsent), classify(error.error())));
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
                exchange_fault(upload, code, request_sent, whole).into()
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
fn exchange_fault(
    upload: &UploadState,
    code: &'static str,
    request_sent: bool,
    written: bool,
) -> NetworkFaultParts {
    let phase = if written && upload.finished() { RequestPhase::Response } else { RequestPhase::Send };
    let code = if upload.failed() { code::REQUEST_BODY } else { code };
    if !request_sent {
        upload.undo_departure();
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

/// The bytes written and read on one connection.
///
/// It makes `request_sent` exact: HTTP libraries report that writing failed, but not whether anything was
/// written before.
#[derive(Debug, Default)]
struct IoCounters {
    written: AtomicU64,
    read: AtomicU64,
    failed: AtomicBool,
}

impl IoCounters {
    /// Returns a number that grows with every write that may have sent something.
    fn mark(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Returns the number of bytes read so far.
    fn read(&self) -> u64 {
        self.read.load(Ordering::Acquire)
    }

    /// Returns whether a write failed.
    fn write_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn note(&self, outcome: &Poll<io::Result<usize>>, error_may_send: bool) {
        match outcome {
            Poll::Ready(Ok(bytes)) => {
                self.written.fetch_add(*bytes as u64, Ordering::AcqRel);
            }
            Poll::Ready(Err(_)) => {
                self.written.fetch_add(u64::from(error_may_send), Ordering::AcqRel);
                self.failed.store(true, Ordering::Release);
            }
            Poll::Pending => {}
        }
    }
}

/// A byte stream that is counted.
#[derive(Debug)]
pub(super) struct CountingIo<S> {
    stream: S,
    meter: Arc<IoCounters>,
    error_may_send: bool,
}

impl<S> CountingIo<S> {
    /// Wraps a stream that sends nothing in a failed write: a socket.
    pub(super) fn plain(stream: S) -> Self {
        Self { stream, meter: Arc::default(), error_may_send: false }
    }

    /// Wraps a stream that may have sent a part of a failed write: TLS, which writes several records.
    pub(super) fn buffering(stream: S) -> Self {
        Self { stream, meter: Arc::default(), error_may_send: true }
    }

    fn meter(&self) -> Arc<IoCounters> {
        Arc::clone(&self.meter)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountingIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buf);
        let bytes = buf.filled().len().saturating_sub(before);
        self.meter.read.fetch_add(bytes as u64, Ordering::AcqRel);
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountingIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.meter.note(&outcome, self.error_may_send);
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.meter.note(&outcome, self.error_may_send);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(outcome, Poll::Ready(Err(_))) {
            self.meter.failed.store(true, Ordering::Release);
        }
        outcome
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::CountingIo;

    #[tokio::test]
    async fn a_failed_first_write_may_have_sent_bytes_over_tls() {
        for (mut stream, left) in {
            let dead = || tokio::io::duplex(8).0;
            [(CountingIo::plain(dead()), 0), (CountingIo::buffering(dead()), 1)]
        } {
            let meter = stream.meter();
            assert!(stream.write_all(b"request").await.is_err());
            assert_eq!((meter.mark(), meter.write_failed()), (left, true));
        }
        let (near, mut far) = tokio::io::duplex(8);
        let mut stream = CountingIo::plain(near);
        let meter = stream.meter();
        stream.write_all(b"request").await.unwrap();
        assert_eq!((meter.mark(), meter.write_failed()), (7, false));
        let mut received = [0; 7];
        far.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"request");
    }
}
