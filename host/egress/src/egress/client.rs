//! Sends one checked request and reports exactly how it ended.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cofferdam_core::failure::{LimitHit, LimitKind, RequestPhase};
use cofferdam_core::limits::{HEADER_BYTES, RESPONSE_FIELDS};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use tokio::time::{Instant, timeout, timeout_at};

use super::authority::RequestTarget;
use super::authorization::Authorization;
use super::connection::ExchangeError;
use super::connector::{Connector, OpenedConnection};
use super::exchange::exchange;
use super::fault::{NetworkFaultParts, SendError, code};
use super::headers::{header_bytes, hide_from_guest};
use super::incoming::{ConnectionLease, ResponseBody};
use super::outgoing::{RequestDeparture, prepare};
use super::policy::EgressPolicy;
use super::pool::{Checkout, ConnectionPool, PoolKey};
use super::progress::ConnectProgress;
use super::refusal;
use super::resolve::Resolve;
use super::tls::Tls;

/// The upper bound of one phase's timeout.
const LONGEST: Duration = Duration::from_secs(3600);

/// The time limit for a pooled connection to become ready. It is idle: its driver needs one poll.
const READY: Duration = Duration::from_millis(100);

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
}

impl EgressTimeouts {
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
/// Uses HTTP/2 if the server supports it over TLS, otherwise HTTP/1.1. No redirects (the guest sees them and
/// sends another request), no proxies, no decompression, no cookies. Dropping a future or a body cancels its
/// own work at once, including connecting and uploading, and nothing else.
#[derive(Clone)]
pub struct EgressClient {
    connector: Arc<Connector>,
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
        let connector = Arc::new(Connector::new(tls, resolver));
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
        departure: RequestDeparture,
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
            let (found, reused) = self.connection(&key, deadline).await?;
            let unanswered = match found {
                Checkout::Own(connection) => {
                    match connection.exchange(request, &upload, timeouts.first_byte).await {
                        Ok((response, connection)) => {
                            let lease =
                                ConnectionLease { connection, key, pool: Arc::clone(&self.pool), upload };
                            let body = |_: &HeaderMap, incoming| ResponseBody::http1(incoming, lease);
                            return receive(response, timeouts, carries, body);
                        }
                        Err(unanswered) => unanswered,
                    }
                }
                Checkout::Shared(share) => match exchange(share, request, &upload, timeouts.first_byte).await
                {
                    Ok((response, running)) => {
                        let body =
                            |headers: &HeaderMap, incoming| ResponseBody::http2(incoming, running, headers);
                        return receive(response, timeouts, carries, body);
                    }
                    Err(unanswered) => unanswered,
                },
            };
            request = match unanswered {
                ExchangeError::Unsent(request, _) if reused => *request,
                ExchangeError::Unsent(_, code) => {
                    return Err(
                        NetworkFaultParts { phase: RequestPhase::Send, code, request_sent: false }.into()
                    );
                }
                ExchangeError::Failed(error) => return Err(error),
            };
        }
    }

    /// Returns a connection for one more request, and whether it served one before.
    ///
    /// If one connection may serve all requests, only one request at a time connects, and the others wait for
    /// it.
    async fn connection(&self, key: &PoolKey, deadline: Instant) -> Result<(Checkout, bool), SendError> {
        if let Some(found) = self.waiting(key).await {
            return Ok((found, true));
        }
        let turn = self.pool.turn(key);
        let mut held = None;
        if let Some(turn) = &turn {
            let late = |_| {
                let (phase, code) = (turn.phase(), code::TIMEOUT);
                SendError::from(NetworkFaultParts { phase, code, request_sent: false })
            };
            held = Some(timeout_at(deadline, turn.turn()).await.map_err(late)?);
            // The request that connected before may have opened a shared connection, or found that the server
            // has none.
            if let Some(found) = self.waiting(key).await {
                return Ok((found, true));
            }
            if self.pool.turn(key).is_none() {
                held = None;
            }
        }
        let (target, own) = (&key.target, ConnectProgress::default());
        let progress = turn.as_deref().unwrap_or(&own);
        let found = match self.connector.open(&self.policy, target, deadline, progress).await? {
            OpenedConnection::Http1(connection) => {
                self.pool.one_at_a_time(target);
                Checkout::Own(connection)
            }
            OpenedConnection::Http2(connection) => {
                let over = |()| NetworkFaultParts {
                    phase: RequestPhase::Send,
                    code: code::CLOSED,
                    request_sent: false,
                };
                Checkout::Shared(self.pool.share(key, connection).ok_or(()).map_err(over)?)
            }
        };
        drop(held);
        Ok((found, false))
    }

    /// Returns a ready connection from the pool.
    async fn waiting(&self, key: &PoolKey) -> Option<Checkout> {
        loop {
            match self.pool.take(key)? {
                Checkout::Own(mut connection) => {
                    if let Ok(Ok(())) = timeout(READY, connection.sender.ready()).await {
                        return Some(Checkout::Own(connection));
                    }
                }
                shared @ Checkout::Shared(_) => return Some(shared),
            }
        }
    }
}

/// Checks the head of a response, and returns it with the reader of its body.
///
/// `carries` is the target if the request carried a credential. Then a partial response is rejected: a secret
/// that is split over several responses is found in none of them.
fn receive<I>(
    response: Response<I>,
    timeouts: &EgressTimeouts,
    carries: Option<&RequestTarget>,
    body: impl FnOnce(&HeaderMap, I) -> ResponseBody,
) -> Result<Response<ResponseBody>, SendError> {
    let (mut head, incoming) = response.into_parts();
    let fault = |code| NetworkFaultParts { phase: RequestPhase::Response, code, request_sent: true };
    // The request asked for no other protocol.
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(fault(code::MALFORMED_RESPONSE).into());
    }
    if let Some(target) = carries.filter(|_| matches!(head.status.as_u16(), 206 | 226)) {
        return Err(SendError::RefusedAnswer(refusal::partial(target, head.status)));
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
    let body = body(&head.headers, incoming).with_patience(timeouts.between_bytes);
    hide_from_guest(&mut head.headers);
    head.extensions.clear();
    Ok(Response::from_parts(head, body))
}
