//! The credential broker of a host: decides at admission which bindings a call uses, and caches the prepared
//! credentials.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_core::clock::Clock;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::BindingProblem;
use cofferdam_core::secret::Scanner;
use cofferdam_model::manifest::{CredentialGrant, Manifest};

use super::attempt::AttemptCredentials;
use super::oauth::{SharedRenewals, TokenManager};
use super::problem;
use super::resolved_binding::IdentitySelection;
use super::resolved_binding::{GrantedCredential, entry};
use crate::egress::{Authorize, PrivateGrant, RequestTarget, Resolve, Tls};
use crate::vault::{
    Binding, BindingName, Bindings, SecretMaterial, UnavailableBinding, Vault, VaultError, scanner_for,
};

/// The number of prepared combinations of connector and identities that are cached. A host has fewer.
const MAX_PREPARED: usize = 256;

/// The dependencies of a broker.
pub struct BrokerSettings {
    /// The store of bindings.
    pub vault: Arc<dyn Vault>,
    /// The clock that decides whether a token has expired.
    pub clock: Arc<dyn Clock>,
    /// The TLS settings for token endpoints, the same as for connectors' requests.
    pub tls: Arc<Tls>,
    /// Resolves the names of token endpoints.
    pub resolver: Arc<dyn Resolve>,
    /// The private hosts that token endpoints may be on.
    pub allow_private: Arc<[PrivateGrant]>,
    /// The directory of the lock files by which processes serialize the renewal of a token.
    pub locks: PathBuf,
    /// The renewals that the hosts of a cluster share.
    pub renewals: Option<SharedRenewals>,
}

/// Decides which bindings a call uses and prepares its credentials.
pub struct CredentialBroker {
    vault: Arc<dyn Vault>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) token_manager: Arc<TokenManager>,
    ready: Mutex<HashMap<PreparedKey, Arc<PreparedCredentials>>>,
}

/// The key of the cache: one package (by its hash) and one choice of identities.
type PreparedKey = (Arc<str>, IdentitySelection);

/// The credentials of a connector for one choice of identities, at one version of the vault.
pub(super) struct PreparedCredentials {
    pub(super) bindings: Arc<Bindings>,
    pub(super) entries: Vec<GrantedCredential>,
    pub(super) scanner: Arc<Scanner>,
}

/// The reason why a call is not started.
pub enum CredentialError {
    /// A problem with a binding that the call needs.
    Binding(BindingProblem),
    /// The request is invalid, or the vault cannot be used.
    Host(HostError),
}

/// The credentials of one call.
pub struct CallCredentials {
    broker: Arc<CredentialBroker>,
    prepared: Arc<PreparedCredentials>,
}

impl CallCredentials {
    /// Returns the credentials of one attempt. Handles are valid only within it.
    pub fn attempt(&self) -> Arc<dyn Authorize> {
        Arc::new(AttemptCredentials::new(Arc::clone(&self.broker), Arc::clone(&self.prepared)))
    }

    /// Returns the scanner for every secret that the call could carry.
    pub fn scanner(&self) -> Arc<Scanner> {
        Arc::clone(&self.prepared.scanner)
    }

    /// Returns the names of the bindings that its requests may carry.
    pub fn bindings(&self) -> impl Iterator<Item = &str> {
        self.prepared.entries.iter().filter_map(|entry| entry.bound.as_ref().map(|bound| &*bound.text))
    }
}

impl CredentialBroker {
    /// Creates a broker. No token is renewed before a call needs it.
    pub fn new(settings: BrokerSettings) -> Arc<Self> {
        let (vault, clock) = (Arc::clone(&settings.vault), Arc::clone(&settings.clock));
        Arc::new(Self { vault, clock, token_manager: TokenManager::new(settings), ready: Mutex::default() })
    }

    /// Returns the credentials for a call of the connector with this manifest and hash; `None` if the
    /// manifest asks for none.
    pub async fn for_call(
        self: &Arc<Self>,
        manifest: &Manifest,
        hash: &Arc<str>,
        choice: IdentitySelection,
    ) -> Result<Option<CallCredentials>, CredentialError> {
        choice.fits(manifest.credentials()).map_err(CredentialError::Host)?;
        if manifest.credentials().is_empty() {
            return Ok(None);
        }
        let bindings = self.bindings().await.map_err(CredentialError::Host)?;
        check_available(manifest, &bindings, &choice).map_err(CredentialError::Host)?;
        let key = (Arc::clone(hash), choice);
        let kept = self.lock().get(&key).filter(|kept| Arc::ptr_eq(&kept.bindings, &bindings)).cloned();
        let prepared = match kept {
            Some(prepared) => prepared,
            None => {
                let prepared =
                    Arc::new(prepare(manifest, bindings, &key.1).map_err(CredentialError::Binding)?);
                let mut ready = self.lock();
                if ready.len() >= MAX_PREPARED {
                    ready.clear();
                }
                ready.insert(key, Arc::clone(&prepared));
                prepared
            }
        };
        Ok(Some(CallCredentials { broker: Arc::clone(self), prepared }))
    }

    /// Returns the current bindings.
    ///
    /// # Errors
    /// The vault cannot be opened or read.
    pub(crate) async fn bindings(&self) -> Result<Arc<Bindings>, HostError> {
        if let Some(known) = self.vault.known() {
            return Ok(known);
        }
        let vault = Arc::clone(&self.vault);
        // The first read may open the vault, which is slow by design (key derivation).
        blocking(move || vault.bindings()).await
    }

    /// Opens the vault unless it is open. Blocks.
    ///
    /// # Errors
    /// The vault cannot be used.
    pub fn check_vault(&self) -> Result<(), HostError> {
        self.vault.bindings().map(drop).map_err(HostError::from)
    }

    /// Describes in a sentence or two whether a call would find the credential bound and, with a target,
    /// whether a request to it would carry the credential, with the identities that `choice` has. Also returns
    /// the problem that a call would fail with. May open the vault and block.
    pub fn check_access(
        &self,
        manifest: &Manifest,
        grant: &CredentialGrant,
        target: Option<&RequestTarget>,
        choice: &IdentitySelection,
    ) -> (String, Option<BindingProblem>) {
        let bindings = match self.vault.bindings() {
            Ok(bindings) => bindings,
            Err(error) => return (format!("Whether it is bound was not looked up: {error}"), None),
        };
        if let Some(unavailable) = unavailable(grant, &bindings, choice) {
            return (unavailable.message.clone(), None);
        }
        let problem = match entry(grant, &bindings, manifest.name(), choice) {
            Ok(GrantedCredential { bound: Some(bound), .. }) => {
                let closed =
                    target.filter(|target| !bound.hosts.iter().any(|host| problem::is_at(host, target)));
                match closed {
                    Some(target) => problem::host_not_allowed(&bound.name, target),
                    None => {
                        let hosts: Vec<_> = bound.hosts.iter().map(ToString::to_string).collect();
                        let said = format!("It is bound as {}, for {}.", bound.text, hosts.join(", "));
                        return (said, None);
                    }
                }
            }
            Ok(_) => return ("None is bound; it is optional, and left out.".to_owned(), None),
            Err(problem) => problem,
        };
        let said = format!("{} To mend it: `{}`.", problem.reason(), problem.command());
        (said, Some(problem))
    }

    /// Obtains a token for the binding, if its kind has tokens and none is valid.
    ///
    /// # Errors
    /// The issuer rejects the request or cannot be reached, or the vault cannot be used.
    pub async fn check(&self, name: &BindingName) -> Result<(), CredentialError> {
        let bindings = self.bindings().await.map_err(CredentialError::Host)?;
        if let Some(unavailable) = bindings.unavailable(name) {
            return Err(CredentialError::Host(unavailable.error().into()));
        }
        match bindings.get(name).map(|binding| &binding.material) {
            None => Err(CredentialError::Binding(super::problem::unbound(name, &[]))),
            Some(SecretMaterial::Oauth2 { .. }) => match self.token_manager.token(name).await {
                Ok(_) => Ok(()),
                Err(crate::egress::AuthorizationError::Binding(problem)) => {
                    Err(CredentialError::Binding(problem))
                }
                Err(crate::egress::AuthorizationError::Host(trouble)) => Err(CredentialError::Host(
                    HostError::new(trouble.kind, trouble.message).with_hint(trouble.hint),
                )),
                Err(crate::egress::AuthorizationError::Denied(denial)) => {
                    Err(CredentialError::Host(HostError::new(HostErrorKind::Internal, denial.message())))
                }
            },
            Some(_) => Ok(()),
        }
    }

    /// Waits, for at most a minute, until no replacement token is in transit from its issuer to the vault.
    pub async fn flush(&self) {
        self.token_manager.flush().await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<PreparedKey, Arc<PreparedCredentials>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks that no secret that the call may need is missing at the operator's store. An optional credential that was
/// configured counts, too: leaving it out would change what the call does.
fn check_available(
    manifest: &Manifest,
    bindings: &Bindings,
    choice: &IdentitySelection,
) -> Result<(), HostError> {
    if bindings.iter_unavailable().next().is_none() {
        return Ok(());
    }
    match manifest.credentials().iter().find_map(|grant| unavailable(grant, bindings, choice)) {
        Some(unavailable) => Err(unavailable.error().into()),
        None => Ok(()),
    }
}

/// Returns the binding for `grant` if its secret cannot be had.
fn unavailable<'b>(
    grant: &CredentialGrant,
    bindings: &'b Bindings,
    choice: &IdentitySelection,
) -> Option<&'b UnavailableBinding> {
    let identity = choice.identity(grant.service()).identity;
    bindings.unavailable(&BindingName::new(grant.kind(), grant.service(), identity).ok()?)
}

fn prepare(
    manifest: &Manifest,
    bindings: Arc<Bindings>,
    choice: &IdentitySelection,
) -> Result<PreparedCredentials, BindingProblem> {
    let grants = manifest.credentials().iter();
    let entries = grants.map(|grant| entry(grant, &bindings, manifest.name(), choice));
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    let scanner = Arc::new(scanner_for(bindings_of(&bindings, entries.iter())));
    Ok(PreparedCredentials { bindings, entries, scanner })
}

/// Returns the bindings behind `entries`.
pub(super) fn bindings_of<'b>(
    bindings: &'b Bindings,
    entries: impl Iterator<Item = &'b GrantedCredential>,
) -> impl Iterator<Item = &'b Binding> {
    let names = entries.filter_map(|entry| entry.bound.as_ref().map(|bound| &bound.name));
    names.filter_map(|name| bindings.get(name))
}

/// Runs blocking work off the threads that run guests.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VaultError> + Send + 'static,
) -> Result<T, HostError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| {
        HostError::new(HostErrorKind::Internal, "The look into the vault was lost.").with_source(error)
    })?;
    done.map_err(HostError::from)
}
