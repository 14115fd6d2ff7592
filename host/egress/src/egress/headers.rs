//! The header fields that a guest may set, those that it may see, and their size in bytes.

use http::{HeaderMap, HeaderName, Method, Uri, header};

use GuestRule::{Free, HostsOwn, Judged, NotWithCredential};

/// The rule for one field of a guest's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestRule {
    /// A guest may set the field.
    Free,
    /// A guest may set the field; the host judges or replaces its value, so only one spelling is allowed.
    Judged,
    /// A guest may set the field, but it is removed from a request that carries a credential.
    NotWithCredential,
    /// No guest may set the field.
    HostsOwn,
}

impl GuestRule {
    /// Returns the rule in a few words, as the documentation lists it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Free => "a guest may set it",
            Judged => "a guest may set it, in this spelling only",
            NotWithCredential => "dropped where the request carries a credential",
            HostsOwn => "refused",
        }
    }
}

/// The standard fields of requests, each with its rule and the reason. A name that ends in `*` is a prefix.
///
/// A field that is not listed is the service's own (`X-Api-Key`, `Notion-Version`), and a guest may set it.
pub const REQUEST_FIELDS: &[(&str, GuestRule, &str)] = &[
    ("connection", HostsOwn, FRAMING),
    ("expect", HostsOwn, FRAMING),
    ("http2-settings", HostsOwn, FRAMING),
    ("keep-alive", HostsOwn, FRAMING),
    ("te", HostsOwn, FRAMING),
    ("trailer", HostsOwn, FRAMING),
    ("transfer-encoding", HostsOwn, FRAMING),
    ("upgrade", HostsOwn, FRAMING),
    ("host", HostsOwn, "it names the server, which was checked"),
    ("early-data", HostsOwn, "only an intermediary may write it"),
    ("proxy-*", HostsOwn, "it speaks to a proxy on the way"),
    ("cf-connecting-ip", HostsOwn, ORIGIN),
    ("client-ip", HostsOwn, ORIGIN),
    ("forwarded", HostsOwn, ORIGIN),
    ("true-client-ip", HostsOwn, ORIGIN),
    ("via", HostsOwn, ORIGIN),
    ("x-client-ip", HostsOwn, ORIGIN),
    ("x-cluster-client-ip", HostsOwn, ORIGIN),
    ("x-forwarded-*", HostsOwn, ORIGIN),
    ("x-real-ip", HostsOwn, ORIGIN),
    ("a-im", NotWithCredential, PIECES),
    ("accept-charset", NotWithCredential, "a secret in another encoding cannot be found in the response"),
    ("if-range", NotWithCredential, PIECES),
    ("range", NotWithCredential, PIECES),
    ("accept-encoding", Judged, "the host asks for `identity` where the connector has a credential"),
    ("content-length", Judged, "it must be the body's length"),
    ("x-http-method", Judged, METHOD),
    ("x-http-method-override", Judged, METHOD),
    ("x-method-override", Judged, METHOD),
    ("accept", Free, NEGOTIATION),
    ("accept-language", Free, NEGOTIATION),
    ("prefer", Free, NEGOTIATION),
    ("authorization", Free, "a guest may have its own; it is the host's where a credential writes it"),
    ("cookie", Free, "it holds what the guest puts there; the host keeps no cookies"),
    ("cache-control", Free, CACHES),
    ("pragma", Free, CACHES),
    ("content-disposition", Free, BODY),
    ("content-encoding", Free, BODY),
    ("content-language", Free, BODY),
    ("content-location", Free, BODY),
    ("content-range", Free, BODY),
    ("content-type", Free, BODY),
    ("if-match", Free, CONDITION),
    ("if-modified-since", Free, CONDITION),
    ("if-none-match", Free, CONDITION),
    ("if-unmodified-since", Free, CONDITION),
    ("from", Free, SELF),
    ("origin", Free, SELF),
    ("referer", Free, SELF),
    ("user-agent", Free, SELF),
    ("baggage", Free, TRACE),
    ("traceparent", Free, TRACE),
    ("tracestate", Free, TRACE),
    ("idempotency-key", Free, "the service uses it to recognise a repeated request"),
    ("max-forwards", Free, "it only limits OPTIONS"),
    ("priority", Free, "the service may serve it sooner or later for that"),
];

const FRAMING: &str = "the host alone frames messages and keeps connections";
const ORIGIN: &str = "it claims that the request comes from somewhere else";
const PIECES: &str = "a secret that comes in pieces cannot be found in the response";
const METHOD: &str = "it must name a method that is granted";
const NEGOTIATION: &str = "it says which form of the answer the guest prefers";
const CACHES: &str = "it concerns caches, of which the host has none";
const BODY: &str = "it describes the guest's own body";
const CONDITION: &str = "it makes the request conditional";
const SELF: &str = "it is what the guest says of itself";
const TRACE: &str = "it names a trace";

/// The listed fields that a request may have after its body (RFC 9110, 6.5.1): a server may act on the head before
/// it has seen them.
const TRAILERS: [&str; 3] = ["baggage", "traceparent", "tracestate"];

/// Returns whether a guest may set `name` on a request.
///
/// Some servers read `_` as `-`, so a name with `_` must not become one that the host rejects or judges.
#[must_use]
pub fn guest_may_set(name: &HeaderName) -> bool {
    match rule(name) {
        HostsOwn => false,
        Judged => !name.as_str().contains('_') || is_method_override(name),
        Free | NotWithCredential => true,
    }
}

/// Returns whether a request that carries a credential goes out without the field.
pub(super) fn dropped_with_credential(name: &HeaderName) -> bool {
    rule(name) == NotWithCredential
}

/// Returns whether a guest may set `name` after the body of a request.
#[must_use]
pub fn guest_may_trail(name: &HeaderName) -> bool {
    let listed = REQUEST_FIELDS.iter().any(|(field, ..)| matches(field, name));
    guest_may_set(name) && (!listed || TRAILERS.contains(&name.as_str()))
}

/// Returns whether servers read a method in the field.
pub fn is_method_override(name: &HeaderName) -> bool {
    ["x-http-method-override", "x-http-method", "x-method-override"]
        .iter()
        .any(|known| is_read_as(name.as_str(), known))
}

/// Returns whether a server that reads `_` as `-` takes `name` for `known`, which is in lower case.
#[must_use]
pub fn is_read_as(name: &str, known: &str) -> bool {
    let fold = |b: u8| if b == b'_' { b'-' } else { b };
    name.len() == known.len() && name.bytes().map(fold).eq(known.bytes().map(fold))
}

fn rule(name: &HeaderName) -> GuestRule {
    let listed = REQUEST_FIELDS.iter().find(|(field, ..)| matches(field, name));
    listed.map_or(Free, |(_, rule, _)| *rule)
}

fn matches(field: &str, name: &HeaderName) -> bool {
    match field.strip_suffix('*') {
        Some(prefix) => name.as_str().get(..prefix.len()).is_some_and(|start| is_read_as(start, prefix)),
        None => is_read_as(name.as_str(), field),
    }
}

/// Removes the fields that a guest may not see from a response: cookies are a session that outlives the call.
pub(super) fn hide_from_guest(headers: &mut HeaderMap) {
    headers.remove(header::SET_COOKIE);
    headers.remove("set-cookie2");
}

/// Returns the size of a request's first line in HTTP/1.1: method, path and query, version, line end.
#[must_use]
pub fn line_bytes(method: &Method, uri: &Uri) -> usize {
    let path = uri.path_and_query().map_or(1, |path| path.as_str().len().max(1));
    method.as_str().len() + path + "  HTTP/1.1\r\n".len()
}

/// Returns the size of all fields on the wire: name, colon, space, value, line end.
#[must_use]
pub fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn name(text: &str) -> HeaderName {
        HeaderName::from_bytes(text.as_bytes()).unwrap()
    }

    fn fields(rule: GuestRule) -> impl Iterator<Item = String> {
        let listed = REQUEST_FIELDS.iter().filter(move |(_, its, _)| *its == rule);
        listed.map(|(field, ..)| field.replace('*', "anything"))
    }

    #[test]
    fn guests_may_not_set_framing_headers() {
        for text in [
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
            assert!(!guest_may_set(&name(text)), "{text}");
        }
        for text in fields(HostsOwn) {
            assert!(!guest_may_set(&name(&text)), "{text}");
            assert!(!guest_may_set(&name(&text.replace('-', "_"))), "{text} with _");
        }
    }

    #[test]
    fn underscore_names_follow_the_rules_of_hyphens() {
        for text in
            ["X_Forwarded_For", "X-Forwarded_For", "Transfer_Encoding", "proxy_authorization", "x_real_ip"]
        {
            assert!(!guest_may_set(&name(text)), "{text}");
        }
        for text in ["content_length", "accept_encoding"] {
            assert!(!guest_may_set(&name(text)), "{text}: the host judges the other one");
        }
        for text in ["api_key", "x_api_key", "my_host", "hosts", "x_forwarded", "content_type"] {
            assert!(guest_may_set(&name(text)), "{text}");
        }
        assert!(dropped_with_credential(&name("if_range")));
    }

    #[test]
    fn allowed_guest_headers_pass() {
        for rule in [Free, Judged, NotWithCredential] {
            for text in fields(rule) {
                assert!(guest_may_set(&name(&text)), "{text}");
                assert_eq!(dropped_with_credential(&name(&text)), rule == NotWithCredential, "{text}");
            }
        }
        for text in ["X-Api-Key", "Hostname", "Notion-Version", "X-Requested-With"] {
            assert!(guest_may_trail(&name(text)), "{text}");
        }
    }

    #[test]
    fn every_field_is_listed_once_with_a_reason() {
        let mut listed: Vec<_> = REQUEST_FIELDS.iter().map(|(field, ..)| *field).collect();
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(listed.len(), REQUEST_FIELDS.len());
        assert!(REQUEST_FIELDS.iter().all(|(.., reason)| !reason.is_empty()));
        let docs = include_str!("../../../../docs/reference/network.md");
        // Fields with the same rule and reason share a row.
        let mut rows: Vec<(String, Vec<String>)> = Vec::new();
        for (field, rule, reason) in REQUEST_FIELDS {
            let (field, end) = (format!("`{field}`"), format!("{} | {reason} |", rule.words()));
            match rows.iter_mut().find(|row| row.0 == end) {
                Some(row) => row.1.push(field),
                None => rows.push((end, vec![field])),
            }
        }
        let rows: Vec<_> =
            rows.iter().map(|(end, fields)| format!("| {} | {end}", fields.join(", "))).collect();
        let table = docs.lines().skip_while(|line| *line != "| field | rule | reason |").skip(2);
        let listed: Vec<_> = table.take_while(|line| !line.is_empty()).collect();
        assert_eq!(listed, rows, "docs/reference/network.md");
    }

    #[test]
    fn trailers_cannot_set_head_fields() {
        for text in [
            "content-length",
            "Content_Length",
            "transfer-encoding",
            "host",
            "x-forwarded-for",
            "x_forwarded_for",
            "range",
            "authorization",
            "x-http-method",
            "x-http-method-override",
        ] {
            assert!(!guest_may_trail(&name(text)), "{text}");
        }
        for text in ["x-checksum", "content-digest", "traceparent"] {
            assert!(guest_may_trail(&name(text)), "{text}");
        }
    }

    #[test]
    fn header_bytes_match_the_wire() {
        let mut headers = HeaderMap::new();
        headers.append("a", "bc".parse().unwrap());
        headers.append("a", "d".parse().unwrap());
        headers.append("set-cookie", "x=y".parse().unwrap());
        assert_eq!(header_bytes(&headers), "a: bc\r\na: d\r\nset-cookie: x=y\r\n".len());
        hide_from_guest(&mut headers);
        assert_eq!(header_bytes(&headers), "a: bc\r\na: d\r\n".len());
    }
}
