//! What the host adds to a request on behalf of a binding, and who says what that is.

use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, request};

use super::authority::Target;
use crate::failure::{BindingProblem, Denial};
use crate::secret::Scanner;

/// One addition to a request, made after everything else about it is final.
#[derive(Clone)]
pub enum Injection {
    /// A header, in place of whatever stands there; its value is marked as sensitive.
    Header(HeaderName, HeaderValue),
}

/// What one request carries of credentials. The default carries none.
#[derive(Clone, Default)]
pub struct Authorization {
    pub(crate) injections: Vec<Injection>,
    /// The bindings, by name, and which state of them: connections are shared within one such text only.
    pub(crate) identity: Option<Arc<str>>,
}

impl Authorization {
    /// Adds what there is to add.
    pub(super) fn apply(&self, head: &mut request::Parts) {
        for injection in &self.injections {
            match injection {
                Injection::Header(name, value) => {
                    head.headers.insert(name.clone(), value.clone());
                }
            }
        }
    }
}

/// Why a request gets no authorization, and is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unauthorized {
    /// Something is wrong with a binding.
    Binding(BindingProblem),
    /// What the guest asked for is not allowed.
    Denied(Denial),
}

/// The credentials of one attempt, as the gate sees them.
pub trait Authorize: Send + Sync {
    /// What a request to `target` carries; may refresh a token first, over the network. Dropping the future
    /// gives up waiting, not a refresh that others wait for.
    fn authorize<'a>(
        &'a self,
        target: &'a Target,
    ) -> Pin<Box<dyn Future<Output = Result<Authorization, Unauthorized>> + Send + 'a>>;

    /// The names of the bindings that a request to `target` carries, for the record; empty if none.
    fn bindings_for(&self, target: &Target) -> Vec<String>;

    /// What looks for every secret that this attempt could carry, in what goes out and what comes back.
    fn scanner(&self) -> Arc<Scanner>;
}
