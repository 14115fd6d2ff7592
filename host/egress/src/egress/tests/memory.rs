//! Large bodies pass through without being buffered: bytes that were read and not passed on, or taken and not
//! sent, are bounded.

use h2::Reason;

use super::http2::Http2;
use super::*;

const TEN_MB: u64 = 10 * 1024 * 1024;

/// The number of bytes that the host may hold between a socket and a guest.
const HELD: u64 = 300 * 1024;

/// Reads ten megabytes in steps, and checks after each how many more bytes arrived than were requested.
async fn read_slowly(response: Response<ResponseBody>) {
    let mut body = response.into_body();
    let (mut taken, mut most, mut steps) = (0, 0, 0);
    let before = body.connection_bytes();
    loop {
        if steps % 16 == 0 {
            // While the reader pauses, further bytes must wait outside.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        steps += 1;
        most = most.max(body.connection_bytes().saturating_sub(before + taken));
        match body.frame().await {
            Some(frame) => taken += frame.unwrap().data_ref().map_or(0, |data| data.len() as u64),
            None => break,
        }
    }
    assert_eq!(taken, TEN_MB);
    assert!(most <= HELD, "{most} bytes were held at once");
    assert!(most > 0, "nothing was ever held: what is measured here?");
}

#[tokio::test]
async fn ten_megabytes_come_without_being_held() {
    let upstream = Upstream::start(|_, mut stream| async move {
        read_head(&mut stream).await;
        stream
            .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {TEN_MB}\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let _ = stream.write_all(&vec![b'x'; TEN_MB as usize]).await;
    })
    .await;
    read_slowly(upstream.get().await.unwrap()).await;
    let http2 = Http2::start(|_, mut answer| async move {
        let mut stream = answer.send_response(Response::new(()), false).unwrap();
        // h2 holds the body for the server, and sends as much as the client's window allows.
        stream.send_data(Bytes::from(vec![b'x'; TEN_MB as usize]), true).unwrap();
        let _ = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
    })
    .await;
    read_slowly(http2.get("/").await.unwrap()).await;
}

/// A body of a given number of 16 KiB pieces, which counts how many were taken.
struct Pieces(u64, Arc<AtomicUsize>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.0 == 0 {
            return Poll::Ready(None);
        }
        self.0 -= 1;
        self.1.fetch_add(16 * 1024, Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16 * 1024])))))
    }
}

#[tokio::test]
async fn an_upload_is_taken_from_the_guest_as_the_server_takes_it() {
    let http2 = Http2::start(|request, mut answer| async move {
        let mut body = request.into_body();
        // The initial windows of a server, and no more.
        let _ = std::future::poll_fn(|cx| answer.poll_reset(cx)).await;
        while let Some(Ok(_)) = body.data().await {}
        answer.send_reset(Reason::CANCEL);
    })
    .await;
    let taken = Arc::new(AtomicUsize::new(0));
    let outcome = http2.post(Pieces(4096, Arc::clone(&taken))).await;
    assert_eq!(fault(outcome), (RequestPhase::Send, "timeout", true));
    let taken = taken.load(Ordering::SeqCst);
    assert!((64 * 1024..=96 * 1024).contains(&taken), "{taken} bytes were taken of the body");

    // Over HTTP/1.1 the kernel's socket buffers are added: some megabytes of the 64.
    let upstream = Upstream::start(|_, stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let taken = Arc::new(AtomicUsize::new(0));
    let request = Request::post(upstream.uri("/")).body(Pieces(4096, Arc::clone(&taken))).unwrap();
    assert_eq!(
        fault(send(&upstream.client(), request, &quick()).await),
        (RequestPhase::Send, "timeout", true)
    );
    let taken = taken.load(Ordering::SeqCst) as u64;
    assert!(taken < 16 * 1024 * 1024, "{taken} bytes were taken of the body");
}

#[tokio::test]
async fn ten_megabytes_go_whole() {
    let (sender, mut received) = mpsc::unbounded_channel();
    let http2 = Http2::start(move |request, mut answer| {
        let sender = sender.clone();
        async move {
            let (mut body, mut bytes) = (request.into_body(), 0);
            while let Some(Ok(data)) = body.data().await {
                bytes += data.len() as u64;
                body.flow_control().release_capacity(data.len()).unwrap();
            }
            sender.send(bytes).unwrap();
            answer.send_response(Response::new(()), true).unwrap();
        }
    })
    .await;
    let request = Request::post(http2.uri("/")).body(Pieces(TEN_MB / (16 * 1024), Arc::default())).unwrap();
    assert_eq!(send(&http2.client, request, &EgressTimeouts::default()).await.unwrap().status(), 200);
    assert_eq!(received.recv().await, Some(TEN_MB));
}
