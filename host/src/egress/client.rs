//! Sends one checked request and says exactly how it ended.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tokio::time::timeout;

use super::authority::Target;
use super::authorization::Authorization;
use super::connection::Connection;
use super::connector::Connector;
use super::fault::{NetworkFaultParts, SendError, classify, code};
use super::headers::{header_bytes, hide_from_guest};
use super::incoming::{Lease, ResponseBody};
use super::outgoing::{Upload, prepare};
use super::policy::Policy;
use super::pool::{Pool, PoolKey};
use super::resolve::Resolve;
use super::stream::Meter;
use crate::failure::{LimitHit, LimitKind, Phase};
use crate::limits::{HEADER_BYTES, RESPONSE_FIELDS};

/// The longest that one phase may be given.
const LONGEST: Duration = Duration::from_secs(3600);

/// How long a connection from the pool may take to be ready. It is idle: its driver needs one turn.
const READY: Duration = Duration::from_millis(100);

/// How long the parts of one request may take; the call's own deadline ends it in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    connect: Duration,
    first_byte: Duration,
}

impl Default for Timeouts {
    /// 10 s to connect, 5 min (the longest call) to the head of the response.
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), first_byte: Duration::from_secs(300) }
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

/// The outgoing HTTP of one loaded connector: one policy, one pool of connections, shared with nobody.
///
/// HTTP/1.1 only. No redirects (the guest sees them, and asks anew), no proxies, no decompression, no
/// cookies. Dropping a future or a body stops what it was doing at once, connecting and uploading
/// included.
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
    pub fn new(tls: Arc<rustls::ClientConfig>, resolver: Arc<dyn Resolve>, policy: Policy) -> Self {
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
    /// A connection is used again where one waits. A server may close it in that moment: only where hyper
    /// hands the request back, which means that no byte of it was written, is it sent once more, on a new
    /// connection. Any other failure is reported; whether to repeat it is for the caller to decide, who
    /// knows whether the operation is idempotent.
    ///
    /// # Errors
    /// [`SendError::Refused`] where the policy does not allow the target or its address,
    /// [`SendError::Flawed`] for a request that is never sent, [`SendError::Limit`] for a message with too
    /// large a head, [`SendError::Fault`] for everything that
    /// goes wrong on the way.
    pub async fn send<B>(
        &self,
        request: Request<B>,
        target: &Target,
        timeouts: &Timeouts,
        authorization: &Authorization,
    ) -> Result<Response<ResponseBody>, SendError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        self.policy.admit(target)?;
        let (mut request, upload) = prepare(request, target, timeouts.first_byte, authorization).await?;
        let key = PoolKey { target: target.clone(), identity: authorization.identity.clone() };
        let mut waiting = self.waiting(&key).await;
        loop {
            let reused = waiting.is_some();
            let mut connection = match waiting.take() {
                Some(connection) => connection,
                None => self.connector.open(&self.policy, target, timeouts.connect).await?,
            };
            let (before, read_before) = (connection.meter.mark(), connection.meter.read());
            let answer = timeout(timeouts.first_byte, connection.sender.try_send_request(request)).await;
            let code = match answer {
                Ok(Ok(response)) => {
                    let pool = Arc::clone(&self.pool);
                    return receive(response, Lease { connection, key, pool, upload });
                }
                Ok(Err(mut error)) => match error.take_message() {
                    Some(unsent) if reused => {
                        request = unsent;
                        continue;
                    }
                    _ => classify(error.error()),
                },
                Err(_) => code::TIMEOUT,
            };
            let meter = connection.stop().await;
            return Err(match code {
                code::HEADERS_TOO_LARGE => SendError::Limit(head_too_large(meter.read() - read_before)),
                _ => failed(&meter, before, &upload, code).into(),
            });
        }
    }

    /// A connection from the pool that is ready.
    async fn waiting(&self, key: &PoolKey) -> Option<Connection> {
        while let Some(mut connection) = self.pool.take(key) {
            if let Ok(Ok(())) = timeout(READY, connection.sender.ready()).await {
                return Some(connection);
            }
        }
        None
    }
}

/// Which limit the head of a response is over, of which `read` bytes came: hyper does not say.
fn head_too_large(read: u64) -> LimitHit {
    match read > HEADER_BYTES as u64 {
        true => LimitHit { limit: LimitKind::ResponseHeaders, configured: HEADER_BYTES as u64, used: read },
        false => LimitHit::at_least_one_over(LimitKind::ResponseFields, RESPONSE_FIELDS),
    }
}

fn failed(meter: &Meter, before: u64, upload: &Upload, code: &'static str) -> NetworkFaultParts {
    let request_sent = meter.mark() != before;
    let whole = request_sent && upload.finished() && !meter.write_failed();
    let phase = if whole { Phase::Response } else { Phase::Send };
    let code = if upload.failed() { code::REQUEST_BODY } else { code };
    NetworkFaultParts { phase, code, request_sent }
}

fn receive(
    response: Response<hyper::body::Incoming>,
    lease: Lease,
) -> Result<Response<ResponseBody>, SendError> {
    let (mut head, incoming) = response.into_parts();
    let fault = |code| NetworkFaultParts { phase: Phase::Response, code, request_sent: true };
    // Nobody asked for another protocol.
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(fault(code::MALFORMED_RESPONSE).into());
    }
    let used = header_bytes(&head.headers) as u64;
    if used > HEADER_BYTES as u64 {
        let (limit, configured) = (LimitKind::ResponseHeaders, HEADER_BYTES as u64);
        return Err(SendError::Limit(LimitHit { limit, configured, used }));
    }
    hide_from_guest(&mut head.headers);
    head.extensions.clear();
    Ok(Response::from_parts(head, ResponseBody::new(incoming, lease)))
}
