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
//! In a native `cargo test`, [`testing`](crate::testing) receives the requests and gives the answers. Without it,
//! [`Request::send`] returns [`Error::OutsideSandbox`].

mod error;
mod form;
pub(crate) mod labels;
mod link;
pub(crate) mod request;
mod response;
mod retry_after;
mod status;
#[cfg(target_arch = "wasm32")]
mod transport;
pub(crate) mod url;
#[cfg(not(target_arch = "wasm32"))]
use crate::testing::imports::transport;

pub use error::Error;
pub use request::{Method, Request, delete, get, patch, post, put};
pub use response::Response;
pub use status::StatusError;
pub use url::encode_segment;
