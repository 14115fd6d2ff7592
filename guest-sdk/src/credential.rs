//! Handles for session tokens, so that a connector can place a token that it never holds.
//!
//! Most credentials need no handle: the host adds them to requests.

#[cfg(target_arch = "wasm32")]
use crate::bindings::cofferdam::connector::credential;
#[cfg(not(target_arch = "wasm32"))]
use crate::testing::imports::credential;

/// A handle for the session token of `service`, to be put into a header's value,
/// a path or a query; the host replaces it on the way out. Good for one request,
/// to a host that the credential is for; ask for another for the next.
///
/// None where the manifest says that the credential is optional and none is
/// bound. A service that the manifest does not name ends the call. In a native
/// `cargo test` the handle is `handle-of-<service>`, unless the test says
/// [otherwise](crate::testing::Call::without_credential).
///
/// ```
/// use cofferdam_guest::{credential, http};
///
/// let handle = credential::handle("tracker").unwrap_or_default();
/// let request = http::get("https://tracker.example/issues").header("x-session", handle);
/// # drop(request);
/// ```
#[must_use]
pub fn handle(service: &str) -> Option<String> {
    credential::handle(service)
}
