//! The fields after a request's body.

use std::collections::VecDeque;

use http::HeaderMap;

use super::*;

/// One piece of data, and these fields after it.
struct Trailing(VecDeque<Frame<Bytes>>);

impl Trailing {
    fn with(name: &'static str) -> Self {
        let mut fields = HeaderMap::new();
        fields.insert(name, "5".parse().unwrap());
        Self([Frame::data(Bytes::from_static(b"abc")), Frame::trailers(fields)].into())
    }
}

impl Body for Trailing {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

#[tokio::test]
async fn trailers_obey_the_rules_of_headers() {
    for name in [
        "content-length",
        "content_length",
        "transfer-encoding",
        "host",
        "x-forwarded-for",
        "x_forwarded_for",
        "range",
        "authorization",
        "x-http-method-override",
    ] {
        let collected = CheckedTrailers::new(Trailing::with(name), |_| true).collect().await;
        assert!(matches!(collected, Err(TrailersError::Refused)), "{name}");
    }
    for name in ["x-checksum", "content-digest", "traceparent"] {
        let collected = CheckedTrailers::new(Trailing::with(name), |_| true).collect().await.unwrap();
        assert!(collected.trailers().unwrap().contains_key(name), "{name}");
        let refused = CheckedTrailers::new(Trailing::with(name), |_| false).collect().await;
        assert!(matches!(refused, Err(TrailersError::Refused)), "{name}: what the gate refuses");
    }
}

#[tokio::test]
async fn a_refused_trailer_is_not_sent() {
    let (sender, mut received) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |_, mut stream| {
        let sender = sender.clone();
        async move {
            let mut all = Vec::new();
            let _ = stream.read_to_end(&mut all).await;
            let _ = sender.send(String::from_utf8(all).unwrap());
        }
    })
    .await;
    let body = CheckedTrailers::new(Trailing::with("content-length"), |_| true);
    let request = Request::post(upstream.uri("/")).body(body).unwrap();
    let (phase, code, _) = fault(send(&upstream.client(), request, &quick()).await);
    assert_eq!((phase, code), (RequestPhase::Send, "request_body"));
    assert!(!received.recv().await.unwrap().contains("content-length"));
}
