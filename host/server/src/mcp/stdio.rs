//! The server over a pair of streams, one message a line, with its limits and its shutdown.
//!
//! Reading continues if a client has more running requests than the limit: the excess ones are answered at
//! once, so that a cancellation of the others arrives. It stops if a client leaves thousands of such answers
//! unread. The end of input starts the shutdown: running calls may end within the grace period, and are
//! cancelled then. If output cannot be written any more, running calls are cancelled at once.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions as _, JsonRpcRequest, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::serve_server_with_ct;
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, BufReader};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::error_response::ErrorResponse;
use super::jsonrpc::{self, MessageKind, RpcError, RpcMessage};
use super::output::{Output, OutputLine};
use super::server::RequestPermit;
use super::server::{McpServer, McpSettings, McpShared};
use crate::server::{BODY_BYTES, BudgetClient, CallArguments};

/// The most requests at once, including those whose answers are unread.
const UNDER_WAY: u32 = 1_024;

/// The weight of a request for tools among them: its answer may be a page of a mebibyte.
const PAGE: u32 = 16;

/// The cancelled requests whose ids stay reserved: late output of one would pass for that of a new request.
const CANCELLED: usize = 256;

/// The interval at which the SDK's tasks for answers end, all of them together. The executor runs three tasks that woke
/// each other on one thread, and wakes another thread for the fourth. The task of an answer is the third one after a
/// request was read, and its end would wake a fourth.
const ANSWER_ROUND: Duration = Duration::from_millis(20);

/// The time for cancelled calls, and the last answers, to finish.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

impl McpSettings {
    /// Serves one client over `input` and `output` until its input ends, or the server is told to end.
    pub async fn serve_streams<R, W>(self, input: R, output: W)
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let shared = Arc::new(McpShared::new(self));
        let transport = StdioTransport::new(Arc::clone(&shared), input, output);
        let server = McpServer::new(Arc::clone(&shared));
        match serve_server_with_ct(server, transport, CancellationToken::new()).await {
            Ok(service) => drop(service.waiting().await),
            Err(error) => tracing::debug!(target: "cofferdam::mcp", %error, "no session"),
        }
        shared.settings.shutdown.cancel();
        drop(timeout(DRAIN_TIMEOUT, shared.running.wait_idle()).await);
    }
}

/// The running requests, each with its permit.
type InFlightPermits = Arc<Mutex<HashMap<RequestId, RequestPermit>>>;

/// The streams as the SDK uses them.
struct StdioTransport<R, W> {
    input: LineReader<R>,
    /// The time at which the client's input ended.
    ended: Option<Instant>,
    /// True if any request arrived: before it the SDK accepts nothing else.
    initialized: bool,
    /// The time of the first answer, for which the SDK waits itself.
    answered: Option<Instant>,
    room: Arc<Semaphore>,
    under_way: InFlightPermits,
    /// The most recently cancelled requests.
    cancelled: VecDeque<RequestId>,
    output: Arc<Output<W>>,
    _writing: AbortOnDropHandle<()>,
    shared: Arc<McpShared>,
}

impl<R, W> StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    fn new(shared: Arc<McpShared>, input: R, output: W) -> Self {
        let output = Arc::new(Output::new(output, shared.settings.shutdown.clone()));
        let writing = Arc::clone(&output);
        let writing = tokio::spawn(async move { writing.write_waiting().await });
        Self {
            input: LineReader::new(input),
            ended: None,
            initialized: false,
            answered: None,
            room: Arc::new(Semaphore::new(UNDER_WAY as usize)),
            under_way: InFlightPermits::default(),
            cancelled: VecDeque::new(),
            output,
            _writing: AbortOnDropHandle::new(writing),
            shared,
        }
    }

    /// Returns the message in the line, if it is one for the SDK; otherwise its answer, if it gets one.
    fn read(&mut self, line: &[u8]) -> Result<Option<ClientJsonRpcMessage>, ErrorResponse> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(None);
        }
        let read = jsonrpc::read(line)?;
        let message = serde_json::from_slice::<ClientJsonRpcMessage>(&read.envelope);
        let mut message = message.map_err(|_| match (&read.kind, &read.id) {
            (MessageKind::Request { .. }, id) => RpcError::params(id.clone().unwrap_or_default()),
            _ => RpcError::request("The message is none of this protocol."),
        })?;
        match &mut message {
            ClientJsonRpcMessage::Request(request) => {
                self.initialized = true;
                self.admit(request, &read)?;
            }
            _ if !self.initialized => return Ok(None),
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.cancel(id);
                }
            }
            _ => {}
        }
        Ok(Some(message))
    }

    /// Cancels a request, which then gets no answer.
    fn cancel(&mut self, id: &RequestId) {
        if self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(id).is_some() {
            self.cancelled.truncate(CANCELLED - 1);
            self.cancelled.push_front(id.clone());
        }
    }

    /// Adds the request to the running ones, if there is room for it.
    fn admit(
        &self,
        request: &mut JsonRpcRequest<ClientRequest>,
        read: &RpcMessage<'_>,
    ) -> Result<(), ErrorResponse> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way.contains_key(&request.id) {
            // Its answer would be taken for that of the other.
            return Err(RpcError::request("A request with this id is under way.").into());
        }
        if self.cancelled.contains(&request.id) {
            return Err(RpcError::request("A request with this id was cancelled.").into());
        }
        let counts = if matches!(request.request, ClientRequest::ListToolsRequest(_)) { PAGE } else { 1 };
        let cost = read.envelope_cost() + read.arguments.map_or(0, str::len);
        let place = Arc::clone(&self.room).try_acquire_many_owned(counts);
        let charge = self.shared.settings.budget.charge(BudgetClient::Streams, cost);
        let (Ok(place), Some(charge)) = (place, charge) else {
            return Err(ErrorResponse::busy(request));
        };
        let charge = Arc::new(charge);
        if let Some(arguments) = read.arguments {
            let arguments = CallArguments::new(arguments.to_owned(), Some(Arc::clone(&charge)));
            request.request.extensions_mut().insert(Arc::new(arguments));
        }
        let room = RequestPermit::new(place, charge);
        under_way.insert(request.id.clone(), room.clone());
        // Cancelling does not free the slot; it is released when the handler has stopped.
        request.request.extensions_mut().insert(room);
        Ok(())
    }

    /// Waits for the grace period until all running requests are done and their answers are written; then has
    /// them cancelled, and waits until that was recorded. Cancel-safe: the time counts from the end of the
    /// client's input.
    async fn drain(&mut self, ended: Instant) {
        let shared = Arc::clone(&self.shared);
        shared.settings.shutdown.begin();
        let grace = ended + shared.settings.grace;
        if timeout_at(grace, self.room.acquire_many(UNDER_WAY)).await.is_err() {
            shared.settings.shutdown.cancel();
            drop(timeout_at(grace + DRAIN_TIMEOUT, self.room.acquire_many(UNDER_WAY)).await);
        }
    }
}

impl<R, W> Transport<RoleServer> for StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let id = match &message {
            ServerJsonRpcMessage::Response(response) => Some(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        let ends = id.and_then(|_| self.answered.map(next_round));
        if id.is_some() {
            self.answered.get_or_insert_with(Instant::now);
        }
        let permit =
            id.and_then(|id| self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(id));
        let line = serde_json::to_vec(&message).map(|line| OutputLine::Message(line, permit));
        let output = Arc::clone(&self.output);
        // Written here and now: the SDK runs the future as a task of its own.
        let sent = match output.try_slot() {
            Some(slot) => Ok(line.map_err(io::Error::other).and_then(|line| output.write(line, slot))),
            None => Err(line),
        };
        async move {
            match sent {
                Ok(written) => {
                    if let Some(ends) = ends {
                        sleep_until(ends).await;
                    }
                    written
                }
                Err(line) => {
                    let slot = output.slot().await.ok_or(io::ErrorKind::BrokenPipe)?;
                    output.write(line.map_err(io::Error::other)?, slot)
                }
            }
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        let shutdown = self.shared.settings.shutdown.clone();
        loop {
            if let Some(ended) = self.ended {
                self.drain(ended).await;
                return None;
            }
            let read = tokio::select! {
                biased;
                () = shutdown.begun() => None,
                read = async {
                    // Reading stops if the client leaves them unread.
                    let slot = self.output.refusal_slot().await?;
                    Some((slot, self.input.next_line().await?))
                } => read,
            };
            let Some((slot, line)) = read else {
                self.ended = Some(Instant::now());
                continue;
            };
            match line.map_err(ErrorResponse::from).and_then(|line| self.read(&line)) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(refusal) => drop(self.output.write(OutputLine::Refusal(refusal), slot)),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(timeout(DRAIN_TIMEOUT, self.output.wait_idle()).await);
        Ok(())
    }
}

/// Returns the time at which the tasks of answers end next.
fn next_round(from: Instant) -> Instant {
    let rounds = from.elapsed().as_millis() / ANSWER_ROUND.as_millis() + 1;
    from + ANSWER_ROUND * u32::try_from(rounds).unwrap_or(u32::MAX)
}

/// A stream of lines.
pub(super) struct LineReader<R> {
    stream: BufReader<R>,
    /// The bytes of the current line so far. Reading is often cancelled, and continues here.
    line: Vec<u8>,
    /// The rest of a line that is too long.
    skipping: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(stream: R) -> Self {
        Self { stream: BufReader::new(stream), line: Vec::new(), skipping: false }
    }

    /// Returns the next line; none at the end. Cancel-safe: a later call continues from the same position.
    pub(super) async fn next_line(&mut self) -> Option<Result<Vec<u8>, RpcError>> {
        loop {
            let read = match self.stream.fill_buf().await {
                Ok([]) => return None,
                Ok(read) => read,
                Err(error) => {
                    tracing::debug!(target: "cofferdam::mcp", %error, "the input broke");
                    return None;
                }
            };
            let end = read.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(read.len(), |end| end + 1);
            let too_long = !self.skipping && self.line.len() + taken > BODY_BYTES;
            if !self.skipping && !too_long {
                self.line.extend_from_slice(read.get(..taken).unwrap_or_default());
            }
            self.stream.consume(taken);
            if too_long {
                self.line = Vec::new();
            }
            let was_skipping = self.skipping;
            self.skipping = (was_skipping || too_long) && end.is_none();
            match end {
                _ if too_long => return Some(Err(RpcError::request("The message is too long."))),
                Some(_) if !was_skipping => return Some(Ok(std::mem::take(&mut self.line))),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::{BODY_BYTES, LineReader};

    #[tokio::test]
    async fn an_overlong_line_is_skipped_to_its_end() {
        let long = vec![b'x'; 2 * BODY_BYTES];
        let stream = [b"one\n".as_slice(), &long, b"\n\ntwo\n", &long, b"\nthree\nrest"].concat();
        let mut input = LineReader::new(stream.as_slice());
        let mut lines = Vec::new();
        while let Some(line) = input.next_line().await {
            lines.push(line.map(|line| String::from_utf8(line).unwrap()).ok());
        }
        let line = |text: &str| Some(text.to_owned());
        assert_eq!(lines, [line("one\n"), None, line("\n"), line("two\n"), None, line("three\n")]);
    }
}
