//! The output of a server over a pair of streams, one message a line.
//!
//! A line is written at once, on the thread that has it: waking another thread takes longer than the write. If
//! the client does not read, lines wait for the one task that writes them then. They are never interleaved.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWrite;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::error_response::ErrorResponse;
use super::server::RequestPermit;
use crate::server::Shutdown;

/// The most messages that wait to be written.
const MESSAGES: u32 = 64;

/// The most waiting answers to rejected requests. Each is an id and a name: some hundred bytes.
const REFUSALS: u32 = 16_384;

/// An outgoing line.
pub(super) enum OutputLine {
    /// A message, and what its request holds until it is written.
    Message(Vec<u8>, Option<RequestPermit>),
    /// The answer to a rejected request, which becomes text when it is written.
    Refusal(ErrorResponse),
}

/// A permit for a line that waits.
pub(super) struct OutputSlot(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

/// The output stream, and the lines that wait for it.
pub(super) struct Output<W> {
    state: Mutex<OutputState<W>>,
    messages: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
    /// Notifies the task that the stream takes no more at present.
    stalled: Notify,
    /// Cancelled if the stream cannot be written any more.
    shutdown: Shutdown,
}

struct OutputState<W> {
    stream: W,
    waiting: VecDeque<(OutputLine, OutputSlot)>,
    current: Option<CurrentLine>,
    /// True while the task waits for the stream. No other thread may poll it then: only the last waker is woken.
    is_stalled: bool,
    is_broken: bool,
}

/// The line that is being written.
struct CurrentLine {
    rest: Bytes,
    _permit: Option<RequestPermit>,
    _slot: OutputSlot,
}

impl CurrentLine {
    fn new(line: OutputLine, slot: OutputSlot) -> Self {
        let (mut line, permit) = match line {
            OutputLine::Message(line, permit) => (line, permit),
            OutputLine::Refusal(refusal) => (refusal.answer(), None),
        };
        line.push(b'\n');
        Self { rest: line.into(), _permit: permit, _slot: slot }
    }
}

impl<W: AsyncWrite + Unpin> Output<W> {
    pub(super) fn new(stream: W, shutdown: Shutdown) -> Self {
        let state = OutputState {
            stream,
            waiting: VecDeque::new(),
            current: None,
            is_stalled: false,
            is_broken: false,
        };
        Self {
            state: Mutex::new(state),
            messages: Arc::new(Semaphore::new(MESSAGES as usize)),
            refusals: Arc::new(Semaphore::new(REFUSALS as usize)),
            stalled: Notify::new(),
            shutdown,
        }
    }

    /// Returns a slot for a message, if one is free now.
    pub(super) fn try_slot(&self) -> Option<OutputSlot> {
        Arc::clone(&self.messages).try_acquire_owned().ok().map(OutputSlot)
    }

    /// Waits for a slot for a message.
    pub(super) async fn slot(&self) -> Option<OutputSlot> {
        Arc::clone(&self.messages).acquire_owned().await.ok().map(OutputSlot)
    }

    /// Waits for a slot for the answer to a rejected request.
    pub(super) async fn refusal_slot(&self) -> Option<OutputSlot> {
        Arc::clone(&self.refusals).acquire_owned().await.ok().map(OutputSlot)
    }

    /// Writes the line if the stream takes it now; otherwise it waits.
    pub(super) fn write(&self, line: OutputLine, slot: OutputSlot) -> io::Result<()> {
        let mut state = self.state();
        if state.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.waiting.push_back((line, slot));
        if state.is_stalled {
            return Ok(());
        }
        match state.poll_write(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(written) => written.inspect_err(|error| self.shut_down(error)),
            Poll::Pending => {
                state.is_stalled = true;
                self.stalled.notify_one();
                Ok(())
            }
        }
    }

    /// Writes the lines that the stream did not take at once; runs until it is dropped, or the stream breaks.
    pub(super) async fn write_waiting(&self) {
        loop {
            self.stalled.notified().await;
            let written = poll_fn(|context| {
                let mut state = self.state();
                let written = ready!(state.poll_write(context));
                state.is_stalled = false;
                Poll::Ready(written)
            });
            if let Err(error) = written.await {
                return self.shut_down(&error);
            }
        }
    }

    /// Waits until all lines are written, or cannot be.
    pub(super) async fn wait_idle(&self) {
        drop(tokio::join!(self.messages.acquire_many(MESSAGES), self.refusals.acquire_many(REFUSALS)));
    }

    fn shut_down(&self, error: &io::Error) {
        tracing::info!(target: "cofferdam::mcp", %error, "nobody takes the answers any more");
        self.shutdown.cancel();
    }

    fn state(&self) -> MutexGuard<'_, OutputState<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: AsyncWrite + Unpin> OutputState<W> {
    /// Writes the waiting lines. If the stream breaks, they are dropped.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = ready!(self.poll_lines(context));
        if written.is_err() {
            self.is_broken = true;
            self.current = None;
            self.waiting.clear();
        }
        Poll::Ready(written)
    }

    fn poll_lines(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let current = match &mut self.current {
                Some(current) => current,
                current @ None => match self.waiting.pop_front() {
                    Some((line, slot)) => current.insert(CurrentLine::new(line, slot)),
                    None => return Poll::Ready(Ok(())),
                },
            };
            while !current.rest.is_empty() {
                let written = ready!(Pin::new(&mut self.stream).poll_write(context, &current.rest))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                current.rest.advance(written);
            }
            if self.waiting.is_empty() {
                ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            }
            self.current = None;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, duplex};

    use super::{Output, OutputLine};
    use crate::server::Shutdown;

    fn line(text: String) -> OutputLine {
        OutputLine::Message(text.into_bytes(), None)
    }

    #[tokio::test]
    async fn lines_are_written_at_once_or_wait_in_order() {
        let (stream, mut client) = duplex(64);
        let output = Arc::new(Output::new(stream, Shutdown::new()));
        // Without the task that writes, because the stream has room.
        output.write(line("first".to_owned()), output.try_slot().unwrap()).unwrap();
        let mut read = [0; 6];
        client.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"first\n");

        let writing = Arc::clone(&output);
        let writing = tokio::spawn(async move { writing.write_waiting().await });
        let mut expected = String::new();
        for number in 0..40 {
            let text = format!("line {number} is longer than nothing");
            expected.push_str(&text);
            expected.push('\n');
            output.write(line(text), output.try_slot().unwrap()).unwrap();
        }
        let mut read = vec![0; expected.len()];
        client.read_exact(&mut read).await.unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), expected);
        output.wait_idle().await;
        writing.abort();
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_gets_no_more_slots() {
        let (stream, client) = duplex(8);
        let shutdown = Shutdown::new();
        let output = Arc::new(Output::new(stream, shutdown.clone()));
        let writing = Arc::clone(&output);
        let writing = tokio::spawn(async move { writing.write_waiting().await });
        while let Some(slot) = output.try_slot() {
            output.write(line("a line that stays".to_owned()), slot).unwrap();
        }
        assert!(!shutdown.has_begun());
        drop(client);
        writing.await.unwrap();
        shutdown.cancelled().await;
        output.wait_idle().await;
        let slot = output.slot().await.unwrap();
        output.write(line("one more".to_owned()), slot).unwrap_err();
    }
}
