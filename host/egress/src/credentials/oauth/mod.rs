//! OAuth 2.0 tokens: one desk for each host, at which everybody who needs a token waits for one renewal.
//!
//! Why own code and not the `oauth2` crate: of what the crate has, two grants are of use here, each one form and
//! one answer of four fields. What is hard about tokens is not in it (one renewal among threads and processes,
//! rotation that is on disk before it is used, what may pass and what may not), it keeps secrets in texts that
//! are not cleared, and it brings second copies of four crates.

mod answer;
mod desk;
mod endpoint;

pub(super) use desk::TokenDesk;
