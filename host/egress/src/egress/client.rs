//! Sends one checked request and reports exactly how it ended.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cofferdam_core::failure::{LimitHit, LimitKind, RequestPhase};
use cofferdam_core::limits::{HEADER_BYTES, RESPONSE_FIELDS};
use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};

use super::authority::RequestTarget;
use super::authorization::Authorization;
use super::bodies::{ConnectionLease, ResponseBody};
use super::connector::{ConnectionPool, PoolKey};
use super::connector::{NetworkConnector, Resolve};
use super::fault::{NetworkFaultParts, SendError, code};
use super::headers::{header_bytes, hide_from_guest};
use super::http1::{ExchangeError, Http1Connection};
use super::policy;
use super::policy::EgressPolicy;
use super::request::{ObserveDeparture, prepare};
use super::tls::Tls;

/// The upper bound of one phase's timeout.
const LONGEST: Duration = Duration::from_secs(3600);

/// The time limit for a pooled connection to become ready. It is idle: its driver needs one poll.
const READY_TIMEOUT: Duration = Duration::from_millis(100);

/// The timeouts of one request's phases. The call's own deadline applies in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressTimeouts {
    connect: Duration,
    first_byte: Duration,
    between_bytes: Option<Duration>,
}

impl Default for EgressTimeouts {
    /// Returns 10 s to connect, 5 min (the longest call) to the head of the response, and no limit between
    /// its bytes.
    fn default() -> Self {
        let (connect, first_byte) = (Duration::from_secs(10), Duration::from_secs(300));
        Self { connect, first_byte, between_bytes: None }
    }
}

impl EgressTimeouts {
    /// Sets the timeout of name lookup, TCP and TLS together. Values above an hour count as an hour.
    #[must_use]
    pub fn with_connect(mut self, connect: Duration) -> Self {
        self.connect = connect.min(LONGEST);
        self
    }

    /// Sets the timeout from writing the request to the head of its response. Values above an hour count as
    /// an hour. It also limits the wait for the first byte of a GET's body of unknown length.
    #[must_use]
    pub fn with_first_byte(mut self, first_byte: Duration) -> Self {
        self.first_byte = first_byte.min(LONGEST);
        self
    }

    /// Sets the timeout of each next part of the response's body, which runs only while the part is awaited.
    /// Values above an hour count as an hour.
    #[must_use]
    pub fn with_between_bytes(mut self, between_bytes: Duration) -> Self {
        self.between_bytes = Some(between_bytes.min(LONGEST));
        self
    }
}

/// The HTTP client of one loaded connector, with its own policy and connection pool.
///
/// Speaks HTTP/1.1. No redirects (the guest sees them and sends another request), no proxies, no
/// decompression, no cookies. Dropping a future or a body cancels its own work at once, including connecting
/// and uploading, and nothing else.
#[derive(Clone)]
pub struct EgressClient {
    connector: Arc<NetworkConnector>,
    policy: Arc<EgressPolicy>,
    pool: Arc<ConnectionPool>,
}

impl fmt::Debug for EgressClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl EgressClient {
    /// Creates a client that reaches what `policy` allows. `tls` comes from
    /// [`default_tls`](super::default_tls).
    #[must_use]
    pub fn new(tls: Arc<Tls>, resolver: Arc<dyn Resolve>, policy: EgressPolicy) -> Self {
        let connector = Arc::new(NetworkConnector::new(tls, resolver));
        Self { connector, policy: Arc::new(policy), pool: Arc::default() }
    }

    /// Returns the policy.
    #[must_use]
    pub fn policy(&self) -> &EgressPolicy {
        &self.policy
    }

    /// Sends `request` to `target`, and returns the response once its head has arrived.
    ///
    /// `authorization` is added last, when everything else about the request is final. Only path and query of
    /// the request's URI are used, and `Host` is set here: both name the target.
    ///
    /// An idle connection is reused. The server may close it at that moment, so the request is sent once more
    /// on a new connection, but only if it is handed back, which means that no byte of it was written. Any
    /// other failure is reported; the caller, which knows whether the operation is idempotent, decides about
    /// a retry.
    ///
    /// # Errors
    /// [`SendError::Refused`] if the policy does not allow the target, its address or the method,
    /// [`SendError::RefusedAnswer`] for a response that the guest must not have, [`SendError::Flawed`] for a
    /// request that is never sent, [`SendError::Limit`] for a message with too large a head,
    /// [`SendError::Fault`] for every failure on the way.
    pub async fn send<B>(
        &self,
        request: Request<B>,
        target: &RequestTarget,
        timeouts: &EgressTimeouts,
        authorization: &Authorization,
        departure: Option<Arc<dyn ObserveDeparture>>,
    ) -> Result<Response<ResponseBody>, SendError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        self.policy.admit(target)?;
        self.policy.admit_method(request.method(), request.headers())?;
        let (mut request, upload) =
            prepare(request, target, timeouts.first_byte, authorization, departure).await?;
        let carries = authorization.carries_credential().then_some(target);
        let key = PoolKey { target: target.clone(), identity: authorization.identity.clone() };
        let deadline = Instant::now() + timeouts.connect;
        loop {
            let (connection, reused) = match self.waiting(&key).await {
                Some(connection) => (connection, true),
                None => (self.connector.open(&self.policy, target, deadline).await?, false),
            };
            match connection.exchange(request, &upload, timeouts.first_byte).await {
                Ok((response, connection)) => {
                    let lease = ConnectionLease { connection, key, pool: Arc::clone(&self.pool), upload };
                    return receive(response, timeouts, carries, lease);
                }
                Err(ExchangeError::NotSent(unsent, _)) if reused => request = *unsent,
                Err(ExchangeError::NotSent(_, code)) => {
                    let phase = RequestPhase::Send;
                    return Err(NetworkFaultParts { phase, code, request_sent: false }.into());
                }
                Err(ExchangeError::Failed(error)) => return Err(error),
            }
        }
    }

    /// Returns a ready connection from the pool.
    async fn waiting(&self, key: &PoolKey) -> Option<Http1Connection> {
        loop {
            let mut connection = self.pool.take(key)?;
            if let Ok(Ok(())) = timeout(READY_TIMEOUT, connection.sender.ready()).await {
                return Some(connection);
            }
        }
    }
}

/// Checks the head of a response, and returns it with the reader of its body.
///
/// `carries` is the target if the request carried a credential. Then a partial response is rejected: a secret
/// that is split over several responses is found in none of them.
fn receive(
    response: Response<Incoming>,
    timeouts: &EgressTimeouts,
    carries: Option<&RequestTarget>,
    lease: ConnectionLease,
) -> Result<Response<ResponseBody>, SendError> {
    let (mut head, incoming) = response.into_parts();
    let fault = |code| NetworkFaultParts { phase: RequestPhase::Response, code, request_sent: true };
    // The request asked for no other protocol.
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(fault(code::MALFORMED_RESPONSE).into());
    }
    if let Some(target) = carries.filter(|_| matches!(head.status.as_u16(), 206 | 226)) {
        return Err(SendError::RefusedAnswer(policy::partial(target, head.status)));
    }
    let over = |limit, configured, used| Err(SendError::Limit(LimitHit::new(limit, configured, used)));
    let used = header_bytes(&head.headers) as u64;
    if used > HEADER_BYTES as u64 {
        return over(LimitKind::ResponseHeaders, HEADER_BYTES as u64, used);
    }
    let fields = head.headers.len() as u64;
    if fields > RESPONSE_FIELDS {
        return over(LimitKind::ResponseFields, RESPONSE_FIELDS, fields);
    }
    let body = ResponseBody::new(incoming, lease, timeouts.between_bytes);
    hide_from_guest(&mut head.headers);
    head.extensions.clear();
    Ok(Response::from_parts(head, body))
}
