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
//!         let response = http::get(format!("https://weather.example/v1/{}", http::segment(&city)))
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
//! The example is compiled and run, natively, with this crate's tests; that such a crate becomes a component that
//! a host runs is what the connectors in the repository's `examples/` are for.
//!
//! `Cargo.toml` says `crate-type = ["cdylib"]` (and `"rlib"` for integration tests), and
//! `cargo build --release --target wasm32-wasip2` makes the component. `cofferdam build` does that and packs the
//! manifest in. A native `cargo test` works too: it links, it tests everything but the border.
//!
//! # Failures
//!
//! Every operation returns `Result<T, Failure>`. [`Failure`] has four cases, those a connector can claim truthfully:
//! the service answered with an error, it could not be reached, the arguments cannot be meant, the operation failed
//! by itself. `?` makes one of an HTTP error, of an error status ([`http::StatusError`]) and of a JSON error. That a
//! capability was denied or a limit was hit is not for the connector to say: the host observes it.
//!
//! # Attempts
//!
//! The host may run an operation again when its outcome is not known. Whatever changes something sends an idempotency
//! key: [`http::Request::idempotency_key`], with a label for each request. A key helps only where the service honours
//! it; where it does not say so, sending a request again may do the thing again, and the operation is declared
//! `not_idempotent` in the manifest. One that makes several requests is idempotent only if each of them is.
//!
//! # Values in part
//!
//! An operation on many things may succeed with some of them. Its result is a record with a list `errors`, one entry
//! for each that failed: where that list is not empty, the host calls the value partial, and tells callers and agents
//! before they take it for the whole. Entries may have the texts `class`, `code` and `message`, which agents are shown.
//! No other list should have the name `errors`.
//!
//! An error that is passed over on purpose is said to the host: [`log::suppressed`].
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

pub use cofferdam_guest_macro::connector;
pub use failure::{Failure, InputError, NetworkError, NetworkPhase, OperationError, UpstreamError};

/// The raw WASI interfaces a connector may import, for what has no wrapper here.
/// Off wasm their functions panic.
#[doc(inline)]
pub use bindings::wasi;

/// What the code made by [`connector!`] refers to; nothing here is for authors.
#[doc(hidden)]
pub mod __private {
    pub mod bindings {
        pub use crate::bindings::{cofferdam, wasi};
    }
    pub use wit_bindgen::rt;
}
