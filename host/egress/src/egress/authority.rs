//! The target of a request: scheme, host and port in the canonical form that all later checks compare.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use cofferdam_core::failure::Denial;
use cofferdam_model::manifest::UrlScheme;
use http::Uri;

use super::policy;

/// The longest DNS name, in characters.
const NAME_CHARS: usize = 253;

/// A target in canonical form: lower case, no trailing dot, port always known.
///
/// Only [`RequestTarget::from_uri`] creates one, so that the name means the same to the policy, to the resolver, to
/// the certificate check and in the `Host` header. Every attack on a host allow-list by spelling (userinfo,
/// escapes, other number bases) needs two parsers that disagree. There is only one parser here, and it
/// rejects everything that it would have to interpret.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestTarget {
    scheme: UrlScheme,
    host: String,
    port: u16,
    literal: bool,
}

impl RequestTarget {
    /// Parses the target of an absolute `http` or `https` URI. Pure: performs no lookup.
    ///
    /// # Errors
    /// A denial with the code `invalid_authority` (it lists no grants; [`EgressPolicy::decide`] adds them) for
    /// another scheme, a missing host, non-ASCII, userinfo, `%`, `\`, a port that is not a plain number from
    /// 1 to 65535, an IPv4 address in any but dotted decimal form, and an IPv6 zone or future form.
    ///
    /// [`EgressPolicy::decide`]: super::EgressPolicy::decide
    pub fn from_uri(uri: &Uri) -> Result<Self, Denial> {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        read(uri.scheme_str(), authority).map_err(|reason| policy::invalid_authority(authority, reason))
    }

    /// Returns the scheme, which tells whether the request uses TLS.
    #[must_use]
    pub fn scheme(&self) -> UrlScheme {
        self.scheme
    }

    /// Returns the name in lower case, or an address (an IPv6 address in brackets).
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, which is never 0.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns whether the host is an address rather than a name.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.literal
    }

    /// Returns the value of the `Host` header, with the port only if it is not the scheme's default.
    pub(super) fn host_header(&self) -> String {
        if self.port == default_port(self.scheme) { self.host.clone() } else { self.to_string() }
    }
}

impl fmt::Display for RequestTarget {
    /// Writes `host:port`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

fn read(scheme: Option<&str>, authority: &str) -> Result<RequestTarget, &'static str> {
    let scheme = match scheme {
        Some(scheme) if scheme.eq_ignore_ascii_case("https") => UrlScheme::Https,
        Some(scheme) if scheme.eq_ignore_ascii_case("http") => UrlScheme::Http,
        _ => return Err("the scheme must be https or http"),
    };
    let (host, port) = split(authority)?;
    let port = port.map_or(Ok(default_port(scheme)), parse_port)?;
    let (host, literal) = canonical_host(host)?;
    Ok(RequestTarget { scheme, host, port, literal })
}

const fn default_port(scheme: UrlScheme) -> u16 {
    match scheme {
        UrlScheme::Https => 443,
        UrlScheme::Http => 80,
    }
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`, in which all characters are plain.
pub(super) fn split(authority: &str) -> Result<(&str, Option<&str>), &'static str> {
    if authority.is_empty() {
        return Err("the host is missing");
    }
    if authority.contains('@') {
        return Err("a user name or password has no place before the host");
    }
    if !authority.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b)) {
        return Err("only ASCII letters, digits, hyphens and dots are plain; escapes and others are not");
    }
    if authority.starts_with('[') {
        let end = authority.find(']').ok_or("the closing bracket is missing")?;
        let (host, rest) = authority.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err("only a port may follow the bracket"),
        };
    }
    match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => Err("an IPv6 address is written in brackets"),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((authority, None)),
    }
}

/// Parses a port as a plain number from 1 to 65535.
pub(super) fn parse_port(text: &str) -> Result<u16, &'static str> {
    let plain = !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| plain).ok_or("a port is a plain number from 1 to 65535")
}

/// Returns the host in canonical form, and whether it is an address.
///
/// `url` decides what is an address, as browsers do. A form that it had to translate (`127.1`, `0x7f.1`,
/// `2130706433`, a name that its IDNA rules map to another) is rejected rather than translated, since no
/// honest client writes it.
pub(super) fn canonical_host(text: &str) -> Result<(String, bool), &'static str> {
    if let Some(inner) = text.strip_prefix('[') {
        let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
        let address = address.ok_or("not an IPv6 address (zones and future forms are refused)")?;
        return Ok((format!("[{address}]"), true));
    }
    let lower = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if lower.is_empty() || lower.len() > NAME_CHARS {
        return Err("a host name has 1 to 253 characters");
    }
    match url::Host::parse(&lower) {
        Ok(url::Host::Ipv4(address)) if lower.parse::<Ipv4Addr>() == Ok(address) => Ok((lower, true)),
        Ok(url::Host::Ipv4(_)) => Err("an IPv4 address is written as four decimal numbers"),
        Ok(url::Host::Domain(name)) if name == lower && name.split('.').all(is_label) => Ok((lower, false)),
        _ => Err("not a host name"),
    }
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
}

/// One exact host and port for any scheme.
///
/// The host may be a name or an address (IPv6 in brackets). There are no wildcards and no ranges.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    host: String,
    port: u16,
}

/// The error for a text that is not a valid `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a host:port ({reason}); write it like localhost:8080 or [::1]:8080")]
pub struct HostPortError {
    text: String,
    reason: &'static str,
}

impl HostPort {
    /// Parses `host:port`. Upper case is folded and one trailing dot dropped.
    ///
    /// # Errors
    /// Anything else, with the reason.
    pub fn parse(text: &str) -> Result<Self, HostPortError> {
        let read = || {
            let (host, port) = split(text)?;
            let port = parse_port(port.ok_or("the port is missing")?)?;
            Ok(Self { host: canonical_host(host)?.0, port })
        };
        read().map_err(|reason| HostPortError { text: cofferdam_core::failure::ascii_line(text, 80), reason })
    }

    /// Returns the name in lower case, or an address.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, which is never 0.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for HostPort {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<Self, HostPortError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use cofferdam_core::failure::DenialCode;

    use super::{HostPort, *};

    #[test]
    fn targets_have_one_canonical_spelling() {
        for (uri, scheme, shown, header) in [
            ("https://slack.com", UrlScheme::Https, "slack.com:443", "slack.com"),
            ("https://SLACK.com:443/x?y", UrlScheme::Https, "slack.com:443", "slack.com"),
            ("HTTPS://slack.com.:8443/", UrlScheme::Https, "slack.com:8443", "slack.com:8443"),
            ("http://slack.com", UrlScheme::Http, "slack.com:80", "slack.com"),
            ("http://localhost:8080", UrlScheme::Http, "localhost:8080", "localhost:8080"),
            ("http://slack.com:443", UrlScheme::Http, "slack.com:443", "slack.com:443"),
            (
                "https://my_bucket.s3.example",
                UrlScheme::Https,
                "my_bucket.s3.example:443",
                "my_bucket.s3.example",
            ),
            (
                "https://xn--bcher-kva.example",
                UrlScheme::Https,
                "xn--bcher-kva.example:443",
                "xn--bcher-kva.example",
            ),
            ("https://127.0.0.1:1", UrlScheme::Https, "127.0.0.1:1", "127.0.0.1:1"),
            ("https://[2001:DB8:0::1]:65535", UrlScheme::Https, "[2001:db8::1]:65535", "[2001:db8::1]:65535"),
            ("https://[::ffff:7f00:1]", UrlScheme::Https, "[::ffff:127.0.0.1]:443", "[::ffff:127.0.0.1]"),
        ] {
            let target = RequestTarget::from_uri(&uri.parse().unwrap()).unwrap();
            assert_eq!(
                (target.scheme(), target.to_string().as_str(), target.host_header().as_str()),
                (scheme, shown, header),
                "{uri}"
            );
        }
    }

    #[test]
    fn ambiguous_authorities_are_refused() {
        let long_label = format!("{}.com", "a".repeat(64));
        let long_name = ["abcdefg"; 32].join(".");
        for authority in [
            "",
            "granted.com@127.0.0.1",
            "user:pw@granted.com",
            "@granted.com",
            "granted.com%2eevil.com",
            "granted.com%00.evil.com",
            "granted.com\\.evil.com",
            "granted.com evil.com",
            "granted.com\t",
            "gr\u{430}nted.com",
            "granted\u{3002}com",
            "granted.com..",
            ".granted.com",
            "granted..com",
            ".",
            "-granted.com",
            "granted-.com",
            "xn--a.com",
            &long_label,
            &long_name,
            "granted.com:",
            "granted.com:0",
            "granted.com:0443",
            "granted.com:65536",
            "granted.com:+443",
            "granted.com:443:80",
            "granted.com:https",
            "granted.com:4294967739",
            "::1",
            "::1:80",
            "[::1",
            "[::1]x",
            "[::1]80",
            "[]",
            "[fe80::1%25lo]",
            "[fe80::1%lo]",
            "[v1.x]",
            "[127.0.0.1]",
            "[::1.2.3]",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "127.0.1",
            "127.0.0.01",
            "0",
            "0x",
            "1.2.3.4.5",
            "256.1.1.1",
            "evil.0x7f",
            "granted.com.1",
        ] {
            for scheme in ["https", "http"] {
                assert!(read(Some(scheme), authority).is_err(), "{authority:?}");
            }
        }
        for scheme in [None, Some("ftp"), Some("file"), Some("ws"), Some("httpsx"), Some("")] {
            assert!(read(scheme, "granted.com").is_err(), "{scheme:?}");
        }
    }

    #[test]
    fn a_refusal_shows_the_text_in_one_safe_line() {
        let refusal = RequestTarget::from_uri(&"https://user@slack.com/".parse().unwrap()).unwrap_err();
        assert_eq!(refusal.code(), DenialCode::InvalidAuthority);
        assert_eq!(refusal.requested(), "network:…@slack.com", "who logs in, and how, is for no message");
        assert!(refusal.message().contains("https://api.example.com"), "{refusal}");
        assert!(RequestTarget::from_uri(&"/only/a/path".parse().unwrap()).is_err());
    }
    #[test]
    fn host_and_port_are_parsed_exactly() {
        for (text, shown) in [
            ("localhost:8080", "localhost:8080"),
            ("LocalHost.:8080", "localhost:8080"),
            ("10.0.0.5:443", "10.0.0.5:443"),
            ("[0::1]:80", "[::1]:80"),
        ] {
            assert_eq!(HostPort::parse(text).unwrap().to_string(), shown);
        }
        for text in [
            "",
            "localhost",
            "localhost:",
            "http://localhost:1",
            "10.0.0.0/8:1",
            "*:80",
            "127.1:80",
            "::1:80",
        ] {
            let error = HostPort::parse(text).unwrap_err().to_string();
            assert!(error.contains("write it like localhost:8080"), "{error}");
        }
    }
}
