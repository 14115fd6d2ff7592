//! The public view of a binding: everything except its secrets.

use std::collections::BTreeMap;

use cofferdam_egress::credentials::allow_command;
use cofferdam_egress::vault::{Binding, OauthGrant, SecretMaterial};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::bindings::CredentialConsumer;

/// The number of days without a change after which a binding is shown as stale. It is only a reminder: the issuer
/// decides how long a secret is valid.
pub const STALE_AFTER_DAYS: i64 = 47;

/// A binding, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingView {
    /// `<kind>/<service>/<identity>`.
    pub name: String,
    /// `active`, or `refused` if its issuer no longer accepts it.
    pub status: &'static str,
    /// The reason for the refusal, as far as it is known.
    pub refused: Option<String>,
    /// True if it has not changed for [`STALE_AFTER_DAYS`].
    pub stale: bool,
    /// The hosts that it may be sent to.
    pub hosts: Vec<String>,
    /// The connectors that may use it.
    pub connectors: Vec<String>,
    /// The time at which it was first bound.
    pub created: String,
    /// The time at which its secret was last changed by hand.
    pub changed: String,
    /// Its parts that are not secret: `username`, `token_url`, `client_id`, `grant`, `scopes`, `token_expires`,
    /// `access_key_id`, `region`.
    pub details: BTreeMap<&'static str, String>,
}

/// The result for one connector that requests a binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingVerdict {
    /// The connector, as `name@version`.
    pub connector: String,
    /// The hosts to which its requests would carry it.
    pub sent_to: Vec<String>,
    /// The reason that it would not get the binding, or not for every requested host. None if nothing is missing.
    pub missing: Option<String>,
    /// The command that would allow it.
    pub command: Option<String>,
}

/// A binding, and the connectors that would get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingInspection {
    /// The binding.
    pub binding: BindingView,
    /// The results for the installed connectors that request it.
    pub connectors: Vec<BindingVerdict>,
}

/// Determines whether `asker` would get `binding`, and for which hosts.
pub(super) fn verdict(binding: &Binding, asker: &CredentialConsumer) -> BindingVerdict {
    let connector = format!("{}@{}", asker.connector, asker.version);
    let known = binding.connectors.contains(&asker.connector);
    let (granted, lacking): (Vec<_>, Vec<_>) =
        asker.hosts.iter().partition(|host| binding.hosts.contains(host));
    let missing = match (known, lacking.as_slice()) {
        (true, []) => None,
        (false, []) => Some("the binding is not for this connector".to_owned()),
        (true, lacking) => Some(format!("the binding may not go to {}", list(lacking))),
        (false, lacking) => {
            Some(format!("the binding is not for this connector, and may not go to {}", list(lacking)))
        }
    };
    let unlisted = (!known).then_some(&asker.connector);
    let command = missing.as_ref().map(|_| allow_command(&binding.name, unlisted, &lacking));
    let sent = if known { granted } else { Vec::new() };
    BindingVerdict { connector, sent_to: sent.iter().map(ToString::to_string).collect(), missing, command }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the public view of a binding.
pub(super) fn view(binding: &Binding, now: Timestamp) -> BindingView {
    let mut details = BTreeMap::new();
    match &binding.material {
        SecretMaterial::Basic { username, .. } => drop(details.insert("username", username.clone())),
        SecretMaterial::Oauth2 { token_url, client_id, scopes, grant, tokens, .. } => {
            let grant = match grant {
                OauthGrant::RefreshToken(_) => "refresh_token",
                OauthGrant::ClientCredentials => "client_credentials",
            };
            details.insert("token_url", token_url.clone());
            details.insert("client_id", client_id.clone());
            details.insert("grant", grant.to_owned());
            details.insert("scopes", scopes.join(" "));
            if let Some(expires) = tokens.as_ref().and_then(|tokens| tokens.expires) {
                details.insert("token_expires", seconds(expires));
            }
        }
        SecretMaterial::AwsSigv4 { access_key_id, region, .. } => {
            details.insert("access_key_id", access_key_id.clone());
            details.insert("region", region.clone().unwrap_or_else(|| "from the host's name".into()));
        }
        SecretMaterial::ApiKey { .. }
        | SecretMaterial::Bearer { .. }
        | SecretMaterial::SessionToken { .. } => {}
    }
    BindingView {
        name: binding.name.to_string(),
        status: if binding.refused.is_some() { "refused" } else { "active" },
        refused: binding.refused.clone(),
        stale: now.duration_since(binding.changed) >= SignedDuration::from_hours(STALE_AFTER_DAYS * 24),
        hosts: binding.hosts.iter().map(ToString::to_string).collect(),
        connectors: binding.connectors.iter().map(ToString::to_string).collect(),
        created: seconds(binding.created),
        changed: seconds(binding.changed),
        details,
    }
}

/// Formats a timestamp, to the second.
fn seconds(moment: Timestamp) -> String {
    format!("{moment:.0}")
}
