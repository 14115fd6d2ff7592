//! A guest's stdout and stderr: the last bytes are kept for the operator, earlier ones are dropped.
//!
//! A chatty guest is not a failed guest: writing never fails, and dropped bytes are marked. The last bytes
//! are kept and not the first, because a panic's message comes at the end.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use cofferdam_core::failure::sanitize_lines;
use cofferdam_core::limits;
use cofferdam_core::secret::Scanner;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

use super::hostcalls::attempt_log::AttemptLog;
use super::memory::GrowthRefusal;

/// One captured stream; clones share it.
#[derive(Debug, Clone)]
pub(super) struct StdioCapture {
    kept: Arc<Mutex<CapturedText>>,
    ledger: Arc<AttemptLog>,
}

#[derive(Debug, Default)]
struct CapturedText {
    bytes: VecDeque<u8>,
    dropped: u64,
}

impl StdioCapture {
    pub(super) fn new(ledger: &Arc<AttemptLog>) -> Self {
        Self { kept: Arc::default(), ledger: Arc::clone(ledger) }
    }

    /// Keeps the last bytes, charged at twice their length: the buffer doubles as it grows.
    fn keep(&self, bytes: &[u8]) -> Result<(), GrowthRefusal> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let skip = bytes.len().saturating_sub(limits::STDIO_BYTES);
        let fits = bytes.get(skip..).unwrap_or_default();
        let over = kept.bytes.len().saturating_add(fits.len()).saturating_sub(limits::STDIO_BYTES);
        let more = fits.len().saturating_sub(over) as u64;
        self.ledger.hold(more.saturating_mul(2))?;
        kept.bytes.drain(..over);
        kept.bytes.extend(fits);
        kept.dropped = kept.dropped.saturating_add(over as u64).saturating_add(skip as u64);
        Ok(())
    }

    /// Returns the numbers of kept and dropped bytes.
    pub(super) fn kept_and_dropped(&self) -> (u64, u64) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        (kept.bytes.len() as u64, kept.dropped)
    }

    /// Returns the last lines of the output, printable and without secrets; none if there was no output.
    pub(super) fn tail(&self, max: usize, scanner: Option<&Scanner>) -> Option<String> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.bytes.is_empty() {
            return None;
        }
        let dropped = kept.dropped;
        let text = String::from_utf8_lossy(kept.bytes.make_contiguous());
        // Before truncation: a part of a secret is not found. More of the output is kept than the tail is
        // long.
        let clean =
            scanner.map(|scanner| scanner.redact(&sanitize_lines(&text, usize::MAX), false).into_owned());
        let text = clean.as_deref().unwrap_or(&text).trim_end();
        let skip = text.chars().count().saturating_sub(max);
        let mut tail = sanitize_lines(&text.chars().skip(skip).collect::<String>(), max);
        if dropped > 0 {
            tail.push_str(&format!(" [{dropped} bytes before that were dropped]"));
        }
        Some(tail)
    }
}

impl IsTerminal for StdioCapture {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for StdioCapture {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for StdioCapture {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.keep(&bytes).map_err(|refused| StreamError::Trap(refused.into()))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(limits::STDIO_BYTES)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for StdioCapture {
    async fn ready(&mut self) {}
}

impl AsyncWrite for StdioCapture {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.keep(bytes).map(|()| bytes.len()).map_err(io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn the_last_bytes_are_kept_and_the_rest_counted() {
        let ledger = Arc::new(AttemptLog::new(1024 * 1024));
        let capture = StdioCapture::new(&ledger);
        assert_eq!(capture.tail(100, None), None);
        capture.keep(b"first").unwrap();
        assert_eq!((capture.kept_and_dropped(), capture.tail(100, None)), ((5, 0), Some("first".into())));
        capture.keep(&vec![b'x'; limits::STDIO_BYTES]).unwrap();
        assert_eq!(capture.kept_and_dropped(), (limits::STDIO_BYTES as u64, 5));
        capture.keep(&vec![b'y'; 3 * limits::STDIO_BYTES]).unwrap();
        capture.keep(b"\npanicked: the end\n").unwrap();
        let tail = capture.tail(13, None).unwrap();
        assert!(tail.starts_with("cked: the end ["), "{tail}");
        let (kept, dropped) = capture.kept_and_dropped();
        assert_eq!(kept + dropped, 5 + 4 * limits::STDIO_BYTES as u64 + 19);
        assert!(tail.contains(&dropped.to_string()), "{tail}");
        let most = 2 * limits::STDIO_BYTES as u64;
        assert_eq!(ledger.memory().peaks(), (most, most), "what is dropped is not charged");
    }
}
