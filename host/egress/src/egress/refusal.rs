//! The denials of requests, each with the line that would allow it.

use std::net::IpAddr;

use cofferdam_core::failure::{Denial, DenialBoundary, DenialCode, GrantLine};
use cofferdam_model::manifest::{HostGrant, UrlScheme};
use http::StatusCode;

use super::address::PrivateRange;
use super::authority::RequestTarget;
use super::private_grant::PrivateGrant;

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
