//! Why a request does not go out, with the line that would allow it.

use std::net::IpAddr;

use cofferdam_core::failure::{Denial, DenialBoundary, DenialCode, GrantLine};
use cofferdam_model::manifest::{HostGrant, Scheme};
use http::StatusCode;

use super::address::PrivateRange;
use super::authority::Target;
use super::private_grant::PrivateGrant;

/// The target cannot be checked, for `reason`.
pub(super) fn invalid_authority(authority: &str, reason: &str) -> Denial {
    // What stands before an @ is meant as a user's name and password: not for a message.
    let shown = authority.rsplit_once('@').map_or(authority.to_owned(), |(_, host)| format!("…@{host}"));
    refused(DenialCode::InvalidAuthority, &format!("network:{shown}"), &[]).because(format!(
        "It cannot be checked: {reason}. Write it like https://api.example.com or https://api.example.com:8443."
    ))
}

/// The manifest grants another host, another port, or nothing.
pub(super) fn not_granted(target: &Target, grants: &[HostGrant]) -> Denial {
    let denial = refused(DenialCode::HostNotGranted, &requested(target), grants);
    if target.is_literal() {
        return denial.otherwise("A manifest grants names, not addresses: request the service by its name.");
    }
    let in_the_clear = |grant: &&HostGrant| {
        (grant.scheme(), grant.host(), grant.port()) == (Scheme::Http, target.host(), target.port())
    };
    let denial = match grants.iter().find(in_the_clear) {
        Some(grant) => denial.because(format!(
            "The grant {grant} is for requests without TLS, and https was asked for: request {grant}, or grant \
             \"{target}\" if the server speaks TLS."
        )),
        None => denial,
    };
    denial.allowed_by(with(target, grants))
}

/// The manifest grants the host over TLS, as `granted`, and it is asked for without.
pub(super) fn insecure(target: &Target, granted: &HostGrant, grants: &[HostGrant]) -> Denial {
    refused(DenialCode::InsecureUrl, &requested(target), grants)
        .because(format!("The grant is for TLS: request https://{granted}."))
        .allowed_by(with(target, grants))
        .otherwise("That would send requests and answers unencrypted.")
}

/// The name is granted, and leads to an address inside the operator's own network.
pub(super) fn private(target: &Target, address: IpAddr, range: PrivateRange, grants: &[HostGrant]) -> Denial {
    let denial = refused(DenialCode::PrivateAddress, &requested(target), grants).stating(format!(
        "{target} is granted, but its name leads into the host's own network (a {} address), which only the host's \
         operator can allow.",
        range.name()
    ));
    if range.is_metadata() {
        return denial.otherwise(
            "Such an address serves the credentials of the machine itself. docs/network.md says how an operator who \
             means it writes it.",
        );
    }
    let bare = PrivateGrant::parse(&target.to_string()).ok().filter(|grant| grant.opens(address, range));
    let entry = bare.map_or_else(|| format!("{target}={address}"), |grant| grant.to_string());
    denial.allowed_by(GrantLine::allow_private([&entry])).otherwise(format!(
        "For one call, use `--allow-private {entry}`; in a program, `Host::builder().allow_private(\"{entry}\")`."
    ))
}

/// The answer of `target` is a part of one, and the request carried a credential.
pub(super) fn partial(target: &Target, status: StatusCode) -> Denial {
    let code = DenialCode::PartialResponse;
    Denial::new(DenialBoundary::Sandbox, code, &format!("response:{target}"), Vec::new())
        .stating(format!(
            "{target} answered with a part of its answer (status {}) to a request that carries a credential, and the \
             answer was stopped.",
            status.as_u16()
        ))
        .because(
            "A secret that comes back in pieces is found in none of them. The host drops `Range` from such requests: \
             use an operation of the service that answers whole.",
        )
}

/// What is asked for, as a grant is written.
pub(super) fn requested(target: &Target) -> String {
    format!("network:{}", as_grant(target))
}

/// What is granted.
pub(super) fn granted(grants: &[HostGrant]) -> Vec<String> {
    grants.iter().map(|grant| format!("network:{grant}")).collect()
}

fn refused(code: DenialCode, requested: &str, grants: &[HostGrant]) -> Denial {
    Denial::new(DenialBoundary::Sandbox, code, requested, granted(grants))
}

/// The target as a manifest writes it.
fn as_grant(target: &Target) -> String {
    match target.scheme() {
        Scheme::Https => target.to_string(),
        Scheme::Http => format!("http://{target}"),
    }
}

/// The line that grants `target` beside what is granted already.
fn with(target: &Target, grants: &[HostGrant]) -> GrantLine {
    GrantLine::manifest_hosts(grants.iter().map(ToString::to_string).chain([as_grant(target)]))
}
