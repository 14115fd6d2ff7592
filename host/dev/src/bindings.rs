//! Bindings for tests: secrets that a scenario names or that are made up, in a vault that exists in memory only.

use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_core::document::InvalidValue;
use cofferdam_core::secret::Secret;
use cofferdam_egress::vault::{
    Binding, BindingName, Bindings, DEFAULT_IDENTITY, OauthGrant, OauthTokens, SecretMaterial, Vault,
    VaultError,
};
use cofferdam_model::manifest::{ConnectorName, CredentialGrant, CredentialKind};
use jiff::Timestamp;

/// Bindings in memory, for one host.
#[derive(Default)]
pub struct MemoryVault {
    bindings: Mutex<Arc<Bindings>>,
}

impl MemoryVault {
    /// Creates a vault with these bindings.
    pub fn new(bindings: impl IntoIterator<Item = Binding>) -> Self {
        let mut all = Bindings::default();
        bindings.into_iter().for_each(|binding| drop(all.insert(binding)));
        Self { bindings: Mutex::new(Arc::new(all)) }
    }
}

impl Vault for MemoryVault {
    fn bindings(&self) -> Result<Arc<Bindings>, VaultError> {
        Ok(Arc::clone(&self.bindings.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn known(&self) -> Option<Arc<Bindings>> {
        self.bindings().ok()
    }

    fn change(
        &self,
        change: &mut dyn FnMut(&mut Bindings) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        let mut now = self.bindings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bindings = (**now).clone();
        change(&mut bindings)?;
        *now = Arc::new(bindings);
        Ok(())
    }
}

impl std::fmt::Debug for MemoryVault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryVault").finish_non_exhaustive()
    }
}

/// Returns a binding of `grant` to a secret that is made up: long enough to be searched for, and the same each time.
/// None if a service has the name of none, which no manifest has.
pub fn made_up_binding(grant: &CredentialGrant, connector: &ConnectorName) -> Option<Binding> {
    let secret = format!("made-up-secret-for-{}", grant.service());
    let text = match grant.kind() {
        CredentialKind::Basic => format!("made-up-user:{secret}"),
        CredentialKind::AwsSigv4 => format!("AKIAMADEUP:{secret}"),
        _ => secret,
    };
    let name = BindingName::new(grant.kind(), grant.service(), DEFAULT_IDENTITY).ok()?;
    Some(binding(grant, connector, name, material(grant.kind(), &text)))
}

/// Returns a binding of `grant` to the secret in `text`.
///
/// # Errors
/// The identity or the text is not one.
pub fn test_binding(
    grant: &CredentialGrant,
    connector: &ConnectorName,
    identity: &str,
    text: &str,
) -> Result<Binding, InvalidValue> {
    let name = BindingName::new(grant.kind(), grant.service(), identity)
        .map_err(|error| InvalidValue::new(error.to_string(), "write it like bearer/tickets/work"))?;
    let form = match grant.kind() {
        CredentialKind::Basic => Some("write it as \"user:password\""),
        CredentialKind::AwsSigv4 => Some("write it as \"access key id:secret access key\""),
        _ => None,
    };
    if let Some(form) = form.filter(|_| !text.contains(':')) {
        return Err(InvalidValue::new(format!("a {} secret has two parts", grant.kind().name()), form));
    }
    let material = material(grant.kind(), text);
    material.check().map_err(|error| InvalidValue::new(error.to_string(), "write another text"))?;
    Ok(binding(grant, connector, name, material))
}

fn binding(
    grant: &CredentialGrant,
    connector: &ConnectorName,
    name: BindingName,
    material: SecretMaterial,
) -> Binding {
    Binding {
        name,
        material,
        hosts: grant.hosts().to_vec(),
        connectors: vec![connector.clone()],
        created: Timestamp::UNIX_EPOCH,
        changed: Timestamp::UNIX_EPOCH,
        refused: None,
    }
}

fn material(kind: CredentialKind, text: &str) -> SecretMaterial {
    let secret = |text: &str| Arc::new(Secret::new(text.to_owned()));
    let (before, after) = text.split_once(':').unwrap_or((text, ""));
    match kind {
        CredentialKind::ApiKey => SecretMaterial::ApiKey { key: secret(text) },
        CredentialKind::Bearer => SecretMaterial::Bearer { token: secret(text) },
        CredentialKind::SessionToken => SecretMaterial::SessionToken { token: secret(text) },
        CredentialKind::Basic => {
            SecretMaterial::Basic { username: before.to_owned(), password: secret(after) }
        }
        CredentialKind::AwsSigv4 => SecretMaterial::AwsSigv4 {
            access_key_id: before.to_owned(),
            secret_access_key: secret(after),
            session_token: None,
            // Only for a host whose name has none.
            region: Some("us-east-1".to_owned()),
        },
        CredentialKind::Oauth2 => SecretMaterial::Oauth2 {
            token_url: "https://issuer.invalid/token".to_owned(),
            client_id: "cofferdam-test".to_owned(),
            client_secret: None,
            scopes: Vec::new(),
            grant: OauthGrant::RefreshToken(secret("made-up-refresh-token")),
            tokens: Some(OauthTokens { access_token: secret(text), expires: None }),
        },
    }
}
