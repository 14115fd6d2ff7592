//! Sends requests to token endpoints: through the same checked egress as connectors' requests, without
//! redirects, with bounded time and response size.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use cofferdam_core::clock::Clock;
use cofferdam_core::failure::Denial;
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use cofferdam_model::manifest::{HostGrant, UrlScheme};
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use url::form_urlencoded::{Serializer, byte_serialize};
use zeroize::Zeroizing;

use super::token_response::{TokenError, TokenResponse, read};
use crate::egress::{
    Authorization, EgressClient, EgressPolicy, EgressTimeouts, PrivateGrant, RequestTarget, Resolve,
    SendError, Tls,
};
use crate::vault::OauthGrant;

/// The longest response that is read, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// The total time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The client for token endpoints.
pub(super) struct TokenClient {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tls: Arc<Tls>,
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) allow_private: Arc<[PrivateGrant]>,
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
        let (uri, target, grant) = self.place(question.token_url)?;
        let client = EgressClient::new(
            Arc::clone(&self.tls),
            Arc::clone(&self.resolver),
            EgressPolicy::new(&[grant], &self.allow_private),
        );
        let request =
            question.request(uri).map_err(|why| TokenRequestError::NotAllowed { why, mend: None })?;
        let exchange = async {
            let (times, carries) = (EgressTimeouts::default(), Authorization::default());
            let sent = client.send(request, &target, &times, &carries, None).await;
            let (head, body) = sent.map_err(|error| unsent(&target, error))?.into_parts();
            let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
            let body = body.map_err(|_| broken_off(&target))?.to_bytes();
            let status = head.status.as_u16();
            read(status, &body, self.clock.timestamp())
                .map_err(|not| TokenRequestError::Answered(status, not))
        };
        tokio::select! {
            answer = exchange => answer,
            () = self.clock.sleep_until(self.clock.now() + REQUEST_TIMEOUT) => {
                let why = format!("{target} did not answer within {} s", REQUEST_TIMEOUT.as_secs());
                Err(TokenRequestError::Unreachable(why))
            }
        }
    }

    /// Parses and checks the URL of the endpoint. Without TLS it is used only on a host that the operator has
    /// named.
    fn place(&self, url: &str) -> Result<(Uri, RequestTarget, HostGrant), TokenRequestError> {
        let not_allowed = |why: String| TokenRequestError::NotAllowed { why, mend: None };
        let uri = url.parse::<Uri>().map_err(|_| not_allowed("its URL is none".into()))?;
        let target = RequestTarget::from_uri(&uri).map_err(|denial| not_allowed(refusal(&denial)))?;
        let clear = target.scheme() == UrlScheme::Http;
        let prefix = if clear { "http://" } else { "" };
        let grant = HostGrant::parse(&format!("{prefix}{target}"));
        let grant = grant.map_err(|_| not_allowed(format!("{target} is an address and no name")))?;
        if clear && !self.allow_private.iter().any(|private| private.is_for(&target)) {
            let why = format!("{target} would get the secret unencrypted; use https");
            return Err(TokenRequestError::NotAllowed { why, mend: None });
        }
        Ok((uri, target, grant))
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

fn unsent(target: &RequestTarget, error: SendError) -> TokenRequestError {
    match error {
        SendError::Refused(denial) | SendError::RefusedAnswer(denial) => {
            // The line is TOML with one string in it, which is also the entry that `--allow-private` takes.
            let entry = denial.line().and_then(|line| line.line().split('"').nth(1));
            let mend = entry.map(|entry| format!("cofferdam call --allow-private {entry}"));
            TokenRequestError::NotAllowed { why: refusal(&denial), mend }
        }
        SendError::Flawed(flaw) => TokenRequestError::NotAllowed { why: flaw.to_string(), mend: None },
        SendError::Limit(_) | SendError::Over => broken_off(target),
        SendError::Fault(fault) => {
            let (phase, code) = (fault.phase.name(), fault.code);
            TokenRequestError::Unreachable(format!("{target} was not reached ({phase}: {code})"))
        }
    }
}

fn broken_off(target: &RequestTarget) -> TokenRequestError {
    TokenRequestError::Unreachable(format!("the answer of {target} broke off, or is too long"))
}

/// Returns the reason of a denial as a part of a sentence.
fn refusal(denial: &Denial) -> String {
    denial.suggestion().trim_end_matches('.').to_owned()
}
