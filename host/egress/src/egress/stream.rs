//! The byte stream of a connection, plain or over TLS, which counts the bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes written and read on one connection.
///
/// It makes `request_sent` exact: HTTP libraries report that writing failed, but not whether anything was
/// written before.
#[derive(Debug, Default)]
pub(super) struct IoCounters {
    written: AtomicU64,
    read: AtomicU64,
    failed: AtomicBool,
}

impl IoCounters {
    /// Returns a number that grows with every write that may have sent something.
    pub(super) fn mark(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Returns the number of bytes read so far.
    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::Acquire)
    }

    /// Returns whether a write failed.
    pub(super) fn write_failed(&self) -> bool {
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

    pub(super) fn meter(&self) -> Arc<IoCounters> {
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
    async fn row_106_a_write_that_failed_at_once_left_nothing_on_a_socket_and_maybe_something_over_tls() {
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
