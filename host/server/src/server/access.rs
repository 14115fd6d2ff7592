//! Who may ask: requests that name this server's host, come from no foreign web page, and carry the token.

use std::net::IpAddr;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::safe_line;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, header};

use super::answer::Refused;
use super::token::Token;

/// The names that only this machine has.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Who may ask.
#[derive(Debug, Clone, Default)]
pub(super) struct Access {
    pub(super) token: Option<Token>,
    hosts: Vec<HostAndPort>,
    origins: Vec<Origin>,
}

/// A host in lower case without brackets, and its port where one is written.
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
        // A port that is no number is not the lack of one.
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

/// The scheme, host and port that a page is from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    scheme: String,
    at: HostAndPort,
}

impl Origin {
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

impl Access {
    pub(super) fn allow_host(&mut self, text: &str) -> Result<(), HostError> {
        let host =
            HostAndPort::parse(text).ok_or_else(|| wrong("host", text, "example.com or example.com:8443"))?;
        self.hosts.push(host);
        Ok(())
    }

    pub(super) fn allow_origin(&mut self, text: &str) -> Result<(), HostError> {
        let origin = Origin::parse(text).ok_or_else(|| wrong("origin", text, "https://example.com"))?;
        self.origins.push(origin);
        Ok(())
    }

    /// Whether the request, which arrived at `at`, names this server and comes from no foreign page.
    pub(super) fn admit(&self, request: &Parts, at: IpAddr) -> Result<(), Refused> {
        let named = one(&request.headers, header::HOST).ok_or(Refused::Host)?.ok_or(Refused::Host)?;
        self.admit_host(named, at)?;
        if let Some(authority) = request.uri.authority() {
            self.admit_host(authority.as_str(), at)?;
        }
        match one(&request.headers, header::ORIGIN).ok_or(Refused::Origin)? {
            None => Ok(()),
            Some(origin) => {
                let origin = Origin::parse(origin).ok_or(Refused::Origin)?;
                let known = origin.at.is_loopback() || self.origins.contains(&origin);
                if known { Ok(()) } else { Err(Refused::Origin) }
            }
        }
    }

    /// Whether the request carries the token, where there is one.
    pub(super) fn authorize(&self, request: &Parts) -> Result<(), Refused> {
        let Some(token) = &self.token else { return Ok(()) };
        let given = one(&request.headers, header::AUTHORIZATION).flatten().ok_or(Refused::Token)?;
        let (scheme, given) = given.split_once(' ').ok_or(Refused::Token)?;
        let right = scheme.eq_ignore_ascii_case("bearer") && token.is(given.trim().as_bytes());
        if right { Ok(()) } else { Err(Refused::Token) }
    }

    fn admit_host(&self, named: &str, at: IpAddr) -> Result<(), Refused> {
        let named = HostAndPort::parse(named).ok_or(Refused::Host)?;
        // A page that was led here by a name cannot make its browser name an address.
        let own = named.host.parse::<IpAddr>().is_ok_and(|address| address == at.to_canonical());
        let allowed = |allowed: &HostAndPort| {
            allowed.host == named.host && allowed.port.is_none_or(|port| named.port == Some(port))
        };
        if named.is_loopback() || own || self.hosts.iter().any(allowed) { Ok(()) } else { Err(Refused::Host) }
    }
}

/// The one value of a header, which may be missing; none where it stands twice or is no text.
fn one(headers: &HeaderMap, name: header::HeaderName) -> Option<Option<&str>> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Some(None),
        (Some(value), None) => value.to_str().ok().map(Some),
        (Some(_), Some(_)) => None,
    }
}

fn wrong(what: &str, text: &str, example: &str) -> HostError {
    let message = format!("`{}` is not a {what} of requests.", safe_line(text, 200));
    HostError::new(HostErrorKind::Configuration, message).hint(format!("Write it like {example}."))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::net::{IpAddr, Ipv4Addr};

    use http::Request;

    use super::{Access, Refused, Token};

    const AT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn admitted(access: &Access, uri: &str, headers: &[(&str, &str)]) -> Result<(), Refused> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        access.admit(&parts, AT).and_then(|()| access.authorize(&parts))
    }

    #[test]
    fn attack_158_a_request_names_this_server_and_comes_from_no_foreign_page() {
        let mut access = Access::default();
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
            assert_eq!(admitted(&access, "/", &[("host", host)]), Err(Refused::Host), "{host}");
        }
        assert_eq!(admitted(&access, "/", &[]), Err(Refused::Host), "no host at all");
        let twice = [("host", "localhost"), ("host", "evil.com")];
        assert_eq!(admitted(&access, "/", &twice), Err(Refused::Host));
        assert_eq!(admitted(&access, "http://evil.com/", &[("host", "localhost")]), Err(Refused::Host));
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
            assert_eq!(admitted(&access, "/", &headers), Err(Refused::Origin), "{origin}");
        }
    }

    #[test]
    fn attack_159_a_token_stands_in_its_header_and_nowhere_else() {
        let access = Access { token: Some(Token::new(TOKEN).unwrap()), ..Access::default() };
        let host = ("host", "localhost");
        let bearer = format!("Bearer {TOKEN}");
        let good = [host, ("authorization", bearer.as_str())];
        assert_eq!(admitted(&access, "/", &good), Ok(()));
        let lower = format!("bearer {TOKEN}");
        assert_eq!(admitted(&access, "/", &[host, ("authorization", lower.as_str())]), Ok(()));
        for wrong in ["", TOKEN, "Bearer", "Bearer x", &format!("Basic {TOKEN}"), &format!("{bearer}0")] {
            let headers = [host, ("authorization", wrong)];
            assert_eq!(admitted(&access, "/", &headers), Err(Refused::Token), "{wrong}");
        }
        let twice = [host, ("authorization", bearer.as_str()), ("authorization", "Bearer x")];
        assert_eq!(admitted(&access, "/", &twice), Err(Refused::Token));
        assert_eq!(admitted(&access, &format!("/?access_token={TOKEN}"), &[host]), Err(Refused::Token));
    }

    #[test]
    fn what_is_no_host_and_no_origin_is_refused() {
        let mut access = Access::default();
        for host in ["", "a b", "https://example.com", "example.com/x", "a@b", "x:99999"] {
            assert!(access.allow_host(host).is_err(), "{host}");
        }
        for origin in ["", "*", "example.com", "ftp://example.com", "https://", "https://example.com/x"] {
            assert!(access.allow_origin(origin).is_err(), "{origin}");
        }
    }
}
