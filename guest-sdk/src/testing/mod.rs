//! Unit tests of a connector, in a plain `cargo test` on the author's machine: a [`Call`] stands in for the host.
//!
//! It receives the connector's requests and gives the answers that the test has scripted for them. It sets the facts
//! of the call and keeps the log lines. This module is there in every native build, needs no feature, and is no part
//! of a component.
//!
//! ```
//! use cofferdam_guest::{Failure, connector, http, log};
//!
//! connector!("wit/weather.wit", Weather);
//!
//! struct Weather;
//!
//! impl Guest for Weather {
//!     fn temperature(city: String) -> Result<f64, Failure> {
//!         let response = http::get(format!("https://weather.example/v1/{}", http::encode_segment(&city)))
//!             .query("units", "metric")
//!             .send()?
//!             .error_for_status()?;
//!         let report: serde_json::Value = response.json()?;
//!         log::debug("report read", &[("station", &report["station"])]);
//!         report["temperature"]
//!             .as_f64()
//!             .ok_or_else(|| Failure::failed("no_temperature", "The report has no temperature."))
//!     }
//! }
//!
//! # /*
//! #[cfg(test)]
//! mod tests {
//! # */
//! #   mod tests {
//!     use cofferdam_guest::testing::{Call, json};
//!     use cofferdam_guest::{Failure, NetworkPhase, http};
//!
//!     use super::{Guest as _, Weather};
//!
//! #   /*
//!     #[test]
//! #   */
//! #   pub
//!     fn a_report_has_the_temperature() {
//!         let call = Call::new();
//!         call.expect(http::get("https://weather.example/v1/S%C3%A3o%20Paulo").query("units", "metric"))
//!             .respond_json(200, &json!({"temperature": 21.5, "station": 7}));
//!
//!         assert_eq!(Weather::temperature("São Paulo".to_owned()), Ok(21.5));
//!         assert_eq!(call.log_lines()[0].to_string(), "debug report read station=7");
//!     }
//!
//! #   /*
//!     #[test]
//! #   */
//! #   pub
//!     fn a_lost_connection_is_a_network_failure() {
//!         let call = Call::new();
//!         call.expect(http::get("https://weather.example/v1/Oslo")).fail(NetworkPhase::Response);
//!
//!         let Err(Failure::Network(error)) = Weather::temperature("Oslo".to_owned()) else { panic!() };
//!         assert_eq!(error.phase, Some(NetworkPhase::Response));
//!     }
//! }
//! # fn main() {
//! #     tests::a_report_has_the_temperature();
//! #     tests::a_lost_connection_is_a_network_failure();
//! # }
//! ```
//!
//! A request that the test does not expect panics in the connector's line that sends it, with the request and the
//! difference from each expected one. An expected request that is not sent panics at the end of the call. For
//! everything else, [`Call::requests`] has the requests as the host would receive them: the whole URL, all headers
//! with content length and idempotency key, and the body.
//!
//! # Attempts
//!
//! A test of an operation with an idempotency key plays the attempt whose response is lost, and the one after it:
//!
//! ```
//! use cofferdam_guest::testing::{Call, json};
//! use cofferdam_guest::{Failure, NetworkPhase, http};
//!
//! fn order(item: &str) -> Result<u16, Failure> {
//!     let request = http::post("https://shop.example/orders").idempotency_key("order").json(&json!({"item": item}));
//!     Ok(request.send()?.error_for_status()?.status())
//! }
//!
//! let call = Call::new();
//! call.expect(http::post("https://shop.example/orders")).fail(NetworkPhase::Response);
//! assert!(order("tea").is_err());
//!
//! call.next_attempt();
//! call.expect(http::post("https://shop.example/orders")).respond_json(201, &json!({}));
//! assert_eq!(order("tea"), Ok(201));
//!
//! let requests = call.requests();
//! assert_eq!(requests[0].idempotency_key(), Some("test-call:order"));
//! assert_eq!(requests[0].idempotency_key(), requests[1].idempotency_key());
//! assert_eq!(requests[0].bytes(), requests[1].bytes());
//! ```
//!
//! # Limits of this test double
//!
//! It has no manifest: hosts, credentials and limits are not checked, and the host's own headers are not added. The
//! clock and random numbers are those of the machine. Redirects and retries are as in the sandbox: there are none.
#![expect(clippy::panic, reason = "a test double reports to the test, which a panic fails")]

mod call;
mod expectation;
pub(crate) mod imports;
mod observed;
#[cfg(test)]
mod tests;

pub use call::Call;
pub use expectation::Expectation;
pub use observed::{LogLine, SentRequest, SuppressedError};
pub use serde_json::{Value, json};
