//! The gates: everything a guest can reach outside its own memory, and the ledger they share.

pub(super) mod call;
pub(super) mod credential;
pub(super) mod guards;
mod held;
pub(super) mod host_wait;
pub(super) mod http;
pub(super) mod ledger;
pub(super) mod log;
pub(super) mod random;
mod retry_after;
pub(super) mod sockets;
pub(super) mod unkeyed;
mod without_handles;

#[cfg(test)]
mod secret_tests;
