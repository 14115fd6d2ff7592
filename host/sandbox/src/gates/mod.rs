//! The gates: everything a guest can reach outside its own memory, and the ledger they share.

mod body;
pub(super) mod call;
pub(super) mod charges;
pub(super) mod credential;
mod departure;
pub(super) mod guards;
mod guest_error;
mod haste;
mod held;
pub(super) mod host_wait;
pub(super) mod http;
pub(super) mod http_types;
pub(super) mod ledger;
pub(super) mod log;
pub(super) mod random;
mod retry_after;
pub(super) mod sockets;
mod trailers;
pub(super) mod unkeyed;
mod without_handles;

#[cfg(test)]
mod secret_tests;
