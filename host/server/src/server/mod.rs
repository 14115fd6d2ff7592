//! The one listener of every server: its address, its access control, its limits, and its shutdown.
//!
//! A server is an [`axum::Router`]; the layers in front of it are the same for all. Loopback is the default,
//! and another address requires a token and TLS. Every request must name a host of this server, which stops
//! web pages that point their own name here (DNS rebinding), and must not come from a web page that was not
//! allowed. A request reaches the router only when it is complete: a client that sends it byte by byte holds
//! one of a bounded number of connections for a bounded time, and no handler. Nothing else in this crate
//! listens.

mod arguments;
mod auth;
mod budget;
mod connection;
mod connection_limit;
mod listener;
mod readiness;
mod rejection;
mod settings;
mod shutdown;

pub(crate) use arguments::{CallArguments, VALUE_BYTES, VALUES};
pub use auth::{BearerToken, PathAccess};
pub use budget::RequestBudget;
pub(crate) use budget::{BudgetCharge, BudgetClient, JsonCountError, count};
pub(crate) use connection::GuardedBody;
pub use listener::{BoundServer, ServerTls};
pub use readiness::ReadinessCheck;
pub use settings::ServerSettings;
pub(crate) use shutdown::InFlightRequests;
pub use shutdown::Shutdown;

/// The path of the health check; it needs no token.
pub const HEALTH: &str = "/healthz";

/// The path of the readiness check; it needs no token.
pub const READY: &str = "/readyz";

/// The longest body of a request, in bytes: the arguments of a call, and the text around them.
pub const BODY_BYTES: usize = cofferdam_core::limits::PAYLOAD_BYTES + 64 * 1024;

#[cfg(test)]
mod tests;
