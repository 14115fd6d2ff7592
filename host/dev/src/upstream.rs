//! The mapping of a service to a local server, as `--upstream` takes it.

use std::fmt;
use std::str::FromStr;

use cofferdam_core::failure::ascii_line;
use cofferdam_egress::egress::HostPort;
use url::{Host, Url};

/// The error for a text that is not a valid mapping; it says how to write one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UpstreamError(String);

/// A local server: loopback only, so that no mapping sends a connector's requests to another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalTarget {
    host: String,
    port: u16,
}

impl LocalTarget {
    /// Returns the host and the port, for connecting.
    #[must_use]
    pub fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

impl fmt::Display for LocalTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "http://[{}]:{}", self.host, self.port),
            false => write!(f, "http://{}:{}", self.host, self.port),
        }
    }
}

/// One service, and the local server that answers in its place.
///
/// Text form: `api.tickets.example:443=http://localhost:8099`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamMapping {
    service: HostPort,
    target: LocalTarget,
}

impl UpstreamMapping {
    /// Returns the host and the port that the manifest grants.
    #[must_use]
    pub fn service(&self) -> &HostPort {
        &self.service
    }

    /// Returns the local server.
    #[must_use]
    pub fn target(&self) -> &LocalTarget {
        &self.target
    }
}

impl FromStr for UpstreamMapping {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, UpstreamError> {
        let form = "write it as HOST:PORT=URL, like api.tickets.example:443=http://localhost:8099";
        let wrong = |why: String| UpstreamError(format!("{why}; {form}"));
        let shown = ascii_line(text, 120);
        let Some((service, url)) = text.split_once('=') else {
            return Err(wrong(format!("`{shown}` has no `=`")));
        };
        let service = HostPort::parse(service).map_err(|error| wrong(error.to_string()))?;
        let url: Url = url
            .parse()
            .map_err(|error| wrong(format!("`{}` is not a URL ({error})", ascii_line(url, 120))))?;
        if url.scheme() != "http" {
            return Err(wrong(
                "the local server is reached over plain HTTP, and this URL is not http://".into(),
            ));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("the URL has a user or a password".into()));
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("the URL has a path, and requests keep their own".into()));
        }
        let host = match url.host() {
            Some(Host::Domain(name)) if name == "localhost" || name.ends_with(".localhost") => {
                name.to_owned()
            }
            Some(Host::Ipv4(address)) if address.is_loopback() => address.to_string(),
            Some(Host::Ipv6(address)) if address.is_loopback() => address.to_string(),
            _ => {
                return Err(wrong("the URL is not one of this machine (localhost, 127.0.0.1, [::1])".into()));
            }
        };
        let target = LocalTarget { host, port: url.port_or_known_default().unwrap_or(80) };
        Ok(Self { service, target })
    }
}

impl fmt::Display for UpstreamMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.service, self.target)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn a_mapping_names_a_service_and_a_loopback_server() {
        for (text, shown) in [
            (
                "api.tickets.example:443=http://localhost:8099",
                "api.tickets.example:443=http://localhost:8099",
            ),
            ("api.tickets.example:443=http://127.0.0.1:80/", "api.tickets.example:443=http://127.0.0.1:80"),
            ("a.example:8443=http://[::1]:8099", "a.example:8443=http://[::1]:8099"),
            ("a.example:443=http://mock.localhost", "a.example:443=http://mock.localhost:80"),
        ] {
            assert_eq!(text.parse::<UpstreamMapping>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn invalid_mappings_name_the_fault_and_the_form() {
        for (text, why) in [
            ("api.example", "has no `=`"),
            ("api.example=http://localhost:1", "write it as HOST:PORT"),
            ("api.example:443=localhost:8099", "not http://"),
            ("api.example:443=https://localhost:8099", "not http://"),
            ("api.example:443=http://10.0.0.1:8099", "not one of this machine"),
            ("api.example:443=http://evil.example", "not one of this machine"),
            ("api.example:443=http://localhost:8099/v1", "has a path"),
            ("api.example:443=http://a:b@localhost:8099", "a user or a password"),
        ] {
            let error = text.parse::<UpstreamMapping>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("http://localhost:8099"), "{text}: {error}");
        }
    }
}
