//! A host, names that resolve as a test wants, and upstreams that behave as a path says.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cofferdam::{Call, Error, Failure, Host};
use cofferdam_egress::egress::{Resolve, ResolveError, ResolvedAddresses};
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_test_support::{Home, InstallAccepted as _, Signer, package};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::shared_host::{example, failed, run};

/// Every name except two resolves to loopback, and the queried names are recorded.
#[derive(Default)]
pub(super) struct Names(pub(super) Mutex<Vec<String>>);

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolvedAddresses<'a> {
        self.0.lock().unwrap().push(host.to_owned());
        Box::pin(async move {
            match host {
                "nowhere.test" => Err(ResolveError::NotFound),
                "broken.test" => Err(ResolveError::Failed),
                "stalls.test" => std::future::pending().await,
                _ => Ok(vec![IpAddr::from([127, 0, 0, 1])]),
            }
        })
    }
}

/// A host on which the probe is granted `hosts`, all of which may be private.
pub(super) struct NetworkFixture {
    pub(super) host: Host,
    pub(super) names: Arc<Names>,
    _home: Home,
}

impl NetworkFixture {
    /// Grants as a manifest writes them; `root` is believed.
    pub(super) fn new(grants: &[String], root: Option<&str>) -> Self {
        let home = Home::new(crate::COFFERDAM);
        let signer = Signer::new();
        home.trust(&signer.public(), "github://cofferdam/*");
        let names = Arc::<Names>::default();
        let mut builder = home.builder().resolver(names.clone());
        for grant in grants {
            let place = grant.trim_start_matches("http://");
            builder = builder.allow_private(format!("{place}=127.0.0.1"));
        }
        if let Some(root) = root {
            builder = builder.extra_root_pem(root);
        }
        let host = builder.build().unwrap();
        let bytes = package::guest_package("probe", grants);
        let signature = signer.sign(&bytes);
        run(host.install_accepted(bytes, Some(signature), Default::default())).unwrap();
        Self { host, names, _home: home }
    }

    pub(super) fn call(&self, op: &str, args: Value) -> Result<Value, Error> {
        run(self.host.call(&example("probe"), op, args))
    }

    /// The failure of a single attempt.
    pub(super) fn failure(&self, op: &str, args: Value) -> Failure {
        let none = RetryProfile::named("none").unwrap();
        failed(run(self.host.run(Call::new(example("probe"), op, args).retry(none))).outcome)
    }

    pub(super) fn failure_within(&self, op: &str, args: Value, wall_time: &str) -> Failure {
        let limits = cofferdam_core::limits::LimitRequest::parse(None, Some(wall_time), None).unwrap();
        failed(run(self.host.run(Call::new(example("probe"), op, args).limits(limits))).outcome)
    }
}

/// An upstream on loopback, with the connections and the requests that it saw.
pub(super) struct Scripted {
    pub(super) port: u16,
    accepts: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Scripted {
    /// Runs `script` for every connection.
    pub(super) fn start<F, R>(script: F) -> Self
    where
        F: Fn(TcpStream, Arc<AtomicUsize>) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let (accepts, requests) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (counter, heads) = (Arc::clone(&accepts), Arc::clone(&requests));
        let port = run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    counter.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(script(stream, Arc::clone(&heads)));
                }
            });
            port
        });
        Self { port, accepts, requests }
    }

    pub(super) fn accepts(&self) -> usize {
        self.accepts.load(Ordering::SeqCst)
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Reads a request's head; its path, without the slash.
pub(super) async fn path_of(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    Some(head.split_whitespace().nth(1)?.trim_start_matches('/').to_owned())
}

/// Behaves as the path of the first request says.
pub(super) async fn misbehave(mut stream: TcpStream, requests: Arc<AtomicUsize>) {
    const OK: &str = "HTTP/1.1 200 OK\r\n";
    let Some(path) = path_of(&mut stream).await else { return };
    requests.fetch_add(1, Ordering::SeqCst);
    // The rest of the request, if it has one: unread bytes would reset the connection too early.
    let mut reads = path != "no/reading";
    while reads {
        let more = tokio::time::timeout(Duration::from_millis(100), stream.read(&mut [0; 1024])).await;
        reads = matches!(more, Ok(Ok(1..)));
    }
    let (text, then) = path.split_once('/').unwrap_or((&path, ""));
    let chunked = format!("{OK}Transfer-Encoding: chunked\r\n\r\n");
    let sized = format!("{OK}Content-Length: 9\r\n\r\n");
    let first = match text {
        "in-head" => format!("{OK}Conte"),
        "in-body" => format!("{sized}body"),
        "in-chunk" => format!("{chunked}5\r\nab"),
        "no-chunk" => format!("{chunked}xyz\r\n"),
        "garbage" => "\0\0\r\n\r\n".to_owned(),
        "two-lengths" => format!("{OK}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx"),
        "fields" => format!("{OK}{}\r\n", "a: b\r\n".repeat(101)),
        "long-field" => format!("{OK}a: {}\r\n\r\n", "b".repeat(100_000)),
        "endless" => chunked,
        "gzip" => format!("{OK}Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!"),
        _ => String::new(),
    };
    let _ = stream.write_all(first.as_bytes()).await;
    let again: &[u8] = match then {
        "reset" => {
            // The client has what was written before the reset discards it.
            tokio::time::sleep(Duration::from_millis(100)).await;
            return stream.set_zero_linger().unwrap();
        }
        "close" => {
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
            return;
        }
        "continue" => b"HTTP/1.1 100 Continue\r\n\r\n",
        "chunks" => {
            b"1000\r\n\
            0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        }
        "drip" => {
            for byte in format!("{OK}Content-Length: 100000\r\n\r\n").bytes().chain(std::iter::repeat(b'x')) {
                if stream.write_all(&[byte]).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            return;
        }
        _ => {
            // Reads nothing more, and sends nothing.
            return std::future::pending().await;
        }
    };
    if then == "chunks" {
        let chunk = [b"10000\r\n", &[b'x'; 0x10000][..], b"\r\n"].concat();
        while stream.write_all(&chunk).await.is_ok() {}
        return;
    }
    while stream.write_all(&again.repeat(16)).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

/// A certificate's issuer.
pub(super) type Issuer = CertifiedIssuer<'static, KeyPair>;

pub(super) fn issuer(name: &str) -> Issuer {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A TLS server's side, with a certificate for `name` that holds between two years.
pub(super) fn acceptor(issuer: &Issuer, name: &str, years: (i32, i32)) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.not_before = date_time_ymd(years.0, 1, 1);
    params.not_after = date_time_ymd(years.1, 1, 1);
    let chain = vec![params.signed_by(&key, issuer).unwrap().der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A TLS server that answers every request with its path.
pub(super) fn secure(acceptor: TlsAcceptor) -> Scripted {
    Scripted::start(move |stream, requests| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            while let Some(path) = path_of(&mut stream).await {
                requests.fetch_add(1, Ordering::SeqCst);
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
            }
        }
    })
}
