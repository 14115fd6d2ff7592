//! The problems of bindings, each with the exact command that fixes it.

use std::fmt::Display;

use cofferdam_core::failure::{BindingCode, BindingProblem, sanitize_line};
use cofferdam_model::manifest::{ConnectorName, CredentialGrant, HostGrant, UrlScheme};

use crate::egress::RequestTarget;
use crate::vault::{Binding, BindingName};

/// Reports that no binding has the name `name`; `others` are the identities of this kind and service that are
/// bound.
pub(super) fn unbound(name: &BindingName, others: &[&str]) -> BindingProblem {
    let reason = match others {
        [] => format!("No credential is bound as {name}, which the connector needs."),
        others => format!(
            "No credential is bound as {name}. There is one as {}: choose it with `--identity {}=<identity>`.",
            others.join(", "),
            name.service(),
        ),
    };
    BindingProblem::new(name, BindingCode::Unbound, reason, format!("cofferdam binding set {name}"))
}

/// Returns the command that widens a binding. Everything that the command adds is written in it, so that
/// running it unchanged grants nothing implicitly.
pub fn allow_command<H: Display>(
    name: &BindingName,
    connector: Option<&ConnectorName>,
    hosts: impl IntoIterator<Item = H>,
) -> String {
    let mut command = format!("cofferdam binding allow {name}");
    if let Some(connector) = connector {
        command.push_str(&format!(" --connector {connector}"));
    }
    hosts.into_iter().fold(command, |command, host| format!("{command} --host {host}"))
}

/// Reports that the binding does not list the connector, and perhaps none of the hosts that the connector's
/// manifest names.
pub(super) fn connector_not_allowed(
    binding: &Binding,
    grant: &CredentialGrant,
    connector: &ConnectorName,
) -> BindingProblem {
    let name = &binding.name;
    let command = |hosts: &[HostGrant]| allow_command(name, Some(connector), hosts);
    let (reason, command) = match goes_somewhere(binding, grant) {
        true => (format!("The credential bound as {name} is not for {connector}."), command(&[])),
        false => (
            format!(
                "The credential bound as {name} is not for {connector}, nor for {}, which its manifest names.",
                list(grant.hosts())
            ),
            command(grant.hosts()),
        ),
    };
    BindingProblem::new(name, BindingCode::NotAllowed, reason, command)
}

/// Returns whether the binding lists one of the hosts that the manifest names.
pub(super) fn goes_somewhere(binding: &Binding, grant: &CredentialGrant) -> bool {
    grant.hosts().iter().any(|host| binding.hosts.contains(host))
}

/// Reports that the binding lists none of the hosts that the manifest names for it.
pub(super) fn no_host_allowed(binding: &Binding, grant: &CredentialGrant) -> BindingProblem {
    hosts_not_allowed(&binding.name, grant.hosts())
}

/// Reports that the binding does not list the target.
pub(super) fn host_not_allowed(name: &BindingName, target: &RequestTarget) -> BindingProblem {
    let clear = if target.scheme() == UrlScheme::Http { "http://" } else { "" };
    hosts_not_allowed(name, &[format!("{clear}{target}")])
}

fn hosts_not_allowed<H: Display>(name: &BindingName, hosts: &[H]) -> BindingProblem {
    let reason = format!(
        "The credential bound as {name} is not for {}, which the connector's manifest names.",
        list(hosts)
    );
    BindingProblem::new(name, BindingCode::NotAllowed, reason, allow_command(name, None, hosts))
}

fn list<T: Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Reports that the bound secret does not fit into the place that the manifest names.
pub(super) fn unsendable(name: &BindingName, why: &str) -> BindingProblem {
    let reason = format!("The credential bound as {name} cannot be sent: {why}.");
    BindingProblem::new(name, BindingCode::Unsendable, reason, rebind(name))
}

/// Reports that the region of a signature is neither in the host's name nor in the binding.
pub(super) fn no_region(name: &BindingName, host: &str) -> BindingProblem {
    let reason =
        format!("The credential bound as {name} cannot sign: the name {host} says no region, nor does it.");
    let command = format!("cofferdam binding rebind {name} --region REGION");
    BindingProblem::new(name, BindingCode::Unsendable, reason, command)
}

/// Reports that the issuer rejected the request.
pub(super) fn refused(name: &BindingName, status: u16, why: &str) -> BindingProblem {
    let reason = format!("The issuer refused to renew the token of {name}: {why}.");
    BindingProblem::new(name, BindingCode::RefreshRefused, reason, rebind(name)).with_status(status)
}

/// Reports that the issuer could not be reached, or did not answer as the protocol requires.
pub(super) fn unreachable(name: &BindingName, status: Option<u16>, why: &str) -> BindingProblem {
    let reason = format!("The token of {name} could not be renewed now: {why}.");
    let problem = BindingProblem::new(
        name,
        BindingCode::RefreshUnreachable,
        reason,
        format!("cofferdam binding test {name}"),
    );
    match status {
        Some(status) => problem.with_status(status),
        None => problem,
    }
}

/// Reports that the host does not connect to the address of the token endpoint.
pub(super) fn endpoint(name: &BindingName, why: &str, mend: Option<String>) -> BindingProblem {
    let reason = format!("The token endpoint of {name} cannot be asked: {why}.");
    let command = mend.unwrap_or_else(|| format!("{} --token-url URL", rebind(name)));
    BindingProblem::new(name, BindingCode::EndpointNotAllowed, reason, command)
}

fn rebind(name: &BindingName) -> String {
    format!("cofferdam binding rebind {name}")
}

/// Returns whether `host` matches `target`: same scheme, same host, same port.
pub(super) fn is_at(host: &HostGrant, target: &RequestTarget) -> bool {
    (host.scheme(), host.host(), host.port()) == (target.scheme(), target.host(), target.port())
}

/// Reports an identity that no binding can have.
pub(super) fn unsendable_name(label: &str, identity: &str) -> BindingProblem {
    let shown = sanitize_line(identity, 64);
    let reason = format!("`{shown}` is no identity: write lower-case letters, digits, `.`, `_` and `-`.");
    let command = format!("cofferdam binding set {label}/<identity>");
    BindingProblem::new(label, BindingCode::Unbound, reason, command)
}
