//! A small blocking HTTP client over `wasi:http`.
//!
//! ```no_run
//! use cofferdam_guest::{Failure, http};
//!
//! fn open_issues(repo: &str) -> Result<serde_json::Value, Failure> {
//!     let response = http::get(format!("https://api.example.com/repos/{}/issues", http::segment(repo)))
//!         .query("state", "open")
//!         .send()?
//!         .error_for_status()?;
//!     Ok(response.json()?)
//! }
//! ```
//!
//! The host decides what may be reached, counts bytes and ends
//! the call at its deadline; nothing of that can be set here. Redirects are not
//! followed: each hop is a request of its own, to be made by the connector.
//!
//! Outside the sandbox (a native `cargo test`) nothing can be sent:
//! [`Request::send`] returns [`Error::OutsideSandbox`]. What a connector does with
//! a response can be tested all the same, with [`Response::new`].

mod error;
mod form;
#[cfg(any(target_arch = "wasm32", test))]
mod labels;
mod link;
mod request;
mod response;
mod retry_after;
mod status;
#[cfg(target_arch = "wasm32")]
mod transport;
mod url;

pub use error::Error;
pub use request::{Method, Request, delete, get, patch, post, put};
pub use response::Response;
pub use status::StatusError;
pub use url::segment;
