//! TLS against certificates generated here: the accepted one, and the errors of the others.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::*;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn issuer() -> Issuer {
    issuer_named("issuer")
}

fn issuer_named(name: &str) -> Issuer {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// The validity of a certificate.
#[derive(Clone, Copy)]
enum Holds {
    Now,
    NoMore,
    NotYet,
}

/// A server with a currently valid certificate for `name`.
fn server(issuer: &Issuer, name: &str) -> ServerConfig {
    server_with(issuer, name, Holds::Now, |_| {})
}

fn server_with(
    issuer: &Issuer,
    name: &str,
    holds: Holds,
    edit: impl FnOnce(&mut CertificateParams),
) -> ServerConfig {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    match holds {
        Holds::Now => {}
        Holds::NoMore => {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        Holds::NotYet => params.not_before = date_time_ymd(2999, 1, 1),
    }
    edit(&mut params);
    let chain = vec![params.signed_by(&key, issuer).unwrap().der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    config.with_no_client_auth().with_single_cert(chain, key).unwrap()
}

/// Starts an upstream that answers with the name for which the client requested the certificate.
async fn start(config: ServerConfig) -> Upstream {
    let config = Arc::new(config);
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
    let private = PrivateGrant::parse(&format!("{grant}=127.0.0.0/8")).unwrap();
    let policy = EgressPolicy::new(&[grant], &[private]);
    let client = EgressClient::new(default_tls(roots).unwrap(), Answers::of(&["127.0.0.1"]), policy);
    // Upper case and a trailing dot in the request: the certificate is requested for the canonical name.
    let uri = format!("https://SERVICE.test.:{}/", upstream.port);
    let request = Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
    send(&client, request, &quick().with_connect(Duration::from_secs(5))).await
}

#[tokio::test]
async fn an_added_root_is_trusted_for_the_canonical_name() {
    let issuer = issuer();
    let upstream = start(server(&issuer, NAME)).await;
    let roots = roots_from_pem(issuer.pem().as_bytes()).unwrap();
    assert_eq!(text(secure_get(&upstream, roots).await.unwrap()).await, NAME);
}

#[tokio::test]
async fn invalid_certificates_are_refused() {
    let issuer = issuer();
    let root = issuer.der().clone();
    let with = |name, holds| server_with(&issuer, name, holds, |_| {});
    let an_authority = server_with(&issuer, NAME, Holds::Now, |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    let for_clients = server_with(&issuer, NAME, Holds::Now, |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    });
    for (word, config, roots) in [
        ("tls_unknown_issuer", server(&issuer, NAME), vec![]),
        ("tls_expired", with(NAME, Holds::NoMore), vec![root.clone()]),
        ("tls_not_yet_valid", with(NAME, Holds::NotYet), vec![root.clone()]),
        ("tls_wrong_host", with("other.test", Holds::Now), vec![root.clone()]),
        // A certificate for the parent name only.
        ("tls_wrong_host", with("test", Holds::Now), vec![root.clone()]),
        ("tls_certificate", an_authority, vec![root.clone()]),
        ("tls_certificate", for_clients, vec![root]),
    ] {
        let upstream = start(config).await;
        let outcome = secure_get(&upstream, roots).await;
        assert_eq!(fault(outcome), (RequestPhase::Tls, word, false));
    }
}

#[tokio::test]
async fn http_1_1_is_the_only_protocol_offered() {
    let issuer = issuer();
    for (protocols, spoken) in [(&["h2", "http/1.1"][..], true), (&["h2"], false)] {
        let mut config = server(&issuer, NAME);
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let upstream = start(config).await;
        match secure_get(&upstream, [issuer.der().clone()]).await {
            Ok(response) if spoken => assert_eq!(text(response).await, NAME),
            outcome => {
                assert!(!spoken, "{outcome:?}");
                assert_eq!(fault(outcome), (RequestPhase::Tls, "tls_handshake", false));
            }
        }
    }
}

/// A platform without any authority is distinguished from a server with an untrusted certificate.
#[tokio::test]
async fn missing_root_certificates_are_reported() {
    let issuer = issuer();
    let upstream = start(server(&issuer, NAME)).await;
    let roots = [issuer.der().clone()];
    let bare = |extra: &[CertificateDer<'static>]| Tls::without_platform_roots(extra.to_vec()).unwrap();
    let ask = async |tls| {
        let grant = HostGrant::parse(&format!("{NAME}:{}", upstream.port)).unwrap();
        let private = PrivateGrant::parse(&format!("{grant}=127.0.0.0/8")).unwrap();
        let policy = EgressPolicy::new(&[grant], &[private]);
        let client = EgressClient::new(tls, Answers::of(&["127.0.0.1"]), policy);
        get(&client, &format!("https://{NAME}:{}/", upstream.port)).await
    };
    assert_eq!(fault(ask(bare(&[])).await), (RequestPhase::Tls, "tls_no_roots", false));
    let other = issuer_named("another");
    assert_eq!(fault(ask(bare(&[other.der().clone()])).await), (RequestPhase::Tls, "tls_no_roots", false));
    assert_eq!(ask(bare(&roots)).await.unwrap().status(), 200, "the operator's own authority is enough");
    let bundled = Tls::new(RootCertificates::Bundled, []).unwrap();
    assert_eq!(fault(ask(bundled).await), (RequestPhase::Tls, "tls_unknown_issuer", false));
    let bundled = Tls::new(RootCertificates::Bundled, roots).unwrap();
    assert_eq!(ask(bundled).await.unwrap().status(), 200);
}

#[tokio::test]
async fn failed_handshakes_have_their_codes() {
    // An alert that says "protocol version", and a ServerHello of TLS 1.0.
    let old = [&[22, 3, 1, 0, 42, 2, 0, 0, 38, 3, 1][..], &[7; 32], &[0, 0, 47, 0]].concat().leak();
    let cases: [(&str, Option<&[u8]>, bool); 6] = [
        ("tls_protocol_version", Some(&[21, 3, 1, 0, 2, 2, 70]), false),
        ("tls_protocol_version", Some(old), false),
        ("not_tls", Some(b"HTTP/1.1 400 Bad Request\r\n\r\n"), false),
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
        assert_eq!(fault(secure_get(&upstream, []).await), (RequestPhase::Tls, word, false));
    }
}

#[tokio::test]
async fn a_stalled_handshake_uses_the_connect_timeout() {
    let upstream = Upstream::start(|_, stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let grant = format!("{NAME}:{}", upstream.port);
    let client = client(&grant, true, Answers::of(&["127.0.0.1"]));
    let request = Request::get(format!("https://{grant}/")).body(Empty::<Bytes>::new()).unwrap();
    assert_eq!(fault(send(&client, request, &quick()).await), (RequestPhase::Tls, "timeout", false));
}

#[tokio::test]
async fn a_tls_reset_after_the_request_counts_as_sent() {
    let issuer = issuer();
    let config = Arc::new(server(&issuer, NAME));
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
    assert_eq!(fault(outcome), (RequestPhase::Response, "reset", true));
}

#[test]
fn invalid_root_certificates_are_refused() {
    assert_eq!(roots_from_pem(b"no certificate here"), Err(TlsSetupError::NoCertificate));
    let broken = "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
    assert!(matches!(roots_from_pem(broken.as_bytes()), Err(TlsSetupError::Pem(_))));
    let refused = default_tls([CertificateDer::from(vec![1, 2, 3])]);
    assert!(matches!(refused, Err(TlsSetupError::Root { number: 1, .. })));
}
