//! A token endpoint on loopback, with TLS or without, with scripted answers and a log of its requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::shared_host::run;

/// One request to the endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) authorization: Option<String>,
    pub(crate) form: String,
}

/// Status, body, and how long it takes.
pub(crate) type Answer = (u16, String, Duration);

type Script = dyn Fn(usize) -> Answer + Send + Sync;

/// The endpoint.
pub(crate) struct Issuer {
    pub(crate) port: u16,
    /// The certificate to trust, where it speaks TLS.
    pub(crate) root: Option<String>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Issuer {
    /// Answers the n-th request, from 0, with `script`.
    pub(crate) fn start(tls: bool, script: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let (acceptor, root) = if tls { server() } else { (None, None) };
        let script: Arc<Script> = Arc::new(script);
        let (remembers, listener) = (Arc::clone(&asked), run(TcpListener::bind("127.0.0.1:0")).unwrap());
        let port = listener.local_addr().unwrap().port();
        run(async move {
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let (acceptor, script, asked) =
                        (acceptor.clone(), Arc::clone(&script), Arc::clone(&remembers));
                    tokio::spawn(async move {
                        let answer = service_fn(move |request| {
                            answer(request, Arc::clone(&script), Arc::clone(&asked))
                        });
                        let http = hyper::server::conn::http1::Builder::new();
                        match acceptor {
                            None => drop(http.serve_connection(TokioIo::new(stream), answer).await),
                            Some(acceptor) => {
                                let Ok(stream) = acceptor.accept(stream).await else { return };
                                drop(http.serve_connection(TokioIo::new(stream), answer).await);
                            }
                        }
                    });
                }
            });
        });
        Self { port, root, asked }
    }

    pub(crate) fn host_port(&self) -> String {
        format!("localhost:{}", self.port)
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.root.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/token", self.host_port())
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

/// Tokens for an hour: `access-<n>`, and `refresh-<n>` to go on with.
pub(crate) fn rotating(n: usize) -> Answer {
    tokens(n, 3600)
}

/// The same for some seconds.
pub(crate) fn tokens(n: usize, seconds: u32) -> Answer {
    let body = format!(
        r#"{{"access_token":"access-{n}","token_type":"Bearer","expires_in":{seconds},"refresh_token":"refresh-{n}"}}"#
    );
    (200, body, Duration::from_millis(50))
}

async fn answer(
    request: Request<Incoming>,
    script: Arc<Script>,
    asked: Arc<Mutex<Vec<Asked>>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let authorization =
        request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let form = request.into_body().collect().await?.to_bytes();
    let number = {
        let mut asked = asked.lock().unwrap();
        asked.push(Asked { authorization, form: String::from_utf8(form.to_vec()).unwrap() });
        asked.len() - 1
    };
    let (status, body, after) = script(number);
    tokio::time::sleep(after).await;
    let response = Response::builder().status(status).header("location", "http://localhost:1/");
    Ok(response.body(Full::new(body.into())).unwrap())
}

fn server() -> (Option<TlsAcceptor>, Option<String>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = config.unwrap().with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key);
    (Some(TlsAcceptor::from(Arc::new(config.unwrap()))), Some(issuer.pem()))
}
