//! A small blocking HTTP client over `wasi:http`.
//!
//! ```no_run
//! use cofferdam_guest::{Failure, http};
//!
//! fn open_issues(repo: &str) -> Result<serde_json::Value, Failure> {
//!     let response = http::get(format!("https://api.example.com/repos/{}/issues", http::encode_segment(repo)))
//!         .query("state", "open")
//!         .send()?
//!         .error_for_status()?;
//!     Ok(response.json()?)
//! }
//! ```
//!
//! The host decides which hosts may be reached, counts bytes and ends the call at its deadline. None of that can be
//! set here. Redirects are not followed: the connector makes each hop as a separate request.
//!
//! Outside the sandbox (a native `cargo test`) nothing can be sent: [`Request::send`] returns
//! [`Error::OutsideSandbox`]. The handling of a response can still be tested, with [`Response::new`].

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
pub use url::encode_segment;
