//! Failures of one request over HTTP/2, which do not affect other requests.

use std::sync::atomic::AtomicBool;

use cofferdam_core::failure::{LimitHit, LimitKind};
use cofferdam_core::limits::HEADER_BYTES;
use h2::Reason;
use http_body_util::Full;
use tokio_rustls::server::TlsStream;

use super::http2::{Http2, ok};
use super::*;

#[tokio::test]
async fn a_stream_that_the_server_resets_fails_alone() {
    let http2 = Http2::start(|request, mut answer| async move {
        match request.uri().path() {
            "/before" => answer.send_reset(Reason::INTERNAL_ERROR),
            "/refused" => answer.send_reset(Reason::REFUSED_STREAM),
            "/within" => {
                let mut stream = answer.send_response(Response::new(()), false).unwrap();
                stream.send_data(Bytes::from_static(b"some"), false).unwrap();
                tokio::time::sleep(Duration::from_millis(100)).await;
                stream.send_reset(Reason::CANCEL);
            }
            "/slow" => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                ok(answer, "slow");
            }
            _ => ok(answer, "ok"),
        }
    })
    .await;
    let beside = http2.get("/slow");
    let resets = async {
        for _ in 0..100 {
            assert_eq!(fault(http2.get("/before").await), (RequestPhase::Response, "reset", true));
        }
        assert_eq!(fault(http2.get("/refused").await), (RequestPhase::Response, "not_processed", true));
        let response = http2.get("/within").await.unwrap();
        let error = response.into_body().collect().await.unwrap_err();
        assert_eq!((error.phase, error.code, error.request_sent), (RequestPhase::Response, "reset", true));
    };
    let (beside, ()) = tokio::join!(beside, resets);
    assert_eq!(text(beside.unwrap()).await, "slow");
    assert_eq!(text(http2.get("/ok").await.unwrap()).await, "ok");
    assert_eq!(http2.upstream.accepts(), 1);
}

#[tokio::test]
async fn a_connection_that_ends_fails_what_is_on_it_as_sent() {
    for (reset, words) in [(true, ["reset", "closed"]), (false, ["closed", "closed"])] {
        let http2 = Http2::raw(move |_, stream| async move {
            let mut connection = h2::server::handshake::<_>(stream).await.unwrap();
            let taken = connection.accept().await.unwrap().unwrap();
            if !reset {
                connection.abrupt_shutdown(Reason::INTERNAL_ERROR);
                let _ = std::future::poll_fn(|cx| connection.poll_closed(cx)).await;
            }
            drop(taken);
        })
        .await;
        let (phase, word, sent) = fault(http2.get("/").await);
        assert!(
            (phase, sent) == (RequestPhase::Response, true) && words.contains(&word) || word == "reset",
            "{word}"
        );
        assert_eq!(http2.upstream.accepts(), 1, "not repeated");
    }
}

#[tokio::test]
async fn row_99_an_upload_that_the_server_does_not_take_stalls_alone_and_is_reset() {
    let reset = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&reset);
    let http2 = Http2::start(move |request, answer| {
        let seen = Arc::clone(&seen);
        async move {
            if request.uri().path() == "/ok" {
                return ok(answer, "ok");
            }
            let (_, mut body) = request.into_parts();
            // The window is never released, so that the client may send one window and no more.
            while let Some(data) = body.data().await {
                if data.is_err() {
                    return seen.store(true, Ordering::SeqCst);
                }
            }
        }
    })
    .await;
    let body = || Full::new(Bytes::from(vec![b'x'; 1024 * 1024]));
    let (stalled, beside) = tokio::join!(http2.post(body()), http2.get("/ok"));
    assert_eq!(fault(stalled), (RequestPhase::Send, "timeout", true));
    assert_eq!(text(beside.unwrap()).await, "ok");
    for _ in 0..100 {
        if reset.load(Ordering::SeqCst) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(reset.load(Ordering::SeqCst), "what is given up is reset");
    assert_eq!(http2.upstream.accepts(), 1);
}

#[tokio::test]
async fn a_body_that_breaks_its_promise_is_never_taken_for_whole() {
    let (sender, mut steps) = mpsc::unbounded_channel();
    let http2 = Http2::start(move |request, _answer| {
        let sender = sender.clone();
        async move {
            sender.send("begun").unwrap();
            let mut body = request.into_body();
            let mut end = "whole";
            while let Some(data) = body.data().await {
                if data.is_err() {
                    end = "cut off";
                    break;
                }
            }
            sender.send(end).unwrap();
        }
    })
    .await;
    for (length, data) in [("10", Ok("abc")), ("2", Ok("abc")), ("3", Err(std::io::Error::other("guest")))] {
        let (pipe, body) = Piped::open();
        let request = Request::post(http2.uri("/")).header("content-length", length).body(body).unwrap();
        let timeouts = EgressTimeouts::default();
        let (outcome, ()) = tokio::join!(send(&http2.client, request, &timeouts), async {
            assert_eq!(steps.recv().await, Some("begun"));
            pipe.send(data).unwrap();
            drop(pipe);
        });
        assert_eq!(fault(outcome), (RequestPhase::Send, "request_body", true));
        assert_eq!(steps.recv().await, Some("cut off"), "{length}");
    }
}

#[tokio::test]
async fn row_100_heads_that_are_too_large() {
    let http2 = Http2::start(|request, mut answer| async move {
        let (fields, bytes) = request.uri().path().trim_matches('/').split_once('/').unwrap();
        let mut response = Response::new(());
        for number in 0..fields.parse().unwrap() {
            let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
            let value = "x".repeat(bytes.parse().unwrap());
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        let _ = answer.send_response(response, true);
    })
    .await;
    for (path, limit, configured) in [
        ("/101/1", LimitKind::ResponseFields, 100),
        ("/70/1000", LimitKind::ResponseHeaders, HEADER_BYTES as u64),
    ] {
        match http2.get(path).await {
            Err(SendError::Limit(LimitHit { limit: hit, configured: at, used, .. })) => {
                assert_eq!((hit, at), (limit, configured));
                assert!(used > configured);
            }
            other => panic!("{path}: {other:?}"),
        }
    }
    // A head so large that it is not even decoded.
    assert_eq!(fault(http2.get("/90/4000").await), (RequestPhase::Response, "malformed_response", true));
    assert_eq!(http2.get("/100/600").await.unwrap().status(), 200);
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Starts a server whose frames are written by hand: sends its settings, after a request's head arrived.
async fn raw_request(stream: &mut TlsStream<TcpStream>) {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.unwrap();
        if head[3] == 1 {
            return;
        }
    }
}

#[tokio::test]
async fn frames_without_end_or_sense() {
    const STATUS_200: &[u8] = &[0x88];
    const STATUS_100: &[u8] = &[0x08, 3, b'1', b'0', b'0'];
    // A field name that is in no table, with a value of 100 bytes.
    let field = [&[0x00, 1, b'a', 100][..], &[b'b'; 100]].concat();
    let cases: Vec<(&str, &str, Vec<u8>, Vec<u8>)> = vec![
        (
            "CONTINUATION without end",
            "malformed_response",
            frame(1, 0, 1, STATUS_200),
            frame(9, 0, 1, &field),
        ),
        ("CONTINUATION, empty", "malformed_response", frame(1, 0, 1, STATUS_200), frame(9, 0, 1, &[])),
        ("1xx without end", "timeout", vec![], frame(1, 4, 1, STATUS_100)),
        ("SETTINGS without end", "timeout", vec![], frame(4, 0, 0, &[])),
        ("PING without end", "timeout", vec![], frame(6, 0, 0, &[7; 8])),
        ("a push", "malformed_response", frame(5, 4, 1, &[0, 0, 0, 2, 0x82]), vec![]),
        ("a stream that nobody opened", "malformed_response", frame(1, 4, 99, STATUS_200), vec![]),
        ("data before the head", "malformed_response", frame(0, 0, 1, b"data"), vec![]),
        (
            "a frame that is too long",
            "malformed_response",
            [&[0xff, 0xff, 0xff, 0, 0][..], &[0, 0, 0, 1]].concat(),
            vec![],
        ),
        (
            "a broken header block",
            "malformed_response",
            frame(1, 5, 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            vec![],
        ),
        ("HTTP/1.1", "malformed_response", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(), vec![]),
        (
            "a field of the connection",
            "malformed_response",
            frame(1, 5, 1, &[&[0x88, 0x00, 10][..], b"connection", &[5], b"close"].concat()),
            vec![],
        ),
        ("away, with this one unseen", "not_processed", frame(7, 0, 0, &[0; 8]), vec![]),
        ("nothing", "timeout", vec![], vec![]),
    ];
    for (what, word, first, again) in cases {
        let http2 = Http2::raw(move |_, mut stream| {
            let (first, again) = (first.clone(), again.clone());
            async move {
                raw_request(&mut stream).await;
                let _ = stream.write_all(&first).await;
                let _ = stream.flush().await;
                while !again.is_empty() {
                    if stream.write_all(&again.repeat(16)).await.is_err() {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        })
        .await;
        let outcome = http2.get_within("/", Duration::from_secs(1)).await;
        assert_eq!(fault(outcome), (RequestPhase::Response, word, true), "{what}");
    }
}

#[tokio::test]
async fn bodies_that_break_off_or_contradict_their_head() {
    for (length, data, end, word) in
        [("10", "hello", true, "malformed_response"), ("3", "hello", true, "malformed_response")]
    {
        let http2 = Http2::raw(move |_, mut stream| async move {
            raw_request(&mut stream).await;
            let head =
                [&[0x88, 0x0f, 13, u8::try_from(length.len()).unwrap()][..], length.as_bytes()].concat();
            stream.write_all(&frame(1, 4, 1, &head)).await.unwrap();
            stream.write_all(&frame(0, u8::from(end), 1, data.as_bytes())).await.unwrap();
            stream.flush().await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        })
        .await;
        let error = match http2.get_within("/", Duration::from_secs(5)).await {
            Ok(response) => response.into_body().collect().await.unwrap_err(),
            Err(SendError::Fault(error)) => error,
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(
            (error.phase, error.code, error.request_sent),
            (RequestPhase::Response, word, true),
            "{length}"
        );
    }
}

#[tokio::test]
async fn trailers_are_held_to_the_limits_of_a_head() {
    let http2 = Http2::start(|request, mut answer| async move {
        let fields: usize = request.uri().path()[1..].parse().unwrap();
        let mut trailers = http::HeaderMap::new();
        trailers.insert("set-cookie", "session=abc".parse().unwrap());
        for field in 1..fields {
            trailers.insert(http::HeaderName::try_from(format!("x-{field}")).unwrap(), "1".parse().unwrap());
        }
        let mut stream = answer.send_response(Response::new(()), false).unwrap();
        stream.send_data(Bytes::from_static(b"some"), false).unwrap();
        stream.send_trailers(trailers).unwrap();
    })
    .await;
    let whole = http2.get("/100").await.unwrap().into_body().collect().await.unwrap();
    let trailers = whole.trailers().unwrap();
    assert_eq!((trailers.len(), trailers.contains_key("set-cookie")), (99, false));
    let error = http2.get("/101").await.unwrap().into_body().collect().await.unwrap_err();
    assert_eq!((error.phase, error.code), (RequestPhase::Response, "headers_too_large"));
    assert_eq!(http2.upstream.accepts(), 1);
}
