//! Bindings: what is bound, which installed connectors ask for it, and changes to it.
//!
//! Nothing here ever shows a secret, or a part of one. Everything opens the vault, which may block: on a
//! thread of an asynchronous runtime, use its `spawn_blocking`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use semver::Version;
use serde::Serialize;

use super::Host;
use crate::digest::Digest;
use crate::error::{HostError, HostErrorKind};
use crate::failure::AuditId;
use crate::manifest::{ConnectorName, CredentialKind, HostGrant};
use crate::package::Package;
use crate::registry::Stored;
use crate::spelling::nearest;
use crate::vault::{Binding, BindingName, Bindings, Material, OauthGrant, VaultError};

/// After this many days without a change, a binding is shown as one to look at. A reminder, nothing more:
/// how long a secret is good is for its issuer to say.
pub const STALE_AFTER_DAYS: i64 = 47;

/// What is to be bound.
pub struct NewBinding {
    /// Its name.
    pub name: BindingName,
    /// What stands behind it, of the name's kind.
    pub material: Material,
    /// Where it may go; at least one.
    pub hosts: Vec<HostGrant>,
    /// Which connectors may use it; at least one.
    pub connectors: Vec<ConnectorName>,
}

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

/// An installed connector that asks for a credential of some kind and service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The connector.
    pub connector: ConnectorName,
    /// The version that asks.
    pub version: Version,
    /// Where it wants it to go.
    pub hosts: Vec<HostGrant>,
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

impl Host {
    /// What is bound, by name.
    ///
    /// # Errors
    /// The vault cannot be opened or read.
    ///
    /// # Examples
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = cofferdam::Host::builder().home("h").compiler(cofferdam::Compiler::in_process()).build()?;
    /// use cofferdam::host::NewBinding;
    /// use cofferdam::secret::Secret;
    /// use cofferdam::vault::Material;
    ///
    /// let token = std::fs::read_to_string("/run/credentials/slack")?.trim_end().to_owned();
    /// host.bind(NewBinding {
    ///     name: "bearer/slack/work".parse()?,
    ///     material: Material::Bearer { token: Secret::new(token).into() },
    ///     hosts: vec!["slack.com:443".parse()?],
    ///     connectors: vec!["github://acme/slack".parse()?],
    /// })?;
    /// for binding in host.bindings()? {
    ///     println!("{} may go to {:?}", binding.name, binding.hosts);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn bindings(&self) -> Result<Vec<BindingView>, HostError> {
        let now = self.pipeline.loader.clock.timestamp();
        Ok(self.vault.bindings()?.iter().map(|binding| view(binding, now)).collect())
    }

    /// One binding.
    ///
    /// # Errors
    /// `binding_not_found`, or the vault cannot be opened or read.
    pub fn binding(&self, name: &BindingName) -> Result<BindingView, HostError> {
        let bindings = self.vault.bindings()?;
        let binding = bindings.get(name).ok_or_else(|| not_bound(name, &bindings))?;
        Ok(view(binding, self.pipeline.loader.clock.timestamp()))
    }

    /// The parts of a binding that are no secrets come with it: for a change that keeps them.
    pub(crate) fn material(&self, name: &BindingName) -> Result<Material, HostError> {
        let bindings = self.vault.bindings()?;
        bindings.get(name).map(|it| it.material.clone()).ok_or_else(|| not_bound(name, &bindings))
    }

    /// Binds a name that nothing is bound under yet.
    ///
    /// # Errors
    /// `conflict` where something is; `validation` for what could never be sent, or nowhere, or for nobody;
    /// the vault cannot be opened or written.
    pub fn bind(&self, new: NewBinding) -> Result<BindingView, HostError> {
        let NewBinding { name, material, hosts, connectors } = new;
        check_kind(&name, &material)?;
        if hosts.is_empty() || connectors.is_empty() {
            let message = format!("{name} would be for nobody, or go nowhere; nothing was bound.");
            let hint = "Name at least one connector and one host.";
            return Err(HostError::new(HostErrorKind::Validation, message).hint(hint));
        }
        let now = self.pipeline.loader.clock.timestamp();
        self.changed("set", &name, |bindings| {
            if bindings.get(&name).is_some() {
                return Err(HostError::new(HostErrorKind::Conflict, format!("{name} is bound already."))
                    .hint(format!(
                        "Replace its secret with `cofferdam binding rebind {name}`, or bind another identity."
                    )));
            }
            let binding = Binding {
                name: name.clone(),
                material: material.clone(),
                hosts: deduplicated(&hosts),
                connectors: deduplicated(&connectors),
                created: now,
                changed: now,
                refused: None,
            };
            let shown = view(&binding, now);
            bindings.insert(binding);
            Ok(shown)
        })
    }

    /// Replaces what stands behind a binding; where it may go and who may use it stay. A refusal is forgotten.
    ///
    /// # Errors
    /// `binding_not_found`; `validation` for what could never be sent; the vault cannot be opened or written.
    pub fn rebind(&self, name: &BindingName, material: Material) -> Result<BindingView, HostError> {
        check_kind(name, &material)?;
        let now = self.pipeline.loader.clock.timestamp();
        self.changed("rebound", name, |bindings| {
            let binding = found(name, bindings)?;
            binding.material = material.clone();
            binding.changed = now;
            binding.refused = None;
            Ok(view(binding, now))
        })
    }

    /// Lets another connector use a binding, and the binding go to `hosts` besides.
    ///
    /// # Errors
    /// `binding_not_found`, or the vault cannot be opened or written.
    pub fn allow_binding(
        &self,
        name: &BindingName,
        connector: &ConnectorName,
        hosts: &[HostGrant],
    ) -> Result<BindingView, HostError> {
        let now = self.pipeline.loader.clock.timestamp();
        self.changed("allowed", name, |bindings| {
            let binding = found(name, bindings)?;
            binding.connectors.push(connector.clone());
            binding.connectors = deduplicated(&binding.connectors);
            binding.hosts.extend_from_slice(hosts);
            binding.hosts = deduplicated(&binding.hosts);
            Ok(view(binding, now))
        })
    }

    /// Removes a binding and its secrets.
    ///
    /// # Errors
    /// `binding_not_found`, or the vault cannot be opened or written.
    pub fn revoke_binding(&self, name: &BindingName) -> Result<BindingView, HostError> {
        let now = self.pipeline.loader.clock.timestamp();
        self.changed("revoked", name, |bindings| {
            let removed = bindings.remove(name).ok_or_else(|| not_bound(name, bindings))?;
            Ok(view(&removed, now))
        })
    }

    /// The installed connectors that ask for credentials of this kind and service. A package whose bytes are
    /// not those that were installed asks for nothing.
    ///
    /// # Errors
    /// The package directory cannot be read.
    pub fn askers(&self, kind: CredentialKind, service: &str) -> Result<Vec<Asker>, HostError> {
        let registry = &self.pipeline.loader.registry;
        let mut askers = Vec::new();
        for entry in registry.list().map_err(HostError::from)? {
            let Ok(Stored { bytes, .. }) = registry.read(&entry.digest) else { continue };
            if Digest::of(&bytes) != entry.digest {
                continue;
            }
            let Ok(package) = Package::open(bytes) else { continue };
            let asked = package.manifest().credentials().iter();
            let asked = asked.filter(|grant| grant.kind() == kind && grant.service() == service);
            let mut hosts: Vec<_> = asked.flat_map(|grant| grant.hosts().to_vec()).collect();
            hosts.sort();
            hosts.dedup();
            if !hosts.is_empty() {
                askers.push(Asker { connector: entry.name, version: entry.version, hosts });
            }
        }
        Ok(askers)
    }

    /// Opens a binding and says what the installed connectors that ask for it would get.
    ///
    /// # Errors
    /// `binding_not_found`; the vault cannot be opened or read.
    pub fn inspect_binding(&self, name: &BindingName) -> Result<BindingInspection, HostError> {
        let bindings = self.vault.bindings()?;
        let binding = bindings.get(name).ok_or_else(|| not_bound(name, &bindings))?;
        let askers = self.askers(name.kind(), name.service())?;
        let connectors = askers.iter().map(|asker| verdict(binding, asker)).collect();
        Ok(BindingInspection { binding: view(binding, self.pipeline.loader.clock.timestamp()), connectors })
    }

    /// Changes one binding, on record; the errors of `change` are the host's own.
    fn changed(
        &self,
        what: &'static str,
        name: &BindingName,
        change: impl FnMut(&mut Bindings) -> Result<BindingView, HostError>,
    ) -> Result<BindingView, HostError> {
        let id = AuditId::mint();
        let changed = self.change_vault(change).map_err(|error| error.of_request(&id));
        match &changed {
            Ok(view) => tracing::info!(
                target: "cofferdam::record", audit_id = id.as_str(), binding = view.name,
                hosts = view.hosts.join(" "), connectors = view.connectors.join(" "), "binding {what}"
            ),
            Err(error) => tracing::info!(
                target: "cofferdam::record", audit_id = id.as_str(), binding = %name, %error,
                "binding not {what}"
            ),
        }
        changed
    }

    fn change_vault<T>(
        &self,
        mut change: impl FnMut(&mut Bindings) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let mut outcome = None;
        let changed = self.vault.change(&mut |bindings| match change(bindings) {
            Ok(done) => {
                outcome = Some(Ok(done));
                Ok(())
            }
            Err(error) => {
                let refused = VaultError::Refused { message: error.to_string(), hint: String::new() };
                outcome = Some(Err(error));
                Err(refused)
            }
        });
        match (outcome, changed) {
            (Some(Err(error)), _) => Err(error),
            (_, Err(error)) => Err(error.into()),
            (Some(Ok(done)), Ok(())) => Ok(done),
            (None, Ok(())) => {
                Err(HostError::new(HostErrorKind::Internal, "The vault did not take the change."))
            }
        }
    }
}

fn check_kind(name: &BindingName, material: &Material) -> Result<(), HostError> {
    if material.kind() != name.kind() {
        let message = format!("{name} names another kind than {}.", material.kind().name());
        let hint = "The kind is the first part of the name.";
        return Err(HostError::new(HostErrorKind::Validation, message).hint(hint));
    }
    Ok(material.check()?)
}

fn found<'b>(name: &BindingName, bindings: &'b mut Bindings) -> Result<&'b mut Binding, HostError> {
    let missing = not_bound(name, bindings);
    bindings.get_mut(name).ok_or(missing)
}

fn not_bound(name: &BindingName, bindings: &Bindings) -> HostError {
    let names: Vec<_> = bindings.iter().map(|binding| binding.name.to_string()).collect();
    let hint = match nearest(&name.to_string(), names.iter().map(String::as_str)) {
        Some(near) => format!("Did you mean {near}?"),
        None => format!(
            "Bind it with `cofferdam binding set {name}`; `cofferdam binding list` shows what is bound."
        ),
    };
    HostError::new(HostErrorKind::BindingNotFound, format!("Nothing is bound as {name}.")).hint(hint)
}

fn deduplicated<T: Clone + Ord>(items: &[T]) -> Vec<T> {
    let mut items = items.to_vec();
    items.sort();
    items.dedup();
    items
}

fn verdict(binding: &Binding, asker: &Asker) -> Verdict {
    let connector = format!("{}@{}", asker.connector, asker.version);
    let known = binding.connectors.contains(&asker.connector);
    let (sent, kept): (Vec<_>, Vec<_>) =
        asker.hosts.iter().partition(|host| known && binding.hosts.contains(host));
    let missing = match (known, kept.as_slice()) {
        (false, _) => Some("the binding is not for this connector".to_owned()),
        (true, []) => None,
        (true, kept) => Some(format!("the binding may not go to {}", list(kept))),
    };
    let command = missing
        .as_ref()
        .map(|_| format!("cofferdam binding allow {} --connector {}", binding.name, asker.connector));
    Verdict { connector, sent_to: sent.iter().map(ToString::to_string).collect(), missing, command }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn view(binding: &Binding, now: Timestamp) -> BindingView {
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
