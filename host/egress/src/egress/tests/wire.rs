//! The request on the wire, and the parts of the response that a guest sees.

use cofferdam_core::failure::{LimitHit, LimitKind};
use http::{HeaderName, Method};
use http_body_util::Full;

use super::*;

/// An upstream that answers and returns everything it received, until the client is done.
async fn recording(response: &'static str) -> (Upstream, mpsc::UnboundedReceiver<String>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |_, mut stream| {
        let sender = sender.clone();
        async move {
            let mut bytes = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                let _ = sender.send(String::from_utf8(bytes[..count].to_vec()).unwrap());
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    (upstream, receiver)
}

const NO_CONTENT: &str = "HTTP/1.1 204 No Content\r\n\r\n";

#[tokio::test]
async fn host_and_framing_headers_are_the_hosts_own() {
    let (upstream, mut received) = recording(NO_CONTENT).await;
    let mut request = Request::get(upstream.uri("/a/b?c=d")).header("host", "evil.example");
    for name in [
        "connection",
        "te",
        "expect",
        "proxy-authorization",
        "x-forwarded-for",
        "upgrade",
        "transfer-encoding",
    ] {
        request = request.header(HeaderName::from_static(name), "keep-alive, upgrade, chunked");
    }
    let request = request.header("x-own", "1").header("x-own", "2").header("authorization", "Bearer t");
    let request = request.version(http::Version::HTTP_2).body(Empty::<Bytes>::new()).unwrap();
    send(&upstream.client(), request, &EgressTimeouts::default()).await.unwrap();
    let expected = format!(
        "GET /a/b?c=d HTTP/1.1\r\nhost: {NAME}:{}\r\nx-own: 1\r\nx-own: 2\r\nauthorization: Bearer t\r\n\r\n",
        upstream.port
    );
    assert_eq!(received.recv().await.unwrap(), expected);
}

#[tokio::test]
async fn a_body_has_one_length_or_chunks() {
    let (upstream, mut received) = recording(NO_CONTENT).await;
    let head =
        |method: &str, rest: &str| format!("{method} / HTTP/1.1\r\nhost: {NAME}:{}\r\n{rest}", upstream.port);
    let client = upstream.client();
    for (method, declared, data, expected) in [
        ("POST", None, "abc", "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
        ("POST", Some("3"), "abc", "content-length: 3\r\n\r\nabc"),
        ("GET", None, "", "\r\n"),
        ("HEAD", None, "", "\r\n"),
        ("GET", None, "abc", "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
        ("GET", Some("3"), "abc", "content-length: 3\r\n\r\nabc"),
        ("DELETE", None, "", "\r\n"),
        ("DELETE", None, "abc", "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
    ] {
        let (sender, body) = Piped::open();
        if !data.is_empty() {
            sender.send(Ok(data)).unwrap();
        }
        drop(sender);
        let mut request = Request::builder().method(method).uri(upstream.uri("/"));
        if let Some(length) = declared {
            request = request.header("content-length", length);
        }
        send(&client, request.body(body).unwrap(), &EgressTimeouts::default()).await.unwrap();
        let mut bytes = String::new();
        while bytes.len() < head(method, expected).len() {
            bytes += &received.recv().await.unwrap();
        }
        assert_eq!(bytes, head(method, expected), "{method} {declared:?} {data:?}");
    }
    let request = Request::put(upstream.uri("/")).body(Full::new(Bytes::from("abc"))).unwrap();
    send(&client, request, &EgressTimeouts::default()).await.unwrap();
    assert!(received.recv().await.unwrap().contains("content-length: 3\r\n"));
    let request = Request::post(upstream.uri("/")).body(Empty::<Bytes>::new()).unwrap();
    send(&client, request, &EgressTimeouts::default()).await.unwrap();
    assert_eq!(received.recv().await.unwrap(), head("POST", "content-length: 0\r\n\r\n"));
    assert_eq!(upstream.accepts(), 1, "every one of them leaves a connection that can be used again");
}

#[tokio::test]
async fn contradictory_requests_are_never_sent() {
    let (upstream, _) = recording(NO_CONTENT).await;
    let client = upstream.client();
    let check = async |method: Method, path: &str, lengths: &[&str], body: &'static str| {
        let mut request = Request::builder().method(method).uri(path);
        for length in lengths {
            request = request.header("content-length", *length);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let target = RequestTarget::from_uri(&upstream.uri("/").parse().unwrap()).unwrap();
        match client.send(request, &target, &quick(), &Authorization::default(), None).await.unwrap_err() {
            SendError::Flawed(flaw) => flaw,
            other => panic!("{other:?}"),
        }
    };
    for lengths in [&["5"][..], &["3", "3"], &["+3"], &[" "], &["0x3"], &["3, 3"], &["99999999999999999999"]]
    {
        assert_eq!(check(Method::POST, "/", lengths, "abc").await, RequestFlaw::ContentLength, "{lengths:?}");
    }
    assert_eq!(check(Method::GET, "/", &["5"], "").await, RequestFlaw::ContentLength);
    assert_eq!(check(Method::GET, "*", &[], "").await, RequestFlaw::Path);
    let large = Request::get(upstream.uri("/"))
        .header("a", "b".repeat(64 * 1024))
        .body(Empty::<Bytes>::new())
        .unwrap();
    let outcome = send(&client, large, &quick()).await;
    assert!(
        matches!(
            outcome,
            Err(SendError::Limit(LimitHit { limit: LimitKind::RequestHeaders, used: 65_542.., .. }))
        ),
        "{outcome:?}"
    );
    assert_eq!(upstream.accepts(), 0);
}

#[tokio::test]
async fn a_body_shorter_than_promised_is_a_request_error() {
    let (upstream, _) = recording("").await;
    let (sender, short) = Piped::open();
    sender.send(Ok("abc")).unwrap();
    drop(sender);
    let request = Request::post(upstream.uri("/")).header("content-length", "10").body(short).unwrap();
    let (phase, word, _) = fault(send(&upstream.client(), request, &quick()).await);
    assert_eq!((phase, word), (RequestPhase::Send, "request_body"));
    let (sender, broken) = Piped::open();
    sender.send(Err(std::io::Error::other("guest"))).unwrap();
    let request = Request::post(upstream.uri("/")).body(broken).unwrap();
    let (phase, word, _) = fault(send(&upstream.client(), request, &quick()).await);
    assert_eq!((phase, word), (RequestPhase::Send, "request_body"));
}

#[tokio::test]
async fn redirects_and_cookies_are_not_followed() {
    let upstream = Upstream::answering(
        "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nSet-Cookie: a=b\r\nset-cookie2: c\r\n\
         Link: <x>; rel=next\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nxyz",
    )
    .await;
    let response = upstream.get().await.unwrap();
    assert_eq!(response.status(), 302);
    assert_eq!(response.headers()["location"], "http://169.254.169.254/");
    assert_eq!(response.headers()["link"], "<x>; rel=next");
    assert!(!response.headers().keys().any(|name| name.as_str().starts_with("set-cookie")));
    assert_eq!(text(response).await, "xyz", "not decompressed");
    assert_eq!(upstream.accepts(), 1);
}

#[tokio::test]
async fn cookies_in_trailers_are_removed() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nSet-Cookie: session=abc\r\n\
         Checksum: 1\r\n\r\n",
    )
    .await;
    let body = upstream.get().await.unwrap().into_body().collect().await.unwrap();
    let names: Vec<_> = body.trailers().unwrap().keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["checksum"]);
}

#[tokio::test]
async fn trailers_are_held_to_the_limits_of_a_head() {
    for (fields, fits) in [(100, true), (101, false)] {
        let others: String = (1..fields).map(|number| format!("x-{number}: 1\r\n")).collect();
        let answer =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nSet-Cookie: a=b\r\n";
        let upstream = Upstream::answering(format!("{answer}{others}\r\n").leak()).await;
        let body = upstream.get().await.unwrap().into_body().collect().await;
        match body {
            Ok(body) if fits => assert_eq!(body.trailers().unwrap().len(), 99),
            Err(error) if !fits => assert_eq!(error.code, "malformed_response"),
            other => panic!("{fields}: {other:?}"),
        }
    }
}
