//! What may be shown of a binding: everything but its secrets.

use std::collections::BTreeMap;

use cofferdam_egress::credentials::allow_command;
use cofferdam_egress::vault::{Binding, Material, OauthGrant};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::bindings::Asker;

/// After this many days without a change, a binding is shown as one to look at. A reminder, nothing more:
/// how long a secret is good is for its issuer to say.
pub const STALE_AFTER_DAYS: i64 = 47;

/// A binding, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingView {
    /// `<kind>/<service>/<identity>`.
    pub name: String,
    /// `active`, or `refused` where its issuer no longer accepts it.
    pub status: &'static str,
    /// Why it was refused, as far as is known.
    pub refused: Option<String>,
    /// Whether it has not changed for [`STALE_AFTER_DAYS`].
    pub stale: bool,
    /// Where it may go.
    pub hosts: Vec<String>,
    /// Which connectors may use it.
    pub connectors: Vec<String>,
    /// When it was first bound.
    pub created: String,
    /// When its secret last changed by hand.
    pub changed: String,
    /// The parts that are no secrets: `username`, `token_url`, `client_id`, `grant`, `scopes`,
    /// `token_expires`, `access_key_id`, `region`.
    pub details: BTreeMap<&'static str, String>,
}

/// Whether one connector would get a binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// `name@version`.
    pub connector: String,
    /// Where a request of its would carry it.
    pub sent_to: Vec<String>,
    /// Why it would not, or not everywhere it asks for; none where nothing is missing.
    pub missing: Option<String>,
    /// The command that would allow it.
    pub command: Option<String>,
}

/// A binding, and who would get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingInspection {
    /// The binding.
    pub binding: BindingView,
    /// What the installed connectors that ask for it would get.
    pub connectors: Vec<Verdict>,
}

/// Whether `asker` would get `binding`, and where it would go.
pub(super) fn verdict(binding: &Binding, asker: &Asker) -> Verdict {
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
    Verdict { connector, sent_to: sent.iter().map(ToString::to_string).collect(), missing, command }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What may be shown of a binding.
pub(super) fn view(binding: &Binding, now: Timestamp) -> BindingView {
    let mut details = BTreeMap::new();
    match &binding.material {
        Material::Basic { username, .. } => drop(details.insert("username", username.clone())),
        Material::Oauth2 { token_url, client_id, scopes, grant, tokens, .. } => {
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
        Material::AwsSigv4 { access_key_id, region, .. } => {
            details.insert("access_key_id", access_key_id.clone());
            details.insert("region", region.clone().unwrap_or_else(|| "from the host's name".into()));
        }
        Material::ApiKey { .. } | Material::Bearer { .. } | Material::SessionToken { .. } => {}
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

/// A moment, to the second.
fn seconds(moment: Timestamp) -> String {
    format!("{moment:.0}")
}
