//! Facts about the running call for its connector.
//!
//! In a native `cargo test` a [`testing::Call`](crate::testing::Call) has these facts. Without one the key is
//! `outside-a-call`, the attempt is 1, and the deadline never comes.

#[cfg(target_arch = "wasm32")]
use crate::bindings::cofferdam::connector::call;
#[cfg(not(target_arch = "wasm32"))]
use crate::testing::imports::call;

/// Returns the key of this logical call: the same in every attempt, new for every new call, 1 to 255 visible ASCII
/// characters.
///
/// For requests over [`http`](crate::http) use [`Request::idempotency_key`](crate::http::Request::idempotency_key),
/// which derives one key for each request from it.
#[must_use]
pub fn idempotency_key() -> String {
    call::idempotency_key()
}

/// Returns the number of this attempt of the call, counted from 1.
#[must_use]
pub fn attempt() -> u32 {
    call::attempt()
}

/// Returns the milliseconds that are left for this attempt: until the end of the call's time, which includes all
/// its attempts and the waits between them, or of the attempt's own time, whichever is sooner. 0 if that time is
/// over.
#[must_use]
pub fn deadline() -> u64 {
    call::deadline()
}
