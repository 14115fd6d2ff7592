//! The requests of one attempt, as the gates observed them: for the audit log, and to find those that were pending
//! when the guest returned.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::clock::Clock;
use cofferdam_core::event::recorded::RecordedRequest;
use cofferdam_core::failure::{AbortedRequest, RequestPhase};
use cofferdam_core::limits;
use cofferdam_core::secret::Scanner;
use cofferdam_core::trace::TracedRequest;
use cofferdam_egress::egress::find_in_uri;
use http::{Method, Uri, response};
use jiff::Timestamp;

use super::log;
use super::traced_content::ContentBuffer;

/// The longest path that is recorded, in characters.
const PATH_CHARS: usize = 256;

/// One request of an attempt.
#[derive(Debug)]
pub(super) struct ObservedRequest {
    pub(super) method: Method,
    /// The `host:port`; empty if the URL had a secret in it.
    pub(super) host: String,
    /// The beginning of the path, printable and without secrets.
    pub(super) path: String,
    /// True if it carried the call's idempotency key.
    pub(super) keyed: bool,
    /// The bindings whose credentials it carries.
    pub(super) bindings: Vec<Arc<str>>,
    /// Its contents, for a trace.
    pub(super) content: Option<Box<ContentBuffer>>,
    /// True if any byte of it may have left.
    sent: bool,
    bytes_sent: u64,
    bytes_received: u64,
    status: Option<u16>,
    /// The wait that its answer asked for.
    retry_after_ms: Option<u64>,
    phase: Option<RequestPhase>,
    /// The code of its failure, or of its refusal.
    code: Option<&'static str>,
    at: Timestamp,
    began: Instant,
    took: Duration,
}

impl ObservedRequest {
    /// Creates a request to `host` that the guest sends now.
    pub(super) fn new(
        method: Method,
        uri: &Uri,
        host: String,
        scanner: Option<&Scanner>,
        clock: &dyn Clock,
    ) -> Self {
        Self {
            method,
            host,
            path: log::clean_prefix(uri.path(), PATH_CHARS, scanner),
            keyed: false,
            bindings: Vec::new(),
            content: None,
            sent: false,
            bytes_sent: 0,
            bytes_received: 0,
            status: None,
            retry_after_ms: None,
            phase: None,
            code: None,
            at: clock.timestamp(),
            began: clock.now(),
            took: Duration::ZERO,
        }
    }

    /// Creates a request that is refused, perhaps because its URL is invalid.
    pub(super) fn refused(
        method: Method,
        uri: &Uri,
        code: &'static str,
        scanner: Option<&Scanner>,
        clock: &dyn Clock,
    ) -> Self {
        // A secret may be encoded in a way that no text search finds, so nothing of such a URL is kept.
        let secret = scanner.is_some_and(|scanner| find_in_uri(scanner, uri).is_some());
        let uri = if secret { &Uri::default() } else { uri };
        // Without the user name and the password that an authority may have. Of a URL that is invalid, what there is.
        let port = uri.port_u16().or(match uri.scheme_str() {
            Some("https") => Some(443),
            Some("http") => Some(80),
            _ => None,
        });
        let host = match (uri.host(), port) {
            (Some(host), Some(port)) => Cow::from(format!("{host}:{port}")),
            (host, _) => host.unwrap_or_default().into(),
        };
        let host = log::clean_prefix(&host, limits::AUTHORITY_BYTES, scanner);
        let mut request = Self::new(method, uri, host, scanner, clock);
        if secret {
            request.path.clear();
        }
        request.code = Some(code);
        request
    }

    /// Returns the bytes that are kept for it until the attempt ends.
    pub(super) fn cost(&self) -> u64 {
        let texts = [self.method.as_str(), &self.host, &self.path].map(str::len);
        // A growing list has up to twice the space that it needs, and holds its old items while it grows.
        (texts.iter().sum::<usize>() + 3 * size_of::<Self>()) as u64
    }

    /// True if it had neither a response nor an error until now.
    fn is_pending(&self) -> bool {
        self.status.is_none() && self.code.is_none()
    }

    /// Records that it is about to be sent, with a first line of so many bytes.
    pub(super) fn mark_sending(&mut self, line: u64) {
        self.sent = true;
        self.bytes_sent = self.bytes_sent.saturating_add(line);
    }

    /// Records that nothing of it has left, and nothing will.
    pub(super) fn mark_unsent(&mut self, line: u64) {
        self.sent = false;
        self.bytes_sent = self.bytes_sent.saturating_sub(line);
    }

    /// Records that a part of its body is sent.
    pub(super) fn sent_body(&mut self, data: &[u8]) {
        self.bytes_sent = self.bytes_sent.saturating_add(data.len() as u64);
        if let Some(content) = &mut self.content {
            content.sent(data);
        }
    }

    /// Records the head of its response.
    pub(super) fn answered(&mut self, head: &response::Parts, retry_after_ms: Option<u64>, now: Instant) {
        (self.status, self.retry_after_ms) = (Some(head.status.as_u16()), retry_after_ms);
        if let Some(content) = &mut self.content {
            content.answered(&head.headers);
        }
        self.touch(now);
    }

    /// Records a part of its response's body.
    pub(super) fn received(&mut self, data: &[u8], now: Instant) {
        self.bytes_received = self.bytes_received.saturating_add(data.len() as u64);
        if let Some(content) = &mut self.content {
            content.received(data);
        }
        self.touch(now);
    }

    /// Records its failure in a phase, or its refusal without one.
    pub(super) fn failed(&mut self, phase: Option<RequestPhase>, code: &'static str, now: Instant) {
        (self.phase, self.code) = (phase, Some(code));
        self.touch(now);
    }

    fn touch(&mut self, now: Instant) {
        self.took = now.saturating_duration_since(self.began);
    }

    fn took(&self, now: Instant) -> Duration {
        if self.is_pending() { now.saturating_duration_since(self.began) } else { self.took }
    }

    fn recorded(&self, now: Instant) -> RecordedRequest<'static> {
        let took = self.took(now);
        RecordedRequest {
            aborted: self.is_pending(),
            at: format!("{:.6}", self.at),
            bindings: self.bindings.iter().map(|name| Cow::from(name.to_string())).collect(),
            bytes_received: self.bytes_received,
            // A body that is signed is read before anything is sent.
            bytes_sent: if self.sent { self.bytes_sent } else { 0 },
            code: self.code.map(Cow::from),
            host: self.host.clone().into(),
            keyed: self.keyed,
            method: self.method.to_string().into(),
            ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            path: self.path.clone().into(),
            phase: self.phase.map(|phase| phase.name().into()),
            status: self.status,
        }
    }
}

/// An answer, as the gate saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenAnswer {
    pub(crate) host: String,
    /// The bindings whose credentials the request carried.
    pub(crate) bindings: Vec<String>,
    pub(crate) retry_after_ms: Option<u64>,
}

/// Names one request of an attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestNumber(usize);

/// The requests of an attempt in the order in which the guest sent them.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    requests: Mutex<Vec<ObservedRequest>>,
    keeps_contents: AtomicBool,
}

impl RequestLog {
    /// Also keeps the contents of requests from now on, for a trace.
    pub(crate) fn keep_contents(&self) {
        self.keeps_contents.store(true, Ordering::Relaxed);
    }

    /// Returns whether the contents of requests are kept.
    pub(super) fn keeps_contents(&self) -> bool {
        self.keeps_contents.load(Ordering::Relaxed)
    }

    /// Adds a request.
    pub(super) fn add(&self, request: ObservedRequest) -> RequestNumber {
        let mut requests = self.lock();
        requests.push(request);
        RequestNumber(requests.len().saturating_sub(1))
    }

    /// Changes what is known about a request.
    pub(super) fn update(&self, RequestNumber(at): RequestNumber, change: impl FnOnce(&mut ObservedRequest)) {
        if let Some(request) = self.lock().get_mut(at) {
            change(request);
        }
    }

    /// Returns the requests without a response or an error.
    pub(crate) fn pending(&self) -> Vec<AbortedRequest> {
        let requests = self.lock();
        let pending = requests.iter().filter(|request| request.is_pending());
        pending
            .map(|request| {
                let unsafe_sent = request.sent && !request.method.is_safe();
                let (host, method) = (request.host.clone(), request.method.to_string());
                AbortedRequest::new(host, method, request.sent, unsafe_sent)
            })
            .collect()
    }

    /// Returns the answer with this status to the last request that got one.
    pub(crate) fn answer(&self, status: u16) -> Option<SeenAnswer> {
        let requests = self.lock();
        let request = requests.iter().rfind(|request| request.status == Some(status))?;
        Some(SeenAnswer {
            host: request.host.clone(),
            bindings: request.bindings.iter().map(ToString::to_string).collect(),
            retry_after_ms: request.retry_after_ms,
        })
    }

    /// Returns the answers whose failure may be temporary, each in a few words.
    pub(super) fn transient_answers(&self) -> Vec<String> {
        let requests = self.lock();
        let answers = requests.iter().filter_map(|request| match request.status {
            Some(status @ (429 | 500..=599)) => {
                Some(format!("{} answered with status {status}", request.host))
            }
            _ => None,
        });
        answers.collect()
    }

    /// Returns all requests, for the audit log.
    pub(crate) fn recorded(&self, now: Instant) -> Vec<RecordedRequest<'static>> {
        self.lock().iter().map(|request| request.recorded(now)).collect()
    }

    /// Returns all requests, for a trace that began at `started`.
    pub(crate) fn traced(&self, started: Instant, now: Instant, scanner: &Scanner) -> Vec<TracedRequest> {
        let traced = |request: &ObservedRequest| TracedRequest {
            request: request.recorded(now),
            at: request.began.saturating_duration_since(started),
            took: request.took(now),
            content: request.content.as_ref().map(|content| content.clean(scanner)).unwrap_or_default(),
        };
        self.lock().iter().map(traced).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ObservedRequest>> {
        // Each request is consistent after every statement.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
