//! What one connector may reach: the hosts its manifest grants, and the private ones its operator allows.

use std::net::IpAddr;

use http::Uri;

use super::address::is_private;
use super::authority::Target;
use super::host_port::HostPort;
use super::refusal::Refusal;
use crate::manifest::{HostGrant, Scheme};

/// The grants of one connector on one host; empty grants allow nothing.
///
/// Two questions, asked at two moments: [`Policy::admit`] before anything is looked up, and
/// [`Policy::admit_address`] for every address that a lookup answers with. Nobody connects to an address
/// that was not asked about, so an answer that changes between check and use changes nothing.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    grants: Vec<HostGrant>,
    shown: Vec<String>,
    private: Vec<HostPort>,
}

impl Policy {
    /// The policy of a connector whose manifest grants `grants`, on a host whose operator allows the
    /// addresses of `private` to be private ones.
    #[must_use]
    pub fn new(grants: &[HostGrant], private: &[HostPort]) -> Self {
        let shown = grants.iter().map(HostGrant::to_string).collect();
        Self { grants: grants.to_vec(), shown, private: private.to_vec() }
    }

    /// Reads the target of `uri` and admits it.
    ///
    /// # Errors
    /// As [`Target::from_uri`] and [`Policy::admit`], always with the grants listed.
    pub fn target(&self, uri: &Uri) -> Result<Target, Refusal> {
        let target = Target::from_uri(uri).map_err(|refusal| refusal.with_grants(&self.shown))?;
        self.admit(&target)?;
        Ok(target)
    }

    /// Whether the manifest grants `target`: same scheme, same host, same port.
    ///
    /// # Errors
    /// `host_not_granted`, or `insecure_url` where the host is granted over TLS and asked for without.
    pub fn admit(&self, target: &Target) -> Result<(), Refusal> {
        let same_host = |grant: &&HostGrant| grant.host() == target.host() && !target.is_literal();
        let mut grants = self.grants.iter().filter(same_host);
        if grants.clone().any(|grant| grant.port() == target.port() && grant.scheme() == target.scheme()) {
            return Ok(());
        }
        let over_tls = grants.find(|grant| grant.scheme() == Scheme::Https);
        Err(match over_tls {
            Some(grant) if target.scheme() == Scheme::Http => {
                Refusal::insecure(target, &grant.to_string(), &self.shown)
            }
            _ => Refusal::not_granted(target, &self.shown),
        })
    }

    /// Whether `target` may be reached at `address`, which its name resolved to.
    ///
    /// # Errors
    /// `private_address`, unless the operator allowed this very host and port.
    pub fn admit_address(&self, target: &Target, address: IpAddr) -> Result<(), Refusal> {
        let Some(range) = is_private(address) else { return Ok(()) };
        let allowed = |private: &HostPort| private.host() == target.host() && private.port() == target.port();
        if self.private.iter().any(allowed) {
            return Ok(());
        }
        Err(Refusal::private(target, address, range, &self.shown))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use crate::failure::DenialCode;

    fn policy() -> Policy {
        let grants = ["slack.com:443", "http://localhost:8080", "both.example:443", "http://both.example:80"];
        let grants: Vec<_> = grants.iter().map(|grant| HostGrant::parse(grant).unwrap()).collect();
        Policy::new(&grants, &[HostPort::parse("localhost:8080").unwrap()])
    }

    #[test]
    fn rows_75_to_77_scheme_host_and_port_all_count() {
        let policy = policy();
        for uri in [
            "https://slack.com/x",
            "https://Slack.com.:443",
            "http://localhost:8080",
            "https://both.example",
            "http://both.example",
        ] {
            assert!(policy.target(&uri.parse().unwrap()).is_ok(), "{uri}");
        }
        for (uri, code) in [
            ("https://evil.com", DenialCode::HostNotGranted),
            ("https://api.slack.com", DenialCode::HostNotGranted),
            ("https://slack.com.evil.com", DenialCode::HostNotGranted),
            ("https://slack.com:8443", DenialCode::HostNotGranted),
            ("https://localhost:8080", DenialCode::HostNotGranted),
            ("http://localhost:8081", DenialCode::HostNotGranted),
            ("https://127.0.0.1:443", DenialCode::HostNotGranted),
            ("https://[::1]:443", DenialCode::HostNotGranted),
            ("http://slack.com", DenialCode::InsecureUrl),
            ("http://slack.com:443", DenialCode::InsecureUrl),
            ("https://slack.com@127.0.0.1", DenialCode::InvalidAuthority),
            ("https://127.1", DenialCode::InvalidAuthority),
        ] {
            let refusal = policy.target(&uri.parse().unwrap()).unwrap_err();
            assert_eq!(refusal.code(), code, "{uri}");
            assert_eq!(refusal.granted().len(), 4);
            assert!(refusal.granted().iter().any(|grant| grant == "network:http://localhost:8080"));
        }
        assert!(Policy::default().target(&"https://slack.com".parse().unwrap()).is_err());
    }

    #[test]
    fn a_refusal_names_the_exact_line() {
        let one = Policy::new(&[HostGrant::parse("slack.com:443").unwrap()], &[]);
        let refusal = one.target(&"https://files.slack.com/".parse().unwrap()).unwrap_err();
        assert_eq!(refusal.requested(), "network:files.slack.com:443");
        assert!(
            refusal.allow().contains("`hosts = [\"slack.com:443\", \"files.slack.com:443\"]`"),
            "{refusal}"
        );
        assert!(refusal.allow().contains("[capabilities.network] in connector.toml"));
        let refusal = one.target(&"http://slack.com/".parse().unwrap()).unwrap_err();
        assert_eq!(refusal.requested(), "network:http://slack.com:80");
        assert!(refusal.allow().contains("https://slack.com:443"), "{refusal}");
        let refusal = one.target(&"https://10.0.0.1/".parse().unwrap()).unwrap_err();
        assert!(refusal.allow().contains("names, not addresses"), "{refusal}");
    }

    #[test]
    fn row_88_private_addresses_need_the_operator() {
        let policy = policy();
        let target = |uri: &str| policy.target(&uri.parse().unwrap()).unwrap();
        let private = "169.254.169.254".parse().unwrap();
        assert!(policy.admit_address(&target("http://localhost:8080"), private).is_ok());
        assert!(policy.admit_address(&target("https://slack.com"), "8.8.8.8".parse().unwrap()).is_ok());
        let refusal = policy.admit_address(&target("https://slack.com"), private).unwrap_err();
        assert_eq!((refusal.code(), refusal.address()), (DenialCode::PrivateAddress, Some(private)));
        assert!(refusal.allow().contains("`--allow-private slack.com:443`"), "{refusal}");
        assert!(refusal.allow().contains("allow_private(\"slack.com:443\")"), "{refusal}");
    }
}
