//! The timeouts that a guest chooses for its requests, and which of them are too short to blame a host for.

use std::time::Duration;

use cofferdam_core::failure::RequestPhase;
use cofferdam_egress::egress::{EgressTimeouts, code};
use wasmtime_wasi_http::RequestOptions;

/// The least time that a host must have had before a timeout of the guest's own choice counts against it.
const FAIR: Duration = Duration::from_secs(10);

/// The waits that the guest made so short that their end says nothing about the host.
#[derive(Clone, Copy)]
pub(super) struct GuestTimeouts {
    connect: bool,
    first_byte: bool,
    between_bytes: bool,
}

impl GuestTimeouts {
    pub(super) fn of(options: Option<&RequestOptions>) -> Self {
        let is_short = |timeout: Option<Duration>| timeout.is_some_and(|timeout| timeout < FAIR);
        Self {
            connect: is_short(options.and_then(|options| options.connect_timeout)),
            first_byte: is_short(options.and_then(|options| options.first_byte_timeout)),
            between_bytes: is_short(options.and_then(|options| options.between_bytes_timeout)),
        }
    }

    /// Returns true if the timeout explains a request without an answer.
    pub(super) fn explains(self, phase: RequestPhase, word: &str) -> bool {
        let chosen = match phase {
            RequestPhase::Dns | RequestPhase::Connect | RequestPhase::Tls => self.connect,
            RequestPhase::Send | RequestPhase::Response => self.first_byte,
        };
        chosen && word == code::TIMEOUT
    }

    /// Returns true if the timeout explains a body that broke off.
    pub(super) fn explains_body(self, word: &str) -> bool {
        (self.first_byte || self.between_bytes) && word == code::TIMEOUT
    }
}

/// Returns the timeouts that the guest requests; the call's own deadline outranks all of them.
pub(super) fn timeouts(options: Option<RequestOptions>) -> EgressTimeouts {
    let mut timeouts = EgressTimeouts::default();
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
