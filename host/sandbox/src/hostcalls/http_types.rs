//! `wasi:http/types` and the outgoing handler: the guest's objects are checked and charged here, then passed
//! to wasmtime-wasi-http.
//!
//! The library keeps any input: a method of any length, a field map for every handle. Each object is charged
//! to the attempt from the call that creates or fills it to the call that drops it, and with the object that
//! it becomes part of.

use std::sync::Arc;

use cofferdam_core::limits;
use http::HeaderMap;
use http_body_util::BodyExt;
use wasmtime::component::{HasData, Resource, ResourceTable};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable};
use wasmtime_wasi_http::p2::bindings::http::outgoing_handler;
use wasmtime_wasi_http::p2::bindings::http::types::{self, ErrorCode, Method, Scheme};
use wasmtime_wasi_http::p2::body::{HostFutureTrailers, HostIncomingBody, HostOutgoingBody};
use wasmtime_wasi_http::p2::types::{
    HostFutureIncomingResponse, HostIncomingRequest, HostIncomingResponse, HostOutgoingRequest,
    HostOutgoingResponse, HostResponseOutparam,
};
use wasmtime_wasi_http::p2::{HeaderError, HeaderResult, HttpError, HttpResult};
use wasmtime_wasi_http::{FieldMap, RequestOptions, WasiHttpCtx, WasiHttpCtxView};

use super::bodies::ChargedBody;
use super::http::{HttpGate, OUTGOING_BODY_BYTES};
use crate::memory::GrowthRefusal;
use crate::memory::{FIELD_BYTES, MemoryCharge, MemoryCharges};

/// The HTTP of one store.
pub(crate) struct HttpTypes<'a> {
    pub(crate) gate: &'a mut HttpGate,
    pub(crate) ctx: &'a mut WasiHttpCtx,
    pub(crate) table: &'a mut ResourceTable,
    pub(crate) charges: &'a mut MemoryCharges,
}

/// The accessor of [`Http`] for the linker.
pub(crate) struct HasHttp;

impl HasData for HasHttp {
    type Data<'a> = HttpTypes<'a>;
}

impl HttpTypes<'_> {
    /// Returns the library's own implementation, on the same objects.
    fn library(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut *self.ctx, table: &mut *self.table, hooks: &mut *self.gate }
    }

    /// Charges `bytes` for the object behind `handle`, in addition to its present charge.
    fn charge<T: 'static>(&mut self, handle: &Resource<T>, bytes: u64) -> Result<(), GrowthRefusal> {
        self.charges.get_or_empty(handle.rep(), self.gate.shared_ledger()).add(bytes)
    }

    /// Charges a copy of a field map that was just pushed.
    fn charge_fields(&mut self, fields: &Resource<FieldMap>) -> wasmtime::Result<()> {
        let bytes = fields_cost(self.table.get(fields)?);
        Ok(self.charge(fields, bytes)?)
    }

    /// Charges the new cost of a field map after a change.
    fn recharge_fields(&mut self, fields: &Resource<FieldMap>) -> wasmtime::Result<()> {
        let bytes = fields_cost(self.table.get(fields)?);
        Ok(self.charges.get_or_empty(fields.rep(), self.gate.shared_ledger()).set(bytes)?)
    }

    /// Sets a part of a request, and charges the change of its size.
    fn set_part(
        &mut self,
        request: Resource<HostOutgoingRequest>,
        set: impl FnOnce(&mut WasiHttpCtxView<'_>, Resource<HostOutgoingRequest>) -> Maybe<()>,
    ) -> Maybe<()> {
        let (rep, before) = (request.rep(), parts_length(self.table.get(&request)?));
        let is_set = set(&mut self.library(), request)?;
        let after = parts_length(self.table.get(&Resource::new_borrow(rep))?);
        let charge = self.charges.get_or_empty(rep, self.gate.shared_ledger());
        charge.set(charge.bytes().saturating_sub(before as u64).saturating_add(after as u64))?;
        Ok(is_set)
    }

    /// Returns the charge of a request's or response's body, which costs its buffers until it is dropped,
    /// regardless of its holder.
    fn body_charge(&mut self, body: &Resource<HostOutgoingBody>) -> Result<Arc<MemoryCharge>, GrowthRefusal> {
        let charge = Arc::new(MemoryCharge::try_new(self.gate.shared_ledger(), OUTGOING_BODY_BYTES)?);
        self.charges.put(body.rep(), Some(Arc::clone(&charge)));
        Ok(charge)
    }
}

/// Returns the cost of a field map.
pub(super) fn fields_cost(fields: &HeaderMap) -> u64 {
    fields.iter().map(|(name, value)| field_cost(name.as_str().len(), value.len())).sum()
}

fn field_cost(name: usize, value: usize) -> u64 {
    (name as u64).saturating_add(value as u64).saturating_add(FIELD_BYTES)
}

fn trap(refused: GrowthRefusal) -> HeaderError {
    HeaderError::trap(refused)
}

fn length(text: Option<&String>) -> usize {
    text.map_or(0, String::len)
}

fn method_length(method: &Method) -> usize {
    match method {
        Method::Other(name) => name.len(),
        _ => 0,
    }
}

type Maybe<T> = wasmtime::Result<Result<T, ()>>;
type Options = Resource<RequestOptions>;
type Nanos = Option<u64>;

/// Forwards functions of an interface to the library unchanged: the price of a handle covers their results.
macro_rules! of_the_library {
    ($interface:ident: $($name:ident($($arg:ident: $of:ty),*) -> $returned:ty;)*) => {
        $(fn $name(&mut self, $($arg: $of),*) -> $returned {
            types::$interface::$name(&mut self.library(), $($arg),*)
        })*
    };
}

fn parts_length(request: &HostOutgoingRequest) -> usize {
    let texts = length(request.path_with_query.as_ref()) + length(request.authority.as_ref());
    method_length(&request.method) + texts
}

impl types::HostFields for HttpTypes<'_> {
    of_the_library! {
        HostFields:
        new() -> wasmtime::Result<Resource<FieldMap>>;
        get(fields: Resource<FieldMap>, name: String) -> wasmtime::Result<Vec<Vec<u8>>>;
        has(fields: Resource<FieldMap>, name: String) -> wasmtime::Result<bool>;
        entries(fields: Resource<FieldMap>) -> wasmtime::Result<Vec<(String, Vec<u8>)>>;
    }

    fn from_list(&mut self, entries: Vec<(String, Vec<u8>)>) -> HeaderResult<Resource<FieldMap>> {
        let cost = entries.iter().map(|(name, value)| field_cost(name.len(), value.len())).sum();
        // Charged before it is created, so that the attempt never exceeds its memory.
        let charge = MemoryCharge::try_new(self.gate.shared_ledger(), cost).map_err(trap)?;
        let fields = types::HostFields::from_list(&mut self.library(), entries)?;
        self.charges.put(fields.rep(), Some(Arc::new(charge)));
        Ok(fields)
    }

    fn set(&mut self, fields: Resource<FieldMap>, name: String, values: Vec<Vec<u8>>) -> HeaderResult<()> {
        let cost = values.iter().map(|value| field_cost(name.len(), value.len())).sum();
        self.charge(&fields, cost).map_err(trap)?;
        let set =
            types::HostFields::set(&mut self.library(), Resource::new_borrow(fields.rep()), name, values);
        self.recharge_fields(&fields).map_err(HeaderError::trap)?;
        set
    }

    fn delete(&mut self, fields: Resource<FieldMap>, name: String) -> HeaderResult<()> {
        let deleted =
            types::HostFields::delete(&mut self.library(), Resource::new_borrow(fields.rep()), name);
        self.recharge_fields(&fields).map_err(HeaderError::trap)?;
        deleted
    }

    fn append(&mut self, fields: Resource<FieldMap>, name: String, value: Vec<u8>) -> HeaderResult<()> {
        let cost = field_cost(name.len(), value.len());
        self.charge(&fields, cost).map_err(trap)?;
        let (rep, fields) = (fields.rep(), Resource::new_borrow(fields.rep()));
        let appended = types::HostFields::append(&mut self.library(), fields, name, value);
        if appended.is_err() {
            let charge = self.charges.get_or_empty(rep, self.gate.shared_ledger());
            charge.set(charge.bytes().saturating_sub(cost)).map_err(trap)?;
        }
        appended
    }

    fn clone(&mut self, fields: Resource<FieldMap>) -> wasmtime::Result<Resource<FieldMap>> {
        let cloned = types::HostFields::clone(&mut self.library(), fields)?;
        self.charge_fields(&cloned)?;
        Ok(cloned)
    }

    fn drop(&mut self, fields: Resource<FieldMap>) -> wasmtime::Result<()> {
        self.charges.take(fields.rep());
        types::HostFields::drop(&mut self.library(), fields)
    }
}

impl types::HostOutgoingRequest for HttpTypes<'_> {
    of_the_library! {
        HostOutgoingRequest:
        // The library parses the scheme, and takes at most 64 bytes: part of the handle's price.
        set_scheme(request: Resource<HostOutgoingRequest>, scheme: Option<Scheme>) -> Maybe<()>;
        method(request: Resource<HostOutgoingRequest>) -> wasmtime::Result<Method>;
        path_with_query(request: Resource<HostOutgoingRequest>) -> wasmtime::Result<Option<String>>;
        scheme(request: Resource<HostOutgoingRequest>) -> wasmtime::Result<Option<Scheme>>;
        authority(request: Resource<HostOutgoingRequest>) -> wasmtime::Result<Option<String>>;
    }

    fn new(&mut self, headers: Resource<FieldMap>) -> wasmtime::Result<Resource<HostOutgoingRequest>> {
        let charge = self.charges.take(headers.rep());
        let request = types::HostOutgoingRequest::new(&mut self.library(), headers)?;
        self.charges.put(request.rep(), charge);
        Ok(request)
    }

    fn set_method(&mut self, request: Resource<HostOutgoingRequest>, method: Method) -> Maybe<()> {
        if method_length(&method) > limits::METHOD_BYTES {
            return Ok(Err(()));
        }
        self.set_part(request, |library, request| {
            types::HostOutgoingRequest::set_method(library, request, method)
        })
    }

    fn set_path_with_query(
        &mut self,
        request: Resource<HostOutgoingRequest>,
        path: Option<String>,
    ) -> Maybe<()> {
        self.set_part(request, |library, request| {
            types::HostOutgoingRequest::set_path_with_query(library, request, path)
        })
    }

    fn set_authority(
        &mut self,
        request: Resource<HostOutgoingRequest>,
        authority: Option<String>,
    ) -> Maybe<()> {
        if length(authority.as_ref()) > limits::AUTHORITY_BYTES {
            return Ok(Err(()));
        }
        self.set_part(request, |library, request| {
            types::HostOutgoingRequest::set_authority(library, request, authority)
        })
    }

    fn body(
        &mut self,
        request: Resource<HostOutgoingRequest>,
    ) -> wasmtime::Result<Result<Resource<HostOutgoingBody>, ()>> {
        let rep = request.rep();
        let Ok(body) = types::HostOutgoingRequest::body(&mut self.library(), request)? else {
            return Ok(Err(()));
        };
        let charge = self.body_charge(&body)?;
        let request = self.table.get_mut(&Resource::<HostOutgoingRequest>::new_borrow(rep))?;
        request.body = request.body.take().map(|body| ChargedBody::new(body, charge).boxed_unsync());
        Ok(Ok(body))
    }

    fn headers(&mut self, request: Resource<HostOutgoingRequest>) -> wasmtime::Result<Resource<FieldMap>> {
        let headers = types::HostOutgoingRequest::headers(&mut self.library(), request)?;
        self.charge_fields(&headers)?;
        Ok(headers)
    }

    fn drop(&mut self, request: Resource<HostOutgoingRequest>) -> wasmtime::Result<()> {
        self.charges.take(request.rep());
        types::HostOutgoingRequest::drop(&mut self.library(), request)
    }
}

impl outgoing_handler::Host for HttpTypes<'_> {
    /// Counts an attempt to send as a request even if the request cannot be built.
    fn handle(
        &mut self,
        request: Resource<HostOutgoingRequest>,
        options: Option<Resource<RequestOptions>>,
    ) -> HttpResult<Resource<HostFutureIncomingResponse>> {
        let charge = self.charges.take(request.rep());
        self.gate.count_request().map_err(HttpError::trap)?;
        // A missing path is an empty one. The library would refuse it, and write a warning to the operator's
        // log.
        self.table.get_mut(&request)?.path_with_query.get_or_insert_default();
        self.gate.next_request_costs(charge);
        let sent = outgoing_handler::Host::handle(&mut self.library(), request, options);
        self.gate.next_request_costs(None);
        sent
    }
}

impl types::HostOutgoingBody for HttpTypes<'_> {
    of_the_library! {
        HostOutgoingBody:
        write(body: Resource<HostOutgoingBody>) -> Maybe<Resource<DynOutputStream>>;
    }

    fn finish(
        &mut self,
        body: Resource<HostOutgoingBody>,
        trailers: Option<Resource<FieldMap>>,
    ) -> HttpResult<()> {
        let charge = self.charges.take(body.rep());
        let fields = trailers.as_ref().and_then(|trailers| self.charges.take(trailers.rep()));
        if let (Some(charge), Some(fields)) = (charge, fields) {
            // The trailers wait with the body until they are sent.
            charge.add(fields.bytes()).map_err(HttpError::trap)?;
        }
        types::HostOutgoingBody::finish(&mut self.library(), body, trailers)
    }

    fn drop(&mut self, body: Resource<HostOutgoingBody>) -> wasmtime::Result<()> {
        self.charges.take(body.rep());
        types::HostOutgoingBody::drop(&mut self.library(), body)
    }
}

impl types::HostOutgoingResponse for HttpTypes<'_> {
    of_the_library! {
        HostOutgoingResponse:
        status_code(response: Resource<HostOutgoingResponse>) -> wasmtime::Result<u16>;
        set_status_code(response: Resource<HostOutgoingResponse>, status: u16) -> Maybe<()>;
    }

    fn new(&mut self, headers: Resource<FieldMap>) -> wasmtime::Result<Resource<HostOutgoingResponse>> {
        let charge = self.charges.take(headers.rep());
        let response = types::HostOutgoingResponse::new(&mut self.library(), headers)?;
        self.charges.put(response.rep(), charge);
        Ok(response)
    }

    fn body(
        &mut self,
        response: Resource<HostOutgoingResponse>,
    ) -> wasmtime::Result<Result<Resource<HostOutgoingBody>, ()>> {
        let rep = response.rep();
        let Ok(body) = types::HostOutgoingResponse::body(&mut self.library(), response)? else {
            return Ok(Err(()));
        };
        let charge = self.body_charge(&body)?;
        let response = self.table.get_mut(&Resource::<HostOutgoingResponse>::new_borrow(rep))?;
        response.body = response.body.take().map(|body| ChargedBody::new(body, charge).boxed_unsync());
        Ok(Ok(body))
    }

    fn headers(&mut self, response: Resource<HostOutgoingResponse>) -> wasmtime::Result<Resource<FieldMap>> {
        let headers = types::HostOutgoingResponse::headers(&mut self.library(), response)?;
        self.charge_fields(&headers)?;
        Ok(headers)
    }

    fn drop(&mut self, response: Resource<HostOutgoingResponse>) -> wasmtime::Result<()> {
        self.charges.take(response.rep());
        types::HostOutgoingResponse::drop(&mut self.library(), response)
    }
}

impl types::HostIncomingResponse for HttpTypes<'_> {
    of_the_library! {
        HostIncomingResponse:
        status(response: Resource<HostIncomingResponse>) -> wasmtime::Result<u16>;
        consume(response: Resource<HostIncomingResponse>) -> Maybe<Resource<HostIncomingBody>>;
    }

    fn headers(&mut self, response: Resource<HostIncomingResponse>) -> wasmtime::Result<Resource<FieldMap>> {
        let headers = types::HostIncomingResponse::headers(&mut self.library(), response)?;
        self.charge_fields(&headers)?;
        Ok(headers)
    }

    fn drop(&mut self, response: Resource<HostIncomingResponse>) -> wasmtime::Result<()> {
        self.charges.take(response.rep());
        types::HostIncomingResponse::drop(&mut self.library(), response)
    }
}

impl types::HostFutureIncomingResponse for HttpTypes<'_> {
    of_the_library! {
        HostFutureIncomingResponse:
        subscribe(future: Resource<HostFutureIncomingResponse>) -> wasmtime::Result<Resource<DynPollable>>;
        drop(future: Resource<HostFutureIncomingResponse>) -> wasmtime::Result<()>;
    }

    fn get(
        &mut self,
        future: Resource<HostFutureIncomingResponse>,
    ) -> wasmtime::Result<Option<Result<Result<Resource<HostIncomingResponse>, ErrorCode>, ()>>> {
        let got = types::HostFutureIncomingResponse::get(&mut self.library(), future)?;
        if let Some(Ok(Ok(response))) = &got {
            let bytes = fields_cost(&self.table.get(response)?.headers);
            self.charge(response, bytes)?;
        }
        Ok(got)
    }
}

impl types::HostFutureTrailers for HttpTypes<'_> {
    of_the_library! {
        HostFutureTrailers:
        subscribe(future: Resource<HostFutureTrailers>) -> wasmtime::Result<Resource<DynPollable>>;
        drop(future: Resource<HostFutureTrailers>) -> wasmtime::Result<()>;
    }

    fn get(
        &mut self,
        future: Resource<HostFutureTrailers>,
    ) -> wasmtime::Result<Option<Result<Result<Option<Resource<FieldMap>>, ErrorCode>, ()>>> {
        let got = types::HostFutureTrailers::get(&mut self.library(), future)?;
        if let Some(Ok(Ok(Some(trailers)))) = &got {
            self.charge_fields(trailers)?;
        }
        Ok(got)
    }
}

impl types::Host for HttpTypes<'_> {
    of_the_library! {
        Host:
        http_error_code(error: Resource<types::IoError>) -> wasmtime::Result<Option<ErrorCode>>;
        convert_error_code(error: HttpError) -> wasmtime::Result<ErrorCode>;
        convert_header_error(error: HeaderError) -> wasmtime::Result<types::HeaderError>;
    }
}

impl types::HostIncomingRequest for HttpTypes<'_> {
    of_the_library! {
        HostIncomingRequest:
        method(request: Resource<HostIncomingRequest>) -> wasmtime::Result<Method>;
        path_with_query(request: Resource<HostIncomingRequest>) -> wasmtime::Result<Option<String>>;
        scheme(request: Resource<HostIncomingRequest>) -> wasmtime::Result<Option<Scheme>>;
        authority(request: Resource<HostIncomingRequest>) -> wasmtime::Result<Option<String>>;
        headers(request: Resource<HostIncomingRequest>) -> wasmtime::Result<Resource<FieldMap>>;
        consume(request: Resource<HostIncomingRequest>) -> Maybe<Resource<HostIncomingBody>>;
        drop(request: Resource<HostIncomingRequest>) -> wasmtime::Result<()>;
    }
}

impl types::HostResponseOutparam for HttpTypes<'_> {
    of_the_library! {
        HostResponseOutparam:
        set(
            outparam: Resource<HostResponseOutparam>,
            response: Result<Resource<HostOutgoingResponse>, ErrorCode>
        ) -> wasmtime::Result<()>;
        send_informational(
            outparam: Resource<HostResponseOutparam>, status: u16, headers: Resource<FieldMap>
        ) -> HttpResult<()>;
        drop(outparam: Resource<HostResponseOutparam>) -> wasmtime::Result<()>;
    }
}

impl types::HostIncomingBody for HttpTypes<'_> {
    of_the_library! {
        HostIncomingBody:
        stream(body: Resource<HostIncomingBody>) -> Maybe<Resource<DynInputStream>>;
        finish(body: Resource<HostIncomingBody>) -> wasmtime::Result<Resource<HostFutureTrailers>>;
        drop(body: Resource<HostIncomingBody>) -> wasmtime::Result<()>;
    }
}

impl types::HostRequestOptions for HttpTypes<'_> {
    of_the_library! {
        HostRequestOptions:
        new() -> wasmtime::Result<Options>;
        connect_timeout(options: Options) -> wasmtime::Result<Nanos>;
        set_connect_timeout(options: Options, time: Nanos) -> Maybe<()>;
        first_byte_timeout(options: Options) -> wasmtime::Result<Nanos>;
        set_first_byte_timeout(options: Options, time: Nanos) -> Maybe<()>;
        between_bytes_timeout(options: Options) -> wasmtime::Result<Nanos>;
        set_between_bytes_timeout(options: Options, time: Nanos) -> Maybe<()>;
        drop(options: Options) -> wasmtime::Result<()>;
    }
}
