//! The desk: hands out the access token of a binding, and has it renewed once for all who wait.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::private_file::FileLock;
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use tokio::sync::watch;

use super::answer::{Given, NotGiven, Ungiven};
use super::endpoint::{Question, Unanswered, Way};
use crate::credentials::broker::{BrokerSettings, blocking};
use crate::credentials::problem;
use crate::egress::{Unauthorized, VaultTrouble};
use crate::vault::{Binding, BindingName, Bindings, Material, OauthGrant, Tokens, Vault, VaultError};

/// A token that ends within this time is not sent any more: requests take time, and clocks differ.
const LEEWAY: Duration = Duration::from_secs(60);

/// Longer than an issuer may take (30 s), and the vault's writers after it (20 s).
const SETTLING: Duration = Duration::from_secs(60);

/// The longest wait for another process that renews the same token: its issuer may take 30 s, and the vault's writers
/// twice 20 s.
const LOCK_PATIENCE: Duration = Duration::from_secs(75);

/// What a renewal comes to, for everybody who waited for it.
type Outcome = Result<Tokens, Unauthorized>;

/// The desk.
pub(in crate::credentials) struct TokenDesk {
    vault: Arc<dyn Vault>,
    way: Way,
    locks: PathBuf,
    renewals: Mutex<HashMap<BindingName, watch::Receiver<Option<Outcome>>>>,
    /// How many issuers are being asked for what they may give once only.
    asking: watch::Sender<usize>,
    /// Tokens that were given and could not be written: the issuer may not give them twice.
    unwritten: Mutex<HashMap<BindingName, Renewed>>,
}

/// A binding as it was when its issuer was asked, and what that gave.
#[derive(Clone)]
struct Renewed {
    of: Binding,
    /// None where the answer had none that can be used, and a refresh token all the same.
    tokens: Option<Tokens>,
    refresh_token: Option<Arc<Secret>>,
}

impl TokenDesk {
    pub(in crate::credentials) fn new(settings: BrokerSettings) -> Arc<Self> {
        let BrokerSettings { vault, clock, tls, resolver, allow_private, locks } = settings;
        let way = Way { clock, tls, resolver, allow_private };
        let (renewals, unwritten) = (Mutex::default(), Mutex::default());
        Arc::new(Self { vault, way, locks, renewals, asking: watch::Sender::new(0), unwritten })
    }

    /// Waits, for a minute at most, until no issuer is being asked for a new refresh token and what was given is
    /// written. A renewal that waits for its lock is not waited for: nothing is lost with it.
    pub(in crate::credentials) async fn settle(&self) {
        let mut asking = self.asking.subscribe();
        tokio::select! {
            // The desk has the other end.
            _ = asking.wait_for(|asking| *asking == 0) => {}
            () = self.way.clock.sleep_until(self.way.clock.now() + SETTLING) => {
                tracing::warn!("a token is still being renewed; its refresh token may be lost");
            }
        }
    }

    /// Whether the token still holds, by this host's clock.
    pub(in crate::credentials) fn holds(&self, tokens: &Tokens) -> bool {
        let latest = self.way.clock.timestamp().checked_add(LEEWAY);
        tokens.expires.is_none_or(|end| latest.is_ok_and(|latest| end > latest))
    }

    /// A token for `name` that holds, renewed if need be. Dropping the future gives up waiting; the renewal
    /// goes on.
    pub(in crate::credentials) async fn token(self: &Arc<Self>, name: &BindingName) -> Outcome {
        let mut renewal = self.renewal(name);
        let outcome = renewal.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| {
            let lost = HostError::new(HostErrorKind::Internal, "The renewal of a token was lost.");
            Err(trouble(&lost))
        })
    }

    /// Takes note that the token was not accepted, if it is the one for which `sent` holds: it is not sent again.
    pub(in crate::credentials) async fn distrust(&self, name: &BindingName, sent: impl Fn(&Secret) -> bool) {
        let Ok(bindings) = self.bindings().await else { return };
        let Some(Material::Oauth2 { tokens: Some(tokens), .. }) =
            bindings.get(name).map(|binding| &binding.material)
        else {
            return;
        };
        let refused = Arc::clone(&tokens.access_token);
        if !sent(&refused) {
            return;
        }
        let forget = move |binding: &mut Binding| {
            if let Material::Oauth2 { tokens, .. } = &mut binding.material
                && tokens.as_ref().is_some_and(|tokens| tokens.access_token.expose() == refused.expose())
            {
                *tokens = None;
                return true;
            }
            false
        };
        if let Err(error) = self.change(name, forget).await {
            tracing::warn!(binding = %name, %error, "a token that was not accepted could not be noted as such");
        }
    }

    /// The renewal that is under way, or a new one. It runs by itself.
    fn renewal(self: &Arc<Self>, name: &BindingName) -> watch::Receiver<Option<Outcome>> {
        let mut renewals = lock(&self.renewals);
        if let Some(renewal) = renewals.get(name) {
            return renewal.clone();
        }
        let (sender, receiver) = watch::channel(None);
        renewals.insert(name.clone(), receiver.clone());
        let entry = Listed { desk: Arc::clone(self), name: name.clone() };
        tokio::spawn(async move {
            let outcome = entry.desk.renew(&entry.name).await;
            drop(entry);
            let _ = sender.send(Some(outcome));
        });
        receiver
    }

    /// Finds the token renewed meanwhile, or renews it.
    async fn renew(&self, name: &BindingName) -> Outcome {
        let _lock = self.renewal_lock(name).await?;
        // Who bound it anew while the issuer was asked is right: then once more, with what is bound now.
        for _ in 0..3 {
            let bindings = self.bindings().await.map_err(|error| trouble(&error))?;
            let unbound = || Unauthorized::Binding(problem::unbound(name, &[]));
            let binding = bindings.get(name).ok_or_else(unbound)?;
            let _asking = rotates(binding).then(|| Asking::new(&self.asking));
            let kept = lock(&self.unwritten).get(name).filter(|kept| same(&kept.of, binding)).cloned();
            let renewed = match kept {
                Some(kept) => kept,
                None => match current(binding).filter(|tokens| self.holds(tokens)) {
                    Some(tokens) => return Ok(tokens),
                    None => {
                        self.check_writable(binding).await?;
                        self.ask(binding).await?
                    }
                },
            };
            if self.write(name, &renewed).await?
                && let Some(tokens) = renewed.tokens
            {
                return Ok(tokens);
            }
        }
        Err(Unauthorized::Binding(problem::unreachable(name, None, "it was bound anew again and again")))
    }

    /// Whether what replaces the refresh token could be kept; once the issuer is asked, the old one may be spent.
    async fn check_writable(&self, binding: &Binding) -> Result<(), Unauthorized> {
        if !rotates(binding) {
            return Ok(());
        }
        let vault = Arc::clone(&self.vault);
        blocking(move || vault.check_writable()).await.map_err(|error| trouble(&error))
    }

    /// Asks the issuer, and notes a refusal with the binding.
    async fn ask(&self, binding: &Binding) -> Result<Renewed, Unauthorized> {
        let name = &binding.name;
        let Material::Oauth2 { token_url, client_id, client_secret, scopes, grant, .. } = &binding.material
        else {
            let why = "it is not of the kind that its name says";
            return Err(Unauthorized::Binding(problem::unsendable(name, why)));
        };
        let question =
            Question { token_url, client_id, client_secret: client_secret.as_deref(), scopes, grant };
        let mut unanswered = match self.way.ask(&question).await {
            Ok(Given { access_token, expires, refresh_token }) => {
                let tokens = Tokens { access_token: Arc::new(access_token), expires };
                return Ok(Renewed {
                    of: binding.clone(),
                    tokens: Some(tokens),
                    refresh_token: refresh_token.map(Arc::new),
                });
            }
            Err(unanswered) => unanswered,
        };
        if let Unanswered::Answered(_, Ungiven { refresh_token, .. }) = &mut unanswered
            && let Some(next) = refresh_token.take()
        {
            let kept = Renewed { of: binding.clone(), tokens: None, refresh_token: Some(Arc::new(next)) };
            self.write(name, &kept).await?;
        }
        Err(Unauthorized::Binding(match unanswered {
            Unanswered::NotAllowed { why, mend } => problem::endpoint(name, &why, mend),
            Unanswered::Unreachable(why) => problem::unreachable(name, None, &why),
            Unanswered::Answered(status, Ungiven { why: NotGiven::Passing(why), .. }) => {
                problem::unreachable(name, Some(status), &why)
            }
            Unanswered::Answered(_, Ungiven { why: NotGiven::Unsendable(why), .. }) => {
                problem::unsendable(name, why)
            }
            Unanswered::Answered(status, Ungiven { why: NotGiven::Refused(why), .. }) => {
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
            let same = same(&of, binding);
            if same {
                binding.refused = Some(why.clone());
            }
            same
        };
        if let Err(error) = self.change(&asked.name, note).await {
            tracing::warn!(binding = %asked.name, %error, "that a token was refused could not be noted");
        }
    }

    /// Writes what the issuer gave, before anybody uses it: a refresh token that was replaced and not kept is
    /// lost. Whether the binding is still the one that was asked for.
    async fn write(&self, name: &BindingName, renewed: &Renewed) -> Result<bool, Unauthorized> {
        let new = renewed.clone();
        let change = move |binding: &mut Binding| {
            if !same(&new.of, binding) {
                return false;
            }
            if let Material::Oauth2 { tokens, grant, .. } = &mut binding.material {
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
            Ok(Changed::Gone) => {
                // Its vault may have been moved, and come back.
                lock(&self.unwritten).insert(name.clone(), renewed.clone());
                Ok(false)
            }
            Ok(changed) => {
                lock(&self.unwritten).remove(name);
                Ok(changed == Changed::Written)
            }
            Err(error) => {
                lock(&self.unwritten).insert(name.clone(), renewed.clone());
                Err(trouble(&error))
            }
        }
    }

    /// Waits for the lock under which one process renews the token.
    async fn renewal_lock(&self, name: &BindingName) -> Result<FileLock, Unauthorized> {
        // `+` stands in no part of a name.
        let file = self.locks.join(format!("{}.lock", name.to_string().replace('/', "+")));
        match tokio::task::spawn_blocking(move || FileLock::acquire(&file, LOCK_PATIENCE)).await {
            Ok(Ok(Some(lock))) => Ok(lock),
            Ok(Ok(None)) => {
                let why = "another process has been renewing it for too long";
                Err(Unauthorized::Binding(problem::unreachable(name, None, why)))
            }
            Ok(Err(error)) => {
                let message = "The lock for renewing a token cannot be made.";
                let error = HostError::new(HostErrorKind::VaultUnusable, message)
                    .hint("Make the directory `locks` in the home directory writable.")
                    .because(error);
                Err(trouble(&error))
            }
            Err(error) => {
                Err(trouble(&HostError::new(HostErrorKind::Internal, "A turn was lost.").because(error)))
            }
        }
    }

    async fn bindings(&self) -> Result<Arc<Bindings>, HostError> {
        let vault = Arc::clone(&self.vault);
        blocking(move || vault.bindings()).await
    }

    /// Changes one binding, unless it is not there any more or `change` says that it leaves it as it is.
    async fn change(
        &self,
        name: &BindingName,
        mut change: impl FnMut(&mut Binding) -> bool + Send + 'static,
    ) -> Result<Changed, HostError> {
        let vault = Arc::clone(&self.vault);
        let name = name.clone();
        blocking(move || {
            let mut changed = Changed::Written;
            let outcome = vault.change(&mut |bindings: &mut Bindings| -> Result<(), VaultError> {
                changed = match bindings.get_mut(&name).map(&mut change) {
                    None => Changed::Gone,
                    Some(false) => Changed::Not,
                    Some(true) => Changed::Written,
                };
                if changed == Changed::Written { Ok(()) } else { Err(unchanged(&name)) }
            });
            match changed {
                Changed::Written => outcome.map(|()| changed),
                Changed::Not | Changed::Gone => Ok(changed),
            }
        })
        .await
    }
}

/// What came of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Changed {
    Written,
    /// It is left as it is.
    Not,
    /// The binding is not there.
    Gone,
}

/// Keeps a vault from being written, or made, for nothing.
fn unchanged(name: &BindingName) -> VaultError {
    let message = format!("{name} is not bound as it was; nothing was changed.");
    VaultError::Refused { message, hint: format!("Bind it anew: `cofferdam binding set {name}`.") }
}

/// A renewal in the list; off it when the renewal is over, whichever way.
struct Listed {
    desk: Arc<TokenDesk>,
    name: BindingName,
}

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&self.desk.renewals).remove(&self.name);
    }
}

/// While it lives, an issuer is being asked, or what it gave is being written.
struct Asking<'d>(&'d watch::Sender<usize>);

impl<'d> Asking<'d> {
    fn new(asking: &'d watch::Sender<usize>) -> Self {
        asking.send_modify(|asking| *asking += 1);
        Self(asking)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|asking| *asking -= 1);
    }
}

/// Whether its issuer may replace the refresh token, so that the one which was sent is spent.
fn rotates(binding: &Binding) -> bool {
    matches!(binding.material, Material::Oauth2 { grant: OauthGrant::RefreshToken(_), .. })
}

/// The token in use.
fn current(binding: &Binding) -> Option<Tokens> {
    match &binding.material {
        Material::Oauth2 { tokens, .. } => tokens.clone(),
        _ => None,
    }
}

/// Whether nobody has bound it anew: the same grant, of the same day.
fn same(old: &Binding, new: &Binding) -> bool {
    let refresh = |binding: &Binding| match &binding.material {
        Material::Oauth2 { grant: OauthGrant::RefreshToken(token), .. } => Some(Arc::clone(token)),
        _ => None,
    };
    let same_token = match (refresh(old), refresh(new)) {
        (Some(old), Some(new)) => old.expose() == new.expose(),
        (None, None) => true,
        _ => false,
    };
    old.changed == new.changed && same_token
}

fn trouble(error: &HostError) -> Unauthorized {
    Unauthorized::Host(VaultTrouble {
        kind: error.kind(),
        message: error.message().to_owned(),
        hint: error.hint_text().unwrap_or_default().to_owned(),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
