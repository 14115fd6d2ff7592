//! The hosts and connectors of a new binding: from the options, or from the manifest of the only connector that
//! declares it.

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_egress::vault::BindingName;
use cofferdam_model::manifest::{ConnectorName, HostGrant};
use cofferdam_runtime::host::{CredentialConsumer, Host};

/// Both, decided; neither is empty.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BindingGrants {
    hosts: Vec<HostGrant>,
    connectors: Vec<ConnectorName>,
}

impl BindingGrants {
    pub(super) fn hosts(&self) -> String {
        list(&self.hosts)
    }

    pub(super) fn connectors(&self) -> String {
        list(&self.connectors)
    }

    pub(super) fn into_parts(self) -> (Vec<HostGrant>, Vec<ConnectorName>) {
        (self.hosts, self.connectors)
    }
}

/// Decides for `name`, given what was said on the command line.
pub(super) fn decide(
    host: &Host,
    name: &BindingName,
    connectors: Vec<ConnectorName>,
    hosts: Vec<HostGrant>,
) -> Result<BindingGrants, HostError> {
    if !connectors.is_empty() && !hosts.is_empty() {
        return Ok(BindingGrants { hosts, connectors });
    }
    derive(name, connectors, hosts, host.credential_consumers(name.kind(), name.service())?)
}

fn derive(
    name: &BindingName,
    connectors: Vec<ConnectorName>,
    hosts: Vec<HostGrant>,
    mut askers: Vec<CredentialConsumer>,
) -> Result<BindingGrants, HostError> {
    let credential = format!("{} for {}", name.kind().name(), name.service());
    let refuse = |message: String, hint: String| {
        Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint))
    };
    let whole = format!("cofferdam binding set {name} --connector github://OWNER/REPO --host HOST:PORT");
    if let Some(stranger) =
        connectors.iter().find(|name| !askers.iter().any(|asker| asker.connector == **name))
    {
        let message = format!("{stranger} is not installed, or asks for no {credential}.");
        return refuse(
            message,
            format!(
                "Install it first, or say where the secret may go, too: add --host HOST:PORT. `cofferdam inspect {stranger}` shows what it asks for."
            ),
        );
    }
    if !connectors.is_empty() {
        askers.retain(|asker| connectors.contains(&asker.connector));
    }
    let mut asking: Vec<_> = askers.iter().map(|asker| asker.connector.clone()).collect();
    asking.sort();
    asking.dedup();
    let connectors = match (connectors.is_empty(), asking.as_slice()) {
        (false, _) => connectors,
        (true, [only]) => vec![only.clone()],
        (true, []) => {
            return refuse(
                format!(
                    "No installed connector asks for a credential {credential}: where may the secret go, and who may use it?"
                ),
                format!("Install the connector first, or say both: `{whole}`."),
            );
        }
        (true, several) => {
            let message =
                format!("Several connectors ask for the credential {credential}: {}.", list(several));
            return refuse(
                message,
                format!(
                    "Say which may use the secret: add --connector {}, and another for each more.",
                    several.first().map(ToString::to_string).unwrap_or_default()
                ),
            );
        }
    };
    if !hosts.is_empty() {
        return Ok(BindingGrants { hosts, connectors });
    }
    let mut hosts: Vec<HostGrant> = Vec::new();
    for connector in &connectors {
        let mut versions = askers.iter().filter(|asker| asker.connector == *connector);
        let Some(first) = versions.next() else { continue };
        if let Some(other) = versions.find(|other| other.hosts != first.hosts) {
            let message = format!(
                "The installed versions of {connector} differ: {} wants the secret to go to {}, {} to {}.",
                first.version,
                list(&first.hosts),
                other.version,
                list(&other.hosts)
            );
            return refuse(message, "Say where it may go: add --host HOST:PORT.".into());
        }
        hosts.extend_from_slice(&first.hosts);
    }
    hosts.sort();
    hosts.dedup();
    Ok(BindingGrants { hosts, connectors })
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn asker(connector: &str, version: &str, hosts: &[&str]) -> CredentialConsumer {
        CredentialConsumer {
            connector: ConnectorName::parse(connector).unwrap(),
            version: version.parse().unwrap(),
            hosts: hosts.iter().map(|host| HostGrant::parse(host).unwrap()).collect(),
        }
    }

    fn decided(
        connectors: &[&str],
        hosts: &[&str],
        askers: Vec<CredentialConsumer>,
    ) -> Result<(String, String), String> {
        let name = BindingName::parse("api_key/slack").unwrap();
        let connectors = connectors.iter().map(|name| ConnectorName::parse(name).unwrap()).collect();
        let hosts = hosts.iter().map(|host| HostGrant::parse(host).unwrap()).collect();
        match derive(&name, connectors, hosts, askers) {
            Ok(grants) => Ok((grants.connectors(), grants.hosts())),
            Err(error) => Err(format!("{error} {}", error.hint().unwrap())),
        }
    }

    #[test]
    fn grants_need_exactly_one_requesting_connector() {
        let slack = || asker("github://acme/slack", "1.0.0", &["slack.com:443"]);
        let ok = |connectors: &str, hosts: &str| Ok((connectors.to_owned(), hosts.to_owned()));
        assert_eq!(decided(&[], &[], vec![slack()]), ok("github://acme/slack", "slack.com:443"));
        let newer = asker("github://acme/slack", "1.1.0", &["slack.com:443"]);
        assert_eq!(decided(&[], &[], vec![slack(), newer]), ok("github://acme/slack", "slack.com:443"));
        assert_eq!(decided(&[], &["a.example:1"], vec![slack()]), ok("github://acme/slack", "a.example:1"));
        let evil = || asker("github://evil/slack", "9.0.0", &["evil.example:443"]);
        assert_eq!(
            decided(&["github://acme/slack"], &[], vec![slack(), evil()]),
            ok("github://acme/slack", "slack.com:443")
        );
        for (connectors, hosts, askers, words) in [
            (&[][..], &[][..], vec![], "--connector github://OWNER/REPO --host HOST:PORT"),
            (&[], &["a.example:1"], vec![], "--connector github://OWNER/REPO --host HOST:PORT"),
            (&[], &[], vec![slack(), evil()], "github://acme/slack, github://evil/slack"),
            (&[], &["slack.com:443"], vec![slack(), evil()], "Say which may use the secret"),
            (&["github://acme/other"], &[], vec![slack()], "github://acme/other is not installed"),
            (
                &[],
                &[],
                vec![slack(), asker("github://acme/slack", "2.0.0", &["evil.example:443"])],
                "2.0.0 to evil.example:443",
            ),
        ] {
            let refused = decided(connectors, hosts, askers).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
