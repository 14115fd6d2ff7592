//! A request above the stream limit of an HTTP/2 server, on a healthy connection: it is not sent, then or
//! later.

use tokio::sync::Notify;
use tokio_rustls::server::TlsStream;

use super::http2::{Http2, SHORT};
use super::http2_faults::frame;
use super::*;

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;

/// Accepts one request at a time. Answers each at once except the second, which waits for `release`. Sends
/// pings meanwhile, and reports kind and stream of each HEADERS and RST_STREAM.
async fn one_at_once(
    stream: TlsStream<TcpStream>,
    seen: mpsc::UnboundedSender<(u8, u32)>,
    release: Arc<Notify>,
) {
    let (mut read, mut write) = tokio::io::split(stream);
    read.read_exact(&mut [0; 24]).await.unwrap();
    write.write_all(&frame(4, 0, 0, &[0, 3, 0, 0, 0, 1])).await.unwrap();
    let (sender, mut heads) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut head = [0; 9];
        while read.read_exact(&mut head).await.is_ok() {
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            read.read_exact(&mut payload).await.unwrap();
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            if [HEADERS, RST_STREAM].contains(&head[3]) {
                seen.send((head[3], stream)).unwrap();
            }
            if head[3] == HEADERS {
                let _ = sender.send(stream);
            }
        }
    });
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    loop {
        let next = tokio::select! {
            Some(stream) = heads.recv() => match stream {
                3 => continue,
                _ => frame(HEADERS, 5, stream, &[0x88]),
            },
            () = release.notified() => frame(HEADERS, 5, 3, &[0x88]),
            _ = ticks.tick() => frame(6, 0, 0, &[7; 8]),
        };
        if write.write_all(&next).await.is_err() || write.flush().await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn what_found_no_room_is_not_sent_later_either() {
    let (sender, mut seen) = mpsc::unbounded_channel();
    let release = Arc::new(Notify::new());
    let notify = Arc::clone(&release);
    let http2 = Http2::raw(move |_, stream| one_at_once(stream, sender.clone(), Arc::clone(&notify))).await;
    assert_eq!(http2.get("/first").await.unwrap().status(), 200);
    let others = async {
        assert_eq!((seen.recv().await, seen.recv().await), (Some((HEADERS, 1)), Some((HEADERS, 3))));
        assert_eq!(fault(http2.post(Empty::new()).await), (RequestPhase::Send, "timeout", false));
        // This happens when its call ends.
        assert!(tokio::time::timeout(SHORT / 2, http2.post(Empty::new())).await.is_err());
        let third = async {
            tokio::time::sleep(SHORT / 5).await;
            release.notify_one();
        };
        // A frame that is reported now came after everything that the other two had sent.
        let (third, ()) = tokio::join!(http2.get("/third"), third);
        assert_eq!(third.unwrap().status(), 200);
        let mut left = Vec::new();
        while let Ok(one) = seen.try_recv() {
            left.push(one);
        }
        assert_eq!(left, [(HEADERS, 5)], "two heads were never sent");
    };
    let (second, ()) = tokio::join!(http2.get("/second"), others);
    assert_eq!(second.unwrap().status(), 200);
    assert_eq!(http2.upstream.accepts(), 1);
}
