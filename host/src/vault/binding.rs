//! One binding: the secret, and what its operator decided about it.

use std::sync::Arc;

use jiff::Timestamp;

use super::name::BindingName;
use crate::manifest::{ConnectorName, CredentialKind, HostGrant};
use crate::secret::Secret;

/// What stands behind a binding's name. Secrets are shared, so that contents can be copied and changed
/// without a second copy of any.
#[derive(Clone)]
pub enum Material {
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
    /// A token that is obtained and refreshed.
    Oauth2 {
        /// The endpoint that gives tokens: an `https` URL, or `http` on a host of the operator's own.
        token_url: String,
        /// The client.
        client_id: String,
        /// The client's secret; a public client has none.
        client_secret: Option<Arc<Secret>>,
        /// The scopes that are asked for.
        scopes: Vec<String>,
        /// How tokens are obtained.
        grant: OauthGrant,
        /// The token in use, once there is one.
        tokens: Option<Tokens>,
    },
    /// Keys that sign requests.
    AwsSigv4 {
        /// Which key; no secret.
        access_key_id: String,
        /// What signs.
        secret_access_key: Arc<Secret>,
        /// The token of temporary keys.
        session_token: Option<Arc<Secret>>,
        /// The region, where the host's name does not say it.
        region: Option<String>,
    },
    /// A token that the guest places by an opaque handle.
    SessionToken {
        /// The token.
        token: Arc<Secret>,
    },
}

/// How an OAuth 2.0 client obtains tokens.
#[derive(Clone)]
pub enum OauthGrant {
    /// With a refresh token, which the issuer may replace each time.
    RefreshToken(Arc<Secret>),
    /// With the client's own credentials.
    ClientCredentials,
}

/// An access token, and how long it holds.
#[derive(Clone)]
pub struct Tokens {
    /// The token.
    pub access_token: Arc<Secret>,
    /// When it ends; none where the issuer did not say.
    pub expires: Option<Timestamp>,
}

/// One binding.
#[derive(Clone)]
pub struct Binding {
    /// Its name.
    pub name: BindingName,
    /// What stands behind it; its kind is that of the name.
    pub material: Material,
    /// Where it may go; never empty. A manifest can only narrow this.
    pub hosts: Vec<HostGrant>,
    /// Which connectors may use it; never empty.
    pub connectors: Vec<ConnectorName>,
    /// When it was first bound.
    pub created: Timestamp,
    /// When what stands behind it last changed, refreshed tokens apart.
    pub changed: Timestamp,
    /// Why the issuer no longer accepts it, as far as is known.
    pub refused: Option<String>,
}

impl Material {
    /// The kind of credential that it is.
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

    /// Every secret in it, for the search.
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
