//! TLS against certificates made here: which one is believed, and how the others fail.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::*;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn issuer() -> Issuer {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn server(issuer: &Issuer, name: &str, expired: bool) -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    if expired {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    }
    let chain = vec![params.signed_by(&key, issuer).unwrap().der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap())
}

/// An upstream that answers with the name that the client asked the certificate for.
async fn start(config: Arc<ServerConfig>) -> Upstream {
    Upstream::start(move |_, stream| {
        let acceptor = TlsAcceptor::from(Arc::clone(&config));
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let name = stream.get_ref().1.server_name().unwrap_or_default().to_owned();
            while read_head(&mut stream).await.is_some() {
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
            }
        }
    })
    .await
}

async fn secure_get(
    upstream: &Upstream,
    roots: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<Response<ResponseBody>, SendError> {
    let grant = HostGrant::parse(&format!("{NAME}:{}", upstream.port)).unwrap();
    let private = HostPort::parse(&grant.to_string()).unwrap();
    let policy = Policy::new(&[grant], &[private]);
    let client = Client::new(default_tls(roots).unwrap(), Answers::of(&["127.0.0.1"]), policy);
    // Upper case and a trailing dot in the request: the certificate is asked for in the one spelling.
    let uri = format!("https://SERVICE.test.:{}/", upstream.port);
    let request = Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
    send(&client, request, &quick().with_connect(Duration::from_secs(5))).await
}

#[tokio::test]
async fn row_80_a_root_that_the_operator_adds_is_believed_for_the_canonical_name() {
    let issuer = issuer();
    let upstream = start(server(&issuer, NAME, false)).await;
    let roots = roots_from_pem(issuer.pem().as_bytes()).unwrap();
    assert_eq!(text(secure_get(&upstream, roots).await.unwrap()).await, NAME);
}

#[tokio::test]
async fn row_104_certificates_that_do_not_hold() {
    let issuer = issuer();
    let root = issuer.der().clone();
    for (what, config, roots) in [
        ("unknown issuer", server(&issuer, NAME, false), vec![]),
        ("expired", server(&issuer, NAME, true), vec![root.clone()]),
        ("another name", server(&issuer, "other.test", false), vec![root.clone()]),
        ("only the parent's name", server(&issuer, "test", false), vec![root]),
    ] {
        let upstream = start(config).await;
        let outcome = secure_get(&upstream, roots).await;
        assert_eq!(fault(outcome), (Phase::Tls, "tls_certificate", false), "{what}");
    }
}

#[tokio::test]
async fn rows_97_and_105_handshakes_that_fail() {
    let cases: [(&str, Option<&[u8]>, bool); 4] = [
        ("tls_handshake", Some(b"HTTP/1.1 400 Bad Request\r\n\r\n"), false),
        ("tls_handshake", Some(&[21, 3, 3, 0, 2, 2, 40]), false),
        ("closed", Some(b""), false),
        ("reset", Some(b""), true),
    ];
    for (word, answer, reset) in cases {
        let upstream = Upstream::start(move |_, mut stream| async move {
            let mut hello = [0; 4096];
            assert_ne!(stream.read(&mut hello).await.unwrap(), 0);
            stream.write_all(answer.unwrap()).await.unwrap();
            if reset {
                stream.set_zero_linger().unwrap();
            }
        })
        .await;
        assert_eq!(fault(secure_get(&upstream, []).await), (Phase::Tls, word, false));
    }
}

#[tokio::test]
async fn row_97_a_handshake_that_stalls_is_inside_the_connect_timeout() {
    let upstream = Upstream::start(|_, stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let grant = format!("{NAME}:{}", upstream.port);
    let client = client(&grant, true, Answers::of(&["127.0.0.1"]));
    let request = Request::get(format!("https://{grant}/")).body(Empty::<Bytes>::new()).unwrap();
    assert_eq!(fault(send(&client, request, &quick()).await), (Phase::Tls, "timeout", false));
}

#[tokio::test]
async fn row_106_a_reset_after_a_request_over_tls_counts_as_sent() {
    let issuer = issuer();
    let config = server(&issuer, NAME, false);
    let upstream = Upstream::start(move |_, stream| {
        let acceptor = TlsAcceptor::from(Arc::clone(&config));
        async move {
            let mut stream = acceptor.accept(stream).await.unwrap();
            read_head(&mut stream).await.unwrap();
            stream.get_ref().0.set_zero_linger().unwrap();
        }
    })
    .await;
    let outcome = secure_get(&upstream, [issuer.der().clone()]).await;
    assert_eq!(fault(outcome), (Phase::Response, "reset", true));
}

#[test]
fn roots_that_are_none() {
    assert_eq!(roots_from_pem(b"no certificate here"), Err(TlsSetupError::NoCertificate));
    let broken = "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
    assert!(matches!(roots_from_pem(broken.as_bytes()), Err(TlsSetupError::Pem(_))));
    let refused = default_tls([CertificateDer::from(vec![1, 2, 3])]);
    assert!(matches!(refused, Err(TlsSetupError::Root { number: 1, .. })));
}
