//! What the host adds to a request on behalf of a binding, and who says what that is.

use std::pin::Pin;
use std::sync::Arc;

use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::{BindingProblem, Denial};
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::{Scanner, Secret};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Uri, request};
use url::form_urlencoded::byte_serialize;

use super::authority::Target;
use super::fault::RequestFlaw;
use super::sigv4::Sigv4;

/// One addition to a request, made after everything else about it is final.
#[derive(Clone)]
pub enum Injection {
    /// A header, in place of whatever stands there; its value is marked as sensitive.
    Header(HeaderName, HeaderValue),
    /// A parameter at the end of the query, percent-encoded.
    Query {
        /// Its name; plain characters only.
        name: String,
        /// Its value.
        value: Arc<Secret>,
    },
    /// A secret for each place where its handle stands, in header values as it is, in path and query
    /// percent-encoded.
    Replace {
        /// What the guest holds.
        handle: String,
        /// What it stands for.
        secret: Arc<Secret>,
    },
}

/// What one request carries of credentials. The default carries none.
#[derive(Clone, Default)]
pub struct Authorization {
    /// The fields and query parameters that carry secrets.
    pub injections: Vec<Injection>,
    /// What signs the request, when everything else is in place.
    pub signer: Option<Arc<Sigv4>>,
    /// The bindings, by name, and which state of them: connections are shared within one such text only.
    pub identity: Option<Arc<str>>,
}

impl Authorization {
    /// Returns whether a secret, or what is made of one, goes out with the request.
    #[must_use]
    pub fn carries_credential(&self) -> bool {
        !self.injections.is_empty() || self.signer.is_some()
    }

    /// Adds what there is to add, the signature apart: that comes last, and needs the body.
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

/// `application/x-www-form-urlencoded` but for the space, which is `%20`: right in a path and in a query.
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

/// Why a request gets no authorization, and is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unauthorized {
    /// Something is wrong with a binding.
    Binding(BindingProblem),
    /// What the guest asked for is not allowed.
    Denied(Denial),
    /// The vault cannot be used: the host's own trouble, and no outcome of a call.
    Host(VaultTrouble),
}

/// The vault cannot be used, in words for its operator: a [`HostError`] that can be kept and told twice.
///
/// [`HostError`]: cofferdam_core::error::HostError
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultTrouble {
    /// What kind of trouble it is.
    pub kind: HostErrorKind,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// What [`Authorize::authorize`] comes to.
pub type Authorizing<'a> = Pin<Box<dyn Future<Output = Result<Authorization, Unauthorized>> + Send + 'a>>;

/// The credentials of one attempt, as the gate sees them.
pub trait Authorize: Send + Sync {
    /// What the request `head` to `target` carries; may refresh a token first, over the network. Dropping
    /// the future gives up waiting, not a refresh that others wait for.
    fn authorize<'a>(&'a self, target: &'a Target, head: &'a request::Parts) -> Authorizing<'a>;

    /// The names of the bindings that a request to `target` carries, for the record; empty if none.
    fn bindings_for(&self, target: &Target) -> Vec<String>;

    /// Which state of which bindings a request to `target` carries: their names and when each was last bound, no
    /// secret and nothing made of one. None where it carries none.
    fn credential_mark(&self, target: &Target) -> Option<String> {
        let _ = target;
        None
    }

    /// Whether a new token may mend that `target` refuses (status 401): the one that it was sent was not obtained in
    /// this attempt. To be asked before [`refused`](Self::refused).
    fn renews(&self, target: &Target) -> bool {
        let _ = target;
        false
    }

    /// Whether the host writes the header `name` for a credential of this connector, so that its guest may
    /// not.
    fn writes_header(&self, name: &HeaderName) -> bool {
        let _ = name;
        false
    }

    /// Takes note that `target` did not accept what `authorization` carried (status 401), so that the next
    /// attempt does not send the same token again. Ready when that is kept.
    fn refused<'a>(
        &'a self,
        target: &'a Target,
        authorization: &'a Authorization,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let _ = (target, authorization);
        Box::pin(std::future::ready(()))
    }

    /// A new handle for the session token of `service`, good for one request of this attempt; none where
    /// the credential is optional and not bound.
    ///
    /// # Errors
    /// The manifest asks for no such credential, or the attempt has asked for too many handles.
    fn handle(&self, service: &str) -> Result<Option<String>, Unauthorized> {
        let _ = service;
        Ok(None)
    }

    /// Whether the attempt has asked for handles: then bodies are watched for them.
    fn has_handles(&self) -> bool {
        false
    }

    /// Why `bytes`, of a request's body, do not go out: there is a handle in them, where it is never replaced.
    fn handle_in_body(&self, bytes: &[u8]) -> Option<Denial> {
        let _ = bytes;
        None
    }

    /// What looks for every secret that this attempt could carry, in what goes out and what comes back. To
    /// be asked for anew for each request, after [`Authorize::authorize`]: a refreshed token is a new secret.
    fn scanner(&self) -> Arc<Scanner>;
}
