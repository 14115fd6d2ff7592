//! The gate in front of the network: `wasi:http` requests are admitted, counted, sent and observed here.
//!
//! A refusal is decided before anything leaves, is recorded, and ends the attempt: the guest gets the
//! standard error, but has no time to act on it. After a verdict no other request is admitted.

use std::io;
use std::sync::Arc;

use cofferdam_core::failpoint;
use cofferdam_core::failure::{LimitHit, LimitKind};
use cofferdam_core::limits;
use cofferdam_core::secret::{Scanner, SecretMatch};
use cofferdam_egress::egress::{
    Authorization, AuthorizationError, Authorize, EgressClient, EgressPolicy, EgressTimeouts,
    NetworkFaultParts, PrivateGrant, ReadOnly, RequestFlaw, RequestTarget, Resolve, ResponseBody, SendError,
    Tls, find_in_fields, find_in_uri, guest_may_set, header_bytes, line_bytes,
};
use cofferdam_model::action::ActionScope;
use cofferdam_model::manifest::Manifest;
use http::header::ACCEPT_ENCODING;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use super::attempt_log::{AttemptLog, Termination};
use super::bodies::GuestResponseBody;
use super::bodies::{GuestRequestBody, RequestRules, SignerBuffer};
use super::guards::{AttemptGuards, HostWait};
use super::http_types::fields_cost;
use super::request_log::ObservedRequest;
use super::request_observer::{RequestObserver, timeouts};
use crate::memory::GrowthRefusal;
use crate::memory::{MemoryCharge, REQUEST_BYTES};

/// Bytes of a request's body that are held for a guest in one piece.
const OUTGOING_CHUNK: usize = 16 * 1024;

/// The cost of a body that a guest writes: two chunks, which wait until they are sent, and their queue.
pub(super) const OUTGOING_BODY_BYTES: u64 = 2 * OUTGOING_CHUNK as u64 + 2 * 1024;

/// The recorded code of a request that is never sent because the guest built it wrongly.
const INVALID_REQUEST: &str = "invalid_request";

/// The operator's network settings, for every connector of a host.
#[derive(Clone)]
pub struct EgressSettings {
    /// The verification of servers.
    pub tls: Arc<Tls>,
    /// The resolver of host names.
    pub resolver: Arc<dyn Resolve>,
    /// The private hosts that may be reached.
    pub allow_private: Arc<[PrivateGrant]>,
}

impl EgressSettings {
    /// Returns a client of this connector's own, with its policy: connections are never shared between
    /// connectors.
    pub(crate) fn client(&self, manifest: &Manifest) -> EgressClient {
        EgressClient::new(Arc::clone(&self.tls), Arc::clone(&self.resolver), self.policy(manifest))
    }

    /// Returns the policy for the hosts that this connector may reach.
    pub(crate) fn policy(&self, manifest: &Manifest) -> EgressPolicy {
        EgressPolicy::new(manifest.hosts(), &self.allow_private).with_methods(manifest.methods())
    }
}

/// The gate of one attempt.
pub(crate) struct HttpGate {
    client: EgressClient,
    ledger: Arc<AttemptLog>,
    slots: Arc<Semaphore>,
    scope: Option<Arc<ActionScope>>,
    credentials: Option<Arc<dyn Authorize>>,
    guards: AttemptGuards,
    /// The restriction of an operation that is declared read-only.
    read_only: Option<Arc<ReadOnly>>,
    /// The charge of the guest's part of the request that is sent next.
    next_request: Option<Arc<MemoryCharge>>,
}

type SendFuture = Box<dyn Future<Output = Result<(Response<WasiBody>, IoFuture), Error>> + Send>;
type IoFuture = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl HttpGate {
    pub(crate) fn new(
        client: EgressClient,
        ledger: Arc<AttemptLog>,
        scope: Option<Arc<ActionScope>>,
        credentials: Option<Arc<dyn Authorize>>,
        guards: AttemptGuards,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(limits::CONCURRENT_REQUESTS));
        let (read_only, next_request) = (None, None);
        Self { client, ledger, slots, scope, credentials, guards, read_only, next_request }
    }

    /// Restricts the gate to reading if the operation is declared read-only.
    pub(crate) fn with_read_only(mut self, read_only: Option<&Arc<ReadOnly>>) -> Self {
        self.read_only = read_only.cloned();
        self
    }

    /// Returns the attempt's ledger, for the gates without a state of their own.
    pub(crate) fn ledger(&self) -> &AttemptLog {
        &self.ledger
    }

    /// Returns the ledger for uses that outlive a call into the host.
    pub(crate) fn shared_ledger(&self) -> &Arc<AttemptLog> {
        &self.ledger
    }

    /// Counts an attempt to send.
    ///
    /// # Errors
    /// It exceeds the limit, which ends the attempt.
    pub(super) fn count_request(&self) -> Result<(), GrowthRefusal> {
        let number = self.ledger.count_request();
        if number <= limits::REQUESTS {
            return Ok(());
        }
        let hit = LimitHit::new(LimitKind::Requests, limits::REQUESTS, number);
        self.ledger.end(Termination::Limit(hit));
        Err(GrowthRefusal(hit))
    }

    /// Sets the charge of the guest's part of the request that is sent next; it is released when the request
    /// is sent.
    pub(super) fn next_request_costs(&mut self, charge: Option<Arc<MemoryCharge>>) {
        self.next_request = charge;
    }

    /// Returns the scanner for secrets in the traffic; none if there are no secrets to find.
    pub(crate) fn scanner(&self) -> Option<Arc<Scanner>> {
        scanner(self.credentials.as_deref())
    }

    /// Returns the credentials that the attempt's requests may carry.
    pub(crate) fn credentials(&self) -> Option<&dyn Authorize> {
        self.credentials.as_deref()
    }

    /// Checks everything that can be decided without the network.
    fn admit(
        &self,
        request: &Request<WasiBody>,
        scanner: Option<&Scanner>,
    ) -> Result<RequestTarget, Termination> {
        // Before the policy: a refusal names the requested host, and a secret may be part of that name.
        if let Some(found) = scanner.and_then(|scanner| find_in_head(scanner, request)) {
            return Err(Termination::secret_in_request(None, found));
        }
        let target = self.client.policy().decide(request.uri(), self.scope.as_deref());
        let target = target.map_err(Termination::Denied)?;
        if let Some(read_only) = &self.read_only {
            read_only.admit(request).map_err(Termination::Denied)?;
        }
        let policy = self.client.policy();
        policy.admit_method(request.method(), request.headers()).map_err(Termination::Denied)?;
        let mark = || self.credentials().and_then(|credentials| credentials.credential_fingerprint(&target));
        self.guards.admit(&target, mark).map_err(Termination::Circuit)?;
        Ok(target)
    }

    /// Records a request that is refused, and ends the attempt.
    fn refuse(&self, request: &Request<WasiBody>, verdict: Termination, scanner: Option<&Scanner>) {
        let (method, clock) = (request.method().clone(), &*self.guards.clock);
        let mut refused = ObservedRequest::refused(method, request.uri(), verdict.code(), scanner, clock);
        refused.keyed = self.guards.key_watch.is_keyed(request.headers());
        // The attempt is over in any case, and its memory with it: there is no charge.
        self.ledger.request_log.add(refused);
        self.ledger.end(verdict);
    }
}

impl WasiHttpHooks for HttpGate {
    fn forbidden_header_filter(&mut self) -> Arc<dyn Fn(&HeaderName) -> bool + Send + Sync> {
        match self.credentials.clone() {
            None => Arc::new(|name| !guest_may_set(name)),
            Some(credentials) => {
                Arc::new(move |name| !guest_may_set(name) || credentials.writes_header(name))
            }
        }
    }

    /// A guest's output is held here until it is sent, outside any linear memory: at most two chunks for each
    /// of its handles.
    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        OUTGOING_CHUNK
    }

    // The library's own implementation would write a line to the operator's log for each.

    fn p2_error_from_hyper(&mut self, _: &hyper::Error) -> ErrorCode {
        ErrorCode::HttpProtocolError
    }

    fn p2_error_from_connect(&mut self, _: &io::Error) -> ErrorCode {
        ErrorCode::ConnectionRefused
    }

    fn p2_error_from_tls(&mut self, _: &io::Error) -> ErrorCode {
        ErrorCode::TlsProtocolError
    }

    fn send_request(
        &mut self,
        mut request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: IoFuture,
    ) -> SendFuture {
        let scanner = self.scanner();
        let target = match self.admit(&request, scanner.as_deref()) {
            Ok(target) if !self.ledger.is_over() => target,
            Ok(_) => return Box::new(async { Err(Error::HttpRequestDenied) }),
            Err(verdict) => {
                self.refuse(&request, verdict, scanner.as_deref());
                return Box::new(async { Err(Error::HttpRequestDenied) });
            }
        };
        if scanner.is_some() {
            // Compressed content cannot be searched, so the request accepts none.
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        let ledger = &self.ledger;
        let more = (scanner.as_deref(), options.as_ref());
        let Ok(observer) = RequestObserver::new(ledger, &self.guards, &request, target.to_string(), more)
        else {
            return Box::new(async { Err(Error::HttpRequestDenied) });
        };
        let line = line_bytes(request.method(), request.uri());
        let rules = RequestRules {
            read_only: self.read_only.clone(),
            client: self.client.clone(),
            credentials: self.credentials.clone(),
            observer: Arc::new(observer),
            head_bytes: line.saturating_add(header_bytes(request.headers())),
        };
        let guarded = GuardedRequest {
            rules: Arc::new(rules),
            target,
            timeouts: timeouts(options.as_ref()),
            slots: Arc::clone(&self.slots),
            scanner,
            _guest_part: self.next_request.take(),
        };
        Box::new(async move {
            let response = guarded.send(request).await?;
            Ok((response, Box::new(async { Ok(()) }) as IoFuture))
        })
    }
}

/// An admitted request, which runs concurrently with the guest.
struct GuardedRequest {
    rules: Arc<RequestRules>,
    target: RequestTarget,
    timeouts: EgressTimeouts,
    slots: Arc<Semaphore>,
    scanner: Option<Arc<Scanner>>,
    /// The charge of the guest's part, held until the head is sent and answered.
    _guest_part: Option<Arc<MemoryCharge>>,
}

/// The answer to a request, before it is checked.
struct RequestAnswer {
    response: Response<ResponseBody>,
    wait: Option<Arc<HostWait>>,
    /// True if the host repairs the rejection of the request, by a new token for the next attempt.
    renews: bool,
}

/// The reason why a request has no answer.
enum RequestFailure {
    /// The attempt ends.
    Ended(Termination),
    /// The network failed.
    Fault(NetworkFaultParts),
    /// The request is the guest's error.
    Flawed(Error),
    /// The attempt was already judged when the request was to be sent.
    Late,
}

impl From<AuthorizationError> for RequestFailure {
    fn from(error: AuthorizationError) -> Self {
        Self::Ended(error.into())
    }
}

impl From<SendError> for RequestFailure {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Refused(denial) | SendError::RefusedAnswer(denial) => {
                Self::Ended(Termination::Denied(denial))
            }
            SendError::Limit(hit) => Self::Ended(Termination::Limit(hit)),
            SendError::Fault(fault) => Self::Fault(fault),
            SendError::Over => Self::Late,
            SendError::Flawed(flaw) => Self::Flawed(match flaw {
                RequestFlaw::ContentLength => Error::HttpRequestBodySize(None),
                RequestFlaw::Path => Error::HttpRequestUriInvalid,
                RequestFlaw::Credential => Error::HttpRequestHeaderSectionSize(None),
            }),
        }
    }
}

impl GuardedRequest {
    /// Sends the request, and returns the response as the guest may have it.
    async fn send(self, request: Request<WasiBody>) -> Result<Response<WasiBody>, Error> {
        let RequestRules { observer, credentials, .. } = &*self.rules;
        let ledger = &observer.ledger;
        let denied = |_: GrowthRefusal| Error::HttpRequestDenied;
        let charge = Arc::new(MemoryCharge::try_new(ledger, REQUEST_BYTES).map_err(denied)?);
        let permit = Arc::clone(&self.slots).acquire_owned().await;
        let permit = permit.map_err(|_| Error::ConnectionLimitReached)?;
        // A request that was admitted before the verdict ends with it: this future may be polled before the
        // attempt is dropped.
        let answer = tokio::select! {
            biased;
            () = ledger.ended() => return Err(Error::HttpRequestDenied),
            answer = self.exchange(request, &charge) => answer,
        };
        let RequestAnswer { response, wait, renews } = match answer {
            Ok(answer) => answer,
            Err(RequestFailure::Ended(verdict)) => {
                observer.end_attempt(verdict);
                return Err(Error::HttpRequestDenied);
            }
            Err(RequestFailure::Fault(fault)) => return Err(observer.saw_fault(fault, false)),
            Err(RequestFailure::Late) => return Err(Error::HttpRequestDenied),
            Err(RequestFailure::Flawed(error)) => {
                observer.failed(None, INVALID_REQUEST);
                return Err(error);
            }
        };
        let (head, body) = response.into_parts();
        // Computed again: sending may have obtained a new token.
        let scanner = scanner(credentials.as_deref());
        let bindings = credentials.as_ref().map(|credentials| credentials.bindings_for(&self.target));
        let bindings = bindings.unwrap_or_default();
        if let Some(found) = scanner.as_deref().and_then(|scanner| find_in_fields(scanner, &head.headers)) {
            observer.end_attempt(Termination::secret_in_response(&observer.host, found, &bindings));
            return Err(Error::HttpRequestDenied);
        }
        observer.saw_answer(&head, renews);
        // The response is kept until the guest asks for it.
        charge.add(fields_cost(&head.headers)).map_err(denied)?;
        if let Some(wait) = &wait {
            wait.pause();
        }
        let observer = Arc::clone(observer);
        let body = GuestResponseBody::new(body, observer, (bindings, scanner), permit, charge, wait);
        Ok(Response::from_parts(head, body.boxed_unsync()))
    }

    /// Waits for the request's turn, and sends it with its credentials.
    async fn exchange(
        &self,
        request: Request<WasiBody>,
        charge: &Arc<MemoryCharge>,
    ) -> Result<RequestAnswer, RequestFailure> {
        let RequestRules { observer, credentials, client, .. } = &*self.rules;
        let RequestObserver { guards, host, .. } = &**observer;
        let (head, body) = request.into_parts();
        guards.turn(host).await.map_err(|hit| RequestFailure::Ended(Termination::Limit(hit)))?;
        let authorization = match credentials {
            Some(credentials) => credentials.authorize(&self.target, &head).await?,
            None => Authorization::default(),
        };
        observer.authorized(&authorization.bindings);
        let buffer = authorization.signer.as_ref().map(|signer| SignerBuffer {
            charge: Arc::clone(charge),
            base: charge.bytes(),
            most: signer.holds_at_most(self.target.scheme()),
            passed: 0,
        });
        let wait = guards.begin_wait(host);
        let body = GuestRequestBody::new(body, &self.rules, self.scanner.clone(), buffer, wait.clone());
        let request = Request::from_parts(head, body);
        let observer = Arc::clone(observer);
        let response =
            client.send(request, &self.target, &self.timeouts, &authorization, Some(observer)).await;
        failpoint::pass("request.answered");
        let response = response?;
        let mut renews = false;
        if let Some(credentials) = credentials.as_ref().filter(|_| response.status() == 401) {
            renews = credentials.can_renew(&self.target);
            credentials.credential_rejected(&self.target, &authorization).await;
        }
        Ok(RequestAnswer { response, wait, renews })
    }
}

/// Returns the scanner for the attempt's credentials, if there are any.
fn scanner(credentials: Option<&dyn Authorize>) -> Option<Arc<Scanner>> {
    credentials.map(Authorize::scanner).filter(|scanner| !scanner.is_empty())
}

/// Finds a secret in the parts of a request before the body.
fn find_in_head<B>(scanner: &Scanner, request: &Request<B>) -> Option<SecretMatch> {
    let found = find_in_uri(scanner, request.uri());
    let found = found.or_else(|| scanner.find(request.method().as_str().as_bytes()));
    found.or_else(|| find_in_fields(scanner, request.headers()))
}
