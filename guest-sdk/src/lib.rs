//! Write a cofferdam connector in Rust: one WIT interface, one `impl`, one macro line.
//!
//! # A whole connector
//!
//! The operations are functions of an interface, in `wit/weather.wit`. Its comments become the descriptions that
//! agents read, and its types are checked before the connector runs:
//!
//! ```wit
#![doc = include_str!("../wit/weather.wit")]
//! ```
//!
//! This is all of `src/lib.rs`:
//!
//! ```
//! use cofferdam_guest::{Failure, connector, http};
//!
//! connector!("wit/weather.wit", Weather);
//!
//! struct Weather;
//!
//! impl Guest for Weather {
//!     fn temperature(city: String) -> Result<f64, Failure> {
//!         if city.is_empty() {
//!             return Err(Failure::invalid_input("city", "must not be empty"));
//!         }
//!         let response = http::get(format!("https://weather.example/v1/{}", http::encode_segment(&city)))
//!             .query("units", "metric")
//!             .send()?
//!             .error_for_status()?;
//!         let report: serde_json::Value = response.json()?;
//!         report["temperature"]
//!             .as_f64()
//!             .ok_or_else(|| Failure::failed("no_temperature", "The report has no temperature."))
//!     }
//! }
//! # fn main() {
//! #     let failure = Weather::temperature(String::new()).unwrap_err();
//! #     assert_eq!(failure.to_string(), "city: must not be empty");
//! # }
//! ```
//!
//! The example is compiled and run, natively, with this crate's tests. The connectors in the repository's
//! `examples/` test that such a crate becomes a component that a host runs.
//!
//! `Cargo.toml` needs `crate-type = ["cdylib"]` (and `"rlib"` for integration tests), and `cargo build --release
//! --target wasm32-wasip2` builds the component. `cofferdam build` does that and embeds the manifest.
//!
//! # Unit tests
//!
//! A plain `cargo test` runs the connector's code natively. [`testing`] stands in for the host: it receives the
//! whole requests, gives scripted answers and network errors, and keeps the log lines.
//!
//! ```
//! # use cofferdam_guest::{Failure, connector, http};
//! # connector!("wit/weather.wit", Weather);
//! # struct Weather;
//! # impl Guest for Weather {
//! #     fn temperature(city: String) -> Result<f64, Failure> {
//! #         let url = format!("https://weather.example/v1/{}", http::encode_segment(&city));
//! #         let response = http::get(url).query("units", "metric").send()?.error_for_status()?;
//! #         let report: serde_json::Value = response.json()?;
//! #         Ok(report["temperature"].as_f64().unwrap())
//! #     }
//! # }
//! # fn main() {
//! use cofferdam_guest::testing::{Call, json};
//!
//! let call = Call::new();
//! call.expect(http::get("https://weather.example/v1/Oslo").query("units", "metric"))
//!     .respond_json(200, &json!({"temperature": -3.5}));
//!
//! assert_eq!(Weather::temperature("Oslo".to_owned()), Ok(-3.5));
//! # }
//! ```
//!
//! # Failures
//!
//! Every operation returns `Result<T, Failure>`. [`Failure`] has four cases, those that a connector can report
//! reliably: the service returned an error, it could not be reached, the arguments are invalid, or the operation
//! failed for a reason of its own. `?` converts an HTTP error, an error status ([`http::StatusError`]) and a JSON
//! error. A connector does not report a denied capability or an exceeded limit: the host observes those.
//!
//! # Attempts
//!
//! The host may run an operation again if its outcome is unknown. Every request that changes something sends an
//! idempotency key: [`http::Request::idempotency_key`], with a label for each request. A key only helps if the
//! service supports it. If the service does not document that, sending a request again may repeat its effect, and
//! the operation is declared `not_idempotent` in the manifest. An operation that makes several
//! requests is idempotent only if each of them is.
//!
//! # Partial values
//!
//! An operation on many items may succeed with some of them. Its result is a record with a list `errors`, one entry
//! for each failed item. If that list is not empty, the host marks the value as partial, so that callers and agents
//! do not take it for complete. Entries may have the texts `class`, `code` and `message`, which agents are shown.
//! No other list should have the name `errors`.
//!
//! An error that is ignored on purpose is reported to the host with [`log::suppressed`].
//!
//! # Features
//!
//! - `allocator` (default): a global allocator for guests, made for instances that live for one call. A connector
//!   with a `#[global_allocator]` of its own turns it off.

#[cfg(all(target_arch = "wasm32", feature = "allocator"))]
mod alloc;
mod bindings;
pub mod call;
pub mod credential;
mod failure;
pub mod http;
pub mod log;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

pub use cofferdam_guest_macro::connector;
pub use failure::{Failure, InputError, NetworkError, NetworkPhase, OperationError, UpstreamError};

/// The raw WASI interfaces that a connector may import, for functions that have no wrapper here. On other targets
/// than wasm their functions panic.
#[doc(inline)]
pub use bindings::wasi;

/// Items for the code generated by [`connector!`]; nothing here is for authors.
#[doc(hidden)]
pub mod __private {
    pub mod bindings {
        pub use crate::bindings::{cofferdam, wasi};
    }
    pub use wit_bindgen::rt;
}
