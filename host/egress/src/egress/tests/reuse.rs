//! Connection reuse, and the cancellation of all work for a request that is dropped.

use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn one_connection_serves_request_after_request() {
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
async fn a_connection_that_the_server_closed_while_it_waited_is_replaced_unseen() {
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
async fn row_106_a_request_that_was_written_to_a_dying_connection_is_not_repeated() {
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
async fn what_nobody_asked_for_closes_the_connection() {
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
async fn a_response_that_is_dropped_unread_takes_its_connection_along() {
    let (upstream, mut ended) = watched("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nok").await;
    let client = upstream.client();
    drop(get(&client, &upstream.uri("/")).await.unwrap());
    tokio::time::timeout(Duration::from_secs(10), ended.recv()).await.expect("the connection ends").unwrap();
}

#[tokio::test]
async fn a_request_that_is_dropped_while_it_waits_ends_at_the_server() {
    let (upstream, mut ended) = watched("").await;
    let client = upstream.client();
    let (client, uri) = (&client, upstream.uri("/"));
    tokio::time::timeout(Duration::from_millis(100), get(client, &uri)).await.expect_err("no answer comes");
    tokio::time::timeout(Duration::from_secs(10), ended.recv()).await.expect("the connection ends").unwrap();
}

#[tokio::test]
async fn an_answer_before_the_whole_request_ends_the_connection_with_the_response() {
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
