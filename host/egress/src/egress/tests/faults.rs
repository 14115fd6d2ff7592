//! Every failure of a request, each with its exact phase, code and `request_sent`.

use cofferdam_core::failure::{DenialCode, LimitKind};
use cofferdam_core::limits::HEADER_BYTES;
use tokio::net::TcpSocket;

use super::*;

const PORT: &str = "http://service.test:9";

#[tokio::test]
async fn nothing_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let client = client(&format!("http://{NAME}:{port}"), true, Answers::of(&["127.0.0.1", "127.0.0.2"]));
    let outcome = get(&client, &format!("http://{NAME}:{port}/")).await;
    assert_eq!(fault(outcome), (RequestPhase::Connect, "refused", false));
}

#[tokio::test]
async fn failed_lookups_have_their_codes() {
    for (resolver, word) in [
        (Answers::failing(ResolveError::NotFound), "dns_not_found"),
        (Answers::failing(ResolveError::Failed), "dns_failed"),
        (Answers::of(&[]), "dns_not_found"),
    ] {
        let outcome = get(&client(PORT, false, resolver), PORT).await;
        assert_eq!(fault(outcome), (RequestPhase::Dns, word, false));
    }
}

#[tokio::test]
async fn a_stalled_lookup_times_out() {
    struct Stalls;
    impl Resolve for Stalls {
        fn resolve<'a>(&'a self, _: &'a str) -> ResolvedAddresses<'a> {
            Box::pin(std::future::pending())
        }
    }
    let request = Request::get(PORT).body(Empty::<Bytes>::new()).unwrap();
    let outcome = send(&client(PORT, false, Arc::new(Stalls)), request, &quick()).await;
    assert_eq!(fault(outcome), (RequestPhase::Dns, "timeout", false));
}

#[tokio::test]
async fn a_private_address_is_refused_before_connecting() {
    let upstream = Upstream::answering("HTTP/1.1 204 No Content\r\n\r\n").await;
    let grant = upstream.uri("");
    for address in ["127.0.0.1", "::ffff:127.0.0.1", "::1", "0.0.0.0", "::", "169.254.169.254"] {
        let answers = Answers::of(&[address]);
        let client = client(&grant, false, answers.clone());
        match get(&client, &upstream.uri("/")).await {
            Err(SendError::Refused(refusal)) => {
                assert_eq!(refusal.code(), DenialCode::PrivateAddress);
                assert_eq!(refusal.address(), Some(address.parse().unwrap()));
            }
            other => panic!("{address}: {other:?}"),
        }
        assert_eq!(*answers.asked.lock().unwrap(), [NAME], "one lookup");
    }
    assert_eq!(upstream.accepts(), 0);
    assert_eq!(upstream.get().await.unwrap().status(), 204, "the operator may allow it");
    assert_eq!(upstream.accepts(), 1);
}

#[tokio::test]
async fn an_ungranted_target_is_not_resolved() {
    let answers = Answers::of(&["8.8.8.8"]);
    let client = client(PORT, false, answers.clone());
    let other = RequestTarget::from_uri(&"http://other.test:9".parse().unwrap()).unwrap();
    let request = Request::get(PORT).body(Empty::<Bytes>::new()).unwrap();
    let outcome = client.send(request, &other, &quick(), &Authorization::default(), None).await;
    assert!(
        matches!(outcome, Err(SendError::Refused(refusal)) if refusal.code() == DenialCode::HostNotGranted)
    );
    assert!(answers.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_dead_address_does_not_hide_a_live_one() {
    let upstream = Upstream::answering("HTTP/1.1 204 No Content\r\n\r\n").await;
    let answers = Answers::of(&["127.0.0.9", "127.0.0.1"]);
    let client = client(&upstream.uri(""), true, answers);
    assert_eq!(get(&client, &upstream.uri("/")).await.unwrap().status(), 204);
}

/// A listener with a full queue, so that Linux drops further connection attempts.
async fn full_listener(address: &str) -> (tokio::net::TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(address.parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        queued.push(stream);
        assert!(queued.len() < 16, "the queue never fills");
    }
    (listener, queued)
}

#[tokio::test]
async fn a_connect_that_stalls_times_out_or_is_overtaken() {
    let (stalled, _queued) = full_listener("127.0.0.3:0").await;
    let port = stalled.local_addr().unwrap().port();
    let grant = format!("http://{NAME}:{port}");
    let request = || Request::get(&grant).body(Empty::<Bytes>::new()).unwrap();
    let outcome = send(&client(&grant, true, Answers::of(&["127.0.0.3"])), request(), &quick()).await;
    assert_eq!(fault(outcome), (RequestPhase::Connect, "timeout", false));

    let live = TcpListener::bind(("127.0.0.4", port)).await.unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = live.accept().await.unwrap();
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    });
    let client = client(&grant, true, Answers::of(&["127.0.0.3", "127.0.0.4"]));
    assert_eq!(send(&client, request(), &EgressTimeouts::default()).await.unwrap().status(), 204);
}

#[tokio::test]
async fn a_reset_after_the_request() {
    let upstream = Upstream::start(|_, mut stream| async move {
        read_head(&mut stream).await.unwrap();
        stream.set_zero_linger().unwrap();
    })
    .await;
    assert_eq!(fault(upstream.get().await), (RequestPhase::Response, "reset", true));
    assert_eq!(upstream.accepts(), 1, "not repeated");
}

#[tokio::test]
async fn an_early_reset_may_or_may_not_have_sent() {
    let upstream = Upstream::start(|_, stream| async move { stream.set_zero_linger().unwrap() }).await;
    for _ in 0..20 {
        // Either the reset or the request may be first; the result must fit both.
        let (phase, word, sent) = fault(upstream.get().await);
        assert!(matches!(word, "reset" | "closed"), "{word}");
        assert!(sent || phase == RequestPhase::Send);
    }
    assert_eq!(upstream.accepts(), 20, "not repeated");
}

/// A body that never ends.
struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16 * 1024])))))
    }
}

#[tokio::test]
async fn a_reset_while_the_body_is_still_being_sent() {
    let upstream = Upstream::start(|_, mut stream| async move {
        read_head(&mut stream).await.unwrap();
        stream.set_zero_linger().unwrap();
    })
    .await;
    let request = Request::post(upstream.uri("/")).body(Endless).unwrap();
    let outcome = send(&upstream.client(), request, &EgressTimeouts::default()).await;
    assert_eq!(fault(outcome), (RequestPhase::Send, "reset", true));
}

#[tokio::test]
async fn a_body_that_never_starts_times_out() {
    let upstream = Upstream::answering("HTTP/1.1 204 No Content\r\n\r\n").await;
    let (_sender, body) = Piped::open();
    let request = Request::get(upstream.uri("/")).body(body).unwrap();
    assert_eq!(
        fault(send(&upstream.client(), request, &quick()).await),
        (RequestPhase::Send, "timeout", false)
    );
    assert_eq!(upstream.accepts(), 0);
}

#[tokio::test]
async fn unsolicited_data_is_not_taken_as_a_response() {
    let upstream = Upstream::start(|_, mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil").await.unwrap();
        read_head(&mut stream).await;
    })
    .await;
    // The upstream may speak before the request is written, except on an idle connection.
    let client = upstream.client();
    if let Ok(response) = get(&client, &upstream.uri("/")).await {
        text(response).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let _ = get(&client, &upstream.uri("/")).await;
    assert_eq!(upstream.accepts(), 2, "it is not used again");
}

#[tokio::test]
async fn a_stalled_upload_times_out() {
    let upstream = Upstream::start(|_, stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let request = Request::post(upstream.uri("/")).body(Endless).unwrap();
    assert_eq!(
        fault(send(&upstream.client(), request, &quick()).await),
        (RequestPhase::Send, "timeout", true)
    );
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let upstream = Upstream::start(|_, mut stream| async move {
        read_head(&mut stream).await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let request = Request::get(upstream.uri("/")).body(Empty::<Bytes>::new()).unwrap();
    assert_eq!(
        fault(send(&upstream.client(), request, &quick()).await),
        (RequestPhase::Response, "timeout", true)
    );
}

#[tokio::test]
async fn malformed_responses_have_their_codes() {
    for (answer, word) in [
        ("", "closed"),
        ("HTTP/1.1 200 OK\r\nContent-Le", "closed"),
        ("\x16\x03\x01 garbage\r\n\r\n", "malformed_response"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "malformed_response"),
        ("HTTP/1.1 999999 X\r\n\r\n", "malformed_response"),
        ("HTTP/1.1 200 OK\r\nbad name: x\r\n\r\n", "malformed_response"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "malformed_response"),
        ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nxxxxx", "malformed_response"),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            "malformed_response",
        ),
    ] {
        let upstream = Upstream::start(move |_, mut stream| async move {
            read_head(&mut stream).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        })
        .await;
        assert_eq!(fault(upstream.get().await), (RequestPhase::Response, word, true), "{answer:?}");
    }
}

#[tokio::test]
async fn oversized_heads_are_refused() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
    let long = format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "b".repeat(64 * 1024));
    let endless = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(1024 * 1024));
    // Exactly the largest head that is held, in fields whose number is allowed.
    let mut full = format!("HTTP/1.1 200 OK\r\n{}", format!("a: {}\r\n", "b".repeat(700)).repeat(93));
    full.truncate(HEADER_BYTES);
    assert_eq!(full.len(), HEADER_BYTES);
    let announced = HEADER_BYTES as u64;
    for (bomb, limit, configured) in [
        (many, LimitKind::ResponseFields, 100),
        (long, LimitKind::ResponseHeaders, announced),
        (endless, LimitKind::ResponseHeaders, announced),
        (full, LimitKind::ResponseHeaders, announced),
    ] {
        let bomb = Arc::new(bomb);
        let upstream = Upstream::start(move |_, mut stream| {
            let bomb = Arc::clone(&bomb);
            async move {
                read_head(&mut stream).await.unwrap();
                let _ = stream.write_all(bomb.as_bytes()).await;
                // The connection stays open until the client closes it: the size must decide, not the end.
                let _ = stream.read_u8().await;
            }
        })
        .await;
        let Err(SendError::Limit(hit)) = upstream.get().await else { panic!("not a limit: {limit:?}") };
        assert_eq!((hit.limit, hit.configured), (limit, configured));
        assert!(hit.used > configured, "{hit:?}");
    }
    for fits in [
        format!("HTTP/1.1 204 OK\r\na: {}\r\n\r\n", "b".repeat(60 * 1024)),
        format!("HTTP/1.1 204 OK\r\n{}\r\n", "a: b\r\n".repeat(100)),
    ] {
        assert_eq!(Upstream::answering(fits.leak()).await.get().await.unwrap().status(), 204);
    }
}

#[tokio::test]
async fn broken_or_malformed_bodies_have_their_codes() {
    for (answer, reset, word) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", false, "closed"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", false, "closed"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", true, "reset"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n", false, "malformed_response"),
    ] {
        let upstream = Upstream::start(move |_, mut stream| async move {
            read_head(&mut stream).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            if reset {
                // The client must read the head before the reset discards unread data.
                tokio::time::sleep(Duration::from_millis(100)).await;
                stream.set_zero_linger().unwrap();
            }
        })
        .await;
        let response = upstream.get().await.unwrap();
        assert_eq!(response.status(), 200);
        let error = response.into_body().collect().await.unwrap_err();
        assert_eq!(
            (error.phase, error.code, error.request_sent),
            (RequestPhase::Response, word, true),
            "{answer:?}"
        );
    }
}
