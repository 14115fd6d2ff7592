//! A `host:port` that the operator configures, in the canonical form of targets.

use std::fmt;
use std::str::FromStr;

use super::authority::{canonical_host, parse_port, split};

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
    use super::HostPort;

    #[test]
    fn one_host_and_one_port() {
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
