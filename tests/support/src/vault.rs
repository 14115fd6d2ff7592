//! A vault in memory, and bindings for tests, without a file.

use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_core::secret::Secret;
use cofferdam_egress::vault::{
    Binding, BindingName, Bindings, OauthGrant, OauthTokens, SecretMaterial, Vault, VaultError,
};
use cofferdam_model::manifest::HostGrant;
use jiff::Timestamp;

/// Bindings in memory. It can refuse writes, or everything.
#[derive(Default)]
pub struct MemoryVault {
    now: Mutex<State>,
}

#[derive(Default)]
struct State {
    bindings: Arc<Bindings>,
    writes: u32,
    full: bool,
    locked: bool,
}

impl MemoryVault {
    /// A vault with these bindings.
    #[must_use]
    pub fn with(bindings: impl IntoIterator<Item = Binding>) -> Arc<Self> {
        let vault = Self::default();
        bindings.into_iter().for_each(|binding| vault.bind(binding));
        Arc::new(vault)
    }

    /// Binds, as `binding set` and `binding rebind` do.
    pub fn bind(&self, binding: Binding) {
        self.edit(|bindings| drop(bindings.insert(binding)));
    }

    /// Changes what is bound.
    pub fn edit(&self, edit: impl FnOnce(&mut Bindings)) {
        let mut now = self.state();
        let mut bindings = (*now.bindings).clone();
        edit(&mut bindings);
        now.bindings = Arc::new(bindings);
    }

    /// The binding of a name.
    ///
    /// # Panics
    /// Nothing is.
    #[must_use]
    pub fn get(&self, name: &str) -> Binding {
        let name = BindingName::parse(name).expect("a name");
        self.state().bindings.get(&name).expect("a binding").clone()
    }

    /// From now on writes fail, or succeed again.
    pub fn set_full(&self, full: bool) {
        self.state().full = full;
    }

    /// From now on it cannot be opened.
    pub fn set_locked(&self, locked: bool) {
        self.state().locked = locked;
    }

    /// The number of writes.
    #[must_use]
    pub fn writes(&self) -> u32 {
        self.state().writes
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Vault for MemoryVault {
    fn bindings(&self) -> Result<Arc<Bindings>, VaultError> {
        let now = self.state();
        if now.locked {
            let (message, hint) = ("The vault is locked.".into(), "Give its passphrase.".into());
            return Err(VaultError::Locked { message, hint });
        }
        Ok(Arc::clone(&now.bindings))
    }

    fn change(
        &self,
        change: &mut dyn FnMut(&mut Bindings) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        let mut now = self.state();
        let mut bindings = (*now.bindings).clone();
        change(&mut bindings)?;
        if now.full {
            let source = std::io::ErrorKind::StorageFull.into();
            return Err(VaultError::Io { message: "The vault cannot be written.".into(), source });
        }
        now.writes += 1;
        now.bindings = Arc::new(bindings);
        Ok(())
    }
}

/// A secret.
#[must_use]
pub fn secret(text: &str) -> Arc<Secret> {
    Arc::new(Secret::new(text.to_owned()))
}

/// A binding for `connectors` at `hosts`.
///
/// # Panics
/// A name or a host is none.
#[must_use]
pub fn binding(name: &str, material: SecretMaterial, connectors: &[&str], hosts: &[String]) -> Binding {
    let parse = |host: &String| HostGrant::parse(host).expect("a host");
    Binding {
        name: BindingName::parse(name).expect("a name"),
        material,
        hosts: hosts.iter().map(parse).collect(),
        connectors: connectors.iter().map(|name| name.parse().expect("a connector")).collect(),
        created: Timestamp::UNIX_EPOCH,
        changed: Timestamp::UNIX_EPOCH,
        refused: None,
    }
}

/// The material of an OAuth binding with a refresh token, and perhaps an access token.
#[must_use]
pub fn oauth(token_url: &str, refresh: &str, access: Option<(&str, Option<Timestamp>)>) -> SecretMaterial {
    SecretMaterial::Oauth2 {
        token_url: token_url.to_owned(),
        client_id: "our client".into(),
        client_secret: Some(secret("client secret & more")),
        scopes: vec!["read".into(), "write".into()],
        grant: OauthGrant::RefreshToken(secret(refresh)),
        tokens: access.map(|(token, expires)| OauthTokens { access_token: secret(token), expires }),
    }
}
