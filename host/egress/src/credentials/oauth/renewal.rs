//! The renewal of a token by one process at a time: by a lock among the processes of this machine, or with the hosts of
//! a cluster, which also share the renewed token.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::vault::{Binding, BindingName, OauthGrant, OauthTokens, SecretMaterial};

const NONCE_BYTES: usize = 24;

/// The number of refresh tokens of one grant that are remembered by their marks.
const MAX_MARKS: usize = 32;

/// The reason why the hosts of a cluster cannot renew a token together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenewalError {
    /// The database cannot be reached.
    #[error("the database of the cluster cannot be reached")]
    Away,
    /// Another host has been renewing it for too long.
    #[error("another host has been renewing it for too long")]
    Busy,
}

/// A future of a store of renewals.
pub type RenewalFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, RenewalError>> + Send + 'a>>;

/// The right to renew one token. Dropping it gives it up.
pub trait RenewalRight: Send + Sync {
    /// Returns what the hosts share about the token.
    fn load(&mut self) -> RenewalFuture<'_, Option<StoredRenewal>>;

    /// Replaces what the hosts share about the token.
    fn store(&mut self, renewal: StoredRenewal) -> RenewalFuture<'_, ()>;
}

/// The state of one token that the hosts of a cluster share. The contents are sealed: the store sees no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRenewal {
    /// The sealed tokens.
    pub sealed: Vec<u8>,
    /// The time that is left until the access token expires, by the store's clock; `None` if it does not expire, or
    /// there is none.
    pub expires_in: Option<Duration>,
}

/// The store of renewals of a cluster.
pub trait RenewalStore: fmt::Debug + Send + Sync {
    /// Waits until this host alone may renew the token of this binding.
    fn lock<'a>(&'a self, binding: &'a str, patience: Duration) -> RenewalFuture<'a, Box<dyn RenewalRight>>;
}

/// The renewals that the hosts of a cluster share.
#[derive(Clone)]
pub struct SharedRenewals {
    store: Arc<dyn RenewalStore>,
    key: [u8; 32],
}

impl fmt::Debug for SharedRenewals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRenewals").finish_non_exhaustive()
    }
}

/// The tokens of a grant, as the hosts share them.
pub(super) struct SharedTokens {
    /// The marks of the refresh tokens of this grant, the newest last: which binding they belong to.
    marks: Vec<[u8; 32]>,
    pub(super) refresh_token: Option<Arc<Secret>>,
    pub(super) access_token: Option<Arc<Secret>>,
}

/// The sealed form.
#[derive(Serialize, Deserialize)]
struct SealedTokens {
    marks: Vec<[u8; 32]>,
    refresh_token: Option<String>,
    access_token: Option<String>,
}

impl SharedRenewals {
    /// Creates the shared renewals; all hosts of the cluster have the same `key`.
    #[must_use]
    pub fn new(store: Arc<dyn RenewalStore>, key: [u8; 32]) -> Self {
        Self { store, key }
    }

    /// Waits until this host alone may renew the token.
    pub(super) async fn lock(
        &self,
        name: &BindingName,
        patience: Duration,
    ) -> Result<SharedRenewal, RenewalError> {
        let right = self.store.lock(&name.to_string(), patience).await?;
        Ok(SharedRenewal { right, key: self.key, name: name.to_string() })
    }
}

/// The renewal of one token by this host.
pub(super) struct SharedRenewal {
    right: Box<dyn RenewalRight>,
    key: [u8; 32],
    name: String,
}

impl SharedRenewal {
    /// Returns the shared tokens of the binding's grant, with the time that is left for the access token. Tokens of
    /// another grant, or that cannot be opened, count as none.
    pub(super) async fn load(
        &mut self,
        binding: &Binding,
    ) -> Result<Option<(SharedTokens, Option<Duration>)>, RenewalError> {
        let Some(stored) = self.right.load().await? else { return Ok(None) };
        let Some(tokens) = self.open(&stored.sealed) else {
            tracing::warn!(
                target: "cofferdam::vault", binding = self.name,
                "the shared token was sealed with another host.key, and is not used"
            );
            return Ok(None);
        };
        let mark = self.mark(binding);
        Ok(tokens.marks.contains(&mark).then_some((tokens, stored.expires_in)))
    }

    /// Shares the tokens that an issuer gave for `binding`, which had the refresh token that was sent.
    pub(super) async fn store(
        &mut self,
        binding: &Binding,
        known: Option<SharedTokens>,
        tokens: Option<&OauthTokens>,
        refresh_token: Option<&Arc<Secret>>,
        expires_in: Option<Duration>,
    ) -> Result<(), RenewalError> {
        let mut marks = known.as_ref().map(|known| known.marks.clone()).unwrap_or_default();
        for mark in [Some(self.mark(binding)), refresh_token.map(|token| self.mark_of(binding, Some(token)))]
        {
            if let Some(mark) = mark
                && !marks.contains(&mark)
            {
                marks.push(mark);
            }
        }
        if marks.len() > MAX_MARKS {
            // The oldest ones: a host that still has one of those gets its token refused by the issuer.
            marks.drain(..marks.len() - MAX_MARKS);
        }
        let kept = refresh_token.cloned().or_else(|| known.and_then(|known| known.refresh_token));
        let shared = SharedTokens {
            marks,
            refresh_token: kept,
            access_token: tokens.map(|tokens| Arc::clone(&tokens.access_token)),
        };
        let sealed = self.seal(&shared)?;
        self.right.store(StoredRenewal { sealed, expires_in }).await
    }

    /// Forgets an access token that a service rejected.
    pub(super) async fn reject(&mut self, binding: &Binding, refused: &Secret) -> Result<(), RenewalError> {
        let Some((mut shared, expires_in)) = self.load(binding).await? else { return Ok(()) };
        if shared.access_token.as_ref().is_none_or(|token| token.expose() != refused.expose()) {
            return Ok(());
        }
        shared.access_token = None;
        let sealed = self.seal(&shared)?;
        self.right.store(StoredRenewal { sealed, expires_in }).await
    }

    /// Returns the mark of the binding's grant: the client, and the refresh token that it has.
    fn mark(&self, binding: &Binding) -> [u8; 32] {
        let refresh = match &binding.material {
            SecretMaterial::Oauth2 { grant: OauthGrant::RefreshToken(token), .. } => Some(token),
            _ => None,
        };
        self.mark_of(binding, refresh)
    }

    fn mark_of(&self, binding: &Binding, refresh: Option<&Arc<Secret>>) -> [u8; 32] {
        let SecretMaterial::Oauth2 { token_url, client_id, client_secret, scopes, .. } = &binding.material
        else {
            return [0; 32];
        };
        fn secret(secret: Option<&Arc<Secret>>) -> &[u8] {
            secret.map_or("", |it| it.expose()).as_bytes()
        }
        let scopes = scopes.join(" ");
        self.hash(&[
            b"grant",
            token_url.as_bytes(),
            client_id.as_bytes(),
            secret(client_secret.as_ref()),
            scopes.as_bytes(),
            secret(refresh),
        ])
    }

    fn hash(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut block = [0u8; 64];
        block.iter_mut().zip(self.key).for_each(|(to, from)| *to = from);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    fn seal(&self, tokens: &SharedTokens) -> Result<Vec<u8>, RenewalError> {
        let text = |secret: &Option<Arc<Secret>>| secret.as_ref().map(|it| it.expose().to_owned());
        let plain = SealedTokens {
            marks: tokens.marks.clone(),
            refresh_token: text(&tokens.refresh_token),
            access_token: text(&tokens.access_token),
        };
        let mut bytes = Zeroizing::new(Vec::with_capacity(256 * 1024));
        serde_json::to_writer(&mut *bytes, &plain).map_err(|_| RenewalError::Away)?;
        plain.wipe();
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|_| RenewalError::Away)?;
        let payload = Payload { msg: &bytes, aad: self.name.as_bytes() };
        let cipher = XChaCha20Poly1305::new(&self.key.into());
        let sealed = cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| RenewalError::Away)?;
        Ok([&nonce[..], &sealed].concat())
    }

    fn open(&self, sealed: &[u8]) -> Option<SharedTokens> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: sealed, aad: self.name.as_bytes() };
        let cipher = XChaCha20Poly1305::new(&self.key.into());
        let plain = Zeroizing::new(cipher.decrypt(&XNonce::from(*nonce), payload).ok()?);
        let SealedTokens { marks, refresh_token, access_token } = serde_json::from_slice(&plain).ok()?;
        let secret = |text: Option<String>| text.map(|text| Arc::new(Secret::new(text)));
        Some(SharedTokens { marks, refresh_token: secret(refresh_token), access_token: secret(access_token) })
    }
}

impl SealedTokens {
    fn wipe(self) {
        for text in [self.refresh_token, self.access_token].into_iter().flatten() {
            drop(Zeroizing::new(text));
        }
    }
}
