//! Key sets from URLs: over real TLS, within bounds, without redirects, under the address rules of connectors.

use std::fs;

use cofferdam_model::trust::{KeySet, PublishedKey, SecretKey, SigningScope};
use cofferdam_test_support::{Cli, CommandResult, Home};
use jiff::Timestamp;
use tokio::io::AsyncWriteExt;

use super::fixture::{Scripted, acceptor, issuer};

/// A TLS server on localhost that answers with the bytes of the document, or as the path says.
fn server(document: String, tls: tokio_rustls::TlsAcceptor) -> Scripted {
    Scripted::start(move |stream, requests| {
        let (document, tls) = (document.clone(), tls.clone());
        async move {
            let Ok(mut stream) = tls.accept(stream).await else { return };
            let Some(path) = super::fixture::path_of(&mut stream).await else { return };
            requests.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let sized = |status: &str, body: &str| {
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            };
            let answer = match path.as_str() {
                "keys.json" => sized("200 OK", &document),
                "moved" => {
                    "HTTP/1.1 302 Found\r\nLocation: https://elsewhere.example/\r\nContent-Length: 0\r\n\r\n"
                        .into()
                }
                "endless" => "HTTP/1.1 200 OK\r\n\r\n".into(),
                _ => sized("404 Not Found", "none"),
            };
            drop(stream.write_all(answer.as_bytes()).await);
            while path == "endless" && stream.write_all(&[b' '; 4096]).await.is_ok() {}
            drop(stream.flush().await);
        }
    })
}

#[test]
fn a_key_set_is_imported_from_a_checked_url() {
    let own = issuer("the publisher's");
    let publisher = SigningScope::parse("github://firm/*").unwrap();
    let key = SecretKey::generate().unwrap();
    let published = PublishedKey::new(key.public(), vec![publisher.clone()], None, None).unwrap();
    let now = Timestamp::now();
    let times = (now, now + jiff::SignedDuration::from_hours(24));
    let document = KeySet::write(&publisher, times, &[published], &[&key]).unwrap();
    let fingerprint = format!("sha256:{}", cofferdam::Digest::sha256(document.as_bytes()));
    let server = server(document, acceptor(&own, "localhost", (2020, 2100)));
    let home = Home::new(crate::COFFERDAM);
    let cli = Cli::new(crate::COFFERDAM, home.path());
    fs::write(home.path().join("ca.pem"), own.pem()).unwrap();
    let import = |path: &str| -> CommandResult {
        let url = format!("https://localhost:{}/{path}", server.port);
        cli.run(&["trust", "import", &url, "--fingerprint", &fingerprint])
    };
    import("keys.json").fails(66).said("allow_private");
    assert_eq!(server.accepts(), 0, "a private address is not reached");
    let private = format!("allow_private = [\"localhost:{}\"]", server.port);
    fs::write(home.path().join("config.toml"), format!("[network]\n{private}\n")).unwrap();
    import("keys.json").fails(66).said("tls");
    assert_eq!(server.requests(), 0, "a stranger's certificate ends the connection");
    fs::write(home.path().join("config.toml"), format!("[network]\nextra_roots = [\"ca.pem\"]\n{private}\n"))
        .unwrap();
    import("moved").fails(66).said("redirects to https://elsewhere.example/");
    import("endless").fails(66).said("too long");
    import("none").fails(66).said("404");
    assert!(home.keyring().load().unwrap().entries().is_empty());
    import("keys.json").ok();
    let keyring = home.keyring().load().unwrap();
    assert_eq!(keyring.entries()[0].key(), &key.public());
    assert!(keyring.imports().next().unwrap().source().starts_with("https://localhost:"));
    let clear = "http://publisher.example/keys.json";
    cli.run(&["trust", "import", clear, "--fingerprint", &fingerprint]).fails(66).said("use https");
}
