//! HTTP/2 against real servers: connection sharing, and failures of single requests.

use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use rustls::pki_types::CertificateDer;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::tls::{issuer, server};
use super::*;

type Answer = SendResponse<Bytes>;

/// An upstream that speaks HTTP/2, and a client that trusts it.
pub(super) struct Http2 {
    pub(super) upstream: Upstream,
    root: CertificateDer<'static>,
    pub(super) client: EgressClient,
}

impl Http2 {
    /// Runs `script` for every connection after the TLS handshake.
    pub(super) async fn raw<F, R>(script: F) -> Self
    where
        F: Fn(usize, TlsStream<TcpStream>) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let issuer = issuer();
        let mut config = server(&issuer, NAME);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let script = Arc::new(script);
        let upstream = Upstream::start(move |number, stream| {
            let (acceptor, script) = (acceptor.clone(), Arc::clone(&script));
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    script(number, stream).await;
                }
            }
        })
        .await;
        let root = issuer.der().clone();
        let client = Self::another(&upstream, &root);
        Self { upstream, root, client }
    }

    /// Runs `script` for every request.
    pub(super) async fn start<F, R>(script: F) -> Self
    where
        F: Fn(Request<RecvStream>, Answer) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Self::configured(h2::server::Builder::new(), script).await
    }

    async fn configured<F, R>(http: h2::server::Builder, script: F) -> Self
    where
        F: Fn(Request<RecvStream>, Answer) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let script = Arc::new(script);
        Self::raw(move |_, stream| {
            let (http, script) = (http.clone(), Arc::clone(&script));
            async move {
                let Ok(mut connection) = http.handshake::<_, Bytes>(stream).await else { return };
                while let Some(Ok((request, answer))) = connection.accept().await {
                    tokio::spawn(script(request, answer));
                }
            }
        })
        .await
    }

    fn another(upstream: &Upstream, root: &CertificateDer<'static>) -> EgressClient {
        let grant = HostGrant::parse(&format!("{NAME}:{}", upstream.port)).unwrap();
        let private = PrivateGrant::parse(&format!("{grant}=127.0.0.0/8")).unwrap();
        let tls = Tls::new(RootCertificates::Bundled, [root.clone()]).unwrap();
        EgressClient::new(tls, Answers::of(&["127.0.0.1"]), EgressPolicy::new(&[grant], &[private]))
    }

    pub(super) fn uri(&self, path: &str) -> String {
        format!("https://{NAME}:{}{path}", self.upstream.port)
    }

    pub(super) async fn get(&self, path: &str) -> Result<Response<ResponseBody>, SendError> {
        self.get_within(path, Duration::from_secs(30)).await
    }

    pub(super) async fn get_within(
        &self,
        path: &str,
        within: Duration,
    ) -> Result<Response<ResponseBody>, SendError> {
        let request = Request::get(self.uri(path)).body(Empty::<Bytes>::new()).unwrap();
        send(&self.client, request, &EgressTimeouts::default().with_first_byte(within)).await
    }

    pub(super) async fn post<B>(&self, body: B) -> Result<Response<ResponseBody>, SendError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let request = Request::post(self.uri("/")).body(body).unwrap();
        send(&self.client, request, &EgressTimeouts::default().with_first_byte(SHORT)).await
    }
}

pub(super) const SHORT: Duration = Duration::from_millis(500);

pub(super) fn ok(mut answer: Answer, body: &'static str) {
    let mut stream = answer.send_response(Response::new(()), false).unwrap();
    let _ = stream.send_data(Bytes::from_static(body.as_bytes()), true);
}

/// Answers requests to `/ok`, and hangs on all others until the client resets the stream.
async fn ok_or_hang(request: Request<RecvStream>, mut answer: Answer) {
    match request.uri().path() {
        "/ok" => ok(answer, "ok"),
        _ => drop(std::future::poll_fn(|cx| answer.poll_reset(cx)).await),
    }
}

#[tokio::test]
async fn many_requests_at_once_share_one_connection() {
    let together = Arc::new(tokio::sync::Barrier::new(20));
    let http2 = Http2::start(move |_, answer| {
        let together = Arc::clone(&together);
        async move {
            together.wait().await;
            ok(answer, "ok");
        }
    })
    .await;
    let http2 = Arc::new(http2);
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let http2 = Arc::clone(&http2);
        requests.spawn(async move { text(http2.get("/").await.unwrap()).await });
    }
    assert!(requests.join_all().await.iter().all(|text| text == "ok"));
    assert_eq!(http2.upstream.accepts(), 1, "none was answered before all had come");
}

#[tokio::test]
async fn what_is_full_is_followed_by_another() {
    let together = Arc::new(tokio::sync::Barrier::new(40));
    let http2 = Arc::new(
        Http2::start(move |_, answer| {
            let together = Arc::clone(&together);
            async move {
                together.wait().await;
                ok(answer, "ok");
            }
        })
        .await,
    );
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let http2 = Arc::clone(&http2);
        requests.spawn(async move { text(http2.get("/").await.unwrap()).await });
    }
    requests.join_all().await;
    assert_eq!(http2.upstream.accepts(), 2);
}

#[tokio::test]
async fn neither_connectors_nor_credentials_share_a_connection() {
    let http2 = Http2::start(|_, answer| async move { ok(answer, "ok") }).await;
    let target = RequestTarget::from_uri(&http2.uri("/").parse().unwrap()).unwrap();
    let other = Http2::another(&http2.upstream, &http2.root);
    for (client, identity, connections) in [
        (&http2.client, None, 1),
        (&http2.client, Some("api_key/a/b"), 2),
        (&http2.client, Some("api_key/a/c"), 3),
        (&http2.client, Some("api_key/a/b"), 3),
        (&http2.client, None, 3),
        (&other, None, 4),
    ] {
        let authorization = Authorization { identity: identity.map(Into::into), ..Authorization::default() };
        let request = Request::get(http2.uri("/")).body(Empty::<Bytes>::new()).unwrap();
        let response = client
            .send(request, &target, &EgressTimeouts::default(), &authorization, RequestDeparture::default())
            .await
            .unwrap();
        assert_eq!(text(response).await, "ok");
        assert_eq!(http2.upstream.accepts(), connections, "{identity:?}");
    }
}

#[tokio::test]
async fn rows_78_and_91_the_server_is_named_once_and_no_field_is_the_connections() {
    let (sender, mut seen) = mpsc::unbounded_channel();
    let http2 = Http2::start(move |request, answer| {
        let sender = sender.clone();
        async move {
            let (head, mut body) = request.into_parts();
            let mut bytes = Vec::new();
            while let Some(Ok(data)) = body.data().await {
                bytes.extend_from_slice(&data);
            }
            sender.send((head, String::from_utf8(bytes).unwrap())).unwrap();
            ok(answer, "ok");
        }
    })
    .await;
    for (method, declared, data) in [
        ("GET", None, ""),
        ("POST", None, "abc"),
        ("POST", Some("3"), "abc"),
        ("DELETE", None, "abc"),
        ("PUT", Some("0"), ""),
    ] {
        let (pipe, body) = Piped::open();
        if !data.is_empty() {
            pipe.send(Ok(data)).unwrap();
        }
        drop(pipe);
        let mut request =
            Request::builder().method(method).uri(http2.uri("/a?b=c")).header("host", "evil.example");
        for name in ["connection", "te", "upgrade", "transfer-encoding", "keep-alive", "http2-settings"] {
            request = request.header(name, "trailers, chunked");
        }
        if let Some(length) = declared {
            request = request.header("content-length", length);
        }
        send(&http2.client, request.body(body).unwrap(), &EgressTimeouts::default()).await.unwrap();
        let (head, body) = seen.recv().await.unwrap();
        assert_eq!((head.version, body.as_str()), (http::Version::HTTP_2, data));
        assert_eq!(head.uri.authority().unwrap().as_str(), format!("{NAME}:{}", http2.upstream.port));
        assert_eq!(head.uri.path_and_query().unwrap().as_str(), "/a?b=c");
        let names: Vec<_> = head.headers.keys().map(http::HeaderName::as_str).collect();
        assert!(names.iter().all(|name| *name == "content-length"), "{names:?}");
    }
    assert_eq!(http2.upstream.accepts(), 1);
}

#[tokio::test]
async fn a_server_that_goes_away_finishes_what_it_has_and_gets_no_more() {
    let http2 = Http2::raw(|_, stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (_, answer) = connection.accept().await.unwrap().unwrap();
        connection.graceful_shutdown();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            ok(answer, "ok");
        });
        while connection.accept().await.is_some() {}
    })
    .await;
    for round in 1..=3 {
        assert_eq!(text(http2.get("/").await.unwrap()).await, "ok");
        assert_eq!(http2.upstream.accepts(), round);
    }
}

#[tokio::test]
async fn what_waits_for_its_turn_at_the_server_was_not_sent() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let mut http = h2::server::Builder::new();
    http.max_concurrent_streams(1);
    let http2 = Http2::configured(http, move |request, answer| {
        counter.fetch_add(1, Ordering::SeqCst);
        ok_or_hang(request, answer)
    })
    .await;
    assert_eq!(text(http2.get("/ok").await.unwrap()).await, "ok");
    let (hangs, waits) = tokio::join!(http2.get_within("/hang", SHORT * 2), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        http2.get_within("/ok", SHORT / 2).await
    });
    assert_eq!(fault(hangs), (RequestPhase::Response, "timeout", true));
    assert_eq!(fault(waits), (RequestPhase::Send, "timeout", false));
    assert_eq!(text(http2.get("/ok").await.unwrap()).await, "ok");
    assert_eq!(requests.load(Ordering::SeqCst), 3, "the one that waited never came");
}

#[tokio::test]
async fn a_request_that_is_dropped_resets_its_stream_and_no_other() {
    let (sender, mut resets) = mpsc::unbounded_channel();
    let http2 = Http2::start(move |request, mut answer| {
        let sender = sender.clone();
        async move {
            match request.uri().path() {
                "/ok" => ok(answer, "ok"),
                "/hang" => {
                    sender.send(std::future::poll_fn(|cx| answer.poll_reset(cx)).await.unwrap()).unwrap();
                }
                _ => {
                    let mut stream = answer.send_response(Response::new(()), false).unwrap();
                    stream.send_data(Bytes::from_static(b"some"), false).unwrap();
                    sender.send(std::future::poll_fn(|cx| stream.poll_reset(cx)).await.unwrap()).unwrap();
                }
            }
        }
    })
    .await;
    assert_eq!(text(http2.get("/ok").await.unwrap()).await, "ok");
    let given_up = tokio::time::timeout(Duration::from_millis(200), http2.get("/hang")).await;
    assert!(given_up.is_err());
    assert_eq!(resets.recv().await, Some(Reason::CANCEL));
    // A connection on which nothing arrived meanwhile gets no new requests, but its running ones continue.
    let unread = http2.get("/unread").await.unwrap();
    drop(unread);
    assert_eq!(resets.recv().await, Some(Reason::CANCEL));
    let before = http2.upstream.accepts();
    assert_eq!(text(http2.get("/ok").await.unwrap()).await, "ok");
    assert_eq!(http2.upstream.accepts(), before);
}

#[tokio::test]
async fn a_connection_that_went_silent_is_not_used_again() {
    let http2 = Http2::raw(|number, stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (_, answer) = connection.accept().await.unwrap().unwrap();
        ok(answer, "ok");
        if number == 0 {
            // Pending frames are flushed; then it reads and writes no more.
            let _ = tokio::time::timeout(Duration::from_millis(200), connection.accept()).await;
            std::future::pending::<()>().await;
        }
        while connection.accept().await.is_some() {}
    })
    .await;
    assert_eq!(text(http2.get("/").await.unwrap()).await, "ok");
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(fault(http2.get_within("/", SHORT).await), (RequestPhase::Response, "timeout", true));
    assert_eq!(text(http2.get("/").await.unwrap()).await, "ok");
    assert_eq!(http2.upstream.accepts(), 2);
}
