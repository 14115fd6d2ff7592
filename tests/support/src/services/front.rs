//! The front of a service's mock: its name, its port 443, and TLS, so that a connector and its manifest are
//! tested unchanged.
//!
//! A host is pointed here by its resolver and its trusted authority. Each name is relayed to a server of plain
//! HTTP, and every request is recorded as it arrived. For responses that no mock can give (a limit that is
//! reached, a card that is declined) a test sets the response; the vendor's documentation describes it.

mod relay;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use cofferdam_egress::egress::{Resolve, ResolveError, ResolvedAddresses};
use rustls::ServerConfig;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::Authority;
use crate::upstream::ReceivedRequest;

/// The target of the requests for one name.
#[derive(Debug, Clone)]
pub struct Route {
    host: &'static str,
    to: SocketAddr,
    prefix: &'static str,
    token_name: Option<&'static str>,
}

impl Route {
    /// Requests for `host` go to `to`.
    #[must_use]
    pub fn new(host: &'static str, to: SocketAddr) -> Self {
        Self { host, to, prefix: "", token_name: None }
    }

    /// Without the start of their paths: mocks serve descriptions from the root.
    #[must_use]
    pub fn without_prefix(mut self, prefix: &'static str) -> Self {
        self.prefix = prefix;
        self
    }

    /// With their bearer token in a further header field of this name, and in the query of a GET, for a schema that
    /// requires it twice.
    #[must_use]
    pub fn with_token_in(mut self, name: &'static str) -> Self {
        self.token_name = Some(name);
        self
    }
}

/// An answer that a test gives itself.
struct Scripted {
    host: &'static str,
    marker: String,
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

/// The state shared by the connections.
struct Shared {
    routes: HashMap<&'static str, Route>,
    seen: Mutex<Vec<(String, ReceivedRequest)>>,
    scripted: Mutex<Vec<Scripted>>,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Vec<(String, ReceivedRequest)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scripted(&self) -> MutexGuard<'_, Vec<Scripted>> {
        self.scripted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running front; it ends with the value.
pub struct Front {
    address: Ipv4Addr,
    authority: Authority,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Front {
    /// Starts a front for these routes, on port 443 of a separate loopback address.
    ///
    /// # Errors
    /// This user may not listen on that port.
    ///
    /// # Panics
    /// There is no loopback interface.
    pub fn start(routes: impl IntoIterator<Item = Route>) -> Result<Self, String> {
        let (address, listener) = listen()?;
        let routes: HashMap<_, _> = routes.into_iter().map(|route| (route.host, route)).collect();
        let authority = Authority::new();
        let names: Vec<_> = routes.keys().copied().collect();
        let (certificate, key) = authority.certify(&names);
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a certificate that fits its key");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let shared = Arc::new(Shared { routes, seen: Mutex::default(), scripted: Mutex::default() });
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&shared);
        let thread = std::thread::spawn(move || relay::run(listener, acceptor, served, stopped));
        Ok(Self { address, authority, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// The authority that a host has to believe.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// A resolver that knows the routed names and no others.
    #[must_use]
    pub fn resolver(&self) -> Arc<dyn Resolve> {
        let names = self.shared.routes.keys().copied().collect();
        Arc::new(Names { names, address: self.address.into() })
    }

    /// From now on, requests for `host` with `marker` in their path or body get this response, and are not
    /// relayed. The marker separates tests that run at the same time.
    pub fn answer(
        &self,
        host: &'static str,
        marker: &str,
        (status, headers, body): (u16, &[(&'static str, &str)], &str),
    ) {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let scripted = Scripted { host, marker: marker.to_owned(), status, headers, body: body.to_owned() };
        self.shared.scripted().push(scripted);
    }

    /// The requests for `host` with `marker` in their path or body, until now.
    #[must_use]
    pub fn seen(&self, host: &str, marker: &str) -> Vec<ReceivedRequest> {
        let all = self.shared.seen();
        let wanted = |(name, seen): &&(String, ReceivedRequest)| name == host && relay::marked(seen, marker);
        all.iter().filter(wanted).map(|(_, seen)| seen.clone()).collect()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// A listener on port 443 of the first loopback address that is free: nothing on the machine uses those from 127.83 on.
fn listen() -> Result<(Ipv4Addr, TcpListener), String> {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    for other in 0..=u8::MAX {
        let address = Ipv4Addr::new(127, 83_u8.wrapping_add(other % 100), high, low);
        match TcpListener::bind((address, 443)) {
            Ok(listener) => return Ok((address, listener)),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => {
                let way = "be root, or set the sysctl net.ipv4.ip_unprivileged_port_start to 443";
                return Err(format!("port 443 of a loopback address cannot be had ({error}): {way}"));
            }
        }
    }
    Err("no loopback address has a free port 443".to_owned())
}

/// Knows the routed names.
struct Names {
    names: Vec<&'static str>,
    address: IpAddr,
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolvedAddresses<'a> {
        let known = self.names.contains(&host);
        let answer = if known { Ok(vec![self.address]) } else { Err(ResolveError::NotFound) };
        Box::pin(std::future::ready(answer))
    }
}
