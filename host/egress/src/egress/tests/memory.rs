//! Large bodies pass through without being buffered: bytes that were read and not passed on, or taken and not
//! sent, are bounded.

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
async fn a_large_download_is_streamed() {
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
async fn an_upload_follows_the_servers_pace() {
    // The kernel's socket buffers hold some megabytes of the 64.
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
async fn a_large_upload_arrives_complete() {
    let (sender, mut received) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |_, mut stream| {
        let sender = sender.clone();
        async move {
            read_head(&mut stream).await.unwrap();
            let mut body = vec![0; TEN_MB as usize];
            stream.read_exact(&mut body).await.unwrap();
            sender.send(body.iter().all(|byte| *byte == b'x')).unwrap();
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        }
    })
    .await;
    let request = Request::post(upstream.uri("/")).header("content-length", TEN_MB);
    let request = request.body(Pieces(TEN_MB / (16 * 1024), Arc::default())).unwrap();
    assert_eq!(send(&upstream.client(), request, &EgressTimeouts::default()).await.unwrap().status(), 204);
    assert_eq!(received.recv().await, Some(true));
}
