//! A relay on the loopback interface that records what passes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_egress::egress::{
    Authorization, EgressClient, EgressPolicy, EgressTimeouts, PrivateGrant, SystemResolver, Tls,
};
use cofferdam_model::manifest::{HostGrant, Manifest};
use http::Request;
use http_body_util::{BodyExt as _, Full, Limited};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::authority::LocalAuthority;
use crate::network::TLS_HANDSHAKE;
use crate::scenario::ScriptedResponse;
use crate::service::{WireRequest, granted_host, read_request, url_of, write_response};

/// The longest response that is recorded, in bytes.
const RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// A request and its response.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) host: HostGrant,
    pub(super) request: WireRequest,
    pub(super) response: ScriptedResponse,
}

/// A running relay; it ends with the value.
pub(super) struct RecordingRelay {
    address: SocketAddr,
    shared: Arc<RelayParts>,
    _connections: JoinSet<()>,
}

struct RelayParts {
    client: EgressClient,
    acceptor: TlsAcceptor,
    record: Mutex<RelayRecord>,
}

#[derive(Default)]
struct RelayRecord {
    exchanges: Vec<Exchange>,
    /// The first request that got no response.
    lost: Option<String>,
}

impl RecordingRelay {
    /// Starts a relay for the hosts that `manifest` grants. Needs a running tokio runtime.
    pub(super) async fn start(
        authority: &LocalAuthority,
        manifest: &Manifest,
        tls: Arc<Tls>,
        private: Vec<PrivateGrant>,
    ) -> Result<Self, HostError> {
        let failed = |error: &dyn std::fmt::Display| {
            HostError::new(HostErrorKind::Internal, "The relay could not be started.")
                .with_source(error.to_string())
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|error| failed(&error))?;
        let address = listener.local_addr().map_err(|error| failed(&error))?;
        let names: Vec<_> = manifest.hosts().iter().map(HostGrant::host).collect();
        let config = authority.server_config(&names).map_err(|error| failed(&error))?;
        let policy = EgressPolicy::new(manifest.hosts(), &private).with_methods(manifest.methods());
        let client = EgressClient::new(tls, Arc::new(SystemResolver::default()), policy);
        let record = Mutex::default();
        let shared = Arc::new(RelayParts { client, acceptor: TlsAcceptor::from(config), record });
        let (parts, mut connections) = (Arc::clone(&shared), JoinSet::new());
        connections.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                while connections.try_join_next().is_some() {}
                // A connection that was reset before it was accepted is not a reason to stop.
                let Ok((stream, _)) = listener.accept().await else { continue };
                let parts = Arc::clone(&parts);
                connections.spawn(async move { drop(relay(stream, &parts).await) });
            }
        });
        Ok(Self { address, shared, _connections: connections })
    }

    /// Returns its address.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the exchanges, in the order in which the requests came.
    ///
    /// # Errors
    /// A request got no response, so that there is none to record.
    pub(super) fn finish(self) -> Result<Vec<Exchange>, HostError> {
        let record = std::mem::take(&mut *self.shared.record.lock().unwrap_or_else(PoisonError::into_inner));
        match record.lost {
            None => Ok(record.exchanges),
            Some(lost) => Err(HostError::new(HostErrorKind::Tool, lost).with_hint(
                "Record when the service can be reached; write faults into the scenario by hand.",
            )),
        }
    }
}

async fn relay(stream: TcpStream, parts: &RelayParts) -> io::Result<()> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    if first == [TLS_HANDSHAKE] {
        let mut stream = parts.acceptor.accept(stream).await?;
        let Some(request) = read_request(&mut stream).await? else { return Ok(()) };
        let Some((method, response)) = pass_on(request, true, parts).await else { return Ok(()) };
        return write_response(&mut stream, &method, &response).await;
    }
    let mut stream = stream;
    let Some(request) = read_request(&mut stream).await? else { return Ok(()) };
    let Some((method, response)) = pass_on(request, false, parts).await else { return Ok(()) };
    write_response(&mut stream, &method, &response).await
}

/// Sends a request on, and records it; none if there is no response.
async fn pass_on(
    request: WireRequest,
    over_tls: bool,
    parts: &RelayParts,
) -> Option<(String, ScriptedResponse)> {
    let host = granted_host(request.host(), over_tls)?;
    let method = request.method.clone();
    let answered = send(&request, &host, parts).await;
    let mut record = parts.record.lock().unwrap_or_else(PoisonError::into_inner);
    match answered {
        Ok(response) => {
            record.exchanges.push(Exchange { host, request, response: response.clone() });
            Some((method, response))
        }
        Err(why) => {
            let shown = format!("{method} {}{} got no response: {why}.", url_of(&host), request.path());
            record.lost.get_or_insert(shown);
            None
        }
    }
}

async fn send(
    request: &WireRequest,
    host: &HostGrant,
    parts: &RelayParts,
) -> Result<ScriptedResponse, String> {
    let url = format!("{}{}", url_of(host), request.target);
    let mut builder = Request::builder().method(request.method.as_str()).uri(url);
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    let body = Full::new(Bytes::from(request.body.clone()));
    let sent = builder.body(body).map_err(|error| error.to_string())?;
    let target = parts.client.policy().decide(sent.uri(), None);
    let target = target.map_err(|denial| denial.to_string())?;
    let (timeouts, authorization) = (EgressTimeouts::default(), Authorization::default());
    let response = parts.client.send(sent, &target, &timeouts, &authorization, None).await;
    let response = response.map_err(|error| error.to_string())?;
    let (head, body) = response.into_parts();
    let body =
        Limited::new(body, RESPONSE_BYTES).collect().await.map_err(|error| error.to_string())?.to_bytes();
    let framing = ["content-length", "transfer-encoding", "connection", "keep-alive", "trailer", "upgrade"];
    let headers = head.headers.iter().filter(|(name, _)| !framing.contains(&name.as_str()));
    let headers = headers.map(|(name, value)| (name.clone(), value.clone())).collect();
    Ok(ScriptedResponse { status: head.status, headers, body: body.to_vec().into() })
}
