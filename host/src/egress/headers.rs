//! Which header fields a guest may set, which it may see, and how many bytes they are.

use http::{HeaderMap, HeaderName, Method, Uri, header};

/// Fields that belong to the connection, or by which a request claims to come from somewhere else.
const FORBIDDEN: &[&str] = &[
    "connection",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-real-ip",
];

const FORBIDDEN_PREFIXES: &[&str] = &["proxy-", "x-forwarded-"];

/// Whether a guest may set `name` on a request.
///
/// The host alone frames messages and names the server: a second opinion on either is how requests are
/// smuggled. `Authorization` and `Cookie` are the guest's own to set.
#[must_use]
pub fn guest_may_set(name: &HeaderName) -> bool {
    let name = name.as_str();
    !FORBIDDEN.contains(&name) && !FORBIDDEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Removes what a guest may not see of a response: cookies are a session that outlives the call.
pub(super) fn hide_from_guest(headers: &mut HeaderMap) {
    headers.remove(header::SET_COOKIE);
    headers.remove("set-cookie2");
}

/// The bytes of a request's first line as HTTP/1.1 writes it: method, path and query, version, line end.
#[must_use]
pub fn line_bytes(method: &Method, uri: &Uri) -> usize {
    let path = uri.path_and_query().map_or(1, |path| path.as_str().len().max(1));
    method.as_str().len() + path + "  HTTP/1.1\r\n".len()
}

/// The bytes of all fields as they go over the wire: name, colon, space, value, line end.
#[must_use]
pub fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn row_91_what_frames_or_misattributes_a_message_is_the_hosts() {
        for name in [
            "Host",
            "Connection",
            "Keep-Alive",
            "Proxy-Authorization",
            "Proxy-Authenticate",
            "Proxy-Connection",
            "TE",
            "Trailer",
            "Transfer-Encoding",
            "Upgrade",
            "Expect",
            "HTTP2-Settings",
            "Forwarded",
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "X-Forwarded-Proto",
            "X-Real-IP",
            "Via",
        ] {
            assert!(!guest_may_set(&HeaderName::from_bytes(name.as_bytes()).unwrap()), "{name}");
        }
        for name in [
            "Accept",
            "Authorization",
            "Cookie",
            "Content-Type",
            "Content-Length",
            "Idempotency-Key",
            "X-Api-Key",
            "User-Agent",
            "Hostname",
        ] {
            assert!(guest_may_set(&HeaderName::from_bytes(name.as_bytes()).unwrap()), "{name}");
        }
    }

    #[test]
    fn bytes_are_those_of_the_wire() {
        let mut headers = HeaderMap::new();
        headers.append("a", "bc".parse().unwrap());
        headers.append("a", "d".parse().unwrap());
        headers.append("set-cookie", "x=y".parse().unwrap());
        assert_eq!(header_bytes(&headers), "a: bc\r\na: d\r\nset-cookie: x=y\r\n".len());
        hide_from_guest(&mut headers);
        assert_eq!(header_bytes(&headers), "a: bc\r\na: d\r\n".len());
    }
}
