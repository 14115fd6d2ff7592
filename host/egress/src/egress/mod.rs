//! The one way out: HTTP requests that were checked before a name is looked up, and again before a
//! connection is made.
//!
//! A request passes, in this order: the authority in its one spelling ([`Target`]), the manifest's grants
//! and the action's subset ([`Policy::decide`]), the methods that are granted ([`Policy::admit_method`]) and those of an
//! operation that is declared to change nothing (`ReadOnly`), the lookup, the check of every address ([`Policy::admit_address`]), the connection to an address that
//! was checked, TLS against the admitted name, the request over HTTP/2 or HTTP/1.1 in the host's own framing. Each step
//! can refuse, none can be skipped: [`Client::send`] is the only function that writes to a socket, and it takes a
//! [`Target`], which only parsing makes.

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
pub use authority::Target;
pub use authorization::{Authorization, Authorize, Authorizing, Injection, Unauthorized, VaultTrouble};
pub(crate) use aws_region::region as aws_region;
pub use client::{Client, Timeouts};
pub use counted::{Counted, CountedError};
pub use fault::{NetworkFaultParts, RequestFlaw, SendError, code, remedy};
pub use headers::is_method_override;
pub use headers::{GuestRule, REQUEST_FIELDS, guest_may_set, header_bytes, is_read_as, line_bytes};
pub use host_port::{HostPort, HostPortError};
pub use incoming::ResponseBody;
pub use outgoing::{Departure, ObserveDeparture};
pub use policy::Policy;
pub use private_grant::{PrivateGrant, PrivateGrantError};
pub use read_only::ReadOnly;
pub use resolve::{Resolution, Resolve, ResolveError, SystemResolver};
pub use scan::{Scanned, ScannedError, find_in_fields, find_in_uri};
pub use sigv4::Sigv4;
pub use tls::{Roots, Tls, TlsSetupError, default_tls, roots_from_pem};
pub use trailers::{CheckedTrailers, TrailersError};
