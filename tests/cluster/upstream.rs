//! The upstream: a server that counts every effect and recognises no key. The seed decides where it fails.
//!
//! `POST /effect/KEY` is the effect of a call, `POST /effect/KEY/STEP` that of a step.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_history::Effect;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The server; it runs on the runtime that it was started on.
#[derive(Clone)]
pub(super) struct Upstream {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    seed: Option<u64>,
    begun: Instant,
    effects: Mutex<Vec<Effect>>,
    /// The requests so far, by path.
    arrived: Mutex<HashMap<String, u64>>,
}

/// The behaviour towards one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Performs,
    RefusesBefore,
    FailsAfter,
    ResetsBefore,
    ResetsAfter,
}

impl Upstream {
    /// Starts it. Without a seed it never fails.
    pub(super) async fn start(seed: Option<u64>, begun: Instant) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { seed, begun, effects: Mutex::default(), arrived: Mutex::default() });
        let served = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&served);
                tokio::spawn(async move { drop(serve(stream, &shared).await) });
            }
        });
        Self { port, shared }
    }

    /// `localhost:<port>`.
    pub(super) fn host_port(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// `http://localhost:<port>`.
    pub(super) fn origin(&self) -> String {
        format!("http://{}", self.host_port())
    }

    /// The requests so far.
    pub(super) fn effects(&self) -> Vec<Effect> {
        self.shared.effects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Answers the requests of a connection.
async fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    loop {
        let Some(request) = read(&mut stream, &mut buffer).await? else { return Ok(()) };
        let (behaviour, delay) = shared.behaviour(&request.path);
        tokio::time::sleep(delay).await;
        let Some((serial, answer)) = shared.record(&request, behaviour) else {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await?;
            continue;
        };
        let Some(status) = answer else {
            stream.set_zero_linger()?;
            return Ok(());
        };
        let body = format!("effect-{serial} of {}", request.path);
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
    }
}

struct Request {
    path: String,
    idempotency_key: Option<String>,
}

/// Reads a request with its body.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<Request>> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut parsed = httparse::Request::new(&mut headers);
        let status = parsed.parse(buffer).map_err(std::io::Error::other)?;
        if let httparse::Status::Complete(head) = status {
            let header = |name: &str| {
                let found = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
                found.map(|header| String::from_utf8_lossy(header.value).into_owned())
            };
            let length: usize = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            let chunked = header("transfer-encoding").is_some();
            let end = match chunked {
                true => {
                    buffer[head..].windows(5).position(|bytes| bytes == b"0\r\n\r\n").map(|at| head + at + 5)
                }
                false => (buffer.len() >= head + length).then_some(head + length),
            };
            let request = Request {
                path: parsed.path.unwrap_or_default().to_owned(),
                idempotency_key: header("idempotency-key"),
            };
            if let Some(end) = end {
                buffer.drain(..end);
                return Ok(Some(request));
            }
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

impl Shared {
    /// The behaviour towards the next request for this path, and its delay: a function of the seed, the path and the
    /// number of the request.
    fn behaviour(&self, path: &str) -> (Behaviour, Duration) {
        let number = {
            let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
            let number = arrived.entry(path.to_owned()).or_default();
            *number += 1;
            *number
        };
        let Some(seed) = self.seed else { return (Behaviour::Performs, Duration::ZERO) };
        let mut hasher = DefaultHasher::new();
        (seed, path, number).hash(&mut hasher);
        let mut rng = fastrand::Rng::with_seed(hasher.finish());
        let behaviour = match rng.u16(0..1000) {
            0..20 => Behaviour::RefusesBefore,
            20..30 => Behaviour::FailsAfter,
            30..40 => Behaviour::ResetsBefore,
            40..50 => Behaviour::ResetsAfter,
            _ => Behaviour::Performs,
        };
        let delay_ms = match rng.u8(0..100) {
            0..3 => rng.u64(50..300),
            _ => rng.u64(0..6),
        };
        (behaviour, Duration::from_millis(delay_ms))
    }

    /// Records a request; returns its number and its status, if it gets one.
    fn record(&self, request: &Request, behaviour: Behaviour) -> Option<(u64, Option<u16>)> {
        let (key, step) = parts(&request.path)?;
        let (performed, status) = match behaviour {
            Behaviour::Performs => (true, Some(200)),
            Behaviour::RefusesBefore => (false, Some(503)),
            Behaviour::FailsAfter => (true, Some(503)),
            Behaviour::ResetsBefore => (false, None),
            Behaviour::ResetsAfter => (true, None),
        };
        let mut effects = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        let serial = effects.len() as u64 + 1;
        effects.push(Effect {
            serial,
            key: key.to_owned(),
            step: step.to_owned(),
            service_key: request.idempotency_key.clone(),
            at: self.begun.elapsed().as_micros() as u64,
            performed,
            answer: status.map_or("reset".to_owned(), |status| status.to_string()),
        });
        Some((serial, status))
    }
}

/// The key and the step of a path.
fn parts(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix("/effect/")?;
    Some(rest.split_once('/').unwrap_or((rest, "")))
}
