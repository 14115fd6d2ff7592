//! The one listener of every server: where it listens, who may ask, how much it takes, and how it ends.
//!
//! A server is an [`axum::Router`]; what stands before it is the same for all. Loopback is the default, and another
//! address wants a token and TLS. Every request names a host that is this server's, which stops web pages that had
//! their own name point here, and comes from no web page that was not named. A request reaches the router whole: who
//! sends it byte by byte holds one of a bounded number of connections for a bounded time, and no handler. Nothing else
//! in this crate listens.

mod access;
mod answer;
mod arguments;
mod budget;
mod connection;
mod held;
mod json_count;
mod listener;
mod places;
mod settings;
mod shutdown;
mod slow;
mod tls;
mod token;
mod under_way;

pub(crate) use arguments::{Arguments, VALUE_BYTES, VALUES};
pub use budget::RequestBudget;
pub(crate) use budget::{Charge, Client};
pub(crate) use held::Held;
pub(crate) use json_count::{Rejection, count};
pub use listener::Listening;
pub use settings::ServerSettings;
pub use shutdown::Shutdown;
pub use tls::ServerTls;
pub use token::Token;
pub(crate) use under_way::UnderWay;

/// The path of the answer that the process lives; it needs no token.
pub const HEALTH: &str = "/healthz";

/// The longest body of a request, in bytes: the arguments that a call takes, and what is around them.
pub const BODY_BYTES: usize = cofferdam_core::limits::PAYLOAD_BYTES + 64 * 1024;

#[cfg(test)]
mod tests;
