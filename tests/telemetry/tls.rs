//! A collector behind TLS: believed where the environment names its authority, and not otherwise.

use std::sync::Arc;

use cofferdam_test_support::services::Authority;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::decode::spans;
use super::fixture::{collector, fetch, ran, words};
use crate::shared_host::{begin, run, shared_host};

/// Terminates TLS in front of this port; returns the address.
fn before(to: u16, authority: &Authority) -> u16 {
    let (certificate, key) = authority.certify(&["localhost"]);
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = run(TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    begin(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut outside) = acceptor.accept(stream).await else { continue };
            let mut inside = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
            drop(tokio::io::copy_bidirectional(&mut outside, &mut inside).await);
        }
    });
    port
}

#[test]
fn a_collector_is_trusted_by_the_named_authority() {
    let (collector, authority) = (collector(), Authority::new());
    let endpoint = format!("https://localhost:{}", before(collector.port(), &authority));
    let pem = shared_host().home.path().join("authority-of-the-collector.pem");
    std::fs::write(&pem, authority.pem()).unwrap();
    let args = fetch("/text/secure");
    let stranger = ran(&words(&args), &endpoint, &[]);
    assert!(
        stranger.stderr.contains("spans could not be sent: invalid peer certificate"),
        "{}",
        stranger.stderr
    );
    stranger.ok();
    assert!(spans(&collector).is_empty());
    let known =
        ran(&words(&args), &endpoint, &[("OTEL_EXPORTER_OTLP_CERTIFICATE", &pem.display().to_string())]);
    assert_eq!(known.stderr, "");
    known.ok();
    assert!(spans(&collector).iter().any(|span| span.name == "call"));
}
