//! The hosts that one connector may reach: those its manifest grants, and the private ones its operator
//! allows.

use std::net::{IpAddr, Ipv4Addr};

use cofferdam_core::failure::{Allowed, Denial, DenialBoundary, DenialCode, GrantLine};
use cofferdam_model::action::ActionScope;
use cofferdam_model::manifest::{HostGrant, UrlScheme};
use http::{HeaderMap, Method, StatusCode, Uri};

use super::address::{PrivateRange, private_range};
use super::authority::RequestTarget;
use super::methods::AllowedMethods;
use super::private_grant::PrivateGrant;

/// The grants of one connector on one host. Empty grants allow nothing.
///
/// It decides at two moments: [`EgressPolicy::decide`] before the name is looked up, and [`EgressPolicy::admit_address`]
/// for every address that the lookup returns. Only checked addresses are connected to, so an answer that
/// changes between check and use has no effect. The gate calls both while a guest runs; [`EgressPolicy::check_access`]
/// calls them for `cofferdam why`.
#[derive(Debug, Clone, Default)]
pub struct EgressPolicy {
    grants: Vec<HostGrant>,
    private: Vec<PrivateGrant>,
    methods: AllowedMethods,
}

impl EgressPolicy {
    /// Creates the policy of a connector whose manifest grants `grants`, on a host whose operator allows the
    /// addresses of `private` to be private ones.
    #[must_use]
    pub fn new(grants: &[HostGrant], private: &[PrivateGrant]) -> Self {
        Self { grants: grants.to_vec(), private: private.to_vec(), methods: AllowedMethods::default() }
    }

    /// Returns the same policy, with the methods that every connector may send and the `extra` ones of its
    /// manifest.
    #[must_use]
    pub fn with_methods(mut self, extra: &[Method]) -> Self {
        self.methods = AllowedMethods::new(extra);
        self
    }

    /// Checks that the connector may send `method`, and the fields in which some servers read another method.
    ///
    /// # Errors
    /// `method_not_granted`, with the line that would allow it.
    pub fn admit_method(&self, method: &Method, fields: &HeaderMap) -> Result<(), Denial> {
        self.methods.admit(method)?;
        self.admit_fields(fields)
    }

    /// Checks that the connector may send `fields`, before the body of a request or after it.
    ///
    /// # Errors
    /// `method_not_granted`: one of them names a method that is not granted.
    pub fn admit_fields(&self, fields: &HeaderMap) -> Result<(), Denial> {
        self.methods.admit_fields(fields)
    }

    /// Checks that the connector may send `method`, and returns the line that allows it.
    ///
    /// # Errors
    /// As [`EgressPolicy::admit_method`].
    pub fn check_method_access(&self, method: &Method) -> Result<Allowed, Denial> {
        self.methods.admit(method)?;
        let permit = Allowed::new(&format!("method:{method}"));
        Ok(match self.methods.line() {
            Some(line) if self.methods.is_extra(method) => permit.with_grant(line),
            _ => permit.with_note("Every connector may send it."),
        })
    }

    /// Parses the target of `uri`, and decides whether the connector may reach it: both its manifest and the
    /// action within which it runs, if any, must grant it.
    ///
    /// # Errors
    /// As [`RequestTarget::from_uri`] and [`EgressPolicy::admit`]; and `host_not_granted` of the action if that does not
    /// declare it. The error always lists the grants.
    pub fn decide(&self, uri: &Uri, scope: Option<&ActionScope>) -> Result<RequestTarget, Denial> {
        let granted = || granted(&self.grants);
        let target = RequestTarget::from_uri(uri).map_err(|denial| denial.with_granted(granted()))?;
        self.admit(&target)?;
        if let Some(scope) = scope {
            scope.admit_host((target.scheme(), target.host(), target.port()), granted)?;
        }
        Ok(target)
    }

    /// Checks that the manifest grants `target`: same scheme, same host, same port.
    ///
    /// # Errors
    /// `host_not_granted`, or `insecure_url` if the host is granted over TLS and requested without.
    pub fn admit(&self, target: &RequestTarget) -> Result<(), Denial> {
        let same_host = |grant: &&HostGrant| grant.host() == target.host() && !target.is_literal();
        let mut grants = self.grants.iter().filter(same_host);
        if grants.clone().any(|grant| grant.port() == target.port() && grant.scheme() == target.scheme()) {
            return Ok(());
        }
        let over_tls = grants.find(|grant| grant.scheme() == UrlScheme::Https);
        Err(match over_tls {
            Some(grant) if target.scheme() == UrlScheme::Http => insecure(target, grant, &self.grants),
            _ => not_granted(target, &self.grants),
        })
    }

    /// Checks that `target` may be reached at `address`, which its name resolved to.
    ///
    /// # Errors
    /// `private_address`, unless the operator allowed exactly this host and port to have such an address.
    pub fn admit_address(&self, target: &RequestTarget, address: IpAddr) -> Result<(), Denial> {
        match private_range(address) {
            Some(range) => self.admit_private(target, address, range),
            None => Ok(()),
        }
    }

    /// Returns the gate's decision about `uri`, without a lookup, and the lines that decide it.
    ///
    /// # Errors
    /// As [`EgressPolicy::decide`] and, for `localhost`, whose address is known, [`EgressPolicy::admit_address`].
    pub fn check_access(&self, uri: &Uri, scope: Option<&ActionScope>) -> Result<Allowed, Denial> {
        let target = self.decide(uri, scope)?;
        let mut permit =
            Allowed::new(&requested(&target)).with_grant(GrantLine::manifest_hosts(&self.grants));
        if let Some(scope) = scope {
            permit = permit.with_grant(scope.line());
        }
        let local = target.host() == "localhost" || target.host().ends_with(".localhost");
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        if local && let Some(range) = private_range(loopback) {
            self.admit_private(&target, loopback, range)?;
        }
        let allowed: Vec<_> = self.private.iter().filter(|private| private.is_for(&target)).collect();
        let operator = match allowed.is_empty() {
            true => GrantLine::allow_private([&target]),
            false => GrantLine::allow_private(&allowed),
        };
        Ok(match allowed.is_empty() {
            _ if local => permit.with_grant(operator),
            false => permit.with_note(format!("Its address may be a private one: {operator}.")),
            true => permit.with_note(format!(
                "The name was not looked up. If it leads to a private address, it takes {operator}, too."
            )),
        })
    }

    fn admit_private(
        &self,
        target: &RequestTarget,
        address: IpAddr,
        range: PrivateRange,
    ) -> Result<(), Denial> {
        let mut allowed = self.private.iter().filter(|private| private.is_for(target));
        if allowed.any(|private| private.opens(address, range)) {
            return Ok(());
        }
        Err(private(target, address, range, &self.grants).with_address(address))
    }
}

/// Denies a target that cannot be checked, for `reason`.
pub(super) fn invalid_authority(authority: &str, reason: &str) -> Denial {
    // The text before an @ is meant as a user name and password, and must not be in a message.
    let shown = authority.rsplit_once('@').map_or(authority.to_owned(), |(_, host)| format!("…@{host}"));
    refused(DenialCode::InvalidAuthority, &format!("network:{shown}"), &[]).with_remark(format!(
        "It cannot be checked: {reason}. Write it like https://api.example.com or https://api.example.com:8443."
    ))
}

/// Denies a target for which the manifest grants another host, another port, or nothing.
pub(super) fn not_granted(target: &RequestTarget, grants: &[HostGrant]) -> Denial {
    let denial = refused(DenialCode::HostNotGranted, &requested(target), grants);
    if target.is_literal() {
        return denial
            .with_alternative("A manifest grants names, not addresses: request the service by its name.");
    }
    let in_the_clear = |grant: &&HostGrant| {
        (grant.scheme(), grant.host(), grant.port()) == (UrlScheme::Http, target.host(), target.port())
    };
    let denial = match grants.iter().find(in_the_clear) {
        Some(grant) => denial.with_remark(format!(
            "The grant {grant} is for requests without TLS, and https was asked for: request {grant}, or grant \
             \"{target}\" if the server speaks TLS."
        )),
        None => denial,
    };
    denial.allowed_by(with(target, grants))
}

/// Denies a request without TLS to a host that the manifest grants over TLS, as `granted`.
pub(super) fn insecure(target: &RequestTarget, granted: &HostGrant, grants: &[HostGrant]) -> Denial {
    refused(DenialCode::InsecureUrl, &requested(target), grants)
        .with_remark(format!("The grant is for TLS: request https://{granted}."))
        .allowed_by(with(target, grants))
        .with_alternative("That would send requests and answers unencrypted.")
}

/// Denies a granted name that resolves to an address inside the operator's own network.
pub(super) fn private(
    target: &RequestTarget,
    address: IpAddr,
    range: PrivateRange,
    grants: &[HostGrant],
) -> Denial {
    let denial = refused(DenialCode::PrivateAddress, &requested(target), grants).with_statement(format!(
        "{target} is granted, but its name leads into the host's own network (a {} address), which only the host's \
         operator can allow.",
        range.name()
    ));
    if range.is_metadata() {
        return denial.with_alternative(
            "Such an address serves the credentials of the machine itself. docs/reference/network.md says how an operator who \
             means it writes it.",
        );
    }
    let bare = PrivateGrant::parse(&target.to_string()).ok().filter(|grant| grant.opens(address, range));
    let entry = bare.map_or_else(|| format!("{target}={address}"), |grant| grant.to_string());
    denial.allowed_by(GrantLine::allow_private([&entry])).with_alternative(format!(
        "For one call, use `--allow-private {entry}`; in a program, `Host::builder().allow_private(\"{entry}\")`."
    ))
}

/// Denies a partial response of `target` to a request that carried a credential.
pub(super) fn partial(target: &RequestTarget, status: StatusCode) -> Denial {
    let code = DenialCode::PartialResponse;
    Denial::new(DenialBoundary::Sandbox, code, &format!("response:{target}"), Vec::new())
        .with_statement(format!(
            "{target} answered with a part of its answer (status {}) to a request that carries a credential, and the \
             answer was stopped.",
            status.as_u16()
        ))
        .with_remark(
            "A secret that comes back in pieces is found in none of them. The host drops `Range` from such requests: \
             use an operation of the service that answers whole.",
        )
}

/// Returns the target in the form of a grant.
pub(super) fn requested(target: &RequestTarget) -> String {
    format!("network:{}", as_grant(target))
}

/// Returns the granted targets.
pub(super) fn granted(grants: &[HostGrant]) -> Vec<String> {
    grants.iter().map(|grant| format!("network:{grant}")).collect()
}

fn refused(code: DenialCode, requested: &str, grants: &[HostGrant]) -> Denial {
    Denial::new(DenialBoundary::Sandbox, code, requested, granted(grants))
}

/// Returns the target as a manifest writes it.
fn as_grant(target: &RequestTarget) -> String {
    match target.scheme() {
        UrlScheme::Https => target.to_string(),
        UrlScheme::Http => format!("http://{target}"),
    }
}

/// Returns the line that grants `target` in addition to the existing grants.
fn with(target: &RequestTarget, grants: &[HostGrant]) -> GrantLine {
    GrantLine::manifest_hosts(grants.iter().map(ToString::to_string).chain([as_grant(target)]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use cofferdam_core::failure::{DenialBoundary, DenialCode};

    use super::*;

    fn policy() -> EgressPolicy {
        let grants = ["slack.com:443", "http://localhost:8080", "both.example:443", "http://both.example:80"];
        let grants: Vec<_> = grants.iter().map(|grant| HostGrant::parse(grant).unwrap()).collect();
        EgressPolicy::new(&grants, &[PrivateGrant::parse("localhost:8080").unwrap()])
    }

    #[test]
    fn scheme_host_and_port_must_all_match() {
        let policy = policy();
        for uri in [
            "https://slack.com/x",
            "https://Slack.com.:443",
            "http://localhost:8080",
            "https://both.example",
            "http://both.example",
        ] {
            assert!(policy.decide(&uri.parse().unwrap(), None).is_ok(), "{uri}");
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
            let refusal = policy.decide(&uri.parse().unwrap(), None).unwrap_err();
            assert_eq!(refusal.code(), code, "{uri}");
            assert_eq!(refusal.granted().len(), 4);
            assert!(refusal.granted().iter().any(|grant| grant == "network:http://localhost:8080"));
        }
        assert!(EgressPolicy::default().decide(&"https://slack.com".parse().unwrap(), None).is_err());
    }

    #[test]
    fn a_refusal_names_the_exact_line() {
        let one = EgressPolicy::new(&[HostGrant::parse("slack.com:443").unwrap()], &[]);
        let refusal = one.decide(&"https://files.slack.com/".parse().unwrap(), None).unwrap_err();
        assert_eq!(refusal.requested(), "network:files.slack.com:443");
        assert!(
            refusal.suggestion().contains("`hosts = [\"slack.com:443\", \"files.slack.com:443\"]`"),
            "{refusal}"
        );
        assert!(refusal.suggestion().contains("[capabilities.network] in connector.toml"));
        assert!(refusal.line().unwrap().line().parse::<toml::Table>().is_ok());
        let refusal = one.decide(&"http://slack.com/".parse().unwrap(), None).unwrap_err();
        assert_eq!(refusal.requested(), "network:http://slack.com:80");
        assert!(refusal.suggestion().contains("https://slack.com:443"), "{refusal}");
        let refusal = one.decide(&"https://10.0.0.1/".parse().unwrap(), None).unwrap_err();
        assert!(refusal.suggestion().contains("names, not addresses"), "{refusal}");
    }

    #[test]
    fn private_addresses_need_the_operator() {
        let policy = policy();
        let target = |uri: &str| policy.decide(&uri.parse().unwrap(), None).unwrap();
        let private = "192.168.0.1".parse().unwrap();
        let loopback = "127.0.0.1".parse().unwrap();
        assert!(policy.admit_address(&target("http://localhost:8080"), loopback).is_ok());
        assert!(policy.admit_address(&target("http://localhost:8080"), private).is_err());
        assert!(policy.admit_address(&target("https://slack.com"), "8.8.8.8".parse().unwrap()).is_ok());
        let refusal = policy.admit_address(&target("https://slack.com"), private).unwrap_err();
        assert_eq!((refusal.code(), refusal.address()), (DenialCode::PrivateAddress, Some(private)));
        assert!(
            refusal
                .suggestion()
                .contains("`allow_private = [\"slack.com:443\"]` under [network] in config.toml"),
            "{refusal}"
        );
        assert!(refusal.suggestion().contains("`--allow-private slack.com:443`"), "{refusal}");
        assert!(refusal.suggestion().contains("allow_private(\"slack.com:443\")"), "{refusal}");
    }

    #[test]
    fn a_private_denial_names_the_range() {
        let policy = policy();
        let target = policy.decide(&"https://slack.com".parse().unwrap(), None).unwrap();
        let denied = |address: &str| policy.admit_address(&target, address.parse().unwrap()).unwrap_err();
        for (address, line) in [
            ("10.0.0.1", Some("slack.com:443")),
            ("127.0.0.1", Some("slack.com:443=127.0.0.1")),
            ("169.254.1.1", Some("slack.com:443=169.254.1.1")),
            ("169.254.169.254", None),
        ] {
            let denial = denied(address);
            let message = denial.message();
            assert!(!message.contains("asked for") && !message.contains("granted is"), "{message}");
            assert!(message.starts_with("slack.com:443 is granted, but its name leads into"), "{message}");
            let expected = line.map(|line| format!("allow_private = [\"{line}\"]"));
            assert_eq!(denial.line().map(GrantLine::line), expected.as_deref());
        }
        assert!(denied("169.254.169.254").message().contains("cloud metadata"));
    }

    #[test]
    fn a_tls_request_to_a_plain_grant_names_the_scheme() {
        let denial = policy().decide(&"https://localhost:8080".parse().unwrap(), None).unwrap_err();
        let message = denial.message();
        assert!(message.contains("request http://localhost:8080"), "{message}");
        assert!(message.contains("without TLS"), "{message}");
    }

    #[test]
    fn the_preview_matches_the_gate() {
        let policy = policy();
        let scope = ActionScope::new("a@1.0.0", ["get"], ["slack.com:443"]).unwrap();
        let ask = |uri: &str, scope| policy.check_access(&uri.parse().unwrap(), scope);
        let permit = ask("https://slack.com", Some(&scope)).unwrap();
        let files: Vec<_> = permit.granted_by().iter().map(GrantLine::file).collect();
        assert_eq!((permit.requested(), files), ("network:slack.com:443", vec!["connector.toml", "a.md"]));
        assert!(permit.notes().iter().any(|note| note.contains("config.toml")), "{permit:?}");
        let permit = ask("http://localhost:8080", None).unwrap();
        assert_eq!(permit.granted_by().last().map(GrantLine::file), Some("config.toml"));
        let denial = ask("http://localhost:8080", Some(&scope)).unwrap_err();
        assert_eq!(denial.boundary(), DenialBoundary::Action);
        let strict = EgressPolicy::new(&[HostGrant::parse("http://localhost:1").unwrap()], &[]);
        let uri = "http://localhost:1".parse().unwrap();
        let foretold = strict.check_access(&uri, None).unwrap_err();
        let target = strict.decide(&uri, None).unwrap();
        let met = strict.admit_address(&target, "::1".parse().unwrap()).unwrap_err();
        assert!(foretold.line().is_some());
        assert_eq!(foretold.message(), met.message());
    }
}
