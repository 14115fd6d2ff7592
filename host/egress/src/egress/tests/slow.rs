//! Upstreams that drip, stall, repeat without end, or break off, each at a different moment.

use super::*;

/// The behaviour of an upstream after a request's head arrived.
#[derive(Clone, Copy)]
enum Then {
    /// Writes this, and waits for the client to leave.
    Wait(&'static str),
    /// Writes the first text, and then repeats the second.
    Again(&'static str, &'static str),
    /// Writes this byte by byte, every 20 ms.
    Drip(&'static str),
    /// Writes this, and closes.
    Close(&'static str),
    /// Writes this, and resets a moment later.
    Reset(&'static str),
}

use Then::{Again, Close, Drip, Reset, Wait};

/// An upstream that counts the requests whose head arrived.
async fn upstream(then: Then) -> (Upstream, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let upstream = Upstream::start(move |_, mut stream| {
        let counter = Arc::clone(&counter);
        async move {
            if read_head(&mut stream).await.is_none() {
                return;
            }
            counter.fetch_add(1, Ordering::SeqCst);
            let mut rest = Vec::new();
            match then {
                Wait(text) => {
                    stream.write_all(text.as_bytes()).await.unwrap();
                    let _ = stream.read_to_end(&mut rest).await;
                }
                Again(first, again) => {
                    let _ = stream.write_all(first.as_bytes()).await;
                    while stream.write_all(again.repeat(32).as_bytes()).await.is_ok() {
                        tokio::task::yield_now().await;
                    }
                }
                Drip(text) => {
                    for byte in text.bytes().cycle() {
                        if stream.write_all(&[byte]).await.is_err() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
                Close(text) => {
                    stream.write_all(text.as_bytes()).await.unwrap();
                    let _ = stream.shutdown().await;
                    let _ = stream.read_to_end(&mut rest).await;
                }
                Reset(text) => {
                    stream.write_all(text.as_bytes()).await.unwrap();
                    // The client must read these bytes before the reset discards unread data.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    stream.set_zero_linger().unwrap();
                }
            }
        }
    })
    .await;
    (upstream, requests)
}

/// Each fault is reported with its own code, also for a request with a body, and causes one request at the
/// upstream.
#[tokio::test]
async fn every_late_fault_has_its_code_and_one_request() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let long_trailers: &str =
        format!("{CHUNKED}0\r\n{}\r\n", format!("a: {}\r\n", "b".repeat(1000)).repeat(80)).leak();
    let long_extension: &str = format!("{CHUNKED}1;{}\r\n", "x".repeat(20_000)).leak();
    for (what, then, word) in [
        ("silence", Wait(""), "timeout"),
        (
            "a slow head",
            Drip("HTTP/1.1 200 OK\r\nA: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"),
            "timeout",
        ),
        ("1xx without end", Again("", "HTTP/1.1 100 Continue\r\n\r\n"), "timeout"),
        ("early hints without end", Again("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), "timeout"),
        ("a reset at once", Reset(""), "reset"),
        ("a reset in the head", Reset("HTTP/1.1 200 OK\r\nConte"), "reset"),
        ("a reset in the body", Reset("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody"), "reset"),
        (
            "a reset in a chunk's size",
            Reset("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1"),
            "reset",
        ),
        (
            "a reset before the trailers",
            Reset("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"),
            "reset",
        ),
        ("the end at once", Close(""), "closed"),
        ("the end in the status", Close("HTTP/1."), "closed"),
        ("the end in the head", Close("HTTP/1.1 200 OK\r\nConte"), "closed"),
        ("the end after 1xx", Close("HTTP/1.1 100 Continue\r\n\r\n"), "closed"),
        ("too short a body", Close("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody"), "closed"),
        (
            "the end in a chunk",
            Close("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"),
            "closed",
        ),
        ("garbage", Close("\0\0\0\0\r\n\r\n"), "malformed_response"),
        (
            "no chunk",
            Close("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"),
            "malformed_response",
        ),
        (
            "a chunk longer than its size",
            Close("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n"),
            "malformed_response",
        ),
        (
            "a chunk of the largest size",
            Close("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"),
            "malformed_response",
        ),
        ("trailers that are too large", Close(long_trailers), "malformed_response"),
        ("a chunk extension without end", Close(long_extension), "malformed_response"),
        (
            "two lengths",
            Close("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"),
            "malformed_response",
        ),
        ("a body that stalls", Wait("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody"), "timeout"),
    ] {
        for body in ["", "a body"] {
            let (upstream, requests) = upstream(then).await;
            let request = Request::post(upstream.uri("/"));
            let request = request.body(http_body_util::Full::new(Bytes::from(body))).unwrap();
            let timeouts =
                quick().with_connect(Duration::from_secs(10)).with_between_bytes(Duration::from_millis(300));
            let error = match send(&upstream.client(), request, &timeouts).await {
                Err(SendError::Fault(error)) => error,
                Ok(response) => response.into_body().collect().await.expect_err(what),
                Err(other) => panic!("{what}: {other:?}"),
            };
            assert_eq!(
                (error.phase, error.code, error.request_sent),
                (RequestPhase::Response, word, true),
                "{what}"
            );
            assert_eq!((requests.load(Ordering::SeqCst), upstream.accepts()), (1, 1), "{what}");
        }
    }
}

#[tokio::test]
async fn a_dripping_body_is_read_within_the_timeout() {
    let (upstream, _) = upstream(Drip("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")).await;
    let request = Request::get(upstream.uri("/")).body(Empty::<Bytes>::new()).unwrap();
    let timeouts = EgressTimeouts::default().with_between_bytes(Duration::from_secs(5));
    assert_eq!(text(send(&upstream.client(), request, &timeouts).await.unwrap()).await, "hello");
}
