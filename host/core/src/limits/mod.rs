//! The limits of a call: validated amounts, their ceilings, and the ranks of their sources.
//!
//! A [`Limits`] has every limit set: there is no value that means "unlimited" and no way to create one
//! without going through [`Limits::resolve`]. The caller's request outranks the action's, which outranks the
//! manifest's, which outranks the default. Each must be within the host's ceiling; one that is not is
//! rejected by name, with its source.

mod amount;
mod usage;

use std::time::Duration;

pub use amount::{LimitError, LimitRequest, LimitSource, RefusedLimit, parse_time};
pub use usage::Usage;

const MIB: u64 = 1024 * 1024;

/// The default fuel per millisecond of wall time: 1e9 a second.
const FUEL_PER_MS: u64 = 1_000_000;

/// The default wall time of a call.
const DEFAULT_WALL_TIME: Duration = Duration::from_secs(30);

/// The default memory of a call.
const DEFAULT_MEMORY: u64 = 64 * MIB;

/// The stack of WebAssembly frames, in bytes. Fixed: it is part of the compiled code's contract.
pub const STACK_BYTES: usize = 512 * 1024;

/// Arguments and result, each, as JSON text, in bytes.
pub const PAYLOAD_BYTES: usize = 4 * 1024 * 1024;

/// Bytes that a guest passes in one call into the host, or as its result (wasmtime's hostcall fuel).
pub const HOST_TRANSFER_BYTES: usize = 16 * 1024 * 1024;

/// The memory of the host that a result may take as JSON values, in bytes (a value of a few bytes as text
/// takes up to 72), and arguments as dynamic values.
pub const RESULT_BYTES: usize = 64 * 1024 * 1024;

/// Random bytes that a guest gets in one host call: a host function must never take long.
pub const RANDOM_BYTES: usize = 64 * 1024;

/// Handles that a guest may hold on host resources.
pub const HANDLES: usize = 1_000;

/// Core instances of one component, those between composed components included.
pub const INSTANCES: usize = 64;

/// Linear memories of one component.
pub const MEMORIES: usize = 8;

/// Tables of one component.
pub const TABLES: usize = 32;

/// Outgoing requests of one attempt.
pub const REQUESTS: u64 = 64;

/// Concurrent outgoing requests of one attempt; one more waits until one of them has ended.
pub const CONCURRENT_REQUESTS: usize = 8;

/// Bytes of one request's body.
pub const REQUEST_BODY_BYTES: u64 = 10 * MIB;

/// Bytes of one response's body.
pub const RESPONSE_BODY_BYTES: u64 = 10 * MIB;

/// Bytes of one message's head: its header fields, and the first line of a request. Those that a guest is
/// still building count as the host stores them: each with some 70 bytes in addition to its name and value.
pub const HEADER_BYTES: usize = 64 * 1024;

/// The longest method that a guest may set, in bytes.
pub const METHOD_BYTES: usize = 64;

/// The longest authority that a guest may set, in bytes: a host name of 253, and a port.
pub const AUTHORITY_BYTES: usize = 300;

/// Header fields of one response.
pub const RESPONSE_FIELDS: u64 = 100;

/// Log lines of one attempt; further ones are dropped, with one marker.
pub const LOG_LINES: usize = 1_000;

/// Characters of one log line.
pub const LOG_LINE_CHARS: usize = 4 * 1024;

/// Bytes that are kept of an attempt's stdout and stderr, each: the last ones, which contain a panic's
/// message.
pub const STDIO_BYTES: usize = 64 * 1024;

/// The upper bounds of the limits of any call on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitCeilings {
    fuel: u64,
    wall_time: Duration,
    memory: u64,
}

impl Default for LimitCeilings {
    /// Returns 5 minutes, 1 GiB, and the fuel of 100 seconds of computing at 3e9 a second.
    fn default() -> Self {
        Self { fuel: 300_000 * FUEL_PER_MS, wall_time: Duration::from_secs(300), memory: 1024 * MIB }
    }
}

impl LimitCeilings {
    /// Returns the maximum fuel.
    #[must_use]
    pub fn fuel(&self) -> u64 {
        self.fuel
    }

    /// Returns the maximum wall time.
    #[must_use]
    pub fn wall_time(&self) -> Duration {
        self.wall_time
    }

    /// Returns the maximum memory, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns the ceilings lowered to those in `request`; a ceiling can only be lower than the default.
    ///
    /// # Errors
    /// A ceiling above the default one is rejected by name.
    pub fn lowered(self, request: &LimitRequest) -> Result<Self, LimitError> {
        request.within(&self)?;
        Ok(Self {
            fuel: request.fuel().unwrap_or(self.fuel),
            wall_time: request.wall_time().unwrap_or(self.wall_time),
            memory: request.memory().unwrap_or(self.memory),
        })
    }
}

/// The times of a call's retry profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProfileTimes {
    /// The default wall time of a call.
    pub wall_time: Option<Duration>,
    /// The maximum time of one attempt.
    pub attempt_timeout: Option<Duration>,
}

/// The complete limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    fuel: u64,
    wall_time: Duration,
    attempt_time: Duration,
    memory: u64,
}

impl Limits {
    /// Resolves the limits of a call: `caller` outranks `action`, which outranks `manifest`, which outranks
    /// the default, separately for each limit.
    ///
    /// The default wall time is the retry profile's, if it has one, so that its waits fit. The default fuel
    /// is 1e9 for each second that one attempt may take.
    ///
    /// # Errors
    /// A request above its ceiling is rejected by name, never clamped, even if one of a higher rank would
    /// have decided.
    pub fn resolve(
        ceilings: &LimitCeilings,
        manifest: &LimitRequest,
        action: &LimitRequest,
        caller: &LimitRequest,
        profile: &ProfileTimes,
    ) -> Result<Self, RefusedLimit> {
        let ranked =
            [(LimitSource::Caller, caller), (LimitSource::Action, action), (LimitSource::Manifest, manifest)];
        for (asked_by, request) in ranked {
            request.within(ceilings).map_err(|error| RefusedLimit { asked_by, error })?;
        }
        let requests = || ranked.iter().map(|(_, request)| *request);
        let default_wall = profile.wall_time.unwrap_or(DEFAULT_WALL_TIME).min(ceilings.wall_time);
        let wall_time = requests().find_map(LimitRequest::wall_time).unwrap_or(default_wall);
        let attempt_time = profile.attempt_timeout.unwrap_or(wall_time).min(wall_time);
        let wall_ms = u64::try_from(attempt_time.as_millis()).unwrap_or(u64::MAX);
        let default_fuel = wall_ms.saturating_mul(FUEL_PER_MS).clamp(1, ceilings.fuel);
        let fuel = requests().find_map(LimitRequest::fuel).unwrap_or(default_fuel);
        let memory = requests().find_map(LimitRequest::memory).unwrap_or(DEFAULT_MEMORY.min(ceilings.memory));
        Ok(Self { fuel, wall_time, attempt_time, memory })
    }

    /// Returns the maximum time of one attempt: the call's whole wall time, or the limit of its retry
    /// profile.
    #[must_use]
    pub fn attempt_time(&self) -> Duration {
        self.attempt_time
    }

    /// Returns the fuel of one attempt.
    #[must_use]
    pub fn fuel(&self) -> u64 {
        self.fuel
    }

    /// Returns the wall time of the whole call.
    #[must_use]
    pub fn wall_time(&self) -> Duration {
        self.wall_time
    }

    /// Returns the bytes of linear memories, tables and the guest's data in the host, together.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn request(fuel: Option<u64>, wall_time: Option<&str>, memory: Option<&str>) -> LimitRequest {
        LimitRequest::parse(fuel, wall_time, memory).unwrap()
    }

    fn amounts(limits: &Limits) -> (u64, u128, u64) {
        (limits.fuel(), limits.wall_time().as_millis(), limits.memory())
    }

    #[test]
    fn each_limit_comes_from_the_highest_source() {
        let ceilings = LimitCeilings::default();
        let none = LimitRequest::default();
        let caller = request(Some(1), Some("1s"), Some("1MiB"));
        let action = request(Some(2), Some("2s"), Some("2MiB"));
        let manifest = request(Some(3), Some("3s"), Some("3MiB"));
        let partly = request(None, Some("4s"), None);
        for (manifest, action, caller, expected) in [
            (&none, &none, &none, (30_000_000_000, 30_000, 64 * MIB)),
            (&manifest, &none, &none, (3, 3_000, 3 * MIB)),
            (&manifest, &action, &none, (2, 2_000, 2 * MIB)),
            (&manifest, &none, &caller, (1, 1_000, MIB)),
            (&none, &action, &caller, (1, 1_000, MIB)),
            (&manifest, &action, &caller, (1, 1_000, MIB)),
            (&manifest, &action, &partly, (2, 4_000, 2 * MIB)),
            (&manifest, &partly, &none, (3, 4_000, 3 * MIB)),
            // The default fuel follows the wall time, whatever the source of that.
            (&none, &none, &partly, (4_000_000_000, 4_000, 64 * MIB)),
        ] {
            let limits =
                Limits::resolve(&ceilings, manifest, action, caller, &ProfileTimes::default()).unwrap();
            assert_eq!(amounts(&limits), expected);
        }
    }

    #[test]
    fn defaults_are_lowered_with_the_ceilings() {
        let none = LimitRequest::default();
        let ceilings = LimitCeilings::default().lowered(&request(Some(5), Some("2s"), Some("1MiB"))).unwrap();
        let limits = Limits::resolve(&ceilings, &none, &none, &none, &ProfileTimes::default()).unwrap();
        assert_eq!(amounts(&limits), (5, 2_000, MIB));
        assert!(LimitCeilings::default().lowered(&request(None, Some("6m"), None)).is_err(), "never raised");
    }

    #[test]
    fn values_above_a_ceiling_are_refused_not_clamped() {
        let ceilings = LimitCeilings::default();
        let (none, fine) = (LimitRequest::default(), request(Some(1), Some("1s"), Some("1MiB")));
        for (fuel, wall, memory, name) in [
            (Some(u64::MAX), None, None, "fuel: "),
            (Some(300_000_000_001), None, None, "fuel: "),
            (None, Some("6m"), None, "wall_time: "),
            (None, Some("300001ms"), None, "wall_time: "),
            (None, None, Some("2GiB"), "memory: "),
            (None, None, Some("1048577KiB"), "memory: "),
        ] {
            let over = request(fuel, wall, memory);
            for (source, manifest, action, caller) in [
                (LimitSource::Manifest, &over, &none, &none),
                // A lower request of a higher rank does not make it acceptable.
                (LimitSource::Manifest, &over, &fine, &fine),
                (LimitSource::Action, &none, &over, &fine),
                (LimitSource::Caller, &fine, &fine, &over),
                (LimitSource::Caller, &over, &over, &over),
            ] {
                let error = Limits::resolve(&ceilings, manifest, action, caller, &ProfileTimes::default())
                    .unwrap_err();
                assert_eq!(error.asked_by, source, "{error}");
                assert!(error.to_string().starts_with(name), "{error}");
                assert!(error.to_string().contains(source.name()), "{error}");
            }
        }
        let at_the_ceiling = request(Some(300_000_000_000), Some("5m"), Some("1GiB"));
        assert!(Limits::resolve(&ceilings, &none, &none, &at_the_ceiling, &ProfileTimes::default()).is_ok());
    }
}
