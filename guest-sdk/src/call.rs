//! Facts about the running call for its connector.
//!
//! Outside the sandbox (a native `cargo test` of a connector) there is no call: the key is `outside-a-call`, the
//! attempt is 1, and the deadline never comes.

#[cfg(target_arch = "wasm32")]
use crate::bindings::cofferdam::connector::call;

/// Returns the key of this logical call: the same in every attempt, new for every new call, 1 to 255 visible ASCII
/// characters.
///
/// For requests over [`http`](crate::http) use [`Request::idempotency_key`](crate::http::Request::idempotency_key),
/// which derives one key for each request from it.
#[must_use]
pub fn idempotency_key() -> String {
    #[cfg(target_arch = "wasm32")]
    let key = call::idempotency_key();
    #[cfg(not(target_arch = "wasm32"))]
    let key = "outside-a-call".to_owned();
    key
}

/// Returns the number of this attempt of the call, counted from 1.
#[must_use]
pub fn attempt() -> u32 {
    #[cfg(target_arch = "wasm32")]
    let attempt = call::attempt();
    #[cfg(not(target_arch = "wasm32"))]
    let attempt = 1;
    attempt
}

/// Returns the milliseconds that are left for this attempt: until the end of the call's time, which includes all
/// its attempts and the waits between them, or of the attempt's own time, whichever is sooner. 0 if that time is
/// over.
#[must_use]
pub fn deadline() -> u64 {
    #[cfg(target_arch = "wasm32")]
    let deadline = call::deadline();
    #[cfg(not(target_arch = "wasm32"))]
    let deadline = u64::MAX;
    deadline
}
