//! Writes the manifest.

use cofferdam_model::manifest::{CredentialKind, HostGrant};

use super::text::{line, toml, toml_comment};
use crate::names;
use crate::operation::Operation;
use crate::security::Scheme;
use crate::server;

/// The hosts and credentials of a connector, and the effects of its operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Grants {
    pub(crate) hosts: Vec<HostGrant>,
    pub(crate) credentials: Vec<CredentialLines>,
}

/// A credential, as the manifest has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CredentialLines {
    pub(crate) kind: CredentialKind,
    pub(crate) service: String,
    pub(crate) scheme: Scheme,
    pub(crate) is_optional: bool,
}

/// Returns the grants that operations need. `extra` is a credential that the document does not describe.
pub(crate) fn grants(operations: &[Operation<'_>], service: &str, extra: Option<CredentialKind>) -> Grants {
    let mut grants = Grants::default();
    let mut schemes: Vec<&Scheme> = Vec::new();
    for operation in operations {
        if let Some(host) = server::host_grant(&operation.base)
            && !grants.hosts.contains(&host)
        {
            grants.hosts.push(host);
        }
        for scheme in &operation.security.schemes {
            let same_place = |known: &&Scheme| place(known) == place(scheme);
            // Two credentials cannot be in one place: the first way stays.
            if !schemes.iter().any(|known| *known == scheme || same_place(known)) {
                schemes.push(scheme);
            }
        }
    }
    let is_optional = |scheme: &Scheme| {
        let used = operations.iter().filter(|operation| operation.security.schemes.contains(scheme));
        used.clone().count() > 0 && used.clone().all(|operation| operation.security.is_optional)
    };
    for scheme in schemes {
        let twin = |known: &CredentialLines| known.kind == scheme.kind;
        let service = match grants.credentials.iter().any(twin) {
            false => service.to_owned(),
            // Two keys of one service are bound apart.
            true => {
                names::Namespace::default().claim(&names::join(service, &names::kebab(&scheme.name)), service)
            }
        };
        if grants.credentials.iter().any(|known| known.kind == scheme.kind && known.service == service) {
            continue;
        }
        let is_optional = is_optional(scheme);
        grants.credentials.push(CredentialLines {
            kind: scheme.kind,
            service,
            scheme: scheme.clone(),
            is_optional,
        });
    }
    if let Some(kind) = extra
        && grants.credentials.is_empty()
    {
        let scheme = Scheme {
            name: kind.name().to_owned(),
            kind,
            header: (kind == CredentialKind::ApiKey).then(|| "X-Api-Key".to_owned()),
            format: (kind == CredentialKind::ApiKey).then(|| "{key}".to_owned()),
            query: None,
        };
        grants.credentials.push(CredentialLines {
            kind,
            service: service.to_owned(),
            scheme,
            is_optional: false,
        });
    }
    grants
}

/// Returns the place of a credential in requests.
fn place(scheme: &Scheme) -> String {
    match (&scheme.header, &scheme.query) {
        (_, Some(query)) => format!("query {query}"),
        (Some(header), None) => format!("header {}", header.to_ascii_lowercase()),
        (None, None) => "header authorization".to_owned(),
    }
}

/// Returns the text of `connector.toml`.
pub(crate) fn text(
    connector: &str,
    title: &str,
    operations: &[Operation<'_>],
    grants: &Grants,
    memory: Option<u64>,
) -> String {
    let mut text = format!("[connector]\nname = {}\nversion = \"0.1.0\"\n", toml(connector));
    let title = line(title, 100);
    if !title.is_empty() {
        text.push_str(&format!("description = {}\n", toml(&title)));
    }
    let changing: Vec<_> = operations.iter().filter(|operation| operation.changes_something()).collect();
    if !changing.is_empty() {
        text.push('\n');
        text.push_str(&toml_comment(
            "May the host repeat it? PUT and DELETE are idempotent by HTTP; others only under a key that the service honours.",
        ));
        text.push_str("[connector.idempotency.operations]\n");
        for operation in &changing {
            let word = if operation.is_idempotent() { "idempotent" } else { "not_idempotent" };
            text.push_str(&format!("{} = \"{word}\"\n", names::json(&operation.name)));
        }
    }
    text.push('\n');
    text.push_str(&toml_comment(
        "What each operation does to the service, by its method. Where you know better, write \"additive\" (adds, and \
         overwrites nothing) or \"convergent\" (sets what its arguments say).",
    ));
    text.push_str("[connector.effects.operations]\n");
    for operation in operations {
        let word = if operation.changes_something() { "destructive" } else { "read_only" };
        text.push_str(&format!("{} = \"{word}\"\n", names::json(&operation.name)));
    }
    let hosts: Vec<_> = grants.hosts.iter().map(|host| toml(&host.to_string())).collect();
    let hosts = hosts.join(", ");
    text.push_str(&format!("\n[capabilities.network]\nhosts = [{hosts}]\n"));
    for credential in &grants.credentials {
        let label = format!("{}/{}", credential.kind.name(), credential.service);
        text.push_str(&format!(
            "\n# What the host adds to requests; the connector never sees it: `cofferdam binding set {label}`.\n\
             [[capabilities.credential]]\nkind = \"{}\"\nservice = {}\nhosts = [{hosts}]\n",
            credential.kind.name(),
            toml(&credential.service),
        ));
        if credential.is_optional {
            text.push_str("optional = true\n");
        }
        let scheme = &credential.scheme;
        if let Some(query) = &scheme.query {
            text.push_str(&format!("query = {}\n", toml(query)));
        } else if let (Some(header), Some(format)) = (&scheme.header, &scheme.format) {
            text.push_str(&format!("header = {}\nformat = {}\n", toml(header), toml(format)));
        }
    }
    text.push_str("\n[capabilities.runtime]\nimports = [\"wasi:http/outgoing-handler\"]\n");
    if let Some(memory) = memory {
        text.push_str(&format!(
            "\n# The service's schemas allow values of this size.\n[limits]\nmemory = \"{memory}MiB\"\n"
        ));
    }
    text
}
