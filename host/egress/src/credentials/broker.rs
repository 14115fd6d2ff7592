//! One for each host: says at admission which bindings a call uses, and keeps what that takes ready.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_core::clock::Clock;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::BindingProblem;
use cofferdam_core::secret::Scanner;
use cofferdam_model::manifest::{CredentialGrant, Manifest};

use super::attempt::AttemptCredentials;
use super::bound::{Entry, entry};
use super::choice::Choice;
use super::oauth::TokenDesk;
use super::problem;
use crate::egress::{Authorize, PrivateGrant, Resolve, Target, Tls};
use crate::vault::{Binding, BindingName, Bindings, Material, Vault, VaultError, scanner_for};

/// What is kept ready, for so many connectors and choices; a host has fewer.
const KEPT: usize = 256;

/// What a broker works with.
pub struct BrokerSettings {
    /// Where bindings are.
    pub vault: Arc<dyn Vault>,
    /// Tells when tokens expire.
    pub clock: Arc<dyn Clock>,
    /// How token endpoints are reached: as connectors reach hosts.
    pub tls: Arc<Tls>,
    /// Resolves the names of token endpoints.
    pub resolver: Arc<dyn Resolve>,
    /// The private hosts that token endpoints may be.
    pub allow_private: Arc<[PrivateGrant]>,
    /// The directory of the locks by which processes take turns at renewing a token.
    pub locks: PathBuf,
}

/// The broker.
pub struct Broker {
    vault: Arc<dyn Vault>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) desk: Arc<TokenDesk>,
    ready: Mutex<HashMap<Key, Arc<Prepared>>>,
}

/// One package (by its hash) and one choice of identities.
type Key = (Arc<str>, Choice);

/// The credentials of a connector for one choice, at one state of the vault.
pub(super) struct Prepared {
    pub(super) bindings: Arc<Bindings>,
    pub(super) entries: Vec<Entry>,
    pub(super) scanner: Arc<Scanner>,
}

/// Why a call is not begun.
pub enum Refused {
    /// A binding that it needs.
    Binding(BindingProblem),
    /// The request, or the vault.
    Host(HostError),
}

/// The credentials of one call.
pub struct CallCredentials {
    broker: Arc<Broker>,
    prepared: Arc<Prepared>,
}

impl CallCredentials {
    /// The credentials of one attempt: handles are good within it alone.
    pub fn attempt(&self) -> Arc<dyn Authorize> {
        Arc::new(AttemptCredentials::new(Arc::clone(&self.broker), Arc::clone(&self.prepared)))
    }

    /// What looks for every secret that the call could carry.
    pub fn scanner(&self) -> Arc<Scanner> {
        Arc::clone(&self.prepared.scanner)
    }

    /// The names of the bindings that its requests may carry.
    pub fn bindings(&self) -> impl Iterator<Item = &str> {
        self.prepared.entries.iter().filter_map(|entry| entry.bound.as_ref().map(|bound| &*bound.text))
    }
}

impl Broker {
    /// Makes a broker; it renews no token before a call needs it.
    pub fn new(settings: BrokerSettings) -> Arc<Self> {
        let (vault, clock) = (Arc::clone(&settings.vault), Arc::clone(&settings.clock));
        Arc::new(Self { vault, clock, desk: TokenDesk::new(settings), ready: Mutex::default() })
    }

    /// The credentials for a call of the connector with this manifest and hash; none where it asks for none.
    pub async fn for_call(
        self: &Arc<Self>,
        manifest: &Manifest,
        hash: &Arc<str>,
        choice: Choice,
    ) -> Result<Option<CallCredentials>, Refused> {
        choice.fits(manifest.credentials()).map_err(Refused::Host)?;
        if manifest.credentials().is_empty() {
            return Ok(None);
        }
        let bindings = self.bindings().await.map_err(Refused::Host)?;
        let key = (Arc::clone(hash), choice);
        let kept = self.lock().get(&key).filter(|kept| Arc::ptr_eq(&kept.bindings, &bindings)).cloned();
        let prepared = match kept {
            Some(prepared) => prepared,
            None => {
                let prepared = Arc::new(prepare(manifest, bindings, &key.1).map_err(Refused::Binding)?);
                let mut ready = self.lock();
                if ready.len() >= KEPT {
                    ready.clear();
                }
                ready.insert(key, Arc::clone(&prepared));
                prepared
            }
        };
        Ok(Some(CallCredentials { broker: Arc::clone(self), prepared }))
    }

    /// What is bound now.
    ///
    /// # Errors
    /// The vault cannot be opened or read.
    pub(crate) async fn bindings(&self) -> Result<Arc<Bindings>, HostError> {
        if let Some(known) = self.vault.known() {
            return Ok(known);
        }
        let vault = Arc::clone(&self.vault);
        // The first look may open the vault, which is slow by design.
        blocking(move || vault.bindings()).await
    }

    /// Opens the vault, if it is not open. Blocks.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn check_vault(&self) -> Result<(), HostError> {
        self.vault.bindings().map(drop).map_err(HostError::from)
    }

    /// Says in a sentence or two whether a call would find the credential bound, and with a target, whether a request
    /// to that would carry it; and returns the problem that a call would fail with. May open the vault, and block.
    pub fn foretell(
        &self,
        manifest: &Manifest,
        grant: &CredentialGrant,
        target: Option<&Target>,
    ) -> (String, Option<BindingProblem>) {
        let bindings = match self.vault.bindings() {
            Ok(bindings) => bindings,
            Err(error) => return (format!("Whether it is bound was not looked up: {error}"), None),
        };
        let problem = match entry(grant, &bindings, manifest.name(), &Choice::default()) {
            Ok(Entry { bound: Some(bound), .. }) => {
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

    /// Obtains a token for the binding, if it is of the kind that has one and none is in date.
    ///
    /// # Errors
    /// The issuer refuses, cannot be reached, or the vault cannot be used.
    pub async fn check(&self, name: &BindingName) -> Result<(), Refused> {
        let bindings = self.bindings().await.map_err(Refused::Host)?;
        match bindings.get(name).map(|binding| &binding.material) {
            None => Err(Refused::Binding(super::problem::unbound(name, &[]))),
            Some(Material::Oauth2 { .. }) => match self.desk.token(name).await {
                Ok(_) => Ok(()),
                Err(crate::egress::Unauthorized::Binding(problem)) => Err(Refused::Binding(problem)),
                Err(crate::egress::Unauthorized::Host(trouble)) => {
                    Err(Refused::Host(HostError::new(trouble.kind, trouble.message).hint(trouble.hint)))
                }
                Err(crate::egress::Unauthorized::Denied(denial)) => {
                    Err(Refused::Host(HostError::new(HostErrorKind::Internal, denial.message())))
                }
            },
            Some(_) => Ok(()),
        }
    }

    /// Waits until no token that replaces another is on its way from its issuer into the vault; a minute at most.
    pub async fn settle(&self) {
        self.desk.settle().await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<Prepared>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn prepare(
    manifest: &Manifest,
    bindings: Arc<Bindings>,
    choice: &Choice,
) -> Result<Prepared, BindingProblem> {
    let grants = manifest.credentials().iter();
    let entries = grants.map(|grant| entry(grant, &bindings, manifest.name(), choice));
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    let scanner = Arc::new(scanner_for(bindings_of(&bindings, entries.iter())));
    Ok(Prepared { bindings, entries, scanner })
}

/// The bindings behind `entries`.
pub(super) fn bindings_of<'b>(
    bindings: &'b Bindings,
    entries: impl Iterator<Item = &'b Entry>,
) -> impl Iterator<Item = &'b Binding> {
    let names = entries.filter_map(|entry| entry.bound.as_ref().map(|bound| &bound.name));
    names.filter_map(|name| bindings.get(name))
}

/// Runs what may block apart from the threads that run guests.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VaultError> + Send + 'static,
) -> Result<T, HostError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| {
        HostError::new(HostErrorKind::Internal, "The look into the vault was lost.").because(error)
    })?;
    done.map_err(HostError::from)
}
