//! The server over a pair of streams, one message a line: what is bounded, what is answered, how it ends.
//!
//! Reading goes on where a client has more requests under way than are taken: those beyond are answered at once, so
//! that what cancels the others arrives. It stops where a client lets thousands of such answers lie unread. One task
//! writes, so that an answer is on its way whole. The end of input is the client's goodbye: what runs may end, for the
//! time of grace, and is cancelled then. Output that nobody takes any more ends what runs at once.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions as _, JsonRpcRequest, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::serve_server_with_ct;
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::input::Input;
use super::jsonrpc::{self, Kind, Message, Refused};
use super::refusal::Refusal;
use super::room::Room;
use super::server::{McpServer, McpSettings, Shared};
use crate::server::{Arguments, Client};

/// Requests under way at once, those among them whose answers wait to be read.
const UNDER_WAY: u32 = 1_024;

/// As how many of them a request for tools counts, whose answer may be a page of a mebibyte.
const PAGE: u32 = 16;

/// Messages that wait to be written.
const UNWRITTEN: usize = 64;

/// Answers to what is not served that wait to be written. Each is an id and a name: some hundred bytes.
const REFUSALS: usize = 16_384;

/// Requests that were cancelled and whose ids are not taken again: what is left of one would pass for the next one's.
const CANCELLED: usize = 256;

/// How long cancelled calls, and the last answers, have.
const LAST_WORDS: Duration = Duration::from_secs(5);

impl McpSettings {
    /// Serves one client over `input` and `output` until it says no more, or the server is told to end.
    pub async fn serve_streams<R, W>(self, input: R, output: W)
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let shared = Arc::new(Shared::new(self));
        let transport = Lines::new(Arc::clone(&shared), input, output);
        let server = McpServer::new(Arc::clone(&shared));
        match serve_server_with_ct(server, transport, CancellationToken::new()).await {
            Ok(service) => drop(service.waiting().await),
            Err(error) => tracing::debug!(target: "cofferdam::mcp", %error, "no session"),
        }
        shared.settings.shutdown.cancel();
        drop(timeout(LAST_WORDS, shared.running.none()).await);
    }
}

/// A message on its way out, and the room that it held.
struct Line(Bytes, Option<Room>);

/// The requests under way, each with its room.
type UnderWay = Arc<Mutex<HashMap<RequestId, Room>>>;

/// The streams as the SDK uses them.
struct Lines<R> {
    input: Input<R>,
    /// When the client said no more.
    ended: Option<Instant>,
    /// Whether any request came: before it the SDK takes nothing else.
    greeted: bool,
    room: Arc<Semaphore>,
    under_way: UnderWay,
    /// The last of those that were cancelled.
    cancelled: VecDeque<RequestId>,
    output: Option<mpsc::Sender<Line>>,
    refusals: Option<mpsc::Sender<Refusal>>,
    writing: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl<R: AsyncRead + Send + Unpin> Lines<R> {
    fn new(shared: Arc<Shared>, input: R, output: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        let (sender, lines) = mpsc::channel(UNWRITTEN);
        let (refusals, refused) = mpsc::channel(REFUSALS);
        let writing = tokio::spawn(write(output, lines, refused, Arc::clone(&shared)));
        Self {
            input: Input::new(input),
            ended: None,
            greeted: false,
            room: Arc::new(Semaphore::new(UNDER_WAY as usize)),
            under_way: UnderWay::default(),
            cancelled: VecDeque::new(),
            output: Some(sender),
            refusals: Some(refusals),
            writing: Some(writing),
            shared,
        }
    }

    /// The message that the line is, if it is one for the SDK; otherwise its answer, if it gets one.
    fn read(&mut self, line: &[u8]) -> Result<Option<ClientJsonRpcMessage>, Refusal> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(None);
        }
        let read = jsonrpc::read(line)?;
        let message = serde_json::from_slice::<ClientJsonRpcMessage>(&read.envelope);
        let mut message = message.map_err(|_| match (&read.kind, &read.id) {
            (Kind::Request { .. }, id) => Refused::params(id.clone().unwrap_or_default()),
            _ => Refused::request("The message is none of this protocol."),
        })?;
        match &mut message {
            ClientJsonRpcMessage::Request(request) => {
                self.greeted = true;
                self.admit(request, &read)?;
            }
            _ if !self.greeted => return Ok(None),
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

    /// A request that was cancelled gets no answer.
    fn cancel(&mut self, id: &RequestId) {
        if self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(id).is_some() {
            self.cancelled.truncate(CANCELLED - 1);
            self.cancelled.push_front(id.clone());
        }
    }

    /// Takes the request among those under way, if there is room for it.
    fn admit(&self, request: &mut JsonRpcRequest<ClientRequest>, read: &Message<'_>) -> Result<(), Refusal> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way.contains_key(&request.id) {
            // Its own answer would be taken for that of the other.
            return Err(Refused::request("A request with this id is under way.").into());
        }
        if self.cancelled.contains(&request.id) {
            return Err(Refused::request("A request with this id was cancelled.").into());
        }
        let counts = if matches!(request.request, ClientRequest::ListToolsRequest(_)) { PAGE } else { 1 };
        let cost = read.envelope_cost() + read.arguments.map_or(0, str::len);
        let place = Arc::clone(&self.room).try_acquire_many_owned(counts);
        let charge = self.shared.settings.budget.charge(Client::Streams, cost);
        let (Ok(place), Some(charge)) = (place, charge) else {
            return Err(Refusal::busy(request));
        };
        let charge = Arc::new(charge);
        if let Some(arguments) = read.arguments {
            let arguments = Arguments::new(arguments.to_owned(), Some(Arc::clone(&charge)));
            request.request.extensions_mut().insert(Arc::new(arguments));
        }
        let room = Room::new(place, charge);
        under_way.insert(request.id.clone(), room.clone());
        // Who cancels has the room back when nobody is at work for the request any more, and no sooner.
        request.request.extensions_mut().insert(room);
        Ok(())
    }

    /// Waits until all that is under way is done and its answers are written, for the time of grace; has it cancelled
    /// then, and waits until that was said. Can be broken off, too: the time runs from when the client said no more.
    async fn goodbye(&mut self, ended: Instant) {
        let shared = Arc::clone(&self.shared);
        shared.settings.shutdown.begin();
        let grace = ended + shared.settings.grace;
        if timeout_at(grace, self.room.acquire_many(UNDER_WAY)).await.is_err() {
            shared.settings.shutdown.cancel();
            drop(timeout_at(grace + LAST_WORDS, self.room.acquire_many(UNDER_WAY)).await);
        }
    }
}

impl<R: AsyncRead + Send + Unpin + 'static> Transport<RoleServer> for Lines<R> {
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
        let room = id.and_then(|id| self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(id));
        let output = self.output.clone();
        async move {
            let output = output.ok_or(io::ErrorKind::NotConnected)?;
            let line = serde_json::to_vec(&message).map_err(io::Error::other)?;
            output.send(Line(line.into(), room)).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        let shutdown = self.shared.settings.shutdown.clone();
        let refusals = self.refusals.clone()?;
        loop {
            if let Some(ended) = self.ended {
                self.goodbye(ended).await;
                return None;
            }
            let read = tokio::select! {
                biased;
                () = shutdown.begun() => None,
                read = async {
                    // Who lets them lie unread is not read from, either.
                    let refuse = refusals.reserve().await.ok()?;
                    Some((refuse, self.input.next_line().await?))
                } => read,
            };
            let Some((refuse, line)) = read else {
                self.ended = Some(Instant::now());
                continue;
            };
            match line.map_err(Refusal::from).and_then(|line| self.read(&line)) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(refusal) => refuse.send(refusal),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.output = None;
        self.refusals = None;
        if let Some(writing) = self.writing.take() {
            drop(timeout(LAST_WORDS, writing).await);
        }
        Ok(())
    }
}

/// Writes line after line; those that wait already go out together.
async fn write(
    output: impl AsyncWrite + Send + Unpin,
    mut lines: mpsc::Receiver<Line>,
    mut refusals: mpsc::Receiver<Refusal>,
    shared: Arc<Shared>,
) {
    let mut output = tokio::io::BufWriter::new(output);
    loop {
        let Line(line, room) = tokio::select! {
            Some(line) = lines.recv() => line,
            Some(refusal) = refusals.recv() => Line(refusal.answer().into(), None),
            else => break,
        };
        let written = async {
            output.write_all(&line).await?;
            output.write_all(b"\n").await?;
            if lines.is_empty() && refusals.is_empty() { output.flush().await } else { Ok(()) }
        };
        if let Err(error) = written.await {
            tracing::info!(target: "cofferdam::mcp", %error, "nobody takes the answers any more");
            shared.settings.shutdown.cancel();
            return;
        }
        drop(room);
    }
    drop(output.flush().await);
}
