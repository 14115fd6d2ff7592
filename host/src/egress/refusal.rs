//! A request that is not allowed, with the line that would allow it.

use std::net::IpAddr;

use super::authority::Target;
use crate::failure::{Denial, DenialBoundary, DenialCode, safe_line};
use crate::manifest::Scheme;

/// The longest request text in a refusal, in characters.
const REQUESTED_CHARS: usize = 200;

/// Why a request does not go out. It becomes a [`Denial`] of the sandbox, and ends the call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} was refused: {}", .requested, .allow)]
pub struct Refusal {
    code: DenialCode,
    requested: String,
    granted: Vec<String>,
    allow: String,
    address: Option<IpAddr>,
}

impl Refusal {
    /// The stable reason.
    #[must_use]
    pub fn code(&self) -> DenialCode {
        self.code
    }

    /// What was asked for: `network:host:port`, or `network:http://host:port` without TLS.
    #[must_use]
    pub fn requested(&self) -> &str {
        &self.requested
    }

    /// What is granted, in the same form.
    #[must_use]
    pub fn granted(&self) -> &[String] {
        &self.granted
    }

    /// The exact line that would allow it and where it goes, or what to write instead.
    #[must_use]
    pub fn allow(&self) -> &str {
        &self.allow
    }

    /// The address that was refused, where the name was granted.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    pub(super) fn invalid_authority(authority: &str, reason: &str) -> Self {
        // What stands before an @ is meant as a user's name and password: not for a message.
        let shown = authority.rsplit_once('@').map_or(authority.to_owned(), |(_, host)| format!("…@{host}"));
        let requested = format!("network:{}", safe_line(&shown, REQUESTED_CHARS));
        let allow = format!(
            "It cannot be checked: {reason}. Write it like https://api.example.com or https://api.example.com:8443."
        );
        Self { code: DenialCode::InvalidAuthority, requested, granted: Vec::new(), allow, address: None }
    }

    pub(super) fn not_granted(target: &Target, grants: &[String]) -> Self {
        let allow = if target.is_literal() {
            "A manifest grants names, not addresses: request the service by its name.".to_owned()
        } else {
            format!("To allow it, {}.", manifest_line(target, grants))
        };
        Self::of(DenialCode::HostNotGranted, target, grants, allow)
    }

    pub(super) fn insecure(target: &Target, granted: &str, grants: &[String]) -> Self {
        let allow = format!(
            "The grant is for TLS: request https://{granted}. To allow it without TLS, {}.",
            manifest_line(target, grants)
        );
        Self::of(DenialCode::InsecureUrl, target, grants, allow)
    }

    pub(super) fn private(target: &Target, address: IpAddr, range: &str, grants: &[String]) -> Self {
        let allow = format!(
            "{target} leads to {address}, a {range} address. An operator who wants that allows it with \
             `--allow-private {target}`, or in a program `Host::builder().allow_private(\"{target}\")`."
        );
        Self { address: Some(address), ..Self::of(DenialCode::PrivateAddress, target, grants, allow) }
    }

    fn of(code: DenialCode, target: &Target, grants: &[String], allow: String) -> Self {
        let requested = format!("network:{}", as_grant(target));
        Self { code, requested, granted: Vec::new(), allow, address: None }.with_grants(grants)
    }

    pub(super) fn with_grants(mut self, grants: &[String]) -> Self {
        self.granted = grants.iter().map(|grant| format!("network:{grant}")).collect();
        self
    }
}

impl From<Refusal> for Denial {
    fn from(refusal: Refusal) -> Self {
        let Refusal { code, requested, granted, allow, address: _ } = refusal;
        Self { boundary: DenialBoundary::Sandbox, code, requested, granted, allow }
    }
}

/// The target as a manifest writes it.
fn as_grant(target: &Target) -> String {
    match target.scheme() {
        Scheme::Https => target.to_string(),
        Scheme::Http => format!("http://{target}"),
    }
}

/// The line that grants `target` beside what is granted already.
fn manifest_line(target: &Target, grants: &[String]) -> String {
    let hosts: Vec<_> =
        grants.iter().cloned().chain([as_grant(target)]).map(|host| format!("\"{host}\"")).collect();
    format!(
        "write `hosts = [{}]` under [capabilities.network] in connector.toml, then build, sign and install \
         the connector again",
        hosts.join(", ")
    )
}
