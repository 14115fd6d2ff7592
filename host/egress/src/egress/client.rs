//! Sends one checked request and says exactly how it ended.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cofferdam_core::failure::{LimitHit, LimitKind, Phase};
use cofferdam_core::limits::{HEADER_BYTES, RESPONSE_FIELDS};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use tokio::time::{Instant, timeout, timeout_at};

use super::authority::Target;
use super::authorization::Authorization;
use super::connection::Unanswered;
use super::connector::{Connector, Opened};
use super::exchange::exchange;
use super::fault::{NetworkFaultParts, SendError, code};
use super::headers::{header_bytes, hide_from_guest};
use super::incoming::{Lease, ResponseBody};
use super::outgoing::{Departure, prepare};
use super::policy::Policy;
use super::pool::{Found, Pool, PoolKey};
use super::progress::Progress;
use super::refusal;
use super::resolve::Resolve;
use super::tls::Tls;

/// The longest that one phase may be given.
const LONGEST: Duration = Duration::from_secs(3600);

/// How long a connection from the pool may take to be ready. It is idle: its driver needs one turn.
const READY: Duration = Duration::from_millis(100);

/// How long the parts of one request may take; the call's own deadline ends it in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    connect: Duration,
    first_byte: Duration,
    between_bytes: Option<Duration>,
}

impl Default for Timeouts {
    /// 10 s to connect, 5 min (the longest call) to the head of the response, any time between its bytes.
    fn default() -> Self {
        let (connect, first_byte) = (Duration::from_secs(10), Duration::from_secs(300));
        Self { connect, first_byte, between_bytes: None }
    }
}

impl Timeouts {
    /// At most this long for name lookup, TCP and TLS together; above an hour is an hour.
    #[must_use]
    pub fn with_connect(mut self, connect: Duration) -> Self {
        self.connect = connect.min(LONGEST);
        self
    }

    /// At most this long from writing the request to the head of its response; above an hour is an hour.
    /// The wait for the first byte of a GET's body, where it has one of unknown length, is as long.
    #[must_use]
    pub fn with_first_byte(mut self, first_byte: Duration) -> Self {
        self.first_byte = first_byte.min(LONGEST);
        self
    }
}

impl Timeouts {
    /// At most this long for each next part of the response's body, while somebody waits for it; above an
    /// hour is an hour.
    #[must_use]
    pub fn with_between_bytes(mut self, between_bytes: Duration) -> Self {
        self.between_bytes = Some(between_bytes.min(LONGEST));
        self
    }
}

/// The outgoing HTTP of one loaded connector: one policy, one pool of connections, shared with nobody.
///
/// HTTP/2 where the server speaks it over TLS, otherwise HTTP/1.1. No redirects (the guest sees them, and
/// asks anew), no proxies, no decompression, no cookies. Dropping a future or a body stops what it was doing
/// at once, connecting and uploading included, and nothing else.
#[derive(Clone)]
pub struct Client {
    connector: Arc<Connector>,
    policy: Arc<Policy>,
    pool: Arc<Pool>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Client {
    /// A client that reaches what `policy` allows. `tls` comes from [`default_tls`](super::default_tls).
    #[must_use]
    pub fn new(tls: Arc<Tls>, resolver: Arc<dyn Resolve>, policy: Policy) -> Self {
        let connector = Arc::new(Connector::new(tls, resolver));
        Self { connector, policy: Arc::new(policy), pool: Arc::default() }
    }

    /// What it may reach.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Sends `request` to `target`, and returns the response once its head is there.
    ///
    /// `authorization` is added last, when everything else about the request is final. Of the request's URI
    /// only path and query count, and `Host` is set here: both name the target.
    ///
    /// A connection is used again where one waits. A server may close it in that moment: only where the
    /// request is handed back, which means that no byte of it was written, is it sent once more, on a new
    /// connection. Any other failure is reported; whether to repeat it is for the caller to decide, who
    /// knows whether the operation is idempotent.
    ///
    /// # Errors
    /// [`SendError::Refused`] where the policy does not allow the target, its address or the method,
    /// [`SendError::RefusedAnswer`] for an answer that the guest must not have, [`SendError::Flawed`] for a request that is never sent, [`SendError::Limit`] for a message with too
    /// large a head, [`SendError::Fault`] for everything that
    /// goes wrong on the way.
    pub async fn send<B>(
        &self,
        request: Request<B>,
        target: &Target,
        timeouts: &Timeouts,
        authorization: &Authorization,
        departure: Departure,
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
                Found::Own(connection) => {
                    match connection.exchange(request, &upload, timeouts.first_byte).await {
                        Ok((response, connection)) => {
                            let lease = Lease { connection, key, pool: Arc::clone(&self.pool), upload };
                            let body = |_: &HeaderMap, incoming| ResponseBody::http1(incoming, lease);
                            return receive(response, timeouts, carries, body);
                        }
                        Err(unanswered) => unanswered,
                    }
                }
                Found::Shared(share) => match exchange(share, request, &upload, timeouts.first_byte).await {
                    Ok((response, running)) => {
                        let body =
                            |headers: &HeaderMap, incoming| ResponseBody::http2(incoming, running, headers);
                        return receive(response, timeouts, carries, body);
                    }
                    Err(unanswered) => unanswered,
                },
            };
            request = match unanswered {
                Unanswered::Unsent(request, _) if reused => *request,
                Unanswered::Unsent(_, code) => {
                    return Err(NetworkFaultParts { phase: Phase::Send, code, request_sent: false }.into());
                }
                Unanswered::Failed(error) => return Err(error),
            };
        }
    }

    /// A connection for one more request, and whether it served one before.
    ///
    /// Where one connection may do for all, only one request at a time connects, and the others wait for it.
    async fn connection(&self, key: &PoolKey, deadline: Instant) -> Result<(Found, bool), SendError> {
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
            // Whoever had the turn before may have found a connection for all, or that there is none.
            if let Some(found) = self.waiting(key).await {
                return Ok((found, true));
            }
            if self.pool.turn(key).is_none() {
                held = None;
            }
        }
        let (target, own) = (&key.target, Progress::default());
        let progress = turn.as_deref().unwrap_or(&own);
        let found = match self.connector.open(&self.policy, target, deadline, progress).await? {
            Opened::Http1(connection) => {
                self.pool.one_at_a_time(target);
                Found::Own(connection)
            }
            Opened::Http2(connection) => {
                let over =
                    |()| NetworkFaultParts { phase: Phase::Send, code: code::CLOSED, request_sent: false };
                Found::Shared(self.pool.share(key, connection).ok_or(()).map_err(over)?)
            }
        };
        drop(held);
        Ok((found, false))
    }

    /// A connection from the pool that is ready.
    async fn waiting(&self, key: &PoolKey) -> Option<Found> {
        loop {
            match self.pool.take(key)? {
                Found::Own(mut connection) => {
                    if let Ok(Ok(())) = timeout(READY, connection.sender.ready()).await {
                        return Some(Found::Own(connection));
                    }
                }
                shared @ Found::Shared(_) => return Some(shared),
            }
        }
    }
}

/// Checks the head of a response, and hands it on with what reads its body.
///
/// `carries` is the target where the request carried a credential: then a part of an answer is refused, since a
/// secret that comes in pieces is found in none of them.
fn receive<I>(
    response: Response<I>,
    timeouts: &Timeouts,
    carries: Option<&Target>,
    body: impl FnOnce(&HeaderMap, I) -> ResponseBody,
) -> Result<Response<ResponseBody>, SendError> {
    let (mut head, incoming) = response.into_parts();
    let fault = |code| NetworkFaultParts { phase: Phase::Response, code, request_sent: true };
    // Nobody asked for another protocol.
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
