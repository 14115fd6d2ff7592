//! The bodies of a guest's requests and of their responses, counted, charged and searched for secrets on their way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use cofferdam_core::failure::LimitKind;
use cofferdam_core::limits::{HEADER_BYTES, REQUEST_BODY_BYTES, RESPONSE_BODY_BYTES};
use cofferdam_core::secret::Scanner;
use cofferdam_egress::egress::{
    Authorize, BodyScan, BodyScanError, EgressClient, NetworkFaultParts, ReadOnly, ResponseBody,
    guest_may_trail, header_bytes,
};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use wasmtime_wasi_http::{Error, WasiBody};

use super::attempt_log::Termination;
use super::guards::HostWait;
use super::request_observer::RequestObserver;
use crate::memory::MemoryCharge;

/// The length of the longest handle minus one: the kept tail of the last piece, so that a handle across two
/// pieces is found.
const KEPT: usize = 128;

/// A body with a charge that is released when the body is dropped, sent or not.
pub(super) struct ChargedBody {
    body: WasiBody,
    _charge: Arc<MemoryCharge>,
}

impl ChargedBody {
    pub(super) fn new(body: WasiBody, charge: Arc<MemoryCharge>) -> Self {
        Self { body, _charge: charge }
    }
}

impl Body for ChargedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The memory that a signer uses: it collects a body in one growing buffer.
pub(super) struct SignerBuffer {
    pub(super) charge: Arc<MemoryCharge>,
    /// The part of the charge that is not for the buffer.
    pub(super) base: u64,
    /// The most bytes that are collected.
    pub(super) most: u64,
    pub(super) passed: u64,
}

/// One admitted request and the rules for the parts of its body.
pub(super) struct RequestRules {
    pub(super) read_only: Option<Arc<ReadOnly>>,
    pub(super) client: EgressClient,
    pub(super) credentials: Option<Arc<dyn Authorize>>,
    pub(super) observer: Arc<RequestObserver>,
    /// The bytes of the fields before the body, which count with the trailers.
    pub(super) head_bytes: usize,
}

/// A request's body: charged for its signer, checked for handles, limited, searched for secrets, and with
/// trailers that obey the rules of the fields before the body.
pub(super) struct GuestRequestBody {
    body: WasiBody,
    scan: BodyScan,
    checks: FrameChecks,
    wait: Option<Arc<HostWait>>,
}

struct FrameChecks {
    rules: Arc<RequestRules>,
    buffer: Option<SignerBuffer>,
    /// The end of the previous pieces, if the body is checked for handles.
    tail: Option<Vec<u8>>,
}

impl GuestRequestBody {
    pub(super) fn new(
        body: WasiBody,
        rules: &Arc<RequestRules>,
        scanner: Option<Arc<Scanner>>,
        buffer: Option<SignerBuffer>,
        wait: Option<Arc<HostWait>>,
    ) -> Self {
        let total = Arc::clone(&rules.observer.ledger.bytes_out);
        let tail = rules.credentials.as_ref().filter(|credentials| credentials.has_handles());
        let checks = FrameChecks { tail: tail.map(|_| Vec::new()), rules: Arc::clone(rules), buffer };
        Self { body, scan: BodyScan::new(REQUEST_BODY_BYTES, total, scanner), checks, wait }
    }
}

impl FrameChecks {
    fn admit(&mut self, frame: &Frame<Bytes>) -> Result<(), Error> {
        let data = frame.data_ref().map_or(&[][..], |data| data);
        if let Some(buffer) = &mut self.buffer {
            buffer.passed = buffer.passed.saturating_add(data.len() as u64);
            let due = buffer.passed.min(buffer.most).saturating_mul(2);
            // The ledger has the verdict; the body only has to end.
            buffer.charge.set(buffer.base.saturating_add(due)).map_err(|_| Error::HttpRequestDenied)?;
        }
        let rules = &self.rules;
        let verdict = match (frame.trailers_ref(), &mut self.tail) {
            (Some(fields), _) => rules.admit_trailers(fields),
            (None, Some(tail)) => {
                // Handles are not replaced in bodies.
                tail.extend_from_slice(data);
                let denial = rules.credentials.as_ref().and_then(|by| by.handle_in_body(tail));
                tail.drain(..tail.len().saturating_sub(KEPT));
                denial.map_or(Ok(()), |denial| Err(Termination::Denied(denial)))
            }
            (None, None) => Ok(()),
        };
        verdict.map_err(|verdict| {
            rules.observer.end_attempt(verdict);
            Error::HttpRequestDenied
        })?;
        rules.observer.sent_body(data);
        let admits = |fields: &HeaderMap| {
            fields.keys().all(|name| {
                guest_may_trail(name) && !rules.credentials.as_ref().is_some_and(|by| by.writes_header(name))
            })
        };
        if frame.trailers_ref().is_none_or(admits) { Ok(()) } else { Err(Error::HttpRequestDenied) }
    }

    fn failed(&self, error: BodyScanError<Error>) -> Error {
        let observer = &self.rules.observer;
        observer.end_attempt(match error {
            BodyScanError::Body(error) => return error,
            BodyScanError::TooLarge(used) => {
                Termination::over(LimitKind::RequestBody, REQUEST_BODY_BYTES, used)
            }
            BodyScanError::Secret(found) => Termination::secret_in_request(Some(&observer.host), found),
        });
        Error::HttpRequestDenied
    }
}

impl RequestRules {
    /// Returns the verdict on trailers that end the attempt.
    fn admit_trailers(&self, fields: &HeaderMap) -> Result<(), Termination> {
        if let Some(read_only) = &self.read_only {
            read_only.admit_fields(fields).map_err(Termination::Denied)?;
        }
        self.client.policy().admit_fields(fields).map_err(Termination::Denied)?;
        let used = self.head_bytes.saturating_add(header_bytes(fields));
        if used > HEADER_BYTES {
            return Err(Termination::over(LimitKind::RequestHeaders, HEADER_BYTES as u64, used as u64));
        }
        // Handles are not replaced in trailers.
        let credentials = self.credentials.as_ref().filter(|credentials| credentials.has_handles());
        let handle = credentials.and_then(|credentials| {
            fields.values().find_map(|value| credentials.handle_in_body(value.as_bytes()))
        });
        handle.map_or(Ok(()), |denial| Err(Termination::Denied(denial)))
    }
}

impl Body for GuestRequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Self { body, scan, checks, wait } = self.get_mut();
        let polled = scan.poll_frame(body, cx, |frame| checks.admit(frame));
        if let Some(wait) = wait {
            wait.polled_upload(polled.is_ready());
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(|error| checks.failed(error))))
    }

    fn is_end_stream(&self) -> bool {
        self.scan.is_end_stream(&self.body)
    }

    fn size_hint(&self) -> SizeHint {
        self.scan.size_hint(&self.body)
    }
}

/// A response's body: limited, searched for secrets, charged, and observed to its end.
pub(super) struct GuestResponseBody {
    body: ResponseBody,
    scan: BodyScan,
    observer: Arc<RequestObserver>,
    /// The bindings whose credentials the request carried.
    bindings: Vec<String>,
    /// The request's slot among the running ones, until the body has been read, or dropped.
    permit: Option<OwnedSemaphorePermit>,
    charge: Arc<MemoryCharge>,
    /// The part of the charge that is not for frames.
    base: u64,
    wait: Option<Arc<HostWait>>,
}

impl GuestResponseBody {
    pub(super) fn new(
        body: ResponseBody,
        observer: Arc<RequestObserver>,
        (bindings, scanner): (Vec<String>, Option<Arc<Scanner>>),
        permit: OwnedSemaphorePermit,
        charge: Arc<MemoryCharge>,
        wait: Option<Arc<HostWait>>,
    ) -> Self {
        let scan = BodyScan::new(RESPONSE_BODY_BYTES, Arc::clone(&observer.ledger.bytes_in), scanner);
        let permit = (!body.is_end_stream()).then_some(permit);
        let base = charge.bytes();
        Self { body, scan, observer, bindings, permit, charge, base, wait }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(self.scan.poll_frame(&mut self.body, cx, |_| Ok(())));
        if self.scan.has_read_all(&self.body) {
            self.permit = None;
        }
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|error| self.failed(error))?;
            // The reader keeps a frame until it asks for the next one.
            let data = frame.data_ref().map_or(&[][..], |data| data);
            self.observer.received(data);
            // The ledger has the verdict; the body only has to end.
            self.charge
                .set(self.base.saturating_add(data.len() as u64))
                .map_err(|_| Error::HttpRequestDenied)?;
            Ok(frame)
        }))
    }

    fn failed(&self, error: BodyScanError<NetworkFaultParts>) -> Error {
        let (verdict, error) = match error {
            BodyScanError::Body(fault) => return self.observer.saw_fault(fault, true),
            BodyScanError::TooLarge(used) => (
                Termination::over(LimitKind::ResponseBody, RESPONSE_BODY_BYTES, used),
                Error::HttpResponseBodySize(None),
            ),
            BodyScanError::Secret(found) => (
                Termination::secret_in_response(&self.observer.host, found, &self.bindings),
                Error::HttpRequestDenied,
            ),
        };
        self.observer.end_attempt(verdict);
        error
    }
}

impl Body for GuestResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let polled = this.poll(cx);
        if let Some(wait) = &this.wait {
            wait.polled_download(polled.is_ready());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.scan.is_end_stream(&self.body)
    }

    fn size_hint(&self) -> SizeHint {
        self.scan.size_hint(&self.body)
    }
}
