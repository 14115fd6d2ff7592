//! Access control: requests must name this server's host, come from no foreign web page, and carry the token.

use std::net::IpAddr;
use std::sync::Arc;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, header};

use super::rejection::RequestRejection;

/// The names of the local machine.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The access rules of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct AccessPolicy {
    pub(super) token: Option<BearerToken>,
    hosts: Vec<HostAndPort>,
    origins: Vec<PageOrigin>,
}

/// A host in lower case without brackets, and its port if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostAndPort {
    host: String,
    port: Option<u16>,
}

impl HostAndPort {
    fn parse(text: &str) -> Option<Self> {
        let authority: Authority = text.parse().ok()?;
        if text.contains('@') || authority.host().is_empty() {
            return None;
        }
        // An invalid port is not a missing one.
        let after = authority.as_str().strip_prefix(authority.host())?;
        let port = match after.strip_prefix(':') {
            Some(port) => Some(port.parse().ok()?),
            None if after.is_empty() => None,
            None => return None,
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        Some(Self { host: host.trim_end_matches('.').to_owned(), port })
    }

    fn is_loopback(&self) -> bool {
        LOOPBACK.contains(&self.host.as_str())
    }
}

/// The scheme, host and port of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PageOrigin {
    scheme: String,
    at: HostAndPort,
}

impl PageOrigin {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let default = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let mut at = HostAndPort::parse(rest)?;
        at.port = at.port.or(Some(default));
        Some(Self { scheme, at })
    }
}

impl AccessPolicy {
    pub(super) fn allow_host(&mut self, text: &str) -> Result<(), HostError> {
        let host =
            HostAndPort::parse(text).ok_or_else(|| wrong("host", text, "example.com or example.com:8443"))?;
        self.hosts.push(host);
        Ok(())
    }

    pub(super) fn allow_origin(&mut self, text: &str) -> Result<(), HostError> {
        let origin = PageOrigin::parse(text).ok_or_else(|| wrong("origin", text, "https://example.com"))?;
        self.origins.push(origin);
        Ok(())
    }

    /// Checks that the request, which arrived at `at`, names this server and comes from no foreign page.
    pub(super) fn admit(&self, request: &Parts, at: IpAddr) -> Result<(), RequestRejection> {
        let named = one(&request.headers, header::HOST)
            .ok_or(RequestRejection::Host)?
            .ok_or(RequestRejection::Host)?;
        self.admit_host(named, at)?;
        if let Some(authority) = request.uri.authority() {
            self.admit_host(authority.as_str(), at)?;
        }
        match one(&request.headers, header::ORIGIN).ok_or(RequestRejection::Origin)? {
            None => Ok(()),
            Some(origin) => {
                let origin = PageOrigin::parse(origin).ok_or(RequestRejection::Origin)?;
                let known = origin.at.is_loopback() || self.origins.contains(&origin);
                if known { Ok(()) } else { Err(RequestRejection::Origin) }
            }
        }
    }

    /// Checks that the request carries the token, if one is required.
    pub(super) fn authorize(&self, request: &Parts) -> Result<(), RequestRejection> {
        let Some(token) = &self.token else { return Ok(()) };
        let given = one(&request.headers, header::AUTHORIZATION).flatten().ok_or(RequestRejection::Token)?;
        let (scheme, given) = given.split_once(' ').ok_or(RequestRejection::Token)?;
        let right = scheme.eq_ignore_ascii_case("bearer") && token.matches(given.trim().as_bytes());
        if right { Ok(()) } else { Err(RequestRejection::Token) }
    }

    fn admit_host(&self, named: &str, at: IpAddr) -> Result<(), RequestRejection> {
        let named = HostAndPort::parse(named).ok_or(RequestRejection::Host)?;
        // A page that reached this server by DNS rebinding cannot make its browser name an address.
        let own = named.host.parse::<IpAddr>().is_ok_and(|address| address == at.to_canonical());
        let allowed = |allowed: &HostAndPort| {
            allowed.host == named.host && allowed.port.is_none_or(|port| named.port == Some(port))
        };
        if named.is_loopback() || own || self.hosts.iter().any(allowed) {
            Ok(())
        } else {
            Err(RequestRejection::Host)
        }
    }
}

/// The access to the paths of a part of the server that has sessions of its own, instead of the token.
pub trait PathAccess: Send + Sync + 'static {
    /// Returns true if this is a path of the part.
    fn covers(&self, path: &str) -> bool;

    /// Returns true if the request belongs to a session. Others reach the router without their body, since the link that
    /// opens a session and the page that asks for one need none.
    fn admits(&self, request: &Parts) -> bool;
}

/// The access to one part of a server, if it has such a part.
#[derive(Clone, Default)]
pub(super) struct OwnAccess(Option<Arc<dyn PathAccess>>);

impl std::fmt::Debug for OwnAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OwnAccess").field(&self.0.is_some()).finish()
    }
}

impl OwnAccess {
    pub(super) fn new(access: Arc<dyn PathAccess>) -> Self {
        Self(Some(access))
    }

    /// Returns whether the request belongs to a session; none if its path is of no such part.
    pub(super) fn verdict(&self, request: &Parts) -> Option<bool> {
        let access = self.0.as_ref().filter(|access| access.covers(request.uri.path()))?;
        Some(access.admits(request))
    }
}

/// Returns the one value of a header, which may be missing; none if it is repeated or is not text.
fn one(headers: &HeaderMap, name: header::HeaderName) -> Option<Option<&str>> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Some(None),
        (Some(value), None) => value.to_str().ok().map(Some),
        (Some(_), Some(_)) => None,
    }
}

fn wrong(what: &str, text: &str, example: &str) -> HostError {
    let message = format!("`{}` is not a {what} of requests.", sanitize_line(text, 200));
    HostError::new(HostErrorKind::Configuration, message).with_hint(format!("Write it like {example}."))
}

/// The shortest token. One of random letters and digits of this length cannot be guessed.
const SHORTEST: usize = 24;

/// The longest token, in bytes.
const LONGEST: usize = 512;

/// The token that a request has to carry as `Authorization: Bearer ..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BearerToken(Digest);

impl BearerToken {
    /// Creates the token `text`, 24 to 512 printable ASCII characters without spaces; white space around it
    /// does not count.
    ///
    /// # Errors
    /// `configuration`: it is too easy to guess, or cannot be sent in a header.
    pub fn new(text: &str) -> Result<Self, HostError> {
        let text = text.trim();
        if (SHORTEST..=LONGEST).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
            return Ok(Self(Digest::sha256(text.as_bytes())));
        }
        let message = "The token of the server is not acceptable.";
        let hint = format!(
            "It is one line of {SHORTEST} to {LONGEST} printable ASCII characters; `openssl rand -hex 32` makes one."
        );
        Err(HostError::new(HostErrorKind::Configuration, message).with_hint(hint))
    }

    /// Returns true if this is the token.
    pub(super) fn matches(&self, given: &[u8]) -> bool {
        self.0.is_of_secret(given)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::net::{IpAddr, Ipv4Addr};

    use http::Request;

    use super::{AccessPolicy, BearerToken, RequestRejection};

    const AT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn admitted(access: &AccessPolicy, uri: &str, headers: &[(&str, &str)]) -> Result<(), RequestRejection> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        access.admit(&parts, AT).and_then(|()| access.authorize(&parts))
    }

    #[test]
    fn host_and_origin_must_match_this_server() {
        let mut access = AccessPolicy::default();
        access.allow_host("mcp.example").unwrap();
        access.allow_host("other.example:8443").unwrap();
        access.allow_origin("https://app.example").unwrap();
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:9",
            "[::1]:80",
            "192.0.2.7",
            "192.0.2.7:80",
            "mcp.example:1",
            "other.example:8443",
            "localhost.",
        ] {
            assert_eq!(admitted(&access, "/", &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.com",
            "localhost.evil.com",
            "127.0.0.1.evil.com",
            "192.0.2.8",
            "other.example",
            "other.example:1",
            "a@localhost",
            "localhost@evil.com",
            "localhost:x",
            "",
            "evil.com:80",
            "0.0.0.0",
            "2130706433",
        ] {
            assert_eq!(admitted(&access, "/", &[("host", host)]), Err(RequestRejection::Host), "{host}");
        }
        assert_eq!(admitted(&access, "/", &[]), Err(RequestRejection::Host), "no host at all");
        let twice = [("host", "localhost"), ("host", "evil.com")];
        assert_eq!(admitted(&access, "/", &twice), Err(RequestRejection::Host));
        assert_eq!(
            admitted(&access, "http://evil.com/", &[("host", "localhost")]),
            Err(RequestRejection::Host)
        );
        for origin in
            ["http://localhost:3000", "https://127.0.0.1", "https://app.example", "https://app.example:443"]
        {
            assert_eq!(
                admitted(&access, "/", &[("host", "localhost"), ("origin", origin)]),
                Ok(()),
                "{origin}"
            );
        }
        for origin in [
            "https://evil.com",
            "null",
            "",
            "http://app.example",
            "https://app.example:8443",
            "file://localhost",
            "https://localhost.evil.com",
            "localhost",
        ] {
            let headers = [("host", "localhost"), ("origin", origin)];
            assert_eq!(admitted(&access, "/", &headers), Err(RequestRejection::Origin), "{origin}");
        }
    }

    #[test]
    fn a_token_counts_only_in_its_header() {
        let access =
            AccessPolicy { token: Some(BearerToken::new(TOKEN).unwrap()), ..AccessPolicy::default() };
        let host = ("host", "localhost");
        let bearer = format!("Bearer {TOKEN}");
        let good = [host, ("authorization", bearer.as_str())];
        assert_eq!(admitted(&access, "/", &good), Ok(()));
        let lower = format!("bearer {TOKEN}");
        assert_eq!(admitted(&access, "/", &[host, ("authorization", lower.as_str())]), Ok(()));
        for wrong in ["", TOKEN, "Bearer", "Bearer x", &format!("Basic {TOKEN}"), &format!("{bearer}0")] {
            let headers = [host, ("authorization", wrong)];
            assert_eq!(admitted(&access, "/", &headers), Err(RequestRejection::Token), "{wrong}");
        }
        let twice = [host, ("authorization", bearer.as_str()), ("authorization", "Bearer x")];
        assert_eq!(admitted(&access, "/", &twice), Err(RequestRejection::Token));
        assert_eq!(
            admitted(&access, &format!("/?access_token={TOKEN}"), &[host]),
            Err(RequestRejection::Token)
        );
    }

    #[test]
    fn invalid_hosts_and_origins_are_refused() {
        let mut access = AccessPolicy::default();
        for host in ["", "a b", "https://example.com", "example.com/x", "a@b", "x:99999"] {
            assert!(access.allow_host(host).is_err(), "{host}");
        }
        for origin in ["", "*", "example.com", "ftp://example.com", "https://", "https://example.com/x"] {
            assert!(access.allow_origin(origin).is_err(), "{origin}");
        }
    }
    #[test]
    fn a_token_must_be_long_and_fit_a_header() {
        let good = "0123456789abcdef0123456789abcdef";
        let token = BearerToken::new(&format!("{good}\n")).unwrap();
        assert!(token.matches(good.as_bytes()));
        for other in ["", "0", &good[1..], &format!("{good}0"), &good.to_uppercase()] {
            assert!(!token.matches(other.as_bytes()), "{other}");
        }
        for bad in ["", "short", &format!("{good} {good}"), &format!("{good}\n{good}"), &"ä".repeat(30)] {
            assert!(BearerToken::new(bad).is_err(), "{bad}");
        }
        assert!(!format!("{token:?}").contains(good));
    }
}
