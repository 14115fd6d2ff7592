//! A service that answers as a script says, on the loopback interface, over TLS and without.
//!
//! One listener answers for all services of a connector. Each connection serves one request, so that a fault of a
//! connection is always one of the request that comes next.

mod script;
mod wire;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_model::manifest::{HostGrant, Manifest};
use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::authority::LocalAuthority;
use crate::clock::ManualClock;
use crate::network::TLS_HANDSHAKE;
use crate::scenario::{CertificateFault, Fault, ScriptedResponse};

pub(crate) use script::{
    ConnectionFault, Injection, Reaction, Script, ScriptEnd, SeenRequest, UnexpectedRequest, url_of,
};
pub(crate) use wire::{WireRequest, read_request, write_response};

/// The step in which a call's time passes while a service does not answer.
const HANGING_STEP: Duration = Duration::from_secs(1);

/// The real time of such a step: long enough for a guest and its host to notice it.
const HANGING_PAUSE: Duration = Duration::from_millis(2);

/// The time that a cancelled call has to give its connection up.
const LONGEST_CANCELLATION: Duration = Duration::from_secs(5);

/// The time for bytes to arrive before the connection is reset, which would take them along.
const BEFORE_RESET: Duration = Duration::from_millis(10);

/// The most pieces in which a slow body is sent.
const DRIPS: usize = 200;

/// A running service; it ends with the value.
pub(crate) struct ScriptedService {
    address: SocketAddr,
    _connections: JoinSet<()>,
}

/// The parts of a service that its connections share.
struct ServiceParts {
    script: Arc<Script>,
    clock: Arc<ManualClock>,
    valid: Arc<ServerConfig>,
    authority: Arc<LocalAuthority>,
}

impl ScriptedService {
    /// Starts a service for the hosts that `manifest` grants. Needs a running tokio runtime.
    ///
    /// # Errors
    /// No loopback port is free, or a name cannot be certified.
    pub(crate) async fn start(
        script: Arc<Script>,
        clock: Arc<ManualClock>,
        authority: Arc<LocalAuthority>,
        manifest: &Manifest,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let names: Vec<_> = manifest.hosts().iter().map(HostGrant::host).collect();
        let valid = authority.server_config(&names).map_err(io::Error::other)?;
        let parts = Arc::new(ServiceParts { script, clock, valid, authority });
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                while connections.try_join_next().is_some() {}
                // A connection that was reset before it was accepted is not a reason to stop.
                let Ok((stream, _)) = listener.accept().await else { continue };
                let parts = Arc::clone(&parts);
                connections.spawn(async move { drop(serve(stream, &parts).await) });
            }
        });
        Ok(Self { address, _connections: connections })
    }

    /// Returns its address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A connection whose socket can be reset.
trait Connection: AsyncRead + AsyncWrite + Unpin {
    fn socket(&self) -> &TcpStream;
}

impl Connection for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Connection for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

async fn serve(stream: TcpStream, parts: &ServiceParts) -> io::Result<()> {
    // Small answers must not wait for an acknowledgement. A failure to set the option is harmless.
    let _ = stream.set_nodelay(true);
    let mut first = [0];
    stream.peek(&mut first).await?;
    if first != [TLS_HANDSHAKE] {
        return serve_request(stream, parts, false).await;
    }
    let handshake = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let name = handshake.client_hello().server_name().unwrap_or_default().to_owned();
    let config = match parts.certificate_fault(&name) {
        None => Arc::clone(&parts.valid),
        Some(fault) => parts.faulty(fault, &name).map_err(io::Error::other)?,
    };
    serve_request(handshake.into_stream(config).await?, parts, true).await
}

impl ServiceParts {
    /// Returns the fault of the certificate for a connection to `name` that is opened now.
    fn certificate_fault(&self, name: &str) -> Option<CertificateFault> {
        match self.script.connection_fault(name, None, true)? {
            ConnectionFault::Certificate(fault) => Some(fault),
            ConnectionFault::Refuse => None,
        }
    }

    fn faulty(
        &self,
        fault: CertificateFault,
        name: &str,
    ) -> Result<Arc<ServerConfig>, crate::authority::CertificateError> {
        match fault {
            CertificateFault::UnknownIssuer => LocalAuthority::new()?.server_config(&[name]),
            CertificateFault::Expired => self.authority.expired_server_config(&[name]),
            CertificateFault::WrongHost => self.authority.server_config(&["other.invalid"]),
        }
    }
}

async fn serve_request(mut stream: impl Connection, parts: &ServiceParts, over_tls: bool) -> io::Result<()> {
    let Some(request) = read_request(&mut stream).await? else { return Ok(()) };
    let Some(host) = granted_host(request.host(), over_tls) else { return Ok(()) };
    let method = request.method.clone();
    match parts.script.receive(host, request) {
        Reaction::Respond(response) => write_response(&mut stream, &method, &response).await,
        Reaction::Cancel(Some(response)) => {
            let written = write_response(&mut stream, &method, &response).await;
            parts.script.cancel_call();
            written
        }
        Reaction::Cancel(None) => {
            parts.script.cancel_call();
            await_cancellation(&mut stream).await;
            Ok(())
        }
        Reaction::HangUp => {
            await_cancellation(&mut stream).await;
            Ok(())
        }
        Reaction::Truncate(response) => {
            write_part(&mut stream, &method, &response, response.body.len() / 2).await?;
            stream.shutdown().await
        }
        Reaction::Fault(Fault::Reset(response)) => {
            if let Some((response, bytes)) = response {
                write_part(&mut stream, &method, &response, bytes).await?;
                tokio::time::sleep(BEFORE_RESET).await;
            }
            stream.socket().set_zero_linger()
        }
        Reaction::Fault(Fault::Malformed) => {
            stream.write_all(b"220 this is not HTTP\r\n").await?;
            stream.shutdown().await
        }
        Reaction::Fault(Fault::Drip { response, bytes_per_second }) => {
            drip(&mut stream, &method, &response, bytes_per_second, &parts.clock).await
        }
        Reaction::Fault(Fault::Timeout) => {
            hang(&mut stream, &parts.clock).await;
            Ok(())
        }
        // They come before a request.
        Reaction::Fault(Fault::Refuse | Fault::Tls(_)) => Ok(()),
    }
}

/// Keeps the connection until the caller gives it up, which must learn from its cancellation and not from the end of the
/// connection.
async fn await_cancellation(stream: &mut impl Connection) {
    drop(tokio::time::timeout(LONGEST_CANCELLATION, stream.read(&mut [0; 64])).await);
}

/// Returns the service that a request is for, from its field `Host`.
pub(crate) fn granted_host(host: &str, over_tls: bool) -> Option<HostGrant> {
    let (scheme, port) = if over_tls { ("", 443) } else { ("http://", 80) };
    let port = if host.contains(':') { String::new() } else { format!(":{port}") };
    HostGrant::parse(&format!("{scheme}{host}{port}")).ok()
}

/// Writes the head of `response` and so many bytes of its body.
async fn write_part(
    stream: &mut impl Connection,
    method: &str,
    response: &ScriptedResponse,
    bytes: usize,
) -> io::Result<()> {
    stream.write_all(&wire::response_head(response)).await?;
    let body = wire::response_body(method, response);
    stream.write_all(body.get(..bytes).unwrap_or(body)).await?;
    stream.flush().await
}

/// Sends a response slowly, by the clock of the call.
async fn drip(
    stream: &mut impl Connection,
    method: &str,
    response: &ScriptedResponse,
    bytes_per_second: u64,
    clock: &ManualClock,
) -> io::Result<()> {
    stream.write_all(&wire::response_head(response)).await?;
    let body = wire::response_body(method, response);
    for piece in body.chunks(body.len().div_ceil(DRIPS).max(1)) {
        stream.write_all(piece).await?;
        stream.flush().await?;
        let nanos = (piece.len() as u64).saturating_mul(1_000_000_000) / bytes_per_second.max(1);
        clock.skip(Duration::from_nanos(nanos));
        tokio::time::sleep(HANGING_PAUSE).await;
    }
    stream.shutdown().await
}

/// Lets the call's time pass until its host gives the connection up.
async fn hang(stream: &mut impl Connection, clock: &ManualClock) {
    let mut rest = [0; 64];
    loop {
        tokio::select! {
            // The connection ends, or the caller sends what nothing waits for.
            _ = stream.read(&mut rest) => return,
            () = tokio::time::sleep(HANGING_PAUSE) => clock.skip(HANGING_STEP),
        }
    }
}
