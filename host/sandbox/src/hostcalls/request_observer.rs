//! The observer of one request: every fact about it is recorded here, for the attempt's outcome, for the
//! circuit of its host and for the rule on requests without an idempotency key.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use cofferdam_core::failure::{RequestPhase, UnkeyedRequest};
use cofferdam_core::secret::Scanner;
use cofferdam_egress::egress::{
    EgressTimeouts, NetworkFaultParts, ObserveDeparture, code, is_method_override, line_bytes,
};
use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http::{HeaderMap, Method, Request, response};
use wasmtime_wasi_http::{Error, RequestOptions};

use super::attempt_log::{AttemptLog, SeenFault, Termination};
use super::guards::AttemptGuards;
use super::request_log::{ObservedRequest, RequestNumber};
use super::traced_content::ContentBuffer;
use crate::memory::GrowthRefusal;

/// The least time that a host must have had before a timeout of the guest's own choice counts against it.
const MIN_BLAMEABLE_TIMEOUT: Duration = Duration::from_secs(10);

/// One admitted request.
pub(super) struct RequestObserver {
    pub(super) host: String,
    pub(super) ledger: Arc<AttemptLog>,
    pub(super) guards: AttemptGuards,
    number: RequestNumber,
    /// The bytes of its first line.
    line: u64,
    /// Its description, if it may take effect each time it arrives.
    effect: Option<EffectfulRequest>,
    sent_effect: Mutex<Option<SentNumber>>,
    short: ShortTimeouts,
}

/// The waits that the guest made so short that their end says nothing about the host.
#[derive(Clone, Copy, Default)]
struct ShortTimeouts {
    connect: bool,
    first_byte: bool,
    between_bytes: bool,
}

impl RequestObserver {
    /// Records that `request` to `host` was admitted.
    ///
    /// # Errors
    /// The attempt has too little memory left, which ends it.
    pub(super) fn new<B>(
        ledger: &Arc<AttemptLog>,
        guards: &AttemptGuards,
        request: &Request<B>,
        host: String,
        (scanner, options): (Option<&Scanner>, Option<&RequestOptions>),
    ) -> Result<Self, GrowthRefusal> {
        let is_short = |timeout: fn(&RequestOptions) -> Option<Duration>| {
            options.and_then(timeout).is_some_and(|timeout| timeout < MIN_BLAMEABLE_TIMEOUT)
        };
        let short = ShortTimeouts {
            connect: is_short(|options| options.connect_timeout),
            first_byte: is_short(|options| options.first_byte_timeout),
            between_bytes: is_short(|options| options.between_bytes_timeout),
        };
        let method = request.method().clone();
        let mut observed = ObservedRequest::new(method, request.uri(), host.clone(), scanner, &*guards.clock);
        observed.keyed = guards.key_watch.is_keyed(request.headers());
        if ledger.request_log.keeps_contents() {
            observed.content = Some(Box::new(ContentBuffer::new(request.uri(), request.headers())));
        }
        // Never released: it is kept to the end of the attempt.
        ledger.hold(observed.cost())?;
        Ok(Self {
            effect: guards.key_watch.judge(request, &host, observed.keyed),
            number: ledger.request_log.add(observed),
            line: line_bytes(request.method(), request.uri()) as u64,
            host,
            ledger: Arc::clone(ledger),
            guards: guards.clone(),
            sent_effect: Mutex::default(),
            short,
        })
    }

    /// Ends the attempt because of the request.
    pub(super) fn end_attempt(&self, verdict: Termination) {
        self.failed(None, verdict.code());
        self.ledger.end(verdict);
    }

    /// Records that the request failed in a phase, or was refused without one.
    pub(super) fn failed(&self, phase: Option<RequestPhase>, code: &'static str) {
        let now = self.guards.clock.now();
        self.update(|request| request.failed(phase, code, now));
    }

    /// Records the bindings whose credentials the request carries.
    pub(super) fn authorized(&self, bindings: &[Arc<str>]) {
        if !bindings.is_empty() {
            self.update(|request| request.bindings = bindings.to_vec());
        }
    }

    /// Records that a part of the request's body is sent.
    pub(super) fn sent_body(&self, data: &[u8]) {
        self.update(|request| request.sent_body(data));
    }

    /// Records that the guest got a part of the response's body.
    pub(super) fn received(&self, data: &[u8]) {
        let now = self.guards.clock.now();
        self.update(|request| request.received(data, now));
    }

    fn update(&self, change: impl FnOnce(&mut ObservedRequest)) {
        self.ledger.request_log.update(self.number, change);
    }

    /// Records an answer, also a good one: its body may say that the request failed. `mends` is true if the host itself
    /// repairs the rejection, by a new token for the next attempt.
    pub(super) fn saw_answer(&self, answer: &response::Parts, mends: bool) {
        let status = answer.status.as_u16();
        let now = self.guards.clock.now();
        let retry_after_ms = retry_after_ms(&answer.headers, self.guards.clock.timestamp().into());
        self.update(|request| request.answered(answer, retry_after_ms, now));
        self.guards.saw_answer(&self.host, status, retry_after_ms, mends);
    }

    /// Records that the request has no answer, or one whose body broke off, and returns the guest's error.
    pub(super) fn saw_fault(&self, fault: NetworkFaultParts, in_body: bool) -> Error {
        let NetworkFaultParts { phase, code, request_sent } = fault;
        let chosen = match phase {
            _ if in_body => self.short.first_byte || self.short.between_bytes,
            RequestPhase::Dns | RequestPhase::Connect | RequestPhase::Tls => self.short.connect,
            RequestPhase::Send | RequestPhase::Response => self.short.first_byte,
        };
        if !(chosen && code == code::TIMEOUT) {
            self.guards.saw_fault(&self.host, code);
        }
        self.failed(Some(phase), code);
        self.ledger.saw_fault(SeenFault { host: self.host.clone(), phase, code, request_sent });
        guest_error(phase, code)
    }

    fn sent_effect(&self) -> MutexGuard<'_, Option<SentNumber>> {
        self.sent_effect.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_effect(&self) {
        if let Some(number) = self.sent_effect().take() {
            self.guards.key_watch.mark_unsent(number);
        }
    }
}

impl ObserveDeparture for RequestObserver {
    fn may_depart(&self) -> bool {
        if let Some(effect) = &self.effect {
            let Ok(number) = self.guards.key_watch.mark_sending(effect.clone()) else { return false };
            *self.sent_effect() = Some(number);
        }
        let may_depart = self.ledger.mark_sending(self.number, self.line);
        if !may_depart {
            self.forget_effect();
        }
        may_depart
    }

    fn not_sent(&self) {
        self.ledger.mark_unsent(self.number, self.line);
        self.forget_effect();
    }
}

/// Returns the timeouts that the guest requests; the call's own deadline outranks all of them.
pub(super) fn timeouts(options: Option<&RequestOptions>) -> EgressTimeouts {
    let mut timeouts = EgressTimeouts::default();
    let Some(options) = options else { return timeouts };
    if let Some(connect) = options.connect_timeout {
        timeouts = timeouts.with_connect(connect);
    }
    if let Some(first_byte) = options.first_byte_timeout {
        timeouts = timeouts.with_first_byte(first_byte);
    }
    if let Some(between_bytes) = options.between_bytes_timeout {
        timeouts = timeouts.with_between_bytes(between_bytes);
    }
    timeouts
}

/// Returns the most specific error that the guest has for the gate's finding.
fn guest_error(phase: RequestPhase, word: &str) -> Error {
    match (phase, word) {
        (RequestPhase::Dns, code::TIMEOUT) => Error::DnsTimeout,
        (RequestPhase::Dns, _) => Error::DnsError { rcode: None, info_code: None },
        (RequestPhase::Connect, code::REFUSED) => Error::ConnectionRefused,
        (RequestPhase::Connect | RequestPhase::Tls, code::TIMEOUT) => Error::ConnectionTimeout,
        (RequestPhase::Connect, _) => Error::DestinationUnavailable,
        (
            RequestPhase::Tls,
            code::TLS_EXPIRED
            | code::TLS_NOT_YET_VALID
            | code::TLS_WRONG_HOST
            | code::TLS_UNKNOWN_ISSUER
            | code::TLS_NO_ROOTS
            | code::TLS_CERTIFICATE,
        ) => Error::TlsCertificateError,
        (RequestPhase::Tls, _) => Error::TlsProtocolError,
        (RequestPhase::Response, code::TIMEOUT) => Error::HttpResponseTimeout,
        (RequestPhase::Response, code::MALFORMED_RESPONSE) => Error::HttpProtocolError,
        (RequestPhase::Response, code::HEADERS_TOO_LARGE) => Error::HttpResponseHeaderSectionSize(None),
        (RequestPhase::Send | RequestPhase::Response, _) => Error::ConnectionTerminated,
    }
}

/// Returns `Retry-After` in milliseconds, from seconds or an HTTP date. Over a week is a week, a past date is
/// now, and an unreadable value is ignored.
fn retry_after_ms(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let wait = match digits {
        // Digits that do not parse are too many of them.
        true => text.parse().map_or(WEEK, Duration::from_secs),
        false => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    u64::try_from(wait.min(WEEK).as_millis()).ok()
}

/// The methods that HTTP defines as idempotent.
const IDEMPOTENT: [Method; 6] =
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE];

/// Watches which requests of one attempt may take effect each time they arrive, unless the key prevents that.
#[derive(Debug)]
pub struct KeyWatch {
    key: Arc<str>,
    key_was_asked_for: AtomicBool,
    sent: Mutex<SentRequests>,
}

#[derive(Debug, Default)]
struct SentRequests {
    /// The requests in the order in which they were sent; none for a request of which nothing left.
    requests: Vec<Option<EffectfulRequest>>,
    is_closed: bool,
}

/// A request that may take effect each time it arrives, as far as its method says. Its description, if it does
/// not carry the key.
#[derive(Debug, Clone)]
pub(super) struct EffectfulRequest(Option<UnkeyedRequest>);

/// The requests of an attempt of which something may have left, as far as they may take effect each time they arrive.
#[derive(Debug)]
pub struct SentEffects {
    /// The first that does not carry the key.
    pub unkeyed: Option<UnkeyedRequest>,
    /// True if the effect of one may depend on the key: the guest has asked for the key, so it is in a field, or may be
    /// in the query or the body, which are not searched.
    pub relies_on_key: bool,
}

/// Names a watched request that is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentNumber(usize);

/// The attempt is over: no watched request may be sent any more.
#[derive(Debug)]
pub(super) struct ClosedWatch;

impl KeyWatch {
    /// The watch of an attempt that carries this key.
    pub fn new(key: Arc<str>) -> Self {
        Self { key, key_was_asked_for: AtomicBool::new(false), sent: Mutex::default() }
    }

    /// The key, for the guest.
    pub(super) fn key_for_guest(&self) -> &str {
        self.key_was_asked_for.store(true, Ordering::Relaxed);
        &self.key
    }

    /// Returns the request to `host` as one to be watched, if it may take effect each time it arrives.
    pub(super) fn judge<B>(
        &self,
        request: &Request<B>,
        host: impl ToString,
        is_keyed: bool,
    ) -> Option<EffectfulRequest> {
        let is_idempotent =
            IDEMPOTENT.contains(request.method()) && !request.headers().keys().any(is_method_override);
        // What the key names is made a second time under another key, though PUT is idempotent.
        let is_named_by_key = request.method() == Method::PUT && self.is_asked_for() && {
            let target = request.uri().path_and_query();
            target.is_some_and(|target| target.as_str().contains(&*self.key))
        };
        let is_unkeyed = !is_idempotent && !is_keyed;
        (!is_idempotent || is_named_by_key).then(|| {
            EffectfulRequest(
                is_unkeyed.then(|| UnkeyedRequest::new(request.method().as_str(), host.to_string())),
            )
        })
    }

    fn is_asked_for(&self) -> bool {
        self.key_was_asked_for.load(Ordering::Relaxed)
    }

    /// Returns true if a request with these fields carries the key.
    pub(super) fn is_keyed(&self, fields: &HeaderMap) -> bool {
        // A guest that never asked for the key cannot mean it: such a value is a coincidence.
        self.is_asked_for() && contains_key(fields, &self.key)
    }

    /// Records that a watched request is about to be sent. Until it is known that nothing of it left
    /// ([`mark_unsent`](Self::mark_unsent)) it counts as sent, even if nothing waits for its end.
    ///
    /// # Errors
    /// The attempt is over, and was judged by the requests it had sent.
    pub(super) fn mark_sending(&self, request: EffectfulRequest) -> Result<SentNumber, ClosedWatch> {
        let mut sent = self.lock();
        if sent.is_closed {
            return Err(ClosedWatch);
        }
        sent.requests.push(Some(request));
        Ok(SentNumber(sent.requests.len().saturating_sub(1)))
    }

    /// Records that nothing of this request has left, and nothing will.
    pub(super) fn mark_unsent(&self, SentNumber(at): SentNumber) {
        if let Some(request) = self.lock().requests.get_mut(at) {
            *request = None;
        }
    }

    /// Ends the watch: no watched request is sent from now on. Returns those that were sent.
    pub fn close(&self) -> SentEffects {
        let mut sent = self.lock();
        sent.is_closed = true;
        let requests = || sent.requests.iter().flatten();
        SentEffects {
            unkeyed: requests().find_map(|request| request.0.clone()),
            // A guest may ask for the key while the body of a request is sent.
            relies_on_key: self.is_asked_for() && requests().next().is_some(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SentRequests> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if a field's value is the key, or the key with a label.
fn contains_key(fields: &HeaderMap, key: &str) -> bool {
    let is_key = |value: &[u8]| {
        let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        let rest = inner.unwrap_or(value).strip_prefix(key.as_bytes());
        rest.is_some_and(|rest| matches!(rest, [] | [b':', _, ..]))
    };
    fields.iter().any(|(name, value)| name != CONTENT_LENGTH && is_key(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date_and_never_absurd() {
        let now = httpdate::parse_http_date("Sat, 21 Nov 2026 10:00:00 GMT").unwrap();
        for (text, expected) in [
            ("7", Some(7_000)),
            ("0", Some(0)),
            ("Sat, 21 Nov 2026 10:00:30 GMT", Some(30_000)),
            ("Sat, 21 Nov 2026 09:00:00 GMT", Some(0)),
            ("-5", None),
            ("soon", None),
            ("+7", None),
            ("1000000000", Some(604_800_000)),
            ("99999999999999999999999999", Some(604_800_000)),
            ("Thu, 01 Jan 2099 00:00:00 GMT", Some(604_800_000)),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            assert_eq!(retry_after_ms(&headers, now), expected, "{text}");
        }
    }
    fn judged(key: &str, asks: bool, method: &str, field: Option<(&str, &str)>) -> Option<UnkeyedRequest> {
        let watch = KeyWatch::new(key.into());
        if asks {
            assert_eq!(watch.key_for_guest(), key);
        }
        let mut request = Request::builder().method(method).uri("/");
        if let Some((name, value)) = field {
            request = request.header(name, value);
        }
        let request = request.body(()).unwrap();
        watch.judge(&request, "a.example:443", watch.is_keyed(request.headers()))?.0
    }

    #[test]
    fn methods_that_http_calls_idempotent_need_no_key() {
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"] {
            assert_eq!(judged("k", false, method, None), None, "{method}");
            for name in ["X-HTTP-Method-Override", "x_http_method", "X-Method-Override"] {
                assert!(judged("k", false, method, Some((name, "POST"))).is_some(), "{method} with {name}");
            }
        }
        for method in ["POST", "PATCH", "CONNECT", "QUERY", "get", "Put"] {
            let unkeyed = judged("k", true, method, None).unwrap();
            assert_eq!((&*unkeyed.method, &*unkeyed.host), (method, "a.example:443"));
        }
    }

    #[test]
    fn the_key_is_the_whole_field_or_has_a_label() {
        let key = "order-17";
        for value in ["order-17", "order-17:create", "\"order-17\"", "\"order-17:a:b\""] {
            for name in ["idempotency-key", "x-request-id", "paypal-request-id"] {
                assert_eq!(judged(key, true, "POST", Some((name, value))), None, "{name}: {value}");
            }
        }
        let others =
            ["order-1", "order-170", "order-17~1", "order-17:", " order-17", "id=order-17", "\"order-17", ""];
        for value in others {
            assert!(judged(key, true, "POST", Some(("idempotency-key", value))).is_some(), "{value}");
        }
    }

    #[test]
    fn a_coincidental_value_is_not_a_key() {
        assert!(judged("17", true, "POST", Some(("content-length", "17"))).is_some());
        assert!(judged("17", false, "POST", Some(("x-order", "17"))).is_some(), "nobody asked for the key");
        assert_eq!(judged("17", true, "POST", Some(("x-order", "17"))), None);
    }

    #[test]
    fn nothing_unkeyed_is_sent_after_the_watch_ended() {
        let watch = KeyWatch::new("k".into());
        let request = |host: &str| watch.judge(&Request::post("/").body(()).unwrap(), host, false).unwrap();
        let is_b = || watch.close().unkeyed == Some(UnkeyedRequest::new("POST", "b".to_owned()));
        let first = watch.mark_sending(request("a")).unwrap();
        watch.mark_sending(request("b")).unwrap();
        watch.mark_unsent(first);
        assert!(is_b(), "the first of which something may have left");
        assert!(watch.mark_sending(request("c")).is_err());
        assert!(is_b());
    }

    #[test]
    fn a_key_may_be_in_a_later_body_or_in_a_put_url() {
        let watch = KeyWatch::new("audit-k".into());
        let judge = |method, url| {
            watch.judge(&Request::builder().method(method).uri(url).body(()).unwrap(), "a", false)
        };
        // A guest that never asked for the key did not put it there.
        assert!(judge("PUT", "/orders/audit-k").is_none());
        watch.mark_sending(judge("POST", "/").unwrap()).unwrap();
        watch.key_for_guest();
        let put = judge("PUT", "/orders/audit-k").unwrap();
        assert!(
            put.0.is_none()
                && judge("PUT", "/orders/7").is_none()
                && judge("GET", "/orders/audit-k").is_none()
        );
        let effects = watch.close();
        assert!(effects.relies_on_key && effects.unkeyed.is_some());
        let watch = KeyWatch::new("audit-k".into());
        watch.key_for_guest();
        watch.mark_sending(put).unwrap();
        let effects = watch.close();
        assert!(effects.relies_on_key && effects.unkeyed.is_none());
    }

    #[test]
    fn a_sent_effect_may_rely_on_the_key() {
        for (asks, method, key, leaves, relies) in [
            (true, "POST", Some("k"), true, true),
            (true, "PATCH", Some("k:label"), true, true),
            // The key may be in the body.
            (true, "POST", None, true, true),
            (true, "POST", Some("k"), false, false),
            (false, "POST", None, true, false),
            (true, "PUT", Some("k"), true, false),
            (true, "GET", Some("k"), true, false),
        ] {
            let watch = KeyWatch::new("k".into());
            if asks {
                watch.key_for_guest();
            }
            let request = Request::builder().method(method).uri("/");
            let request =
                key.into_iter().fold(request, |request, key| request.header("idempotency-key", key));
            let request = request.body(()).unwrap();
            let watched = watch.judge(&request, "a", watch.is_keyed(request.headers()));
            if let Some(number) = watched.map(|watched| watch.mark_sending(watched).unwrap())
                && !leaves
            {
                watch.mark_unsent(number);
            }
            assert_eq!(watch.close().relies_on_key, relies, "{method} {key:?} {asks} {leaves}");
        }
    }
}
