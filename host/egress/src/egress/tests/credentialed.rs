//! Requests that carry a credential: the fields that are removed from them, and the responses that are
//! rejected.

use cofferdam_core::failure::DenialCode;
use http::{HeaderName, HeaderValue, header};

use super::*;

fn bearer() -> Authorization {
    let value = HeaderValue::from_static("Bearer t");
    Authorization { injections: vec![Injection::Header(header::AUTHORIZATION, value)], ..Default::default() }
}

async fn ask(
    upstream: &Upstream,
    authorization: &Authorization,
    fields: &[(&'static str, &'static str)],
) -> Result<Response<ResponseBody>, SendError> {
    let mut request = Request::get(upstream.uri("/"));
    for (name, value) in fields {
        request = request.header(HeaderName::from_static(name), *value);
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let client = upstream.client();
    let target = client.policy().decide(request.uri(), None)?;
    client.send(request, &target, &EgressTimeouts::default(), authorization, None).await
}

/// A server that echoes the head of the request, and returns the part of it that a `Range` requests.
async fn echo() -> Upstream {
    Upstream::start(|_, mut stream| async move {
        while let Some(head) = read_head(&mut stream).await {
            let range = head.lines().find_map(|line| line.strip_prefix("range: bytes="));
            let range = range.and_then(|range| range.split_once('-'));
            let (status, body) = match range {
                Some((from, to)) => {
                    ("206 Partial Content", &head[from.parse().unwrap()..=to.parse().unwrap()])
                }
                None => ("200 OK", &head[..]),
            };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await
}

#[tokio::test]
async fn range_headers_are_dropped_with_a_credential() {
    let upstream = echo().await;
    let fields = [
        ("range", "bytes=0-5"),
        ("if-range", "\"x\""),
        ("if_range", "\"x\""),
        ("a-im", "range"),
        ("accept-charset", "utf-16"),
        ("accept", "text/plain"),
    ];
    let whole = text(ask(&upstream, &bearer(), &fields).await.unwrap()).await;
    let sent: Vec<_> = whole.lines().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    assert_eq!(sent, ["host", "accept", "authorization"], "{whole}");
    let open = ask(&upstream, &Authorization::default(), &fields).await.unwrap();
    assert_eq!(open.status(), 206, "a request without a credential keeps its Range");
    assert_eq!(text(open).await, "GET / ");
}

#[tokio::test]
async fn a_partial_answer_to_a_credential_is_refused() {
    for (status, refused) in [("206 Partial Content", true), ("226 IM Used", true), ("200 OK", false)] {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\nabc").leak();
        let upstream = Upstream::answering(answer).await;
        assert!(ask(&upstream, &Authorization::default(), &[]).await.is_ok(), "{status}");
        match ask(&upstream, &bearer(), &[]).await {
            Err(SendError::RefusedAnswer(denial)) if refused => {
                assert_eq!(denial.code(), DenialCode::PartialResponse);
                assert!(denial.message().contains("carries a credential"), "{denial}");
            }
            Ok(_) if !refused => {}
            other => panic!("{status}: {other:?}"),
        }
    }
}
