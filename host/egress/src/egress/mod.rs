//! The only way out: HTTP requests that are checked before a name is looked up, and again before a connection
//! is opened.
//!
//! A request passes these checks in this order: the canonical authority ([`RequestTarget`]), the manifest's grants
//! and the action's subset ([`EgressPolicy::decide`]), the granted methods ([`EgressPolicy::admit_method`]) and those of
//! an operation that is declared to change nothing (`ReadOnly`), the lookup, the check of every address
//! ([`EgressPolicy::admit_address`]), the connection to a checked address, TLS against the admitted name, the
//! request over HTTP/1.1 in the host's own framing. Each step can reject the request and none can be skipped: [`EgressClient::send`] is the only function that writes a connector's request to a socket,
//! and it takes a [`RequestTarget`], which only parsing creates. [`connect_admitted`] has the lookup and the check of
//! every address for clients of the operator, who reaches hosts that no manifest grants.

mod address;
mod authority;
mod authorization;
mod bodies;
mod client;
mod connector;
mod fault;
mod headers;
mod host_request;
mod http1;
mod methods;
mod policy;
mod private_grant;
mod request;
mod sigv4;
mod tls;

#[cfg(test)]
mod tests;

pub use address::is_private;
pub use authority::{HostPort, HostPortError, RequestTarget};
pub use authorization::{
    Authorization, AuthorizationError, AuthorizationFuture, Authorize, Injection, VaultFailure,
};
pub use bodies::{BodyScan, BodyScanError, ResponseBody, ScannedFrame, find_in_fields, find_in_uri};
pub use client::{EgressClient, EgressTimeouts};
pub use connector::{Resolve, ResolveError, ResolvedAddresses, SystemResolver, connect_admitted};
pub use fault::{NetworkFaultParts, RequestFlaw, SendError, code, remedy};
pub use headers::is_method_override;
pub use headers::{
    GuestRule, REQUEST_FIELDS, guest_may_set, guest_may_trail, header_bytes, is_read_as, line_bytes,
};
pub use host_request::{HostRequestClient, HostRequestError, RequestBounds};
pub use methods::ReadOnly;
pub use policy::EgressPolicy;
pub use private_grant::{PrivateGrant, PrivateGrantError};
pub use request::ObserveDeparture;
pub use sigv4::Sigv4Signer;
pub(crate) use sigv4::region as aws_region;
pub use tls::{RootCertificates, Tls, TlsSetupError, default_tls, roots_from_pem};
