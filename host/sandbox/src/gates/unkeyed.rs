//! Requests that a service may act upon each time they arrive. They decide whether an operation may be
//! repeated if its manifest leaves that open.
//!
//! HTTP calls GET, HEAD, OPTIONS, TRACE, PUT and DELETE idempotent (RFC 9110, 9.2.2). Every other request has
//! to carry the call's idempotency key: as the value of a header field, alone or with `:label` after it, bare
//! or in double quotes (a string of RFC 9651), and only after the guest asked the host for it. A short key
//! that a caller chose may be the value of another field by coincidence, and a guest that never asked for the
//! key cannot have meant it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_core::failure::UnkeyedRequest;
use cofferdam_egress::egress::is_method_override;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Request};

/// The methods that HTTP defines as idempotent.
const IDEMPOTENT: [Method; 6] =
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE];

/// Watches the requests of one attempt for unkeyed ones.
#[derive(Debug)]
pub struct UnkeyedWatch {
    key: Arc<str>,
    key_was_asked_for: AtomicBool,
    sent: Mutex<SentRequest>,
}

#[derive(Debug, Default)]
struct SentRequest {
    /// The requests in the order in which they were sent; none for a request of which nothing left.
    requests: Vec<Option<UnkeyedRequest>>,
    is_closed: bool,
}

/// Names an unkeyed request that is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentNumber(usize);

/// The attempt is over: no unkeyed request may be sent any more.
#[derive(Debug)]
pub(super) struct ClosedWatch;

impl UnkeyedWatch {
    /// The watch of an attempt that carries this key.
    pub fn new(key: Arc<str>) -> Self {
        Self { key, key_was_asked_for: AtomicBool::new(false), sent: Mutex::default() }
    }

    /// The key, for the guest.
    pub(super) fn key_for_guest(&self) -> &str {
        self.key_was_asked_for.store(true, Ordering::Relaxed);
        &self.key
    }

    /// Returns the request to `host` as an unkeyed one, if it is unkeyed.
    pub(super) fn judge<B>(&self, request: &Request<B>, host: impl ToString) -> Option<UnkeyedRequest> {
        let fields = request.headers();
        let is_idempotent = IDEMPOTENT.contains(request.method()) && !fields.keys().any(is_method_override);
        if is_idempotent || (self.key_was_asked_for.load(Ordering::Relaxed) && carries(fields, &self.key)) {
            return None;
        }
        Some(UnkeyedRequest::new(request.method().as_str(), host.to_string()))
    }

    /// Records that an unkeyed request is about to be sent. Until it is known that nothing of it left
    /// ([`unsent`](Self::unsent)) it counts as sent, even if nothing waits for its end.
    ///
    /// # Errors
    /// The attempt is over, and was judged by the requests it had sent.
    pub(super) fn sends(&self, request: UnkeyedRequest) -> Result<SentNumber, ClosedWatch> {
        let mut sent = self.lock();
        if sent.is_closed {
            return Err(ClosedWatch);
        }
        sent.requests.push(Some(request));
        Ok(SentNumber(sent.requests.len().saturating_sub(1)))
    }

    /// Records that nothing of this request has left, and nothing will.
    pub(super) fn unsent(&self, SentNumber(at): SentNumber) {
        if let Some(request) = self.lock().requests.get_mut(at) {
            *request = None;
        }
    }

    /// Ends the watch: no unkeyed request is sent from now on. Returns the first that was sent, if there is
    /// one.
    pub fn close(&self) -> Option<UnkeyedRequest> {
        let mut sent = self.lock();
        sent.is_closed = true;
        sent.requests.iter().flatten().next().cloned()
    }

    fn lock(&self) -> MutexGuard<'_, SentRequest> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if a field's value is the key, or the key with a label.
fn carries(fields: &HeaderMap, key: &str) -> bool {
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

    fn judged(key: &str, asks: bool, method: &str, field: Option<(&str, &str)>) -> Option<UnkeyedRequest> {
        let watch = UnkeyedWatch::new(key.into());
        if asks {
            assert_eq!(watch.key_for_guest(), key);
        }
        let mut request = Request::builder().method(method).uri("/");
        if let Some((name, value)) = field {
            request = request.header(name, value);
        }
        watch.judge(&request.body(()).unwrap(), "a.example:443")
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
    fn the_key_is_the_whole_value_of_a_field_or_has_a_label() {
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
    fn a_coincidence_is_no_key() {
        assert!(judged("17", true, "POST", Some(("content-length", "17"))).is_some());
        assert!(judged("17", false, "POST", Some(("x-order", "17"))).is_some(), "nobody asked for the key");
        assert_eq!(judged("17", true, "POST", Some(("x-order", "17"))), None);
    }

    #[test]
    fn nothing_unkeyed_is_sent_after_the_watch_ended() {
        let watch = UnkeyedWatch::new("k".into());
        let request = |host: &str| UnkeyedRequest::new("POST", String::from(host));
        let first = watch.sends(request("a")).unwrap();
        watch.sends(request("b")).unwrap();
        watch.unsent(first);
        assert_eq!(watch.close(), Some(request("b")), "the first of which something may have left");
        assert!(watch.sends(request("c")).is_err());
        assert_eq!(watch.close(), Some(request("b")));
    }
}
