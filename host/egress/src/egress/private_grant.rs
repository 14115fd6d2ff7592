//! A `host:port` that the operator allows to have a private address, and the range of these addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::address::{PrivateRange, canonical, private_range};
use super::authority::HostPort;
use super::authority::RequestTarget;

/// A name that may resolve into the operator's own network, as `allow_private` and `--allow-private` take it.
///
/// Text form: `gitlab.corp:443` or `gitlab.corp:443=10.20.0.0/16`. Without a range, `localhost` (and every
/// name under it) may be a loopback address, and any other name an address of a private network (10.0.0.0/8,
/// 172.16.0.0/12, 192.168.0.0/16, fc00::/7). With a range it may only be an address of that range. Several
/// entries for one `host:port` add up. Every other special range must be written explicitly, and cloud
/// metadata address by address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PrivateGrant {
    host_port: HostPort,
    range: Option<IpNet>,
}

/// The error for a text that is not a valid `host:port` or `host:port=range`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PrivateGrantError(String);

impl PrivateGrant {
    /// Parses `host:port` or `host:port=range`, where the range is one address or a network like
    /// `10.0.0.0/8`.
    ///
    /// # Errors
    /// Anything else, and a range that is not within one of the ranges that are denied by default.
    pub fn parse(text: &str) -> Result<Self, PrivateGrantError> {
        let (place, range) = match text.split_once('=') {
            Some((place, range)) => (place, Some(range)),
            None => (text, None),
        };
        let place = HostPort::parse(place).map_err(|error| PrivateGrantError(error.to_string()))?;
        Ok(Self { host_port: place, range: range.map(read_range).transpose()? })
    }

    /// Returns the host and the port.
    #[must_use]
    pub fn host_port(&self) -> &HostPort {
        &self.host_port
    }

    /// Returns whether the entry is for `target`.
    #[must_use]
    pub fn is_for(&self, target: &RequestTarget) -> bool {
        self.host_port.host() == target.host() && self.host_port.port() == target.port()
    }

    /// Returns whether the entry allows its host to have `address`, which is in the range `special`.
    pub(super) fn opens(&self, address: IpAddr, special: PrivateRange) -> bool {
        match self.range {
            // A special range within another must be named itself: a /16 of link-local addresses does not
            // open the metadata address in it.
            Some(range) => {
                range.contains(&canonical(address)) && private_range(range.network()) == Some(special)
            }
            None => default_ranges(self.host_port.host()).contains(&special.name()),
        }
    }
}

/// Returns the names of the ranges that `host` may be in if its entry has no range.
fn default_ranges(host: &str) -> &'static [&'static str] {
    let local = host == "localhost" || host.ends_with(".localhost");
    if local { &["loopback"] } else { &["private network", "unique local"] }
}

fn read_range(text: &str) -> Result<IpNet, PrivateGrantError> {
    let shown = cofferdam_core::failure::ascii_line(text, 80);
    let range =
        text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(|it| it.to_canonical().into()));
    let Some(range) = range else {
        return Err(PrivateGrantError(format!(
            "`{shown}` is not a range of addresses; write one address, or a network like 10.0.0.0/8"
        )));
    };
    let range = range.trunc();
    match private_range(range.network()) {
        Some(special) if special.holds(&range) => Ok(range),
        Some(special) => Err(PrivateGrantError(format!(
            "`{shown}` is more than the {} range {special}; write a part of it",
            special.name()
        ))),
        None => Err(PrivateGrantError(format!(
            "`{shown}` is a public range, which needs no leave; write only the private one"
        ))),
    }
}

impl fmt::Display for PrivateGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.range {
            Some(range) if range.prefix_len() == range.max_prefix_len() => {
                write!(f, "{}={}", self.host_port, range.addr())
            }
            Some(range) => write!(f, "{}={range}", self.host_port),
            None => write!(f, "{}", self.host_port),
        }
    }
}

impl FromStr for PrivateGrant {
    type Err = PrivateGrantError;

    fn from_str(text: &str) -> Result<Self, PrivateGrantError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn opens(grant: &str, address: &str) -> bool {
        let address = address.parse().unwrap();
        private_range(address)
            .is_some_and(|special| PrivateGrant::parse(grant).unwrap().opens(address, special))
    }

    #[test]
    fn a_bare_name_grants_its_own_kind_of_address() {
        for (grant, open, shut) in [
            (
                "localhost:80",
                &["127.0.0.1", "::1", "127.9.9.9", "::ffff:127.0.0.1"][..],
                &["10.0.0.1", "169.254.169.254", "0.0.0.0"][..],
            ),
            ("a.localhost:80", &["127.0.0.1"], &["192.168.0.1"]),
            (
                "gitlab.corp:443",
                &["10.0.0.1", "172.16.0.1", "192.168.1.1", "fd00::1", "::ffff:10.0.0.1"],
                &[
                    "127.0.0.1",
                    "::1",
                    "169.254.169.254",
                    "169.254.1.1",
                    "fe80::1",
                    "100.64.0.1",
                    "100.100.100.200",
                    "fd00:ec2::254",
                    "0.0.0.0",
                    "224.0.0.1",
                ],
            ),
        ] {
            for address in open {
                assert!(opens(grant, address), "{grant} opens {address}");
            }
            for address in shut {
                assert!(!opens(grant, address), "{grant} does not open {address}");
            }
        }
    }

    #[test]
    fn a_range_never_includes_metadata_addresses() {
        for (grant, open, shut) in [
            (
                "a.corp:1=10.20.0.0/16",
                &["10.20.0.0", "10.20.255.255", "::ffff:10.20.1.1"][..],
                &["10.21.0.0", "192.168.0.1"][..],
            ),
            ("a.corp:1=127.0.0.1", &["127.0.0.1"], &["127.0.0.2", "::1", "10.0.0.1"]),
            ("a.corp:1=169.254.0.0/16", &["169.254.1.1"], &["169.254.169.254", "169.254.170.2"]),
            ("a.corp:1=169.254.169.254", &["169.254.169.254"], &["169.254.170.2", "169.254.1.1"]),
            ("a.corp:1=100.64.0.0/10", &["100.64.0.1"], &["100.100.100.200"]),
            ("a.corp:1=fc00::/7", &["fd00::1"], &["fd00:ec2::254", "fe80::1"]),
            ("a.corp:1=fd00:ec2::254", &["fd00:ec2::254"], &["fd00::1"]),
        ] {
            for address in open {
                assert!(opens(grant, address), "{grant} opens {address}");
            }
            for address in shut {
                assert!(!opens(grant, address), "{grant} does not open {address}");
            }
        }
    }

    #[test]
    fn private_grants_round_trip() {
        for (text, shown) in [
            ("localhost:8080", "localhost:8080"),
            ("LocalHost.:8080", "localhost:8080"),
            ("a.corp:443=10.20.3.4/16", "a.corp:443=10.20.0.0/16"),
            ("a.corp:443=10.0.0.1", "a.corp:443=10.0.0.1"),
            ("a.corp:443=FD00::/8", "a.corp:443=fd00::/8"),
        ] {
            let grant = PrivateGrant::parse(text).unwrap();
            assert_eq!(grant.to_string(), shown);
            assert_eq!(PrivateGrant::parse(shown).unwrap(), grant);
        }
        for (text, says) in [
            ("localhost", "write it like localhost:8080"),
            ("10.0.0.0/8:1", "write it like localhost:8080"),
            ("a.corp:1=", "not a range"),
            ("a.corp:1=10.0.0.0/33", "not a range"),
            ("a.corp:1=10.0.0.0/8+", "not a range"),
            ("a.corp:1=private", "not a range"),
            ("a.corp:1=0.0.0.0/0", "write a part of it"),
            ("a.corp:1=::/0", "write a part of it"),
            ("a.corp:1=10.0.0.0/7", "write a part of it"),
            ("a.corp:1=169.254.0.0/15", "write a part of it"),
            ("a.corp:1=8.8.8.8", "a public range"),
        ] {
            let error = PrivateGrant::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
