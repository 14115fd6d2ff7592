//! The server over a pair of streams, one message a line: what is bounded, what is answered, how it ends.
//!
//! Reading stops where a client has more requests under way than are taken, or reads no answers; it goes on when it
//! does. One task writes, so that an answer is on its way whole. The end of input is the client's goodbye: what runs
//! may end, for the time of grace, and is cancelled then. Output that nobody takes any more ends what runs at once.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, RequestId, ServerJsonRpcMessage};
use rmcp::service::serve_server_with_ct;
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::jsonrpc::{self, Kind, Refused};
use super::server::{McpServer, McpSettings, Shared};
use crate::server::BODY_BYTES;

/// Requests under way at once, those among them whose answers wait to be read.
const UNDER_WAY: usize = 1_024;

/// Messages that wait to be written.
const UNWRITTEN: usize = 64;

/// How long cancelled calls, and the last answers, have.
const LAST_WORDS: Duration = Duration::from_secs(5);

impl McpSettings {
    /// Serves one client over `input` and `output` until it says no more, or the server is told to end.
    pub async fn serve_streams<R, W>(self, input: R, output: W)
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let shared = Arc::new(Shared { settings: self, running: Default::default() });
        let transport = Lines::new(Arc::clone(&shared), input, output);
        let server = McpServer::new(Arc::clone(&shared), None);
        match serve_server_with_ct(server, transport, CancellationToken::new()).await {
            Ok(service) => drop(service.waiting().await),
            Err(error) => tracing::debug!(target: "cofferdam::mcp", %error, "no session"),
        }
        shared.settings.shutdown.cancel();
        drop(timeout(LAST_WORDS, shared.running.idle()).await);
    }
}

/// A message on its way out, and the room that it held.
struct Line(Bytes, Option<OwnedSemaphorePermit>);

/// The requests under way, each with its room.
type UnderWay = Arc<Mutex<HashMap<RequestId, OwnedSemaphorePermit>>>;

/// The streams as the SDK uses them.
struct Lines<R> {
    input: BufReader<R>,
    /// What was read of the present line. Reading is often broken off, and goes on here.
    line: Vec<u8>,
    /// The rest of a line that is too long.
    skipping: bool,
    /// When the client said no more.
    ended: Option<Instant>,
    /// An answer that stands before all that is read next.
    answer: Option<Bytes>,
    /// Whether any request came: before it the SDK takes nothing else.
    greeted: bool,
    room: Arc<Semaphore>,
    under_way: UnderWay,
    output: Option<mpsc::Sender<Line>>,
    writing: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl<R: AsyncRead + Send + Unpin> Lines<R> {
    fn new(shared: Arc<Shared>, input: R, output: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        let (sender, lines) = mpsc::channel(UNWRITTEN);
        let writing = tokio::spawn(write(output, lines, Arc::clone(&shared)));
        Self {
            input: BufReader::new(input),
            line: Vec::new(),
            skipping: false,
            ended: None,
            answer: None,
            greeted: false,
            room: Arc::new(Semaphore::new(UNDER_WAY)),
            under_way: UnderWay::default(),
            output: Some(sender),
            writing: Some(writing),
            shared,
        }
    }

    /// The next line, whole; none at the end. Can be broken off anywhere, and goes on where it was.
    async fn next_line(&mut self) -> Option<Result<(), Refused>> {
        loop {
            let read = match self.input.fill_buf().await {
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
            self.input.consume(taken);
            if too_long {
                self.line = Vec::new();
            }
            let was_skipping = self.skipping;
            self.skipping = (was_skipping || too_long) && end.is_none();
            match end {
                _ if too_long => return Some(Err(Refused::request("The message is too long."))),
                Some(_) if !was_skipping => return Some(Ok(())),
                _ => {}
            }
        }
    }

    /// The message that the line is, if it is one for the SDK; otherwise its answer, if it gets one.
    fn read(&mut self) -> Result<Option<ClientJsonRpcMessage>, Refused> {
        let line = self.line.trim_ascii();
        if line.is_empty() {
            return Ok(None);
        }
        let (kind, id) = jsonrpc::read(line)?;
        let message = serde_json::from_slice::<ClientJsonRpcMessage>(line).map_err(|_| match kind {
            Kind::Request { .. } => Refused::params(id.unwrap_or_default()),
            _ => Refused::request("The message is none of this protocol."),
        })?;
        match &message {
            ClientJsonRpcMessage::Request(request) => {
                self.greeted = true;
                let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
                if under_way.contains_key(&request.id) {
                    // Its own answer would be taken for that of the other.
                    return Err(Refused::request("A request with this id is under way."));
                }
                // There is room: it was waited for before the line was read.
                if let Ok(room) = Arc::clone(&self.room).try_acquire_owned() {
                    under_way.insert(request.id.clone(), room);
                }
            }
            _ if !self.greeted => return Ok(None),
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // A request that was cancelled gets no answer.
                    self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
                }
            }
            _ => {}
        }
        Ok(Some(message))
    }

    /// Waits for what runs, for the time of grace, has it cancelled then, and waits until that was said. Can be broken
    /// off, too: the time runs from when the client said no more.
    async fn goodbye(&mut self, ended: Instant) {
        let shared = Arc::clone(&self.shared);
        shared.settings.shutdown.begin();
        let grace = ended + shared.settings.grace;
        if timeout_at(grace, shared.running.idle()).await.is_err() {
            shared.settings.shutdown.cancel();
            drop(timeout_at(grace + LAST_WORDS, shared.running.idle()).await);
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
        loop {
            if let Some(ended) = self.ended {
                self.goodbye(ended).await;
                return None;
            }
            if self.answer.is_some() {
                // What is broken off here was not taken yet.
                let room = self.output.as_ref()?.reserve().await.ok()?;
                if let Some(answer) = self.answer.take() {
                    room.send(Line(answer, None));
                }
            }
            let room = Arc::clone(&self.room);
            let read = tokio::select! {
                biased;
                () = shutdown.begun() => None,
                read = async {
                    drop(room.acquire().await);
                    self.next_line().await
                } => read,
            };
            let message = match read {
                None => {
                    self.ended = Some(Instant::now());
                    continue;
                }
                Some(Ok(())) => self.read(),
                Some(Err(refused)) => Err(refused),
            };
            self.line.clear();
            match message {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(refused) => self.answer = Some(refused.answer().into()),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.output = None;
        if let Some(writing) = self.writing.take() {
            drop(timeout(LAST_WORDS, writing).await);
        }
        Ok(())
    }
}

/// Writes line after line; those that wait already go out together.
async fn write(output: impl AsyncWrite + Send + Unpin, mut lines: mpsc::Receiver<Line>, shared: Arc<Shared>) {
    let mut output = tokio::io::BufWriter::new(output);
    while let Some(Line(line, room)) = lines.recv().await {
        let written = async {
            output.write_all(&line).await?;
            output.write_all(b"\n").await?;
            if lines.is_empty() { output.flush().await } else { Ok(()) }
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
