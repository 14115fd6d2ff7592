//! One host that a connector requests: an exact name and port, with no form that could match two.

use std::fmt;
use std::str::FromStr;

use cofferdam_core::document::{InvalidValue, SpannedItem, quoted};
use http::Method;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The protocol of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UrlScheme {
    /// Over TLS; what a bare `host:port` means.
    Https,
    /// In the clear; must be written `http://host:port`.
    Http,
}

impl UrlScheme {
    /// The scheme as in a URL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            UrlScheme::Https => "https",
            UrlScheme::Http => "http",
        }
    }
}

/// A granted host: scheme, DNS name in lower case, port.
///
/// Text form: `slack.com:443` for TLS, `http://localhost:8080` without. No wildcards, no addresses, no paths;
/// `localhost` is an ordinary name here (reaching it also needs the operator's permission).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostGrant {
    host: String,
    port: u16,
    scheme: UrlScheme,
}

impl HostGrant {
    /// Reads `host:port` or `http://host:port`; upper case is folded.
    ///
    /// # Errors
    /// Anything that is not one exact host and port, with the nearest spelling that is.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        check(text).map_err(|reason| {
            let message = format!("{} is not an exact host:port{reason}", quoted(text));
            let fix = match respelled(text) {
                _ if text.contains('*') => named_hosts(text),
                Some(grant) => format!("write it as \"{grant}\""),
                None => "write it like \"api.example.com:443\"".to_owned(),
            };
            InvalidValue::new(message, fix)
        })
    }

    /// Returns its protocol.
    #[must_use]
    pub fn scheme(&self) -> UrlScheme {
        self.scheme
    }

    /// The DNS name, in lower case.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; never 0.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Returns the grant in `text`, or the reason why there is none, as the end of a sentence.
fn check(text: &str) -> Result<HostGrant, &'static str> {
    let lower = text.to_ascii_lowercase();
    let (scheme, rest) = match lower.split_once("://") {
        None => (UrlScheme::Https, lower.as_str()),
        Some(("http", rest)) => (UrlScheme::Http, rest),
        Some(("https", _)) => return Err(" (https is what a bare host:port means)"),
        Some(_) => return Err(" (the only scheme to write is http://)"),
    };
    if rest.contains('*') {
        return Err("");
    }
    if !rest.is_ascii() {
        return Err(" (write international names in their xn-- form)");
    }
    if rest.contains('@') {
        return Err(" (no user name or password)");
    }
    if rest.contains(['/', '?', '#']) {
        return Err(" (no path)");
    }
    if rest.starts_with('[') {
        return Err(" (a name, not an IP address)");
    }
    let (host, port) = rest.rsplit_once(':').ok_or(" (the port is missing)")?;
    let decimal = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) && !port.starts_with('0');
    let port = port.parse().ok().filter(|_| decimal).ok_or(" (a port is a number from 1 to 65535)")?;
    check_host(host)?;
    Ok(HostGrant { host: host.to_owned(), port, scheme })
}

fn check_host(host: &str) -> Result<(), &'static str> {
    if host.ends_with('.') {
        return Err(" (no trailing dot)");
    }
    if host.is_empty() || host.len() > 253 {
        return Err(" (a host name has 1 to 253 characters)");
    }
    for label in host.split('.') {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        let hyphen = label.starts_with('-') || label.ends_with('-');
        if label.is_empty() || label.len() > 63 || hyphen || !label.bytes().all(inner) {
            return Err(" (not a DNS name)");
        }
    }
    // A name that ends in a number is an IPv4 address to every URL parser, in any base.
    let last = host.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    if hex || last.bytes().all(|b| b.is_ascii_digit()) {
        return Err(" (a name, not an IP address)");
    }
    Ok(())
}

/// Returns the fix for a wildcard, which cannot be replaced by one host.
fn named_hosts(text: &str) -> String {
    let example = text.trim().strip_prefix("*.").and_then(|domain| respelled(&format!("api.{domain}")));
    let example = example.map_or_else(|| "api.example.com:443".to_owned(), |grant| grant.to_string());
    format!("no pattern stands for several hosts: name each one, like \"{example}\"")
}

/// Returns the grant that was probably meant: without scheme, user, path and dot, with a port.
fn respelled(text: &str) -> Option<HostGrant> {
    let lower = text.trim().to_ascii_lowercase();
    let (prefix, default_port, rest) = match lower.split_once("://") {
        Some(("http", rest)) => ("http://", 80, rest),
        Some((_, rest)) => ("", 443, rest),
        None => ("", 443, lower.as_str()),
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
    let port = port.trim_start_matches('0').parse::<u16>().unwrap_or(default_port);
    let host = host.trim_end_matches('.');
    check(&format!("{prefix}{host}:{port}")).ok()
}

impl fmt::Display for HostGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.scheme {
            UrlScheme::Https => "",
            UrlScheme::Http => "http://",
        };
        write!(f, "{prefix}{}:{}", self.host, self.port)
    }
}

impl FromStr for HostGrant {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Self::parse(text)
    }
}

impl Serialize for HostGrant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostGrant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

/// The methods that every connector may send, in the order in which they are shown.
pub const EVERYONES_METHODS: [&str; 7] = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"];

/// Most characters of a method that a manifest names.
const MAX_CHARS: usize = 32;

/// Returns whether no connector may send `method`: CONNECT opens a tunnel past the gate, TRACE (and TRACK, its other
/// name) makes the server return what the host added to the request.
pub fn is_forbidden_method(method: &str) -> bool {
    ["CONNECT", "TRACE", "TRACK"].iter().any(|forbidden| method.eq_ignore_ascii_case(forbidden))
}

/// Returns whether a manifest may write `text` as a method: upper case and `-`, as every registered method is.
pub fn is_method_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_uppercase() || b == b'-';
    text.len() <= MAX_CHARS && text.starts_with(|c: char| c.is_ascii_uppercase()) && text.bytes().all(inner)
}

/// Reads one entry of `methods`; `before` are the entries above it.
pub(super) fn extra_method(text: &SpannedItem<'_, &str>, before: &[Method]) -> Option<Method> {
    let method = text.parse(|text| read(text))?;
    if before.contains(&method) {
        let message = format!("\"{method}\" stands in the list twice");
        text.refuse(InvalidValue::new(message, "remove one of the two"));
        return None;
    }
    Some(method)
}

fn read(text: &str) -> Result<Method, InvalidValue> {
    if is_forbidden_method(text) {
        let message = format!("{} is a method that no connector may send", quoted(text));
        return Err(InvalidValue::new(message, "remove it"));
    }
    if EVERYONES_METHODS.contains(&text) {
        let message = format!("every connector may send {text}");
        return Err(InvalidValue::new(message, "remove it; the list is for other methods"));
    }
    let method = Method::from_bytes(text.as_bytes()).ok().filter(|_| is_method_name(text));
    method.ok_or_else(|| {
        let message = format!("{} is not the name of a method", quoted(text));
        let upper = text.to_ascii_uppercase();
        let fix = match EVERYONES_METHODS.contains(&upper.as_str()) {
            true => format!("remove it: every connector may send {upper}"),
            false if is_method_name(&upper) => format!("write it as \"{upper}\""),
            false => format!("write up to {MAX_CHARS} upper-case letters and `-`, like \"PROPFIND\""),
        };
        InvalidValue::new(message, fix)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::{HostGrant, UrlScheme};

    #[test]
    fn exact_hosts_round_trip() {
        for (text, shown) in [
            ("slack.com:443", "slack.com:443"),
            ("Slack.COM:8443", "slack.com:8443"),
            ("http://localhost:8080", "http://localhost:8080"),
            ("HTTP://Localhost:1", "http://localhost:1"),
            ("xn--bcher-kva.example:65535", "xn--bcher-kva.example:65535"),
            ("my_bucket.s3.amazonaws.com:443", "my_bucket.s3.amazonaws.com:443"),
            ("1password.com:443", "1password.com:443"),
        ] {
            let grant = HostGrant::parse(text).unwrap();
            assert_eq!(grant.to_string(), shown);
            assert_eq!(HostGrant::parse(shown).unwrap(), grant);
        }
        let grant = HostGrant::parse("http://localhost:8080").unwrap();
        assert_eq!((grant.scheme(), grant.host(), grant.port()), (UrlScheme::Http, "localhost", 8080));
    }

    #[test]
    fn ambiguous_hosts_are_refused_with_a_fix() {
        let label = format!("{}.com:443", "a".repeat(64));
        for (text, fix) in [
            ("", "like \"api.example.com:443\""),
            ("*", "like \"api.example.com:443\""),
            ("*.slack.com", "like \"api.slack.com:443\""),
            ("*.slack.com:8443", "like \"api.slack.com:8443\""),
            ("api.*.com:443", "like \"api.example.com:443\""),
            ("*.*", "like \"api.example.com:443\""),
            ("slack.com", "as \"slack.com:443\""),
            ("slack.com:", "as \"slack.com:443\""),
            ("slack.com:0", "as \"slack.com:443\""),
            ("slack.com:65536", "as \"slack.com:443\""),
            ("slack.com:0443", "as \"slack.com:443\""),
            ("slack.com:+443", "as \"slack.com:443\""),
            ("slack.com.:443", "as \"slack.com:443\""),
            ("https://slack.com", "as \"slack.com:443\""),
            ("https://slack.com:8443/api", "as \"slack.com:8443\""),
            ("http://localhost", "as \"http://localhost:80\""),
            ("ftp://slack.com:21", "as \"slack.com:21\""),
            ("me:pw@slack.com:443", "as \"slack.com:443\""),
            ("slack.com:443/api", "as \"slack.com:443\""),
            ("slack.com:443?x", "as \"slack.com:443\""),
            (" slack.com:443", "as \"slack.com:443\""),
            ("slack.com:443\n", "as \"slack.com:443\""),
            ("127.0.0.1:80", "like \"api.example.com:443\""),
            ("0x7f.1:80", "like \"api.example.com:443\""),
            ("2130706433:80", "like \"api.example.com:443\""),
            ("a.0x7f:80", "like \"api.example.com:443\""),
            ("[::1]:80", "like \"api.example.com:443\""),
            ("::1:80", "like \"api.example.com:443\""),
            ("slack..com:443", "like \"api.example.com:443\""),
            ("-slack.com:443", "like \"api.example.com:443\""),
            ("slack.com\\x:443", "like \"api.example.com:443\""),
            ("sl%61ck.com:443", "like \"api.example.com:443\""),
            ("slаck.com:443", "like \"api.example.com:443\""),
            ("slack。com:443", "like \"api.example.com:443\""),
            ("sla ck.com:443", "like \"api.example.com:443\""),
            (&label, "like \"api.example.com:443\""),
        ] {
            let error = HostGrant::parse(text).unwrap_err();
            assert!(error.message().contains("is not an exact host:port"), "{text:?}: {error}");
            assert!(error.fix().ends_with(fix), "{text:?}: {error}");
        }
    }
}
