//! Structured log lines in the operator's audit log.
//!
//! ```
//! use cofferdam_guest::log;
//!
//! log::info("page read", &[("page", &3), ("issues", &50)]);
//! ```
//!
//! The message is the same each time; variable values go into the fields. The host limits and redacts the lines,
//! and no caller or agent sees them. In a native `cargo test` a [`testing::Call`](crate::testing::Call) keeps them;
//! without one they are dropped.
//!
//! An error that is ignored on purpose is reported with [`suppressed`], so that the call's audit entries show it:
//!
//! ```
//! # fn greeting_of_the_day() -> Result<String, cofferdam_guest::Failure> {
//! #     Err(cofferdam_guest::Failure::failed("no_greeting", "There is none today."))
//! # }
//! use cofferdam_guest::log;
//!
//! let greeting = greeting_of_the_day().unwrap_or_else(|error| {
//!     log::suppressed("a greeting is an ornament", &error);
//!     "Hello".to_owned()
//! });
//! # assert_eq!(greeting, "Hello");
//! ```

use std::fmt::Display;

#[cfg(target_arch = "wasm32")]
use crate::bindings::cofferdam::connector::log as host;
#[cfg(not(target_arch = "wasm32"))]
use crate::testing::imports::log as host;

/// The named values of a line.
pub type Fields<'a> = &'a [(&'a str, &'a dyn Display)];

/// The severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Every step, for the connector's author.
    Trace,
    /// Details for understanding one call.
    Debug,
    /// Events of the normal course.
    Info,
    /// Unexpected events that were handled.
    Warn,
    /// Unexpected events that make the call fail.
    Error,
}

/// Writes a line at `level`. Never fails and never waits.
#[cfg(target_arch = "wasm32")]
pub fn log(level: Level, message: &str, fields: Fields<'_>) {
    let level = match level {
        Level::Trace => host::Level::Trace,
        Level::Debug => host::Level::Debug,
        Level::Info => host::Level::Info,
        Level::Warn => host::Level::Warn,
        Level::Error => host::Level::Error,
    };
    let fields: Vec<host::Field> = fields
        .iter()
        .map(|(key, value)| host::Field { key: (*key).to_owned(), value: value.to_string() })
        .collect();
    host::log(level, message, &fields);
}

/// Writes a line at `level`. Never fails and never waits.
#[cfg(not(target_arch = "wasm32"))]
pub fn log(level: Level, message: &str, fields: Fields<'_>) {
    host::log(level, message, fields);
}

/// Reports an error that was ignored on purpose, with the reason for that. It becomes an event of the call in the
/// audit log. Never fails and never waits.
pub fn suppressed(reason: &str, cause: impl Display) {
    host::suppressed(reason, &cause.to_string());
}

/// Writes a line at [`Level::Trace`].
pub fn trace(message: &str, fields: Fields<'_>) {
    log(Level::Trace, message, fields);
}

/// Writes a line at [`Level::Debug`].
pub fn debug(message: &str, fields: Fields<'_>) {
    log(Level::Debug, message, fields);
}

/// Writes a line at [`Level::Info`].
pub fn info(message: &str, fields: Fields<'_>) {
    log(Level::Info, message, fields);
}

/// Writes a line at [`Level::Warn`].
pub fn warn(message: &str, fields: Fields<'_>) {
    log(Level::Warn, message, fields);
}

/// Writes a line at [`Level::Error`].
pub fn error(message: &str, fields: Fields<'_>) {
    log(Level::Error, message, fields);
}
