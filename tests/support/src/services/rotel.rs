//! Rotel, a collector for OpenTelemetry.

use super::{Server, Tools};
use crate::package::repository;

/// Starts it. It prints what it takes ([`Server::log`]), and takes it at `/v1/traces`.
///
/// # Panics
/// It does not start.
#[must_use]
pub fn rotel(tools: &Tools) -> Server {
    let script = repository().join("tests/services/tools/collector.py").display().to_string();
    let args = |port: u16| [script, port.to_string()].to_vec();
    Server::start::<String>(tools, tools.python("python"), args, &[])
}
