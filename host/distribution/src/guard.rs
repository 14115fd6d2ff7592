//! The guard of all connections of this crate.
//!
//! `oci-client` builds its HTTP client itself and takes neither a resolver nor a connector, but it takes a proxy. So the
//! guard is a SOCKS5 proxy on the loopback interface, in this process, for one operation. It is the only route: the HTTP
//! client is set to it for both schemes, which also keeps it from reading proxy variables, and it passes names on
//! without looking them up. Requests of redirects, token services and upload locations come here like all others.
//!
//! For each connection, the guard looks the name up, checks every address with the egress guard's rules, and connects
//! to a checked one (`connect_admitted`), so an answer that changes between check and use has no effect. TLS is between
//! the HTTP client and the server; the guard lets only TLS through, unless plain HTTP is allowed for that host and port.
//! It counts the bytes that come back, and cuts all connections at the operation's limit, so that no response fills the
//! memory. Other processes of this machine cannot use it: it takes a password that exists for one operation.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_core::error::HostError;
use cofferdam_egress::egress::{
    EgressPolicy, HostPort, PrivateGrant, RequestTarget, Resolve, ResolveError, ResolvedAddresses, SendError,
    connect_admitted,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Duration, Instant};

use crate::error;

/// The time to look a name up and to connect.
const CONNECT: Duration = Duration::from_secs(15);

/// The bytes that are passed on at once.
const CHUNK: usize = 128 * 1024;

/// The first byte of every TLS connection: a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// The user name that the HTTP client gives; the password is the secret.
const USER: &str = "guard";

/// SOCKS5 (RFC 1928, RFC 1929): the version of the protocol, and that of the exchange of a password.
const SOCKS: u8 = 5;
const PASSWORD_EXCHANGE: u8 = 1;
const BY_PASSWORD: u8 = 2;
const NONE_ACCEPTABLE: u8 = 0xff;
const CONNECT_COMMAND: u8 = 1;
const SUCCEEDED: u8 = 0;
const NOT_ALLOWED: u8 = 2;

/// A running guard. Its connections end with it.
pub(crate) struct ConnectionGuard {
    url: String,
    rules: Arc<Rules>,
    task: JoinHandle<()>,
}

/// The hosts that may be spoken to without TLS.
#[derive(Default)]
pub(crate) struct PlainHttp {
    /// Those that the operator named.
    pub(crate) named: Vec<HostPort>,
    /// The registry, if it is allowed only because of its loopback name. Such a name may be looked up in DNS, so every
    /// connection to it must lead to a loopback address.
    pub(crate) loopback: Option<HostPort>,
}

/// The rules, and what became of the connections.
struct Rules {
    policy: EgressPolicy,
    plain_http: PlainHttp,
    resolver: Arc<dyn Resolve>,
    password: String,
    remaining: AtomicU64,
    refusal: Mutex<Option<HostError>>,
}

impl ConnectionGuard {
    /// Starts a guard on a free port.
    pub(crate) async fn start(
        private: &[PrivateGrant],
        plain_http: PlainHttp,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, HostError> {
        let mut secret = [0_u8; 16];
        getrandom::fill(&mut secret).map_err(|error| error::internal("There is no randomness.", error))?;
        let broken = |error| error::internal("The guard of connections cannot listen on loopback.", error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(broken)?;
        let port = listener.local_addr().map_err(broken)?.port();
        let password = format!("{:032x}", u128::from_ne_bytes(secret));
        let url = format!("socks5h://{USER}:{password}@127.0.0.1:{port}");
        let rules = Arc::new(Rules {
            policy: EgressPolicy::new(&[], private),
            plain_http,
            resolver,
            password,
            remaining: AtomicU64::new(0),
            refusal: Mutex::new(None),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&rules)));
        Ok(Self { url, rules, task })
    }

    /// Returns the address for the HTTP client, with the password.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Begins a step: from now on, so many bytes may come back. Forgets earlier refusals.
    pub(crate) fn begin_step(&self, bytes: u64) {
        self.rules.remaining.store(bytes, Ordering::SeqCst);
        self.take_refusal();
    }

    /// Returns the first error of a connection in this step, if there was one. It is the cause of what the HTTP client
    /// reports.
    pub(crate) fn take_refusal(&self) -> Option<HostError> {
        self.rules.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves connections until it is aborted, which ends them too.
async fn accept(listener: TcpListener, rules: Arc<Rules>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    let rules = Arc::clone(&rules);
                    connections.spawn(async move { serve(client, &rules).await });
                }
                // Out of file descriptors, for instance: the next one may work.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection of the HTTP client.
async fn serve(mut client: TcpStream, rules: &Rules) -> io::Result<()> {
    let _ = client.set_nodelay(true);
    let Some(authority) = greet(&mut client, rules).await? else { return Ok(()) };
    let server = match rules.connect(&authority).await {
        Ok(connected) => Ok(connected),
        Err(refusal) => {
            rules.refuse(refusal);
            Err(NOT_ALLOWED)
        }
    };
    let status = server.as_ref().map_or_else(|status| *status, |_| SUCCEEDED);
    // The address that was bound is of no use to the client.
    client.write_all(&[SOCKS, status, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    let Ok((target, mut server)) = server else { return Ok(()) };
    let mut first = vec![0; CHUNK];
    let read = client.read(&mut first).await?;
    let first = first.get(..read).unwrap_or_default();
    if first.first().is_some_and(|byte| *byte != TLS_HANDSHAKE) && !rules.allows_plain_http(&target) {
        rules.refuse(error::unencrypted(&target));
        return Ok(());
    }
    server.write_all(first).await?;
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let upload = async {
        tokio::io::copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    tokio::try_join!(upload, download(from_server, to_client, rules)).map(drop)
}

/// Passes the server's bytes on, as many as are left of the step.
async fn download(mut server: OwnedReadHalf, mut client: OwnedWriteHalf, rules: &Rules) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = server.read(&mut chunk).await?;
        if read == 0 {
            return client.shutdown().await;
        }
        let taken = rules.remaining.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(u64::try_from(read).unwrap_or(u64::MAX))
        });
        if taken.is_err() {
            rules.refuse(error::too_much());
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        client.write_all(chunk.get(..read).unwrap_or_default()).await?;
    }
}

/// Does the greeting of SOCKS5, and returns the requested `host:port`; none if the client is not the one of this
/// operation.
async fn greet(client: &mut TcpStream, rules: &Rules) -> io::Result<Option<String>> {
    if client.read_u8().await? != SOCKS {
        return Ok(None);
    }
    let methods = short_text(client).await?;
    if !methods.contains(&BY_PASSWORD) {
        client.write_all(&[SOCKS, NONE_ACCEPTABLE]).await?;
        return Ok(None);
    }
    client.write_all(&[SOCKS, BY_PASSWORD]).await?;
    if client.read_u8().await? != PASSWORD_EXCHANGE {
        return Ok(None);
    }
    let (user, password) = (short_text(client).await?, short_text(client).await?);
    let is_known = user == USER.as_bytes() && same(&password, rules.password.as_bytes());
    client.write_all(&[PASSWORD_EXCHANGE, u8::from(!is_known)]).await?;
    if !is_known {
        return Ok(None);
    }
    let mut request = [0; 4];
    client.read_exact(&mut request).await?;
    let [SOCKS, CONNECT_COMMAND, _, kind] = request else { return Ok(None) };
    let host = match kind {
        1 => Ipv4Addr::from(client.read_u32().await?).to_string(),
        3 => String::from_utf8(short_text(client).await?).unwrap_or_default(),
        4 => format!("[{}]", Ipv6Addr::from(client.read_u128().await?)),
        _ => return Ok(None),
    };
    let port = client.read_u16().await?;
    Ok(Some(format!("{host}:{port}")))
}

/// Reads a text with its length in a byte before it.
async fn short_text(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = client.read_u8().await?;
    let mut text = vec![0; usize::from(length)];
    client.read_exact(&mut text).await?;
    Ok(text)
}

/// Compares without telling by its time how much is the same.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn is_at(host_port: &HostPort, target: &RequestTarget) -> bool {
    host_port.host() == target.host() && host_port.port() == target.port()
}

impl Rules {
    /// Connects to a checked address of `authority`.
    async fn connect(&self, authority: &str) -> Result<(RequestTarget, TcpStream), HostError> {
        let uri = format!("https://{authority}").parse().map_err(|_| error::not_an_address(authority))?;
        let target = RequestTarget::from_uri(&uri).map_err(|_| error::not_an_address(authority))?;
        let deadline = Instant::now() + CONNECT;
        let loopback = match self.plain_http.loopback.as_ref().is_some_and(|plain| is_at(plain, &target)) {
            true => self.loopback_addresses(&target, deadline).await?,
            false => None,
        };
        let resolver = loopback.as_ref().map_or(&*self.resolver, |addresses| addresses as &dyn Resolve);
        match connect_admitted(resolver, &self.policy, &target, deadline).await {
            Ok(server) => Ok((target, server)),
            Err(SendError::Refused(denial)) => Err(error::private_address(&target, &denial)),
            Err(other) => Err(error::unreachable(&target, &other)),
        }
    }

    /// Looks up a name that may be spoken to without TLS only on loopback, and refuses it if it leads elsewhere. None for an
    /// address. A failed lookup is the result, too: a second one could return any address.
    async fn loopback_addresses(
        &self,
        target: &RequestTarget,
        deadline: Instant,
    ) -> Result<Option<FixedAddresses>, HostError> {
        if target.is_literal() {
            return Ok(None);
        }
        let looked_up = tokio::time::timeout_at(deadline, self.resolver.resolve(target.host())).await;
        let looked_up = looked_up.unwrap_or(Err(ResolveError::Failed));
        let is_elsewhere = |address: &IpAddr| !address.to_canonical().is_loopback();
        match looked_up.iter().flatten().any(is_elsewhere) {
            true => Err(error::not_loopback(target)),
            false => Ok(Some(FixedAddresses(looked_up))),
        }
    }

    fn allows_plain_http(&self, target: &RequestTarget) -> bool {
        let PlainHttp { named, loopback } = &self.plain_http;
        named.iter().chain(loopback).any(|plain| is_at(plain, target))
    }

    /// Keeps the first refusal of a step.
    fn refuse(&self, refusal: HostError) {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(refusal);
    }
}

/// The addresses of a name that were checked, or the error, so that it is not looked up again.
#[derive(Debug)]
struct FixedAddresses(Result<Vec<IpAddr>, ResolveError>);

impl Resolve for FixedAddresses {
    fn resolve<'a>(&'a self, _host: &'a str) -> ResolvedAddresses<'a> {
        Box::pin(async { self.0.clone() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use cofferdam_egress::egress::SystemResolver;

    use super::*;

    async fn guard(private: &str) -> ConnectionGuard {
        let private = [PrivateGrant::parse(private).unwrap()];
        let guard =
            ConnectionGuard::start(&private, PlainHttp::default(), Arc::new(SystemResolver::default()));
        let guard = guard.await.unwrap();
        guard.begin_step(1000);
        guard
    }

    /// Asks for a connection to `port` of 127.0.0.1, and returns the status; none if the guard closed the connection.
    async fn ask(guard: &ConnectionGuard, password: &str, port: u16) -> (TcpStream, Option<u8>) {
        let address = guard.url().rsplit('@').next().unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut greeting = vec![SOCKS, 1, BY_PASSWORD, PASSWORD_EXCHANGE, 5];
        greeting.extend(USER.bytes());
        greeting.push(u8::try_from(password.len()).unwrap());
        greeting.extend(password.bytes());
        greeting.extend([SOCKS, CONNECT_COMMAND, 0, 1, 127, 0, 0, 1]);
        greeting.extend(port.to_be_bytes());
        stream.write_all(&greeting).await.unwrap();
        let mut answer = [0; 14];
        let status = stream.read_exact(&mut answer).await.ok().map(|_| answer[5]);
        (stream, status)
    }

    #[tokio::test]
    async fn only_the_password_opens_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let guard = guard(&format!("127.0.0.1:{port}=127.0.0.1")).await;
        let right = guard.rules.password.clone();
        assert_eq!(ask(&guard, &right, port).await.1, Some(SUCCEEDED));
        for wrong in ["", "guess", &right[1..], &format!("{right}0")] {
            assert_eq!(ask(&guard, wrong, port).await.1, None, "{wrong}");
        }
        let (_stream, status) = ask(&guard, &right, port.wrapping_add(1)).await;
        assert_eq!(status, Some(NOT_ALLOWED), "loopback is a private address");
        let refusal = guard.take_refusal().unwrap();
        assert!(refusal.message().contains("loopback"), "{refusal}");
    }

    #[tokio::test]
    async fn plain_text_and_surplus_bytes_are_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let guard = guard(&format!("127.0.0.1:{port}=127.0.0.1")).await;
        let password = guard.rules.password.clone();
        let mut rest = Vec::new();
        let (mut stream, _) = ask(&guard, &password, port).await;
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.is_empty());
        assert!(guard.take_refusal().unwrap().message().contains("without TLS"));
        let (mut stream, _) = ask(&guard, &password, port).await;
        stream.write_all(&[TLS_HANDSHAKE]).await.unwrap();
        listener.accept().await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.write_all(&[0; 1001]).await.unwrap();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.len() <= 1000, "{}", rest.len());
        assert!(guard.take_refusal().unwrap().message().contains("more"));
    }
}
