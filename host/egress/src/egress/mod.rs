//! The only way out: HTTP requests that are checked before a name is looked up, and again before a connection
//! is opened.
//!
//! A request passes these checks in this order: the canonical authority ([`RequestTarget`]), the manifest's grants
//! and the action's subset ([`EgressPolicy::decide`]), the granted methods ([`EgressPolicy::admit_method`]) and those of
//! an operation that is declared to change nothing (`ReadOnly`), the lookup, the check of every address
//! ([`EgressPolicy::admit_address`]), the connection to a checked address, TLS against the admitted name, the
//! request over HTTP/2 or HTTP/1.1 in the host's own framing. Each step can reject the request and none can
//! be skipped: [`EgressClient::send`] is the only function that writes to a socket, and it takes a [`RequestTarget`],
//! which only parsing creates.

mod address;
mod authority;
mod authorization;
mod aws_region;
mod client;
mod connection;
mod connector;
mod counted;
mod exchange;
mod fault;
mod headers;
mod host_port;
mod incoming;
mod methods;
mod multiplexed;
mod outgoing;
mod policy;
mod pool;
mod private_grant;
mod progress;
mod read_only;
mod refusal;
mod resolve;
mod room;
mod scan;
mod sigv4;
mod stream;
mod tls;
mod trailers;

#[cfg(test)]
mod tests;

pub use address::is_private;
pub use authority::RequestTarget;
pub use authorization::{Authorization, Authorize, Authorizing, Injection, Unauthorized, VaultTrouble};
pub(crate) use aws_region::region as aws_region;
pub use client::{EgressClient, EgressTimeouts};
pub use counted::{CountedError, LimitedBody};
pub use fault::{NetworkFaultParts, RequestFlaw, SendError, code, remedy};
pub use headers::is_method_override;
pub use headers::{GuestRule, REQUEST_FIELDS, guest_may_set, header_bytes, is_read_as, line_bytes};
pub use host_port::{HostPort, HostPortError};
pub use incoming::ResponseBody;
pub use outgoing::{ObserveDeparture, RequestDeparture};
pub use policy::EgressPolicy;
pub use private_grant::{PrivateGrant, PrivateGrantError};
pub use read_only::ReadOnly;
pub use resolve::{Resolve, ResolveError, ResolvedAddresses, SystemResolver};
pub use scan::{ScannedError, SecretFilterBody, find_in_fields, find_in_uri};
pub use sigv4::Sigv4Signer;
pub use tls::{RootCertificates, Tls, TlsSetupError, default_tls, roots_from_pem};
pub use trailers::{CheckedTrailers, TrailersError};
