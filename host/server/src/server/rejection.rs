//! The listener's own answers: the health check, and rejections of requests.

use axum::body::Body;
use cofferdam_core::failure::AuditId;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

/// The reason why a request is rejected. The answer contains nothing of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestRejection {
    Host,
    Origin,
    Token,
    /// The method is not one of the health check.
    Method,
    TooLarge,
    TooSlow,
    /// The budget of bytes has no room for it.
    Busy,
    Broken,
    Closing,
}

impl RequestRejection {
    const fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Host => {
                (StatusCode::FORBIDDEN, "host_refused", "The request names a host that is not this server's.")
            }
            Self::Origin => {
                (StatusCode::FORBIDDEN, "origin_refused", "Pages of this origin may not ask this server.")
            }
            Self::Token => {
                (StatusCode::UNAUTHORIZED, "unauthorized", "The request has no token that this server knows.")
            }
            Self::Method => {
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "This path has no such method.")
            }
            Self::TooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "The body is longer than a request's may be.")
            }
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "too_slow", "The body took too long to arrive."),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "The server holds as many bytes of requests as it may.",
            ),
            Self::Broken => (StatusCode::BAD_REQUEST, "unreadable", "The body could not be read to its end."),
            Self::Closing => (StatusCode::SERVICE_UNAVAILABLE, "closing", "The server is about to end."),
        }
    }

    /// Returns the code, for the log.
    pub(super) const fn code(self) -> &'static str {
        self.parts().1
    }

    /// Returns the envelope of errors that are no outcome of a call.
    pub(super) fn answer(self) -> Response<Body> {
        let (status, code, message) = self.parts();
        let envelope = json!({"error": {"code": code, "message": message, "details": {}, "request_id": AuditId::mint()}});
        let mut answer = Response::new(Body::from(envelope.to_string()));
        *answer.status_mut() = status;
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self == Self::Token {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self == Self::Busy {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self == Self::Method {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET,HEAD"));
        }
        // The rest of the request is not read, and a rejected client holds no connection.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        answer
    }
}

/// The answer to a health check. Every client may request it, and so the connection ends with it.
pub(super) fn healthy() -> Response<Body> {
    let mut answer = Response::new(Body::from("ok\n"));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}
