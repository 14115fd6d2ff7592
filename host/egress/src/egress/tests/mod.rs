//! Tests of the client against real sockets: a scripted upstream on loopback, and a resolver under the test's
//! control.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod credentialed;
mod departure;
mod faults;
mod memory;
mod names;
mod reuse;
mod sigv4;
mod slow;
mod tls;
mod wire;

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use cofferdam_core::failure::RequestPhase;
use cofferdam_model::manifest::HostGrant;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;

/// The granted name of every upstream.
const NAME: &str = "service.test";

/// An upstream that runs a script for every connection, and records the received data.
struct Upstream {
    port: u16,
    accepts: Arc<AtomicUsize>,
}

impl Upstream {
    async fn start<F, R>(script: F) -> Self
    where
        F: Fn(usize, TcpStream) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepts = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&accepts);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(script(counter.fetch_add(1, Ordering::SeqCst), stream));
            }
        });
        Self { port, accepts }
    }

    /// Reads each request's head and answers with `response`, for every request on every connection.
    async fn answering(response: &'static str) -> Self {
        Self::start(move |_, mut stream| async move {
            while read_head(&mut stream).await.is_some() {
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        })
        .await
    }

    fn accepts(&self) -> usize {
        self.accepts.load(Ordering::SeqCst)
    }

    fn uri(&self, path: &str) -> String {
        format!("http://{NAME}:{}{path}", self.port)
    }

    fn client(&self) -> EgressClient {
        client(&format!("http://{NAME}:{}", self.port), true, Answers::of(&["127.0.0.1"]))
    }

    async fn get(&self) -> Result<Response<ResponseBody>, SendError> {
        get(&self.client(), &self.uri("/")).await
    }
}

/// Returns the head of a request up to the empty line; `None` at the end of the connection.
async fn read_head(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// A resolver with one answer to every lookup.
struct Answers {
    answer: Result<Vec<IpAddr>, ResolveError>,
    asked: Mutex<Vec<String>>,
}

impl Answers {
    fn of(addresses: &[&str]) -> Arc<Self> {
        let answer = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Arc::new(Self { answer: Ok(answer), asked: Mutex::default() })
    }

    fn failing(error: ResolveError) -> Arc<Self> {
        Arc::new(Self { answer: Err(error), asked: Mutex::default() })
    }
}

impl Resolve for Answers {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolvedAddresses<'a> {
        self.asked.lock().unwrap().push(host.to_owned());
        Box::pin(std::future::ready(self.answer.clone()))
    }
}

/// Creates a client with one grant, which the operator allows to be private or not.
fn client(grant: &str, private: bool, resolver: Arc<dyn Resolve>) -> EgressClient {
    let grant = HostGrant::parse(grant).unwrap();
    let place = PrivateGrant::parse(&format!("{}:{}=127.0.0.0/8", grant.host(), grant.port())).unwrap();
    let private = if private { vec![place] } else { vec![] };
    EgressClient::new(default_tls([]).unwrap(), resolver, EgressPolicy::new(&[grant], &private))
}

fn quick() -> EgressTimeouts {
    EgressTimeouts::default()
        .with_connect(Duration::from_millis(300))
        .with_first_byte(Duration::from_millis(300))
}

async fn get(client: &EgressClient, uri: &str) -> Result<Response<ResponseBody>, SendError> {
    let request = Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
    send(client, request, &EgressTimeouts::default()).await
}

async fn send<B>(
    client: &EgressClient,
    request: Request<B>,
    timeouts: &EgressTimeouts,
) -> Result<Response<ResponseBody>, SendError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let target = client.policy().decide(request.uri(), None)?;
    client.send(request, &target, timeouts, &Authorization::default(), None).await
}

async fn text(response: Response<ResponseBody>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// A body of unknown length: the data of a channel, until its sender is dropped.
struct Piped(mpsc::UnboundedReceiver<std::io::Result<&'static str>>);

impl Piped {
    fn open() -> (mpsc::UnboundedSender<std::io::Result<&'static str>>, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (sender, Self(receiver))
    }
}

impl Body for Piped {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|data| data.map(|data| Ok(Frame::data(Bytes::from(data?)))))
    }
}

/// Returns phase, code and whether anything was sent.
#[track_caller]
fn fault<T: std::fmt::Debug>(outcome: Result<T, SendError>) -> (RequestPhase, &'static str, bool) {
    match outcome.expect_err("the request fails") {
        SendError::Fault(NetworkFaultParts { phase, code, request_sent }) => (phase, code, request_sent),
        other => panic!("not a fault: {other:?}"),
    }
}
