//! Upstreams, names and certificates that misbehave, as a caller of a real guest sees them.

#[path = "network/addresses.rs"]
mod addresses;
#[path = "network/fixture.rs"]
mod fixture;
#[path = "network/key_sets.rs"]
mod key_sets;

use cofferdam_test_support::{InstallAccepted as _, log_capture};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::envelope::{check, denied, limit, network};
use crate::shared_host::run;
use fixture::{NetworkFixture, Scripted, acceptor, issuer, misbehave, secure};

/// The code, phase and `request_sent` of a network error.
fn parts(failure: &cofferdam::Failure) -> (Value, Value, Value) {
    let details = failure.details();
    (details["code"].clone(), details["phase"].clone(), details["request_sent"].clone())
}

/// 24 faults, for an operation that may be repeated and for one that may not. One attempt each: retries are the
/// topic of `faulty_proxy`.
#[test]
fn every_network_fault_has_its_envelope() {
    let upstream = Scripted::start(misbehave);
    let silent = Scripted::start(|stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
    });
    let plain = Scripted::start(|mut stream, _| async move {
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = stream.read(&mut [0; 1024]).await;
    });
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let to = |name: &str, port| format!("http://{name}:{port}");
    let up = to("up.test", upstream.port);
    let grants = [
        up.clone(),
        to("nowhere.test", 80),
        to("broken.test", 80),
        to("stalls.test", 80),
        to("closed.test", closed),
        format!("silent.test:{}", silent.port),
        format!("up.test:{}", upstream.port),
        format!("up.test:{}", plain.port),
    ];
    let place = NetworkFixture::new(&grants, None);
    let faults = [
        ("http://nowhere.test".to_owned(), ("dns_not_found", "dns", false)),
        ("http://broken.test".to_owned(), ("dns_failed", "dns", false)),
        (to("closed.test", closed), ("refused", "connect", false)),
        // A server without TLS gets a ClientHello, and no request.
        (format!("{up}/nothing/reset"), ("reset", "response", true)),
        (format!("{up}/nothing/close"), ("closed", "response", true)),
        (format!("{up}/in-head/reset"), ("reset", "response", true)),
        (format!("{up}/in-head/close"), ("closed", "response", true)),
        (format!("{up}/in-body/reset"), ("reset", "response", true)),
        (format!("{up}/in-body/close"), ("closed", "response", true)),
        (format!("{up}/in-chunk/close"), ("closed", "response", true)),
        (format!("{up}/no-chunk/close"), ("malformed_response", "response", true)),
        (format!("{up}/garbage/close"), ("malformed_response", "response", true)),
        (format!("{up}/two-lengths/close"), ("malformed_response", "response", true)),
    ];
    let plain = place.failure("fetch", json!({"url": format!("https://up.test:{}", plain.port)}));
    check(&plain, network("not_tls", false));
    assert_eq!(parts(&plain), (json!("not_tls"), json!("tls"), json!(false)));
    assert!(plain.message().contains("http://host:port"), "{plain}");
    for (url, (code, phase, sent)) in faults {
        for (op, args, retriable) in
            [("fetch", json!({"url": url}), true), ("post", json!({"url": url, "body": "once"}), false)]
        {
            let before = upstream.requests();
            let failure = place.failure(op, args);
            check(&failure, network(code, retriable));
            assert_eq!(parts(&failure), (json!(code), json!(phase), json!(sent)), "{op} {url}");
            assert_eq!(upstream.requests() - before, usize::from(sent), "{op} {url}");
        }
    }
    // Endless responses are ended by the call's own limits, at every place where they stall.
    for (url, code) in [
        ("http://stalls.test".to_owned(), "wall_time"),
        (format!("https://silent.test:{}", silent.port), "wall_time"),
        (format!("{up}/silence"), "wall_time"),
        (format!("{up}/early/continue"), "wall_time"),
        (format!("{up}/slow/drip"), "wall_time"),
        (format!("{up}/in-body/stall"), "wall_time"),
        (format!("{up}/endless/chunks"), "response_body"),
        (format!("{up}/fields/close"), "response_fields"),
        (format!("{up}/long-field/close"), "response_headers"),
    ] {
        let time = if code == "wall_time" { "700ms" } else { "30s" };
        for (op, args) in [("fetch", json!({"url": url})), ("post", json!({"url": url, "body": "once"}))] {
            let before = upstream.requests();
            let failure = place.failure_within(op, args, time);
            check(&failure, limit(code));
            // Neither a lookup nor a TLS hello is a part of the request.
            let connects = url.contains("stalls.test") || url.contains("silent.test");
            assert_eq!(failure.details()["request_sent"], !connects, "{op} {url}");
            assert!(upstream.requests() - before <= 1, "{op} {url}");
        }
    }
    let stalled = json!({"url": format!("{up}/no/reading"), "bytes": 9_000_000});
    check(&place.failure_within("post_bytes", stalled, "1s"), limit("wall_time"));
    // Not decompressed: the guest gets the bytes that arrived.
    let gzip = place.call("fetch", json!({"url": format!("{up}/gzip/close")})).unwrap();
    assert_eq!(gzip["body"], "not gzip!");
}

#[test]
fn each_invalid_certificate_has_its_code() {
    let (own, strange) = (issuer("own"), issuer("strange"));
    let servers = [
        ("tls_expired", secure(acceptor(&own, "up.test", (2019, 2020)))),
        ("tls_not_yet_valid", secure(acceptor(&own, "up.test", (2990, 2999)))),
        ("tls_wrong_host", secure(acceptor(&own, "down.test", (2000, 2999)))),
        ("tls_unknown_issuer", secure(acceptor(&strange, "up.test", (2000, 2999)))),
        ("", secure(acceptor(&own, "up.test", (2000, 2999)))),
    ];
    let grants: Vec<_> = servers.iter().map(|(_, server)| format!("up.test:{}", server.port)).collect();
    let place = NetworkFixture::new(&grants, Some(&own.pem()));
    for ((word, server), grant) in servers.iter().zip(&grants) {
        let url = format!("https://{grant}/hello");
        if word.is_empty() {
            assert_eq!(place.call("fetch", json!({"url": url})).unwrap()["body"], "hello");
            continue;
        }
        let failure = place.failure("post", json!({"url": url, "body": "secret"}));
        check(&failure, network(word, false));
        assert_eq!(parts(&failure), (json!(word), json!("tls"), json!(false)));
        assert_eq!((server.accepts(), server.requests()), (1, 0), "{word}");
        let notes = failure.operator_notes().join("\n");
        assert_eq!(notes.contains("remedy: "), *word != "tls_wrong_host", "{word}: {notes}");
        assert!(!failure.message().contains("remedy"), "for the operator alone: {}", failure.message());
    }
}

/// A denied request reaches neither the resolver nor the network.
#[test]
fn a_denial_resolves_no_name_and_connects_to_nothing() {
    let upstream = Scripted::start(misbehave);
    let (port, grant) = (upstream.port, format!("up.test:{}", upstream.port));
    let place = NetworkFixture::new(std::slice::from_ref(&grant), None);
    for (url, code) in [
        (format!("https://other.test:{port}/"), "host_not_granted"),
        (format!("https://sub.up.test:{port}/"), "host_not_granted"),
        (format!("https://up.test.other.test:{port}/"), "host_not_granted"),
        ("https://up.test/".to_owned(), "host_not_granted"),
        (format!("http://up.test:{port}/"), "insecure_url"),
        (format!("https://127.0.0.1:{port}/"), "host_not_granted"),
        (format!("https://[::1]:{port}/"), "host_not_granted"),
        (format!("https://[::ffff:7f00:1]:{port}/"), "host_not_granted"),
        ("https://169.254.169.254/latest".to_owned(), "host_not_granted"),
        (format!("https://up.test@other.test:{port}/"), "invalid_authority"),
        (format!("https://2130706433:{port}/"), "invalid_authority"),
        (format!("https://0x7f.1:{port}/"), "invalid_authority"),
        (format!("https://127.1:{port}/"), "invalid_authority"),
    ] {
        let failure =
            place.failure("persist", json!({"first": url, "denied": url, "after": url, "times": 2}));
        check(&failure, denied(code));
        assert_eq!(*place.names.0.lock().unwrap(), [""; 0], "{url}");
        assert_eq!(upstream.accepts(), 0, "{url}");
    }
}

/// The proxy of the environment is for other programs; and what a record says of a remedy is for operators.
#[test]
fn a_machine_without_root_certificates_gets_a_remedy() {
    let own = issuer("own");
    let upstream = secure(acceptor(&own, "localhost", (2000, 2999)));
    let proxy = Scripted::start(misbehave);
    log_capture::catch();
    let home = cofferdam_test_support::Home::new(crate::COFFERDAM);
    let signer = cofferdam_test_support::Signer::new();
    home.trust(&signer.public(), "github://cofferdam/*");
    let grant = format!("localhost:{}", upstream.port);
    let bytes = cofferdam_test_support::package::guest_package("probe", std::slice::from_ref(&grant));
    let signature = signer.sign(&bytes);
    run(home.host().install_accepted(bytes, Some(signature), Default::default())).unwrap();
    let ca = home.path().join("ca.pem");
    std::fs::write(&ca, own.pem()).unwrap();
    let call = |config: &str, roots: &std::path::Path| {
        std::fs::write(home.path().join("config.toml"), format!("[network]\n{config}")).unwrap();
        let proxy = format!("http://127.0.0.1:{}", proxy.port);
        let mut command = std::process::Command::new(crate::COFFERDAM);
        command.args(["--format", "json", "--home"]).arg(home.path());
        command.args(["call", "--allow-private", &grant, "github://cofferdam/probe@0.1.0", "post"]);
        // Not repeated: a command waits between attempts in earnest.
        command.arg(json!({"url": format!("https://{grant}/hello"), "body": ""}).to_string());
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            command.env(name, &proxy);
        }
        command.env("SSL_CERT_FILE", roots).env("SSL_CERT_DIR", home.path().join("none"));
        let output = command.env("RUST_LOG", "cofferdam=info").output().unwrap();
        (
            serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let none = home.path().join("none.pem");
    let (answer, log) = call("", &none);
    assert_eq!(answer["error"]["details"]["code"], "tls_no_roots", "{answer} {log}");
    assert!(log.contains("ca-certificates"), "{log}");
    let (answer, log) = call("roots = \"bundled\"", &ca);
    assert_eq!(answer["error"]["details"]["code"], "tls_unknown_issuer", "{answer} {log}");
    for (config, roots) in [("", &ca), ("extra_roots = [\"ca.pem\"]", &none)] {
        let (answer, log) = call(config, roots);
        assert_eq!(answer["body"], "hello", "{config}: {answer} {log}");
    }
    assert_eq!(proxy.accepts(), 0, "no proxy is asked");
}

/// Every test that `docs/reference/network.md` names for an attack exists.
#[test]
fn the_tests_that_the_page_names_exist() {
    let root = cofferdam_test_support::package::repository();
    let page = std::fs::read_to_string(root.join("docs/reference/network.md")).unwrap();
    let (mut sources, mut folders) =
        (String::new(), vec![root.join("tests"), root.join("host/egress/src/egress")]);
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.extension() {
                Some(kind) if kind == "rs" => sources += &std::fs::read_to_string(path).unwrap(),
                None if path.is_dir() => folders.push(path),
                _ => {}
            }
        }
    }
    let is_path =
        |word: &&str| word.contains("::") && !word.contains(['(', '/', '\n']) && !word.ends_with("::");
    let named: Vec<_> = page.split('`').filter(is_path).collect();
    assert!(named.len() > 30, "{named:?}");
    for test in named {
        let name = test.rsplit("::").next().unwrap();
        let name = name.strip_suffix("..").map_or(format!("fn {name}()"), |start| format!("fn {start}"));
        assert!(sources.contains(&name), "{test}");
    }
}
