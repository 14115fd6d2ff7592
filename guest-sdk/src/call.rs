//! What a connector may know about the call it is running.
//!
//! Outside the sandbox (a native `cargo test` of a connector) there is no call:
//! the key is `outside-a-call`, the attempt 1, and the deadline never comes.

#[cfg(target_arch = "wasm32")]
use crate::bindings::cofferdam::connector::call;

/// The key of this logical call: the same in every attempt, new for every new
/// call, 1 to 255 visible ASCII characters.
///
/// For requests over [`http`](crate::http) use
/// [`Request::idempotency_key`](crate::http::Request::idempotency_key), which
/// makes one key per request of it.
#[must_use]
pub fn idempotency_key() -> String {
    #[cfg(target_arch = "wasm32")]
    let key = call::idempotency_key();
    #[cfg(not(target_arch = "wasm32"))]
    let key = "outside-a-call".to_owned();
    key
}

/// Which attempt of the call this is, counted from 1.
#[must_use]
pub fn attempt() -> u32 {
    #[cfg(target_arch = "wasm32")]
    let attempt = call::attempt();
    #[cfg(not(target_arch = "wasm32"))]
    let attempt = 1;
    attempt
}

/// Milliseconds left for this attempt: until the call's time is up, all its
/// attempts and the waits between them included, or the time of one attempt,
/// whichever is sooner; 0 when it is.
#[must_use]
pub fn deadline() -> u64 {
    #[cfg(target_arch = "wasm32")]
    let deadline = call::deadline();
    #[cfg(not(target_arch = "wasm32"))]
    let deadline = u64::MAX;
    deadline
}
