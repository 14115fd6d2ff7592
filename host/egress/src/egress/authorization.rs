//! The credentials that the host adds to a request on behalf of a binding, and the interface that supplies
//! them.

use std::pin::Pin;
use std::sync::Arc;

use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::{BindingProblem, Denial};
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::{Scanner, Secret};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Uri, request};
use url::form_urlencoded::byte_serialize;

use super::authority::RequestTarget;
use super::fault::RequestFlaw;
use super::sigv4::Sigv4Signer;

/// One addition to a request, made after everything else about it is final.
#[derive(Clone)]
pub enum Injection {
    /// A header that replaces an existing one; its value is marked as sensitive.
    Header(HeaderName, HeaderValue),
    /// A parameter at the end of the query, percent-encoded.
    Query {
        /// Its name; plain characters only.
        name: String,
        /// Its value.
        value: Arc<Secret>,
    },
    /// A secret for each occurrence of its handle: verbatim in header values, percent-encoded in path and
    /// query.
    Replace {
        /// The handle that the guest holds.
        handle: String,
        /// The secret that the handle stands for.
        secret: Arc<Secret>,
    },
}

/// The credentials that one request carries. The default carries none.
#[derive(Clone, Default)]
pub struct Authorization {
    /// The fields and query parameters that carry secrets.
    pub injections: Vec<Injection>,
    /// The signer, which runs when everything else is in place.
    pub signer: Option<Arc<Sigv4Signer>>,
    /// The names and versions of the bindings. Connections are shared only between requests with the same
    /// text.
    pub identity: Option<Arc<str>>,
    /// The names of the bindings whose credentials the request carries.
    pub bindings: Vec<Arc<str>>,
}

impl Authorization {
    /// Returns whether a secret, or a value derived from one, is sent with the request.
    #[must_use]
    pub fn carries_credential(&self) -> bool {
        !self.injections.is_empty() || self.signer.is_some()
    }

    /// Adds all injections. The signature is not added here: it comes last and needs the body.
    pub(super) fn apply(&self, head: &mut request::Parts) -> Result<(), RequestFlaw> {
        for injection in &self.injections {
            match injection {
                Injection::Header(name, value) => {
                    head.headers.insert(name.clone(), value.clone());
                }
                Injection::Query { name, value } => {
                    let path = path_of(&head.uri);
                    let separator = if path.contains('?') { '&' } else { '?' };
                    head.uri = uri_of(&format!("{path}{separator}{name}={}", encoded(value)))?;
                }
                Injection::Replace { handle, secret } => replace(head, handle, secret)?,
            }
        }
        Ok(())
    }
}

fn path_of(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", PathAndQuery::as_str)
}

fn uri_of(path: &str) -> Result<Uri, RequestFlaw> {
    PathAndQuery::try_from(path).map(Uri::from).map_err(|_| RequestFlaw::Path)
}

/// Encodes as `application/x-www-form-urlencoded`, except that the space is `%20`, which is valid in a path
/// and in a query.
fn encoded(secret: &Secret) -> String {
    byte_serialize(secret.expose().as_bytes()).collect::<String>().replace('+', "%20")
}

fn replace(head: &mut request::Parts, handle: &str, secret: &Secret) -> Result<(), RequestFlaw> {
    for value in head.headers.values_mut() {
        let Some(text) = value.to_str().ok().filter(|text| text.contains(handle)) else { continue };
        let filled = text.replace(handle, secret.expose());
        *value = HeaderValue::try_from(filled).map_err(|_| RequestFlaw::Credential)?;
        value.set_sensitive(true);
    }
    let path = path_of(&head.uri);
    if path.contains(handle) {
        head.uri = uri_of(&path.replace(handle, &encoded(secret)))?;
    }
    Ok(())
}

/// The reason why a request gets no authorization and is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorizationError {
    /// Something is wrong with a binding.
    Binding(BindingProblem),
    /// The guest's request is not allowed.
    Denied(Denial),
    /// The vault cannot be used: a failure of the host, not an outcome of a call.
    Host(VaultFailure),
}

/// A failure of the vault with a message for the operator: a [`HostError`] that can be stored and reported
/// more than once.
///
/// [`HostError`]: cofferdam_core::error::HostError
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultFailure {
    /// The kind of failure.
    pub kind: HostErrorKind,
    /// The problem in one sentence.
    pub message: String,
    /// The suggested fix.
    pub hint: String,
}

/// The future of [`Authorize::authorize`].
pub type AuthorizationFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Authorization, AuthorizationError>> + Send + 'a>>;

/// The gate's interface to the credentials of one attempt.
pub trait Authorize: Send + Sync {
    /// Returns the credentials for the request `head` to `target`. May refresh a token over the network
    /// first. Dropping the future stops the wait, but not a refresh that other calls wait for.
    fn authorize<'a>(
        &'a self,
        target: &'a RequestTarget,
        head: &'a request::Parts,
    ) -> AuthorizationFuture<'a>;

    /// Returns the names of the bindings that a request to `target` carries, for the audit log; empty if
    /// none.
    fn bindings_for(&self, target: &RequestTarget) -> Vec<String>;

    /// Returns the names of the bindings that a request to `target` carries and when each was last bound,
    /// without any secret or value derived from one. `None` if it carries none.
    fn credential_fingerprint(&self, target: &RequestTarget) -> Option<String> {
        let _ = target;
        None
    }

    /// Returns whether a new token may help after `target` rejected the request (status 401), because the
    /// token that was sent was not obtained in this attempt. Must be called before
    /// [`credential_rejected`](Self::credential_rejected).
    fn can_renew(&self, target: &RequestTarget) -> bool {
        let _ = target;
        false
    }

    /// Returns whether the host sets the header `name` for a credential of this connector, so that its guest
    /// may not.
    fn writes_header(&self, name: &HeaderName) -> bool {
        let _ = name;
        false
    }

    /// Records that `target` rejected the credentials of `authorization` (status 401), so that the next
    /// attempt does not send the same token again. The future is ready when this is stored.
    fn credential_rejected<'a>(
        &'a self,
        target: &'a RequestTarget,
        authorization: &'a Authorization,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let _ = (target, authorization);
        Box::pin(std::future::ready(()))
    }

    /// Issues a handle for the session token of `service`, valid for one request of this attempt; `None` if
    /// the credential is optional and not bound.
    ///
    /// # Errors
    /// The manifest asks for no such credential, or the attempt has requested too many handles.
    fn handle(&self, service: &str) -> Result<Option<String>, AuthorizationError> {
        let _ = service;
        Ok(None)
    }

    /// Returns whether the attempt has requested handles, in which case bodies are checked for them.
    fn has_handles(&self) -> bool {
        false
    }

    /// Returns a denial if `bytes`, a part of a request's body, contain a handle. Handles are never replaced
    /// in bodies.
    fn handle_in_body(&self, bytes: &[u8]) -> Option<Denial> {
        let _ = bytes;
        None
    }

    /// Returns the scanner for every secret that this attempt could carry, in requests and responses. Callers
    /// must get it again for each request, after [`Authorize::authorize`]: a refreshed token is a new secret.
    fn scanner(&self) -> Arc<Scanner>;
}
