//! The timeouts that a guest chooses for its requests, and which of them are too short to blame a host for.

use std::time::Duration;

use cofferdam_core::failure::Phase;
use cofferdam_egress::egress::{Timeouts, code};
use wasmtime_wasi_http::RequestOptions;

/// How long a host must have had before a timeout of the guest's own choice is held against it.
const FAIR: Duration = Duration::from_secs(10);

/// Which waits the guest made so short that their end says nothing about the host.
#[derive(Clone, Copy)]
pub(super) struct Haste {
    connect: bool,
    first_byte: bool,
    between_bytes: bool,
}

impl Haste {
    pub(super) fn of(options: Option<&RequestOptions>) -> Self {
        let is_short = |timeout: Option<Duration>| timeout.is_some_and(|timeout| timeout < FAIR);
        Self {
            connect: is_short(options.and_then(|options| options.connect_timeout)),
            first_byte: is_short(options.and_then(|options| options.first_byte_timeout)),
            between_bytes: is_short(options.and_then(|options| options.between_bytes_timeout)),
        }
    }

    /// Of a request without an answer.
    pub(super) fn explains(self, phase: Phase, word: &str) -> bool {
        let chosen = match phase {
            Phase::Dns | Phase::Connect | Phase::Tls => self.connect,
            Phase::Send | Phase::Response => self.first_byte,
        };
        chosen && word == code::TIMEOUT
    }

    /// Of a body that broke off.
    pub(super) fn explains_body(self, word: &str) -> bool {
        (self.first_byte || self.between_bytes) && word == code::TIMEOUT
    }
}

/// What the guest asks for; the call's own deadline stands above all of it.
pub(super) fn timeouts(options: Option<RequestOptions>) -> Timeouts {
    let mut timeouts = Timeouts::default();
    let Some(options) = options else { return timeouts };
    if let Some(connect) = options.connect_timeout {
        timeouts = timeouts.with_connect(connect);
    }
    if let Some(first_byte) = options.first_byte_timeout {
        timeouts = timeouts.with_first_byte(first_byte);
    }
    if let Some(between_bytes) = options.between_bytes_timeout {
        timeouts = timeouts.with_between_bytes(between_bytes);
    }
    timeouts
}
