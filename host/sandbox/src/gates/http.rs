//! The gate in front of the network: `wasi:http` requests are admitted, counted, sent and observed here.
//!
//! A refusal is decided before anything leaves, is recorded, and ends the attempt: the guest gets the
//! standard error, but has no time to act on it. After a verdict no other request is admitted.

use std::io;
use std::sync::Arc;

use cofferdam_core::failpoint;
use cofferdam_core::failure::{Denial, DenialCode, LimitHit, LimitKind};
use cofferdam_core::limits;
use cofferdam_core::secret::{Scanner, SecretMatch};
use cofferdam_egress::egress::ResponseBody;
use cofferdam_egress::egress::{
    Authorization, Authorize, CheckedTrailers, CountedError, EgressClient, EgressPolicy, LimitedBody,
    PrivateGrant, ReadOnly, RequestDeparture, RequestTarget, Resolve, ScannedError, SecretFilterBody,
    SendError, Tls, Unauthorized, find_in_fields, find_in_uri, guest_may_set, header_bytes, line_bytes,
};
use cofferdam_model::action::ActionScope;
use cofferdam_model::manifest::Manifest;
use http::header::ACCEPT_ENCODING;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use super::body::{BodyHolding, MeteredBody};
use super::departure::DepartingRequest;
use super::guards::Guards;
use super::guest_error::{flawed, guest_error};
use super::haste::{GuestTimeouts, timeouts};
use super::held::PermitBody;
use super::host_wait::AwaitedHost;
use super::http_types::fields_cost;
use super::ledger::{AttemptLog, SeenFault, SeenStatus, Termination};
use super::retry_after::retry_after_ms;
use super::trailers::TrailersRule;
use super::without_handles::WithoutHandles;
use crate::limiter::GrowthRefusal;
use crate::memory::{MemoryCharge, REQUEST_BYTES};

/// Bytes of a request's body that are held for a guest in one piece.
const OUTGOING_CHUNK: usize = 16 * 1024;

/// The cost of a body that a guest writes: two chunks, which wait until they are sent, and their queue.
pub(super) const OUTGOING_BODY_BYTES: u64 = 2 * OUTGOING_CHUNK as u64 + 2 * 1024;

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
    /// Returns a client and a policy of this connector's own: connections are never shared between
    /// connectors.
    pub(crate) fn for_connector(&self, manifest: &Manifest) -> EgressGate {
        EgressGate { client: self.client(manifest) }
    }

    /// Returns the client alone.
    pub(crate) fn client(&self, manifest: &Manifest) -> EgressClient {
        EgressClient::new(Arc::clone(&self.tls), Arc::clone(&self.resolver), self.policy(manifest))
    }

    /// Returns the policy for the hosts that this connector may reach.
    pub(crate) fn policy(&self, manifest: &Manifest) -> EgressPolicy {
        EgressPolicy::new(manifest.hosts(), &self.allow_private).with_methods(manifest.methods())
    }
}

/// The network access of one connector.
#[derive(Clone)]
pub(crate) struct EgressGate {
    client: EgressClient,
}

/// The reason why a request has no response.
enum UnsentRequest {
    Unauthorized(Unauthorized),
    Send(SendError),
}

/// The gate of one attempt.
pub(crate) struct HttpGate {
    egress: EgressGate,
    ledger: Arc<AttemptLog>,
    slots: Arc<Semaphore>,
    scope: Option<Arc<ActionScope>>,
    credentials: Option<Arc<dyn Authorize>>,
    guards: Guards,
    /// The restriction of an operation that is declared read-only.
    read_only: Option<Arc<ReadOnly>>,
    /// The charge of the guest's part of the request that is sent next.
    next_request: Option<Arc<MemoryCharge>>,
}

type SendFuture = Box<dyn Future<Output = Result<(Response<WasiBody>, IoFuture), Error>> + Send>;
type IoFuture = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl HttpGate {
    pub(crate) fn new(
        egress: &EgressGate,
        ledger: Arc<AttemptLog>,
        scope: Option<Arc<ActionScope>>,
        credentials: Option<Arc<dyn Authorize>>,
        guards: Guards,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(limits::CONCURRENT_REQUESTS));
        let (read_only, next_request) = (None, None);
        Self { egress: egress.clone(), ledger, slots, scope, credentials, guards, read_only, next_request }
    }

    /// Restricts the gate to reading if the operation is declared read-only.
    pub(crate) fn held_to(mut self, read_only: Option<&Arc<ReadOnly>>) -> Self {
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
    pub(super) fn attempts_to_send(&self) -> Result<(), GrowthRefusal> {
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
            return Err(in_request(None, found));
        }
        let target = self.egress.client.policy().decide(request.uri(), self.scope.as_deref());
        let target = target.map_err(Termination::Denied)?;
        if let Some(read_only) = &self.read_only {
            read_only.admit(request).map_err(Termination::Denied)?;
        }
        let policy = self.egress.client.policy();
        policy.admit_method(request.method(), request.headers()).map_err(Termination::Denied)?;
        let mark = || self.credentials().and_then(|credentials| credentials.credential_mark(&target));
        self.guards.admit(&target, mark).map_err(Termination::Circuit)?;
        Ok(target)
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
        let sought = self.scanner();
        let target = match self.admit(&request, sought.as_deref()) {
            Ok(target) if !self.ledger.is_over() => target,
            Ok(_) => return Box::new(async { Err(Error::HttpRequestDenied) }),
            Err(verdict) => {
                self.ledger.end(verdict);
                return Box::new(async { Err(Error::HttpRequestDenied) });
            }
        };
        if sought.is_some() {
            // Compressed content cannot be searched, so the request accepts none.
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        let haste = GuestTimeouts::of(options.as_ref());
        let timeouts = timeouts(options);
        let (client, credentials) = (self.egress.client.clone(), self.credentials.clone());
        let (ledger, slots) = (Arc::clone(&self.ledger), Arc::clone(&self.slots));
        let guards = self.guards.clone();
        let line = line_bytes(request.method(), request.uri());
        let trailers = TrailersRule {
            read_only: self.read_only.clone(),
            client: client.clone(),
            credentials: credentials.clone(),
            ledger: Arc::clone(&ledger),
            head_bytes: line.saturating_add(header_bytes(request.headers())),
        };
        let costs = self.next_request.take();
        let request_number = ledger.begins(target.to_string(), request.method().clone());
        let departure = DepartingRequest::new(
            Arc::clone(&ledger),
            (request_number, line as u64),
            Arc::clone(&guards.unkeyed),
            guards.unkeyed.judge(&request, &target),
        );
        Box::new(async move {
            // Held until the head is sent and answered.
            let _costs = costs;
            let charge = MemoryCharge::of(&ledger, REQUEST_BYTES).map_err(|_| Error::HttpRequestDenied)?;
            let charge = Arc::new(charge);
            let permit = slots.acquire_owned().await.map_err(|_| Error::ConnectionLimitReached)?;
            let host = target.to_string();
            let (head, body) = request.into_parts();
            let mut host_wait = None;
            // Requests run concurrently with the guest. One that was admitted before the verdict ends with
            // it: this future may be polled before the attempt is dropped.
            let send = async {
                guards.turn(&host).await.map_err(|hit| UnsentRequest::Send(SendError::Limit(hit)))?;
                let authorization = match &credentials {
                    Some(credentials) => match credentials.authorize(&target, &head).await {
                        Ok(authorization) => authorization,
                        Err(unauthorized) => return Err(UnsentRequest::Unauthorized(unauthorized)),
                    },
                    None => Authorization::default(),
                };
                let body = match &authorization.signer {
                    Some(signer) => {
                        let held = BodyHolding::AllUpTo(signer.holds_at_most(target.scheme()));
                        MeteredBody::new(body, Arc::clone(&charge), held).boxed_unsync()
                    }
                    None => body,
                };
                host_wait = guards.waits_for(&host);
                let body = match &host_wait {
                    Some(wait) => AwaitedHost::upload(body, Arc::clone(wait)).boxed_unsync(),
                    None => body,
                };
                let body = guarded_body(body, trailers, &host, &credentials, sought, &ledger);
                let request = Request::from_parts(head, body);
                let departure = RequestDeparture::observed(departure);
                let response = client.send(request, &target, &timeouts, &authorization, departure).await;
                failpoint::pass("request.answered");
                let response = response.map_err(UnsentRequest::Send)?;
                let mut renews = false;
                if let Some(credentials) = credentials.as_ref().filter(|_| response.status() == 401) {
                    renews = credentials.renews(&target);
                    credentials.refused(&target, &authorization).await;
                }
                Ok((response, renews))
            };
            let answer = tokio::select! {
                biased;
                () = ledger.ended() => return Err(Error::HttpRequestDenied),
                answer = send => answer,
            };
            ledger.ends(request_number);
            match answer {
                Ok((response, renews)) => {
                    // Computed again: sending may have obtained a new token.
                    let sought = scanner(credentials.as_deref());
                    let bindings =
                        credentials.map(|credentials| credentials.bindings_for(&target)).unwrap_or_default();
                    let fields = response.headers();
                    if let Some(found) = sought.as_deref().and_then(|sought| find_in_fields(sought, fields)) {
                        ledger.end(in_response(&host, found, bindings));
                        return Err(Error::HttpRequestDenied);
                    }
                    let wait = retry_after_ms(response.headers(), guards.clock.timestamp().into());
                    guards.saw_answer(&host, response.status().as_u16(), wait, renews);
                    // The response is kept until the guest asks for it.
                    charge.add(fields_cost(response.headers())).map_err(|_| Error::HttpRequestDenied)?;
                    let response =
                        observe_response(response, host, bindings, sought, &ledger, guards, permit, haste);
                    let response = response
                        .map(|body| MeteredBody::new(body, charge, BodyHolding::LastFrame).boxed_unsync());
                    let response = match host_wait {
                        Some(wait) => {
                            wait.pauses();
                            response.map(|body| AwaitedHost::download(body, wait).boxed_unsync())
                        }
                        None => response,
                    };
                    Ok((response, Box::new(async { Ok(()) }) as IoFuture))
                }
                Err(UnsentRequest::Unauthorized(unauthorized)) => {
                    ledger.end(unauthorized.into());
                    Err(Error::HttpRequestDenied)
                }
                Err(UnsentRequest::Send(SendError::Refused(refusal) | SendError::RefusedAnswer(refusal))) => {
                    ledger.end(Termination::Denied(refusal));
                    Err(Error::HttpRequestDenied)
                }
                Err(UnsentRequest::Send(SendError::Limit(hit))) => {
                    ledger.end(Termination::Limit(hit));
                    Err(Error::HttpRequestDenied)
                }
                Err(UnsentRequest::Send(SendError::Over)) => Err(Error::HttpRequestDenied),
                Err(UnsentRequest::Send(SendError::Flawed(flaw))) => Err(flawed(flaw)),
                Err(UnsentRequest::Send(SendError::Fault(fault))) => {
                    let error = guest_error(fault.phase, fault.code);
                    let (phase, code, request_sent) = (fault.phase, fault.code, fault.request_sent);
                    if !haste.explains(phase, code) {
                        guards.saw_fault(&host, code);
                    }
                    ledger.saw_fault(SeenFault { host, phase, code, request_sent });
                    Err(error)
                }
            }
        })
    }
}

/// Returns the scanner for the attempt's credentials, if there are any.
fn scanner(credentials: Option<&dyn Authorize>) -> Option<Arc<Scanner>> {
    credentials.map(Authorize::scanner).filter(|scanner| !scanner.is_empty())
}

/// Wraps the body: counted, checked for handles if there are some, and searched for secrets.
fn guarded_body(
    body: WasiBody,
    trailers: TrailersRule,
    host: &str,
    credentials: &Option<Arc<dyn Authorize>>,
    sought: Option<Arc<Scanner>>,
    ledger: &Arc<AttemptLog>,
) -> SecretFilterBody<LimitedBody<CheckedTrailers<WasiBody>>> {
    let body = match credentials {
        Some(credentials) if credentials.has_handles() => {
            let (credentials, ledger) = (Arc::clone(credentials), Arc::clone(ledger));
            WithoutHandles::new(body, credentials, ledger).boxed_unsync()
        }
        _ => body,
    };
    let body = CheckedTrailers::new(body, move |fields| trailers.admits(fields));
    let total = Arc::clone(&ledger.bytes_out);
    let on_excess = {
        let ledger = Arc::clone(ledger);
        move |used| ledger.end(over(LimitKind::RequestBody, limits::REQUEST_BODY_BYTES, used))
    };
    let on_found = {
        let (ledger, host) = (Arc::clone(ledger), host.to_owned());
        move |found| ledger.end(in_request(Some(&host), found))
    };
    SecretFilterBody::new(
        LimitedBody::new(body, limits::REQUEST_BODY_BYTES, total, on_excess),
        sought,
        on_found,
    )
}

/// Finds a secret in the parts of a request before the body.
fn find_in_head<B>(scanner: &Scanner, request: &Request<B>) -> Option<SecretMatch> {
    let found = find_in_uri(scanner, request.uri());
    let found = found.or_else(|| scanner.find(request.method().as_str().as_bytes()));
    found.or_else(|| find_in_fields(scanner, request.headers()))
}

fn in_request(host: Option<&str>, found: SecretMatch) -> Termination {
    let passing = host.map_or_else(|| "request".to_owned(), |host| format!("request:{host}"));
    let bindings = named(found).into_iter().collect();
    Termination::Denied(Denial::for_secret(DenialCode::SecretInRequest, &passing, bindings))
}

fn in_response(host: &str, found: SecretMatch, carried: Vec<String>) -> Termination {
    let bindings = named(found).map_or(carried, |name| vec![name]);
    Termination::Denied(Denial::for_secret(
        DenialCode::SecretReflected,
        &format!("response:{host}"),
        bindings,
    ))
}

fn named(found: SecretMatch) -> Option<String> {
    (!found.binding.is_empty()).then(|| found.binding.to_string())
}

#[expect(clippy::too_many_arguments, reason = "what is known of one answer")]
/// Records the status, counts the body, searches it for secrets, and records a body that breaks off.
fn observe_response(
    response: Response<ResponseBody>,
    host: String,
    bindings: Vec<String>,
    sought: Option<Arc<Scanner>>,
    ledger: &Arc<AttemptLog>,
    guards: Guards,
    permit: OwnedSemaphorePermit,
    haste: GuestTimeouts,
) -> Response<WasiBody> {
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        let retry_after_ms = retry_after_ms(response.headers(), guards.clock.timestamp().into());
        ledger.saw_status(SeenStatus {
            host: host.clone(),
            bindings: bindings.clone(),
            status: status.as_u16(),
            retry_after_ms,
        });
    }
    let (total, ledger) = (Arc::clone(&ledger.bytes_in), Arc::clone(ledger));
    let on_excess = {
        let ledger = Arc::clone(&ledger);
        move |used| ledger.end(over(LimitKind::ResponseBody, limits::RESPONSE_BODY_BYTES, used))
    };
    let on_found = {
        let (ledger, host) = (Arc::clone(&ledger), host.clone());
        move |found| ledger.end(in_response(&host, found, bindings))
    };
    response.map(|body| {
        let counted = LimitedBody::new(body, limits::RESPONSE_BODY_BYTES, total, on_excess);
        SecretFilterBody::new(PermitBody::new(counted, permit), sought, on_found)
            .map_err(move |error| match error {
                ScannedError::Secret => Error::HttpRequestDenied,
                ScannedError::Body(CountedError::TooLarge { .. }) => Error::HttpResponseBodySize(None),
                ScannedError::Body(CountedError::Body(fault)) => {
                    let (phase, code, request_sent) = (fault.phase, fault.code, fault.request_sent);
                    if !haste.explains_body(code) {
                        guards.saw_fault(&host, code);
                    }
                    ledger.saw_fault(SeenFault { host: host.clone(), phase, code, request_sent });
                    guest_error(phase, code)
                }
            })
            .boxed_unsync()
    })
}

fn over(limit: LimitKind, configured: u64, used: u64) -> Termination {
    Termination::Limit(LimitHit::new(limit, configured, used))
}
