//! A TCP proxy that does something wrong between a client and a server, scripted per connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The fault of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It is closed as soon as it is accepted.
    DropAtOnce,
    /// So many bytes of the request reach the server; then both ends are closed.
    DropAfterRequest(usize),
    /// The request reaches the server; so many bytes of its answer come back, and then a reset.
    ResetInResponse(usize),
    /// The request reaches the server; so many bytes of its answer come back, and then an orderly end.
    TruncateResponse(usize),
    /// Nothing with the first request and its answer; then the connection ends while it waits to be used again.
    EndWhenIdle,
    /// The response is delayed by this time.
    Delay(Duration),
    /// The request reaches the server, and no response is returned.
    HalfOpen,
    /// It is accepted, and nothing is read or written.
    BlackHole,
    /// The request reaches the server; the response is not HTTP.
    Garbage,
}

/// The proxy; it ends with the value.
pub struct FaultyProxy {
    address: SocketAddr,
    accepts: Arc<AtomicUsize>,
    runtime: Handle,
    unbound: Mutex<Option<TcpSocket>>,
    task: Mutex<Option<JoinHandle<()>>>,
    to: u16,
    faults: Vec<Fault>,
}

/// The wait for the end of a peer's data, which may come in several parts.
const QUIET: Duration = Duration::from_millis(60);

impl FaultyProxy {
    /// A proxy to this port of the loopback interface; the n-th connection has the n-th fault, and all others the
    /// last one. It runs on the runtime that this is called on.
    ///
    /// # Panics
    /// There is no loopback interface, or no runtime.
    #[must_use]
    pub fn start(to: u16, faults: impl IntoIterator<Item = Fault>) -> Self {
        let proxy = Self::refusing(to, faults);
        proxy.listen();
        proxy
    }

    /// The same, which refuses every connection until it [listens](Self::listen).
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn refusing(to: u16, faults: impl IntoIterator<Item = Fault>) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        // Bound, and not listening: no other process gets the port, and connections are refused.
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a loopback interface");
        Self {
            address: socket.local_addr().expect("an address"),
            accepts: Arc::default(),
            runtime: Handle::current(),
            unbound: Mutex::new(Some(socket)),
            task: Mutex::default(),
            to,
            faults: faults.into_iter().collect(),
        }
    }

    /// Accepts connections from now on; again does nothing.
    ///
    /// # Panics
    /// The port cannot be listened on.
    pub fn listen(&self) {
        let Some(socket) = self.unbound.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let _runtime = self.runtime.enter();
        let listener = socket.listen(1024).expect("a port to listen on");
        let serving = serve(listener, self.to, self.faults.clone(), Arc::clone(&self.accepts));
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.runtime.spawn(serving));
    }

    /// `localhost:<port>`.
    #[must_use]
    pub fn host_port(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// A URL through it; `path` starts with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.host_port())
    }

    /// The connections that were accepted.
    #[must_use]
    pub fn accepts(&self) -> usize {
        self.accepts.load(Ordering::SeqCst)
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

async fn serve(listener: TcpListener, to: u16, faults: Vec<Fault>, accepts: Arc<AtomicUsize>) {
    // They end with this task.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let number = accepts.fetch_add(1, Ordering::SeqCst);
        let fault = faults.get(number).or(faults.last()).copied().unwrap_or(Fault::None);
        // Errors further out are the subject of the tests.
        connections.spawn(async move { drop(between(stream, to, fault).await) });
        while connections.try_join_next().is_some() {}
    }
}

async fn between(mut near: TcpStream, to: u16, fault: Fault) -> std::io::Result<()> {
    if fault == Fault::BlackHole {
        return std::future::pending().await;
    }
    if fault == Fault::DropAtOnce {
        return end(near).await;
    }
    let mut far = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await?;
    match fault {
        Fault::None => tokio::io::copy_bidirectional(&mut near, &mut far).await.map(drop),
        Fault::DropAfterRequest(bytes) => {
            pass_request(&mut near, &mut far, bytes).await?;
            drop(far);
            end(near).await
        }
        Fault::ResetInResponse(bytes) => {
            answer(&mut near, &mut far, bytes).await?;
            // The client has what was written before the reset discards it.
            tokio::time::sleep(QUIET).await;
            near.set_zero_linger()
        }
        Fault::TruncateResponse(bytes) => {
            answer(&mut near, &mut far, bytes).await?;
            end(near).await
        }
        Fault::EndWhenIdle => {
            pass_request(&mut near, &mut far, usize::MAX).await?;
            let mut buffer = [0; 4096];
            while let Ok(read) = tokio::time::timeout(QUIET, far.read(&mut buffer)).await {
                match read? {
                    0 => break,
                    read => near.write_all(&buffer[..read]).await?,
                }
            }
            end(near).await
        }
        Fault::Delay(time) => {
            pass_request(&mut near, &mut far, usize::MAX).await?;
            tokio::time::sleep(time).await;
            tokio::io::copy_bidirectional(&mut near, &mut far).await.map(drop)
        }
        Fault::Garbage => {
            pass_request(&mut near, &mut far, usize::MAX).await?;
            near.write_all(b"\0\x7fno such thing\r\n\r\n").await?;
            end(near).await
        }
        Fault::HalfOpen => {
            pass_request(&mut near, &mut far, usize::MAX).await?;
            // The server's response is withheld from the client until that disconnects.
            let (mut answered, mut gave_up) = (tokio::io::sink(), tokio::io::sink());
            tokio::select! {
                left = tokio::io::copy(&mut near, &mut gave_up) => left.map(drop),
                never = async { drop(tokio::io::copy(&mut far, &mut answered).await); std::future::pending().await } => never,
            }
        }
        Fault::BlackHole | Fault::DropAtOnce => Ok(()),
    }
}

/// Forwards this many bytes of one request and discards the others: unread bytes would end the connection
/// early.
async fn pass_request(near: &mut TcpStream, far: &mut TcpStream, bytes: usize) -> std::io::Result<()> {
    let (mut left, mut buffer, mut any) = (bytes, [0; 4096], false);
    loop {
        // The first byte may take its time: a connection can be made before there is a request.
        let read = near.read(&mut buffer);
        let read = match any {
            true => match tokio::time::timeout(QUIET, read).await {
                Ok(read) => read?,
                Err(_) => return Ok(()),
            },
            false => read.await?,
        };
        if read == 0 {
            return Ok(());
        }
        any = true;
        let passed = read.min(left);
        left -= passed;
        far.write_all(&buffer[..passed]).await?;
    }
}

/// Passes a request on, and so many bytes of its answer back.
async fn answer(near: &mut TcpStream, far: &mut TcpStream, bytes: usize) -> std::io::Result<()> {
    pass_request(near, far, usize::MAX).await?;
    let mut buffer = vec![0; bytes];
    let mut read = 0;
    while read < bytes {
        match far.read(&mut buffer[read..]).await? {
            0 => break,
            some => read += some,
        }
    }
    // Even without a response the server has answered: its effect is done.
    if bytes == 0 {
        far.read_u8().await?;
    }
    near.write_all(&buffer[..read]).await
}

/// An orderly end: nothing is left unread, which would make it a reset.
async fn end(mut stream: TcpStream) -> std::io::Result<()> {
    stream.shutdown().await?;
    stream.read_to_end(&mut Vec::new()).await.map(drop)
}
