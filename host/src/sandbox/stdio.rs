//! A guest's stdout and stderr: the first bytes are kept for the operator, the rest is dropped.
//!
//! A chatty guest is not a failed guest: writing never fails, and what is over the bound is marked.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::failure::safe_line;
use crate::limits;

/// One captured stream; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Capture {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    dropped: u64,
}

impl Capture {
    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = limits::STDIO_BYTES.saturating_sub(kept.bytes.len()).min(bytes.len());
        let (fits, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        kept.bytes.extend_from_slice(fits);
        kept.dropped = kept.dropped.saturating_add(rest.len() as u64);
    }

    /// The last lines of what was written, as one safe line; none if nothing was.
    pub(super) fn tail(&self, max: usize) -> Option<String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.bytes.is_empty() {
            return None;
        }
        let text = String::from_utf8_lossy(&kept.bytes);
        let text = text.trim_end();
        let skip = text.chars().count().saturating_sub(max);
        let mut tail = safe_line(&text.chars().skip(skip).collect::<String>(), max);
        if kept.dropped > 0 {
            tail.push_str(&format!(" [{} bytes more were dropped]", kept.dropped));
        }
        Some(tail)
    }
}

impl IsTerminal for Capture {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Capture {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Capture {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.keep(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(limits::STDIO_BYTES)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Capture {
    async fn ready(&mut self) {}
}

impl AsyncWrite for Capture {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.keep(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
