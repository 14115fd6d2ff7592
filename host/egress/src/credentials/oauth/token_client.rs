//! Sends requests to token endpoints, and reads their responses.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use cofferdam_core::clock::Clock;
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::Full;
use url::form_urlencoded::{Serializer, byte_serialize};
use zeroize::Zeroizing;

use super::token_response::{TokenError, TokenResponse, read};
use crate::egress::{HostRequestClient, HostRequestError, RequestBounds};
use crate::vault::OauthGrant;

/// The longest response that is read, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// The total time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The client for token endpoints.
pub(super) struct TokenClient {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) requests: HostRequestClient,
}

/// A token request: the client's identity and the grant.
pub(super) struct TokenRequest<'q> {
    pub(super) token_url: &'q str,
    pub(super) client_id: &'q str,
    pub(super) client_secret: Option<&'q Secret>,
    pub(super) scopes: &'q [String],
    pub(super) grant: &'q OauthGrant,
}

/// The reason why there is no token.
pub(super) enum TokenRequestError {
    /// Egress is not allowed: the reason, and the setting that would allow it.
    NotAllowed { why: String, mend: Option<String> },
    /// The endpoint was not reached, or did not answer in time.
    Unreachable(String),
    /// The endpoint answered with this status.
    Answered(u16, TokenError),
}

impl TokenClient {
    /// Sends the request and reads the response.
    pub(super) async fn request_token(
        &self,
        question: &TokenRequest<'_>,
    ) -> Result<TokenResponse, TokenRequestError> {
        let bounds = RequestBounds { bytes: MAX_RESPONSE_BYTES, time: REQUEST_TIMEOUT };
        let sent = self.requests.send(question.token_url, |uri| question.request(uri), bounds).await?;
        let status = sent.status().as_u16();
        read(status, sent.body(), self.clock.timestamp())
            .map_err(|not| TokenRequestError::Answered(status, not))
    }
}

impl From<HostRequestError> for TokenRequestError {
    fn from(error: HostRequestError) -> Self {
        match error {
            HostRequestError::NotAllowed { why, allow_private } => {
                let mend = allow_private.map(|entry| format!("cofferdam call --allow-private {entry}"));
                Self::NotAllowed { why, mend }
            }
            HostRequestError::Unreachable(why) => Self::Unreachable(why),
        }
    }
}

impl TokenRequest<'_> {
    /// Builds the form of RFC 6749, 4.4.2 and 6. A confidential client authenticates by HTTP Basic (2.3.1),
    /// which every issuer must accept; a public one sends its id in the form.
    fn request(&self, uri: Uri) -> Result<Request<Full<Bytes>>, String> {
        let mut form = Serializer::new(String::new());
        match self.grant {
            OauthGrant::RefreshToken(token) => {
                form.append_pair("grant_type", "refresh_token").append_pair("refresh_token", token.expose());
            }
            OauthGrant::ClientCredentials => {
                form.append_pair("grant_type", "client_credentials");
            }
        }
        if !self.scopes.is_empty() {
            form.append_pair("scope", &self.scopes.join(" "));
        }
        let mut request = Request::post(uri)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        match self.client_secret {
            Some(secret) => request = request.header(header::AUTHORIZATION, self.basic(secret)?),
            None => {
                form.append_pair("client_id", self.client_id);
            }
        }
        let body = Bytes::from(form.finish());
        request.body(Full::new(body)).map_err(|_| "its URL cannot be asked for".to_owned())
    }

    fn basic(&self, secret: &Secret) -> Result<HeaderValue, String> {
        let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        let password = Zeroizing::new(encoded(secret.expose()));
        let pair = Zeroizing::new(format!("{}:{}", encoded(self.client_id), *password));
        let text = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
        let mut value = HeaderValue::from_str(&text).map_err(|_| "its client cannot be named".to_owned())?;
        value.set_sensitive(true);
        Ok(value)
    }
}
