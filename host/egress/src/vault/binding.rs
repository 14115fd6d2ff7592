//! One binding: the secret, and the operator's decisions about it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use cofferdam_model::manifest::{ConnectorName, CredentialKind, HostGrant};
use jiff::Timestamp;

use super::error::VaultError;
use super::name::BindingName;
use super::text::{SecretForm, check_text};

/// The secret material of a binding. Secrets are shared, so that contents can be copied and changed without a
/// second copy of a secret.
#[derive(Clone)]
pub enum SecretMaterial {
    /// A fixed key.
    ApiKey {
        /// The key.
        key: Arc<Secret>,
    },
    /// User name and password.
    Basic {
        /// The user name; without `:`.
        username: String,
        /// The password.
        password: Arc<Secret>,
    },
    /// A fixed token.
    Bearer {
        /// The token.
        token: Arc<Secret>,
    },
    /// A token that is obtained from an issuer and refreshed.
    Oauth2 {
        /// The token endpoint: an `https` URL, or `http` on a host of the operator's own.
        token_url: String,
        /// The client id.
        client_id: String,
        /// The client's secret; `None` for a public client.
        client_secret: Option<Arc<Secret>>,
        /// The requested scopes.
        scopes: Vec<String>,
        /// The grant by which tokens are obtained.
        grant: OauthGrant,
        /// The token in use, once there is one.
        tokens: Option<OauthTokens>,
    },
    /// Keys that sign requests.
    AwsSigv4 {
        /// The id of the key, which is not secret.
        access_key_id: String,
        /// The key that signs.
        secret_access_key: Arc<Secret>,
        /// The token of temporary keys.
        session_token: Option<Arc<Secret>>,
        /// The region, if the host's name does not contain it.
        region: Option<String>,
    },
    /// A token that the guest places by an opaque handle.
    SessionToken {
        /// The token.
        token: Arc<Secret>,
    },
}

/// The way in which an OAuth 2.0 client obtains tokens.
#[derive(Clone)]
pub enum OauthGrant {
    /// With a refresh token, which the issuer may replace each time.
    RefreshToken(Arc<Secret>),
    /// With the client's own credentials.
    ClientCredentials,
}

/// An access token and its expiry.
#[derive(Clone)]
pub struct OauthTokens {
    /// The token.
    pub access_token: Arc<Secret>,
    /// The expiry; `None` if the issuer did not state one.
    pub expires: Option<Timestamp>,
}

/// One binding.
#[derive(Clone)]
pub struct Binding {
    /// Its name.
    pub name: BindingName,
    /// The secret material; its kind is that of the name.
    pub material: SecretMaterial,
    /// The hosts that it may be sent to; never empty. A manifest can only narrow this list.
    pub hosts: Vec<HostGrant>,
    /// The connectors that may use it; never empty.
    pub connectors: Vec<ConnectorName>,
    /// The time at which it was first bound.
    pub created: Timestamp,
    /// The time of the last change of the material, except for refreshed tokens.
    pub changed: Timestamp,
    /// The reason why the issuer no longer accepts it, as far as known.
    pub refused: Option<String>,
}

impl SecretMaterial {
    /// Returns its kind of credential.
    #[must_use]
    pub fn kind(&self) -> CredentialKind {
        match self {
            Self::ApiKey { .. } => CredentialKind::ApiKey,
            Self::Basic { .. } => CredentialKind::Basic,
            Self::Bearer { .. } => CredentialKind::Bearer,
            Self::Oauth2 { .. } => CredentialKind::Oauth2,
            Self::AwsSigv4 { .. } => CredentialKind::AwsSigv4,
            Self::SessionToken { .. } => CredentialKind::SessionToken,
        }
    }

    /// Checks that every part can be sent as its kind requires, so that a binding that was accepted works.
    ///
    /// # Errors
    /// [`VaultError::Refused`], which names the part and quotes nothing secret.
    pub fn check(&self) -> Result<(), VaultError> {
        let secret = |what: &str, secret: &Secret, form: SecretForm| {
            let fix = "Give it as its issuer shows it, on one line.";
            check_text(secret.expose(), form)
                .map_err(|flaw| refused(&format!("The {what} cannot be used: {flaw}"), fix))
        };
        let visible = |what: &str, text: &str, fix: &str| match text.bytes().all(|b| b.is_ascii_graphic()) {
            true if !text.is_empty() && text.len() <= 2048 => Ok(()),
            _ => Err(refused(&format!("The {what} is not one word of visible ASCII"), fix)),
        };
        match self {
            Self::ApiKey { key } => secret("key", key, SecretForm::Visible),
            Self::Bearer { token } | Self::SessionToken { token } => {
                secret("token", token, SecretForm::Visible)
            }
            Self::Basic { username, password } => {
                if username.is_empty() || username.contains(':') || username.chars().any(char::is_control) {
                    let fix = "A user name is one line without `:`; the password is given apart from it.";
                    return Err(refused("The user name cannot be used", fix));
                }
                secret("password", password, SecretForm::Encoded)
            }
            Self::Oauth2 { token_url, client_id, client_secret, scopes, grant, tokens: _ } => {
                check_token_url(token_url)?;
                visible("client id", client_id, "Give the client id that the issuer shows.")?;
                for scope in scopes {
                    visible("scope", scope, "Give one scope at a time.")?;
                }
                if let Some(client_secret) = client_secret {
                    secret("client secret", client_secret, SecretForm::Encoded)?;
                }
                match grant {
                    OauthGrant::RefreshToken(token) => secret("refresh token", token, SecretForm::Visible),
                    OauthGrant::ClientCredentials if client_secret.is_none() => Err(refused(
                        "The client secret is missing",
                        "Client credentials are the id and the secret.",
                    )),
                    OauthGrant::ClientCredentials => Ok(()),
                }
            }
            Self::AwsSigv4 { access_key_id, secret_access_key, session_token, region } => {
                visible("access key id", access_key_id, "It is a word like AKIAIOSFODNN7EXAMPLE.")?;
                secret("secret access key", secret_access_key, SecretForm::Visible)?;
                if let Some(token) = session_token {
                    secret("session token", token, SecretForm::Visible)?;
                }
                match region {
                    Some(region)
                        if !region
                            .bytes()
                            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                            || region.is_empty() =>
                    {
                        Err(refused("The region cannot be used", "It is a word like eu-west-1."))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// Returns its secrets without the access token: those that the operator's store has.
    pub(super) fn secrets_at_rest(&self) -> Vec<&Arc<Secret>> {
        match self {
            Self::Oauth2 { client_secret, grant, .. } => {
                let refresh = match grant {
                    OauthGrant::RefreshToken(token) => Some(token),
                    OauthGrant::ClientCredentials => None,
                };
                client_secret.iter().chain(refresh).collect()
            }
            other => other.secrets(),
        }
    }

    /// Returns every secret in it, for the scanner.
    pub(crate) fn secrets(&self) -> Vec<&Arc<Secret>> {
        match self {
            Self::ApiKey { key } => vec![key],
            Self::Basic { password, .. } => vec![password],
            Self::Bearer { token } | Self::SessionToken { token } => vec![token],
            Self::Oauth2 { client_secret, grant, tokens, .. } => {
                let refresh = match grant {
                    OauthGrant::RefreshToken(token) => Some(token),
                    OauthGrant::ClientCredentials => None,
                };
                let access = tokens.as_ref().map(|tokens| &tokens.access_token);
                client_secret.iter().chain(refresh).chain(access).collect()
            }
            Self::AwsSigv4 { secret_access_key, session_token, .. } => {
                std::iter::once(secret_access_key).chain(session_token).collect()
            }
        }
    }
}

/// Checks the token endpoint: an absolute URL without user, query and fragment. A plain-text connection, or
/// one to a private address, is decided about when it is opened.
fn check_token_url(text: &str) -> Result<(), VaultError> {
    let fix = "Give it like https://login.example.com/oauth/token.";
    let wrong = |why: &str| Err(refused(&format!("The token URL cannot be used: {why}"), fix));
    let Ok(url) = url::Url::parse(text) else { return wrong("it is not an absolute URL") };
    if !matches!(url.scheme(), "https" | "http") || url.host_str().is_none() {
        return wrong("it is not an https URL");
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return wrong("it has a user name, a password or a fragment");
    }
    Ok(())
}

fn refused(message: &str, hint: &str) -> VaultError {
    VaultError::Refused { message: format!("{message}."), hint: hint.to_owned() }
}

/// A binding whose secret cannot be had at the moment. Calls that need it fail; others do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnavailableBinding {
    /// Its name.
    pub name: BindingName,
    /// The hosts that it may be sent to.
    pub hosts: Vec<HostGrant>,
    /// The connectors that may use it.
    pub connectors: Vec<ConnectorName>,
    /// The problem in one sentence, which names the file, the variable or the command, and nothing of the secret.
    pub message: String,
    /// The suggested fix.
    pub hint: String,
}

impl UnavailableBinding {
    /// Returns the problem as an error.
    #[must_use]
    pub fn error(&self) -> VaultError {
        VaultError::Unusable { message: self.message.clone(), hint: self.hint.clone() }
    }
}

/// All bindings at one moment.
#[derive(Clone, Default)]
pub struct Bindings {
    by_name: BTreeMap<BindingName, Binding>,
    unavailable: BTreeMap<BindingName, UnavailableBinding>,
}

impl Bindings {
    /// Adds a binding whose secret cannot be had.
    pub fn insert_unavailable(&mut self, binding: UnavailableBinding) {
        self.unavailable.insert(binding.name.clone(), binding);
    }

    /// Returns the binding of this name if its secret cannot be had.
    #[must_use]
    pub fn unavailable(&self, name: &BindingName) -> Option<&UnavailableBinding> {
        self.unavailable.get(name)
    }

    /// Returns every binding whose secret cannot be had, in the order of the names.
    pub fn iter_unavailable(&self) -> impl Iterator<Item = &UnavailableBinding> {
        self.unavailable.values()
    }

    /// Returns the binding of this name.
    #[must_use]
    pub fn get(&self, name: &BindingName) -> Option<&Binding> {
        self.by_name.get(name)
    }

    /// Returns the binding of this name for a change.
    pub fn get_mut(&mut self, name: &BindingName) -> Option<&mut Binding> {
        self.by_name.get_mut(name)
    }

    /// Adds a binding; returns the previous one of this name.
    pub fn insert(&mut self, binding: Binding) -> Option<Binding> {
        self.by_name.insert(binding.name.clone(), binding)
    }

    /// Removes the binding of this name and returns it.
    pub fn remove(&mut self, name: &BindingName) -> Option<Binding> {
        self.by_name.remove(name)
    }

    /// Returns every binding in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = &Binding> {
        self.by_name.values()
    }
}

impl FromIterator<Binding> for Bindings {
    fn from_iter<I: IntoIterator<Item = Binding>>(bindings: I) -> Self {
        let by_name = bindings.into_iter().map(|binding| (binding.name.clone(), binding)).collect();
        Self { by_name, unavailable: BTreeMap::new() }
    }
}
