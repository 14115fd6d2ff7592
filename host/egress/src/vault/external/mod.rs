//! Bindings whose secrets are kept where the operator keeps secrets: in files that an orchestrator mounts, behind a
//! command, or in the environment.
//!
//! `bindings.toml` has everything of a binding but its secret, and with it the hosts and the connectors: the store of
//! secrets never decides where a secret goes. Operators change that file and the store, and not the host. The tokens
//! that an issuer gives are kept in memory; a refresh token that the issuer replaced is given to the store, if that can
//! keep one.

mod bindings_file;
mod command;
mod directory;
mod environment;
mod material;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use cofferdam_core::document::InvalidValue;
use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use self::bindings_file::{BindingEntry, BindingsFile};
use self::material::{SecretProblem, material, renewed_secret};
use super::binding::{Binding, Bindings, OauthGrant, OauthTokens, SecretMaterial, UnavailableBinding};
use super::error::VaultError;
use super::name::BindingName;
use super::{Vault, contents};

pub use command::{SecretCommand, SecretCommandSettings};
pub use directory::SecretDirectory;
pub use environment::{SecretVariables, VariableLookup};

/// The time after which a call looks for changes again.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The number of earlier secrets of a binding for which a renewed token counts.
const MAX_ORIGINS: usize = 16;

/// Secrets by name, each with the reason if it cannot be had.
type SecretResults = BTreeMap<String, Result<Zeroizing<String>, SecretProblem>>;

/// A store of secrets that others write.
trait SecretSource: Send + Sync {
    /// Checks that a secret can have this name.
    fn check_name(&self, secret: &str) -> Result<(), InvalidValue>;

    /// Reads secrets. May block.
    fn read(&self, secrets: &[&str]) -> Result<SecretResults, VaultError>;

    /// Returns whether the secrets that were read last are current, as far as a cheap check shows.
    fn is_current(&self) -> bool;

    /// Ends the validity of what was read last.
    fn expire(&self) {}

    /// Returns whether it can store a renewed refresh token.
    fn stores(&self) -> bool {
        false
    }

    /// Stores a renewed secret.
    fn store(&self, secret: &str, _: &Secret) -> Result<(), VaultError> {
        Err(VaultError::Refused {
            message: format!("{} cannot be changed.", capitalised(&self.describe(secret))),
            hint: format!("To rotate a secret, {}.", self.rotation()),
        })
    }

    /// Names the secret in a message, like "the variable SLACK_TOKEN".
    fn describe(&self, secret: &str) -> String;

    /// Returns the way to rotate a secret, as an instruction.
    fn rotation(&self) -> &'static str;
}

/// Bindings whose secrets are kept elsewhere.
///
/// A secret that is missing or cannot be read makes its own binding unavailable, and no other. Changes of the secrets
/// and of `bindings.toml` are found within a second, by the files' state; those behind a command when its answer is
/// no longer cached.
pub struct ExternalVault {
    file: BindingsFile,
    source: Box<dyn SecretSource>,
    loaded: Mutex<LoadedState>,
    seen: RwLock<Option<CachedBindings>>,
}

#[derive(Default)]
struct LoadedState {
    /// The bindings as the operator has them, and with the tokens that were obtained since.
    bindings: Option<Arc<Bindings>>,
    file: Option<FileFingerprint>,
    entries: Vec<BindingEntry>,
    /// The secrets as they were read last, by their hash and the time at which they were first seen.
    secrets: HashMap<BindingName, LoadedSecret>,
    tokens: HashMap<BindingName, ObtainedTokens>,
}

/// The mark of a secret.
struct LoadedSecret {
    mark: [u8; 32],
    entry: BindingEntry,
    changed: Timestamp,
    is_document: bool,
}

/// The tokens that an issuer gave for a binding since this process started.
#[derive(Clone)]
struct ObtainedTokens {
    /// The marks of the secrets that it belongs to: the one in the store when it was obtained, and those that were
    /// stored since. A store may return the old one for a while.
    origins: Vec<[u8; 32]>,
    tokens: Option<OauthTokens>,
    refresh_token: Option<Arc<Secret>>,
    refused: Option<String>,
}

struct CachedBindings {
    bindings: Arc<Bindings>,
    checked: Instant,
}

impl ExternalVault {
    /// Creates the vault with the bindings in `bindings_file` and the secrets in a directory of files. Nothing is read
    /// before bindings are used.
    #[must_use]
    pub fn directory(bindings_file: impl Into<PathBuf>, secrets: SecretDirectory) -> Self {
        Self::new(bindings_file.into(), Box::new(secrets))
    }

    /// Creates the vault with the secrets that a command returns.
    #[must_use]
    pub fn command(bindings_file: impl Into<PathBuf>, secrets: SecretCommand) -> Self {
        Self::new(bindings_file.into(), Box::new(secrets))
    }

    /// Creates the vault with the secrets in environment variables.
    #[must_use]
    pub fn environment(bindings_file: impl Into<PathBuf>, secrets: SecretVariables) -> Self {
        Self::new(bindings_file.into(), Box::new(secrets))
    }

    fn new(bindings_file: PathBuf, source: Box<dyn SecretSource>) -> Self {
        let file = BindingsFile::new(bindings_file);
        Self { file, source, loaded: Mutex::default(), seen: RwLock::default() }
    }

    /// Returns the way to rotate a secret, as an instruction.
    #[must_use]
    pub fn rotation(&self) -> &'static str {
        self.source.rotation()
    }

    fn loaded(&self) -> MutexGuard<'_, LoadedState> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_current(&self, loaded: &LoadedState) -> bool {
        let file = self.file.fingerprint();
        loaded.bindings.is_some()
            && file.is_some_and(|file| file.is_stable())
            && file == loaded.file
            && self.source.is_current()
    }

    fn remember(&self, bindings: &Arc<Bindings>) {
        let cached = CachedBindings { bindings: Arc::clone(bindings), checked: Instant::now() };
        *self.seen.write().unwrap_or_else(PoisonError::into_inner) = Some(cached);
    }

    /// Returns the bindings, read again if something changed.
    fn load(&self, loaded: &mut LoadedState) -> Result<Arc<Bindings>, VaultError> {
        if let Some(bindings) = loaded.bindings.clone().filter(|_| self.is_current(loaded)) {
            self.remember(&bindings);
            return Ok(bindings);
        }
        let read = self.read(loaded);
        if read.is_err() {
            // What was read before may have been revoked since.
            loaded.bindings = None;
            *self.seen.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        read
    }

    fn read(&self, loaded: &mut LoadedState) -> Result<Arc<Bindings>, VaultError> {
        let file = self.file.fingerprint();
        if file.is_none() || file != loaded.file || !file.is_some_and(|file| file.is_stable()) {
            loaded.entries = self.file.load(&|secret| self.source.check_name(secret))?;
            loaded.file = file;
        }
        let wanted: Vec<&str> = loaded.entries.iter().map(|entry| entry.secret.as_str()).collect();
        let mut secrets = self.source.read(&wanted)?;
        let entries = std::mem::take(&mut loaded.entries);
        let mut bindings = Bindings::default();
        for entry in &entries {
            // Two bindings may have the same secret.
            let text = match secrets.get_mut(&entry.secret) {
                Some(Ok(text)) => Ok(Zeroizing::new(String::clone(text))),
                Some(Err(problem)) => Err(problem.clone()),
                None => Err(SecretProblem::new("was not read", "Try again.")),
            };
            match text.and_then(|text| loaded.binding(entry, text)) {
                Ok(binding) => drop(bindings.insert(binding)),
                Err(problem) => bindings.insert_unavailable(UnavailableBinding {
                    name: entry.name.clone(),
                    hosts: entry.hosts.clone(),
                    connectors: entry.connectors.clone(),
                    message: format!(
                        "The secret of {} cannot be used: {} {}.",
                        entry.name,
                        self.source.describe(&entry.secret),
                        problem.reason
                    ),
                    hint: problem.fix,
                }),
            }
        }
        loaded.secrets.retain(|name, _| entries.iter().any(|entry| entry.name == *name));
        loaded.entries = entries;
        // The same bindings are the same object, so that what was prepared for them stays valid.
        let bindings = match &loaded.bindings {
            Some(before) if is_same(before, &bindings) => Arc::clone(before),
            _ => Arc::new(bindings),
        };
        loaded.bindings = Some(Arc::clone(&bindings));
        self.remember(&bindings);
        Ok(bindings)
    }

    /// Applies the changes of tokens from `before` to `after`. Anything else is refused.
    fn keep_tokens(
        &self,
        loaded: &mut LoadedState,
        before: &Bindings,
        after: &Bindings,
    ) -> Result<(), VaultError> {
        if !is_same(&without_tokens(before), &without_tokens(after)) {
            return self.check_editable();
        }
        for new in after.iter() {
            let Some(old) = before.get(&new.name) else { continue };
            let Some(secret) = loaded.secrets.get(&new.name) else { continue };
            let SecretMaterial::Oauth2 { tokens, .. } = &new.material else { continue };
            if is_same(&Bindings::from_iter([old.clone()]), &Bindings::from_iter([new.clone()])) {
                continue;
            }
            let mut kept = match loaded.tokens.get(&new.name) {
                Some(kept) if kept.origins.contains(&secret.mark) => kept.clone(),
                _ => ObtainedTokens {
                    origins: vec![secret.mark],
                    tokens: None,
                    refresh_token: None,
                    refused: None,
                },
            };
            kept.tokens.clone_from(tokens);
            kept.refused.clone_from(&new.refused);
            if let Some(token) = refresh_token(&new.material)
                && refresh_token(&old.material).is_none_or(|old| old.expose() != token.expose())
            {
                if kept.origins.len() >= MAX_ORIGINS {
                    kept.origins.remove(0);
                }
                kept.origins.push(mark(&secret.entry, &new.material));
                kept.refresh_token = Some(Arc::clone(token));
                if self.source.stores() {
                    let text = renewed_secret(&new.material, secret.is_document);
                    let text = text.map(|mut text| Secret::new(std::mem::take(&mut *text)));
                    // Kept in memory as well if that fails: the issuer does not give it a second time.
                    let stored = text.map_or(Ok(()), |text| self.source.store(&secret.entry.secret, &text));
                    if stored.is_err() {
                        loaded.tokens.insert(new.name.clone(), kept);
                        return stored;
                    }
                } else {
                    tracing::warn!(
                        target: "cofferdam::vault", binding = %new.name,
                        "the issuer replaced the refresh token, which this vault cannot store: it is lost when this process ends"
                    );
                }
            }
            loaded.tokens.insert(new.name.clone(), kept);
        }
        Ok(())
    }
}

impl LoadedState {
    /// Creates the binding of an entry and its secret, with the tokens that were obtained for it.
    fn binding(&mut self, entry: &BindingEntry, text: Zeroizing<String>) -> Result<Binding, SecretProblem> {
        let is_document = text.trim_start().starts_with('{');
        let mut material = material(entry, text)?;
        let mark = mark(entry, &material);
        let obtained = self.tokens.get(&entry.name).filter(|kept| kept.origins.contains(&mark));
        let is_same = self.secrets.get(&entry.name).is_some_and(|known| {
            let is_renewed = obtained.is_some_and(|kept| kept.origins.contains(&known.mark));
            known.entry == *entry && (known.mark == mark || is_renewed)
        });
        let known = self.secrets.get(&entry.name).filter(|_| is_same);
        let changed = known.map_or_else(Timestamp::now, |known| known.changed);
        let mut refused = None;
        if let (Some(kept), SecretMaterial::Oauth2 { tokens, grant, .. }) = (obtained, &mut material) {
            tokens.clone_from(&kept.tokens);
            refused.clone_from(&kept.refused);
            if let (OauthGrant::RefreshToken(token), Some(next)) = (grant, &kept.refresh_token) {
                *token = Arc::clone(next);
            }
        }
        let secret = LoadedSecret { mark, entry: entry.clone(), changed, is_document };
        self.secrets.insert(entry.name.clone(), secret);
        Ok(Binding {
            name: entry.name.clone(),
            material,
            hosts: entry.hosts.clone(),
            connectors: entry.connectors.clone(),
            created: changed,
            changed,
            refused,
        })
    }
}

impl Vault for ExternalVault {
    fn bindings(&self) -> Result<Arc<Bindings>, VaultError> {
        if let Some(bindings) = self.known() {
            return Ok(bindings);
        }
        self.load(&mut self.loaded())
    }

    fn known(&self) -> Option<Arc<Bindings>> {
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.as_ref().filter(|seen| seen.checked.elapsed() < CHECK_INTERVAL)?;
        Some(Arc::clone(&seen.bindings))
    }

    fn reload(&self) -> Result<Arc<Bindings>, VaultError> {
        let mut loaded = self.loaded();
        self.source.expire();
        self.load(&mut loaded)
    }

    fn check_editable(&self) -> Result<(), VaultError> {
        Err(VaultError::Refused {
            message: format!(
                "The bindings of this host are in {} and their secrets elsewhere; nothing was changed.",
                self.file.shown()
            ),
            hint: format!(
                "To add, change or remove a binding, edit {}; to rotate a secret, {}. `cofferdam binding test NAME` \
                 tries the result.",
                self.file.shown(),
                self.source.rotation()
            ),
        })
    }

    fn check_writable(&self, name: &BindingName) -> Result<(), VaultError> {
        let loaded = self.loaded();
        let keeps = loaded.entries.iter().any(|entry| entry.name == *name && entry.parts.keeps_refresh_token);
        if keeps || self.source.stores() {
            return Ok(());
        }
        Err(VaultError::Refused {
            message: format!(
                "The token of {name} is not renewed: the issuer may replace its refresh token, and this vault cannot \
                 store another."
            ),
            hint: format!(
                "If the issuer never replaces it, write refresh_token_rotates = false in its binding in {}. Otherwise \
                 use grant = \"client_credentials\", the sealed file, a command with store = true, or a cluster, \
                 whose database keeps it.",
                self.file.shown()
            ),
        })
    }

    fn change(
        &self,
        change: &mut dyn FnMut(&mut Bindings) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        let mut loaded = self.loaded();
        let before = self.load(&mut loaded)?;
        let mut after = (*before).clone();
        change(&mut after)?;
        let kept = self.keep_tokens(&mut loaded, &before, &after);
        // Also after an error: what the issuer gave is kept in memory.
        let mut merged = (*before).clone();
        for (name, kept) in &loaded.tokens {
            let current = loaded.secrets.get(name).is_some_and(|it| kept.origins.contains(&it.mark));
            if let Some(binding) = merged.get_mut(name).filter(|_| current)
                && let SecretMaterial::Oauth2 { tokens, grant, .. } = &mut binding.material
            {
                tokens.clone_from(&kept.tokens);
                binding.refused.clone_from(&kept.refused);
                if let (OauthGrant::RefreshToken(token), Some(next)) = (grant, &kept.refresh_token) {
                    *token = Arc::clone(next);
                }
            }
        }
        if !is_same(&before, &merged) {
            let merged = Arc::new(merged);
            loaded.bindings = Some(Arc::clone(&merged));
            self.remember(&merged);
        }
        kept
    }
}

fn refresh_token(material: &SecretMaterial) -> Option<&Arc<Secret>> {
    match material {
        SecretMaterial::Oauth2 { grant: OauthGrant::RefreshToken(token), .. } => Some(token),
        _ => None,
    }
}

/// Returns whether both have the same bindings, and the same ones are unavailable for the same reason.
fn is_same(one: &Bindings, other: &Bindings) -> bool {
    contents::is_same(one, other) && one.iter_unavailable().eq(other.iter_unavailable())
}

/// Returns the bindings without what an issuer gives: a change of the rest is a change of an operator.
fn without_tokens(bindings: &Bindings) -> Bindings {
    let bare = |binding: &Binding| {
        let mut binding = binding.clone();
        binding.refused = None;
        if let SecretMaterial::Oauth2 { grant, tokens, .. } = &mut binding.material {
            *tokens = None;
            if let OauthGrant::RefreshToken(token) = grant {
                *token = Arc::new(Secret::new(String::new()));
            }
        }
        binding
    };
    bindings.iter().map(bare).collect()
}

/// Returns the mark of a secret with the public parts around it; nothing of the secret can be found from it, as far as
/// it cannot be guessed. It stays in memory.
fn mark(entry: &BindingEntry, material: &SecretMaterial) -> [u8; 32] {
    let mut hash = Sha256::new();
    for secret in material.secrets_at_rest() {
        hash.update(secret.expose().len().to_le_bytes());
        hash.update(secret.expose().as_bytes());
    }
    hash.update(format!("{:?}", entry.parts).as_bytes());
    hash.finalize().into()
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
