//! The gates: everything a guest can reach outside its own memory, and the ledger they share.

pub(super) mod attempt_log;
mod bodies;
pub(super) mod connector;
pub(super) mod guards;
pub(super) mod http;
pub(super) mod http_types;
pub(super) mod log;
pub(super) mod random;
mod request_log;
pub(crate) mod request_observer;
pub(super) mod sockets;
mod traced_content;

#[cfg(test)]
mod secret_tests;
