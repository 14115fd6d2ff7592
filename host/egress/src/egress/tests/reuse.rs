//! Connection reuse, and the cancellation of all work for a request that is dropped.

use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_connection_is_reused() {
    for response in [
        OK,
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ] {
        let upstream = Upstream::answering(response).await;
        let client = upstream.client();
        for _ in 0..20 {
            text(get(&client, &upstream.uri("/")).await.unwrap()).await;
        }
        assert_eq!(upstream.accepts(), 1, "{response}");
        text(get(&upstream.client(), &upstream.uri("/")).await.unwrap()).await;
        assert_eq!(upstream.accepts(), 2, "clients share nothing");
    }
}

#[tokio::test]
async fn connectors_and_credentials_share_no_connection() {
    let upstream = Upstream::answering(OK).await;
    let uri = upstream.uri("/");
    let target = RequestTarget::from_uri(&uri.parse().unwrap()).unwrap();
    let (one, other) = (upstream.client(), upstream.client());
    for (client, identity, connections) in [
        (&one, None, 1),
        (&one, Some("api_key/a/b"), 2),
        (&one, Some("api_key/a/c"), 3),
        (&one, Some("api_key/a/b"), 3),
        (&one, None, 3),
        (&other, None, 4),
    ] {
        let authorization = Authorization { identity: identity.map(Into::into), ..Authorization::default() };
        let request = Request::get(&uri).body(Empty::<Bytes>::new()).unwrap();
        let times = EgressTimeouts::default();
        let response = client.send(request, &target, &times, &authorization, None).await.unwrap();
        assert_eq!(text(response).await, "ok");
        assert_eq!(upstream.accepts(), connections, "{identity:?}");
    }
}

#[tokio::test]
async fn a_connection_closed_while_idle_is_replaced() {
    let upstream = Upstream::start(|_, mut stream| async move {
        read_head(&mut stream).await.unwrap();
        stream.write_all(OK.as_bytes()).await.unwrap();
    })
    .await;
    let client = upstream.client();
    for round in 1..=5 {
        assert_eq!(text(get(&client, &upstream.uri("/")).await.unwrap()).await, "ok");
        assert_eq!(upstream.accepts(), round);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_request_on_a_dying_connection_is_not_resent() {
    let upstream = Upstream::start(|_, mut stream| async move {
        read_head(&mut stream).await.unwrap();
        stream.write_all(OK.as_bytes()).await.unwrap();
        read_head(&mut stream).await.unwrap();
    })
    .await;
    let client = upstream.client();
    text(get(&client, &upstream.uri("/")).await.unwrap()).await;
    assert_eq!(fault(get(&client, &upstream.uri("/")).await), (RequestPhase::Response, "closed", true));
    assert_eq!(upstream.accepts(), 1);
}

#[tokio::test]
async fn unrequested_bytes_close_the_connection() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    )
    .await;
    let client = upstream.client();
    for round in 1..=3 {
        assert_eq!(text(get(&client, &upstream.uri("/")).await.unwrap()).await, "ok");
        assert_eq!(upstream.accepts(), round);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// An upstream that reports when a connection ends, after answering its first request with `response`.
async fn watched(response: &'static str) -> (Upstream, mpsc::UnboundedReceiver<()>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |_, mut stream| {
        let sender = sender.clone();
        async move {
            read_head(&mut stream).await.unwrap();
            stream.write_all(response.as_bytes()).await.unwrap();
            let mut bytes = [0; 4096];
            while let Ok(1..) = stream.read(&mut bytes).await {}
            let _ = sender.send(());
        }
    })
    .await;
    (upstream, receiver)
}

#[tokio::test]
async fn dropping_a_response_closes_its_connection() {
    let (upstream, mut ended) = watched("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nok").await;
    let client = upstream.client();
    drop(get(&client, &upstream.uri("/")).await.unwrap());
    tokio::time::timeout(Duration::from_secs(10), ended.recv()).await.expect("the connection ends").unwrap();
}

#[tokio::test]
async fn a_dropped_request_ends_at_the_server() {
    let (upstream, mut ended) = watched("").await;
    let client = upstream.client();
    let (client, uri) = (&client, upstream.uri("/"));
    tokio::time::timeout(Duration::from_millis(100), get(client, &uri)).await.expect_err("no answer comes");
    tokio::time::timeout(Duration::from_secs(10), ended.recv()).await.expect("the connection ends").unwrap();
}

#[tokio::test]
async fn an_early_response_ends_the_connection() {
    let (upstream, mut ended) = watched(OK).await;
    let client = upstream.client();
    let (_sender, body) = Piped::open();
    let request = Request::post(upstream.uri("/")).body(body).unwrap();
    let response = send(&client, request, &EgressTimeouts::default()).await.unwrap();
    assert_eq!(text(response).await, "ok");
    tokio::time::timeout(Duration::from_secs(10), ended.recv()).await.expect("the connection ends").unwrap();
    text(get(&client, &upstream.uri("/")).await.unwrap()).await;
    assert_eq!(upstream.accepts(), 2);
}
