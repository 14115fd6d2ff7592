//! The token manager: returns the access token of a binding and renews it once for all waiting calls.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::private_file::FileLock;
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use tokio::sync::watch;

use super::renewal::{RenewalError, SharedRenewal, SharedRenewals};
use super::token_client::{TokenClient, TokenRequest, TokenRequestError};
use super::token_response::{TokenError, TokenErrorKind, TokenResponse};
use crate::credentials::broker::{BrokerSettings, blocking};
use crate::credentials::problem;
use crate::egress::{AuthorizationError, HostRequestClient, VaultFailure};
use crate::vault::{
    Binding, BindingName, Bindings, OauthGrant, OauthTokens, SecretMaterial, Vault, VaultError,
};

/// A token that expires within this time is no longer sent: requests take time, and clocks differ.
const LEEWAY: Duration = Duration::from_secs(60);

/// The longest wait in `settle`. Longer than an issuer may take (30 s) and the vault's writers after it (20
/// s).
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest wait for another process that renews the same token: its issuer may take 30 s, and the vault's
/// writers twice 20 s.
const LOCK_TIMEOUT: Duration = Duration::from_secs(75);

/// The longest wait for another host before a rejected token is forgotten for all.
const REJECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The result of a renewal, for every caller that waited for it.
type RenewalOutcome = Result<OauthTokens, AuthorizationError>;

/// Returns and renews access tokens.
pub(in crate::credentials) struct TokenManager {
    vault: Arc<dyn Vault>,
    client: TokenClient,
    locks: PathBuf,
    shared: Option<SharedRenewals>,
    renewals: Mutex<HashMap<BindingName, watch::Receiver<Option<RenewalOutcome>>>>,
    /// The number of issuers being asked for a token that they may issue only once.
    issuer_requests: watch::Sender<usize>,
    /// Tokens that were issued and could not be written. The issuer may not issue them a second time.
    unwritten: Mutex<HashMap<BindingName, RenewedToken>>,
}

/// A binding as it was when its issuer was asked, and the issued tokens.
#[derive(Clone)]
struct RenewedToken {
    of: Binding,
    /// The tokens; `None` if the response had no usable token but a refresh token.
    tokens: Option<OauthTokens>,
    refresh_token: Option<Arc<Secret>>,
}

impl TokenManager {
    pub(in crate::credentials) fn new(settings: BrokerSettings) -> Arc<Self> {
        let BrokerSettings { vault, clock, tls, resolver, allow_private, locks, renewals: shared } = settings;
        let requests = HostRequestClient::new(Arc::clone(&clock), tls, resolver, allow_private);
        let way = TokenClient { clock, requests };
        let (renewals, unwritten) = (Mutex::default(), Mutex::default());
        Arc::new(Self {
            vault,
            client: way,
            locks,
            shared,
            renewals,
            issuer_requests: watch::Sender::new(0),
            unwritten,
        })
    }

    /// Waits, for at most a minute, until no issuer is being asked for a new refresh token and the issued
    /// ones are written. Does not wait for a renewal that is still waiting for its lock: nothing is lost with
    /// it.
    pub(in crate::credentials) async fn flush(&self) {
        let mut asking = self.issuer_requests.subscribe();
        tokio::select! {
            // The manager owns the sender, so the channel stays open.
            _ = asking.wait_for(|asking| *asking == 0) => {}
            () = self.client.clock.sleep_until(self.client.clock.now() + FLUSH_TIMEOUT) => {
                tracing::warn!("a token is still being renewed; its refresh token may be lost");
            }
        }
    }

    /// Returns whether the token is still valid by this host's clock.
    pub(in crate::credentials) fn is_fresh(&self, tokens: &OauthTokens) -> bool {
        let latest = self.client.clock.timestamp().checked_add(LEEWAY);
        tokens.expires.is_none_or(|end| latest.is_ok_and(|latest| end > latest))
    }

    /// Returns a valid token for `name`, renewed if necessary. Dropping the future stops the wait but not the
    /// renewal.
    pub(in crate::credentials) async fn token(self: &Arc<Self>, name: &BindingName) -> RenewalOutcome {
        let mut renewal = self.renewal(name);
        let outcome = renewal.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| {
            let lost = HostError::new(HostErrorKind::Internal, "The renewal of a token was lost.");
            Err(vault_failure(&lost))
        })
    }

    /// Marks the token as rejected if `sent` returns true for it, so that it is not sent again.
    pub(in crate::credentials) async fn invalidate(
        &self,
        name: &BindingName,
        sent: impl Fn(&Secret) -> bool,
    ) {
        let Ok(bindings) = self.bindings().await else { return };
        let Some(SecretMaterial::Oauth2 { tokens: Some(tokens), .. }) =
            bindings.get(name).map(|binding| &binding.material)
        else {
            return;
        };
        let refused = Arc::clone(&tokens.access_token);
        if !sent(&refused) {
            return;
        }
        let rejected = Arc::clone(&refused);
        let forget = move |binding: &mut Binding| {
            if let SecretMaterial::Oauth2 { tokens, .. } = &mut binding.material
                && tokens.as_ref().is_some_and(|tokens| tokens.access_token.expose() == refused.expose())
            {
                *tokens = None;
                return true;
            }
            false
        };
        if let Some(shared) = &self.shared
            && let Some(binding) = bindings.get(name)
            && let Ok(mut shared) = shared.lock(name, REJECT_TIMEOUT).await
        {
            // The renewal that follows would find the same token again.
            drop(shared.reject(binding, &rejected).await);
        }
        if let Err(error) = self.change(name, forget).await {
            tracing::warn!(binding = %name, %error, "a token that was not accepted could not be noted as such");
        }
    }

    /// Returns the running renewal, or starts one. It runs as its own task.
    fn renewal(self: &Arc<Self>, name: &BindingName) -> watch::Receiver<Option<RenewalOutcome>> {
        let mut renewals = lock(&self.renewals);
        if let Some(renewal) = renewals.get(name) {
            return renewal.clone();
        }
        let (sender, receiver) = watch::channel(None);
        renewals.insert(name.clone(), receiver.clone());
        let entry = ActiveRenewal { manager: Arc::clone(self), name: name.clone() };
        tokio::spawn(async move {
            let outcome = entry.manager.renew(&entry.name).await;
            drop(entry);
            let _ = sender.send(Some(outcome));
        });
        receiver
    }

    /// Finds a token that was renewed meanwhile, or renews it.
    async fn renew(&self, name: &BindingName) -> RenewalOutcome {
        let _lock = self.renewal_lock(name).await?;
        let mut shared = match &self.shared {
            None => None,
            Some(shared) => Some(shared.lock(name, LOCK_TIMEOUT).await),
        };
        // If the operator replaced the binding while the issuer was asked, the new binding wins: retry with
        // it.
        for _ in 0..3 {
            let bindings = self.reload().await.map_err(|error| vault_failure(&error))?;
            if let Some(unavailable) = bindings.unavailable(name) {
                return Err(vault_failure(&unavailable.error().into()));
            }
            let unbound = || AuthorizationError::Binding(problem::unbound(name, &[]));
            let binding = bindings.get(name).ok_or_else(unbound)?;
            let _asking = rotates(binding).then(|| IssuerRequestGuard::new(&self.issuer_requests));
            let kept =
                lock(&self.unwritten).get(name).filter(|kept| is_same_grant(&kept.of, binding)).cloned();
            let renewed = match kept {
                Some(kept) => kept,
                None => match current(binding).filter(|tokens| self.is_fresh(tokens)) {
                    Some(tokens) => return Ok(tokens),
                    None => match &mut shared {
                        Some(Ok(shared)) => self.renew_with_others(binding, shared).await?,
                        // Two hosts that send the same refresh token may end the grant.
                        Some(Err(error)) if rotates(binding) || *error == RenewalError::Busy => {
                            let why = error.to_string();
                            return Err(AuthorizationError::Binding(problem::unreachable(name, None, &why)));
                        }
                        Some(Err(_)) | None => {
                            self.check_writable(binding).await?;
                            self.request_token(binding, binding).await?
                        }
                    },
                },
            };
            if self.write(name, &renewed).await?
                && let Some(tokens) = renewed.tokens
            {
                return Ok(tokens);
            }
        }
        Err(AuthorizationError::Binding(problem::unreachable(
            name,
            None,
            "it was bound anew again and again",
        )))
    }

    /// Takes the token that another host has renewed, or renews it with the newest refresh token of all hosts. The right
    /// to do so is held.
    async fn renew_with_others(
        &self,
        binding: &Binding,
        shared: &mut SharedRenewal,
    ) -> Result<RenewedToken, AuthorizationError> {
        let name = &binding.name;
        let away = |error: RenewalError| {
            AuthorizationError::Binding(problem::unreachable(name, None, &error.to_string()))
        };
        // A vault that cannot store a replaced refresh token need not: the hosts share it.
        let can_store = self.check_writable(binding).await.is_ok();
        let known = shared.load(binding).await.map_err(away)?;
        if let Some((tokens, expires_in)) = &known
            && let Some(access_token) = &tokens.access_token
            && expires_in.is_none_or(|left| left > LEEWAY)
        {
            let now = self.client.clock.timestamp();
            let expires = expires_in.and_then(|left| now.checked_add(left).ok());
            return Ok(RenewedToken {
                of: binding.clone(),
                tokens: Some(OauthTokens { access_token: Arc::clone(access_token), expires }),
                refresh_token: tokens.refresh_token.clone().filter(|_| can_store),
            });
        }
        let known = known.map(|(tokens, _)| tokens);
        let newest = known.as_ref().and_then(|tokens| tokens.refresh_token.clone());
        let asked = with_refresh_token(binding, newest);
        let mut renewed = self.request_token(&asked, binding).await?;
        let now = self.client.clock.timestamp();
        let expires = renewed.tokens.as_ref().and_then(|tokens| tokens.expires);
        let expires_in = expires.map(|end| Duration::try_from(end.duration_since(now)).unwrap_or_default());
        let stored = shared
            .store(binding, known, renewed.tokens.as_ref(), renewed.refresh_token.as_ref(), expires_in)
            .await;
        if let Err(error) = stored {
            tracing::warn!(
                target: "cofferdam::vault", binding = %name, %error,
                "a renewed token could not be shared with the other hosts"
            );
        } else if !can_store {
            renewed.refresh_token = None;
        }
        Ok(renewed)
    }

    /// Checks that a replacement of the refresh token could be stored: once the issuer is asked, the old one
    /// may be spent.
    async fn check_writable(&self, binding: &Binding) -> Result<(), AuthorizationError> {
        if !rotates(binding) {
            return Ok(());
        }
        let (vault, name) = (Arc::clone(&self.vault), binding.name.clone());
        blocking(move || vault.check_writable(&name)).await.map_err(|error| vault_failure(&error))
    }

    /// Asks the issuer with the grant of `asked`, and stores a rejection with the binding. `asked` is the binding, or has
    /// a newer refresh token, which the hosts of a cluster share.
    async fn request_token(
        &self,
        asked: &Binding,
        binding: &Binding,
    ) -> Result<RenewedToken, AuthorizationError> {
        let name = &binding.name;
        let SecretMaterial::Oauth2 { token_url, client_id, client_secret, scopes, grant, .. } =
            &asked.material
        else {
            let why = "it is not of the kind that its name says";
            return Err(AuthorizationError::Binding(problem::unsendable(name, why)));
        };
        let question =
            TokenRequest { token_url, client_id, client_secret: client_secret.as_deref(), scopes, grant };
        let mut unanswered = match self.client.request_token(&question).await {
            Ok(TokenResponse { access_token, expires, refresh_token }) => {
                let tokens = OauthTokens { access_token: Arc::new(access_token), expires };
                return Ok(RenewedToken {
                    of: binding.clone(),
                    tokens: Some(tokens),
                    refresh_token: refresh_token.map(Arc::new),
                });
            }
            Err(unanswered) => unanswered,
        };
        if let TokenRequestError::Answered(_, TokenError { refresh_token, .. }) = &mut unanswered
            && let Some(next) = refresh_token.take()
        {
            let kept =
                RenewedToken { of: binding.clone(), tokens: None, refresh_token: Some(Arc::new(next)) };
            self.write(name, &kept).await?;
        }
        Err(AuthorizationError::Binding(match unanswered {
            TokenRequestError::NotAllowed { why, mend } => problem::endpoint(name, &why, mend),
            TokenRequestError::Unreachable(why) => problem::unreachable(name, None, &why),
            TokenRequestError::Answered(status, TokenError { why: TokenErrorKind::Passing(why), .. }) => {
                problem::unreachable(name, Some(status), &why)
            }
            TokenRequestError::Answered(_, TokenError { why: TokenErrorKind::Unsendable(why), .. }) => {
                problem::unsendable(name, why)
            }
            TokenRequestError::Answered(status, TokenError { why: TokenErrorKind::Refused(why), .. }) => {
                self.note_refusal(binding, why.clone()).await;
                problem::refused(name, status, &why)
            }
        }))
    }

    async fn note_refusal(&self, asked: &Binding, why: String) {
        if asked.refused.as_ref() == Some(&why) {
            return;
        }
        let of = asked.clone();
        let note = move |binding: &mut Binding| {
            let same = is_same_grant(&of, binding);
            if same {
                binding.refused = Some(why.clone());
            }
            same
        };
        if let Err(error) = self.change(&asked.name, note).await {
            tracing::warn!(binding = %asked.name, %error, "that a token was refused could not be noted");
        }
    }

    /// Writes the issued tokens before they are used: a rotated refresh token that is not stored is lost.
    /// Returns whether the binding is still the one that was asked for.
    async fn write(&self, name: &BindingName, renewed: &RenewedToken) -> Result<bool, AuthorizationError> {
        let new = renewed.clone();
        let change = move |binding: &mut Binding| {
            if !is_same_grant(&new.of, binding) {
                return false;
            }
            if let SecretMaterial::Oauth2 { tokens, grant, .. } = &mut binding.material {
                tokens.clone_from(&new.tokens);
                if let (OauthGrant::RefreshToken(old), Some(next)) = (grant, &new.refresh_token) {
                    *old = Arc::clone(next);
                }
                if new.tokens.is_some() {
                    binding.refused = None;
                }
                return true;
            }
            false
        };
        match self.change(name, change).await {
            Ok(TokenChange::Gone) => {
                // The vault may have been moved and may return.
                lock(&self.unwritten).insert(name.clone(), renewed.clone());
                Ok(false)
            }
            Ok(changed) => {
                lock(&self.unwritten).remove(name);
                Ok(changed == TokenChange::Written)
            }
            Err(error) => {
                lock(&self.unwritten).insert(name.clone(), renewed.clone());
                Err(vault_failure(&error))
            }
        }
    }

    /// Waits for the lock under which one process renews the token.
    async fn renewal_lock(&self, name: &BindingName) -> Result<FileLock, AuthorizationError> {
        // `+` occurs in no part of a name.
        let file = self.locks.join(format!("{}.lock", name.to_string().replace('/', "+")));
        match tokio::task::spawn_blocking(move || FileLock::acquire(&file, LOCK_TIMEOUT)).await {
            Ok(Ok(Some(lock))) => Ok(lock),
            Ok(Ok(None)) => {
                let why = "another process has been renewing it for too long";
                Err(AuthorizationError::Binding(problem::unreachable(name, None, why)))
            }
            Ok(Err(error)) => {
                let message = "The lock for renewing a token cannot be made.";
                let error = HostError::new(HostErrorKind::VaultUnusable, message)
                    .with_hint("Make the directory `locks` in the home directory writable.")
                    .with_source(error);
                Err(vault_failure(&error))
            }
            Err(error) => Err(vault_failure(
                &HostError::new(HostErrorKind::Internal, "A turn was lost.").with_source(error),
            )),
        }
    }

    async fn bindings(&self) -> Result<Arc<Bindings>, HostError> {
        let vault = Arc::clone(&self.vault);
        blocking(move || vault.bindings()).await
    }

    async fn reload(&self) -> Result<Arc<Bindings>, HostError> {
        let vault = Arc::clone(&self.vault);
        blocking(move || vault.reload()).await
    }

    /// Changes one binding, unless it is gone or `change` reports that it leaves it unchanged.
    async fn change(
        &self,
        name: &BindingName,
        mut change: impl FnMut(&mut Binding) -> bool + Send + 'static,
    ) -> Result<TokenChange, HostError> {
        let vault = Arc::clone(&self.vault);
        let name = name.clone();
        blocking(move || {
            let mut changed = TokenChange::Written;
            let outcome = vault.change(&mut |bindings: &mut Bindings| -> Result<(), VaultError> {
                changed = match bindings.get_mut(&name).map(&mut change) {
                    None => TokenChange::Gone,
                    Some(false) => TokenChange::Not,
                    Some(true) => TokenChange::Written,
                };
                if changed == TokenChange::Written { Ok(()) } else { Err(unchanged(&name)) }
            });
            match changed {
                TokenChange::Written => outcome.map(|()| changed),
                TokenChange::Not | TokenChange::Gone => Ok(changed),
            }
        })
        .await
    }
}

/// The result of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenChange {
    Written,
    /// The binding was left unchanged.
    Not,
    /// The binding does not exist.
    Gone,
}

/// An error that prevents a vault from being written, or created, without a change.
fn unchanged(name: &BindingName) -> VaultError {
    let message = format!("{name} is not bound as it was; nothing was changed.");
    VaultError::Refused { message, hint: format!("Bind it anew: `cofferdam binding set {name}`.") }
}

/// A renewal in the list. Dropping it removes the renewal from the list, however it ended.
struct ActiveRenewal {
    manager: Arc<TokenManager>,
    name: BindingName,
}

impl Drop for ActiveRenewal {
    fn drop(&mut self) {
        lock(&self.manager.renewals).remove(&self.name);
    }
}

/// Counts one issuer that is being asked, or whose response is being written, until it is dropped.
struct IssuerRequestGuard<'d>(&'d watch::Sender<usize>);

impl<'d> IssuerRequestGuard<'d> {
    fn new(asking: &'d watch::Sender<usize>) -> Self {
        asking.send_modify(|asking| *asking += 1);
        Self(asking)
    }
}

impl Drop for IssuerRequestGuard<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|asking| *asking -= 1);
    }
}

/// Returns whether the issuer may rotate the refresh token, so that the one that was sent is spent.
fn rotates(binding: &Binding) -> bool {
    matches!(binding.material, SecretMaterial::Oauth2 { grant: OauthGrant::RefreshToken(_), .. })
}

/// Returns the binding with another refresh token, if there is one.
fn with_refresh_token(binding: &Binding, newest: Option<Arc<Secret>>) -> Binding {
    let mut binding = binding.clone();
    if let (SecretMaterial::Oauth2 { grant: OauthGrant::RefreshToken(token), .. }, Some(newest)) =
        (&mut binding.material, newest)
    {
        *token = newest;
    }
    binding
}

/// Returns the token in use.
fn current(binding: &Binding) -> Option<OauthTokens> {
    match &binding.material {
        SecretMaterial::Oauth2 { tokens, .. } => tokens.clone(),
        _ => None,
    }
}

/// Returns whether the binding was not replaced: same grant, bound at the same time.
fn is_same_grant(old: &Binding, new: &Binding) -> bool {
    let refresh = |binding: &Binding| match &binding.material {
        SecretMaterial::Oauth2 { grant: OauthGrant::RefreshToken(token), .. } => Some(Arc::clone(token)),
        _ => None,
    };
    let same_token = match (refresh(old), refresh(new)) {
        (Some(old), Some(new)) => old.expose() == new.expose(),
        (None, None) => true,
        _ => false,
    };
    old.changed == new.changed && same_token
}

fn vault_failure(error: &HostError) -> AuthorizationError {
    AuthorizationError::Host(VaultFailure {
        kind: error.kind(),
        message: error.message().to_owned(),
        hint: error.hint().unwrap_or_default().to_owned(),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
