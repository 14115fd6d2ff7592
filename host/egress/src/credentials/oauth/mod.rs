//! OAuth 2.0 tokens: each host has one token manager, so that all callers that need a token share one renewal.
//!
//! This is own code rather than the `oauth2` crate: only two grants of the crate would be used, each one form
//! and one response of four fields. The hard parts of token handling are not in it (one renewal among threads
//! and processes, storing a rotated token before it is used, telling transient failures from permanent ones).
//! It keeps secrets in strings that are not cleared, and it brings second copies of four crates.

mod renewal;
mod token_client;
mod token_manager;
mod token_response;

pub use renewal::{RenewalError, RenewalFuture, RenewalRight, RenewalStore, SharedRenewals, StoredRenewal};
pub(super) use token_manager::TokenManager;
