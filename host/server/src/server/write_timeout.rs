//! A stream with a limit on the reader's delay: an answer that the client does not read ends its connection.

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream that fails once nothing could be written for longer than `patience`.
pub(super) struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    /// The timer of the pending write.
    waiting: Option<Pin<Box<Sleep>>>,
    stuck: Arc<AtomicBool>,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, timeout: patience, waiting: None, stuck: Arc::default() }
    }

    /// Returns a flag that is true if the last write timed out.
    pub(super) fn stuck(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stuck)
    }

    /// Returns the result of a write attempt, and stops or checks the timer.
    fn judged<T>(&mut self, tried: Poll<Result<T>>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.stuck.store(tried.is_pending(), Ordering::Relaxed);
        if tried.is_ready() {
            self.waiting = None;
            return tried;
        }
        let patience = self.timeout;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(waiting.as_mut().poll(context));
        // Every later attempt fails at once.
        waiting.as_mut().reset(Instant::now());
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "nobody reads the answer")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let tried = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.judged(tried, context)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let tried = Pin::new(&mut this.stream).poll_flush(context);
        this.judged(tried, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let tried = Pin::new(&mut this.stream).poll_shutdown(context);
        this.judged(tried, context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;

    use super::WriteTimeout;

    #[tokio::test]
    async fn what_nobody_reads_is_broken_after_a_while() {
        let (near, far) = tokio::io::duplex(16);
        let mut near = WriteTimeout::new(near, Duration::from_millis(50));
        let error = near.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        drop(far);
    }
}
