//! Bindings: lists them and the installed connectors that request them, and changes them.
//!
//! No API here ever shows a secret, or a part of one. All of them open the vault, which may block: on a thread of
//! an asynchronous runtime, use its `spawn_blocking`. Changes are recorded in the audit log before they are made; those
//! that only take permissions away are made also if it cannot be written.

use std::collections::BTreeMap;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::event::operator::OperatorAction;
use cofferdam_core::failure::AuditId;
use cofferdam_core::suggest::nearest;
use cofferdam_egress::credentials::allow_command;
use cofferdam_egress::vault::{
    Binding, BindingName, Bindings, OauthGrant, SecretMaterial, UnavailableBinding, VaultError,
};
use cofferdam_model::manifest::{ConnectorName, CredentialKind, HostGrant};
use cofferdam_model::package::Package;
use cofferdam_model::registry::{RegistryEntry, StoredPackage};
use jiff::{SignedDuration, Timestamp};
use semver::Version;
use serde::Serialize;

use super::Host;
use super::operator::{ChangeRecorder, OperatorChange, binding_state};

/// A binding to be created.
pub struct NewBinding {
    /// Its name.
    pub name: BindingName,
    /// Its secret material, of the name's kind.
    pub material: SecretMaterial,
    /// The hosts that it may be sent to; at least one.
    pub hosts: Vec<HostGrant>,
    /// The connectors that may use it; at least one.
    pub connectors: Vec<ConnectorName>,
}

/// An installed connector that requests a credential of some kind and service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialConsumer {
    /// The connector.
    pub connector: ConnectorName,
    /// The version that requests it.
    pub version: Version,
    /// The hosts that it requests it for.
    pub hosts: Vec<HostGrant>,
}

impl Host {
    /// Returns all bindings, by name.
    ///
    /// # Errors
    /// The vault cannot be opened or read.
    ///
    /// # Examples
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = cofferdam::Host::builder().home("h").compiler(cofferdam::Compiler::in_process()).build()?;
    /// use cofferdam::{NewBinding, Secret, SecretMaterial};
    ///
    /// let token = std::fs::read_to_string("/run/credentials/slack")?.trim_end().to_owned();
    /// host.bind(NewBinding {
    ///     name: "bearer/slack/work".parse()?,
    ///     material: SecretMaterial::Bearer { token: Secret::new(token).into() },
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
        let bindings = self.vault.bindings()?;
        let mut views: Vec<_> = bindings.iter().map(|binding| view(binding, now)).collect();
        views.extend(bindings.iter_unavailable().map(|binding| unavailable_view(binding, now)));
        views.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(views)
    }

    /// Returns one binding.
    ///
    /// # Errors
    /// `binding_not_found`, or the vault cannot be opened or read.
    pub fn binding(&self, name: &BindingName) -> Result<BindingView, HostError> {
        let bindings = self.vault.bindings()?;
        let binding = bindings.get(name).ok_or_else(|| not_bound(name, &bindings))?;
        Ok(view(binding, self.pipeline.loader.clock.timestamp()))
    }

    /// Checks that bindings can be changed through the vault, before anything is asked for a change.
    ///
    /// # Errors
    /// `validation` if they are kept where others change them; the hint says where.
    pub fn check_bindings_editable(&self) -> Result<(), HostError> {
        Ok(self.vault.check_editable()?)
    }

    /// Returns the material of a binding, including its parts that are not secret: for a change that keeps them.
    pub fn material(&self, name: &BindingName) -> Result<SecretMaterial, HostError> {
        let bindings = self.vault.bindings()?;
        bindings.get(name).map(|it| it.material.clone()).ok_or_else(|| not_bound(name, &bindings))
    }

    /// Binds a name that is not bound yet.
    ///
    /// # Errors
    /// `conflict` if it is bound; `validation` for material that could never be sent, and for an empty list of
    /// hosts or connectors; the vault cannot be opened or written.
    pub fn bind(&self, new: NewBinding) -> Result<BindingView, HostError> {
        let NewBinding { name, material, hosts, connectors } = new;
        check_kind(&name, &material)?;
        if hosts.is_empty() || connectors.is_empty() {
            let message = format!("{name} would be for nobody, or go nowhere; nothing was bound.");
            let hint = "Name at least one connector and one host.";
            return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint));
        }
        let now = self.pipeline.loader.clock.timestamp();
        self.changed(OperatorAction::Bind, &name, |bindings| {
            if bindings.get(&name).is_some() {
                return Err(HostError::new(HostErrorKind::Conflict, format!("{name} is bound already."))
                    .with_hint(format!(
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

    /// Replaces the material of a binding. Its hosts and connectors do not change. A refusal is cleared.
    ///
    /// # Errors
    /// `binding_not_found`; `validation` for material that could never be sent; the vault cannot be opened or
    /// written.
    pub fn rebind(&self, name: &BindingName, material: SecretMaterial) -> Result<BindingView, HostError> {
        check_kind(name, &material)?;
        let now = self.pipeline.loader.clock.timestamp();
        self.changed(OperatorAction::Rebind, name, |bindings| {
            let binding = found(name, bindings)?;
            binding.material = material.clone();
            binding.changed = now;
            binding.refused = None;
            Ok(view(binding, now))
        })
    }

    /// Lets another connector use a binding, if one is named, and adds `hosts` to the hosts of the binding.
    ///
    /// # Errors
    /// `binding_not_found`, or the vault cannot be opened or written.
    pub fn allow_binding(
        &self,
        name: &BindingName,
        connector: Option<&ConnectorName>,
        hosts: &[HostGrant],
    ) -> Result<BindingView, HostError> {
        let now = self.pipeline.loader.clock.timestamp();
        self.changed(OperatorAction::Allow, name, |bindings| {
            let binding = found(name, bindings)?;
            binding.connectors.extend(connector.cloned());
            binding.connectors = deduplicated(&binding.connectors);
            binding.hosts.extend_from_slice(hosts);
            binding.hosts = deduplicated(&binding.hosts);
            Ok(view(binding, now))
        })
    }

    /// Removes a connector or hosts from a binding. Neither list may become empty.
    ///
    /// # Errors
    /// `binding_not_found`; `validation` for an item that the binding does not list, and for the last connector or
    /// host; the vault cannot be opened or written.
    pub fn disallow_binding(
        &self,
        name: &BindingName,
        connector: Option<&ConnectorName>,
        hosts: &[HostGrant],
    ) -> Result<BindingView, HostError> {
        let now = self.pipeline.loader.clock.timestamp();
        self.changed(OperatorAction::Disallow, name, |bindings| {
            let binding = found(name, bindings)?;
            remove(name, &mut binding.connectors, connector.map(std::slice::from_ref).unwrap_or_default())?;
            remove(name, &mut binding.hosts, hosts)?;
            Ok(view(binding, now))
        })
    }

    /// Removes a binding and its secrets.
    ///
    /// # Errors
    /// `binding_not_found`, or the vault cannot be opened or written.
    pub fn revoke_binding(&self, name: &BindingName) -> Result<BindingView, HostError> {
        let now = self.pipeline.loader.clock.timestamp();
        self.changed(OperatorAction::Unbind, name, |bindings| {
            let removed = bindings.remove(name).ok_or_else(|| not_bound(name, bindings))?;
            Ok(view(&removed, now))
        })
    }

    /// Returns the installed connectors that request credentials of this kind and service. A package whose bytes
    /// have changed since its install is skipped.
    ///
    /// # Errors
    /// The package directory cannot be read.
    pub fn credential_consumers(
        &self,
        kind: CredentialKind,
        service: &str,
    ) -> Result<Vec<CredentialConsumer>, HostError> {
        let asked = |(entry, package): (RegistryEntry, Package)| {
            let grants = package.manifest().credentials().iter();
            let grants = grants.filter(|grant| grant.kind() == kind && grant.service() == service);
            let mut hosts: Vec<_> = grants.flat_map(|grant| grant.hosts().to_vec()).collect();
            hosts.sort();
            hosts.dedup();
            CredentialConsumer { connector: entry.name, version: entry.version, hosts }
        };
        Ok(self.packages_requesting(kind, service)?.into_iter().map(asked).collect())
    }

    /// Returns the installed packages that request such a credential, skipping changed ones.
    pub(super) fn packages_requesting(
        &self,
        kind: CredentialKind,
        service: &str,
    ) -> Result<Vec<(RegistryEntry, Package)>, HostError> {
        let registry = &self.pipeline.loader.registry;
        let mut asking = Vec::new();
        for entry in registry.list().map_err(HostError::from)? {
            let Ok(StoredPackage { bytes, .. }) = registry.read(&entry.digest) else { continue };
            if Digest::sha256(&bytes) != entry.digest {
                continue;
            }
            let Ok(package) = self.pipeline.loader.sandbox.open_blocking(bytes) else { continue };
            let mut asked = package.manifest().credentials().iter();
            if asked.any(|grant| grant.kind() == kind && grant.service() == service) {
                asking.push((entry, package));
            }
        }
        Ok(asking)
    }

    /// Returns, for each credential that `package` requests, the names of the bindings that its requests would carry to every
    /// requested host, in the order of the manifest. Empty where it would get none, or not for every host.
    ///
    /// # Errors
    /// The vault cannot be opened or read.
    pub fn bound_credentials(&self, package: &Package) -> Result<Vec<Vec<String>>, HostError> {
        let bindings = self.vault.bindings()?;
        let manifest = package.manifest();
        let bound = manifest.credentials().iter().map(|grant| {
            let consumer = CredentialConsumer {
                connector: manifest.name().clone(),
                version: manifest.version().clone(),
                hosts: grant.hosts().to_vec(),
            };
            let fits = |binding: &&Binding| {
                (binding.name.kind(), binding.name.service()) == (grant.kind(), grant.service())
                    && verdict(binding, &consumer).missing.is_none()
            };
            bindings.iter().filter(fits).map(|binding| binding.name.to_string()).collect()
        });
        Ok(bound.collect())
    }

    /// Returns a binding with the results for the installed connectors that request it.
    ///
    /// # Errors
    /// `binding_not_found`; the vault cannot be opened or read.
    pub fn inspect_binding(&self, name: &BindingName) -> Result<BindingInspection, HostError> {
        let bindings = self.vault.bindings()?;
        let binding = bindings.get(name).ok_or_else(|| not_bound(name, &bindings))?;
        let askers = self.credential_consumers(name.kind(), name.service())?;
        // Skip a connector that only uses another identity of the service: it does not lack this one.
        let identities = bindings
            .iter()
            .filter(|other| other.name.kind() == name.kind() && other.name.service() == name.service());
        let elsewhere: Vec<_> = identities.flat_map(|other| &other.connectors).collect();
        let uses = |asker: &&CredentialConsumer| {
            binding.connectors.contains(&asker.connector) || !elsewhere.contains(&&asker.connector)
        };
        let connectors = askers.iter().filter(uses).map(|asker| verdict(binding, asker)).collect();
        Ok(BindingInspection { binding: view(binding, self.pipeline.loader.clock.timestamp()), connectors })
    }

    /// Changes one binding and records the change. The errors of `change` are the host's own.
    fn changed(
        &self,
        action: OperatorAction,
        name: &BindingName,
        mut change: impl FnMut(&mut Bindings) -> Result<BindingView, HostError>,
    ) -> Result<BindingView, HostError> {
        let what = match action {
            OperatorAction::Bind => "set",
            OperatorAction::Rebind => "rebound",
            OperatorAction::Unbind => "revoked",
            OperatorAction::Allow => "allowed",
            _ => "disallowed",
        };
        self.vault.check_editable()?;
        let id = AuditId::mint();
        let now = self.pipeline.loader.clock.timestamp();
        let mut recorder = ChangeRecorder::new(&self.audit);
        let mut intended = None;
        let changed = self.change_vault(|bindings| {
            let state = |bindings: &Bindings| bindings.get(name).map(|it| binding_state(it, now));
            let before = state(bindings);
            let done = change(bindings)?;
            let intend = OperatorChange {
                action,
                subject: name.to_string(),
                before,
                after: state(bindings),
                is_restriction: matches!(action, OperatorAction::Unbind | OperatorAction::Disallow),
            };
            let is_change = intend.before != intend.after || action == OperatorAction::Rebind;
            // A vault may ask for the change again, if another process changed it in the meantime.
            if is_change && intended.as_ref() != Some(&intend) {
                intended = Some(intend.clone());
                recorder.intend(intend)?;
            }
            Ok(done)
        });
        let changed = recorder.conclude(changed).map_err(|error| error.with_request_id(&id));
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

fn check_kind(name: &BindingName, material: &SecretMaterial) -> Result<(), HostError> {
    if material.kind() != name.kind() {
        let message = format!("{name} names another kind than {}.", material.kind().name());
        let hint = "The kind is the first part of the name.";
        return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint));
    }
    Ok(material.check()?)
}

fn found<'b>(name: &BindingName, bindings: &'b mut Bindings) -> Result<&'b mut Binding, HostError> {
    let missing = not_bound(name, bindings);
    bindings.get_mut(name).ok_or(missing)
}

fn not_bound(name: &BindingName, bindings: &Bindings) -> HostError {
    if let Some(unavailable) = bindings.unavailable(name) {
        return unavailable.error().into();
    }
    let names: Vec<_> = bindings.iter().map(|binding| binding.name.to_string()).collect();
    let hint = match nearest(&name.to_string(), names.iter().map(String::as_str)) {
        Some(near) => format!("Did you mean {near}?"),
        None => format!(
            "Bind it with `cofferdam binding set {name}`; `cofferdam binding list` shows what is bound."
        ),
    };
    HostError::new(HostErrorKind::BindingNotFound, format!("Nothing is bound as {name}.")).with_hint(hint)
}

/// Removes `unwanted` from the list of a binding. All of them must be in it, and one item must remain.
fn remove<T: PartialEq + ToString>(
    name: &BindingName,
    listed: &mut Vec<T>,
    unwanted: &[T],
) -> Result<(), HostError> {
    let invalid =
        |message: String, hint: String| HostError::new(HostErrorKind::Validation, message).with_hint(hint);
    if let Some(stranger) = unwanted.iter().find(|item| !listed.contains(item)) {
        let message = format!("{name} does not list {}; nothing was changed.", stranger.to_string());
        return Err(invalid(message, format!("`cofferdam binding inspect {name}` shows what it lists.")));
    }
    if !unwanted.is_empty() && listed.iter().all(|item| unwanted.contains(item)) {
        let message = format!("{name} would be of no use to any connector; nothing was changed.");
        return Err(invalid(message, format!("To end it, run `cofferdam binding revoke {name}`.")));
    }
    listed.retain(|item| !unwanted.contains(item));
    Ok(())
}

fn deduplicated<T: Clone + Ord>(items: &[T]) -> Vec<T> {
    let mut items = items.to_vec();
    items.sort();
    items.dedup();
    items
}

/// The number of days without a change after which a binding is shown as stale. It is only a reminder: the issuer
/// decides how long a secret is valid.
pub const STALE_AFTER_DAYS: i64 = 47;

/// A binding, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingView {
    /// `<kind>/<service>/<identity>`.
    pub name: String,
    /// `active`; `refused` if its issuer no longer accepts it; `unavailable` if its secret cannot be had from where the
    /// operator keeps it.
    pub status: &'static str,
    /// The reason for the refusal, or for which the secret cannot be had, as far as it is known.
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

/// Returns the public view of a binding whose secret cannot be had.
fn unavailable_view(binding: &UnavailableBinding, now: Timestamp) -> BindingView {
    BindingView {
        name: binding.name.to_string(),
        status: "unavailable",
        refused: Some(format!("{} {}", binding.message, binding.hint)),
        stale: false,
        hosts: binding.hosts.iter().map(ToString::to_string).collect(),
        connectors: binding.connectors.iter().map(ToString::to_string).collect(),
        created: seconds(now),
        changed: seconds(now),
        details: BTreeMap::new(),
    }
}

/// Formats a timestamp, to the second.
fn seconds(moment: Timestamp) -> String {
    format!("{moment:.0}")
}
