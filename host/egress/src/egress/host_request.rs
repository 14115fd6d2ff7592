//! Sends the host's own requests (to token endpoints, for key sets): through the same checked egress as connectors'
//! requests, without redirects, with bounded time and response size.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cofferdam_core::clock::Clock;
use cofferdam_core::failure::{Denial, GrantLine};
use cofferdam_model::manifest::{HostGrant, UrlScheme};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};

use super::{
    Authorization, EgressClient, EgressPolicy, EgressTimeouts, PrivateGrant, RequestTarget, Resolve,
    SendError, Tls,
};

/// The client for the host's own requests. Cheap to clone.
#[derive(Clone)]
pub struct HostRequestClient {
    clock: Arc<dyn Clock>,
    tls: Arc<Tls>,
    resolver: Arc<dyn Resolve>,
    allow_private: Arc<[PrivateGrant]>,
}

/// The bounds of one request.
#[derive(Debug, Clone, Copy)]
pub struct RequestBounds {
    /// The longest response that is read, in bytes.
    pub bytes: usize,
    /// The total time limit.
    pub time: Duration,
}

/// The reason why there is no response. The texts are parts of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostRequestError {
    /// Egress is not allowed: the reason, and the entry of `allow_private` that would allow it.
    NotAllowed {
        /// The reason.
        why: String,
        /// The entry.
        allow_private: Option<String>,
    },
    /// The server was not reached, did not respond in time, or sent too much.
    Unreachable(String),
}

impl fmt::Debug for HostRequestClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostRequestClient").finish_non_exhaustive()
    }
}

impl HostRequestClient {
    /// Creates a client. It reaches public addresses over TLS, and what `allow_private` names.
    #[must_use]
    pub fn new(
        clock: Arc<dyn Clock>,
        tls: Arc<Tls>,
        resolver: Arc<dyn Resolve>,
        allow_private: Arc<[PrivateGrant]>,
    ) -> Self {
        Self { clock, tls, resolver, allow_private }
    }

    /// Sends the request that `build` makes for the URL, and reads the whole response.
    ///
    /// # Errors
    /// The request is not allowed, the server does not respond within the bounds, or `build` fails.
    pub async fn send(
        &self,
        url: &str,
        build: impl FnOnce(Uri) -> Result<Request<Full<Bytes>>, String>,
        bounds: RequestBounds,
    ) -> Result<Response<Bytes>, HostRequestError> {
        let (uri, target, grant) = self.target(url)?;
        let client = EgressClient::new(
            Arc::clone(&self.tls),
            Arc::clone(&self.resolver),
            EgressPolicy::new(&[grant], &self.allow_private),
        );
        let request = build(uri).map_err(not_allowed)?;
        let exchange = async {
            let (times, carries) = (EgressTimeouts::default(), Authorization::default());
            let sent = client.send(request, &target, &times, &carries, None).await;
            let (head, body) = sent.map_err(|error| unsent(&target, error))?.into_parts();
            let body = Limited::new(body, bounds.bytes).collect().await;
            let body = body.map_err(|_| broken_off(&target))?.to_bytes();
            Ok(Response::from_parts(head, body))
        };
        tokio::select! {
            answer = exchange => answer,
            () = self.clock.sleep_until(self.clock.now() + bounds.time) => {
                let why = format!("{target} did not answer within {} s", bounds.time.as_secs());
                Err(HostRequestError::Unreachable(why))
            }
        }
    }

    /// Parses and checks the URL. Without TLS it is used only on a host that the operator has named.
    fn target(&self, url: &str) -> Result<(Uri, RequestTarget, HostGrant), HostRequestError> {
        let uri = url.parse::<Uri>().map_err(|_| not_allowed("its URL is none".into()))?;
        let target = RequestTarget::from_uri(&uri).map_err(|denial| not_allowed(refusal(&denial)))?;
        let clear = target.scheme() == UrlScheme::Http;
        let prefix = if clear { "http://" } else { "" };
        let grant = HostGrant::parse(&format!("{prefix}{target}"));
        let grant = grant.map_err(|_| not_allowed(format!("{target} is an address and no name")))?;
        if clear && !self.allow_private.iter().any(|private| private.is_for(&target)) {
            return Err(not_allowed(format!("{target} would be reached unencrypted; use https")));
        }
        Ok((uri, target, grant))
    }
}

fn not_allowed(why: String) -> HostRequestError {
    HostRequestError::NotAllowed { why, allow_private: None }
}

fn unsent(target: &RequestTarget, error: SendError) -> HostRequestError {
    match error {
        SendError::Refused(denial) | SendError::RefusedAnswer(denial) => {
            let entry = denial.line().and_then(GrantLine::entry);
            let (why, allow_private) = (refusal(&denial), entry.map(str::to_owned));
            HostRequestError::NotAllowed { why, allow_private }
        }
        SendError::Flawed(flaw) => not_allowed(flaw.to_string()),
        SendError::Limit(_) | SendError::Over => broken_off(target),
        SendError::Fault(fault) => {
            let (phase, code) = (fault.phase.name(), fault.code);
            HostRequestError::Unreachable(format!("{target} was not reached ({phase}: {code})"))
        }
    }
}

fn broken_off(target: &RequestTarget) -> HostRequestError {
    HostRequestError::Unreachable(format!("the answer of {target} broke off, or is too long"))
}

/// Returns the reason of a denial as a part of a sentence.
fn refusal(denial: &Denial) -> String {
    denial.suggestion().trim_end_matches('.').to_owned()
}
